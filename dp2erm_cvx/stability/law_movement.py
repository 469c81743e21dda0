"""Theorem 22: how far the laws of the weights move with the coefficient, by curvature.

In the notation of the theorem ``g = b f h'^2 / (c phi'')``, C bounds ``4 E[c_A^2 g] E[1/(b f)]``
over laws and events A, G is the largest g, L the largest ``|h'|``, m the least mean of ``b f``
(Theorem 23), D and D_h are the diameters of the gradients of the loss and of h, and H is the length
of an interval of h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.suprema import corners, largest_of, support
from dp2erm_cvx.stability.arm_curves import ArmCurves
from dp2erm_cvx.stability.margin_cells import OUTWARD, ROUNDS, MarginCells, MarginScheme

#: Cells of the movement of the coefficient.
_MOVES = 40_000
#: Multipliers t of a search for C, and how often it is narrowed around the best one.
_MULTIPLIERS = 24
_ZOOMS = 5
#: Factor to either side of the first multiplier that the search begins with.
_FIRST_SPAN = 1e3
#: Relative excess of C over a value that is attained on cells.
_CLOSE = 1e-5
#: Largest exponent of the growth of weights along the way.
_LARGEST_EXPONENT = 700.0


class VarianceConstants(NamedTuple):
    """Constants of Theorem 22.

    Attributes
    ----------
    variance
        The bound C, ``inf`` where a weight moves and the loss is flat.
    largest_g
        The largest g, G of the theorem.
    steepest
        The largest ``|h'|``, L of the theorem, in inverse units of the margin.
    """

    variance: float
    largest_g: float
    steepest: float


@dataclass(frozen=True)
class CoefficientTravel:
    """How far the coefficient and the log weights move between neighbors, for rows of norm 1.

    Parameters
    ----------
    n
        Number of records.
    mu
        Ridge of the mean objective.
    end
        Bound on the movement of v.
    gradient_diameter
        Diameter D of the gradients of the loss, in units of the loss over those of the margin.
    weight_diameter
        Diameter D_h of the gradients of h, in inverse units of the margin.
    arm_range
        Length of the longest interval that h of one arm lies in: the H of the tilt. It is not the
        ``log_weight_range`` of a scheme, which spans both arms and log b.
    """

    n: int
    mu: float
    end: float
    gradient_diameter: float
    weight_diameter: float
    arm_range: float

    @property
    def by_range(self) -> float:
        """Change of laws by the tilt lemma."""
        spread = min(self.weight_diameter * self.end, 2.0 * self.arm_range)
        return 2.0 * math.tanh(spread / 4.0)

    def law_change(
        self, constant: float, from_mean: float = math.inf, steepest: float = 0.0
    ) -> float:
        """Bound on the movement ell of the laws on the common records (Theorem 22).

        It is the largest over movements delta of v up to ``end`` of the smaller one of both
        branches, the tilt lemma and the curvature along the way.

        Parameters
        ----------
        constant
            The bound C of Theorem 22.
        from_mean
            The quotient G/m of Theorem 23.
        steepest
            The largest ``|h'|``, L of Theorem 22.

        Returns
        -------
        float
            The bound, at most 2.
        """
        if not math.isfinite(min(constant, from_mean)):
            # without curvature the way may have no end, either
            return self.by_range
        edges = np.linspace(0.0, self.end, _MOVES + 1)
        low = edges[:-1]
        high = edges[1:]
        spread = np.minimum(self.weight_diameter * high, 2.0 * self.arm_range)
        by_range = 2.0 * np.tanh(spread / 4.0)
        constants = np.minimum(constant, from_mean * _mean_growth(steepest, high))
        room = self._curvature_room(low, high)
        by_curvature = np.sqrt(constants * (self.n / (self.n - 1)) * room)
        return float(np.max(np.minimum(by_range, by_curvature))) * OUTWARD

    def _curvature_room(self, low: Array, high: Array) -> Array:
        """Largest ``(D delta / n - mu delta^2)_+`` on cells of delta."""
        slope = self.gradient_diameter / self.n
        peak = math.inf
        if self.mu:
            peak = slope / self.mu / 2.0
        delta = np.clip(peak, low, high)
        room: Array = np.maximum(self.gradient_diameter * delta / self.n - self.mu * delta**2, 0.0)
        return room


def _mean_growth(steepest: float, movement: Array) -> Array:
    """``(e^x - 1) / x`` at ``x = L delta / 2``, by which 1/F grows along the way on average."""
    x = np.minimum(steepest * movement / 2.0, _LARGEST_EXPONENT)
    growth: Array = np.where(x > 1e-8, np.expm1(x) / np.maximum(x, 1e-300), 1.0 + x)
    return growth


class _Points(NamedTuple):
    """Points (g, 1/(b f)) of Theorem 22, one or two for every cell of margins.

    Attributes
    ----------
    g, inverse
        Largest g and 1/(b f) on the cell.
    cell
        Number of the cell.
    """

    g: Array
    inverse: Array
    cell: NDArray[np.int64]


def variance_constants(scheme: MarginScheme) -> VarianceConstants:
    """C, G and L of a scheme, by cells of margins that are cut where C rests on them."""
    cells = scheme.cells()
    for _ in range(ROUNDS):
        points, steepest = _variance_points(scheme, cells)
        if not math.isfinite(float(np.max(points.g))):
            return VarianceConstants(math.inf, math.inf, steepest)
        hull = corners(points.g, points.inverse)
        g = points.g[hull]
        inverse = points.inverse[hull]
        cells = cells.cut(np.unique(points.cell[hull]))
    return VarianceConstants(_largest_variance(g, inverse), float(np.max(g)), steepest)


def _variance_points(scheme: MarginScheme, cells: MarginCells) -> tuple[_Points, float]:
    """Points (g, 1/(b f)) on cells, and the largest ``|h'|``.

    Between the ends of b the points lie below the line through those of the ends.
    """
    bounds = scheme.log_weights(cells)
    least, largest = bounds.weights()
    parts = []
    for number, arm in enumerate(scheme.arms):
        of_arm = np.flatnonzero(cells.arm == number)
        steep = bounds.steepest[of_arm]
        curvature = np.maximum(arm.loss.curvatures(cells.low[of_arm], cells.high[of_arm])[0], 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # 0/0 counts as 0: a weight that does not move asks for no curvature.
            ratio = np.where(steep == 0.0, 0.0, largest[of_arm] * steep**2 / curvature)
            g = ratio * OUTWARD
        for multiple, b in _weight_factor_ends(arm):
            inverse = OUTWARD / (b * least[of_arm])
            parts.append(_Points(multiple * g, inverse, of_arm))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return _Points(*columns), float(np.max(bounds.steepest))


def _weight_factor_ends(arm: ArmCurves) -> list[tuple[float, float]]:
    """Pairs of b/c and b that the hull of the points needs; where b is c it cancels in g."""
    low, high = arm.weight_factor
    if arm.tied:
        return [(1.0, low)]
    least_factor = arm.factor[0]
    return [(b / least_factor, b) for b in sorted({low, high})]


def _largest_variance(g: Array, inverse: Array) -> float:
    """``C = sup 4 E[c_A^2 g] E[1/f]`` over laws on cells and events A, by corners (g, 1/f)."""
    largest_g = float(np.max(g))
    if largest_g == 0.0:
        return 0.0

    def bounds(mass: Array, _: NDArray[np.int64], half_width: float) -> tuple[Array, Array]:
        """Bounds at masses of A, and over cells around them."""
        at_mass = _variance_bounds(g, inverse, mass, mass)
        on_cells = _variance_bounds(g, inverse, mass - half_width, mass + half_width)
        return at_mass, on_cells

    best = largest_of(bounds, (0.0, 0.5), 1, _CLOSE)
    return min(best, largest_g * float(np.max(inverse))) * OUTWARD


def _variance_bounds(g: Array, inverse: Array, low: Array, high: Array) -> Array:
    """The least bound (m,) of ``X Y`` at masses Q of A from low to high.

    X is ``4 E[c_A^2 g]``, with ``c_A = 1 - Q`` on A and -Q off it, and Y is ``E[1/f]``. For any
    t > 0 the product is at most ``((t X + Y / t) / 2)^2``; X and Y are linear in the laws on A and
    off it, so that each sits on one cell. The bound is convex in log t.

    Parameters
    ----------
    g, inverse
        Coordinates (k,) of the corners (g, 1/f).
    low, high
        Ends of the masses (m,).
    """
    p = np.maximum(low, 0.0)[:, None]
    q = high[:, None]
    on_event = 4.0 * (1.0 - p) ** 2 * q
    off_event = 4.0 * q * q * (1.0 - p)
    t = np.sqrt(float(np.max(inverse)) / ((on_event + off_event) * float(np.max(g))))
    span = _FIRST_SPAN
    for _ in range(_ZOOMS):
        t = t * np.geomspace(1.0 / span, span, _MULTIPLIERS)
        of_g = np.stack([t * on_event, t * off_event])
        of_inverse = np.stack([q / t, (1.0 - p) / t])
        largest_on, largest_off = support(g, inverse, of_g, of_inverse)
        sums = largest_on + largest_off
        least = np.argmin(sums, axis=1)[:, None]
        t = np.take_along_axis(t, least, axis=1)
        span = span ** (2.0 / (_MULTIPLIERS - 1))
    bounds: Array = np.min(0.5 * sums, axis=1) ** 2
    return bounds
