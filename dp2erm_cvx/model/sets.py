"""Feasible sets and penalties: convex sets with a projection, public regularizers."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, Array
from dp2erm_cvx.checks import check_settings, public_size, setting
from dp2erm_cvx.display import Written
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.on_demand import cvxpy as cp

#: Margin by which a point is surely inside of a set, whatever rounds.
INSIDE = 1e-6


class ConvexSet(Written, abc.ABC):
    """A choice of Theta: a set of R^p that a second stage may be constrained to."""

    #: Names of the scalar parameters that ``constraints`` asks for, in order.
    parameters: ClassVar[tuple[str, ...]] = ("radius",)
    #: Order of the norm.
    order: ClassVar[Any] = 2
    #: Whether a computed projection is as near to the exact one as ``rounding`` times its own norm:
    #: it is a multiple of what is projected, or a copy of coordinates, and nothing cancels.
    scales: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    @abc.abstractmethod
    def norm_bound(self, dimension: int) -> float:
        """Largest Euclidean norm of a point of the set in R^dimension (``inf`` if unbounded)."""

    @abc.abstractmethod
    def project(self, v: Array) -> Array:
        """Euclidean projection of ``v`` (p,)."""

    @abc.abstractmethod
    def jacobian(self, v: Array) -> Array:
        """A symmetric element (p, p) of the generalized Jacobian of the projection at ``v``."""

    def holds(self, point: Array) -> bool:
        """True if the projection leaves a point (p,) alone."""
        return np.array_equal(self.project(point), point)

    def is_inside(self, point: Array, margin: float = INSIDE) -> bool:
        """True if a point (p,) is inside by a margin, relative to its own size.

        Sets hold the origin: that is so where they hold a point that is longer by the margin.
        """
        return self.holds(point * (1.0 + margin))

    def constraints(self, v: Any, *bounds: Any) -> dict[str, Any]:
        """Named CVXPY constraints that put the variable ``v`` into the set."""
        return {"ball": cp.norm(v, self.order) <= bounds[0]} if bounds else {}

    def rounding(self, dimension: int) -> float:
        """Error of a projection, in units of roundoff times the norm of what is projected."""
        return 8.0 + 2.0 * dimension

    def bounds(self) -> dict[str, float]:
        """Values of :attr:`parameters`."""
        return {name: getattr(self, name) for name in self.parameters}


@dataclass(frozen=True)
class WholeSpace(ConvexSet):
    """R^p: no constraint."""

    parameters = ()
    word = "whole"

    def norm_bound(self, dimension: int) -> float:
        return math.inf

    def project(self, v: Array) -> Array:
        return v

    def jacobian(self, v: Array) -> Array:
        return np.eye(len(v))


@dataclass(frozen=True)
class L2Ball(ConvexSet):
    """``||v||_2 <= radius``."""

    radius: float = setting(check=public_size)
    word = "l2"

    def norm_bound(self, dimension: int) -> float:
        return self.radius

    def project(self, v: Array) -> Array:
        norm = float(np.linalg.norm(v))
        return v if norm <= self.radius else v * (self.radius / norm)

    def jacobian(self, v: Array) -> Array:
        norm = float(np.linalg.norm(v))
        if norm <= self.radius:
            return np.eye(len(v))
        unit = v / norm
        return (self.radius / norm) * (np.eye(len(v)) - np.outer(unit, unit))


@dataclass(frozen=True)
class L1Ball(ConvexSet):
    """``||v||_1 <= radius``."""

    radius: float = setting(check=public_size)
    word = "l1"
    order = 1
    scales = False

    def norm_bound(self, dimension: int) -> float:
        return self.radius

    def _shrunk(self, v: Array) -> Array:
        """The sizes ``|v|`` less the soft threshold whose result has l1 norm ``radius``.

        Held, Wolfe & Crowder (1974).

        The threshold is stated from the smallest coordinate that stays, so that a point far outside
        does not swallow the radius in rounding.
        """
        size = np.sort(np.abs(v))[::-1]
        count = np.arange(1, len(v) + 1)
        above = np.cumsum(size) - size * count
        staying = np.nonzero(above < self.radius)[0]
        if not staying.size:  # v is not finite
            return np.zeros(len(v))
        last = int(staying[-1])
        shrunk: Array = (np.abs(v) - size[last]) + (self.radius - above[last]) / count[last]
        return shrunk

    def project(self, v: Array) -> Array:
        if np.sum(np.abs(v)) <= self.radius:
            return v
        projected: Array = np.sign(v) * np.maximum(self._shrunk(v), 0.0)
        return projected

    def jacobian(self, v: Array) -> Array:
        if np.sum(np.abs(v)) <= self.radius:
            return np.eye(len(v))
        sign = np.sign(v) * (self._shrunk(v) > 0)
        tangent: Array = np.diag(np.abs(sign)) - np.outer(sign, sign) / max(
            np.sum(np.abs(sign)), 1.0
        )
        return tangent


@dataclass(frozen=True)
class Box(ConvexSet):
    """``|v_k| <= bound`` for every coordinate."""

    bound: float = setting(check=public_size)
    parameters = ("bound",)
    word = "box"
    order = np.inf

    def norm_bound(self, dimension: int) -> float:
        return self.bound * math.sqrt(dimension)

    def project(self, v: Array) -> Array:
        return np.clip(v, -self.bound, self.bound)

    def jacobian(self, v: Array) -> Array:
        return np.diag((np.abs(v) <= self.bound).astype(np.float64))


@dataclass(frozen=True, eq=False)
class Simplices:
    """Points with ``v >= floor``, ``v <= cap`` and the sum ``total`` over every group with members.

    ``group`` (n,) numbers the group of every coordinate. Raises InfeasibleError where the cap
    leaves too little room for the total.
    """

    group: NDArray[np.int64]
    total: float
    cap: float = math.inf
    floor: float = 0.0
    scales: ClassVar[bool] = False

    def __post_init__(self) -> None:
        smallest = min(len(members) for members in self.members())
        if smallest * self.cap * ROUND_UP < self.total:
            raise InfeasibleError(
                f"a cap of {self.cap:g} leaves no room for the total of an arm: raise the cap"
            )

    def members(self) -> list[NDArray[np.int64]]:
        """Indices of every group that has members."""
        return [np.flatnonzero(self.group == g) for g in np.unique(self.group)]

    def totals(self) -> Array:
        """Total of group 0 and of group 1; 0 for a group without members."""
        present = np.isin(np.arange(2), self.group)
        return self.total * present.astype(np.float64)

    def project(self, v: Array) -> Array:
        """Euclidean projection of ``v`` (n,)."""
        projected = np.empty_like(v)
        for members in self.members():
            projected[members] = np.clip(v[members] - self._shift(v[members]), self.floor, self.cap)
        return projected

    def _shift(self, v: Array) -> float:
        """The tau with ``sum clip(v - tau, floor, cap) = total``, linear between breakpoints."""
        above = v - self.floor
        breaks = (
            np.sort(above)
            if math.isinf(self.cap)
            else np.sort(np.concatenate([above, v - self.cap]))
        )

        def filled(tau: float) -> float:
            return float(np.sum(np.clip(v - tau, self.floor, self.cap)))

        # filled falls: at breaks[high] it is at most total
        low = -1
        high = len(breaks) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if filled(breaks[middle]) > self.total else (low, middle)
        anchor = float(breaks[high])
        inside = (above >= anchor) & (v - self.cap < anchor)
        count = int(np.sum(inside)) or 1
        # on the stretch just below the anchor exactly the coordinates in ``inside`` move, each with
        # slope -1
        return anchor - (self.total - filled(anchor)) / count

    def free(self, v: Array) -> NDArray[np.bool_]:
        """Mask (n,) of the coordinates of the projection of ``v`` that are at neither end."""
        point = self.project(v)
        inside: NDArray[np.bool_] = (point > self.floor) & (point < self.cap)
        return inside

    def jacobian(self, v: Array) -> Array:
        """As of a :class:`ConvexSet`."""
        jacobian = np.zeros((len(v), len(v)))
        inside = self.free(v)
        for members in self.members():
            free = members[inside[members]]
            if len(free):
                jacobian[free, free] = 1.0
                jacobian[np.ix_(free, free)] -= 1.0 / len(free)
        return jacobian

    def rounding(self, dimension: int) -> float:
        """As of a :class:`ConvexSet`."""
        return 16.0 + 4.0 * math.log2(dimension + 1)


@dataclass(frozen=True)
class ElasticNet:
    """``R(theta) = l1 ||theta||_1 + l2/2 ||theta||_2^2``; both 0 is no regularizer. mu_R = l2."""

    l1: float = setting(0.0, public_size, zero=True)
    l2: float = setting(0.0, public_size, zero=True)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def strong_convexity(self) -> float:
        """mu_R."""
        return self.l2
