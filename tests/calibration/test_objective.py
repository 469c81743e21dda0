"""Guarantees of calibrations, evaluated again in mpmath; the default split, predicted errors, the choice."""

import functools
import math
from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from dp2erm_cvx.calibration import (
    Noise,
    Objective,
    calibrate,
    calibrate_ranges,
    calibrator,
    predicted_error,
    privacy_loss,
)
from dp2erm_cvx.calibration.objective import GRID
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget, LossConstants, RowBox
from tests.helpers import bound_of
from tests.plan.check import exact_gaussian_delta, spent_delta


@dataclass(frozen=True)
class Setting:
    """One public declaration; everything that ``calibrate`` sees."""

    V: float
    loss: LossConstants
    n: int
    budget: Budget
    noise: Noise
    split: float | None

    def calibrate(self, V=None):
        bound = bound_of(self.V if V is None else V)
        return calibrate(Objective(bound, self.loss, self.n), self.budget, noise=self.noise, split=self.split)


def random_setting(rng, noise):
    def log_uniform(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    p = int(rng.choice([1, 2, 3, 5, 10, 40, 200, 1000]))
    loss = LossConstants(
        n_parameters=p,
        gradient_radius=log_uniform(1e-3, 1e3),
        hessian_trace=log_uniform(1e-3, 1e3),
        strong_convexity=float(rng.choice([0.0, log_uniform(1e-6, 1e2)])),
        theta_bound=[None, log_uniform(1e-2, 1e2)][rng.integers(2)],
        outcome_bound=log_uniform(1e-2, 1e2),
    )
    # the same radius in either norm
    loss = replace(loss, box=RowBox((1.0,) * p, loss.gradient_radius))
    epsilon = float(rng.choice([1e-6, 100.0, log_uniform(1e-3, 20.0), log_uniform(1e-6, 100.0)]))
    delta = float(rng.choice([1e-300, 0.5, 1 / 400, log_uniform(1e-12, 1e-2), log_uniform(1e-300, 0.5)]))
    n = int(rng.choice([2, 10**7, 400, int(log_uniform(2, 1e7))]))
    split = [None, float(rng.uniform(0.01, 0.99))][rng.integers(2)]
    return Setting(log_uniform(2.0, 1e4), loss, n, Budget(epsilon, delta), noise, split)


def jacobian(setting, gamma):
    """The exponent J of Theorem 1 at the true V."""
    p, loss = setting.loss.n_parameters, setting.loss
    curvature = mpmath.mpf(gamma) + mpmath.mpf(loss.strong_convexity)
    return p * mpmath.log1p(mpmath.mpf(loss.hessian_trace) * setting.V / (2 * p * setting.n * curvature))


def holds(setting, calibration):
    """Whether the calibration keeps the budget, in 30-digit arithmetic."""
    stated = replace(calibration, epsilon=setting.budget.epsilon)
    spent = spent_delta(stated, setting.loss, setting.n, bound_of(setting.V))
    return spent <= (setting.budget.delta if calibration.noise is Noise.GAUSSIAN else 0)


@functools.cache
def settings(noise, count):
    rng = np.random.default_rng(20260212)
    return [random_setting(rng, noise) for _ in range(count)]


@pytest.mark.parametrize(("noise", "count"), [(Noise.GAMMA, 60), (Noise.BOX, 20), (Noise.GAUSSIAN, 15)])
def test_guarantee_holds_in_exact_arithmetic(noise, count):
    for setting in settings(noise, count):
        calibration = setting.calibrate()
        assert math.isfinite(calibration.expected_noise)
        assert holds(setting, calibration), setting
        stated = privacy_loss(calibration, setting.loss, setting.n, calibration.epsilon)
        assert stated <= calibration.delta
        assert calibration.delta == (setting.budget.delta if noise is Noise.GAUSSIAN else 0.0)


def test_gamma_calibration_spends_all_of_epsilon():
    spent = 0
    for setting in settings(Noise.GAMMA, 100):
        calibration = setting.calibrate()
        ratio = setting.loss.gradient_radius * setting.V / calibration.scale
        assert ratio == pytest.approx(calibration.split * setting.budget.epsilon, rel=1e-9)
        if calibration.gamma > 1.001e-8 * setting.loss.hessian_trace:
            share = (1 - calibration.split) * setting.budget.epsilon
            assert float(jacobian(setting, calibration.gamma)) == pytest.approx(share, rel=1e-9)
            spent += 1
    assert spent > 25


def test_gaussian_noise_is_within_half_a_percent_of_the_smallest():
    # the share q epsilon is what the search had; at a floor of gamma the Jacobian may cost less
    with mpmath.workdps(30):
        for setting in settings(Noise.GAUSSIAN, 12):
            calibration = setting.calibrate()
            smaller = mpmath.mpf(calibration.scale) / mpmath.mpf("1.005")
            s = mpmath.mpf(calibration.sensitivity) / smaller
            share = mpmath.mpf(calibration.split) * setting.budget.epsilon
            assert exact_gaussian_delta(s, share, setting.loss.n_parameters) > setting.budget.delta, setting


@pytest.mark.parametrize("noise", Noise)
def test_the_check_catches_planted_bugs(noise):
    loss = LossConstants(4, 14.0, 2.0, 0.0, 2.0, 1.0, box=RowBox((1.0,) * 4, 14.0))
    setting = Setting(5.0, loss, 400, Budget(1.0, 1e-5), noise, 0.7)
    calibration = setting.calibrate()
    assert holds(setting, calibration)
    half = replace(calibration, scale=calibration.scale / 2)
    flat = replace(calibration, gamma=calibration.gamma * 1e-3)
    small = setting.calibrate(V=setting.V / math.sqrt(setting.n))
    for wrong in (half, flat, small):
        assert not holds(setting, wrong)
    # the library's own evaluation sees the first two as well (it takes V from the calibration)
    for wrong in (half, flat):
        assert privacy_loss(wrong, loss, setting.n, 1.0) > calibration.delta


def test_privacy_loss_of_gaussian_noise_bounds_the_exact_expectation_closely():
    loss = LossConstants(3, 14.0, 2.0, 0.1, 2.0, 1.0)
    setting = Setting(5.0, loss, 400, Budget(1.0, 1e-5), Noise.GAUSSIAN, None)
    calibration = setting.calibrate()
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
        stated = replace(calibration, epsilon=epsilon or 1e-30)
        exact = float(spent_delta(stated, loss, 400, bound_of(5.0)))
        assert exact <= privacy_loss(calibration, loss, 400, epsilon) <= exact * 1.003


def test_privacy_loss_of_gamma_noise_below_its_pure_epsilon():
    loss = LossConstants(3, 14.0, 2.0, 0.1, 2.0, 1.0)
    calibration = calibrate(Objective(bound_of(5.0), loss, 400), Budget(1.0))
    delta = privacy_loss(calibration, loss, 400, 0.4)
    assert delta == pytest.approx(1 - math.exp(-0.6), rel=1e-6)
    assert privacy_loss(calibration, loss, 400, 1.0) == 0.0


SPLIT_BOUND = bound_of(6.0)
BOX = RowBox((1.0, 0.5, 0.5, 0.5, 0.2), 7.0)


def predicted(loss, n, calibration):
    """``rho/2`` times the squared distance by the noise and by the pull on a theta of usual size."""
    rho = loss.strong_convexity + loss.hessian_trace / loss.n_parameters
    usual = loss.outcome_bound * math.sqrt(2 / loss.hessian_trace) / 8
    pull = calibration.gamma * min(loss.theta_bound or math.inf, usual)
    return ((calibration.expected_noise / n) ** 2 + pull**2) / (2 * rho)


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("strong_convexity", [0.0, 0.3])
@pytest.mark.parametrize(("n", "epsilon"), [(400, 1.0), (10_000, 0.1), (50, 20.0)])
@pytest.mark.parametrize("size", [0.05, None])
def test_default_is_the_best_share_of_the_grid(noise, strong_convexity, n, epsilon, size):
    loss = LossConstants(5, 10.0, 2.0, strong_convexity, size, 1.0, box=BOX)
    budget = Budget(epsilon, 1e-5)
    chosen = calibrate(Objective(SPLIT_BOUND, loss, n), budget, noise=noise)
    costs = [
        predicted(loss, n, calibrate(Objective(SPLIT_BOUND, loss, n), budget, noise=noise, split=q))
        for q in GRID[::7]
    ]
    # the prediction inside uses a coarser grid of chi_p: equal within a tenth of a percent
    assert predicted(loss, n, chosen) <= min(costs) * 1.001


LOSS = LossConstants(5, 5.0, 2.0, 0.0, 1.0, 1.0, gradient_bound=6.0, covariate_bound=1.0, response_bound=2.0)
BUDGET = Budget(1.0, 1e-4)


@pytest.mark.parametrize("size", [None, 0.05, 7.0])
def test_predicted_error_is_at_least_the_excess_of_a_quadratic_objective(size):
    """``h/2 |theta - t|^2``, its minimizer moved by noise that is orthogonal to t and by the ridge."""
    loss = replace(LOSS, theta_bound=size, strong_convexity=0.1)
    h, t = 0.1 + 2.0 / 5, np.array([min(size or 0.125, 0.125), 0.0])
    for n in (400, 10**8):
        result = calibrate(Objective(bound_of(8.0), loss, n), BUDGET, split=0.6)
        noise = np.array([0.0, result.expected_noise / n])
        theta = (h * t - noise) / (h + result.gamma)
        excess = h / 2 * np.sum((theta - t) ** 2)
        predicted = predicted_error(result, loss, n)
        assert excess * (1 - 1e-12) <= predicted <= excess * (1 + result.gamma / h) ** 2 * (1 + 1e-12)
    assert predicted == pytest.approx(excess, rel=1e-4)


AUTO = calibrator("auto")


def test_an_unbounded_gradient_leaves_theorem_7():
    free = replace(LOSS, gradient_radius=math.inf, theta_bound=None)
    result, reason = AUTO.explained(Objective(bound_of(8.0), free, 400), BUDGET, "gamma")
    assert result == calibrator("renyi").calibrate(Objective(bound_of(8.0), free, 400), BUDGET, "gamma")
    assert reason.startswith("Theorem 7 (Renyi) with V = 8 ")
    assert reason.endswith("the smallest of 1 valid calibrations")
    restricted = Objective(bound_of(8.0), LOSS, 400, restriction="a penalty of its own")
    laws = [calibrate(restricted, BUDGET, noise=noise) for noise in ("gamma", "gaussian")]
    result, reason = AUTO.explained(restricted, BUDGET, "gamma")
    assert result == min(laws, key=lambda one: predicted_error(one, LOSS, 400))
    assert reason.endswith("the smallest of 2 valid calibrations")


def test_nothing_valid_is_an_error_with_every_reason():
    plain = replace(LOSS, gradient_radius=math.inf, theta_bound=None, covariate_bound=None)
    objective = Objective(bound_of(8.0), plain, 400, weights="b")
    with pytest.raises(CalibrationError, match=r"valid: b, sharp-gamma: .*; b, renyi: Theorem 7") as caught:
        AUTO.calibrate(objective, Budget(1.0), "gamma")
    assert "\n" not in str(caught.value)


def test_every_choice_has_its_part_of_epsilon():
    result = calibrate_ranges(10_000, [435, None, 129, 435], Budget(0.3, 1e-6))
    assert result.each == pytest.approx(0.05)
    assert 6 * result.each <= result.epsilon == 0.3
    assert result.delta == 0.0
    assert result.scale == pytest.approx(2 / result.each)
    assert result.levels[1] is None
    assert result.factors[1] == 1.0


@pytest.mark.parametrize(("n", "epsilon"), [(3000, 0.1), (3000, 0.2), (10_000, 0.1), (10**6, 1.0)])
def test_no_candidate_beyond_the_records_is_likely(n, epsilon):
    result = calibrate_ranges(n, [None, 435], Budget(epsilon))
    lead = result.levels[1] * n / result.scale
    assert 435 * math.exp(-lead) <= math.exp(-5) * 1.001
    assert result.levels[1] == 0.25 or 435 * math.exp(-lead) <= math.exp(-8) * 1.001
    assert result.levels[1] >= 0.01
    # a normal column is covered to three standard deviations
    assert result.factors[1] * norm.ppf(1 - result.levels[1]) == pytest.approx(3.0)


@pytest.mark.parametrize("columns", [1, 3, 10])
def test_too_little_epsilon_is_told_with_what_is_needed(columns):
    sizes = [435] * columns
    with pytest.raises(
        CalibrationError, match=r"need an epsilon of ([0-9.e+-]+) at n_samples = 1000"
    ) as told:
        calibrate_ranges(1000, sizes, Budget(1e-3))
    needed = float(str(told.value).split("epsilon of ")[1].split()[0])
    assert calibrate_ranges(1000, sizes, Budget(needed * 1.01)).levels[0] <= 0.25
    with pytest.raises(CalibrationError):
        calibrate_ranges(1000, sizes, Budget(needed * 0.99))
