"""The noise has the law the theorems ask for."""

import random

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.mechanism import draw, draw_within, simulate_noise
from tests.mechanism.laws import calibration_of, p_value

KINDS = ["draw", "draw_within", "simulate_noise"]


def sample(kind, calibration, size):
    if kind == "simulate_noise":
        return simulate_noise(calibration, size, np.random.default_rng(5))
    if kind == "draw_within":
        return np.array([draw_within(calibration, 1e-9, seed=seed).value for seed in range(size)])
    return np.array([draw(calibration, seed=seed) for seed in range(size)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 3])
def test_gamma_radius(kind, p):
    b = sample(kind, calibration_of(Noise.GAMMA, p), 2000)
    assert b.shape == (2000, p)
    radius = np.linalg.norm(b, axis=1)
    assert p_value(radius, stats.gamma(p, scale=2.5)) > 1e-3
    # the same test tells a wrong shape or half the scale apart
    assert p_value(radius, stats.gamma(p + 1, scale=2.5)) < 1e-6
    assert p_value(radius, stats.gamma(p, scale=1.25)) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_gamma_direction_is_uniform_and_independent_of_the_radius(kind):
    b = sample(kind, calibration_of(Noise.GAMMA, 3), 2000)
    radius = np.linalg.norm(b, axis=1)
    direction = b / radius[:, None]
    turned = direction @ np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    # on the sphere in three dimensions every projection is uniform on [-1, 1]
    for column in (*direction.T, *turned.T):
        assert p_value(column, stats.uniform(-1, 2)) > 1e-3
        assert stats.spearmanr(column, radius).pvalue > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_gaussian_coordinates(kind):
    b = sample(kind, calibration_of(Noise.GAUSSIAN, 3), 2000)
    for column in b.T:
        assert p_value(column, stats.norm(scale=2.5)) > 1e-3
    assert p_value(np.sum(b**2, axis=1) / 2.5**2, stats.chi2(3)) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 4])
def test_box_noise_is_uniform_in_its_box_with_one_gamma_more(kind, p):
    calibration = calibration_of(Noise.BOX, p)
    inside = sample(kind, calibration, 2000) / np.array(calibration.box)
    sizes = np.abs(inside)
    length = np.max(sizes, axis=1)
    assert np.array_equal(length, calibration.norms(inside * calibration.box))
    # Gamma(p + 1) times the largest of p uniforms is Gamma(p)
    assert p_value(length, stats.gamma(p, scale=2.5)) > 1e-3
    # the law whose length of a uniform point is Gamma(p) itself, and one without the box
    assert p_value(length * stats.beta(p, 1).rvs(2000, random_state=1), stats.gamma(p, scale=2.5)) < 1e-6
    assert p > 1 or p_value(inside[:, 0], stats.laplace(scale=2.5)) > 1e-3
    for k in range(p):
        # P(|b_k| > t m_k) = E (1 - t / rho)_+ for rho ~ Gamma(p + 1)
        t = sizes[:, k] / 2.5
        upper = stats.gamma(p + 1).sf(t) - t / p * stats.gamma(p).sf(t)
        assert p_value(upper, stats.uniform) > 1e-3
        assert stats.binomtest(int(np.sum(inside[:, k] > 0)), 2000).pvalue > 1e-3
        shares = (inside[:, k] / length)[sizes[:, k] < length]
        assert p == 1 or p_value(shares, stats.uniform(-1, 2)) > 1e-3
        assert stats.spearmanr(inside[:, k], length).pvalue > 1e-3


@pytest.mark.parametrize("noise", Noise)
def test_expected_noise(noise):
    calibration = calibration_of(noise, 7)
    b = simulate_noise(calibration, 40_000, np.random.default_rng(1))
    norms = np.linalg.norm(b, axis=1)
    assert norms.mean() == pytest.approx(calibration.expected_noise, rel=0.01)
    drawn = simulate_noise(calibration, 40_000, np.random.default_rng(2))
    np.testing.assert_allclose(np.mean(drawn**2, axis=0), calibration.variances, rtol=0.06)
    assert np.all(norms <= calibration.unit / calibration.scale * calibration.norms(b) * (1 + 1e-12))


ONE = {
    "draw": draw,
    "draw_within": lambda calibration, seed=None: draw_within(calibration, 1e-9, seed=seed).value,
}


@pytest.mark.parametrize("one", ONE.values(), ids=ONE.keys())
@pytest.mark.parametrize("noise", Noise)
def test_without_a_seed_every_bit_is_the_operating_systems(noise, one, monkeypatch):
    def empty(*size):
        raise NotImplementedError("no entropy")

    monkeypatch.setattr(random, "SystemRandom", empty)
    with pytest.raises(NotImplementedError, match="no entropy"):
        one(calibration_of(noise, 4))
    assert np.all(np.isfinite(one(calibration_of(noise, 4), seed=1)))


@pytest.mark.fresh_noise  # among 80 draws of 53 bits two are equal with probability below 1e-12
@pytest.mark.parametrize("one", ONE.values(), ids=ONE.keys())
@pytest.mark.parametrize("noise", Noise)
def test_releases_do_not_depend_on_any_seedable_generator(noise, one):
    calibration = calibration_of(noise, 4)
    draws = []
    for _ in range(20):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        draws.append(tuple(one(calibration)))
    assert len(set(draws)) == 20
    assert len({coordinate for vector in draws for coordinate in vector}) == 80


@pytest.mark.parametrize("one", ONE.values(), ids=ONE.keys())
@pytest.mark.parametrize("noise", Noise)
def test_seed_repeats_the_draw(noise, one):
    calibration = calibration_of(noise, 4)
    assert np.array_equal(one(calibration, seed=3), one(calibration, seed=3))
    assert not np.array_equal(one(calibration, seed=3), one(calibration, seed=4))
