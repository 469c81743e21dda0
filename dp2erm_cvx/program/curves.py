"""Functions of one margin: losses as sums of atoms, log weights as trees, and what is asked of either.

Nothing about a loss is written anywhere else: the largest slope and curvature over a ball, what a gradient
rounds, self-concordance and the CVXPY expression all follow from its atoms. A log weight need not be convex.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.atoms import Atom, atom
from dp2erm_cvx.model.composite import CLOSED_FORM
from dp2erm_cvx.model.sums import UNIT, dot_error

#: 0 or 1 of every record.
Arms = NDArray[np.int64]

#: Margins beyond which only the limits of a function are asked for.
_FARTHEST = 700.0
#: Cells of a range of margins; a monotone piece needs one.
_CELLS = 512


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
        """Value, derivatives and their errors at margins that are wrong by at most ``error`` (n,)."""
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
    """A loss ``phi(s)`` of a margin: a sum of atoms of affine functions of it, convex. Methods take (n,)."""

    parts: tuple[Part, ...]

    def plus(self, other: Curve) -> Curve:
        """The sum of two losses of one margin."""
        return Curve(self.parts + other.parts)

    def scaled(self, factor: float) -> Curve:
        """A multiple of the loss."""
        return Curve(tuple(Part(factor * p.coefficient, p.atom, p.scale, p.shift) for p in self.parts))

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
        return max((abs(part.scale) * part.atom.bend_within(reach) for part, reach in pairs), default=0.0)

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
        """Value, derivatives and their errors at margins that are wrong by at most ``error`` (n,)."""
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
        """Units of roundoff of what slopes are taken of, beside its margin, relative to the margin."""
        return 0.0 if all(part.keeps_margin for part in self.parts) else 2.0

    def least_value(self, margin_bound: float) -> float:
        """Lower bound of phi over ``|s| <= margin_bound``, -inf where it falls without end."""
        reach = min(margin_bound, _FARTHEST)
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
        """Bound on ``-s phi'(s)`` over ``|s| <= margin_bound``: it bounds the minimizer of a ridged sum."""
        reach = min(margin_bound, _FARTHEST)
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


def _by_arm(arm: Arms, own: Callable[[int, Any], Iterable[Array]]) -> list[Array]:
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
        """Units of roundoff of a computed slope over ``|s| <= margin_bound`` whose margin is exact."""
        return max(curve.rounding_units(margin_bound) for curve in self.each)

    @property
    def margin_units(self) -> float:
        """Units of roundoff of what slopes are taken of, beside its margin, relative to the margin."""
        return max(curve.margin_units for curve in self.each)

    def pull(self, margin_bound: float) -> float:
        """Bound on ``-s phi'(s)`` over ``|s| <= margin_bound``: it bounds the minimizer of a ridged sum."""
        return max(curve.pull(margin_bound) for curve in self.each)


@dataclass(frozen=True, eq=False)
class CurveOfRecords:
    """The losses of records of known arms; methods take arrays of the shape of ``arm``, as of a Curve.

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
        return _by_arm(self.arm, lambda which, of: [self.each[which].value(s[of])])[0]

    def slope(self, s: Array) -> Array:
        """phi'(s)."""
        return _by_arm(self.arm, lambda which, of: [self.each[which].slope(s[of])])[0]

    def curvature(self, s: Array) -> Array:
        """phi''(s)."""
        return _by_arm(self.arm, lambda which, of: [self.each[which].curvature(s[of])])[0]

    def at(self, s: Array, error: Array) -> LossTerms:
        """Value, derivatives and their errors at margins that are wrong by at most ``error``."""
        return LossTerms(*_by_arm(self.arm, lambda which, of: self.each[which].at(s[of], error[of])))

    def least_curvature(self, s: Array, distance: Array) -> Array:
        """Lower bound on phi'' within ``distance`` of the margins."""

        def own(which: int, of: Any) -> list[Array]:
            return [self.each[which].least_curvature(s[of], distance[of])]

        return _by_arm(self.arm, own)[0]


#: The loss of a margin: one for all records, or one for each arm.
Loss = Curve | CurvesByArm


class Enclosure(NamedTuple):
    """Intervals of the value and of the slope of a function, one per cell of its argument."""

    low: Array
    high: Array
    down: Array
    up: Array

    @property
    def steepest(self) -> Array:
        """Largest absolute slope on every cell."""
        return np.maximum(np.abs(self.down), np.abs(self.up))


_OPERATIONS = ("margin", "constant", "sum", "multiple", "minimum", "log", "entr", "atom")


