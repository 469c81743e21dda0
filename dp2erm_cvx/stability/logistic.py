"""Inverse probability weights with an estimated logistic propensity (Theorem 3-IPW)."""

from __future__ import annotations

import math

from scipy.special import expit

from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import positive_ridge, sample_size
from dp2erm_cvx.stability.logistic_weight import PEAK_AT, PEAK_VALUE, largest_logistic_weight
from dp2erm_cvx.stability.one_sided import largest_minimum, last_true, outward
from dp2erm_cvx.stability.overlap_constant import overlap_constant
from dp2erm_cvx.stability.tilt import EXACT, coupled_variation, stated_bound


def ipw_logistic(
    n: int, covariate_bound: float, ridge: float, radius: float = math.inf, trim: float = math.inf
) -> StabilityBound:
    """Bound for weights from a regularized logistic propensity (Theorem 3-IPW).

    With ``z = (2a - 1) x``, the coefficient minimizes over ``||lam|| <= radius`` the mean of
    ``log(1 + exp(-<z_i, lam>))`` plus ``(ridge / 2) ||lam||^2``, and ``w_i`` is proportional to
    ``min(1 + exp(-<z_i, lam>), trim)`` with sum ``n``.

    Parameters
    ----------
    n
        Number of records, at least 2.
    covariate_bound
        M > 0, ``||x|| <= M`` with any intercept counted, in the units of x.
    ridge
        Strong convexity of the *mean* objective, > 0, in squared units of x.
    radius
        Norm ball of the coefficient, > 0 (``inf``: none), in inverse units of x.
    trim
        Public cap F > 1 of the unnormalized weight (``inf``: none).

    V is bounded in n and of order ``ridge ** -0.5``. Treatment flips are covered. Raises DeclarationError for
    an invalid number and CalibrationError for ``ridge = 0``.
    """
    n = sample_size(n)
    bound = public_number("covariate_bound", covariate_bound, above=0.0)
    ball = public_number("radius", radius, above=0.0, infinite=True)
    cap = public_number("trim", trim, above=1.0, infinite=True)
    # in units where M = 1; a ridge rounded down, even to 0, only enlarges the bound
    mu = min(positive_ridge(ridge) / bound / bound, 1e280)
    margin = min(bound * ball, largest_margin(mu))

    low = 1.0 + math.exp(-margin)
    high = 1.0 + math.exp(min(margin, 700.0))
    w_max = largest_logistic_weight(n, mu, margin, cap)
    if cap <= low:
        law_change = 0.0
    else:
        law_change = logistic_law_change(n, mu, margin, overlap_constant(low, min(high, cap)))
    V = coupled_variation(n, w_max, law_change)
    return stated_bound(n, V, w_max, "Theorem 3-IPW", (f"covariate norm at most {bound:g}", EXACT))


def logistic_radius(covariate_bound: float, ridge: float, radius: float = math.inf) -> float:
    """Bound on ``||lam||`` of a regularized logistic regression on rows of norm at most ``covariate_bound``.

    By the ball or by the ridge, whichever is smaller. Raises DeclarationError, and CalibrationError for
    ``ridge = 0``.
    """
    M = public_number("covariate_bound", covariate_bound, above=0.0)
    ball = public_number("radius", radius, above=0.0, infinite=True)
    return min(ball, largest_margin(min(positive_ridge(ridge) / M / M, 1e280)) / M)


def largest_margin(mu: float) -> float:
    """Bound on ``M ||lam||`` from the ridge alone; ``mu = ridge / M^2``.

    The optimality condition at 0 gives mu m^2 <= max over |s| <= m of s sigma(-s), m the margin.
    """
    if mu == 0.0:
        return math.inf
    if mu * PEAK_AT > expit(-PEAK_AT):
        end = min(PEAK_AT, 0.5 / mu)
        return outward(last_true(lambda m: mu * m <= float(expit(-m)), 0.0, end))
    return outward(math.sqrt(PEAK_VALUE / mu))


def logistic_diameter(margin: float) -> float:
    """``D_psi / M``: diameter bound of ``{sigma(-<z, lam>) z : ||z|| <= M}`` where ``M ||lam|| <= margin``.

    The diameter (in units of M) is the maximum over phi of 2 cos(phi) sigma(margin sin(phi)), whose
    logarithm is concave: the sign change of its derivative brackets the maximizer, and each factor takes
    its larger end.
    """
    if margin > 1e15:
        return 2.0

    def still_rising(phi: float) -> bool:
        return math.tan(phi) <= margin * math.cos(phi) * float(expit(-margin * math.sin(phi)))

    above = last_true(still_rising, 0.0, math.pi / 2)
    below = max(0.0, above - 1e-12)
    return min(2.0, outward(2.0 * math.cos(below) * float(expit(margin * math.sin(above)))))


def logistic_law_change(n: int, mu: float, margin: float, constant: float) -> float:
    """Bound on ``||q - q'||_1``, the laws on the common records: ell of Theorem 3-IPW.

    Maximizes over the movement delta of the coefficient (units of 1/M) the smaller of
    ``2 tanh(D delta / 4)`` and ``sqrt(C (D delta / n - mu delta^2))``, C = ``constant`` n/(n-1). Both
    coefficients lie in the ball, so delta <= 2 margin as well.
    """
    diameter = logistic_diameter(margin)
    inflated = constant * n / (n - 1)
    reach = diameter / n / mu if mu > 0.0 else math.inf
    end = min(reach, 2.0 * margin)
    if not math.isfinite(end) or not math.isfinite(inflated):
        return 2.0 * math.tanh(diameter * end / 4.0)

    def by_range(delta: float) -> float:
        return 2.0 * math.tanh(diameter * delta / 4.0)

    def by_curvature(delta: float) -> float:
        return math.sqrt(inflated * delta * max(0.0, diameter / n - mu * delta))

    return largest_minimum(by_range, by_curvature, reach / 2.0, end)
