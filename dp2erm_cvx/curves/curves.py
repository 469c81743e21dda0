"""Losses as functions of one margin: sums of atoms, and what is asked of them.

Nothing about a loss is written anywhere else: the largest slope and curvature over a ball, what a
gradient rounds, self-concordance and the CVXPY expression all follow from its atoms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_DOWN_SUMS, ROUND_UP, ROUND_UP_SUMS, UNIT, Array, largest_bound
from dp2erm_cvx.curves.atoms import Atom, atom

#: 0 or 1 of every record.
Arms = NDArray[np.int64]

#: Margins beyond which only the limits of a function are asked for.
FARTHEST = 700.0


class LossTerms(NamedTuple):
    """A function phi, its two derivatives and bounds on their errors at margins.

    Attributes
    ----------
    value, slope, curvature
        Values of phi, phi' and phi'' (n,).
    slope_error, curvature_error
        Bounds on how far the computed derivatives are off (n,).
    """

    value: Array
    slope: Array
    curvature: Array
    slope_error: Array
    curvature_error: Array

    def plus(self, other: LossTerms) -> LossTerms:
        """The sum of both, each addition with its rounding."""
        curvature = self.curvature + other.curvature
        slope_error = self.slope_error + other.slope_error
        slope_error += UNIT * (np.abs(self.slope) + np.abs(other.slope))
        curvature_error = self.curvature_error + other.curvature_error
        return LossTerms(
            value=self.value + other.value,
            slope=self.slope + other.slope,
            curvature=curvature,
            slope_error=slope_error,
            curvature_error=curvature_error + UNIT * curvature,
        )


@dataclass(frozen=True)
class Part:
    """``coefficient * atom(scale * s + shift)``, a part of a loss.

    Parameters
    ----------
    coefficient
        Above 0 but for a line.
    atom
        The function of one number.
    scale, shift
        Of its argument.
    """

    coefficient: float
    atom: Atom
    scale: float = 1.0
    shift: float = 0.0

    @property
    def keeps_margin(self) -> bool:
        """True if the argument of the atom is the margin or its negative, which nothing rounds."""
        return not self.shift and abs(self.scale) == 1.0

    @property
    def is_plain(self) -> bool:
        """True if nothing is rounded but the atom itself."""
        return self.coefficient == 1.0 and self.keeps_margin

    def inner(self, s: Any) -> Any:
        """The argument of the atom, of an array or an expression."""
        if self.scale == 1.0:
            scaled = s
        elif self.scale == -1.0:
            scaled = -s
        else:
            scaled = self.scale * s
        return scaled + self.shift if self.shift else scaled

    def at(self, s: Array, error: Array) -> LossTerms:
        """Value, derivatives and their errors.

        Parameters
        ----------
        s
            Margins (n,).
        error
            How far they may be off (n,).
        """
        atom = self.atom
        u = self.inner(s)
        u_error = error
        if not self.keeps_margin:
            u_error = abs(self.scale) * error + 2 * UNIT * (np.abs(u) + abs(self.shift))
        phi, first, second = atom.at(u)
        # a slope moves by at most the largest curvature on the way, a curvature by c times that
        largest_second = np.asarray(atom.largest_near(u, u_error)) * ROUND_UP_SUMS
        first_rounding = UNIT * (atom.absolute + atom.relative * np.abs(first))
        first_error = u_error * largest_second + first_rounding
        if math.isinf(atom.concordance):
            least, largest = atom.curvatures(u - u_error, u + u_error)
            second_error = largest - least
        else:
            second_rounding = UNIT * (atom.flat + 8 * second)
            second_error = u_error * (atom.concordance * largest_second) + second_rounding
        if self.is_plain:
            return LossTerms(phi, self.scale * first, second, first_error, second_error)
        # the products with the coefficient and the scale round as well
        of_slope = self.coefficient * self.scale
        of_curvature = self.coefficient * self.scale**2
        return LossTerms(
            value=self.coefficient * phi,
            slope=of_slope * first,
            curvature=of_curvature * second,
            slope_error=abs(of_slope) * (first_error + 2 * UNIT * np.abs(first)),
            curvature_error=abs(of_curvature) * (second_error + 4 * UNIT * second),
        )


@dataclass(frozen=True)
class Curve:
    """A convex loss ``phi(s)`` of a margin: a sum of atoms of affine functions of it.

    Methods take margins (n,).

    Parameters
    ----------
    parts
        The terms of the sum.
    """

    parts: tuple[Part, ...]

    def plus(self, other: Curve) -> Curve:
        """The sum of two losses of one margin."""
        return Curve(self.parts + other.parts)

    def scaled(self, factor: float) -> Curve:
        """A multiple of the loss."""
        scaled = [replace(part, coefficient=factor * part.coefficient) for part in self.parts]
        return Curve(tuple(scaled))

    @property
    def is_line(self) -> bool:
        """True if it has no curvature anywhere."""
        return all(part.atom.kind == "line" for part in self.parts)

    @property
    def concordance(self) -> float:
        """Ratio c with ``|phi'''| <= c phi''``; ``inf`` where the second derivative jumps."""
        return max((abs(part.scale) * part.atom.concordance for part in self.parts), default=0.0)

    @property
    def bend(self) -> float:
        """Ratio c with ``|phi'''| <= c phi''`` between the kinks."""
        return max((abs(part.scale) * part.atom.bend for part in self.parts), default=0.0)

    def bend_within(self, margin_bound: float) -> float:
        """Ratio c with ``|phi'''| <= c phi''`` between the kinks over ``|s| <= margin_bound``."""
        largest = 0.0
        for part in self.parts:
            reach = abs(part.scale) * margin_bound + abs(part.shift)
            largest = largest_bound(largest, abs(part.scale) * part.atom.bend_within(reach))
        return largest

    @property
    def kinks(self) -> tuple[float, ...]:
        """Margins at which the curvature jumps."""
        margins: list[float] = []
        for part in self.parts:
            margins += [(kink - part.shift) / part.scale for kink in part.atom.kinks]
        return tuple(margins)

    @property
    def ends(self) -> tuple[float, float]:
        """Limits of the slope far to the left and far to the right."""
        left = 0.0
        right = 0.0
        for part in self.parts:
            low, high = sorted(part.coefficient * part.scale * end for end in part.atom.ends)
            left += low
            right += high
        return left, right

    def value(self, s: Array) -> Array:
        """phi(s)."""
        return self._summed(s, "value", 0)

    def slope(self, s: Array) -> Array:
        """phi'(s)."""
        return self._summed(s, "slope", 1)

    def curvature(self, s: Array) -> Array:
        """phi''(s)."""
        return self._summed(s, "curvature", 2)

    def curvatures(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Least and largest curvature over every cell ``[low, high]``."""
        least = np.zeros_like(low)
        largest = np.zeros_like(low)
        for part in self.parts:
            ends = part.inner(low), part.inner(high)
            below, above = part.atom.curvatures(np.minimum(*ends), np.maximum(*ends))
            steep = part.coefficient * part.scale**2
            least = least + steep * below
            largest = largest + steep * above
        return least, largest

    def at(self, s: Array, error: Array) -> LossTerms:
        """Value, derivatives and their errors at margins that are off by at most ``error`` (n,)."""
        return reduce(LossTerms.plus, (part.at(s, error) for part in self.parts))

    def least_curvature(self, s: Array, distance: Array) -> Array:
        """Lower bound on phi'' within ``distance`` (n,) of the margins."""
        for part in self.parts:
            # what is added to a scaled margin rounds, as it does at a margin
            if part.shift or abs(part.scale) != 1.0:
                distance = distance + 2 * UNIT * (np.abs(s) + abs(part.shift / part.scale))
        lowest: Array = self.curvatures(s - distance, s + distance)[0] * ROUND_DOWN_SUMS
        return lowest

    def largest_slope(self, margin_bound: float) -> float:
        """Bound on ``|phi'|`` over ``|s| <= margin_bound``, which may be infinite."""
        anywhere = max(abs(end) for end in self.ends)
        if math.isinf(margin_bound):
            return anywhere
        slopes = self.slope(np.array([-margin_bound, margin_bound])) * ROUND_UP
        return min(max(abs(float(slope)) for slope in slopes), anywhere)

    def largest_curvature(self, margin_bound: float) -> float:
        """Bound on ``phi''`` over ``|s| <= margin_bound``, which may be infinite."""
        reach = np.array([margin_bound])
        return float(self.curvatures(-reach, reach)[1][0])

    def rounding_units(self, margin_bound: float) -> float:
        """Units of roundoff of a computed slope over ``|s| <= margin_bound`` whose margin is exact.

        What a scale or a shift rounds at the size of the margin is :attr:`margin_units`.
        """
        units = 0.0
        for part in self.parts:
            reach = abs(part.scale) * margin_bound + abs(part.shift)
            of_atom = Curve((Part(1.0, part.atom),))
            units_of_atom = part.atom.absolute
            if part.atom.relative:
                units_of_atom += part.atom.relative * of_atom.largest_slope(reach)
            if not part.is_plain:
                # of the products with the coefficient and the scale
                units_of_atom += 2 * of_atom.largest_slope(reach)
            if part.shift:
                units_of_atom += 4 * abs(part.shift) * of_atom.largest_curvature(reach + 0.01)
            units += abs(part.coefficient * part.scale) * units_of_atom
        # every sum of slopes rounds at the size of both
        added = len(self.parts) - 1
        if added:
            units += added * sum(Curve((part,)).largest_slope(margin_bound) for part in self.parts)
        return units

    @property
    def margin_units(self) -> float:
        """Units of roundoff of arguments of slopes beside their margin, relative to the margin."""
        return 0.0 if all(part.keeps_margin for part in self.parts) else 2.0

    def least_value(self, margin_bound: float) -> float:
        """Lower bound of phi over ``|s| <= margin_bound``, -inf where it falls without end."""
        reach = min(margin_bound, FARTHEST)
        left = -np.geomspace(reach, 1e-6 * reach, 2000)
        right = np.geomspace(1e-6 * reach, reach, 2000)
        s = np.concatenate([left, right])
        with np.errstate(over="ignore"):
            values = self.value(s)
            slopes = self.slope(s)
        place = int(np.argmin(values))
        # convex: between neighbors it lies above the tangents there
        near = slice(max(place - 1, 0), place + 2)
        gap = float(np.max(np.abs(slopes[near]))) * float(np.ptp(s[near]))
        if margin_bound > reach and not self.ends[0] <= 0.0 <= self.ends[1]:
            return -math.inf
        return float(values[place]) - gap

    def pull(self, margin_bound: float) -> float:
        """Bound on ``-s phi'(s)`` over ``|s| <= margin_bound``, for minimizers of ridged sums."""
        reach = min(margin_bound, FARTHEST)
        positive = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 4000)]) * reach
        edges = np.concatenate([-positive[:0:-1], positive])
        low = edges[:-1]
        high = edges[1:]
        with np.errstate(over="ignore"):
            # On a cell phi' lies between its values at the ends.
            first = self.slope(low)
            last = self.slope(high)
            largest = np.max([-low * first, -low * last, -high * first, -high * last])
        if margin_bound > reach:
            if not self.ends[0] <= 0.0 <= self.ends[1]:
                # The loss falls without end.
                return math.inf
            falls = self._fall_beyond(reach / 2)
            if not math.isfinite(falls):
                return math.inf
            # Beyond twice r a convex phi has -s phi'(s) <= 2 (phi(r) - inf phi).
            largest = max(largest, 2.0 * falls)
        if math.isnan(largest):
            return math.inf
        return float(max(largest, 0.0)) * ROUND_UP_SUMS

    def along(self, arm: Arms | None) -> Curve:
        """The loss of records of these arms (n,): it is the same in either."""
        return self

    def descent(self, tilt: Array, total: Array) -> Array:
        """``-phi'(s)`` from ``tilt = exp(-s)`` and ``total = 1 + tilt``, as batches have both."""
        if self == LOGISTIC:
            return np.asarray(tilt / total)
        if self == EXPONENTIAL:
            return tilt
        return -self.slope(-np.log(tilt))

    def declared(self, s: Any) -> Any:
        """Phi of a CVXPY expression, elementwise."""
        terms = []
        for part in self.parts:
            phi = part.atom.declared(part.inner(s))
            terms.append(phi if part.coefficient == 1.0 else part.coefficient * phi)
        return sum(terms)

    def _summed(self, s: Array, which: str, order: int) -> Array:
        """The sum of a function of the atoms, which is their derivative of this order."""
        total: Array = np.zeros_like(s)
        for part in self.parts:
            of_atom = getattr(part.atom, which)(part.inner(s))
            total = total + part.coefficient * part.scale**order * of_atom
        return total

    def _fall_beyond(self, r: float) -> float:
        """How far the loss falls below its values at -r and r, beyond them."""
        far = np.array([-1e300, -r, r, 1e300])
        with np.errstate(over="ignore", invalid="ignore"):
            ends = self.value(far)
        return largest_bound(ends[1] - ends[0], ends[2] - ends[3], 0.0)


#: No loss at all, as that of records that a scheme does not fit.
FLAT = Curve((Part(0.0, atom("line")),))
#: ``log(1 + exp(-s))``.
LOGISTIC = Curve((Part(1.0, atom("logistic"), -1.0),))
#: ``exp(-s)``.
EXPONENTIAL = Curve((Part(1.0, atom("exp"), -1.0),))
#: ``s^2``.
SQUARE = Curve((Part(1.0, atom("square")),))


def by_arm(arm: Arms, own: Callable[[int, Any], Iterable[Array]]) -> list[Array]:
    """Arrays of the shape of ``arm``, whose entries are those of records of either arm.

    Parameters
    ----------
    arm
        0 or 1 of every record.
    own
        Makes, for an arm and the mask of its records, the entries of each array.
    """
    treated = arm == 1
    columns: list[Array] = []
    for of_controls, of_treated in zip(own(0, ~treated), own(1, treated), strict=True):
        column = np.empty(arm.shape)
        column[~treated] = of_controls
        column[treated] = of_treated
        columns.append(column)
    return columns


@dataclass(frozen=True)
class CurvesByArm:
    """A loss of a margin that depends on the arm of its record. Bounds are those of both arms.

    Parameters
    ----------
    each
        The loss of controls, and that of the treated.
    """

    each: tuple[Curve, Curve]

    def along(self, arm: Arms | None) -> CurveOfRecords:
        """The loss of records of these arms (n,)."""
        assert arm is not None
        return CurveOfRecords(self.each, arm)

    @property
    def concordance(self) -> float:
        """Ratio c with ``|phi'''| <= c phi''``; ``inf`` where the second derivative jumps."""
        return max(curve.concordance for curve in self.each)

    def largest_slope(self, margin_bound: float) -> float:
        """Bound on ``|phi'|`` over ``|s| <= margin_bound``, which may be infinite."""
        return max(curve.largest_slope(margin_bound) for curve in self.each)

    def largest_curvature(self, margin_bound: float) -> float:
        """Bound on ``phi''`` over ``|s| <= margin_bound``, which may be infinite."""
        return max(curve.largest_curvature(margin_bound) for curve in self.each)

    def rounding_units(self, margin_bound: float) -> float:
        """Units of roundoff of a slope over ``|s| <= margin_bound`` whose margin is exact."""
        return max(curve.rounding_units(margin_bound) for curve in self.each)

    @property
    def margin_units(self) -> float:
        """Units of roundoff of arguments of slopes beside their margin, relative to the margin."""
        return max(curve.margin_units for curve in self.each)

    def pull(self, margin_bound: float) -> float:
        """Bound on ``-s phi'(s)`` over ``|s| <= margin_bound``, for minimizers of ridged sums."""
        return max(curve.pull(margin_bound) for curve in self.each)


