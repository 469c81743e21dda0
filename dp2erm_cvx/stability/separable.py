"""Weights that are proportional to exp(h) at the minimizer of a separable regularized loss (Theorem 3).

And its constants for inverse probability tilting, whose loss is exponential in one arm's margin.
Rows ``b = e_a (x) g`` and ``c = e_(1-a) (x) g``, ``||g|| <= G`` with all but a constant of norm at most G_x;
the loss of a record is ``exp(-<b, lam>) + <c, lam>``, its log weight ``log(1 + exp(-<b, lam>))``. In units
of G and with ``rho = G ||lam||``: a record of either arm has the gradient ``(-e^u g, g)``, in the order of
its own and the other arm, and two arms' margins u, v satisfy ``u^2 + v^2 <= rho^2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import positive_ridge, sample_size
from dp2erm_cvx.stability.logistic import gradient_diameter
from dp2erm_cvx.stability.one_sided import outward
from dp2erm_cvx.stability.tilt import EXACT, coupled_variation, largest_weight, stated_bound

Array = NDArray[np.float64]


def coefficient_radius(ridge: float, gradient_at_zero: float, radius: float = math.inf) -> float:
    """A bound r on ``||lam||``: ``min(radius, gradient_at_zero / ridge)``, rounded up.

    ``gradient_at_zero`` = L_0 >= 0 bounds ``||mean grad psi(0; d_i)||`` over all datasets. Raises
    DeclarationError, and CalibrationError for ``ridge = 0``.
    """
    ball = public_number("radius", radius, above=0.0, infinite=True)
    pull = public_number("gradient_at_zero", gradient_at_zero, at_least=0.0)
    return min(ball, outward(pull / positive_ridge(ridge)))


@dataclass(frozen=True)
class SeparableConstants:
    """What Theorem 3 asks for, over all records of the domain and all ``||lam|| <= radius``.

    Attributes
    ----------
    gradient_diameter : D_psi >= 0, diameter of the gradients of the loss of one record
    log_weight_diameter : D_h >= 0, diameter of the gradients of its log weight (with the zero vector where it
        is clipped: clipping does not preserve differences)
    log_weight_range : H >= 0, length of the interval that its log weight lies in (``inf``: no bound)
    radius : r > 0, bound on ``||lam||`` on every dataset, for instance from :func:`coefficient_radius`
    """

    gradient_diameter: float
    log_weight_diameter: float
    log_weight_range: float
    radius: float = math.inf


def separable(n: int, ridge: float, constants: SeparableConstants) -> StabilityBound:
    """Bound for any separable scheme (Theorem 3).

    The coefficient minimizes over ``||lam|| <= R`` the mean of ``psi(lam; d_i)``, convex in lam, plus
    ``(ridge / 2) ||lam||^2``, and ``w_i`` is proportional to ``exp(h(lam; d_i))`` with sum ``n``.

    Treatment flips are covered, as any other change of a record inside the domain. Raises DeclarationError
    for an invalid number and CalibrationError for ``ridge = 0``.
    """
    n = sample_size(n)
    D_psi = public_number("gradient_diameter", constants.gradient_diameter, at_least=0.0)
    D_h = public_number("log_weight_diameter", constants.log_weight_diameter, at_least=0.0)
    H = public_number("log_weight_range", constants.log_weight_range, at_least=0.0, infinite=True)
    r = public_number("radius", constants.radius, above=0.0, infinite=True)
    # both coefficients lie in the ball, and h varies by at most H at either of them
    movement = min(D_psi / n / positive_ridge(ridge), 2.0 * r)
    spread = min(D_h * movement if D_h > 0.0 else 0.0, 2.0 * H)
    w_max = largest_weight(n, H)
    return stated_bound(
        n,
        coupled_variation(n, w_max, 2.0 * math.tanh(spread / 4.0)),
        w_max,
        "Theorem 3 (separable schemes)",
        (
            f"gradients of psi in a set of diameter {D_psi:g}, of h in one of diameter {D_h:g}",
            f"log weights in an interval of length {H:g}",
            EXACT,
        ),
    )


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
    return outward(norm_bound * max(gradient_diameter(rho), math.sqrt(apart)))


def _largest_on_circle(increasing: Callable[[Array], Array], rho: float) -> float:
    """Upper bound of ``f(u) + f(v)`` over ``u^2 + v^2 <= rho^2``, f increasing."""
    angle = np.linspace(0.0, math.pi / 2, _CELLS + 1)
    # over a cell of angles each term takes its larger end
    u, v = rho * np.cos(angle[:-1]), rho * np.sin(angle[1:])
    return float(np.max(increasing(u) + increasing(v)))


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
