"""Constants of Theorem 3 for inverse probability tilting, whose loss is exponential in one arm's margin.

Rows ``b = e_a (x) g`` and ``c = e_(1-a) (x) g``, ``||g|| <= G`` with all but a constant of norm at most G_x;
the loss of a record is ``exp(-<b, lam>) + <c, lam>``, its log weight ``log(1 + exp(-<b, lam>))``. In units
of G and with ``rho = G ||lam||``: a record of either arm has the gradient ``(-e^u g, g)``, in the order of
its own and the other arm, and two arms' margins u, v satisfy ``u^2 + v^2 <= rho^2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import expit

from dp2erm_cvx.stability.logistic import logistic_diameter
from dp2erm_cvx.stability.one_sided import outward
from dp2erm_cvx.stability.suprema import Array

_CELLS = 4096


def tilting_gradient_diameter(norm_bound: float, varying_bound: float, radius: float) -> float:
    """D_psi: diameter of the gradients of the loss over ``||lam|| <= radius``.

    Of two arms: ``(-e^u g - g', g + e^v g')``, of norm at most ``G sqrt((1 + e^u)^2 + (1 + e^v)^2)``. Of one
    arm: ``g - g'``, at most ``2 G_x`` (``varying_bound``), beside ``e^u g - e^u' g'``.
    """
    rho = norm_bound * radius
    if not rho <= 300.0:
        return math.inf
    apart = _largest_on_circle(lambda u: np.square(1.0 + np.exp(u)), rho)
    within = math.hypot(2.0 * varying_bound, norm_bound * _tilted_diameter(rho))
    return outward(max(norm_bound * math.sqrt(apart), within))


def tilting_log_weight_diameter(norm_bound: float, radius: float) -> float:
    """D_h: diameter of ``{-sigma(-<b, lam>) b}``, within an arm as for a logistic loss."""
    rho = norm_bound * radius
    apart = _largest_on_circle(lambda u: np.square(expit(u)), rho)
    return outward(norm_bound * max(logistic_diameter(rho), math.sqrt(apart)))


def _largest_on_circle(increasing: Callable[[Array], Array], rho: float) -> float:
    """Upper bound of ``f(u) + f(v)`` over ``u^2 + v^2 <= rho^2``, f increasing."""
    angle = np.linspace(0.0, math.pi / 2, _CELLS + 1)
    # over a cell of angles each term takes its larger end
    u, v = rho * np.cos(angle[:-1]), rho * np.sin(angle[1:])
    return float(np.max(increasing(u) + increasing(v)))


@lru_cache(maxsize=256)
def _tilted_diameter(rho: float) -> float:
    """Upper bound on the diameter of ``{e^(rho t) (t, q) : t^2 + q^2 <= 1}``.

    Twice the largest distance from a center (k, 0): ``e^(2 rho t) - 2 k t e^(rho t) + k^2``, for the best k
    of a list; any k is valid. ``t e^(rho t)`` falls up to ``t = -1/rho`` and rises after it.
    """
    t = np.linspace(-1.0, 1.0, _CELLS + 1)
    push = t * np.exp(rho * t)
    least = np.minimum(push[:-1], push[1:])
    if rho >= 1.0:
        turn = int(np.searchsorted(t, -1.0 / rho))
        least[max(turn - 1, 0) : turn + 1] = -math.exp(-1.0) / rho
    squared = np.exp(2.0 * rho * t[1:])
    centers = np.linspace(0.0, math.exp(rho), 257)
    far = [float(np.max(squared - 2.0 * k * least)) + k * k for k in centers]
    return 2.0 * math.sqrt(max(min(far), 0.0))
