"""Sums of a margin loss over records: coefficients of weighting schemes, and second stages."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.certified_radius import CLOSED_FORM
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, dot_error, product_error, sum_error
from dp2erm_cvx.program.losses.margin_loss import MarginLoss


class MarginWeight(abc.ABC):
    """``log f(s)``, which changes by at most ``lipschitz`` times the change of the margin.

    :meth:`log` is computed to within 8 units of roundoff of ``1 + |log f|``.
    """

    lipschitz: float = 1.0

    @abc.abstractmethod
    def log(self, s: Array) -> Array:
        """Log f at margins (n,)."""

    def of(self, tilt: Array, total: Array) -> Array:
        """F itself in place of ``total = 1 + tilt``, ``tilt = exp(-s)``: batches share both with the loss."""
        return np.exp(self.log(-np.log(tilt)), out=total)

    def largest_log(self, reach: float) -> float:
        """Bound on ``|log f|`` over ``|s| <= reach``."""
        return float(np.abs(self.log(np.zeros(1)))[0]) + self.lipschitz * reach

    def log_range(self, reach: float) -> float:
        """Length of an interval that log f lies in over ``|s| <= reach``."""
        return 2.0 * self.lipschitz * reach

    def largest_weight(self, n: int, reach: float) -> float:
        """The largest of n weights of sum n whose margins are within ``reach``."""
        return stability.largest_weight(n, self.log_range(reach))


@dataclass(frozen=True)
class InversePropensity(MarginWeight):
    """``f = min(1 + exp(-s), trim)``: one over the probability sigma(s) of the observed arm."""

    trim: float = math.inf

    def log(self, s: Array) -> Array:
        weight: Array = np.log1p(np.exp(-np.abs(s))) - np.minimum(s, 0.0)
        return weight if math.isinf(self.trim) else np.minimum(weight, math.log(self.trim))

    def of(self, tilt: Array, total: Array) -> Array:
        return total if math.isinf(self.trim) else np.minimum(total, self.trim, out=total)

    def largest_log(self, reach: float) -> float:
        return min(1.0 + reach, math.log(self.trim))

    def log_range(self, reach: float) -> float:
        return max(min(reach, math.log(self.trim) - math.log1p(math.exp(-reach))), 0.0)

    def largest_weight(self, n: int, reach: float) -> float:
        return stability.overlap_weight(n, reach, self.trim)


@dataclass(frozen=True)
class Overlap(MarginWeight):
    """``f = sigma(-s)``: the probability of the other arm (Li, Morgan & Zaslavsky 2018)."""

    def log(self, s: Array) -> Array:
        weight: Array = -np.log1p(np.exp(-np.abs(s))) - np.maximum(s, 0.0)
        return weight

    def of(self, tilt: Array, total: Array) -> Array:
        return np.divide(tilt, total, out=total)

    def log_range(self, reach: float) -> float:
        return reach


class MarginModel(Composite):
    """f(v) = sum_i m_i phi(<z_i, v> - o_i) + ridge/2 ||v||^2 + <linear, v>, plus a penalty.

    ``Z`` (n, d); ``multipliers`` m >= 0 and ``offset`` o (n,), 1 and 0 by default; ``ridge`` counts n;
    ``linear`` (d,) is exact or rounded once. ``norm_bound`` bounds the norm of feasible points. With
    ``weight`` the output is ``w = n f / sum(f)``, f its value at ``<u_i, v>``, u the ``weight_rows`` (n, d),
    Z by default; otherwise it is v.
    """

    def __init__(
        self,
        Z: Array,
        loss: MarginLoss,
        ridge: float,
        penalty: Penalty,
        *,
        norm_bound: float = math.inf,
        multipliers: Array | None = None,
        offset: Array | None = None,
        linear: Array | None = None,
        weight: MarginWeight | None = None,
        weight_rows: Array | None = None,
    ) -> None:
        self.Z, self.loss, self.penalty, self.weight = Z, loss, penalty, weight
        self.n, self.dimension, self.ridge = len(Z), int(Z.shape[1]), ridge
        self.multipliers: Array = np.ones(self.n) if multipliers is None else multipliers
        self.offset: Array = np.zeros(self.n) if offset is None else offset
        # roundoffs of a term beside its slope's and that of the sum, and of a margin beside its product's
        self._steps = (2 if multipliers is None else 4) * UNIT
        self._shift = 0.0 if offset is None else UNIT
        self.linear: Array = np.zeros(self.dimension) if linear is None else linear
        self.row_norms: Array = np.linalg.norm(Z, axis=1)
        self.spread = float(np.max(self.row_norms, initial=0.0)) * (1 + 1e-12)
        self.weight_rows = Z if weight_rows is None else weight_rows
        self.self_concordance = loss.concordance * self.spread if self.spread else 0.0
        far = float(np.max(np.abs(self.offset), initial=0.0))
        # 0 * inf: where all rows are 0 every margin is
        reach = far + (self.spread * norm_bound if self.spread else 0.0)
        steep = self.multipliers * loss.largest_curvature(reach)
        gram = (Z.T * steep) @ Z
        self.smoothness = float(np.linalg.eigvalsh(gram)[-1]) * (1 + 1e-9) + 1e-300 + ridge
        # theta itself may be 0: a relative radius is then stated in a gradient step from 0
        first_step = -self.gradient(np.zeros(self.dimension)) / self.smoothness
        self.least_scale = float(np.linalg.norm(penalty.set.project(first_step)))

    def margins(self, v: Array) -> Array:
        """<z_i, v> - o_i, (n,)."""
        return self.Z @ v - self.offset

    def value(self, v: Array) -> float:
        loss = float(self.multipliers @ self.loss.value(self.margins(v)))
        return loss + 0.5 * self.ridge * float(v @ v) + float(self.linear @ v)

    def gradient(self, v: Array) -> Array:
        pull = self.multipliers * self.loss.slope(self.margins(v))
        return blocked_rmatvec(self.Z, pull) + self.ridge * v + self.linear

    def hessian(self, v: Array) -> Array:
        steep = self.multipliers * self.loss.curvature(self.margins(v))
        return (self.Z.T * steep) @ self.Z + self.ridge * np.eye(self.dimension)

    def spectrum(self, v: Array) -> tuple[float, float]:
        if math.isinf(self.self_concordance):
            return self.ridge, self.smoothness  # the Hessian at one point says nothing about the next
        return super().spectrum(v)

    def lowest_within(self, v: Array, distance: float) -> float:
        s, reach = self.margins(v), self.row_norms * distance * (1 + 1e-12) + self._margin_error(v)
        steep = self.multipliers * self.loss.least_curvature(s, reach)
        gram = (self.Z.T * steep) @ self.Z
        error = (64 * self.dimension * UNIT + product_error(self.n)) * float(steep @ self.row_norms**2)
        lowest = float(np.linalg.eigvalsh(gram)[0]) - error
        return self.ridge + max(lowest, 0.0)

    def hessian_rounding(self, v: Array) -> float:
        s = self.margins(v)
        error = self.loss.curvature_error(s, self._margin_error(v))
        error = error + (product_error(self.n) + 8 * UNIT) * self.loss.curvature(s)
        return float(self.multipliers @ (error * self.row_norms**2)) + 4 * UNIT * self.ridge

    def rounding(self, v: Array) -> float:
        s = self.margins(v)
        error = self.loss.slope_error(s, self._margin_error(v))
        error = error + (sum_error(self.n) + self._steps) * np.abs(self.loss.slope(s))
        linear = self.ridge * float(np.linalg.norm(v)) + float(np.linalg.norm(self.linear))
        return float(self.multipliers @ (error * self.row_norms)) + 4 * UNIT * linear

    def _margin_error(self, v: Array) -> Array:
        sizes = np.abs(self.Z) @ np.abs(v)
        error: Array = (dot_error(self.dimension) + self._shift) * sizes + self._shift * np.abs(self.offset)
        return error

    def output(self, v: Array) -> Array:
        if self.weight is None:
            return v
        logs = self.weight.log(self.weight_rows @ v)
        tilt: Array = np.exp(logs - np.max(logs))
        return tilt * (self.n / math.fsum(tilt))

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        if self.weight is None:
            return radius
        # tilt lemma without a changed record: no log weight moves by more than kappa
        rows = self.weight_rows
        kappa = float(np.max(np.linalg.norm(rows, axis=1), initial=0.0)) * (1 + 1e-12) * radius
        if local is not None:
            kappa = min(kappa, local.largest(rows))
        logs = self.weight.log(rows @ v)
        product = dot_error(self.dimension) * float(np.max(np.abs(rows) @ np.abs(v), initial=0.0))
        kappa = self.weight.lipschitz * (kappa + product)
        kappa += 16 * UNIT * (1.0 + float(np.max(np.abs(logs), initial=0.0)))
        return 2 * self.n * math.tanh(kappa / 2) + 16 * UNIT * self.n

    def output_scale(self, v: Array) -> float:
        if self.weight is not None:
            return float(self.n)
        return max(float(np.linalg.norm(v)), self.least_scale) or 1.0


def weights_given_coefficient(weight: MarginWeight, dimension: int, row_bound: float, norm: float) -> float:
    """Bound on ``||w_hat - w||_1 / n`` given the coefficient v, ``||v|| <= norm``.

    At margins of rows of norm at most ``row_bound``; only the margins and the last steps round.
    """
    evaluated = 16 * UNIT * (2 + weight.largest_log(row_bound * norm))
    return weight.lipschitz * row_bound * dot_error(dimension) * norm + max(CLOSED_FORM, evaluated)
