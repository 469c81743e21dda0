"""Losses and weights by arm, and what bounds the minimizer and the gradients of one record.

A record of an arm has a row z with ``||z|| <= 1``, the margin ``s = <z, v> + o``, the loss
``c phi(s)`` and a weight proportional to ``b f(s)``, f = exp(h). Phi and h are those of its arm,
and o, c and b lie in public intervals. Callers scale rows of another norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, Array, largest_bound
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.curves.suprema import (
    Interval,
    MarginGradient,
    MarginSlope,
    ScalarLoss,
    ScalarWeight,
    diameter_of_kinds,
    slope_diameter_of_kinds,
)
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.stability.base import outward

#: Margins and log weights beyond which exponentials leave floating point.
FARTHEST = 600.0
#: Cells of the angle between the margins of one record in both arms.
_ANGLES = 4096
#: Parts of a cell of norms in the search for the largest norm of a minimizer.
_NORM_PARTS = 16
#: How often the last admitted cell of norms is cut into such parts.
_NORM_CUTS = 3


@dataclass(frozen=True)
class ArmCurves:
    """Loss and weight of the records of one arm, as functions of their margin ``s = <z, v> + o``.

    A record's loss is ``c phi(s)`` and its weight is proportional to ``b f(s)``, f = exp(h).

    Parameters
    ----------
    loss
        The function phi, convex with a continuous slope.
    weight
        The function h, the logarithm of f.
    offset
        Public interval of o, in units of the margin.
    factor
        Public interval of c, above 0.
    base
        Public interval of b, above 0.
    tied
        Whether b is c, the same number of the record; ``base`` is then unused.

    Raises
    ------
    DeclarationError
        For an interval whose ends are no numbers, out of order or, of c and b, not above 0.
    """

    loss: ScalarLoss
    weight: ScalarWeight
    offset: Interval = (0.0, 0.0)
    factor: Interval = (1.0, 1.0)
    base: Interval = (1.0, 1.0)
    tied: bool = False

    def __post_init__(self) -> None:
        _refuse_disordered("offset", self.offset)
        for name in ("factor", "base"):
            ends = getattr(self, name)
            public_number(f"{name}[0]", ends[0], above=0.0)
            _refuse_disordered(name, ends)

    @property
    def weight_factor(self) -> Interval:
        """Interval of the number that multiplies f."""
        if self.tied:
            return self.factor
        return self.base

    def margins(self, reach: float) -> Interval:
        """Interval of margins, where ``|<z, v>|`` is at most ``reach``."""
        return self.offset[0] - reach, self.offset[1] + reach


def _refuse_disordered(name: str, ends: Interval) -> None:
    """Raise DeclarationError for ends that are no finite numbers or out of order."""
    low = public_number(f"{name}[0]", ends[0])
    high = public_number(f"{name}[1]", ends[1])
    if low > high:
        raise DeclarationError(
            f"{name} = ({low:g}, {high:g}): the lower end is above the upper one"
        )


def both_arms(kinds: tuple[Any, ...]) -> tuple[Any, Any]:
    """The entries of both arms, where one entry stands for both."""
    return kinds[0], kinds[-1]


def log_weight_ranges(arms: tuple[ArmCurves, ...], reach: float) -> list[Interval]:
    """Interval that ``h + log b`` lies in, of every arm, where ``|<z, v>| <= reach``."""
    ranges = []
    for arm in arms:
        first, last = arm.margins(reach)
        farthest = max(-first, last)
        if farthest <= FARTHEST:
            low, high = arm.weight.range(first, last)
        else:
            low, high = _range_by_slope(arm.weight, farthest)
        least_base, largest_base = arm.weight_factor
        ranges.append((low + math.log(least_base), high + math.log(largest_base)))
    return ranges


def longest_range(arms: tuple[ArmCurves, ...], ranges: list[Interval]) -> float:
    """Length of the longest interval that h of one arm lies in, from :func:`log_weight_ranges`."""
    lengths = []
    for arm, (low, high) in zip(arms, ranges, strict=True):
        least_base, largest_base = arm.weight_factor
        lengths.append(high - low - math.log(largest_base / least_base))
    return largest_bound(*lengths)


def _range_by_slope(weight: ScalarWeight, reach: float) -> Interval:
    """Interval of h over ``|s| <= reach``, from its value at 0 and its largest slope."""
    with np.errstate(divide="ignore", invalid="ignore"):
        at_zero = float(weight.log(np.zeros(1))[0])
    if weight.lipschitz == 0.0:
        return at_zero, at_zero
    if not math.isfinite(at_zero):
        return -math.inf, math.inf
    rise = weight.lipschitz * reach
    return at_zero - rise, at_zero + rise


def minimizer_norm(
    arms: tuple[ArmCurves, ...],
    ridge: float,
    radius: float = math.inf,
    linear: float = 0.0,
    l1: float = 0.0,
) -> float:
    """Bound on ``||v||`` of a minimizer of a ridged mean of losses of margins in a ball.

    The objective is a mean of ``c phi(<z, v> + o)`` plus ``ridge/2 ||v||^2``. By optimality at 0
    its minimizer of norm rho obeys ``ridge rho^2 <= max over |x| <= rho of -c x phi'(x + o)`` for
    rows of norm 1, plus ``linear rho`` for linear terms of that norm and less ``l1 rho``, as
    ``||v||_1 >= rho``. The largest such rho is searched for over geometric cells, the last one of
    which is cut again.

    Parameters
    ----------
    arms
        Curves of the controls and of the treated; one entry where both are alike.
    ridge
        Of the mean objective, in squared units of the rows.
    radius
        Public bound on ``||v||``, in inverse units of the rows.
    linear
        Bound on the norm of the mean of linear terms beside the loss.
    l1
        Price of ``||v||_1`` in the mean objective, in units of the rows.

    Returns
    -------
    float
        The bound, ``radius`` where there is no smaller one.
    """
    optimality = _OptimalityAtZero(arms, ridge, linear, l1)
    edges = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 4000)])
    low = edges[:-1]
    high = edges[1:]
    with np.errstate(over="ignore", invalid="ignore"):
        pulls = np.nan_to_num(optimality.pulls(low, high), nan=np.inf, posinf=np.inf)
        largest_pull = np.maximum.accumulate(pulls)
        admitted = np.flatnonzero(ridge * low**2 + l1 * low <= largest_pull + linear * high)
    if admitted[-1] == len(low) - 1:
        return radius
    cells = [(float(low[k]), float(high[k])) for k in admitted]
    norm = optimality.last_end(cells, _NORM_CUTS)
    if norm is None:
        norm = float(low[-1])
    return min(radius, outward(norm))


@dataclass(frozen=True)
class _OptimalityAtZero:
    """The inequality that the norm rho of a minimizer obeys (:func:`minimizer_norm`).

    Parameters
    ----------
    arms
        Curves by arm.
    ridge
        Of the mean objective.
    linear
        Bound on the norm of linear terms.
    l1
        Price of ``||v||_1``.
    """

    arms: tuple[ArmCurves, ...]
    ridge: float
    linear: float
    l1: float

    def pulls(self, low: Array, high: Array) -> Array:
        """Largest ``-c x phi'(x + o)`` of a record with ``|x|`` in cells from low to high."""
        largest = np.full_like(low, -math.inf)
        for arm in self.arms:
            # -x phi'(x + o) falls in o where x > 0 and rises where x < 0
            right = largest_pull_on_cells(arm.loss, low, high, arm.offset[0])
            left = largest_pull_on_cells(arm.loss, -high, -low, arm.offset[1])
            of_arm = _largest_multiple(np.maximum(right, left), arm.factor)
            largest = np.maximum(largest, of_arm)
        return largest

    def admits(self, low: float, high: float) -> bool:
        """Whether some rho from low to high may obey the inequality."""
        edges = np.linspace(0.0, high, 2001)
        largest_pull = float(np.max(self.pulls(edges[:-1], edges[1:])))
        return not self.ridge * low**2 + self.l1 * low > largest_pull + self.linear * high

    def last_end(self, cells: list[Interval], cuts: int) -> float | None:
        """Upper end of the last cell that may hold such a rho, cut so many times; None for none."""
        for low, high in reversed(cells):
            if not self.admits(low, high):
                continue
            if cuts == 0:
                return high
            edges = np.linspace(low, high, _NORM_PARTS + 1).tolist()
            inner = self.last_end(list(pairwise(edges)), cuts - 1)
            if inner is not None:
                return inner
        return None


