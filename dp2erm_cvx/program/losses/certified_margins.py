"""How near its minimizer a sum of margin losses is sure to be solved, known in advance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.model.certified_radius import Sizes, radius_at_floor
from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.model.sums import UNIT, dot_error, sum_error
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.log_weights import LogWeight, steepest, weights_given_coefficient
from dp2erm_cvx.stability.suprema import gradient_diameter, largest_multiple

#: The most that rounding moves a margin, at whose curvature the error of a slope is taken.
_NEAR = 0.01


@dataclass(frozen=True)
class RowBounds:
    """Bound on the norm of z, and intervals of the numbers o, c and t over the domain."""

    norm: float
    offset: tuple[float, float] = (0.0, 0.0)
    factor: tuple[float, float] = (1.0, 1.0)
    tilt: tuple[float, float] = (0.0, 0.0)

    def reach(self, size: float) -> float:
        """Bound on ``|<z, theta> - o|`` over ``||theta|| <= size``."""
        # 0 * inf: where all rows are 0 every margin is
        return max(map(abs, self.offset)) + (self.norm * size if self.norm else 0.0)

    def constants(self, curve: Curve, size: float) -> tuple[float, float]:
        """Half the diameter of a record's gradients over ``||theta|| <= size``, and the largest of them."""
        reach = self.norm * size if self.norm else 0.0
        numbers = (-self.offset[1], -self.offset[0]), self.factor, self.tilt
        largest = largest_multiple(curve, reach, *numbers)
        return self.norm * min(0.5 * gradient_diameter(curve, reach, *numbers), largest), self.norm * largest

    def loss_at_zero(self, curve: Curve) -> float:
        """Root of a bound on ``c (phi(-o) - inf phi)``: where the choice of a split starts from.

        That of the largest offset at the full slope, where there is one: a loss that saturates says little of
        the size of theta by its own value.
        """
        ends, steepest = -np.array(self.offset), max(map(abs, curve.ends))
        falls = float(np.max(curve.value(ends) - curve.least_value(self.reach(math.inf))))
        if math.isfinite(steepest):
            falls = max(falls, steepest * float(np.max(np.abs(ends))))
        return math.sqrt(max(self.factor[1] * falls, 1e-300))


@dataclass(frozen=True)
class MarginSum:
    """``sum m_i phi(<z_i, v> - o_i) + ridge/2 ||v||^2 + <linear, v>`` over a set, known by its bounds.

    Attributes
    ----------
    rows : bounds on z and o, and of the sum of the multipliers over n
    ridge : counts n
    linear : bound on the norm of the linear term
    weighted : whether there are multipliers other than 1
    """

    n_samples: int
    n_parameters: int
    loss: Curve
    rows: RowBounds
    feasible: ConvexSet
    ridge: float
    linear: float = 0.0
    weighted: bool = False

    @property
    def margin(self) -> float:
        """Bound on ``|s|`` over the set."""
        return self.rows.reach(self.feasible.norm_bound(self.n_parameters))

    def sizes(self) -> Sizes | None:
        """Its :class:`~dp2erm_cvx.model.certified_radius.Sizes`; None where one is infinite.

        At the minimizer t ``ridge t`` is minus the gradient of the rest, hence ``||t|| <= (n Z slope +
        linear) / ridge``. Without offsets ``ridge ||t||^2 <= sum -s_i phi'(s_i) + linear ||t||`` as well,
        hence ``||t|| <= (n pull / ridge)^(1/2) + linear / ridge``.
        """
        n, Z, offset = self.n_samples * self.rows.factor[1], self.rows.norm, max(map(abs, self.rows.offset))
        slope, curvature = self.loss.largest_slope(self.margin), self.loss.largest_curvature(self.margin)
        near = self.loss.largest_curvature(self.margin + _NEAR)
        if not (math.isfinite(slope) and math.isfinite(near)):
            return None
        linear = self.linear + self.n_samples * Z * max(map(abs, self.rows.tilt))
        steep = n * Z * slope + linear
        minimizer = set_norm = self.feasible.norm_bound(self.n_parameters)
        if self.ridge > 0:
            pulled = math.sqrt(self.loss.pull(self.margin) * n / self.ridge) + linear / self.ridge
            minimizer = min(steep / self.ridge, math.inf if offset else pulled, set_norm)
        steps = self.loss.rounding_units(self.margin) + (4 if self.weighted else 2) * slope
        error = dot_error(self.n_parameters) + (UNIT if offset else 0.0)
        rounded = steps * UNIT + sum_error(self.n_samples) * slope + 2 * UNIT * curvature * offset
        return Sizes(
            strong_convexity=self.ridge,
            smoothness=n * curvature * Z**2 + self.ridge,
            slope=steep,
            rounding=n * Z * rounded + 4 * UNIT * linear,
            rounding_growth=near * error * n * Z**2 + 4 * UNIT * self.ridge,
            minimizer_norm=minimizer,
            set_norm=set_norm,
            set_rounding=self.feasible.rounding(self.n_parameters),
        )

    def radius(self) -> float | None:
        """Bound on ``Certificate.radius`` of v; None where nothing is known."""
        sizes = self.sizes()
        return None if sizes is None else radius_at_floor(sizes)

    def weights(self, weight: LogWeight, row_bound: float) -> float | None:
        """Bound on ``||w_hat - w||_1 / n`` of weights at the margins of other rows of at most this norm."""
        sizes, radius = self.sizes(), self.radius()
        if sizes is None or radius is None:
            return None
        norm = sizes.minimizer_norm + radius
        at_point = weights_given_coefficient(weight, self.n_parameters, row_bound, norm)
        return steepest(weight, row_bound * norm) * row_bound * radius + at_point
