"""Models that judge a point by themselves: by a theorem of their own in place of a gradient residual."""

from __future__ import annotations

import abc
from typing import NamedTuple

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite


class PointClaim(NamedTuple):
    """Certificate of a point: bounds on ``||x - x*||_2`` and ``_1``, norms of its residual and rounding."""

    two: float
    one: float
    residual: float
    rounding: float


class JudgedModel(Composite):
    """A model whose variable is the weights (n,), with a certificate and methods of its own."""

    @property
    @abc.abstractmethod
    def half_digits(self) -> bool:
        """True if its certificate loses half of the digits, as at a kink."""

    @property
    def found(self) -> bool:
        """False where the records admit no solution, and weights 1 stand in its place."""
        return True

    @abc.abstractmethod
    def clipped(self, point: Array) -> Array:
        """The nearest point (n,) of the box."""

    @abc.abstractmethod
    def judged(self, point: Array) -> PointClaim:
        """Certificate of the point of the box that is nearest to ``point`` (n,)."""

    @abc.abstractmethod
    def minimized(self, start: Array, limit: int) -> tuple[Array, int]:
        """The point (n,) of the best certificate on the way of Newton's method, and the number of steps."""

    @abc.abstractmethod
    def by_gradient(self, start: Array) -> tuple[Array, int]:
        """A point (n,) of a method of first order, and the number of its steps."""
