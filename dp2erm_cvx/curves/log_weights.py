"""Logarithms of weights as functions of one margin: trees of atoms, which need not be convex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from dp2erm_cvx.arrays import CLOSED_FORM, UNIT, Array, dot_error
from dp2erm_cvx.curves.atoms import Atom, atom
from dp2erm_cvx.curves.curves import FARTHEST, Arms, Curve, Part, by_arm
from dp2erm_cvx.errors import DeclarationError

#: Cells of a range of margins; a monotone piece needs one.
_CELLS = 512


class Enclosure(NamedTuple):
    """Intervals of the value and of the slope of a function, one per cell of its argument.

    Attributes
    ----------
    low, high
        Ends of the value (m,).
    down, up
        Ends of the slope (m,).
    """

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
    """``h(s)`` of a weight exp(h), a tree whose leaves are the margin and constants.

    Parameters
    ----------
    operation
        One of ``_OPERATIONS``: ``margin``, ``constant``, ``sum``, ``multiple``, ``minimum``,
        ``log``, ``entr`` (``-u log u`` of a function u above 0) or ``atom``.
    parts
        The functions that the operation is of.
    number
        That of a constant or a multiple.
    atom
        That of an operation ``atom``.

    Raises
    ------
    DeclarationError
        For another operation, and for an atom without one.
    """

    operation: str = "margin"
    parts: tuple[LogWeight, ...] = ()
    number: float = 1.0
    atom: Atom | None = None

    def __post_init__(self) -> None:
        if self.operation not in _OPERATIONS or (self.operation == "atom" and self.atom is None):
            raise DeclarationError(
                f"log weight {self.operation!r}: must be one of {', '.join(_OPERATIONS)}"
            )

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
        """h(s) at margins (n,), and the sizes (n,) of all that is added up on the way to it.

        The value is within 16 units of roundoff of its size, which is at least 1.
        """
        inner = [part.evaluated(s) for part in self.parts]
        value, carried = self._evaluated(s, inner)
        return value, carried + 1.0 + np.abs(value)

    def _evaluated(self, s: Array, inner: list[tuple[Array, Array]]) -> tuple[Array, Array]:
        """The value, and the sizes that it has from the values and sizes of the parts."""
        values = [value for value, _ in inner]
        sizes = [size for _, size in inner]
        match self.operation:
            case "margin":
                return s, np.zeros_like(s)
            case "constant":
                return np.full_like(s, self.number), np.zeros_like(s)
            case "sum":
                return reduce(np.add, values), reduce(np.add, sizes)
            case "multiple":
                return self.number * values[0], abs(self.number) * sizes[0]
            case "minimum":
                return reduce(np.minimum, values), reduce(np.maximum, sizes)
            case "log":
                return np.log(values[0]), sizes[0] / values[0]
            case "entr":
                steep = np.abs(np.log(values[0]) + 1.0)
                return entr(values[0]), steep * sizes[0]
        assert self.atom is not None
        steep = np.abs(self.atom.slope(values[0]))
        return self.atom.value(values[0]), steep * sizes[0]

    def enclose(self, low: Array, high: Array) -> Enclosure:
        """Intervals of value and slope on every cell; at a kink both slopes count.

        Parameters
        ----------
        low, high
            Ends of the cells (m,).
        """
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
                return _multiple(self.number, inner[0])
            case "minimum":
                return reduce(_smaller, inner)
            case "log":
                return _logarithm(inner[0])
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
        """The function or minus it as a convex one, a multiple of an atom; None for any other.

        The atom is of a multiple of the margin. Of a function that is cut off at constants it is
        that of the function that is cut off.
        """
        factor, node = self._factor_and_node
        if node.operation == "minimum":
            not_constant = [part for part in node.parts if part.operation != "constant"]
            if len(not_constant) != 1:
                return None
            return not_constant[0].times(factor).curve
        if node.operation != "atom" or node.atom is None:
            return None
        scale, inner = node.parts[0]._factor_and_node
        if inner != LogWeight() or factor == 0.0:
            return None
        return Curve((Part(abs(factor), node.atom, scale),))

    @property
    def cap(self) -> float | None:
        """F of the inverse propensity ``log min(1 + exp(-s), F)``; None for another function.

        It is infinite where the inverse propensity is not cut off.
        """
        if self == INVERSE_PROPENSITY:
            return math.inf
        if self.operation != "minimum" or self.parts[0] != INVERSE_PROPENSITY:
            return None
        caps = self.parts[1:]
        if not caps:
            return math.inf
        if len(caps) > 1 or caps[0].operation != "constant":
            return None
        return math.exp(caps[0].number)

    @property
    def _factor_and_node(self) -> tuple[float, LogWeight]:
        """The function as a multiple of another, which is no multiple itself."""
        factor = 1.0
        node = self
        while node.operation == "multiple":
            factor = factor * node.number
            node = node.parts[0]
        return factor, node

    @property
    def is_clipped(self) -> bool:
        """True if it has kinks, at which differences of its gradients count from 0."""
        return self.operation == "minimum" or any(part.is_clipped for part in self.parts)

    def range(self, low: float, high: float) -> tuple[float, float]:
        """Bounds of h over ``[low, high]``, exact where it is near and monotone.

        Parameters
        ----------
        low, high
            Ends of the margin, which may be infinite.
        """
        if max(-low, high) > FARTHEST:
            return self._far_range(low, high)
        edges = np.linspace(low, high, _CELLS + 1)
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = self.enclose(edges[:-1], edges[1:])
            ends = self.log(edges)
        first = ends[:-1]
        last = ends[1:]
        same_sign = (bounds.down >= 0) | (bounds.up <= 0)
        monotone = same_sign & ~np.isnan(first + last)
        least = np.where(monotone, np.minimum(first, last), bounds.low)
        largest = np.where(monotone, np.maximum(first, last), bounds.high)
        return float(np.min(least)), float(np.max(largest))

    def _far_range(self, low: float, high: float) -> tuple[float, float]:
        """Bounds of h over margins of which some are beyond what exponentials take, as one cell."""
        ends = np.clip([low, high], -1e300, 1e300)
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = self.enclose(ends[:1], ends[1:])
        return float(bounds.low[0]), float(bounds.high[0])

    @property
    def is_constant(self) -> bool:
        """True if the function asks for no margin."""
        if self.operation == "margin":
            return False
        return all(part.is_constant for part in self.parts)

    def of(self, tilt: Array, total: Array) -> Array:
        """F itself, written over ``total``: batches share both arrays with the loss.

        Parameters
        ----------
        tilt
            ``exp(-s)``.
        total
            ``1 + exp(-s)``.
        """
        if self == OVERLAP:
            return np.divide(tilt, total, out=total)
        cap = self.cap
        if cap is not None and math.isinf(cap):
            return total
        if cap is not None:
            return np.minimum(total, cap, out=total)
        return np.exp(self.log(-np.log(tilt)), out=total)

    def log_range(self, reach: float) -> float:
        """Length of an interval that log f lies in over ``|s| <= reach``, which may be infinite."""
        low, high = self.range(-reach, reach)
        return math.inf if math.isnan(high - low) else high - low

    def steepest(self, reach: float) -> float:
        """Largest ``|h'|`` over ``|s| <= reach``."""
        if not reach <= FARTHEST:
            return self.lipschitz
        edges = np.linspace(-reach, reach, _CELLS + 1)
        return min(self.lipschitz, float(np.max(self.enclose(edges[:-1], edges[1:]).steepest)))

    def error_at(self, dimension: int, row_bound: float, norm: float, offset: float = 0.0) -> float:
        """Bound on ``||w_hat - w||_1 / n`` of weights that are computed at a coefficient v.

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
    """``h(s)`` of a weight exp(h) that depends on the arm; bounds are those of both arms.

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
        """Bound on ``||w_hat - w||_1 / n`` of computed weights, as of a LogWeight."""
        return max(weight.error_at(dimension, row_bound, norm, offset) for weight in self.each)


