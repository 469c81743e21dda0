"""The ridge gamma and the privacy loss of the Jacobian (Theorem 1)."""

from __future__ import annotations

import math

from dp2erm_cvx.privacy import LossConstants

#: Smallest gamma, relative to the bound on trace Hess l. Theorem 1 needs gamma + mu_R > 0 only; the floor
#: also keeps the perturbed objective well conditioned, at a bias no data set of practical size can see.
GAMMA_FLOOR = 1e-8

#: Relative margin that absorbs the rounding of the closed forms; always spent on more noise.
MARGIN = 1e-12

#: exp(this) is the largest Jacobian ratio used; a smaller ratio than allowed is on the safe side.
_LARGEST_EXPONENT = 700.0


def jacobian_loss(V: float, loss: LossConstants, n_samples: int, gamma: float) -> float:
    """``J = p log(1 + lam V / (2 p n (gamma + mu_R)))`` of Theorem 1."""
    p = loss.n_parameters
    curvature = gamma + loss.strong_convexity
    return p * math.log1p(loss.hessian_trace / curvature * (V / (2.0 * p * n_samples)))


def required_gamma(V: float, loss: LossConstants, n_samples: int, epsilon_share: float) -> float:
    """Smallest gamma (rounded up, never below the floor) with ``J <= epsilon_share``.

    ``gamma + mu_R >= lam V / (2 p n (exp(epsilon_share / p) - 1))``, Theorem 1. Infinite where the
    share is too small for floating point.
    """
    p = loss.n_parameters
    growth = math.expm1(min(epsilon_share / p, _LARGEST_EXPONENT))
    if growth <= 0.0:
        return math.inf
    needed = loss.hessian_trace / (2.0 * p * n_samples) * (V / growth) * (1.0 + MARGIN)
    return max(needed - loss.strong_convexity, GAMMA_FLOOR * loss.hessian_trace)
