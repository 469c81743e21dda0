"""The dispersion of weights: a convex function of one weight, the same for every record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.errors import DeclarationError

#: Smallest argument of a logarithm.
_TINY = 1e-300


@dataclass(frozen=True)
class DispersionAtom:
    """A convex function of one number t, with its first two derivatives.

    Parameters
    ----------
    value, slope, curvature
        Functions of t (any shape) and of the number that the atom holds.
    starts
        Where its domain begins; minus infinity for all numbers.
    concave_slope
        Whether its slope is a concave function of t.
    """

    value: Callable[[Array, float], Array]
    slope: Callable[[Array, float], Array]
    curvature: Callable[[Array, float], Array]
    starts: float = -math.inf
    concave_slope: bool = False


def _positive(t: Array) -> Array:
    return np.maximum(t, _TINY)


def _square(t: Array, number: float) -> Array:
    return t * t


def _square_slope(t: Array, number: float) -> Array:
    return 2.0 * t


def _square_curvature(t: Array, number: float) -> Array:
    return np.full_like(t, 2.0)


def _entropy(t: Array, number: float) -> Array:
    return t * np.log(_positive(t))


def _entropy_slope(t: Array, number: float) -> Array:
    return np.log(_positive(t)) + 1.0


def _entropy_curvature(t: Array, number: float) -> Array:
    return 1.0 / _positive(t)


def _log(t: Array, number: float) -> Array:
    return -np.log(_positive(t))


def _log_slope(t: Array, number: float) -> Array:
    return -1.0 / _positive(t)


def _log_curvature(t: Array, number: float) -> Array:
    return _positive(t) ** -2.0


def _power(t: Array, number: float) -> Array:
    """``t^p``, or ``-t^p`` for p between 0 and 1, which is convex."""
    sign = -1.0 if 0.0 < number < 1.0 else 1.0
    return sign * _positive(t) ** number


def _power_slope(t: Array, number: float) -> Array:
    sign = -1.0 if 0.0 < number < 1.0 else 1.0
    return sign * number * _positive(t) ** (number - 1.0)


def _power_curvature(t: Array, number: float) -> Array:
    return abs(number * (number - 1.0)) * _positive(t) ** (number - 2.0)


def _huber(t: Array, number: float) -> Array:
    near = np.minimum(np.abs(t), number)
    return near * (2.0 * np.abs(t) - near)


def _huber_slope(t: Array, number: float) -> Array:
    return 2.0 * np.clip(t, -number, number)


def _huber_curvature(t: Array, number: float) -> Array:
    return np.where(np.abs(t) < number, 2.0, 0.0)


def _size(t: Array, number: float) -> Array:
    return np.abs(t)


def _size_slope(t: Array, number: float) -> Array:
    return np.sign(t)


def _flat(t: Array, number: float) -> Array:
    return np.zeros_like(t)


def _line(t: Array, number: float) -> Array:
    return np.asarray(t)


def _line_slope(t: Array, number: float) -> Array:
    return np.ones_like(t)


#: Atoms by name. The number of a power is its exponent, that of a Huber function its knee.
ATOMS = {
    "square": DispersionAtom(_square, _square_slope, _square_curvature, concave_slope=True),
    "entropy": DispersionAtom(
        _entropy, _entropy_slope, _entropy_curvature, starts=0.0, concave_slope=True
    ),
    "log": DispersionAtom(_log, _log_slope, _log_curvature, starts=0.0, concave_slope=True),
    "power": DispersionAtom(_power, _power_slope, _power_curvature, starts=0.0),
    "huber": DispersionAtom(_huber, _huber_slope, _huber_curvature),
    "size": DispersionAtom(_size, _size_slope, _flat),
    "line": DispersionAtom(_line, _line_slope, _flat, concave_slope=True),
}


@dataclass(frozen=True)
class DispersionPart:
    """``scale * atom(factor * w + offset)``.

    Parameters
    ----------
    atom
        Name of the atom, one of ``ATOMS``.
    scale
        Public factor, above 0; of a line any number.
    factor, offset
        Public numbers; the factor is not 0.
    number
        Exponent of a power, knee of a Huber function.
    """

    atom: str
    scale: float
    factor: float = 1.0
    offset: float = 0.0
    number: float = 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """Least and largest weight that it is finite at."""
        start = ATOMS[self.atom].starts
        if math.isinf(start):
            return -math.inf, math.inf
        end = (start - self.offset) / self.factor
        if self.factor > 0:
            return end, math.inf
        return -math.inf, end

    def slope(self, w: Array) -> Array:
        """Its slopes at weights of any shape."""
        inner = self.factor * w + self.offset
        return self.scale * self.factor * ATOMS[self.atom].slope(inner, self.number)


@dataclass(frozen=True)
class Dispersion:
    """``phi(w)``, a sum of parts.

    Parameters
    ----------
    parts
        The terms of the sum.

    Raises
    ------
    DeclarationError
        For an atom that is none, or a factor of 0.
    """

    parts: tuple[DispersionPart, ...]

    def __post_init__(self) -> None:
        for part in self.parts:
            if part.atom not in ATOMS or part.factor == 0.0:
                raise DeclarationError(f"dispersion: {part} is no function of a weight")

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Least and largest weight that all parts are finite at."""
        ends = [part.ends for part in self.parts]
        low = max((end[0] for end in ends), default=-math.inf)
        high = min((end[1] for end in ends), default=math.inf)
        return low, high

    def value(self, w: Array) -> Array:
        """Values of phi at weights of any shape."""
        total = np.zeros(np.shape(w))
        for part in self.parts:
            inner = part.factor * w + part.offset
            total += part.scale * ATOMS[part.atom].value(inner, part.number)
        return total

    def slope(self, w: Array) -> Array:
        """Slopes of phi at weights of any shape; at a kink of a size the mean of both sides."""
        total = np.zeros(np.shape(w))
        for part in self.parts:
            total += part.slope(w)
        return total

    def curvature(self, w: Array) -> Array:
        """Second derivatives of phi at weights of any shape, beside kinks."""
        total = np.zeros(np.shape(w))
        for part in self.parts:
            inner = part.factor * w + part.offset
            total += part.scale * part.factor**2 * ATOMS[part.atom].curvature(inner, part.number)
        return total

    def largest_curvature(self, start: Array, end: Array) -> Array:
        """Bounds of phi'' between two weights each, of any shape; infinite with a kink in between.

        The curvature of an atom is monotone in its argument, but for a Huber function, where 2
        bounds it.
        """
        total = np.zeros(np.shape(start))
        for part in self.parts:
            atom = ATOMS[part.atom]
            at_start = atom.curvature(part.factor * start + part.offset, part.number)
            at_end = atom.curvature(part.factor * end + part.offset, part.number)
            largest = np.maximum(at_start, at_end)
            if part.atom == "huber":
                largest = np.full_like(largest, 2.0)
            total += part.scale * part.factor**2 * largest
        for kink in self.kinks:
            total = np.where((start <= kink) & (kink <= end), np.inf, total)
        return total

    @property
    def kinks(self) -> tuple[float, ...]:
        """Weights at which the slope jumps."""
        return tuple(-part.offset / part.factor for part in self.parts if part.atom == "size")

    @property
    def concave_slope(self) -> bool:
        """Whether phi' is concave, which the bound W1 of the largest weight asks for."""
        return all(ATOMS[part.atom].concave_slope and part.factor > 0 for part in self.parts)

    @property
    def finite_slopes(self) -> bool:
        """Whether the slope is finite at the ends of its domain too, as that of powers above 1."""
        begun = [part for part in self.parts if math.isfinite(ATOMS[part.atom].starts)]
        return all(part.atom == "power" and part.number > 1.0 for part in begun)

    @property
    def family(self) -> str:
        """Name of the closed form that the inverse of the slope has; lines may stand beside it.

        ``square``, ``entropy``, ``log``, ``power`` or ``logit``, else ``general``.
        """
        curved = [part for part in self.parts if part.atom != "line"]
        names = [part.atom for part in curved]
        if names and set(names) == {"square"}:
            return "square"
        if names == ["entropy"] and curved[0].factor > 0:
            return "entropy"
        if names == ["log"] and curved[0].factor > 0:
            return "log"
        if names == ["power"] and curved[0].factor > 0:
            return "power"
        if names == ["entropy", "entropy"]:
            first, second = curved
            balanced = math.isclose(
                first.scale * first.factor, -second.scale * second.factor, rel_tol=1e-12
            )
            if first.factor * second.factor < 0 and balanced:
                return "logit"
        return "general"
