"""The loss of a margin whose slope is bounded and whose curvature vanishes where the slope is full.

It is ``s^2/2`` near 0 and ``S |s|`` less a constant far out, S the full slope. Another curvature at 0 is a
multiple of such an objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.program.declaration import Declaration
from dp2erm_cvx.program.losses.margin_loss import LossTerms, MarginLoss
from dp2erm_cvx.public import public_size
from dp2erm_cvx.saturation import CurvatureShape, Saturation


@dataclass(frozen=True)
class ExtremalLoss(MarginLoss):
    """``S |s| + S^2 (exp(-|s| / S) - 1)``: no loss of the same slope needs less of a ridge (Theorem 15).

    Parameters
    ----------
    full_slope
        S, the largest ``|phi'|``, in units of the margin: beyond a few S a residual pulls no more than there.

    Raises DeclarationError unless S is a positive size.
    """

    full_slope: float
    concordance: float = field(init=False)
    pull = 0.0
    # expm1 to within 4 units in the last place, and what the quotient and the product round
    units = 10.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "full_slope", public_size("full_slope", self.full_slope))
        object.__setattr__(self, "concordance", 1.0 / self.full_slope)

    def sizes(self, s: Array) -> Array:
        """``|s| / S``."""
        return np.abs(s) / self.full_slope

    def least_curvature(self, s: Array, distance: Array) -> Array:
        lowest: Array = self.curvature(np.abs(s) + distance) * (1 - 1e-9)
        return lowest

    def slope_error(self, s: Array, error: Array) -> Array:
        return error * self._largest_near(s, error) + self.units * UNIT * np.abs(self.slope(s))

    def curvature_error(self, s: Array, error: Array) -> Array:
        return error * self.concordance * self._largest_near(s, error) + 16 * UNIT

    def _largest_near(self, s: Array, error: Array) -> Array:
        # the curvature falls with |s|
        highest: Array = self.curvature(np.maximum(np.abs(s) - error, 0.0)) * (1 + 1e-9)
        return highest

    def largest_slope(self, margin_bound: float) -> float:
        return min(self.full_slope, float(self.slope(np.array([margin_bound]))[0]) * (1 + 1e-12))

    def largest_curvature(self, margin_bound: float) -> float:
        return 1.0

    def saturation(self, row_norm: float) -> Saturation:
        return Saturation(self.full_slope, 1.0, row_norm, CurvatureShape.LINEAR)

    def value(self, s: Array) -> Array:
        t, S = self.sizes(s), self.full_slope
        value: Array = S * (S * (t + np.expm1(-t)))
        return value

    def slope(self, s: Array) -> Array:
        return np.copysign(self.full_slope * -np.expm1(-self.sizes(s)), s)

    def curvature(self, s: Array) -> Array:
        curvature: Array = np.exp(-self.sizes(s))
        return curvature

    def at(self, s: Array, error: Array) -> LossTerms:
        S, t = self.full_slope, self.sizes(s)
        fallen = np.expm1(-t)
        slope = np.copysign(S * -fallen, s)
        value, curvature = S * (S * (t + fallen)), 1.0 + fallen
        # the curvature grows at most by this factor within an error of the margin
        nearby = math.exp(min(float(np.max(error, initial=0.0)) / S, 700.0)) * (1 + 1e-9)
        wrong = error * np.minimum(nearby * curvature + 4 * UNIT, 1.0)
        slope_error = wrong + self.units * UNIT * np.abs(slope)
        return LossTerms(value, slope, curvature, slope_error, wrong * self.concordance + 16 * UNIT)

    def declared(self, s: Any) -> Any:
        """Its value; what solvers are given is :meth:`epigraph`."""
        S = self.full_slope
        return S * cp.abs(s) + S**2 * (cp.exp(-cp.abs(s) / S) - 1)

    def epigraph(self, s: Any) -> Declaration:
        """``S^2 min (v + exp(-v) - 1)`` over ``v >= |s| / S``, where it increases with v."""
        v, sizes = cp.Variable(s.shape, name="levels"), cp.abs(s) / self.full_slope
        phi = self.full_slope**2 * (v + cp.exp(-v) - 1)
        return Declaration(phi, {"levels": v}, {"levels": sizes <= v}, {"levels": sizes})
