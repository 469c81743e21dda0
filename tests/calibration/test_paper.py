"""The paper's formulas and its utility theorem, where they hold and where they are refused."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates import PaperUtility, noise_tail
from scipy import stats

from dp2erm_cvx.calibration import Calibration, Noise, Objective, calibrate, calibrate_paper, utility_bound
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget, LossConstants
from tests.helpers import bound_of
from tests.mechanism.laws import box_of

LOSS = LossConstants(5, 6.0, 2.0, 0.0, 1.0, 1.0, gradient_bound=9.0)
#: A loss without curvature: the Jacobian costs nothing.
FLAT = LossConstants(1, 1.0, 1e-9, 0.0, 1.0, 1.0, gradient_bound=1.0)


def stated(W1, W2=None):
    return bound_of(W1, W1=W1, W2=W1 if W2 is None else W2)


def printed(W1, epsilon, delta, p, corrected=False):
    """sigma per unit of zeta, written once more."""
    root = math.sqrt(math.log(1 / delta))
    L = math.sqrt((math.sqrt(p) + root) ** 2 + root**2)
    return W1 / epsilon * (L + math.sqrt(L * L + (epsilon if corrected else epsilon / W1)))


@pytest.mark.parametrize("p", [1, 20])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_noise_is_the_stated_formula(p, epsilon):
    objective = Objective(stated(7.0), dataclasses.replace(LOSS, n_parameters=p), 400)
    budget = Budget(epsilon, 1e-4)
    for corrected, part in ((False, "(ii), as printed"), (True, "(ii), corrected")):
        result = calibrate_paper(objective, budget, noise="gaussian", corrected=corrected)
        assert result.scale == pytest.approx(9.0 * printed(7.0, epsilon, 1e-4, p, corrected), rel=1e-9)
        assert result.private
        assert result.delta == 1e-4
        assert result.theorem.endswith(part)
    assert calibrate_paper(objective, budget).scale == pytest.approx(9.0 * 7.0 * 2 / epsilon, rel=1e-9)


def test_printed_gaussian_is_refused_where_it_is_not_private():
    budget = Budget(200.0, 1 / 400)
    objective = Objective(stated(800.0, 566.0), FLAT, 400)
    with pytest.raises(CalibrationError, match="not certified at epsilon = 200") as caught:
        calibrate_paper(objective, budget, noise="gaussian")
    assert "\n" not in str(caught.value)
    marked = calibrate_paper(objective, budget, noise="gaussian", unsound_ok=True)
    assert not marked.private
    # a fixed shift of the whole W1 breaks the declared delta at this sigma, and not the stated one
    s = 800 / marked.scale
    loss = stats.norm.sf(200 / s - s / 2) - math.exp(200 + stats.norm.logsf(200 / s + s / 2))
    assert budget.delta < loss <= marked.delta
    # the corrected noise is private there
    corrected = calibrate_paper(objective, budget, noise="gaussian", corrected=True)
    assert corrected.private
    assert corrected.scale > marked.scale


N_RECORDS = 100


@pytest.mark.parametrize("strong_convexity", [0.0, 0.7])
def test_bound_is_attained(strong_convexity):
    loss = LossConstants(1, 5.0, 2.0, 0.0, 2.0, 1.0)
    calibration = calibrate(Objective(bound_of(3.0), loss, N_RECORDS), Budget(2.0))
    gamma, rho, b = calibration.gamma, strong_convexity, 40.0
    # Minimize L(t) = rho (t - 1)^2 / 2 + slope |t - 1| with optimum 1; the perturbed minimizer is pulled to
    # t, and the largest linear excess for that pull has slope = b/n + gamma - (rho + gamma) d at distance d.
    pull = b / N_RECORDS + gamma
    distance = pull / (rho + 2 * gamma)
    slope = pull - (rho + gamma) * distance
    assert slope >= 0
    excess = rho * distance**2 / 2 + slope * distance
    grid = np.linspace(1 - 3 * distance, 2, 400_001)
    objective = (
        rho * (grid - 1) ** 2 / 2 + slope * np.abs(grid - 1) + gamma * grid**2 / 2 + b * grid / N_RECORDS
    )
    assert grid[np.argmin(objective)] == pytest.approx(1 - distance, abs=1e-3 * distance)
    assert utility_bound(b, N_RECORDS, calibration, 1.0, rho) == pytest.approx(excess, rel=1e-9)


def calibration_of(noise=Noise.GAMMA, p=3, scale=5.0, gamma=0.2):
    return Calibration(noise, scale, gamma, 0.5, p, 2.0, 1.0, 1.0, 0.0, "a test", box=box_of(noise, p))


def sharp_tail(excess, n, calibration, theta_norm, rho):
    """The sharp bound needs a noise of this length for the excess, and the law of the length is known."""
    needed = math.sqrt(2 * excess * (rho + 2 * calibration.gamma)) - calibration.gamma * theta_norm
    return noise_tail(calibration, n * needed)


def test_constants_and_tails_as_printed():
    g, a, rho, t = 0.5, 3.0, 2.0, 7.0
    result = PaperUtility.of(g, a, rho)
    assert pytest.approx((2 * rho + 3 * g) / (2 * (rho + g) ** 2)) == result.A
    assert pytest.approx(a * g * (rho + 3 * g) / (rho + g) ** 2) == result.B
    assert pytest.approx(2 * a**2 * (rho + 2 * g) / (rho + g) ** 2 * g**2) == result.C
    level = N_RECORDS * result.noise_level(t)
    for law, p, scale, expected in (
        (Noise.GAUSSIAN, 4, 50.0, 2 * math.exp(-((level - 50 * 2) ** 2) / (2 * 50**2))),
        (Noise.GAMMA, 4, 10.0, math.e * (6 / math.e) ** 3 * math.exp(-level / 20)),
        (Noise.GAMMA, 1, 10.0, math.exp(-level / 20)),
    ):
        assert result.tail(t, N_RECORDS, calibration_of(law, p, scale)) == pytest.approx(expected)


positive = st.floats(1e-6, 1e3)


@settings(max_examples=300)
@given(gamma=positive, a=st.floats(0, 1e3), rho=st.one_of(st.just(0.0), positive), above=st.floats(1e-9, 1e6))
def test_noise_level_solves_the_quadratic_and_the_sharp_bound_is_smaller_there(gamma, a, rho, above):
    constants = PaperUtility.of(gamma, a, rho)
    t = constants.C + above
    level = constants.noise_level(t)
    assert constants.A * level**2 + constants.B * level + constants.C == pytest.approx(t, rel=1e-9)
    assert utility_bound(N_RECORDS * level, N_RECORDS, calibration_of(gamma=gamma), a, rho) <= t * (1 + 1e-9)


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
    sharp = sharp_tail(t, N_RECORDS, calibration, a, rho)
    printed = PaperUtility.of(gamma, a, rho).tail(t, N_RECORDS, calibration)
    assert sharp <= printed * (1 + 1e-8) or sharp <= 5e-324
    if noise is Noise.GAUSSIAN:
        level = N_RECORDS * (math.sqrt(2 * t * (rho + 2 * gamma)) - gamma * a)
        without_factor = math.exp(-(max(level / scale - math.sqrt(p), 0.0) ** 2) / 2)
        assert sharp <= without_factor * (1 + 1e-8) + 5e-324


@pytest.mark.parametrize("noise", [Noise.GAMMA, Noise.GAUSSIAN])
@pytest.mark.parametrize("p", [1, 4, 40])
def test_noise_tail_against_the_exact_law(noise, p):
    calibration = calibration_of(noise, p, scale=2.0)
    for level in (0.0, 0.5, 3.0, 10.0, 40.0):
        with mpmath.workdps(30):
            ratio = mpmath.mpf(level) / 2
            shape = (p, ratio) if noise is Noise.GAMMA else (mpmath.mpf(p) / 2, ratio**2 / 2)
            exact = mpmath.gammainc(*shape, regularized=True)
            result = noise_tail(calibration, level)
            assert result >= exact
            assert result == pytest.approx(float(exact), rel=1e-6)
    assert noise_tail(calibration, -3.0) == 1.0
    assert 0 < noise_tail(calibration, 1e200) <= 1e-300


def test_the_tail_is_attained_by_the_objective_with_the_worst_kink():
    # rho d^2 / 2 + slope |d| around an optimum of norm 1, the slope at its worst for each draw
    rho, gamma, scale = 0.4, 0.05, 4.0
    b = scale * np.random.default_rng(0).normal(size=20_000)
    distance = (np.abs(b) / N_RECORDS + gamma) / (rho + 2 * gamma)
    worst = rho * distance**2 / 2 + gamma * distance * distance
    line = calibration_of(Noise.GAUSSIAN, 1, scale, gamma)
    for share in (0.5, 0.1, 0.01):
        assert sharp_tail(float(np.quantile(worst, 1 - share)), N_RECORDS, line, 1.0, rho) == pytest.approx(
            share, rel=0.15
        )
