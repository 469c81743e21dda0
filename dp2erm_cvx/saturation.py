"""How the curvature of a loss falls where its slope is large (Theorems 15 and 19)."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Beyond this margin a ball is as good as none.
FARTHEST = 30.0
_CELLS, _ROUNDS, _MOST_CELLS = 48, 14, 200_000
_CLOSE = 2e-4
_ROUND_UP = 1.0 + 1e-9


class CurvatureShape(enum.StrEnum):
    """h of ``phi'' <= kappa h(|phi'| / S)``, over u in [0, 1] and with h at most 1."""

    LINEAR = "1 - u"
    LOGISTIC = "4 u (1 - u)"

    @property
    def steepness(self) -> float:
        """``-h'(1)``: ``a u + k h(u)`` is largest at u = 1 iff a is at least this many k."""
        return {self.LINEAR: 1.0, self.LOGISTIC: 4.0}[self]

    def largest(self, a: float, k: float) -> float:
        """``max over 0 <= u <= 1 of a u + k h(u)`` for a, k >= 0."""
        if a >= self.steepness * k:
            return a
        if self is self.LINEAR:
            return k
        return (a + 4.0 * k) * ((a + 4.0 * k) / (16.0 * k))

    def beyond(self, u: float) -> float:
        """Largest h on [u, 1]; u in [0, 1]."""
        if self is self.LINEAR:
            return 1.0 - u
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
    ball : rho with ``M ||theta||_2 <= rho`` over Theta, for a loss ``c log(1 + exp(-<x, theta>))``, c at most
        S, alone; the shape is then that of the logistic loss and kappa is S/4 (Theorem 19)
    """

    slope: float
    curvature: float
    row_norm: float
    shape: CurvatureShape
    ball: float = math.inf

    def largest(self, a: float, k: float) -> float:
        """Bound on ``a ||g - g'|| + k h`` over Theta and ordered pairs of records, rounded up in a ball.

        g and g' are their gradients at one theta, in units of M S, and h is that of the first one.
        """
        anywhere = a + self.shape.largest(a, k)
        if not self.ball < FARTHEST:
            return anywhere
        return min(anywhere, _largest(self.ball, lambda apart, bend: a * apart + 4.0 * k * bend))

    @property
    def _top(self) -> float:
        """Largest u over the ball."""
        return 0.5 + 0.5 * math.tanh(0.5 * self.ball)

    @property
    def steepest_slope(self) -> float:
        """Largest ``|phi'|`` over Theta."""
        return self.slope * self._top

    def largest_apart(self, a: float, k: float) -> float:
        """The same with ``u + u'`` in place of ``||g - g'||``, as in any norm where rows have norm 1."""
        top = self._top
        if top == 1.0 or a < 4.0 * k * (2.0 * top - 1.0):
            return a * top + self.shape.largest(a, k)
        return (2.0 * a * top + 4.0 * k * top * (1.0 - top)) * _ROUND_UP

    def steepest_apart(self, total: float, k: float) -> float:
        """An a with ``largest_apart(a, k) <= total``; 0 where none is found."""
        top = self._top
        a = (total / _ROUND_UP**2 - 4.0 * k * top * (1.0 - top)) / (2.0 * top)
        return a if a > 0.0 and self.largest_apart(a, k) <= total else 0.0

    def steepest(self, total: float, k: float) -> float:
        """An a with ``largest(a, k) <= total``, the largest but for rounding; 0 where none is found."""
        share = k / total
        free = 0.5 * (1.0 - 1e-12) if share * self.shape.steepness <= 0.5 else 0.0
        if self.ball < FARTHEST and share < 0.5:
            free = max(free, _steepest(self.ball, share))
        return free * total


@lru_cache(maxsize=256)
def _steepest(ball: float, k: float) -> float:
    inverse = _largest(ball, lambda apart, bend: apart / (1.0 - 4.0 * k * bend))
    # at least half of the sum is a d, and it may be found too large by _CLOSE
    return (1.0 - 3.0 * _CLOSE) / inverse


def _largest(ball: float, value: Callable[[Array, Array], Array]) -> float:
    """Upper bound on ``value(d, u (1 - u))``, increasing in both, over two records and a coefficient.

    With rows z and z' of norm 1 and ``||theta|| = rho`` the margins are ``rho sin t``, ``rho sin t'``, and
    ``d^2 = u^2 + u'^2 + 2 u u' cos(t + t')``, u = sigma(rho sin t): shorter rows and coefficients give less
    (proof on the page of calibrations). Branch and bound over cells of angles: d grows by at most
    ``(1 + rho^2/16)^(1/2)`` per radian of either.
    """
    width = math.pi / (2 * _CELLS)
    ticks = -math.pi / 2 + width * (2 * np.arange(_CELLS) + 1)
    t, s = (grid.ravel() for grid in np.meshgrid(ticks, ticks))
    steep = math.hypot(1.0, ball / 4.0)
    for _ in range(_ROUNDS):
        u, v = _expit(ball * np.sin(t)), _expit(ball * np.sin(s))
        apart = np.sqrt(np.maximum(u * u + v * v + 2.0 * u * v * np.cos(t + s), 0.0))
        low, high = _expit(ball * np.sin(t - width)), _expit(ball * np.sin(t + width))
        flat = np.clip(0.5, low, high)
        bound = value(np.minimum(apart + 2.0 * width * steep, 2.0), flat * (1.0 - flat))
        best = float(np.max(value(apart, u * (1.0 - u))))
        most = float(np.max(bound))
        if most <= best * (1.0 + _CLOSE) or t.size > _MOST_CELLS:
            break
        kept = bound >= best
        width /= 2.0
        t = (t[kept][:, None] + width * np.array([-1.0, -1.0, 1.0, 1.0])).ravel()
        s = (s[kept][:, None] + width * np.array([-1.0, 1.0, -1.0, 1.0])).ravel()
    return most * _ROUND_UP


def _expit(s: Array) -> Array:
    found: Array = 0.5 + 0.5 * np.tanh(0.5 * s)
    return found