@dataclass(frozen=True)
class LogWeight:
    """``h(s)`` of a weight exp(h): the margin, constants, sums, multiples, minima, logs, atoms of such.

    ``entr`` is ``-u log u`` of such a function u, which is above 0.

    ``number`` is that of a constant or a multiple, ``atom`` that of an atom. Raises DeclarationError for
    another operation, and for an atom without one.
    """

    operation: str = "margin"
    parts: tuple[LogWeight, ...] = ()
    number: float = 1.0
    atom: Atom | None = None

    def __post_init__(self) -> None:
        if self.operation not in _OPERATIONS or (self.operation == "atom" and self.atom is None):
            raise DeclarationError(f"log weight {self.operation!r}: must be one of {', '.join(_OPERATIONS)}")

    def along(self, arm: Arms | None) -> LogWeight:
        """The function of records of these arms (n,): it is the same in either."""
        return self

    def times(self, factor: float) -> LogWeight:
        """A multiple of the function."""
        return LogWeight("multiple", (self,), factor)

    def log(self, s: Array) -> Array:
        """h(s) at margins (n,)."""
        return self.evaluated(s)[0]

    def evaluated(self, s: Array) -> tuple[Array, Array]:
        """h(s) at margins (n,), and the sizes (n,) of all that is added up on the way to it, 1 at least.

        The value is within 16 units of roundoff of its size.
        """
        value, size = s, np.zeros_like(s)
        inner = [part.evaluated(s) for part in self.parts]
        values, sizes = [v for v, _ in inner], [size for _, size in inner]
        match self.operation:
            case "constant":
                value = np.full_like(s, self.number)
            case "sum":
                value, size = reduce(np.add, values), reduce(np.add, sizes)
            case "multiple":
                value, size = self.number * values[0], abs(self.number) * sizes[0]
            case "minimum":
                value, size = reduce(np.minimum, values), reduce(np.maximum, sizes)
            case "log":
                value, size = np.log(values[0]), sizes[0] / values[0]
            case "entr":
                steep = np.abs(np.log(values[0]) + 1.0)
                value, size = entr(values[0]), steep * sizes[0]
            case "atom":
                assert self.atom is not None
                value, size = self.atom.value(values[0]), np.abs(self.atom.slope(values[0])) * sizes[0]
        return value, size + 1.0 + np.abs(value)

    def enclose(self, low: Array, high: Array) -> Enclosure:
        """Intervals of value and slope on every cell ``[low, high]``; at a kink both slopes count."""
        inner = [part.enclose(low, high) for part in self.parts]
        zero = np.zeros_like(low)
        match self.operation:
            case "margin":
                return Enclosure(low, high, zero + 1.0, zero + 1.0)
            case "constant":
                return Enclosure(zero + self.number, zero + self.number, zero, zero)
            case "sum":
                return Enclosure(*(reduce(np.add, column) for column in zip(*inner, strict=True)))
            case "multiple":
                k, y = self.number, inner[0]
                turned = y if k >= 0 else Enclosure(y.high, y.low, y.up, y.down)
                return Enclosure(*(k * end for end in turned))
            case "minimum":
                return reduce(_smaller, inner)
            case "log":
                y = inner[0]
                with np.errstate(divide="ignore", invalid="ignore"):
                    steepest = np.where(y.low > 0, 1 / y.low, np.inf)  # a logarithm falls without end at 0
                    low = np.log(np.maximum(y.low, 0))
                    return Enclosure(low, np.log(y.high), *_product(1 / y.high, steepest, y))
            case "entr":
                return _entropy(inner[0])
        assert self.atom is not None
        return _of_atom(self.atom, inner[0])

    @cached_property
    def lipschitz(self) -> float:
        """Largest ``|h'|`` over all margins; ``inf`` where there is none."""
        everywhere = np.array([np.inf])
        with np.errstate(invalid="ignore", over="ignore"):
            steep = float(self.enclose(-everywhere, everywhere).steepest[0])
        return math.inf if math.isnan(steep) else steep

    @cached_property
    def curve(self) -> Curve | None:
        """The function or minus it as a convex one: a multiple of an atom of one of the margin, or None.

        Of a function that is cut off at constants that which is cut off.
        """
        size, node = self._multiple
        if node.operation == "minimum":
            rest = [part for part in node.parts if part.operation != "constant"]
            return rest[0].times(size).curve if len(rest) == 1 else None
        if node.operation != "atom" or node.atom is None:
            return None
        scale, inner = node.parts[0]._multiple
        return Curve((Part(abs(size), node.atom, scale),)) if inner == LogWeight() and size else None

    @property
    def cap(self) -> float | None:
        """F of ``log min(1 + exp(-s), F)``, the inverse propensity, ``inf`` for none; None for another f."""
        first, *caps = self.parts if self.operation == "minimum" else (self,)
        if first != INVERSE_PROPENSITY or len(caps) > 1 or any(one.operation != "constant" for one in caps):
            return None
        return math.exp(caps[0].number) if caps else math.inf

    @property
    def _multiple(self) -> tuple[float, LogWeight]:
        """The function as a multiple of another."""
        factor, node = 1.0, self
        while node.operation == "multiple":
            factor, node = factor * node.number, node.parts[0]
        return factor, node

    @property
    def is_clipped(self) -> bool:
        """True if it has kinks, at which differences of its gradients count from 0."""
        return self.operation == "minimum" or any(part.is_clipped for part in self.parts)

    def range(self, low: float, high: float) -> tuple[float, float]:
        """Bounds of h over ``[low, high]``, which may be infinite: exact where it is near and monotone."""
        far = max(-low, high) > _FARTHEST
        edges = np.clip([low, high], -1e300, 1e300) if far else np.linspace(low, high, _CELLS + 1)
        with np.errstate(over="ignore", invalid="ignore"):
            bounds, ends = self.enclose(edges[:-1], edges[1:]), self.log(edges)
        monotone = ((bounds.down >= 0) | (bounds.up <= 0)) & ~np.isnan(ends[:-1] + ends[1:]) & (not far)
        least = np.where(monotone, np.minimum(ends[:-1], ends[1:]), bounds.low)
        largest = np.where(monotone, np.maximum(ends[:-1], ends[1:]), bounds.high)
        return float(np.min(least)), float(np.max(largest))

    @property
    def is_constant(self) -> bool:
        """True if the function asks for no margin."""
        if self.operation == "margin":
            return False
        return all(part.is_constant for part in self.parts)

    def of(self, tilt: Array, total: Array) -> Array:
        """F itself in place of ``total = 1 + tilt``, ``tilt = exp(-s)``: batches share both with the loss."""
        if self == OVERLAP:
            return np.divide(tilt, total, out=total)
        if (cap := self.cap) is not None:
            return total if math.isinf(cap) else np.minimum(total, cap, out=total)
        return np.exp(self.log(-np.log(tilt)), out=total)

    def log_range(self, reach: float) -> float:
        """Length of an interval that log f lies in over ``|s| <= reach``, which may be infinite."""
        low, high = self.range(-reach, reach)
        return math.inf if math.isnan(high - low) else high - low

    def steepest(self, reach: float) -> float:
        """Largest ``|h'|`` over ``|s| <= reach``."""
        if not reach <= _FARTHEST:
            return self.lipschitz
        edges = np.linspace(-reach, reach, _CELLS + 1)
        return min(self.lipschitz, float(np.max(self.enclose(edges[:-1], edges[1:]).steepest)))

    def error_at(self, dimension: int, row_bound: float, norm: float, offset: float = 0.0) -> float:
        """Bound on ``||w_hat - w||_1 / n`` of weights computed at a coefficient v, ``||v|| <= norm``.

        Only the margins and the last steps round.

        Parameters
        ----------
        dimension
            Number of columns.
        row_bound
            Bound on the norm of the rows.
        norm
            Bound on the norm of v.
        offset
            Bound on the size of the offsets of margins.
        """
        reach = row_bound * norm + offset
        evaluated = 16 * UNIT * (2 + max(map(abs, self.range(-reach, reach))))
        moved = dot_error(dimension) * row_bound * norm
        if offset:
            moved += UNIT * reach
        return self.steepest(reach + moved) * moved + max(CLOSED_FORM, evaluated)


