"""Closed convex sets with a cheap projection, its generalized Jacobian and a CVXPY constraint."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.public import public_size
from dp2erm_cvx.text import Written


class Projectable(abc.ABC):
    """A closed convex set with a projection."""

    @abc.abstractmethod
    def project(self, v: Array) -> Array:
        """Euclidean projection of ``v`` (p,)."""

    @abc.abstractmethod
    def jacobian(self, v: Array) -> Array:
        """A symmetric element (p, p) of the generalized Jacobian of the projection at ``v``."""

    def rounding(self, dimension: int) -> float:
        """Error of a computed projection, in units of roundoff times the norm of what is projected."""
        return 8.0 + 2.0 * dimension


class ConvexSet(Written, Projectable):
    """A choice of Theta: a set of R^p that a second stage may be constrained to."""

    #: Names of the scalar parameters that :meth:`constraints` asks for, in order.
    parameters: tuple[str, ...] = ()

    @abc.abstractmethod
    def norm_bound(self, dimension: int) -> float:
        """Largest Euclidean norm of a point of the set in R^dimension (``inf`` if unbounded)."""

    @abc.abstractmethod
    def constraints(self, v: Any, *bounds: Any) -> dict[str, Any]:
        """Named CVXPY constraints that put the variable ``v`` into the set."""

    def bounds(self) -> dict[str, float]:
        """Values of :attr:`parameters`."""
        return {name: getattr(self, name) for name in self.parameters}


@dataclass(frozen=True)
class WholeSpace(ConvexSet):
    """R^p: no constraint."""

    word = "whole"

    def norm_bound(self, dimension: int) -> float:
        return math.inf

    def project(self, v: Array) -> Array:
        return v

    def jacobian(self, v: Array) -> Array:
        return np.eye(len(v))

    def constraints(self, v: Any, *bounds: Any) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class _Ball(ConvexSet):
    radius: float
    parameters = ("radius",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", public_size("radius", self.radius))

    def norm_bound(self, dimension: int) -> float:
        return self.radius


@dataclass(frozen=True)
class L2Ball(_Ball):
    """``||v||_2 <= radius``."""

    word = "l2"

    def project(self, v: Array) -> Array:
        norm = float(np.linalg.norm(v))
        return v if norm <= self.radius else v * (self.radius / norm)

    def jacobian(self, v: Array) -> Array:
        norm = float(np.linalg.norm(v))
        if norm <= self.radius:
            return np.eye(len(v))
        unit = v / norm
        return (self.radius / norm) * (np.eye(len(v)) - np.outer(unit, unit))

    def constraints(self, v: Any, *bounds: Any) -> dict[str, Any]:
        return {"ball": cp.norm(v, 2) <= bounds[0]}


@dataclass(frozen=True)
class L1Ball(_Ball):
    """``||v||_1 <= radius``."""

    word = "l1"

    def _shrunk(self, v: Array) -> Array:
        """``|v|`` less the soft threshold whose result has l1 norm ``radius`` (Held, Wolfe & Crowder 1974).

        The threshold is stated from the smallest coordinate that stays, so that a point far outside does
        not swallow the radius in rounding.
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
        tangent: Array = np.diag(np.abs(sign)) - np.outer(sign, sign) / max(np.sum(np.abs(sign)), 1.0)
        return tangent

    def constraints(self, v: Any, *bounds: Any) -> dict[str, Any]:
        return {"l1_ball": cp.norm(v, 1) <= bounds[0]}


@dataclass(frozen=True)
class Box(ConvexSet):
    """``|v_k| <= bound`` for every coordinate."""

    bound: float
    parameters = ("bound",)
    word = "box"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", public_size("bound", self.bound))

    def norm_bound(self, dimension: int) -> float:
        return self.bound * math.sqrt(dimension)

    def project(self, v: Array) -> Array:
        return np.clip(v, -self.bound, self.bound)

    def jacobian(self, v: Array) -> Array:
        return np.diag((np.abs(v) <= self.bound).astype(np.float64))

    def constraints(self, v: Any, *bounds: Any) -> dict[str, Any]:
        return {"upper": v <= bounds[0], "lower": v >= -bounds[0]}