@dataclass(frozen=True, eq=False)
class CurveOfRecords:
    """The losses of records of known arms.

    Methods take arrays of the shape of ``arm``, as those of a Curve do.

    Parameters
    ----------
    each
        The loss of controls, and that of the treated.
    arm
        0 or 1 of every record.
    """

    each: tuple[Curve, Curve]
    arm: Arms

    def value(self, s: Array) -> Array:
        """phi(s)."""
        return self._of_records(Curve.value, s)

    def slope(self, s: Array) -> Array:
        """phi'(s)."""
        return self._of_records(Curve.slope, s)

    def curvature(self, s: Array) -> Array:
        """phi''(s)."""
        return self._of_records(Curve.curvature, s)

    def at(self, s: Array, error: Array) -> LossTerms:
        """Value, derivatives and their errors at margins that are wrong by at most ``error``."""

        def of_arm(arm: int, records: NDArray[np.bool_]) -> LossTerms:
            return self.each[arm].at(s[records], error[records])

        return LossTerms(*by_arm(self.arm, of_arm))

    def least_curvature(self, s: Array, distance: Array) -> Array:
        """Lower bound on phi'' within ``distance`` of the margins."""
        return self._of_records(Curve.least_curvature, s, distance)

    def _of_records(self, function: Callable[..., Array], *arguments: Array) -> Array:
        """A function of a curve, whose arguments have an entry for every record."""

        def of_arm(arm: int, records: NDArray[np.bool_]) -> list[Array]:
            return [function(self.each[arm], *(argument[records] for argument in arguments))]

        return by_arm(self.arm, of_arm)[0]


#: The loss of a margin: one for all records, or one for each arm.
Loss = Curve | CurvesByArm
