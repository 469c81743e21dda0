"""The guarantee of a plan, evaluated again from the theorems in 30 digits."""

import dataclasses

import mpmath
import numpy as np

from dp2erm_cvx import Universe
from dp2erm_cvx.calibration import Perturbed, RenyiCalibration
from dp2erm_cvx.paper import PrintedBound
from dp2erm_cvx.plan import Plan


def exact_gaussian_delta(s, left, p):
    """``E[(1 - exp(left - s chi_p - s^2/2))_+]`` by quadrature, to the digits at work."""
    c = left / s - s / 2
    start = max(c, mpmath.mpf(0))
    log_constant = (mpmath.mpf(p) / 2 - 1) * mpmath.log(2) + mpmath.loggamma(mpmath.mpf(p) / 2)

    # the density lives within a few units of max(start, sqrt(p)), in the tail on a scale of 1 /
    # start
    scale = 1 / (1 + max(start - mpmath.sqrt(p), 0))
    middle = max(start, mpmath.sqrt(p))

    def log_density(x):
        return (p - 1) * mpmath.log(x) - x * x / 2 - log_constant

    # quad stops at an absolute error: bring the integrand to order one
    unit = mpmath.exp(log_density(middle)) * min(1, s * (middle + scale - c))

    def integrand(x):
        density = mpmath.exp(log_density(x)) if x > 0 else 0
        return -mpmath.expm1(-s * (x - c)) * density / unit

    cuts = [middle + k * scale for k in (-8, -3, -1, 0, 1, 3, 8, 16)]
    points = [start, *(cut for cut in cuts if cut > start), cuts[-1] + 24 * scale]
    return unit * mpmath.quad(integrand, points, method="gauss-legendre", maxdegree=5)


def spent_delta(calibration, loss, n, bound, outcome_bound=None):
    """What a calibration spends beyond its epsilon, from the theorem written once more; 0 if
    pure.
    """
    with mpmath.workdps(30):
        V, p = mpmath.mpf(bound.V), loss.n_parameters
        epsilon, scale = mpmath.mpf(calibration.epsilon), mpmath.mpf(calibration.scale)
        if calibration.perturbed is Perturbed.OUTPUT:
            return mpmath.mpf(0) if 2 * mpmath.mpf(outcome_bound) * V / n / scale <= epsilon else 1
        gamma = mpmath.mpf(calibration.gamma)
        if isinstance(calibration, RenyiCalibration):
            return renyi_delta(calibration, loss, n, V)
        curvature = gamma + mpmath.mpf(loss.strong_convexity)
        if calibration.theorem.startswith("Theorem 15"):
            # a u + k (1 - u) is largest at an end
            a = mpmath.mpf(loss.saturation.row_norm) * mpmath.mpf(loss.saturation.slope) / scale
            k = steep(loss.saturation) / (n * curvature)
            return mpmath.mpf(0) if V / 2 * (a + max(a, k)) <= epsilon else 1
        if calibration.theorem.endswith("of a saturating loss"):
            reach = (
                mpmath.mpf(loss.saturation.row_norm) * mpmath.mpf(loss.saturation.slope) * V / scale
            )
            return margin_delta(
                reach, epsilon, mpmath.mpf(loss.saturation.row_norm) ** 2 * V / (n * curvature)
            )
        if calibration.theorem.startswith("Theorem 19"):
            return mpmath.mpf(0) if ball_loss(calibration, loss, n, V) <= epsilon else 1
        left = epsilon - p * mpmath.log1p(
            mpmath.mpf(loss.hessian_trace) * V / (2 * p * n * curvature)
        )
        ratio = mpmath.mpf(loss.gradient_radius) * V / scale
        if calibration.noise.pure:
            return mpmath.mpf(0) if ratio <= left else 1
        if calibration.theorem.startswith("Theorem 16"):
            return margin_delta(mpmath.mpf(loss.gradient_bound) * V / scale, left, 0)
        return exact_gaussian_delta(ratio, left, p)


def steep(result):
    """``-h'(1) kappa M^2``; ``a u + k h(u)`` is then largest at an end, as ``a`` is at least this
    part.
    """
    return result.steepness * mpmath.mpf(result.curvature) * mpmath.mpf(result.row_norm) ** 2


