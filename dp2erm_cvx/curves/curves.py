"""Losses as functions of one margin: sums of atoms, and what is asked of them.

Nothing about a loss is written anywhere else: the largest slope and curvature over a ball, what a
gradient rounds, self-concordance and the CVXPY expression all follow from its atoms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.curves.atoms import Atom, atom

#: 0 or 1 of every record.
Arms = NDArray[np.int64]

#: Margins beyond which only the limits of a function are asked for.
FARTHEST = 700.0


class LossTerms(NamedTuple):
    """Phi, its two derivatives and bounds on their errors at margins (n,)."""

    value: Array
    slope: Array
    curvature: Array
    slope_error: Array
    curvature_error: Array

    def plus(self, other: LossTerms) -> LossTerms:
        """The sum of both, each addition with its rounding."""
        value, slope, curvature, off, bent = map(np.add, self, other)
        off += UNIT * (np.abs(self.slope) + np.abs(other.slope))
        return LossTerms(value, slope, curvature, off, bent + UNIT * curvature)


@dataclass(frozen=True)
class Part:
    """``coefficient * atom(scale * s + shift)``; the coefficient is above 0 but for a line."""

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
        u = s if self.scale == 1.0 else -s if self.scale == -1.0 else self.scale * s
        return u + self.shift if self.shift else u

    def at(self, s: Array, error: Array) -> LossTerms:
        """Value, derivatives and their errors at margins that are wrong by at most ``error``
        (n,).
        """
        atom, c, scale, u = self.atom, self.coefficient, self.scale, self.inner(s)
        exact = self.keeps_margin
        wrong = error if exact else abs(scale) * error + 2 * UNIT * (np.abs(u) + abs(self.shift))
        phi, first, second = atom.at(u)
        near = np.asarray(atom.largest_near(u, wrong)) * (1 + 1e-9)
        off = wrong * near + UNIT * (atom.absolute + atom.relative * np.abs(first))
        if math.isinf(atom.concordance):
            least, largest = atom.curvatures(u - wrong, u + wrong)
            bent = largest - least
        else:
            bent = wrong * (atom.concordance * near) + UNIT * (atom.flat + 8 * second)
        if self.is_plain:
            return LossTerms(phi, scale * first, second, off, bent)
        size, steep = abs(c * scale), c * scale**2
        off, bent = size * (off + 2 * UNIT * np.abs(first)), abs(steep) * (bent + 4 * UNIT * second)
        return LossTerms(c * phi, (c * scale) * first, steep * second, off, bent)


@dataclass(frozen=True)
class Curve:
    """A loss ``phi(s)`` of a margin: a sum of atoms of affine functions of it, convex. Methods take
    (n,).
    """

    parts: tuple[Part, ...]

    def plus(self, other: Curve) -> Curve:
        """The sum of two losses of one margin."""
        return Curve(self.parts + other.parts)

    def scaled(self, factor: float) -> Curve:
        """A multiple of the loss."""
        return Curve(
            tuple(Part(factor * p.coefficient, p.atom, p.scale, p.shift) for p in self.parts)
        )

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
        reaches = [abs(part.scale) * margin_bound + abs(part.shift) for part in self.parts]
        pairs = zip(self.parts, reaches, strict=True)
        return max(
            (abs(part.scale) * part.atom.bend_within(reach) for part, reach in pairs), default=0.0
        )

    @property
    def kinks(self) -> tuple[float, ...]:
        """Margins at which the curvature jumps."""
        return tuple((u - part.shift) / part.scale for part in self.parts for u in part.atom.kinks)

    @property
    def ends(self) -> tuple[float, float]:
        """Limits of the slope far to the left and far to the right."""
        left = right = 0.0
        for part in self.parts:
            low, high = sorted(part.coefficient * part.scale * end for end in part.atom.ends)
            left, right = left + low, right + high
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
        least, largest = np.zeros_like(low), np.zeros_like(low)
        for part in self.parts:
            ends = part.inner(low), part.inner(high)
            below, above = part.atom.curvatures(np.minimum(*ends), np.maximum(*ends))
            steep = part.coefficient * part.scale**2
            least, largest = least + steep * below, largest + steep * above
        return least, largest

    def at(self, s: Array, error: Array) -> LossTerms:
        """Value, derivatives and their errors at margins that are wrong by at most ``error``
        (n,).
        """
        return reduce(LossTerms.plus, (part.at(s, error) for part in self.parts))

    def least_curvature(self, s: Array, distance: Array) -> Array:
        """Lower bound on phi'' within ``distance`` (n,) of the margins."""
        for part in self.parts:  # what is added to a scaled margin rounds, as it does at a margin
            if part.shift or abs(part.scale) != 1.0:
                distance = distance + 2 * UNIT * (np.abs(s) + abs(part.shift / part.scale))
        lowest: Array = self.curvatures(s - distance, s + distance)[0] * (1 - 1e-9)
        return lowest

    def largest_slope(self, margin_bound: float) -> float:
        """Bound on ``|phi'|`` over ``|s| <= margin_bound``, which may be infinite."""
        reach = np.array([-margin_bound, margin_bound])
        ends = self.ends if math.isinf(margin_bound) else tuple(self.slope(reach) * (1 + 1e-12))
        return min(max(abs(float(end)) for end in ends), max(map(abs, self.ends)))

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
            alone = Curve((Part(1.0, part.atom),))
            own = part.atom.absolute
            if part.atom.relative:
                own += part.atom.relative * alone.largest_slope(reach)
            if not part.is_plain:
                own += 2 * alone.largest_slope(reach)  # of the products
            if part.shift:
                own += 4 * abs(part.shift) * alone.largest_curvature(reach + 0.01)
            units += abs(part.coefficient * part.scale) * own
        # every sum of slopes rounds at the size of both
        added = len(self.parts) - 1
        if added:
            units += added * sum(Curve((part,)).largest_slope(margin_bound) for part in self.parts)
        return units

    @property
    def margin_units(self) -> float:
        """Units of roundoff of what slopes are taken of, beside its margin, relative to the
        margin.
        """
        return 0.0 if all(part.keeps_margin for part in self.parts) else 2.0

    def least_value(self, margin_bound: float) -> float:
        """Lower bound of phi over ``|s| <= margin_bound``, -inf where it falls without end."""
        reach = min(margin_bound, FARTHEST)
        s = np.concatenate(
            [-np.geomspace(reach, 1e-6 * reach, 2000), np.geomspace(1e-6 * reach, reach, 2000)]
        )
        with np.errstate(over="ignore"):
            values, slopes = self.value(s), self.slope(s)
        place = int(np.argmin(values))
        # convex: between neighbors it lies above the tangents there
        near = slice(max(place - 1, 0), place + 2)
        gap = float(np.max(np.abs(slopes[near]))) * float(np.ptp(s[near]))
        if margin_bound > reach and not self.ends[0] <= 0.0 <= self.ends[1]:
            return -math.inf
        return float(values[place]) - gap

    def pull(self, margin_bound: float) -> float:
        """Bound on ``-s phi'(s)`` over ``|s| <= margin_bound``: it bounds the minimizer of a ridged
        sum.
        """
        reach = min(margin_bound, FARTHEST)
        edge = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 4000)]) * reach
        edge = np.concatenate([-edge[:0:-1], edge])
        low, high = edge[:-1], edge[1:]
        with np.errstate(over="ignore"):
            first, last = self.slope(low), self.slope(high)
            largest = np.max([-low * first, -low * last, -high * first, -high * last])
        if margin_bound > reach and not (self.ends[0] <= 0.0 <= self.ends[1]):
            return math.inf  # the loss falls without end
        if margin_bound > reach:
            # beyond twice r a convex phi has -s phi'(s) <= 2 (phi(r) - inf phi)
            far = np.array([-1e300, -reach / 2, reach / 2, 1e300])
            with np.errstate(over="ignore", invalid="ignore"):
                ends = self.value(far)
            falls = float(max(ends[1] - ends[0], ends[2] - ends[3], 0.0))
            largest = max(largest, 2.0 * falls) if math.isfinite(falls) else math.nan
        return math.inf if math.isnan(largest) else float(max(largest, 0.0)) * (1 + 1e-9)

    def along(self, arm: Arms | None) -> Curve:
        """The loss of records of these arms (n,): it is the same in either."""
        return self

    def descent(self, tilt: Array, total: Array) -> Array:
        """``-phi'(s)`` from ``tilt = exp(-s)`` and ``total = 1 + tilt``, as batches have both."""
        if self == LOGISTIC:
            return np.asarray(tilt / total)
        return tilt if self == EXPONENTIAL else -self.slope(-np.log(tilt))

    def declared(self, s: Any) -> Any:
        """Phi of a CVXPY expression, elementwise."""
        phis = [(part.coefficient, part.atom.declared(part.inner(s))) for part in self.parts]
        return sum(phi if c == 1.0 else c * phi for c, phi in phis)

    def _summed(self, s: Array, which: str, order: int) -> Array:
        own = (
            part.coefficient * part.scale**order * getattr(part.atom, which)(part.inner(s))
            for part in self.parts
        )
        return reduce(np.add, own, np.zeros_like(s))


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
        """Units of roundoff of a computed slope over ``|s| <= margin_bound`` whose margin is
        exact.
        """
        return max(curve.rounding_units(margin_bound) for curve in self.each)

    @property
    def margin_units(self) -> float:
        """Units of roundoff of what slopes are taken of, beside its margin, relative to the
        margin.
        """
        return max(curve.margin_units for curve in self.each)

    def pull(self, margin_bound: float) -> float:
        """Bound on ``-s phi'(s)`` over ``|s| <= margin_bound``: it bounds the minimizer of a ridged
        sum.
        """
        return max(curve.pull(margin_bound) for curve in self.each)


@dataclass(frozen=True, eq=False)
class CurveOfRecords:
    """The losses of records of known arms; methods take arrays of the shape of ``arm``, as of a
    Curve.

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
        return by_arm(self.arm, lambda which, of: [self.each[which].value(s[of])])[0]

    def slope(self, s: Array) -> Array:
        """phi'(s)."""
        return by_arm(self.arm, lambda which, of: [self.each[which].slope(s[of])])[0]

    def curvature(self, s: Array) -> Array:
        """phi''(s)."""
        return by_arm(self.arm, lambda which, of: [self.each[which].curvature(s[of])])[0]

    def at(self, s: Array, error: Array) -> LossTerms:
        """Value, derivatives and their errors at margins that are wrong by at most ``error``."""
        return LossTerms(*by_arm(self.arm, lambda which, of: self.each[which].at(s[of], error[of])))

    def least_curvature(self, s: Array, distance: Array) -> Array:
        """Lower bound on phi'' within ``distance`` of the margins."""

        def own(which: int, of: Any) -> list[Array]:
            return [self.each[which].least_curvature(s[of], distance[of])]

        return by_arm(self.arm, own)[0]


#: The loss of a margin: one for all records, or one for each arm.
Loss = Curve | CurvesByArm
