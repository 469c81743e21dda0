"""Profiles of Gaussian noise: Theorems 2 and 16 and one delta for several steps, against
quadrature.
"""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dp2erm_cvx import Domain
from dp2erm_cvx.calibration import (
    MarginCalibration,
    Noise,
    Objective,
    calibrate,
    margin_delta,
    margin_divergence,
    privacy_loss,
    renyi_epsilon,
)
from dp2erm_cvx.calibration.objective import private_ratio
from dp2erm_cvx.calibration.profiles import LossLaw, gaussian_delta, joint_delta, joint_relief
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.curves.suprema import Saturation
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import RuleStudy, make_plan
from dp2erm_cvx.privacy import Budget, Neighboring, StabilityBound
from dp2erm_cvx.steps.calibrators import calibrator
from tests.helpers import BOUNDED_INFLUENCE
from tests.plan.check import margin_delta_at


def half_normal_delta(s, epsilon):
    """The expectation for p = 1 in closed form, 40 digits."""
    with mpmath.workdps(40):
        s, epsilon = mpmath.mpf(s), mpmath.mpf(epsilon)
        start = max(epsilon / s - s / 2, mpmath.mpf(0))
        root = mpmath.sqrt(2)
        tail = mpmath.erfc(start / root)
        tilted = mpmath.exp(epsilon) * mpmath.erfc((start + s) / root)
        return float(tail - tilted)


@pytest.mark.parametrize("s", [1e-8, 1e-3, 0.1, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("left", [-2.0, 0.0, 0.01, 1.0, 30.0])
@pytest.mark.parametrize("cells", [4, 64, 512])
def test_bound_is_above_the_closed_form_on_every_grid(s, left, cells):
    exact = half_normal_delta(s, left)
    bound = float(gaussian_delta(s, left, 1, cells))
    assert bound >= min(exact, 1.0)
    if cells == 512:
        assert bound <= exact * 1.001 + 1e-304


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("epsilon", [1e-6, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1 / 400, 0.5, 0.999])
@pytest.mark.parametrize("p", [1, 20, 1000, None])
def test_the_inverse_returns_the_private_end(epsilon, delta, p):
    """Of Theorem 2 at p parameters, and of Theorem 16."""
    s = float(private_ratio(epsilon, p, delta))
    one, other = (
        gaussian_delta(x, epsilon, p) if p else margin_delta(x, epsilon) for x in (s, 1.00001 * s)
    )
    assert 0 < float(one) <= delta < float(other)


def least_delta(s, epsilon, K):
    """The bound of Theorem 16 at its best x without K, in 30 digits; a grid finds nothing
    better.
    """
    with mpmath.workdps(30):
        result = margin_delta_at(mpmath.mpf(s), mpmath.mpf(epsilon), mpmath.mpf(K))
        x = y = mpmath.mpf(0)
        for _ in range(60):  # the derivative vanishes where e^x - 1 is the mean excess beyond t
            x = mpmath.log1p(y)
            t = epsilon + x - y
            c = (t - mpmath.mpf(s) ** 2 / 2) / s
            y = result(x, 0) * mpmath.exp(x) / mpmath.erfc(max(c, 0) / mpmath.sqrt(2))
        best = result(x, K)
        high = mpmath.sqrt(2 * epsilon) * mpmath.mpf("0.7")
        assert K or best <= min(result(high * k / 40, K) for k in range(41)) * (
            1 + mpmath.mpf("1e-20")
        )
        return float(best)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("s", "epsilon", "K"),
    [
        (1e-6, 1e-5, 0),
        (0.1, 0.5, 0),
        (0.2, 0.5, 0.4),
        (0.2, 0.5, 0.9),
        (1, 3, 2),
        (5, 30, 0),
        (0.05, 1.5, 0),
    ],
)
def test_the_profile_is_above_the_least_bound_and_near_it(s, epsilon, K):
    exact, result = least_delta(s, epsilon, K), float(margin_delta(s, epsilon, K))
    assert exact <= result * (1 + 1e-12)
    assert result <= min(exact * 1.001 + 1e-305, 1.0)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    ("s", "J", "K"), [(0.1, 0.05, 0.0), (0.3, 0.0, 0.4), (1.0, 0.0, 0.2), (2.0, 0.0, 9.0)]
)
def test_the_curve_is_above_its_integrals_and_near_them(s, J, K):
    for order in (1.0078125, 30.0):
        a = order - 1

        def moment(level, a=a):
            return mpmath.quad(
                lambda z: 2 * mpmath.npdf(z) * mpmath.exp(a * max(s * z + s * s / 2, level)),
                [0, max((level - s * s / 2) / s, 0), a * s + 1, a * s + 12, a * s + 40],
            )

        with mpmath.workdps(20):
            exact = float(J + mpmath.log((moment(K) + moment(0)) / 2) / a)
        result = float(margin_divergence(order, s, J, K))
        assert exact <= result + 1e-12
        assert result == pytest.approx(exact, rel=1e-6)


