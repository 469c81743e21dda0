"""Atoms: convex functions of one number, with the few facts that everything about a loss follows from."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.public import public_size


class Atom(abc.ABC):
    """A convex function of one number u; all methods work elementwise on arrays.

    Attributes
    ----------
    ends : limits of the slope far to the left and far to the right
    concordance : c with ``|phi'''| <= c phi''``; ``inf`` where the curvature jumps
    absolute, relative : a computed slope is off by ``absolute + relative |slope|`` units of roundoff
    flat : a computed curvature is off by ``flat + 8 phi''`` units of roundoff
    rises : whether the curvature rises with u; else it is even, and does not rise with ``|u|``
    """

    ends: tuple[float, float]
    concordance: float
    absolute: ClassVar[float] = 0.0
    relative: ClassVar[float] = 4.0
    flat: ClassVar[float] = 0.0
    rises: ClassVar[bool] = False

    @property
    def kinks(self) -> tuple[float, ...]:
        """Arguments at which the curvature jumps."""
        return ()

    @property
    def bend(self) -> float:
        """Ratio c with ``|phi'''| <= c phi''`` between kinks."""
        return 0.0 if self.kinks else self.concordance

    @abc.abstractmethod
    def value(self, u: Array) -> Array:
        """phi(u)."""

    @abc.abstractmethod
    def slope(self, u: Array) -> Array:
        """phi'(u), a monotone function."""

    @abc.abstractmethod
    def curvature(self, u: Array) -> Array:
        """phi''(u)."""

    def curvatures(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Least and largest curvature over every cell ``[low, high]``."""
        if self.rises:
            return self.curvature(low), self.curvature(high)
        far = np.maximum(np.abs(low), np.abs(high))
        near = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
        return self.curvature(far), self.curvature(near)

    def largest_near(self, u: Array, distance: Array) -> Array:
        """Bound on the curvature within ``distance`` of u."""
        return self.curvatures(u - distance, u + distance)[1]

    def at(self, u: Array) -> tuple[Array, Array, Array]:
        """Value, slope and curvature, which may share exponentials."""
        return self.value(u), self.slope(u), self.curvature(u)

    @abc.abstractmethod
    def declared(self, u: Any) -> Any:
        """The function of a CVXPY expression."""


@dataclass(frozen=True)
class Line(Atom):
    """u itself."""

    ends = (1.0, 1.0)
    concordance = 0.0
    relative = 0.0

    def value(self, u: Array) -> Array:
        return u

    def slope(self, u: Array) -> Array:
        return np.ones_like(u)

    def curvature(self, u: Array) -> Array:
        return np.zeros_like(u)

    def declared(self, u: Any) -> Any:
        return u


@dataclass(frozen=True)
class Square(Atom):
    """u^2."""

    ends = (-math.inf, math.inf)
    concordance = 0.0
    relative = 0.0

    def value(self, u: Array) -> Array:
        return u * u

    def slope(self, u: Array) -> Array:
        return 2.0 * u

    def curvature(self, u: Array) -> Array:
        return np.full_like(u, 2.0)

    def declared(self, u: Any) -> Any:
        return cp.square(u)


@dataclass(frozen=True)
class Exponential(Atom):
    """exp(u)."""

    ends = (0.0, math.inf)
    concordance = 1.0
    rises = True

    def value(self, u: Array) -> Array:
        with np.errstate(over="ignore"):
            grown: Array = np.exp(u)
        return grown

    def slope(self, u: Array) -> Array:
        return self.value(u)

    def curvature(self, u: Array) -> Array:
        return self.value(u)

    def largest_near(self, u: Array, distance: Array) -> Array:
        return self.value(u + distance)

    def at(self, u: Array) -> tuple[Array, Array, Array]:
        found = self.value(u)
        return found, found, found

    def declared(self, u: Any) -> Any:
        return cp.exp(u)


@dataclass(frozen=True)
class Logistic(Atom):
    """log(1 + exp(u))."""

    ends = (0.0, 1.0)
    concordance = 1.0
    # through tanh the error of a slope is absolute
    absolute = 2.0
    relative = 0.0
    flat = 8.0

    def value(self, u: Array) -> Array:
        return np.log1p(np.exp(-np.abs(u))) + np.maximum(u, 0.0)

    def slope(self, u: Array) -> Array:
        # scipy's expit costs several times as much per element
        half: Array = 0.5 * np.tanh(0.5 * u)
        return 0.5 + half

    def curvature(self, u: Array) -> Array:
        p = self.slope(u)
        return p * (1 - p)

    def largest_near(self, u: Array, distance: Array) -> Array:
        return np.broadcast_to(0.25, np.shape(u))

    def at(self, u: Array) -> tuple[Array, Array, Array]:
        tilt = np.exp(-np.abs(u))
        rare = tilt / (1 + tilt)  # the probability of the less likely sign
        value = np.log1p(tilt) + np.maximum(u, 0.0)
        return value, np.where(u < 0, rare, 1 - rare), rare * (1 - rare)

    def declared(self, u: Any) -> Any:
        return cp.logistic(u)


@dataclass(frozen=True)
class Huber(Atom):
    """``u^2`` up to ``threshold``, ``2 threshold |u| - threshold^2`` beyond (Huber 1964)."""

    threshold: float = 1.0
    concordance = math.inf
    relative = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", public_size("threshold", self.threshold))

    @property
    def kinks(self) -> tuple[float, ...]:
        """The threshold on either side."""
        return -self.threshold, self.threshold

    @property
    def ends(self) -> tuple[float, float]:  # type: ignore[override]
        """Twice the threshold on either side."""
        return -2 * self.threshold, 2 * self.threshold

    def value(self, u: Array) -> Array:
        inner: Array = np.clip(u, -self.threshold, self.threshold)
        value: Array = inner * (2 * u - inner)
        return value

    def slope(self, u: Array) -> Array:
        slope: Array = 2 * np.clip(u, -self.threshold, self.threshold)
        return slope

    def curvature(self, u: Array) -> Array:
        return 2.0 * (np.abs(u) <= self.threshold).astype(np.float64)

    def curvatures(self, low: Array, high: Array) -> tuple[Array, Array]:
        k = self.threshold
        inside = (low > -k) & (high < k)
        touched = (low <= k) & (high >= -k)
        return 2.0 * inside.astype(np.float64), 2.0 * touched.astype(np.float64)

    def declared(self, u: Any) -> Any:
        return cp.huber(u, self.threshold)


@dataclass(frozen=True)
class SquaredHinge(Atom):
    """``max(u, 0)^2``."""

    ends = (0.0, math.inf)
    concordance = math.inf
    relative = 0.0
    kinks = (0.0,)

    def value(self, u: Array) -> Array:
        return np.square(np.maximum(u, 0.0))

    def slope(self, u: Array) -> Array:
        return 2.0 * np.maximum(u, 0.0)

    def curvature(self, u: Array) -> Array:
        return 2.0 * (u > 0).astype(np.float64)

    def curvatures(self, low: Array, high: Array) -> tuple[Array, Array]:
        return 2.0 * (low > 0).astype(np.float64), 2.0 * (high >= 0).astype(np.float64)

    def declared(self, u: Any) -> Any:
        return cp.square(cp.pos(u))


@dataclass(frozen=True)
class Saturating(Atom):
    """``S |u| + S^2 (exp(-|u| / S) - 1)``: no loss of the same slope needs less of a ridge (Theorem 15).

    ``full_slope`` S, a positive size, is the largest ``|phi'|``: beyond a few S a residual pulls no more.
    """

    full_slope: float
    # expm1 to within 4 units in the last place, and what the quotient and the product round
    relative = 10.0
    flat = 16.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "full_slope", public_size("full_slope", self.full_slope))

    @property
    def concordance(self) -> float:  # type: ignore[override]
        """1/S."""
        return 1.0 / self.full_slope

    @property
    def ends(self) -> tuple[float, float]:  # type: ignore[override]
        """S on either side."""
        return -self.full_slope, self.full_slope

    def value(self, u: Array) -> Array:
        t, S = np.abs(u) / self.full_slope, self.full_slope
        value: Array = S * (S * (t + np.expm1(-t)))
        return value

    def slope(self, u: Array) -> Array:
        return np.copysign(self.full_slope * -np.expm1(-np.abs(u) / self.full_slope), u)

    def curvature(self, u: Array) -> Array:
        curvature: Array = np.exp(-np.abs(u) / self.full_slope)
        return curvature

    def at(self, u: Array) -> tuple[Array, Array, Array]:
        S, t = self.full_slope, np.abs(u) / self.full_slope
        fallen = np.expm1(-t)
        return S * (S * (t + fallen)), np.copysign(S * -fallen, u), 1.0 + fallen

    def declared(self, u: Any) -> Any:
        return bounded_influence(u, self.full_slope)


def bounded_influence(u: Any, slope: float) -> Any:
    """``slope |u| + slope^2 (exp(-|u| / slope) - 1)``, elementwise and convex, as a CVXPY expression.

    It is ``u^2 / 2`` near 0, and its derivative stays below ``slope`` in size (:class:`Saturating`).
    """
    return _bounded_influence()(u, slope)


@cache
def _bounded_influence() -> Any:
    # made when a problem is written: CVXPY is imported by whoever does that
    from cvxpy.atoms.elementwise.elementwise import Elementwise
    from cvxpy.constraints.exponential import ExpCone
    from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS

    class BoundedInfluence(Elementwise):  # type: ignore[misc]
        """CVXPY atom of a :class:`Saturating` loss."""

        def __init__(self, u: Any, slope: float) -> None:
            self.atom = Saturating(slope)
            super().__init__(u)

        def get_data(self) -> list[float]:
            return [self.atom.full_slope]

        def numeric(self, values: Any) -> Any:
            return self.atom.value(np.asarray(values[0], dtype=np.float64))

        def sign_from_args(self) -> tuple[bool, bool]:
            return True, False

        def is_atom_convex(self) -> bool:
            return True

        def is_atom_concave(self) -> bool:
            return False

        def is_incr(self, index: int) -> bool:
            return bool(self.args[index].is_nonneg())

        def is_decr(self, index: int) -> bool:
            return bool(self.args[index].is_nonpos())

        def _grad(self, values: Any) -> list[Any]:
            slopes = self.atom.slope(np.asarray(values[0], dtype=np.float64))
            return [Elementwise.elemwise_grad_to_diag(slopes, self.args[0].size, self.size)]

    def canonical(e: Any, args: Any, **context: Any) -> tuple[Any, list[Any]]:
        # S^2 min (v + exp(-v) - 1) over v >= |u| / S, where it increases with v
        S, shape = e.atom.full_slope, e.shape
        v, falls = cp.Variable(shape), cp.Variable(shape)
        cone = ExpCone(-v, cp.Constant(np.ones(shape)), falls)
        return S**2 * (v + falls - 1), [cone, args[0] <= S * v, -args[0] <= S * v]

    CANON_METHODS[BoundedInfluence] = canonical
    return BoundedInfluence
