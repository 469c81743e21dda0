"""Losses of one margin: sums of atoms, and whatever constants and certificates ask of them.

Nothing about a loss is written anywhere else: the largest slope and curvature over a ball, what a gradient
rounds, self-concordance and the CVXPY expression all follow from its atoms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.atoms import Atom, atom
from dp2erm_cvx.model.sums import UNIT

#: Margins beyond which only the limits of a loss are asked for.
_FARTHEST = 700.0


@dataclass(frozen=True, eq=False)
class LossTerms:
    """Phi, its two derivatives and bounds on their errors at margins (n,)."""

    value: Array
    slope: Array
    curvature: Array
    slope_error: Array
    curvature_error: Array

    def plus(self, other: LossTerms) -> LossTerms:
        """The sum of both, each addition with its rounding."""
        slopes = UNIT * (np.abs(self.slope) + np.abs(other.slope))
        return LossTerms(
            self.value + other.value,
            self.slope + other.slope,
            self.curvature + other.curvature,
            self.slope_error + other.slope_error + slopes,
            self.curvature_error + other.curvature_error + UNIT * (self.curvature + other.curvature),
        )


@dataclass(frozen=True)
class Part:
    """``coefficient * atom(scale * s + shift)``; the coefficient is above 0 but for a line."""

    coefficient: float
    atom: Atom
    scale: float = 1.0
    shift: float = 0.0

    def inner(self, s: Any) -> Any:
        """The argument of the atom, of an array or an expression."""
        u = s if self.scale == 1.0 else -s if self.scale == -1.0 else self.scale * s
        return u + self.shift if self.shift else u

    def at(self, s: Array, error: Array) -> LossTerms:
        """Value, derivatives and their errors at margins that are wrong by at most ``error`` (n,)."""
        atom, c, scale, u = self.atom, self.coefficient, self.scale, self.inner(s)
        exact = not self.shift and abs(scale) == 1.0
        wrong = error if exact else abs(scale) * error + 2 * UNIT * (np.abs(u) + abs(self.shift))
        phi, first, second = atom.at(u)
        near = np.asarray(atom.largest_near(u, wrong)) * (1 + 1e-9)
        off = wrong * near + UNIT * (atom.absolute + atom.relative * np.abs(first))
        if math.isinf(atom.concordance):
            least, largest = atom.curvatures(u - wrong, u + wrong)
            bent = largest - least
        else:
            bent = wrong * (atom.concordance * near) + UNIT * (atom.flat + 8 * second)
        if c == 1.0 and exact:
            return LossTerms(phi, _times(scale, first), second, off, bent)
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

    @property
    def kinks(self) -> tuple[float, ...]:
        """Margins at which the curvature jumps."""
        return tuple((u - part.shift) / part.scale for part in self.parts for u in part.atom.kinks)

    @property
    def ends(self) -> tuple[float, float]:
        """Limits of the slope far to the left and far to the right."""
        left = right = 0.0
        for part in self.parts:
            slopes = sorted(part.coefficient * part.scale * end for end in part.atom.ends)
            left, right = left + slopes[0], right + slopes[1]
        return left, right

    def value(self, s: Array) -> Array:
        """phi(s)."""
        return self._summed(s, lambda part, u: _times(part.coefficient, part.atom.value(u)))

    def slope(self, s: Array) -> Array:
        """phi'(s)."""
        return self._summed(s, lambda part, u: _times(part.coefficient * part.scale, part.atom.slope(u)))

    def curvature(self, s: Array) -> Array:
        """phi''(s)."""
        return self._summed(
            s, lambda part, u: _times(part.coefficient * part.scale**2, part.atom.curvature(u))
        )

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
        if not self.parts:
            raise ValueError("a loss has at least one part")
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
        """Units of roundoff of a computed slope over ``|s| <= margin_bound`` whose margin is exact."""
        units = 0.0
        for part in self.parts:
            reach = abs(part.scale) * margin_bound + abs(part.shift)
            own = part.atom.absolute
            if part.atom.relative:
                own += part.atom.relative * Curve((Part(1.0, part.atom),)).largest_slope(reach)
            units += abs(part.coefficient * part.scale) * own
        return units

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

    def descent(self, tilt: Array, total: Array) -> Array:
        """``-phi'(s)`` from ``tilt = exp(-s)`` and ``total = 1 + tilt``, as batches have both."""
        if self == LOGISTIC:
            return np.asarray(tilt / total)
        return tilt if self == EXPONENTIAL else -self.slope(-np.log(tilt))

    def declared(self, s: Any) -> Any:
        """Phi of a CVXPY expression, elementwise."""
        phis = [(part.coefficient, part.atom.declared(part.inner(s))) for part in self.parts]
        return sum(phi if c == 1.0 else c * phi for c, phi in phis)

    def _summed(self, s: Array, of: Callable[[Part, Array], Array]) -> Array:
        own = [of(part, part.inner(s)) for part in self.parts]
        return reduce(np.add, own) if own else np.zeros_like(s)


#: ``log(1 + exp(-s))``.
LOGISTIC = Curve((Part(1.0, atom("logistic"), -1.0),))
#: ``exp(-s)``.
EXPONENTIAL = Curve((Part(1.0, atom("exp"), -1.0),))
#: ``s^2``.
SQUARE = Curve((Part(1.0, atom("square")),))


def _times(factor: float, values: Array) -> Array:
    return values if factor == 1.0 else -values if factor == -1.0 else factor * values