@dataclass(frozen=True)
class LogWeightsByArm:
    """``h(s)`` of a weight exp(h) that depends on the arm of its record. Bounds are those of both arms.

    Parameters
    ----------
    each
        The log weight of controls, and that of the treated.
    """

    each: tuple[LogWeight, LogWeight]

    #: No inverse propensity, cut off or not: those are one function for all records.
    cap: ClassVar[None] = None

    def along(self, arm: Arms | None) -> LogWeightOfRecords:
        """The function of records of these arms (n,)."""
        assert arm is not None
        return LogWeightOfRecords(self.each, arm)

    @property
    def lipschitz(self) -> float:
        """Largest ``|h'|`` over all margins; ``inf`` where there is none."""
        return max(weight.lipschitz for weight in self.each)

    def range(self, low: float, high: float) -> tuple[float, float]:
        """Bounds of h over ``[low, high]``, which may be infinite."""
        ranges = [weight.range(low, high) for weight in self.each]
        least, largest = zip(*ranges, strict=True)
        return min(least), max(largest)

    def log_range(self, reach: float) -> float:
        """Length of an interval that log f lies in over ``|s| <= reach``, which may be infinite."""
        low, high = self.range(-reach, reach)
        return math.inf if math.isnan(high - low) else high - low

    def steepest(self, reach: float) -> float:
        """Largest ``|h'|`` over ``|s| <= reach``."""
        return max(weight.steepest(reach) for weight in self.each)

    def error_at(self, dimension: int, row_bound: float, norm: float, offset: float = 0.0) -> float:
        """Bound on ``||w_hat - w||_1 / n`` of weights computed at a coefficient v, as of a LogWeight."""
        return max(weight.error_at(dimension, row_bound, norm, offset) for weight in self.each)