# exact densities: one coefficient, weights of a randomized trial, which move with a flip
N, ODDS, EPSILON, DELTA = 16, 3.0, 1.0, 1e-3
W_MAX = N * ODDS / (ODDS + N - 1)
BOUND = StabilityBound(2 * W_MAX, "a trial", (), frozenset(Neighboring), W_MAX)
SLOPE = 0.5
SHAPED = Saturation(BOUNDED_INFLUENCE["1 - u"][0](SLOPE, 1.0), 1.0)
LOSSES = {
    "extremal": LossConstants(
        1, SLOPE, 1.0, 0.0, None, 1.0, SLOPE, is_margin=True, saturation=SHAPED
    ),
    "huber": LossConstants(1, 2 * SLOPE, 2.0, 0.0, None, 1.0, 2 * SLOPE, is_margin=True),
    # log(1 + exp(-s)), whose gradients at one theta lie in an interval of length 1: Theorem 2
    "logistic": LossConstants(1, 0.5, 0.25, 0.0, None, 1.0),
}


def derivatives(name, s):
    if name == "huber":
        return 2 * np.clip(s, -SLOPE, SLOPE), 2.0 * (np.abs(s) <= SLOPE)
    if name == "logistic":
        return -special.expit(-s), special.expit(s) * special.expit(-s)
    tilt = np.exp(-np.abs(s) / SLOPE)
    return SLOPE * np.sign(s) * (1 - tilt), tilt


def density(name, data, theta, calibration):
    arm, x, z = data
    f = np.where(arm == 1, ODDS, 1.0)
    w = N * f / f.sum()
    slope, curvature = derivatives(name, np.outer(theta, x) - (0.0 if name == "logistic" else z))
    force = (slope * x) @ w + N * calibration.gamma * theta
    steepness = (curvature * x**2) @ w + N * calibration.gamma
    return stats.norm(scale=calibration.scale).pdf(force) * steepness


def divergence(name, calibration):
    """Largest delta at EPSILON over pairs, both directions."""
    rng = np.random.default_rng(5)
    reach = np.arcsinh((12 * calibration.scale + 2 * N) / (N * calibration.gamma))
    theta = np.sinh(np.linspace(-reach, reach, 2001))
    worst = 0.0
    for k in range(30):
        arm = (rng.random(N - 1) < rng.choice([0.0, 0.5, 1.0])).astype(int)
        common = arm, rng.choice([-1.0, 0.0, 1.0], N - 1) * (k % 2), rng.normal(size=N - 1)
        densities = []
        for side in (1.0, -1.0):
            x = rng.choice([-1.0, 0.0, 1.0]) if name == "logistic" else 1.0
            own = rng.integers(2), x, side * rng.choice([0.3, 1.0, 100.0])
            data = [np.append(rest, one) for rest, one in zip(common, own, strict=True)]
            densities.append(density(name, data, theta, calibration))
        for p, q in (densities, densities[::-1]):
            worst = max(worst, np.trapezoid(np.maximum(p - math.exp(EPSILON) * q, 0.0), theta))
    return worst


def calibrated(name, bound=BOUND):
    split = 0.8 if name == "logistic" else None
    objective = Objective(bound, LOSSES[name], N)
    return calibrator("sharp").calibrate(objective, Budget(EPSILON, DELTA), "gaussian", split)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", LOSSES)
def test_the_guarantee_holds_and_less_noise_breaks_it(name):
    result = calibrated(name)
    assert 0.05 * DELTA < divergence(name, result) <= DELTA
    less = 2.2 if name == "huber" else 1.6  # of a fifth of epsilon for a Jacobian that hardly moves
    for wrong in (
        replace(result, scale=result.scale / less),
        replace(result, gamma=result.gamma / 1000),
        calibrated(name, replace(BOUND, V=BOUND.V / math.sqrt(N))),
    ):
        assert divergence(name, wrong) > DELTA


def test_the_whole_epsilon_buys_noise_where_the_loss_saturates():
    result, loss = calibrated("extremal"), LOSSES["extremal"]
    assert isinstance(result, MarginCalibration)
    assert result.theorem.startswith("Theorem 16")
    assert privacy_loss(result, loss, N, EPSILON) <= DELTA
    assert privacy_loss(replace(result, scale=result.scale / 1.001), loss, N, EPSILON) > DELTA
    assert privacy_loss(replace(result, gamma=result.gamma / 1.2), loss, N, EPSILON) > DELTA
    split = calibrate(
        Objective(BOUND, loss, N), Budget(EPSILON, DELTA), noise="gaussian", split=0.9
    )
    assert split.scale > 1.05 * result.scale
    # several releases by the curve cost less than by epsilon and delta, one costs more
    curve = result.curve()
    assert renyi_epsilon(curve.orders, curve.divergences, DELTA) > EPSILON
    many = curve.plus(*[curve] * 15)
    assert renyi_epsilon(many.orders, many.divergences, 16 * DELTA) < 0.9 * 16 * EPSILON


