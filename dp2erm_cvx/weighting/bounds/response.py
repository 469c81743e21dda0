"""How far one weight answers to a unit of its price: the response R of the stability theorems.

A weight moves by at most ``q = 1/phi''`` per unit of price, and the weights of a dataset have a
public mean. So the theorems ask for the concave envelope of q at that mean
(``docs/theory/weights_as_variable.md``). Kinks of phi only slow a weight down: where they stand q
counts as 0, which no envelope sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array, largest_bound
from dp2erm_cvx.curves.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.stability.base import outward

#: Cells that a search of an envelope starts with.
_CELLS = 64
#: Its most rounds and cells.
_ROUNDS = 200
_MOST_CELLS = 20_000
#: Relative excess that it may leave.
_CLOSE = 1e-10

#: Exponents e of curvatures ``t^e``, by the name of an atom; that of a power is its number less 2.
_EXPONENTS = {"square": 0.0, "entropy": -1.0, "log": -2.0}


def mean_response(dispersion: Dispersion, low: float, high: float, mean: float) -> float:
    """Upper bound of the concave envelope of ``q = 1/phi''`` at the mean of the weights.

    It is the number R of the theorems: where n weights of this mean lie in the interval, the mean
    of their q is at most R. Exact up to rounding where q is concave (squares, entropies, logit
    distances, powers from 1 to 2, and sums of them) or has one convex part (logarithms, other
    powers); elsewhere within 1e-10.

    Parameters
    ----------
    dispersion
        The dispersion phi.
    low, high
        Ends of the interval; it is cut at the ends of the domain of phi. ``high`` may be infinite.
    mean
        Mean weight, between both ends.

    Returns
    -------
    float
        R, in squares of weights per unit of phi; infinite where ``phi''`` may be 0.

    Raises
    ------
    DeclarationError
        If the mean is not in the interval.
    """
    first, last = _within_domain(dispersion, low, high)
    if not first <= mean <= last:
        raise DeclarationError(f"mean = {mean:g}: must be between {first:g} and {last:g}")
    curved = _curved(dispersion)
    if not curved:
        return math.inf
    if all(_has_concave_response(part) for part in curved):
        return outward(_response_at(dispersion, mean))
    if len(curved) == 1 and curved[0].atom != "huber":
        left = _response_at(dispersion, first)
        right = _response_at(dispersion, last)
        return outward(_chord_at(left, right, first, last, mean))
    if math.isinf(last):
        return outward(_response_of_squares(curved))
    return outward(_envelope(dispersion, first, last, lambda hull: hull.line_at(mean)))


def largest_response(dispersion: Dispersion, low: float, high: float) -> float:
    """Upper bound of ``q = 1/phi''`` on an interval: R where no sum of the weights is known.

    Parameters
    ----------
    dispersion
        The dispersion phi.
    low, high
        Ends of the interval; it is cut at the ends of the domain of phi. ``high`` may be infinite.

    Returns
    -------
    float
        The supremum of q, exact up to rounding for one part, else within 1e-10; infinite where
        ``phi''`` may be 0.

    Raises
    ------
    DeclarationError
        If the interval is empty.
    """
    first, last = _within_domain(dispersion, low, high)
    if first > last:
        raise DeclarationError(
            f"weights from {low:g} to {high:g}: none is in the domain of the dispersion"
        )
    curved = _curved(dispersion)
    if not curved:
        return math.inf
    if len(curved) == 1 and curved[0].atom != "huber":
        # The curvature of one part is monotone.
        return outward(
            largest_bound(_response_at(dispersion, first), _response_at(dispersion, last))
        )
    if math.isinf(last):
        return outward(_response_of_squares(curved))
    return outward(_envelope(dispersion, first, last, lambda hull: hull.level_line()))


def base_response(
    dispersion: Dispersion, interval: tuple[float, float], bases: tuple[float, float]
) -> float:
    """R for dispersions ``d_i phi(w_i / d_i)`` of weights of mean 1: the largest ``e qhat(1/e)``.

    ``e qhat(w/e)`` is jointly concave, so that the mean of the ``d_i q(w_i / d_i)`` of all records
    is at most its value at the mean weight 1 and the mean base e, which lies anywhere between both
    ends of the bases.

    Parameters
    ----------
    dispersion
        The dispersion phi.
    interval
        Ends of all ratios ``w_i / d_i``; it holds ``1/e`` for every e of the bases, or is widened
        to do so.
    bases
        Least and largest base, above 0.

    Returns
    -------
    float
        R; infinite where ``phi''`` may be 0.
    """
    first = 1.0 / bases[1]
    last = 1.0 / bases[0]
    low, high = _within_domain(dispersion, min(interval[0], first), max(interval[1], last))
    curved = _curved(dispersion)
    if not curved:
        return math.inf
    if len(curved) == 1 and curved[0].atom == "entropy" and curved[0].offset == 0.0:
        # q = w / (s k), so that e q(1/e) is the same for all e.
        return outward(_response_at(dispersion, first) / first)
    if all(part.atom == "square" for part in curved):
        return outward(_response_at(dispersion, first) / first)
    if math.isinf(high):
        return outward(_response_of_squares(curved) / first)
    return outward(_envelope(dispersion, low, high, lambda hull: hull.steepest_line(first, last)))


def controls_response(dispersion: Dispersion, high: float, share: float) -> float:
    """R where only the controls have weights, of sum n: ``pi_0 qhat(1 / pi_0)``.

    pi_0 is their largest share.

    With q counted as 0 below the domain, qhat is a concave function on [0, high] that is at least
    0, so that ``e qhat(1/e)`` rises with e; a record that leaves the controls counts as one of
    weight 0.

    Parameters
    ----------
    dispersion
        The dispersion phi.
    high
        Largest weight.
    share
        The largest share of controls pi_0, above 0.

    Returns
    -------
    float
        R; infinite where ``phi''`` may be 0.
    """
    mean = max(1.0, 1.0 / share)
    if dispersion.ends[0] <= 0.0:
        return share * mean_response(dispersion, 0.0, max(high, mean), mean)
    return share * _from_zero(dispersion, max(high, mean), lambda hull: hull.line_at(mean))


def treated_response(
    dispersion: Dispersion, high: float, shares: tuple[float, float], total: float
) -> float:
    """R where the weights of the controls have the number of the treated as their sum.

    It is the largest ``e qhat((total - e) / e)`` over the shares e of controls, that is ``total``
    times the largest ``qhat(u) / (1 + u)`` over their mean weights u.

    Parameters
    ----------
    dispersion
        The dispersion phi.
    high
        Largest weight.
    shares
        Least and largest share of controls, above 0.
    total
        1, or ``1 + 1/(2n)`` where a record may change its arm.

    Returns
    -------
    float
        R; infinite where ``phi''`` may be 0.
    """
    # Pairs of datasets with the same arms have the total 1.
    first = (1.0 - shares[1]) / shares[1]
    last = (total - shares[0]) / shares[0]
    curved = _curved(dispersion)
    if not curved:
        return math.inf
    if all(part.atom == "square" for part in curved):
        return outward(shares[1] * _response_at(dispersion, first))
    if len(curved) == 1 and curved[0].atom == "entropy" and curved[0].offset == 0.0:
        # q is a multiple of the weight, and e q((total - e) / e) one of total - e.
        return outward(shares[0] * _response_at(dispersion, last))
    return total * _from_zero(
        dispersion, max(high, last), lambda hull: hull.steepest_line(first, last, -1.0)
    )


def _from_zero(dispersion: Dispersion, high: float, sought: Callable[[_Hull], _Line]) -> float:
    """A value of the envelope of q on [0, high], which counts as 0 below the domain."""
    low, last = _within_domain(dispersion, 0.0, high)
    if math.isinf(last):
        return math.inf
    return outward(_envelope(dispersion, low, last, sought, from_zero=True))


def _within_domain(dispersion: Dispersion, low: float, high: float) -> tuple[float, float]:
    """The interval, cut at the ends of the domain of phi."""
    start, end = dispersion.ends
    return max(low, start), min(high, end)


def _curved(dispersion: Dispersion) -> list[DispersionPart]:
    """The parts that have a curvature beside kinks; a power of exponent 1 has none."""
    curved = []
    for part in dispersion.parts:
        is_flat_power = part.atom == "power" and part.number in (0.0, 1.0)
        if part.atom not in ("line", "size") and not is_flat_power:
            curved.append(part)
    return curved


def _exponent(part: DispersionPart) -> float:
    """The exponent e of the curvature ``t^e`` of a part that is no Huber function."""
    return _EXPONENTS.get(part.atom, part.number - 2.0)


def _has_concave_response(part: DispersionPart) -> bool:
    """Whether 1 over the curvature of a part is concave.

    Parallel sums ``1/(1/q_1 + 1/q_2)`` of concave functions are concave, so that this is enough for
    sums.
    """
    return part.atom != "huber" and -1.0 <= _exponent(part) <= 0.0


def _response_at(dispersion: Dispersion, weight: float) -> float:
    """The number q at one weight: 0 where the curvature is infinite, infinite where it is 0."""
    curvature = 0.0
    for part in _curved(dispersion):
        ends = _CurvatureOnCells.of(part, np.array([weight]), np.array([weight]))
        curvature += float(ends.left[0])
    return _inverse(curvature)


def _inverse(curvature: float) -> float:
    """One over a curvature; infinite where it is 0."""
    if curvature <= 0.0:
        return math.inf
    return 1.0 / curvature


def _response_of_squares(curved: list[DispersionPart]) -> float:
    """Bound of q on a half-line, where only squares are known to keep their curvature."""
    curvature = 0.0
    for part in curved:
        if part.atom == "square":
            curvature += 2.0 * part.scale * part.factor**2
    return _inverse(curvature)


def _chord_at(left: float, right: float, low: float, high: float, mean: float) -> float:
    """Value at the mean of the chord of a convex function: its concave envelope."""
    if low == high or math.isinf(high) or math.isinf(left) or math.isinf(right):
        return largest_bound(left, right)
    share = (mean - low) / (high - low)
    return left + share * (right - left)


@dataclass(frozen=True)
class _CurvatureOnCells:
    """The curvature of one part on cells of weights, all arrays (m,).

    Parameters
    ----------
    left, right
        Curvature at the ends of the cells, from within; infinite at the end of a domain.
    left_bound, right_bound
        Values at the ends of a line that the curvature is above on the whole cell.
    """

    left: Array
    right: Array
    left_bound: Array
    right_bound: Array

    @classmethod
    def of(cls, part: DispersionPart, low: Array, high: Array) -> _CurvatureOnCells:
        """The curvature of ``part`` on cells from ``low`` to ``high`` without a knee inside.

        It is ``c t^e`` for the argument t of the part, but of a Huber function.
        """
        scale = part.scale * part.factor**2
        middle = (low + high) / 2.0
        inner = part.factor * middle + part.offset
        if part.atom == "huber":
            constant = np.where(np.abs(inner) < part.number, 2.0 * scale, 0.0)
            return cls(constant, constant, constant, constant)
        exponent = _exponent(part)
        scale *= _leading(part)
        if part.atom == "square":
            constant = np.full_like(middle, scale)
            return cls(constant, constant, constant, constant)
        at_low = np.maximum(part.factor * low + part.offset, 0.0)
        at_high = np.maximum(part.factor * high + part.offset, 0.0)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            left = scale * at_low**exponent
            right = scale * at_high**exponent
            tangent_slope = scale * exponent * inner ** (exponent - 1.0)
            tangent_value = scale * inner**exponent
            tangent_left = tangent_value + tangent_slope * (at_low - inner)
            tangent_right = tangent_value + tangent_slope * (at_high - inner)
        if 0.0 < exponent < 1.0:
            # The curvature is concave: its chord lies below it.
            return cls(left, right, left, right)
        # Elsewhere it is convex, and its tangent at the middle lies below it; so does its least
        # value.
        is_finite = np.isfinite(tangent_left) & np.isfinite(tangent_right)
        usable = is_finite & (np.minimum(tangent_left, tangent_right) > 0.0)
        least = np.minimum(left, right)
        left_bound = np.where(usable, tangent_left, least)
        right_bound = np.where(usable, tangent_right, least)
        return cls(left, right, left_bound, right_bound)


def _leading(part: DispersionPart) -> float:
    """The factor c of the curvature ``c t^e`` of an atom."""
    if part.atom == "square":
        return 2.0
    if part.atom == "power":
        return abs(part.number * (part.number - 1.0))
    return 1.0


@dataclass(frozen=True)
class _Line:
    """A line that a concave hull lies below, and the value that is sought of the hull.

    Parameters
    ----------
    value
        The value that is sought.
    place, height
        A point of the line.
    slope
        Its slope.
    """

    value: float
    place: float
    height: float
    slope: float

    def at(self, weight: Array) -> Array:
        """Heights (m,) of the line at weights."""
        return self.height + self.slope * (weight - self.place)


class _Hull:
    """The least concave function above points.

    Parameters
    ----------
    x, y
        The points (m,), finite, in the order of x; points of one x may repeat.
    """

    def __init__(self, x: Array, y: Array) -> None:
        kept: list[tuple[float, float]] = []
        for point in zip(x.tolist(), y.tolist(), strict=True):
            if kept and kept[-1][0] == point[0]:
                if kept[-1][1] >= point[1]:
                    continue
                kept.pop()
            while len(kept) >= 2 and _turns_left(kept[-2], kept[-1], point):
                kept.pop()
            kept.append(point)
        self.x = np.array([point[0] for point in kept])
        self.y = np.array([point[1] for point in kept])

    def line_at(self, mean: float) -> _Line:
        """The line through the segment above the mean; its value there."""
        if len(self.x) == 1:
            level = float(self.y[0])
            return _Line(level, mean, level, 0.0)
        right = int(np.clip(np.searchsorted(self.x, mean), 1, len(self.x) - 1))
        left = right - 1
        rise = self.y[right] - self.y[left]
        slope = float(rise / (self.x[right] - self.x[left]))
        height = float(self.y[left] + slope * (mean - self.x[left]))
        return _Line(height, mean, height, slope)

    def level_line(self) -> _Line:
        """The level of the highest point."""
        top = float(np.max(self.y))
        return _Line(top, 0.0, top, 0.0)

    def steepest_line(self, first: float, last: float, pole: float = 0.0) -> _Line:
        """The line of the largest ratio of height and distance from the pole.

        It is sought between two places.
        """
        inside = self.x[(self.x > first) & (self.x < last)]
        lines = [self.line_at(float(place)) for place in (first, last, *inside)]
        best = max(lines, key=lambda line: line.height / (line.place - pole))
        return _Line(best.height / (best.place - pole), best.place, best.height, best.slope)


def _turns_left(
    first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]
) -> bool:
    """Whether the middle point lies on or below the segment of the others."""
    rise = (middle[1] - first[1]) * (last[0] - first[0])
    return rise <= (last[1] - first[1]) * (middle[0] - first[0])


def _envelope(
    dispersion: Dispersion,
    low: float,
    high: float,
    sought: Callable[[_Hull], _Line],
    *,
    from_zero: bool = False,
) -> float:
    """Upper bound of a value that is ``sought`` of the concave envelope of q on [low, high].

    ``from_zero`` adds the point (0, 0), left of the interval.

    On every cell the curvature lies above a line, so that q lies below the chord of 1 over that
    line. The hull of those chords is above the envelope, that of q at the ends of cells below it.
    Cells that decide are cut in half until both agree. Any state of the search is an upper bound.
    """
    curved = _curved(dispersion)
    if low == high:
        return _response_at(dispersion, low)
    has_origin = from_zero and low > 0.0
    even = np.linspace(low, high, _CELLS + 1)
    edges = np.unique(np.concatenate([even, _knees(curved, low, high)]))
    upper = math.inf
    for _ in range(_ROUNDS):
        cells = _ResponseOnCells.between(curved, edges)
        if not cells.is_finite:
            return math.inf
        below = sought(cells.hull_of_values(has_origin))
        cut = cells.is_unbounded
        if not np.any(cut):
            above = sought(cells.hull_of_chords(has_origin))
            upper = min(upper, above.value)
            if upper - below.value <= _CLOSE * upper:
                break
            # A cell whose chord stays below the line by more than the gap cannot decide.
            gap = above.height - float(below.at(np.array([above.place]))[0])
            cut = cells.excess_over(above) >= -2.0 * max(gap, 0.0)
        middles = (edges[:-1] + edges[1:])[cut] / 2.0
        finer = np.unique(np.concatenate([edges, middles]))
        if len(finer) == len(edges) or len(finer) > _MOST_CELLS:
            break
        edges = finer
    return upper


def _knees(curved: list[DispersionPart], low: float, high: float) -> Array:
    """Weights inside an interval at which the curvature of a Huber function jumps."""
    knees = []
    for part in curved:
        if part.atom == "huber":
            knees.append((part.number - part.offset) / part.factor)
            knees.append((-part.number - part.offset) / part.factor)
    return np.array([knee for knee in knees if low < knee < high])


@dataclass(frozen=True)
class _ResponseOnCells:
    """The response q on m cells of weights.

    Parameters
    ----------
    edges
        Ends of the cells (m + 1,).
    left, right
        Values of q (m,) at the ends of every cell, from within.
    chord_left, chord_right
        Ends (m,) of a chord that q lies below on the whole cell.
    """

    edges: Array
    left: Array
    right: Array
    chord_left: Array
    chord_right: Array

    @classmethod
    def between(cls, curved: list[DispersionPart], edges: Array) -> _ResponseOnCells:
        """The response of parts of a dispersion on the cells between ``edges``."""
        cells = [_CurvatureOnCells.of(part, edges[:-1], edges[1:]) for part in curved]
        with np.errstate(divide="ignore"):
            return cls(
                edges=edges,
                left=1.0 / np.asarray(sum(cell.left for cell in cells)),
                right=1.0 / np.asarray(sum(cell.right for cell in cells)),
                chord_left=1.0 / np.asarray(sum(cell.left_bound for cell in cells)),
                chord_right=1.0 / np.asarray(sum(cell.right_bound for cell in cells)),
            )

    @property
    def is_finite(self) -> bool:
        """Whether q is finite at all ends of cells."""
        return bool(np.all(np.isfinite(self.left)) and np.all(np.isfinite(self.right)))

    @property
    def is_unbounded(self) -> NDArray[np.bool_]:
        """Whether a cell (m,) has no chord."""
        return np.asarray(~(np.isfinite(self.chord_left) & np.isfinite(self.chord_right)))

    def hull_of_values(self, has_origin: bool) -> _Hull:
        """The hull of q at the ends of cells, and of (0, 0) where it is asked for."""
        return self._hull(self.left, self.right, has_origin)

    def hull_of_chords(self, has_origin: bool) -> _Hull:
        """The hull of the chords that q lies below."""
        return self._hull(self.chord_left, self.chord_right, has_origin)

    def excess_over(self, line: _Line) -> Array:
        """How far chords (m,) rise above a line."""
        at_left = self.chord_left - line.at(self.edges[:-1])
        at_right = self.chord_right - line.at(self.edges[1:])
        return np.asarray(np.maximum(at_left, at_right))

    def _hull(self, left: Array, right: Array, has_origin: bool) -> _Hull:
        """The hull of values at both ends of every cell."""
        origin = np.zeros(int(has_origin))
        places = np.concatenate([origin, np.repeat(self.edges, 2)[1:-1]])
        values = np.concatenate([origin, np.stack([left, right], axis=1).ravel()])
        return _Hull(places, values)
