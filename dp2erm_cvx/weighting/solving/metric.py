"""The metric of the Hessian of the dual, as far as it is proved from below near computed weights.

Theorem 39 of ``docs/theory/weights_certificate.md``: weights that are strictly inside their boxes
answer to their prices at rates that are bounded from below. Where they do, a steep price pulls the
imbalance back, so that what is missed of it counts in the inverse of ``I + C``, C the covariance of
the rows under these rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.weighting.solving.dataset import WeightingData, blocked_sum, sum_units

#: Rounding of the norms that are computed here.
_NORMS = 1.0 + 1e-9


@dataclass(frozen=True)
class Metric:
    """Bounds of what imbalances move the weights by, in the metric of the Hessian.

    It is a sum over orthonormal directions of two kinds.

    Along steep directions a vector counts in the inverse of a matrix at most ``I + C``. Where all
    prices are squares, it counts along all others by as much as weights answer to that direction at
    all.

    Parameters
    ----------
    directions
        Directions v_j as columns (K, K).
    scale
        Roots (K,) of the smoothness of prices.
    steep
        Factors (K,) of components along steep directions, 0 for others.
    flat
        Factors (K,) of components along all others, 0 for steep ones.
    lengths
        Sizes (n,) of the rows of records whose weights are free; 0 of others.
    """

    directions: Array
    scale: Array
    steep: Array
    flat: Array
    lengths: Array

    @classmethod
    def of(
        cls, data: WeightingData, weights: Array, reach: float, response: float
    ) -> Metric | None:
        """The metric at computed weights.

        Parameters
        ----------
        data
            The dataset; its prices are smooth, and its rows vectors.
        weights
            Computed weights (n,).
        reach
            Proved distance of every computed weight from the exact one, and from that at the exact
            prices.
        response
            Bound of the sum of the responses of all records.

        Returns
        -------
        Metric or None
            None where no weight is known to answer.
        """
        scale = np.sqrt(data.smoothness)
        rows = data.rows * scale
        covariance, error = _covariance(data, rows, least_rates(data, weights, reach))
        K = len(scale)
        trace = float(np.trace(covariance))
        if not 0.0 < trace < math.inf:
            return None
        # C is at least the computed matrix less its error. A share eta of it is taken, so that this
        # error and the rounding of eigenvectors are below what is left of the identity.
        error += 8.0 * (K + 1.0) ** 2 * UNIT * trace
        eta = min(1.0, 0.2 / error)
        eigenvalues, directions = np.linalg.eigh(np.eye(K) / 2.0 + eta * covariance)
        # No eigenvalue of a matrix above I / 2 - I / 5 is below 0.3.
        steep = 1.0 / np.sqrt(np.maximum(eigenvalues, 0.3))
        flat = np.zeros(K)
        if all(priced.penalty.plain for priced in data.priced):
            answers = math.sqrt(response) * _largest_along(data, rows, directions)
            flat = np.where(answers < steep, answers, 0.0)
            steep = np.where(answers < steep, 0.0, steep)
        lengths = np.zeros(len(rows))
        metric = cls(directions, scale, steep, flat, lengths)
        lengths[data.free] = metric._sizes(rows[data.free])
        return metric

    def size(self, vector: Array, error: Array) -> float:
        """Bound of the size of a vector (K,) that is off by at most ``error`` (K,)."""
        sides = np.vstack([self.scale * vector, np.diag(self.scale * error)])
        return float(np.sum(self._sizes(sides))) * ROUND_UP

    def _sizes(self, vectors: Array) -> Array:
        """Bounds (m,) of the sizes of scaled vectors (m, K)."""
        along = vectors @ self.directions
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        # Components are off by few units of the whole vector, which counts by 2 at most.
        rounding = 8.0 * (len(self.scale) + 4.0) ** 2 * UNIT * norms
        steep = np.linalg.norm(along * self.steep, axis=1)
        return np.asarray((steep + np.abs(along) @ self.flat) * _NORMS + rounding)


def _largest_along(data: WeightingData, rows: Array, directions: Array) -> Array:
    """Bounds (K,) of ``|<z_i - c_b, v_j>|`` over scaled rows (n, K) of free records.

    c_b is the mean of a block.
    """
    K = len(directions)
    largest = np.zeros(K)
    for block in data.blocks:
        inside = rows[block.members][data.free[block.members]]
        if not len(inside):
            continue
        centered = inside - np.mean(inside, axis=0)
        along = np.max(np.abs(centered @ directions), axis=0)
        longest = math.sqrt(float(np.max(np.einsum("ij,ij->i", inside, inside))))
        largest = np.maximum(largest, along + 32.0 * (K + 4.0) * UNIT * longest)
    return largest * ROUND_UP


def least_rates(data: WeightingData, weights: Array, reach: float) -> Array:
    """Bounds (n,) from below of the secants of inverse slopes, for weights within ``reach``.

    They are 0 where an end of the box, or a kink, may be met.

    Parameters
    ----------
    data
        The dataset.
    weights
        Computed weights (n,).
    reach
        Distance from them.

    Returns
    -------
    Array
        The bounds.
    """
    curve = data.curve
    base = np.ones_like(weights)
    if curve.base is not None:
        base = curve.base
    largest_offset = 0.0
    for part in curve.dispersion.parts:
        largest_offset = max(largest_offset, abs(part.offset / part.factor))
    distance = reach + 32.0 * UNIT * (weights + largest_offset * base)
    start = weights - distance
    end = weights + distance
    inside = (start > curve.low) & (end < curve.cap)
    # Elsewhere any weights of the box do: their rate is not used.
    start = np.where(inside, start, weights) / base
    end = np.where(inside, end, weights) / base
    with np.errstate(all="ignore"):
        rate = base / curve.dispersion.largest_curvature(start, end)
    usable = inside & np.isfinite(rate)
    return np.where(usable, rate / _NORMS, 0.0)


def _covariance(data: WeightingData, rows: Array, rates: Array) -> tuple[Array, float]:
    """Covariance (K, K) of scaled rows (n, K) under rates (n,), and its error.

    It is the sum over blocks of ``sum_i rho_i (z_i - z_b)(z_i - z_b)'`` about the mean of every
    block. The exact one is at least the computed one less its error times the identity.
    """
    K = rows.shape[1]
    total = np.zeros((K, K))
    error = 0.0
    for block in data.blocks:
        rate = rates[block.members]
        if float(np.sum(rate)) > 0.0:
            block_rows = rows[block.members]
            covariance, sum_error, row_error = _covariance_of_block(block_rows, rate)
            total += (covariance + covariance.T) / 2.0
            error += sum_error
            error += row_error
    return total, error * ROUND_UP


def _covariance_of_block(rows: Array, rate: Array) -> tuple[Array, float, float]:
    """Covariance of rows (m, K) of one block under rates (m,), and errors of its sums and rows."""
    K = rows.shape[1]
    mass = float(np.sum(rate))
    centered = rows - rate @ rows / mass
    covariance = np.array([blocked_sum(rate * centered[:, k], centered) for k in range(K)])
    # What is left of the mean, t = sum_i rho_i (z_i - z_b), lowers the covariance by at most
    # |t|^2 / sum_i rho_i.
    remainder = float(np.linalg.norm(blocked_sum(rate, centered)))
    size = max(float(np.trace(covariance)), 0.0)
    units = (sum_units(len(rate)) + 16.0) * UNIT
    remainder += units * math.sqrt(mass * size) * ROUND_UP
    sum_error = 2.0 * units * size + remainder * remainder / mass
    # Rows are off by few units of their own size.
    row_squares = float(rate @ np.einsum("ij,ij->i", rows, rows))
    row_error = 64.0 * UNIT * math.sqrt(size * row_squares) + (64.0 * UNIT) ** 2 * row_squares
    return covariance, sum_error, row_error