def test_the_smaller_of_two_theorems_is_taken():
    wide = LossConstants(10, 1.0, 0.5, 0.0, 1.0, 1.0, gradient_bound=1.6, is_margin=True)
    objective = Objective(BOUND, wide, 400)
    budget = Budget(0.5, 1 / 400)
    result = calibrate(objective, budget, noise=Noise.GAUSSIAN, split=0.8)
    plain = replace(objective, loss=replace(wide, is_margin=False))
    other = calibrate(plain, budget, noise=Noise.GAUSSIAN, split=0.8)
    assert (result.theorem[:10], other.theorem[:10]) == ("Theorem 16", "Theorem 2 ")
    assert result.scale < 0.9 * other.scale
    for one in (result, other):
        assert privacy_loss(one, wide, 400, 0.5) <= 1 / 400
    few = replace(objective, loss=replace(wide, n_parameters=1))
    assert calibrate(few, budget, noise=Noise.GAUSSIAN, split=0.8).theorem.startswith("Theorem 2 ")
    silent = replace(objective, loss=replace(wide, gradient_bound=None))
    with pytest.raises(DeclarationError, match="gradient_bound"):
        calibrate(silent, budget, noise=Noise.GAUSSIAN, split=0.8)


def excess(law, t):
    """``E(X - t)_+`` for every t, X the loss of one step, by the partial moments of a normal
    variable.
    """

    def plain(t):
        s = law.ratio
        c = (t - s * s / 2) / s
        beyond = s * (stats.norm.pdf(c) - c * stats.norm.sf(c))
        if not law.folded:
            return beyond
        return np.where(c > 0, 2 * beyond, s * (math.sqrt(2 / math.pi) - c))

    level = np.maximum(t, law.curvature)
    return 0.5 * (plain(t) + level - t + plain(level)) if law.curvature else plain(t)


def by_quadrature(first, second, epsilon):
    z = np.linspace(-10, 10, 20_001)
    losses = first.ratio * (np.abs(z) if first.folded else z) + first.ratio**2 / 2
    best = 1.0
    for x in np.linspace(0.0, 1.0, 41):
        t = epsilon + x + 1 - math.exp(x)
        inner = excess(second, t - losses)
        if first.curvature:
            inner = 0.5 * (inner + excess(second, t - np.maximum(losses, first.curvature)))
        best = min(best, math.exp(-x) * np.trapezoid(stats.norm.pdf(z) * inner, z))
    return best


@pytest.mark.parametrize(
    ("first", "second"),
    [(LossLaw(0.2, 0.3), LossLaw(0.25, 0.4)), (LossLaw(0.3, folded=False), LossLaw(0.2, 0.5))],
    ids=["two objectives", "a number and an objective"],
)
def test_the_joint_delta_of_two_steps_is_that_of_quadrature(first, second):
    reference = by_quadrature(first, second, 1.0)
    result = joint_delta([first, second], 1.0)
    assert reference * (1 - 1e-3) <= result <= 1.03 * reference


def test_the_joint_delta_of_one_law_is_that_of_its_theorem():
    # the last ones have a delta of 2e-18, far below the roundoff of epsilon
    for law in (
        LossLaw(0.3),
        LossLaw(0.3, 0.9),
        LossLaw(1.5, 0.2),
        LossLaw(0.12),
        LossLaw(0.12, 0.5),
    ):
        alone = float(margin_delta(law.ratio, 1.0, law.curvature))
        assert 0.999 * alone <= joint_delta([law], 1.0) <= 1.05 * alone


def test_joint_relief_is_the_largest_that_keeps_delta():
    laws = [LossLaw(0.1, 0.28), LossLaw(0.05, 0.14), LossLaw(0.15, 0.5)]
    relief = joint_relief(laws, Budget(1.0, 1e-5))
    assert relief > 1.2
    assert joint_delta([law.relieved(relief) for law in laws], 1.0) <= 1e-5
    assert joint_delta([law.relieved(1.001 * relief) for law in laws], 1.0) > 1e-5
    # nothing to gain: beyond the budget already, no delta, numbers alone
    assert joint_relief([LossLaw(1.0), LossLaw(1.0)], Budget(1.0, 1e-5)) == 1.0
    assert joint_relief(laws, Budget(1.0)) == 1.0
    assert joint_relief([LossLaw(0.1, folded=False)] * 2, Budget(1.0, 1e-5)) == 1.0


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("arithmetic", ["assumed", "counted"])
def test_a_plan_of_gaussian_steps_has_less_noise(arithmetic):
    budget, universe = Budget(1.0, 1e-5), Universe(Domain(1.5, 4.0), 2000, 30)
    plan = make_plan(RuleStudy(universe, budget, 1.0, noise="gaussian", arithmetic=arithmetic))
    assert plan.guarantee == budget
    assert plan.joint
    assert "one delta for all" in plan.theorem
    assert plan.counted is (arithmetic == "counted")
    assert plan.certified_by_design
    laws = [step.loss_law for step in plan.steps]
    assert joint_delta(laws, 1.0) <= 1e-5
    assert joint_delta([replace(law, ratio=1.02 * law.ratio) for law in laws], 1.0) > 1e-5
    for step in plan.steps:
        # what a step states by itself is true as well
        result = step.calibration
        alone = float(margin_delta(step.loss_law.ratio, result.epsilon, result.curvature))
        assert 0.9 * result.delta <= alone <= result.delta
    assert plan.curve is not None
