"""The noise has the law the theorems ask for."""

import random

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.mechanism import draw, simulate


def calibration_of(noise, p, scale=2.5):
    return Calibration(
        noise=noise,
        scale=scale,
        gamma=0.1,
        split=0.5,
        n_parameters=p,
        V=2.0,
        sensitivity=2.0,
        epsilon=1.0,
        delta=0.0,
        theorem="a test",
    )


def sample(kind, calibration, size):
    if kind == "simulate":
        return simulate(calibration, size, np.random.default_rng(5))
    return np.array([draw(calibration, seed=seed) for seed in range(size)])


def p_value(values, law):
    return stats.kstest(values, law.cdf).pvalue


@pytest.mark.parametrize("kind", ["draw", "simulate"])
@pytest.mark.parametrize("p", [1, 3, 12])
def test_gamma_radius(kind, p):
    b = sample(kind, calibration_of(Noise.GAMMA, p), 3000)
    assert b.shape == (3000, p)
    radius = np.linalg.norm(b, axis=1)
    assert p_value(radius, stats.gamma(p, scale=2.5)) > 1e-3
    # the same test tells a wrong shape or half the scale apart
    assert p_value(radius, stats.gamma(p + 1, scale=2.5)) < 1e-6
    assert p_value(radius, stats.gamma(p, scale=1.25)) < 1e-6


@pytest.mark.parametrize("kind", ["draw", "simulate"])
def test_gamma_direction_is_uniform_and_independent_of_the_radius(kind):
    b = sample(kind, calibration_of(Noise.GAMMA, 3), 3000)
    radius = np.linalg.norm(b, axis=1)
    direction = b / radius[:, None]
    turned = direction @ np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    # on the sphere in three dimensions every projection is uniform on [-1, 1]
    for column in (*direction.T, *turned.T):
        assert p_value(column, stats.uniform(-1, 2)) > 1e-3
        assert stats.spearmanr(column, radius).pvalue > 1e-3


@pytest.mark.parametrize("kind", ["draw", "simulate"])
def test_gamma_noise_in_one_dimension_is_laplace(kind):
    b = sample(kind, calibration_of(Noise.GAMMA, 1), 3000)[:, 0]
    assert p_value(b, stats.laplace(scale=2.5)) > 1e-3


@pytest.mark.parametrize("kind", ["draw", "simulate"])
def test_gaussian_coordinates(kind):
    b = sample(kind, calibration_of(Noise.GAUSSIAN, 3), 3000)
    for column in b.T:
        assert p_value(column, stats.norm(scale=2.5)) > 1e-3
    assert p_value(np.sum(b**2, axis=1) / 2.5**2, stats.chi2(3)) > 1e-3


@pytest.mark.parametrize("noise", Noise)
def test_expected_noise(noise):
    calibration = calibration_of(noise, 7)
    norms = np.linalg.norm(simulate(calibration, 40_000, np.random.default_rng(1)), axis=1)
    assert norms.mean() == pytest.approx(calibration.expected_noise, rel=0.01)


@pytest.mark.parametrize("noise", Noise)
def test_releases_do_not_depend_on_any_seedable_generator(noise):
    calibration = calibration_of(noise, 4)
    draws = []
    for _ in range(20):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        draws.append(tuple(draw(calibration)))
    assert len(set(draws)) == 20
    assert len({coordinate for vector in draws for coordinate in vector}) == 80


@pytest.mark.parametrize("noise", Noise)
def test_seed_repeats_the_draw(noise):
    calibration = calibration_of(noise, 4)
    assert np.array_equal(draw(calibration, seed=3), draw(calibration, seed=3))
    assert not np.array_equal(draw(calibration, seed=3), draw(calibration, seed=4))


@pytest.mark.parametrize("noise", Noise)
def test_operating_system_noise_has_the_right_size(noise):
    calibration = calibration_of(noise, 50)
    norms = [np.linalg.norm(draw(calibration)) for _ in range(400)]
    # 400 norms: their mean is within 10 % except with probability far below 1e-20
    assert np.mean(norms) == pytest.approx(calibration.expected_noise, rel=0.1)