@dataclass(frozen=True, eq=False)
class LogWeightOfRecords:
    """Log weights of records of known arms; methods take arrays of the shape of ``arm``, as of a LogWeight.

    Parameters
    ----------
    each
        The log weight of controls, and that of the treated.
    arm
        0 or 1 of every record.
    """

    each: tuple[LogWeight, LogWeight]
    arm: Arms

    @property
    def lipschitz(self) -> float:
        """Largest ``|h'|`` over all margins of either arm."""
        return max(weight.lipschitz for weight in self.each)

    def log(self, s: Array) -> Array:
        """h(s)."""
        return self.evaluated(s)[0]

    def evaluated(self, s: Array) -> tuple[Array, Array]:
        """h(s), and the sizes of all that is added up on the way to it, 1 at least."""
        value, size = _by_arm(self.arm, lambda which, of: self.each[which].evaluated(s[of]))
        return value, size

    def enclose(self, low: Array, high: Array) -> Enclosure:
        """Intervals of value and slope on every cell ``[low, high]``; at a kink both slopes count."""
        return Enclosure(*_by_arm(self.arm, lambda which, of: self.each[which].enclose(low[of], high[of])))


#: The log of a weight: one function for all records, or one for each arm.
LogOfWeight = LogWeight | LogWeightsByArm


#: ``log(1 + exp(-s))``: one over the probability sigma(s) of the observed arm.
INVERSE_PROPENSITY = LogWeight("atom", (LogWeight().times(-1.0),), atom=atom("logistic"))
#: ``log sigma(-s)``: the probability of the other arm (Li, Morgan & Zaslavsky 2018).
OVERLAP = LogWeight("atom", (LogWeight(),), atom=atom("logistic")).times(-1.0)


def _smaller(x: Enclosure, y: Enclosure) -> Enclosure:
    first, second = x.high <= y.low, y.high <= x.low
    down = np.where(first, x.down, np.where(second, y.down, np.minimum(x.down, y.down)))
    up = np.where(first, x.up, np.where(second, y.up, np.maximum(x.up, y.up)))
    return Enclosure(np.minimum(x.low, y.low), np.minimum(x.high, y.high), down, up)


def _product(low: Array, high: Array, y: Enclosure) -> tuple[Array, Array]:
    """Interval of an outer slope in ``[low, high]`` times the inner one."""
    with np.errstate(invalid="ignore"):
        products = np.stack([low * y.down, low * y.up, high * y.down, high * y.up])
    return products.min(axis=0), products.max(axis=0)


def _entropy(y: Enclosure) -> Enclosure:
    """``-u log u`` of a function u above 0: it rises up to 1/e, and falls beyond."""
    least, largest = np.maximum(y.low, 0.0), np.maximum(y.high, 0.0)
    ends = entr(least), entr(largest)
    inside = (least < 1.0 / math.e) & (largest > 1.0 / math.e)
    highest = np.where(inside, (1.0 + 4 * UNIT) / math.e, np.maximum(*ends))
    with np.errstate(divide="ignore", invalid="ignore"):
        falls, rises = -np.log(largest) - 1.0, -np.log(least) - 1.0
    return Enclosure(np.minimum(*ends), highest, *_product(falls, rises, y))


def _of_atom(atom: Atom, y: Enclosure) -> Enclosure:
    at_low, at_high = atom.value(y.low), atom.value(y.high)
    down, up = atom.slope(y.low), atom.slope(y.high)
    turning = (down < 0) & (up > 0)  # convex: its least value is inside, where all atoms here have 0
    least = np.where(turning, atom.value(np.zeros_like(y.low)), np.minimum(at_low, at_high))
    return Enclosure(least, np.maximum(at_low, at_high), *_product(down, up, y))
