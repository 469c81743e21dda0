"""How the curvature of a loss falls where its slope is large (Theorem 15)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class CurvatureShape(enum.StrEnum):
    """h of ``phi'' <= kappa h(|phi'| / S)``, over u in [0, 1] and with h at most 1."""

    LINEAR = "1 - u"
    PARABOLA = "1 - u^2"
    LOGISTIC = "4 u (1 - u)"

    @property
    def steepness(self) -> float:
        """``-h'(1)``: ``a u + k h(u)`` is largest at u = 1 iff a is at least this many k."""
        return {self.LINEAR: 1.0, self.PARABOLA: 2.0, self.LOGISTIC: 4.0}[self]

    def largest(self, a: float, k: float) -> float:
        """``max over 0 <= u <= 1 of a u + k h(u)`` for a, k >= 0."""
        if a >= self.steepness * k:
            return a
        if self is self.LINEAR:
            return k
        if self is self.PARABOLA:
            return k + a * (a / (4.0 * k))
        return (a + 4.0 * k) * ((a + 4.0 * k) / (16.0 * k))

    def beyond(self, u: float) -> float:
        """Largest h on [u, 1]; u in [0, 1]."""
        if self is self.LINEAR:
            return 1.0 - u
        if self is self.PARABOLA:
            return (1.0 - u) * (1.0 + u)
        return 4.0 * max(u, 0.5) * (1.0 - max(u, 0.5))


@dataclass(frozen=True)
class Saturation:
    """A loss ``phi`` of a margin of ``<x, theta>`` that has no curvature where its slope is largest.

    Attributes
    ----------
    slope : S with ``|phi'| <= S``, in units of the loss over those of the margin
    curvature : kappa with ``phi'' <= kappa h(|phi'| / S)``
    row_norm : M with ``||x||_2 <= M`` over the domain, the constant column included
    shape : h
    """

    slope: float
    curvature: float
    row_norm: float
    shape: CurvatureShape
