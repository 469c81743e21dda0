"""The paper's utility theorem and the sharp tail, against exact laws and simulated quadratic programs."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dp2erm_cvx.calibration import Calibration, Noise, PaperUtility, noise_tail, utility_bound
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.mechanism import simulate_noise
from tests.mechanism.laws import box_of

N = 100


def calibration_of(noise=Noise.GAMMA, p=3, scale=5.0, gamma=0.2):
    return Calibration(noise, scale, gamma, 0.5, p, 2.0, 1.0, 1.0, 0.0, "a test", box=box_of(noise, p))


def sharp_tail(excess, n, calibration, theta_norm, rho):
    """The sharp bound needs a noise of this length for the excess, and the law of the length is known."""
    needed = math.sqrt(2 * excess * (rho + 2 * calibration.gamma)) - calibration.gamma * theta_norm
    return noise_tail(calibration, n * needed)


def test_constants_as_printed():
    found = PaperUtility.of(gamma=0.5, theta_norm=3.0, strong_convexity=2.0)
    assert pytest.approx((2 * 2 + 3 * 0.5) / (2 * 2.5**2)) == found.A
    assert pytest.approx(3 * 0.5 * (2 + 1.5) / 2.5**2) == found.B
    assert pytest.approx(2 * 9 * (2 + 1) / 2.5**2 * 0.25) == found.C
    t = 7.0
    root = math.sqrt(found.B**2 + 4 * found.A * (t - found.C))
    assert found.noise_level(t) == pytest.approx(2 * (t - found.C) / (found.B + root))


def test_tails_as_printed():
    constants = PaperUtility.of(0.2, 1.0, 0.5)
    t = 3.0
    level = N * constants.noise_level(t)
    gaussian = constants.tail(t, N, calibration_of(Noise.GAUSSIAN, p=4))
    assert gaussian == pytest.approx(2 * math.exp(-((level - 5 * 2) ** 2) / 50))
    gamma = constants.tail(t, N, calibration_of(p=4))
    assert gamma == pytest.approx(math.e * (6 / math.e) ** 3 * math.exp(-level / 10))
    assert constants.tail(t, N, calibration_of(p=1)) == pytest.approx(math.exp(-level / 10))


positive = st.floats(1e-6, 1e3)


@settings(max_examples=300)
@given(gamma=positive, a=st.floats(0, 1e3), rho=st.one_of(st.just(0.0), positive), above=st.floats(1e-9, 1e6))
def test_noise_level_solves_the_quadratic_and_the_sharp_bound_is_smaller_there(gamma, a, rho, above):
    constants = PaperUtility.of(gamma, a, rho)
    t = constants.C + above
    level = constants.noise_level(t)
    assert constants.A * level**2 + constants.B * level + constants.C == pytest.approx(t, rel=1e-9)
    assert utility_bound(N * level, N, calibration_of(gamma=gamma), a, rho) <= t * (1 + 1e-9)


@settings(max_examples=200)
@given(
    noise=st.sampled_from(Noise),
    p=st.integers(1, 60),
    scale=st.floats(1e-2, 1e2),
    gamma=st.floats(1e-4, 10),
    a=st.floats(0, 10),
    rho=st.sampled_from([0.0, 0.1, 3.0]),
    t=st.floats(0, 1e3),
)
def test_the_sharp_tail_is_never_above_the_printed_one(noise, p, scale, gamma, a, rho, t):
    calibration = calibration_of(noise, p, scale, gamma)
    sharp = sharp_tail(t, N, calibration, a, rho)
    printed = PaperUtility.of(gamma, a, rho).tail(t, N, calibration)
    assert sharp <= printed * (1 + 1e-8) or sharp <= 5e-324
    if noise is Noise.GAUSSIAN:
        level = N * (math.sqrt(2 * t * (rho + 2 * gamma)) - gamma * a)
        without_factor = math.exp(-(max(level / scale - math.sqrt(p), 0.0) ** 2) / 2)
        assert sharp <= without_factor * (1 + 1e-8) + 5e-324


@pytest.mark.parametrize("noise", [Noise.GAMMA, Noise.GAUSSIAN])
@pytest.mark.parametrize("p", [1, 4, 40])
def test_noise_tail_against_the_exact_law(noise, p):
    calibration = calibration_of(noise, p, scale=2.0)
    for level in (0.0, 0.5, 3.0, 10.0, 40.0):
        with mpmath.workdps(30):
            ratio = mpmath.mpf(level) / 2
            exact = (
                mpmath.gammainc(p, ratio, regularized=True)
                if noise is Noise.GAMMA
                else mpmath.gammainc(mpmath.mpf(p) / 2, ratio**2 / 2, regularized=True)
            )
            found = noise_tail(calibration, level)
            assert found >= exact
            assert found == pytest.approx(float(exact), rel=1e-6)
    assert noise_tail(calibration, -3.0) == 1.0
    assert 0 < noise_tail(calibration, 1e200) <= 1e-300


@pytest.mark.parametrize("noise", Noise)
def test_simulated_excess_stays_below_the_sharp_tail_and_comes_near_it(noise):
    # L(theta) = rho ||theta - best||^2 / 2 as one of many objectives with the same constants
    p, rho, gamma = 3, 0.4, 0.05
    calibration = calibration_of(noise, p, scale=4.0, gamma=gamma)
    best = np.array([1.0, -2.0, 0.5])
    size = 20_000
    b = simulate_noise(calibration, size, np.random.default_rng(0))
    private = (rho * best - b / N) / (rho + gamma)
    excess = rho / 2 * np.sum((private - best) ** 2, axis=1)
    norm = float(np.linalg.norm(best))
    for t in np.quantile(excess, [0.5, 0.9, 0.99]):
        seen = np.mean(excess >= t)
        assert stats.binom.sf(np.sum(excess >= t) - 1, size, sharp_tail(t, N, calibration, norm, rho)) > 1e-9
        assert seen <= PaperUtility.of(gamma, norm, rho).tail(t, N, calibration)


def test_the_tail_is_attained_by_the_objective_with_the_worst_kink():
    # rho d^2 / 2 + slope |d| around an optimum of norm 1, the slope at its worst for each draw
    rho, gamma, scale = 0.4, 0.05, 4.0
    b = scale * np.random.default_rng(0).normal(size=20_000)
    distance = (np.abs(b) / N + gamma) / (rho + 2 * gamma)
    worst = rho * distance**2 / 2 + gamma * distance * distance
    line = calibration_of(Noise.GAUSSIAN, 1, scale, gamma)
    for share in (0.5, 0.1, 0.01):
        assert sharp_tail(float(np.quantile(worst, 1 - share)), N, line, 1.0, rho) == pytest.approx(
            share, rel=0.15
        )


def test_below_its_threshold_the_theorem_says_nothing():
    constants = PaperUtility.of(0.2, 3.0, 0.0)
    assert constants.tail(constants.C / 2, N, calibration_of()) == 1.0
    assert constants.noise_level(constants.C) == 0.0
    with pytest.raises(DeclarationError, match="begins at C"):
        constants.noise_level(constants.C / 2)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: PaperUtility.of(0.0, 1.0), "gamma"),
        (lambda: PaperUtility.of(1.0, -1.0), "theta_norm"),
        (lambda: PaperUtility.of(1.0, 1.0, -0.1), "strong_convexity"),
    ],
)
def test_refusals(call, names):
    with pytest.raises(DeclarationError, match=names):
        call()