def largest_pull_on_cells(loss: ScalarLoss, low: Array, high: Array, offset: float = 0.0) -> Array:
    """Bound on ``-x phi'(x + o)`` on cells of x: the smaller one of two.

    The first is by the ends of x and of phi'. The second is the value at the middle of a cell and
    its half width times the steepest slope of the function there.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        first = low + offset
        last = high + offset
        slope_at_low = loss.slope(first)
        slope_at_high = loss.slope(last)
        products = [
            -low * slope_at_low,
            -low * slope_at_high,
            -high * slope_at_low,
            -high * slope_at_high,
        ]
        by_ends: Array = np.max(products, axis=0)
        # the slope of x phi'(x + o) is phi' + x phi''
        least, largest = loss.curvatures(first, last)
        bends = np.stack([low * least, low * largest, high * least, high * largest])
        falling = np.abs(slope_at_low + bends.min(axis=0))
        rising = np.abs(slope_at_high + bends.max(axis=0))
        steepest = np.maximum(falling, rising)
        middle = 0.5 * (low + high)
        by_middle = -middle * loss.slope(middle + offset) + 0.5 * (high - low) * steepest
    smaller: Array = np.fmin(by_ends, by_middle)
    return smaller


def _largest_multiple(value: Array, factor: Interval) -> Array:
    """Largest product with a number from the interval, whose ends are at least 0."""
    larger: Array = np.where(value > 0.0, factor[1] * value, factor[0] * value)
    return larger


def record_diameter(
    arms: tuple[ArmCurves, ...], reach: float, beside: float = 0.0, varying: float | None = None
) -> float:
    """Diameter of the gradients of one record of any arm, the largest over ``||v|| <= reach``.

    The gradient is ``c phi'(<z, v> + o) z + t``, with a row t of a linear term (Lemma 1).

    Parameters
    ----------
    arms
        Curves of the controls and of the treated; one entry where both are alike.
    reach
        Bound on ``||v||``, for rows of norm at most 1; it may be infinite.
    beside
        Bound on the norm of the row t of a linear term.
    varying
        Where ``z = e_a (x) g`` and t is ``beside`` times the same g in the other arm, a bound on
        all of g but a constant; None for other rows.

    Returns
    -------
    float
        The diameter, in units of the loss.
    """
    kinds = tuple(MarginGradient(arm.loss, arm.offset, arm.factor) for arm in arms)
    if varying is None:
        return diameter_of_kinds(kinds, reach) + 2.0 * beside
    # within an arm the constant cancels in the other block
    widest = largest_bound(*(diameter_of_kinds((kind,), reach) for kind in kinds))
    within = math.hypot(widest, 2.0 * beside * varying)
    return largest_bound(within, _distance_across_arms(kinds, reach, beside)) * ROUND_UP


def weight_diameter(
    arms: tuple[ArmCurves, ...], reach: float, varying: float | None = None
) -> float:
    """Diameter of ``{h'(<z, v> + o) z}``, the largest over ``||v|| <= reach``; with 0 if clipped.

    Parameters
    ----------
    arms, reach, varying
        As of :func:`record_diameter`.

    Returns
    -------
    float
        The diameter, in inverse units of the margin.
    """
    kinds = tuple(MarginSlope(arm.weight, arm.offset) for arm in arms)
    clipped = any(arm.weight.is_clipped for arm in arms)
    if varying is None:
        return slope_diameter_of_kinds(kinds, reach, clipped=clipped)
    of_kinds = [slope_diameter_of_kinds((kind,), reach, clipped=clipped) for kind in kinds]
    within = largest_bound(*of_kinds)
    if any(arm.weight.curve is None for arm in arms):
        controls, treated = both_arms(kinds)
        across = math.hypot(controls.weight.lipschitz, treated.weight.lipschitz)
        return largest_bound(within, across)
    curves = tuple(MarginGradient(arm.weight.curve, arm.offset) for arm in arms)
    return largest_bound(within, _distance_across_arms(curves, reach, 0.0))


def _distance_across_arms(kinds: tuple[MarginGradient, ...], reach: float, beside: float) -> float:
    """Distance of gradients of two arms, whose ``<z, v>`` have squares of sum ``<= reach^2``."""
    angle = np.linspace(0.0, math.pi / 2, _ANGLES + 1)
    with np.errstate(over="ignore"):
        # over a cell of angles each margin takes its larger end
        margins = reach * np.cos(angle[:-1]), reach * np.sin(angle[1:])
        sizes = []
        for kind, margin in zip(both_arms(kinds), margins, strict=True):
            right = kind.loss.slope(margin + kind.offset[1])
            left = kind.loss.slope(kind.offset[0] - margin)
            steepest = np.maximum(np.abs(right), np.abs(left))
            sizes.append(kind.factor[1] * steepest + beside)
        return float(np.max(np.hypot(*sizes)))
