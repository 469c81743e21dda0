"""Weights that are functions of margins, as those of inverse propensities are."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.certified_radius import CLOSED_FORM
from dp2erm_cvx.model.sums import UNIT, dot_error


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


def weights_given_coefficient(weight: MarginWeight, dimension: int, row_bound: float, norm: float) -> float:
    """Bound on ``||w_hat - w||_1 / n`` given the coefficient v, ``||v|| <= norm``.

    At margins of rows of norm at most ``row_bound``; only the margins and the last steps round.
    """
    evaluated = 16 * UNIT * (2 + weight.largest_log(row_bound * norm))
    return weight.lipschitz * row_bound * dot_error(dimension) * norm + max(CLOSED_FORM, evaluated)
