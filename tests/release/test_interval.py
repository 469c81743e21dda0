"""The interval of a private mean: what it covers, how often, and what its parts say."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from dp2erm_cvx.calibration import Noise, SumLaw, calibrate_sums
from dp2erm_cvx.calibration.base import sum_quantile
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.inference.interval import biased_quantile, score_interval
from dp2erm_cvx.inference.nuisances import NuisanceError, residual_deviation
from dp2erm_cvx.privacy import Budget

B = 5.0


def population(name, size, rng):
    """Scores in [-B, B] and their mean."""
    if name == "normal":
        return np.clip(rng.normal(0.5, 1.2, size), -B, B), 0.5
    if name == "two points":  # the largest variance there is
        return np.where(rng.random(size) < 0.6, B, -B), 0.2 * B
    # an effect in a few: skewed
    return np.where(rng.random(size) < 0.1, 4.0, 0.0), 0.4


def releases(noise, scores, rng, second_scale=1.0):
    """The two integers for every row of scores (replicates, n), with noise in floating point."""
    k = np.rint(scores / noise.step)
    first, second = noise.multipliers
    sums = np.stack([first * k.sum(axis=1), second * (k * k).sum(axis=1)], axis=1)
    draw = rng.laplace if noise.noise is Noise.GAMMA else rng.normal
    drawn = draw(scale=noise.scale, size=sums.shape) * [1.0, second_scale]
    return [(int(a), int(b)) for a, b in np.rint(sums + drawn)]


def study(name, n, budget, kind, replicates, seed, second_scale=1.0):
    """Shares of intervals that cover and of standard deviations that are large enough, and the mean
    width.
    """
    rng = np.random.default_rng(seed)
    noise = calibrate_sums(SumLaw.SCORE, B, n, budget, kind)
    covered = enough = 0
    width = 0.0
    for start in range(0, replicates, 100):
        scores, mean = population(name, (min(100, replicates - start), n), rng)
        for row, released in zip(scores, releases(noise, scores, rng, second_scale), strict=True):
            result = score_interval(noise, released, 0.0)
            covered += result.low <= mean <= result.high
            enough += result.standard_deviation >= row.std()
            width += result.high - result.low
    return covered / replicates, enough / replicates, width / replicates


#: The laws of noise on numbers.
LAWS = (Noise.GAMMA, Noise.GAUSSIAN)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", ["normal", "two points", "few"])
@pytest.mark.parametrize(("n", "epsilon", "kind"), [(500, 0.5, LAWS[0]), (10_000, 2.0, LAWS[1])])
def test_interval_covers_the_mean(name, n, epsilon, kind):
    covered, enough, _ = study(name, n, Budget(epsilon, 1e-6), kind, 150, seed=1)
    # three standard errors below 0.95; the bound of the deviation misses 1 in 200 at most
    assert covered >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 150)
    assert enough >= 0.98


def test_second_moment_with_too_much_noise_is_caught():
    """Were its noise twice what is stated, the bound on the deviation would fail too often."""
    assert study("normal", 500, Budget(0.5), Noise.GAMMA, 300, seed=3)[1] >= 0.99
    assert study("normal", 500, Budget(0.5), Noise.GAMMA, 800, seed=3, second_scale=2.0)[1] < 0.98


@pytest.mark.parametrize("kind", LAWS)
def test_each_part_of_the_half_width_is_less_than_all_and_their_sum_more(kind):
    noise = calibrate_sums(SumLaw.SCORE, B, 1000, Budget(1.0, 1e-6), kind)
    second = int(1.5 / noise.units[1])
    result = score_interval(noise, (int(0.5 / noise.units[0]), second), 2.0)
    assert result.estimate == pytest.approx(2.5)
    half = (result.high - result.low) / 2
    assert max(result.noise_half_width, result.sampling_half_width) < half
    assert half < result.noise_half_width + result.sampling_half_width
    wider = score_interval(noise, (0, second), 2.0, level=0.99)
    assert wider.high - wider.low > 2 * half
    assert wider.level == 0.99


@pytest.mark.parametrize("kind", LAWS)
def test_the_standard_deviation_stays_within_zero_and_its_bound(kind):
    noise = calibrate_sums(SumLaw.SCORE, B, 1000, Budget(1.0, 1e-6), kind)
    least = score_interval(noise, (0, -(2**62)), 0.0)
    assert least.standard_deviation == 0.0
    assert least.high == pytest.approx(least.noise_half_width)
    assert score_interval(noise, (0, 2**62), 0.0).standard_deviation == noise.bound
    # misses of noise alone: 0.045 in both tails
    scales = math.log(0.5 / 0.0225) if kind is Noise.GAMMA else 2.00465
    assert least.high == pytest.approx(noise.scales[0] * scales + noise.step / 2, rel=1e-5)


def test_the_standard_deviation_has_the_margins_of_its_theorem():
    """Closed forms of the theorem: alpha' = 0.005, B b log(1/alpha') and b log(2/alpha')."""
    noise = calibrate_sums(SumLaw.SCORE, B, 2000, Budget(1.0))
    b = noise.scales[0]
    released = (int(1.0 / noise.units[0]), int(3.0 / noise.units[1]))
    mean = 1.0 - b * math.log(2 / 0.005)
    expected = math.sqrt(3.0 + 2 * noise.bound * b * math.log(1 / 0.005) - mean**2)
    assert score_interval(noise, released, 0.0).standard_deviation == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("level", [0.4, 1.0, math.nan])
def test_wrong_levels_are_refused(level):
    with pytest.raises(DeclarationError, match="level"):
        score_interval(calibrate_sums(SumLaw.SCORE, B, 100, Budget(1.0)), (0, 0), 0.0, level)


@pytest.mark.parametrize("kind", LAWS)
def test_an_interval_for_the_effect_is_wider_by_no_more_than_the_nuisances_may_harm(kind):
    noise = calibrate_sums(SumLaw.SCORE, B, 2000, Budget(1.0, 1e-6), kind)
    released = (3 * 10**9, 10**12)
    for widening in (1.0, 4.0):
        plain = score_interval(noise, released, 0.1, 0.9, widening)
        sampling = plain.standard_deviation / math.sqrt(noise.n_samples)
        q = (
            sum_quantile(kind, 0.045, sampling, widening * noise.scales[0])
            + widening * noise.step / 2
        )
        assert plain.high - plain.estimate == pytest.approx(q, rel=1e-6)
        halves = [
            score_interval(noise, released, 0.1, 0.9, widening, NuisanceError(*error)).high
            - plain.estimate
            for error in ((0.0, 0.0, 0.0), (0.02, 0.0, 0.0), (0.02, 0.05, 0.0), (0.02, 0.05, 0.05))
        ]
        assert halves == sorted(halves)
        assert halves[1] - halves[0] <= 0.02 < halves[3] - halves[0] + 0.02


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("bias", [0.0, 0.03, 0.5, 3.0])
@pytest.mark.parametrize(("deviation", "scale"), [(0.1, 0.05), (0.1, 1.0), (0.0, 0.2)])
def test_the_quantile_of_a_biased_sum_solves_its_equation(bias, deviation, scale):
    tail = 0.0225
    q = biased_quantile(Noise.GAMMA, tail, bias, deviation, scale)

    def beyond(end):
        """By quadrature over the normal part."""
        if deviation == 0.0:
            return stats.laplace.sf(end, scale=scale)
        ends = np.linspace(-9.0, 9.0, 200_001)
        density = stats.norm.pdf(ends) * stats.laplace.sf(end - deviation * ends, scale=scale)
        return integrate.trapezoid(density, ends)

    assert beyond(q - bias) + beyond(q + bias) == pytest.approx(2 * tail, rel=1e-4)


@pytest.mark.parametrize("sigma", [0.2, 1.0, 2.5])
def test_the_deviation_of_residuals_inverts_that_of_clipped_ones(sigma):
    bound, z = 3.0, np.linspace(-12.0, 12.0, 400_001)
    clipped = integrate.trapezoid(np.minimum((sigma * z) ** 2, bound**2) * stats.norm.pdf(z), z)
    assert residual_deviation(math.sqrt(clipped), bound, 10.0) == pytest.approx(sigma, rel=1e-5)
    assert residual_deviation(1e6, bound, 10.0) == 10.0  # more than a clipped score can have
