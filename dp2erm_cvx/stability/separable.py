"""Weights that are proportional to exp(h) at the minimizer of a separable regularized loss (Theorem 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import positive_ridge, sample_size
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
