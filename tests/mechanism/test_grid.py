"""Discrete Laplace noise on a grid: its law, its guarantee, and inputs that OpenDP would accept."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.calibration.numbers import GridNoise, calibrate_grid
from dp2erm_cvx.errors import CalibrationError, CertificateError, DeclarationError
from dp2erm_cvx.mechanism import exact, perturb_on_grid

SEEDS = [None, 1]
HUGE = sys.float_info.max


def grid_noise(p, scale, exponent, shift=1.0):
    """Noise at the epsilon that its scale pays for."""
    return GridNoise(shift, exponent, scale, (shift + p * 2.0**exponent) / scale * (1 + 1e-9), p)


def steps(values, exponent):
    """The values in grid steps, exactly."""
    found = [Fraction(float(value)) / Fraction(2) ** exponent for value in values]
    assert all(step.denominator == 1 for step in found)
    return np.array([int(step) for step in found])


def fit(noise_in_steps, rate):
    """P-value of the chi-square test against P(k) = tanh(rate / 2) exp(-rate |k|)."""
    edge = math.ceil(3 / rate)
    inner = np.arange(-edge, edge + 1)
    law = math.tanh(rate / 2) * np.exp(-rate * np.abs(inner))
    tail = (1 - law.sum()) / 2
    expected = np.array([tail, *law, tail]) * noise_in_steps.size
    clipped = np.clip(noise_in_steps, -edge - 1, edge + 1)
    observed = np.bincount(clipped + edge + 1, minlength=expected.size)
    assert expected.min() > 5
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("exponent", [-30, 0, 5])
@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_law_on_the_grid(seed, exponent, rate):
    size = 4000
    noise = grid_noise(size, 2.0**exponent / rate, exponent)
    k = steps(perturb_on_grid(np.full(size, 3 * 2.0**exponent), noise, seed=seed), exponent) - 3
    # the operating system's bits differ each time, so a false alarm must be as good as impossible
    assert fit(k, rate) > 1e-11
    assert fit(k, 2 * rate) < 1e-12
    assert fit(np.abs(k), rate) < 1e-12
    assert fit(k[: size // 2] * 2, rate) < 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_values_are_rounded_to_the_nearest_point(seed):
    # so little noise that a draw other than 0 has probability exp(-200)
    noise = grid_noise(5, 1 / 200, 0)
    assert list(perturb_on_grid([0.3, -1.7, 2.51, 1e15 + 0.25, -0.49], noise, seed=seed)) == [
        0,
        -2,
        3,
        1e15,
        0,
    ]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shift", [1e-270, 1e-9, 1.0, 1e270])
@pytest.mark.parametrize("p", [1, 2, 60])
def test_calibrated_noise_is_confirmed_and_on_the_grid(seed, shift, p):
    for epsilon in (1e-6, 0.01, 1.0, 3.7):
        noise = calibrate_grid(shift, p, epsilon)
        result = perturb_on_grid(np.zeros(p), noise, seed=seed)
        assert result.shape == (p,)
        assert result.dtype == np.float64
        steps(result, noise.exponent)


@pytest.mark.parametrize("seed", SEEDS)
def test_root_mean_square_is_what_the_noise_expects(seed):
    noise = calibrate_grid(1e-6, 4000, 0.5)
    result = perturb_on_grid(np.zeros(4000), noise, seed=seed)
    assert np.linalg.norm(result) == pytest.approx(noise.scale * math.sqrt(2 * 4000), rel=0.15)


def test_seed_repeats_the_noise_and_nothing_else_does():
    noise = calibrate_grid(1.0, 6, 1.0)
    values = np.arange(6.0)
    assert np.array_equal(perturb_on_grid(values, noise, seed=1), perturb_on_grid(values, noise, seed=1))
    results = {tuple(perturb_on_grid(values, noise, seed=seed)) for seed in [*range(20), *[None] * 20]}
    assert len(results) == 40


def test_noise_that_opendp_does_not_confirm_is_refused():
    noise = calibrate_grid(1.0, 3, 1.0)
    for wrong in (
        GridNoise(noise.l1_sensitivity, noise.exponent, noise.scale / 2, noise.epsilon, 3),
        GridNoise(noise.l1_sensitivity, noise.exponent + 4, noise.scale, noise.epsilon, 3),
        GridNoise(noise.l1_sensitivity * 1.1, noise.exponent, noise.scale, noise.epsilon, 3),
        GridNoise(noise.l1_sensitivity, noise.exponent, noise.scale, noise.epsilon * 0.99, 3),
    ):
        with pytest.raises(CalibrationError, match="does not confirm epsilon"):
            perturb_on_grid(np.zeros(3), wrong)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("hostile", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(seed, hostile):
    with pytest.raises(CertificateError, match="not finite"):
        perturb_on_grid([0.0, hostile], calibrate_grid(1.0, 2, 1.0), seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("values", [[], [0.0], np.zeros(3), np.zeros((1, 2)), 0.0])
def test_wrong_length_is_refused(seed, values):
    with pytest.raises(DeclarationError, match=r"the noise is for \(2,\)"):
        perturb_on_grid(values, calibrate_grid(1.0, 2, 1.0), seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shift", [1e-280, 1e-6, 1e270])
def test_hostile_values_give_finite_results(seed, shift):
    values = np.array([1e290, -1e290, HUGE, -HUGE, 5e-324, 0.0])
    noise = calibrate_grid(shift, 6, 0.01)
    result = perturb_on_grid(values, noise, seed=seed)
    assert np.all(np.isfinite(result))
    # beyond 2^53 scales the sum rounds back to the value
    assert result[2] == HUGE
    assert result[3] == -HUGE
    assert np.all(np.abs(result[4:]) < 200 * noise.scale)


@pytest.mark.parametrize("seed", SEEDS)
def test_overflow_becomes_the_largest_double(seed):
    noise = grid_noise(60, 3e307, 1015, shift=1e307)
    results = perturb_on_grid(np.full(60, HUGE), noise, seed=seed)
    assert np.all(np.isfinite(results))
    # half of the sums overflow: none of 60, or all of them, has probability 2^-59
    assert 0 < np.sum(results == HUGE) < 60
    assert np.all(perturb_on_grid(np.full(60, -HUGE), noise, seed=seed) >= -HUGE)


def test_without_the_extra_only_a_seed_works(monkeypatch):
    monkeypatch.setattr(exact, "find_spec", lambda name: None)
    noise = calibrate_grid(1.0, 2, 1.0)
    with pytest.raises(DeclarationError, match=r"opendp: install dp2erm-cvx\[secure\]"):
        perturb_on_grid([0.0, 1.0], noise)
    assert perturb_on_grid([0.0, 1.0], noise, seed=1).shape == (2,)
