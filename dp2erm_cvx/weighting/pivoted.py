"""Few features of a kernel, with a proved bound of what they lack, and no matrix of all pairs of records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from dp2erm_cvx.domain import Array
from dp2erm_cvx.weighting.features import KernelOfRecords
from dp2erm_cvx.weighting.inverse_slope import UNIT_ROUNDOFF

#: What a diagonal entry may lack after the last pivot, of the largest one.
_LEFT = 1e-12
#: Largest error of a similarity, of the largest one, that features are used for: a public number.
SIMILARITY_ERROR = 2e-10


@dataclass(frozen=True)
class PivotedFeatures:
    """Features (n, r) whose inner products are the kernel, up to a proved error.

    Parameters
    ----------
    values
        The features of all records (n, r).
    entry_error
        Bound of ``|K(x_i, x_j) - <f_i, f_j>|`` over all pairs of records, in units of the kernel.
    """

    values: Array
    entry_error: float


def pivoted_features(
    kernel: KernelOfRecords, X: Array, most: int, entry_units: float
) -> PivotedFeatures | None:
    """Features by a pivoted Cholesky factor, one column of the kernel per pivot.

    Parameters
    ----------
    kernel
        The kernel.
    X
        Covariates (n, p).
    most
        Public number of pivots that are tried.
    entry_units
        Units of roundoff by which an entry of the kernel may be off.

    Returns
    -------
    PivotedFeatures or None
        None where the public number of pivots does not reach a public error.
    """
    n = len(X)
    diagonal = kernel.diagonal(X)
    largest = float(np.max(diagonal, initial=0.0))
    if largest <= 0.0:
        return PivotedFeatures(np.zeros((n, 0)), 0.0)
    left = diagonal.copy()
    # One row per pivot, so that records stand side by side in memory.
    factor = np.zeros((most, n))
    columns = np.zeros((most, n))
    pivots: list[int] = []
    while float(np.max(left)) > _LEFT * largest:
        if len(pivots) == most:
            return None
        pivot = int(np.argmax(left))
        done = len(pivots)
        column = kernel.cross(X, X[pivot : pivot + 1])[:, 0]
        columns[done] = column
        rest = column - factor[:done, pivot] @ factor[:done]
        factor[done] = rest / np.sqrt(left[pivot])
        # Earlier pivots have nothing left but rounding.
        factor[done, pivots] = 0.0
        left = np.maximum(left - factor[done] ** 2, 0.0)
        left[pivot] = 0.0
        pivots.append(pivot)
    rank = len(pivots)
    values = np.ascontiguousarray(factor[:rank].T)
    error = _entry_error(values, columns[:rank].T, np.array(pivots), diagonal, entry_units)
    if not error <= SIMILARITY_ERROR * largest:
        return None
    return PivotedFeatures(values, error)


def _entry_error(values: Array, columns: Array, pivots: Array, diagonal: Array, entry_units: float) -> float:
    """Bound of ``|K_ij - <f_i, f_j>|``, measured rather than estimated.

    Any coefficients c_i write the feature of the kernel as ``phi_i = sum_k c_ik phi_k + psi_i`` over the
    pivots k. What that leaves, ``|psi_i|^2`` and ``<phi_k, psi_i>``, is computed from columns of the kernel.
    So is the distance of f_i from ``sum_k c_ik f_k``. The bound is the sum of all products of the parts.
    """
    unit = UNIT_ROUNDOFF
    rank = values.shape[1]
    largest = float(np.max(diagonal))
    triangle = values[pivots]
    among = columns[pivots]
    coefficients = solve_triangular(triangle, values.T, lower=True, trans="T").T
    sum_of_sizes = float(np.max(np.sum(np.abs(coefficients), axis=1))) * (1.0 + 2.0 * rank * unit)
    entry = entry_units * unit * largest
    product = (rank + 4.0) * unit * (1.0 + sum_of_sizes) * largest

    interpolated = coefficients @ among
    across = float(np.max(np.abs(columns - interpolated)))
    across += (1.0 + sum_of_sizes) * entry + product
    cross_terms = np.sum(coefficients * columns, axis=1)
    square_terms = np.sum(interpolated * coefficients, axis=1)
    remainder = float(np.max(diagonal - 2.0 * cross_terms + square_terms))
    remainder = max(remainder, 0.0)
    remainder += (1.0 + sum_of_sizes) ** 2 * (entry + 2.0 * (rank + 4.0) * unit * largest)

    # Rows f_i have norms of at most the root of the diagonal, up to rounding.
    longest = float(np.sqrt(np.max(np.sum(values**2, axis=1)))) * (1.0 + (rank + 4.0) * unit)
    distances = np.sqrt(np.sum((values - coefficients @ triangle) ** 2, axis=1))
    distance = float(np.max(distances)) * (1.0 + (rank + 4.0) * unit)
    distance += (rank + 4.0) * unit * (1.0 + sum_of_sizes) * longest * np.sqrt(rank)
    apart = float(np.max(np.abs(among - triangle @ triangle.T)))
    apart += entry + (rank + 4.0) * unit * longest**2

    total = 2.0 * sum_of_sizes * across + remainder + sum_of_sizes**2 * apart
    total += 2.0 * distance * (longest + distance) + distance**2
    return float(total * (1.0 + 1e-6))
