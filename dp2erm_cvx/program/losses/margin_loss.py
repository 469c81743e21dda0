"""Losses of one record as a function of its margin: convex, with what a certificate must know of them."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.program.declaration import Declaration
from dp2erm_cvx.public import public_size
from dp2erm_cvx.saturation import CurvatureShape, Saturation


@dataclass(frozen=True, eq=False)
class LossTerms:
    """Phi, its two derivatives and bounds on their errors at margins (n,)."""

    value: Array
    slope: Array
    curvature: Array
    slope_error: Array
    curvature_error: Array


class MarginLoss(abc.ABC):
    """``phi(s)``, convex. All methods take margins (n,) and work elementwise.

    Attributes
    ----------
    concordance : c with ``|phi'''| <= c phi''``; ``inf`` where the second derivative jumps
    pull : bound on ``-s phi'(s)`` over all s, which bounds the minimizer of a ridged sum; ``inf`` if none is
        known
    units : roundoff of a computed slope where the margin is exact, in units of the largest slope
    """

    concordance: float
    pull: float = math.inf
    units: float = 4.0

    @abc.abstractmethod
    def value(self, s: Array) -> Array:
        """phi(s)."""

    @abc.abstractmethod
    def slope(self, s: Array) -> Array:
        """phi'(s)."""

    def descent(self, tilt: Array, total: Array, out: Array) -> Array:
        """``-phi'(s)`` from ``tilt = exp(-s)`` and ``total = 1 + tilt``, which batches share with the weight.

        In ``out``, which may be ``total``, or in ``tilt``.
        """
        return np.negative(self.slope(-np.log(tilt)), out=out)

    @abc.abstractmethod
    def curvature(self, s: Array) -> Array:
        """phi''(s)."""

    def least_curvature(self, s: Array, distance: Array) -> Array:
        """Lower bound on phi'' within ``distance`` (n,) of the margins."""
        return np.zeros(len(s))

    @abc.abstractmethod
    def slope_error(self, s: Array, error: Array) -> Array:
        """Bound on the error of a computed slope where the margin is wrong by at most ``error`` (n,)."""

    @abc.abstractmethod
    def curvature_error(self, s: Array, error: Array) -> Array:
        """The same for the curvature."""

    def at(self, s: Array, error: Array) -> LossTerms:
        """All of these at margins that are wrong by at most ``error`` (n,): a loss may share exponentials."""
        errors = self.slope_error(s, error), self.curvature_error(s, error)
        return LossTerms(self.value(s), self.slope(s), self.curvature(s), *errors)

    @abc.abstractmethod
    def largest_slope(self, margin_bound: float) -> float:
        """Bound on ``|phi'|`` over ``|s| <= margin_bound``."""

    @abc.abstractmethod
    def largest_curvature(self, margin_bound: float) -> float:
        """Bound on ``phi''`` over ``|s| <= margin_bound``."""

    @abc.abstractmethod
    def declared(self, s: Any) -> Any:
        """Phi of a CVXPY expression, elementwise."""

    def epigraph(self, s: Any) -> Declaration:
        """The same as CVXPY takes it, where :meth:`declared` needs variables of its own for that."""
        return Declaration(self.declared(s), {})

    def saturation(self, row_norm: float) -> Saturation | None:
        """What Theorem 15 needs of it at margins of rows of this norm; None where curvature need not fall."""
        return None


@dataclass(frozen=True)
class LogisticLoss(MarginLoss):
    """``log(1 + exp(-s))``."""

    concordance = 1.0
    pull = 0.2785  # W(1/e)
    units = 2.0

    def value(self, s: Array) -> Array:
        return np.log1p(np.exp(-np.abs(s))) - np.minimum(s, 0.0)

    def slope(self, s: Array) -> Array:
        return -_expit(-s)

    def descent(self, tilt: Array, total: Array, out: Array) -> Array:
        return np.divide(tilt, total, out=out)

    def curvature(self, s: Array) -> Array:
        p = _expit(s)
        return p * (1 - p)

    def slope_error(self, s: Array, error: Array) -> Array:
        # through tanh its error is absolute, not relative
        return 0.25 * error + self.units * UNIT

    def curvature_error(self, s: Array, error: Array) -> Array:
        return 0.25 * error + 8 * UNIT

    def at(self, s: Array, error: Array) -> LossTerms:
        tilt = np.exp(-np.abs(s))
        rare = tilt / (1 + tilt)  # the probability of the less likely sign
        value = np.log1p(tilt) - np.minimum(s, 0.0)
        slope = -np.where(s > 0, rare, 1 - rare)
        errors = self.slope_error(s, error), self.curvature_error(s, error)
        return LossTerms(value, slope, rare * (1 - rare), *errors)

    def largest_slope(self, margin_bound: float) -> float:
        return 1.0

    def largest_curvature(self, margin_bound: float) -> float:
        return 0.25

    def declared(self, s: Any) -> Any:
        return cp.logistic(-s)

    def saturation(self, row_norm: float) -> Saturation:
        return Saturation(1.0, 0.25, row_norm, CurvatureShape.LOGISTIC)


@dataclass(frozen=True)
class ExponentialLoss(MarginLoss):
    """``exp(-s)``."""

    concordance = 1.0
    pull = 0.36788  # 1/e

    def value(self, s: Array) -> Array:
        with np.errstate(over="ignore"):
            tilt: Array = np.exp(-s)
        return tilt

    def slope(self, s: Array) -> Array:
        return -self.value(s)

    def descent(self, tilt: Array, total: Array, out: Array) -> Array:
        return tilt

    def curvature(self, s: Array) -> Array:
        return self.value(s)

    def slope_error(self, s: Array, error: Array) -> Array:
        with np.errstate(over="ignore"):
            relative: Array = np.expm1(np.minimum(error, 150.0)) * (1 + 8 * UNIT) + 4 * UNIT
        return self.value(s) * relative * (1 + 1e-9)

    def curvature_error(self, s: Array, error: Array) -> Array:
        return self.slope_error(s, error)

    def largest_slope(self, margin_bound: float) -> float:
        return math.exp(margin_bound) if margin_bound < 700.0 else math.inf

    def largest_curvature(self, margin_bound: float) -> float:
        return self.largest_slope(margin_bound)

    def declared(self, s: Any) -> Any:
        return cp.exp(-s)


@dataclass(frozen=True)
class HuberLoss(MarginLoss):
    """``s^2`` up to ``threshold``, ``2 threshold |s| - threshold^2`` beyond (Huber 1964)."""

    threshold: float = 1.0
    concordance = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", public_size("threshold", self.threshold))

    def value(self, s: Array) -> Array:
        inner: Array = np.clip(s, -self.threshold, self.threshold)
        value: Array = inner * (2 * s - inner)
        return value

    def slope(self, s: Array) -> Array:
        slope: Array = 2 * np.clip(s, -self.threshold, self.threshold)
        return slope

    def curvature(self, s: Array) -> Array:
        return 2.0 * (np.abs(s) <= self.threshold).astype(np.float64)

    def least_curvature(self, s: Array, distance: Array) -> Array:
        return 2.0 * (np.abs(s) + distance < self.threshold).astype(np.float64)

    def slope_error(self, s: Array, error: Array) -> Array:
        return 2 * error

    def curvature_error(self, s: Array, error: Array) -> Array:
        # it jumps: nothing is known
        return np.full(len(s), 2.0)

    def largest_slope(self, margin_bound: float) -> float:
        return 2 * min(self.threshold, margin_bound)

    def largest_curvature(self, margin_bound: float) -> float:
        return 2.0

    def declared(self, s: Any) -> Any:
        return cp.huber(s, self.threshold)


def _expit(s: Array) -> Array:
    # scipy's expit costs several times as much per element
    half: Array = 0.5 * np.tanh(0.5 * s)
    return 0.5 + half