@dataclass(frozen=True, eq=False)
class LogWeightOfRecords:
    """Log weights of records of known arms.

    Methods take arrays of the shape of ``arm``, as those of a LogWeight do.

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

        def of_arm(arm: int, records: NDArray[np.bool_]) -> tuple[Array, Array]:
            return self.each[arm].evaluated(s[records])

        value, size = by_arm(self.arm, of_arm)
        return value, size

    def enclose(self, low: Array, high: Array) -> Enclosure:
        """Intervals of value and slope on every cell; at a kink both slopes count."""

        def of_arm(arm: int, records: NDArray[np.bool_]) -> Enclosure:
            return self.each[arm].enclose(low[records], high[records])

        return Enclosure(*by_arm(self.arm, of_arm))


#: The log of a weight: one function for all records, or one for each arm.
LogOfWeight = LogWeight | LogWeightsByArm


#: ``log(1 + exp(-s))``: one over the probability sigma(s) of the observed arm.
INVERSE_PROPENSITY = LogWeight("atom", (LogWeight().times(-1.0),), atom=atom("logistic"))
#: ``log sigma(-s)``: the probability of the other arm (Li, Morgan & Zaslavsky 2018).
OVERLAP = LogWeight("atom", (LogWeight(),), atom=atom("logistic")).times(-1.0)


def _multiple(factor: float, y: Enclosure) -> Enclosure:
    """A multiple of a function; a negative one turns both intervals around."""
    if factor >= 0:
        return Enclosure(factor * y.low, factor * y.high, factor * y.down, factor * y.up)
    return Enclosure(factor * y.high, factor * y.low, factor * y.up, factor * y.down)


def _smaller(x: Enclosure, y: Enclosure) -> Enclosure:
    """The smaller one of two functions; where either may be, both slopes count."""
    first = x.high <= y.low
    second = y.high <= x.low
    down = np.where(first, x.down, np.where(second, y.down, np.minimum(x.down, y.down)))
    up = np.where(first, x.up, np.where(second, y.up, np.maximum(x.up, y.up)))
    return Enclosure(np.minimum(x.low, y.low), np.minimum(x.high, y.high), down, up)


def _product(low: Array, high: Array, y: Enclosure) -> tuple[Array, Array]:
    """Interval of an outer slope in ``[low, high]`` times the inner one."""
    with np.errstate(invalid="ignore"):
        products = np.stack([low * y.down, low * y.up, high * y.down, high * y.up])
    return products.min(axis=0), products.max(axis=0)


def _logarithm(y: Enclosure) -> Enclosure:
    """``log u`` of a function u, which falls without end at 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        least_slope = 1 / y.high
        largest_slope = np.where(y.low > 0, 1 / y.low, np.inf)
        low = np.log(np.maximum(y.low, 0))
        high = np.log(y.high)
        down, up = _product(least_slope, largest_slope, y)
    return Enclosure(low, high, down, up)


