"""Weights as functions of a margin: ``f = exp(h(s))``, h any expression of atoms; no convexity is needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.atoms import Atom, atom
from dp2erm_cvx.model.composite import CLOSED_FORM
from dp2erm_cvx.model.sums import UNIT, dot_error
from dp2erm_cvx.program.curves import Curve, Part

#: Cells of a range; a monotone piece needs one.
_CELLS = 512
#: Beyond this margin no exponential is asked for.
_FARTHEST = 700.0


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


_OPERATIONS = ("margin", "constant", "sum", "multiple", "minimum", "log", "atom")


@dataclass(frozen=True)
class LogWeight:
    """``h(s)`` as a tree: the margin, constants, sums, multiples, minima, logarithms and atoms of such.

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

    def times(self, factor: float) -> LogWeight:
        """A multiple of the function."""
        return LogWeight("multiple", (self,), factor)

    def plus(self, *terms: LogWeight) -> LogWeight:
        """The sum with other functions."""
        return LogWeight("sum", (self, *terms))

    def at_most(self, *terms: LogWeight) -> LogWeight:
        """The minimum with other functions."""
        return LogWeight("minimum", (self, *terms)) if terms else self

    def of_atom(self, atom: Atom) -> LogWeight:
        """An atom of the function."""
        return LogWeight("atom", (self,), atom=atom)

    def log(self, s: Array) -> Array:
        """Log f at margins (n,), within 16 units of roundoff of :meth:`magnitude`."""
        inner = [part.log(s) for part in self.parts]
        match self.operation:
            case "margin":
                return s
            case "constant":
                return np.full_like(s, self.number)
            case "sum":
                return reduce(np.add, inner)
            case "multiple":
                return -inner[0] if self.number == -1.0 else self.number * inner[0]
            case "minimum":
                return reduce(np.minimum, inner)
            case "log":
                return np.log(inner[0])
        assert self.atom is not None
        return self.atom.value(inner[0])

    def magnitude(self, s: Array) -> Array:
        """Sum (n,) of the sizes of all that is added up on the way to log f, 1 at least."""
        inner = [part.magnitude(s) for part in self.parts]
        own = 1.0 + np.abs(self.log(s))
        match self.operation:
            case "sum":
                return own + reduce(np.add, inner)
            case "multiple":
                return own + abs(self.number) * inner[0]
            case "minimum":
                return own + reduce(np.maximum, inner)
            case "log":
                return own + inner[0] / self.parts[0].log(s)
            case "atom":
                assert self.atom is not None
                return own + np.abs(self.atom.slope(self.parts[0].log(s))) * inner[0]
        return own

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
                if k >= 0:
                    return Enclosure(k * y.low, k * y.high, k * y.down, k * y.up)
                return Enclosure(k * y.high, k * y.low, k * y.up, k * y.down)
            case "minimum":
                return reduce(_smaller, inner)
            case "log":
                y = inner[0]
                with np.errstate(divide="ignore", invalid="ignore"):
                    steepest = np.where(y.low > 0, 1 / y.low, np.inf)  # a logarithm falls without end at 0
                    return Enclosure(
                        np.log(np.maximum(y.low, 0)), np.log(y.high), *_product(1 / y.high, steepest, y)
                    )
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
        if self == INVERSE_PROPENSITY:
            return math.inf
        if self.operation == "minimum" and self.parts[0] == INVERSE_PROPENSITY:
            caps = [part.number for part in self.parts[1:] if part.operation == "constant"]
            return math.exp(caps[0]) if len(caps) == len(self.parts) - 1 == 1 else None
        return None

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
        """Bounds of h over ``[low, high]``: exact where it is monotone."""
        edges = np.linspace(low, high, _CELLS + 1)
        left, right = edges[:-1], edges[1:]
        with np.errstate(over="ignore", invalid="ignore"):
            bounds, ends = self.enclose(left, right), self.log(edges)
        monotone = ((bounds.down >= 0) | (bounds.up <= 0)) & ~np.isnan(ends[:-1] + ends[1:])
        least = np.where(monotone, np.minimum(ends[:-1], ends[1:]), bounds.low)
        largest = np.where(monotone, np.maximum(ends[:-1], ends[1:]), bounds.high)
        return float(np.min(least)), float(np.max(largest))

    def of(self, tilt: Array, total: Array) -> Array:
        """F itself in place of ``total = 1 + tilt``, ``tilt = exp(-s)``: batches share both with the loss."""
        if self == OVERLAP:
            return np.divide(tilt, total, out=total)
        if (cap := self.cap) is not None:
            return total if math.isinf(cap) else np.minimum(total, cap, out=total)
        return np.exp(self.log(-np.log(tilt)), out=total)

    def log_range(self, reach: float) -> float:
        """Length of an interval that log f lies in over ``|s| <= reach``, which may be infinite."""
        low, high = self._ends(reach)
        length = high - low
        return math.inf if math.isnan(length) else length

    def largest_weight(self, n: int, reach: float) -> float:
        """The largest of n weights of sum n whose margins are within ``reach``."""
        return stability.largest_weight(n, self.log_range(reach))

    def steepest(self, reach: float) -> float:
        """Largest ``|h'|`` over ``|s| <= reach``."""
        if not reach <= _FARTHEST:
            return self.lipschitz
        edges = np.linspace(-reach, reach, _CELLS + 1)
        return min(self.lipschitz, float(np.max(self.enclose(edges[:-1], edges[1:]).steepest)))

    def error_at(self, dimension: int, row_bound: float, norm: float) -> float:
        """Bound on ``||w_hat - w||_1 / n`` of weights computed at a coefficient v, ``||v|| <= norm``.

        At margins of rows of norm at most ``row_bound``; only the margins and the last steps round.
        """
        reach = row_bound * norm
        evaluated = 16 * UNIT * (2 + max(map(abs, self._ends(reach))))
        moved = dot_error(dimension) * reach
        return self.steepest(reach + moved) * moved + max(CLOSED_FORM, evaluated)

    def _ends(self, reach: float) -> tuple[float, float]:
        """Bounds of h over ``|s| <= reach``, which may be infinite."""
        if reach <= _FARTHEST:
            return self.range(-reach, reach)
        everywhere = np.array([min(reach, 1e300)])
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = self.enclose(-everywhere, everywhere)
        return float(bounds.low[0]), float(bounds.high[0])


#: ``log(1 + exp(-s))``: one over the probability sigma(s) of the observed arm.
INVERSE_PROPENSITY = LogWeight().times(-1.0).of_atom(atom("logistic"))
#: ``log sigma(-s)``: the probability of the other arm (Li, Morgan & Zaslavsky 2018).
OVERLAP = LogWeight().of_atom(atom("logistic")).times(-1.0)


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


def _of_atom(atom: Atom, y: Enclosure) -> Enclosure:
    at_low, at_high = atom.value(y.low), atom.value(y.high)
    down, up = atom.slope(y.low), atom.slope(y.high)
    turning = (down < 0) & (up > 0)  # convex: its least value is inside, where all atoms here have 0
    least = np.where(turning, atom.value(np.zeros_like(y.low)), np.minimum(at_low, at_high))
    return Enclosure(least, np.maximum(at_low, at_high), *_product(down, up, y))