def ball_loss(calibration, loss, n, V):
    """The supremum of Theorem 19 on a grid of angles, which bounds it from below."""
    result = loss.saturation
    a = result.row_norm * result.slope / calibration.scale
    bend = (
        4
        * result.curvature
        * result.row_norm**2
        / (n * (calibration.gamma + loss.strong_convexity))
    )
    angles = np.linspace(-np.pi / 2, np.pi / 2, 801)
    u = 1 / (1 + np.exp(-result.margin_reach * np.sin(angles)))
    inner = np.cos(angles[:, None] + angles)
    apart = np.sqrt(np.maximum(u[:, None] ** 2 + u**2 + 2 * u[:, None] * u * inner, 0.0))
    return mpmath.mpf(float(np.max(a * apart + (bend * u * (1 - u))[:, None]))) * V / 2


def margin_delta_at(s, left, K):
    """The bound of Theorem 16 as a function of x, and of K once more."""

    def excess(level):
        c = (level - s * s / 2) / s
        tail = mpmath.erfc(c / mpmath.sqrt(2)) / 2
        return (
            2 * s * (mpmath.npdf(c) - c * tail) if c > 0 else s * (mpmath.sqrt(2 / mpmath.pi) - c)
        )

    def bound(x, K=K):
        t = left + x + 1 - mpmath.exp(x)
        if t < 0:
            return mpmath.mpf(1)
        return mpmath.exp(-x) * (max(K - t, 0) + excess(max(K, t)) + excess(t)) / 2

    return bound


def margin_delta(s, left, K):
    """The same at about its best x."""
    bound = margin_delta_at(s, left, K)
    middle = width = mpmath.sqrt(left)
    for _ in range(8):  # a search on finer and finer grids
        middle = min((middle + width * k / 10 for k in range(-10, 11)), key=bound)
        width /= 5
    return bound(middle)


def renyi_delta(calibration, loss, n, V):
    """The best conversion of Theorem 7 over a grid of orders around the one that was used."""
    M, Z = mpmath.mpf(loss.covariate_bound), mpmath.mpf(loss.response_bound)
    gamma, scale = mpmath.mpf(calibration.gamma), mpmath.mpf(calibration.scale)
    epsilon = mpmath.mpf(calibration.epsilon)
    tau = M * M * V / (n * gamma)
    S = V * (M * M * Z / mpmath.sqrt(2 * gamma) + 2 * M * Z)
    best = mpmath.mpf(1)
    for factor in np.linspace(0.9, 1.1, 21):
        alpha = 1 + (mpmath.mpf(calibration.order) - 1) * mpmath.mpf(float(factor))
        k = alpha - 1
        h = alpha - k * (1 + tau) ** 2
        if h <= 0:
            continue
        cost = alpha * S**2 / (2 * scale**2 * h) + 2 * (
            -mpmath.log(1 + tau) - mpmath.log(h) / (2 * k)
        )
        # epsilon = D + log(k / alpha) - (log delta + log alpha) / k, solved for delta
        best = min(
            best, mpmath.exp(k * (cost + mpmath.log(k / alpha) - epsilon) - mpmath.log(alpha))
        )
    return best


def check(plan: Plan, stage, n, domain, budget):
    parts = [(plan.main.calibration, plan.main.loss, plan.bound)]
    if (first := plan.step("propensity")) is not None:
        ones = dataclasses.replace(plan.bound, V=2.0)
        parts.append((first.calibration, stage.loss_constants(Universe(domain, 100, 2)), ones))
    # sums of doubles: exactly, so that no rounding hides an excess
    spent = mpmath.fsum(mpmath.mpf(calibration.epsilon) for calibration, _, _ in parts)
    assert spent <= budget.epsilon
    allowed = mpmath.fsum(mpmath.mpf(calibration.delta) for calibration, _, _ in parts)
    assert allowed <= budget.delta
    for calibration, loss, bound in parts:
        V = bound
        if isinstance(bound, PrintedBound):
            V = dataclasses.replace(bound, V=calibration.V)
        assert spent_delta(calibration, loss, n, V, domain.outcome_bound) <= calibration.delta
    assert spent <= plan.guarantee.epsilon <= budget.epsilon
    assert allowed <= plan.guarantee.delta <= budget.delta
    assert plan.main.calibration.theorem in plan.theorem