def _entropy(y: Enclosure) -> Enclosure:
    """``-u log u`` of a function u above 0: it rises up to 1/e, and falls beyond."""
    least = np.maximum(y.low, 0.0)
    largest = np.maximum(y.high, 0.0)
    at_least = entr(least)
    at_largest = entr(largest)
    peak = (1.0 + 4 * UNIT) / math.e
    holds_peak = (least < 1.0 / math.e) & (largest > 1.0 / math.e)
    highest = np.where(holds_peak, peak, np.maximum(at_least, at_largest))
    with np.errstate(divide="ignore", invalid="ignore"):
        least_slope = -np.log(largest) - 1.0
        largest_slope = -np.log(least) - 1.0
    down, up = _product(least_slope, largest_slope, y)
    return Enclosure(np.minimum(at_least, at_largest), highest, down, up)


def _of_atom(atom: Atom, y: Enclosure) -> Enclosure:
    """An atom of a function; where it turns, its least value is that at 0, as of all atoms here."""
    at_low = atom.value(y.low)
    at_high = atom.value(y.high)
    least_slope = atom.slope(y.low)
    largest_slope = atom.slope(y.high)
    turning = (least_slope < 0) & (largest_slope > 0)
    at_zero = atom.value(np.zeros_like(y.low))
    least = np.where(turning, at_zero, np.minimum(at_low, at_high))
    down, up = _product(least_slope, largest_slope, y)
    return Enclosure(least, np.maximum(at_low, at_high), down, up)
