"""Noise on exact integers: its laws, exact and repeatable, and what stays out of the data's reach."""

import math
import sys

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.calibration import (
    IntegerNoise,
    Noise,
    SumLaw,
    calibrate_integers,
    calibrate_sums,
)
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.mechanism import exact, perturb_integers
from dp2erm_cvx.mechanism.exact import _rounded
from dp2erm_cvx.privacy import Budget
from tests.mechanism.laws import STREAMS, forced_uniforms

WAYS = [{}, {"exact": False}, {"seed": 5}]
SIZE = 4000


def probabilities(noise, reach):
    k = np.arange(-reach, reach + 1)
    if noise.noise is Noise.GAMMA:
        return math.tanh(0.5 / noise.scale) * np.exp(-np.abs(k) / noise.scale)
    return stats.norm.cdf((k + 0.5) / noise.scale) - stats.norm.cdf((k - 0.5) / noise.scale)


def fit(drawn, noise):
    """P-value of the chi-square test against the law."""
    reach = math.floor(2 * noise.scale)
    law = probabilities(noise, reach)
    tail = (1 - law.sum()) / 2
    expected = np.array([tail, *law, tail]) * drawn.size
    observed = np.bincount(np.clip(drawn, -reach - 1, reach + 1) + reach + 1, minlength=expected.size)
    assert expected.min() > 5
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Noise.GAMMA, Noise.GAUSSIAN])
@pytest.mark.parametrize("scale", [1.0, 3.3])
def test_law(way, kind, scale):
    noise = IntegerNoise(1, scale, kind, 1.001 / scale, 0.0)
    drawn = np.array(perturb_integers([7] * SIZE, noise, **way)) - 7
    # the operating system's bits differ each time, so a false alarm must be as good as impossible
    assert fit(drawn, noise) > 1e-11
    assert fit(drawn[: SIZE // 2] * 2, noise) < 1e-12
    assert abs(np.corrcoef(drawn[::2], drawn[1::2])[0, 1]) < 0.2


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("scale", [0.3, 40.0, 4.0e12])
def test_the_nearest_integer_is_certain_whatever_the_bits(stream, scale):
    uniforms = forced_uniforms(stream, 2)
    found = _rounded(scale, uniforms)
    with mp.workdps(100):
        first, second = (mp.ldexp(2 * u.prefix + 1, -u.length - 1) for u in uniforms)
        length = scale * mp.sqrt(-2 * mp.log(first))
        ideal = (length * mp.cos(2 * mp.pi * second), length * mp.sin(2 * mp.pi * second))
        assert [int(mp.floor(value + 0.5)) for value in ideal] == list(found)


@pytest.mark.parametrize("kind", list(Noise))
@pytest.mark.parametrize("way", WAYS)
def test_hostile_values_stay_in_range(kind, way):
    noise = calibrate_integers(1, Budget(1.0, 1e-6), kind)
    result = perturb_integers([10**30, -(10**30), 0], noise, **way)
    assert all(isinstance(value, int) for value in result)
    assert abs(result[0] - 2**62) < 10**4
    assert abs(result[1] + 2**62) < 10**4


def test_seeds_repeat_and_nothing_else_does():
    noise = calibrate_integers(10**12, Budget(1.0))
    results = {perturb_integers([0, 0], noise, seed=seed) for seed in [*range(10), *range(10), *[None] * 10]}
    assert len(results) == 20


def test_noise_that_opendp_does_not_confirm_is_refused():
    noise = calibrate_integers(100, Budget(1.0))
    for wrong in (
        IntegerNoise(101, noise.scale, noise.noise, 1.0, 0.0),
        IntegerNoise(100, noise.scale / 2, noise.noise, 1.0, 0.0),
        IntegerNoise(100, noise.scale, noise.noise, 0.99, 0.0),
    ):
        with pytest.raises(CalibrationError, match="does not confirm epsilon"):
            perturb_integers([0], wrong)


@pytest.mark.parametrize(("kind", "package"), [("gamma", "opendp"), ("gaussian", "python-flint")])
def test_without_the_extra(kind, package, monkeypatch):
    monkeypatch.setattr(exact, "find_spec", lambda name: None)
    noise = calibrate_integers(100, Budget(1.0, 1e-6), kind)
    with pytest.raises(DeclarationError, match=package):
        perturb_integers([0], noise)
    assert len(perturb_integers([0, 1], noise, exact=False)) == 2


def test_sums_of_a_score_are_exact():
    noise = calibrate_sums(SumLaw.SCORE, 4.0, 7, Budget(1.0))
    score = [0.3, -1.7, 4.0, -4.0, 3.9999999, 1e-9, 2.0]
    k = [round(value / noise.step) for value in score]
    assert noise.totals(score) == (2 * noise.largest * sum(k), sum(value * value for value in k))
    assert all(isinstance(value, int) for value in noise.totals(score))
    parts = [noise.totals(part) for part in (score[:3], score[3:])]
    assert tuple(map(sum, zip(*parts, strict=True))) == noise.totals(score)
    with pytest.raises(DeclarationError, match=r"shape \(8,\)"):
        noise.totals([*score, 0.0])


def test_hostile_scores_are_clipped_to_public_numbers():
    noise = calibrate_sums(SumLaw.SCORE, 4.0, 5, Budget(1.0))
    hostile = [math.nan, math.inf, -math.inf, sys.float_info.max, 1e300]
    top = noise.largest
    assert noise.totals(hostile) == (2 * top * 2 * top, 4 * top * top)


def test_sums_of_both_arms_and_of_the_treated():
    rng = np.random.default_rng(3)
    treated = rng.integers(0, 2, 50)
    score_1, score_0 = rng.normal(size=(2, 50)) * 3
    budget = Budget(1.0)
    arms = calibrate_sums(SumLaw.ARMS, 4.0, 50, budget, other_bound=0.5)
    k_1, k_0 = [], []
    for one, zero, a in zip(score_1, score_0, treated, strict=True):
        tops = (arms.largest, arms.largest_other)[:: 1 if a else -1]
        first, second = (round(v / arms.step) for v in (one, zero))
        k_1.append(min(max(first, -tops[0]), tops[0]))
        k_0.append(min(max(second, -tops[1]), tops[1]))
    pairs = list(zip(k_1, k_0, strict=True))
    sums = [sum(k_1), sum(k_0), sum((k - j) ** 2 for k, j in pairs), sum((k + j) ** 2 for k, j in pairs)]
    sums.append(sum(k * k - j * j for k, j in pairs))
    expected = tuple(factor * total for factor, total in zip(arms.multipliers, sums, strict=True))
    assert arms.totals(score_1, score_0, treated) == expected

    noise = calibrate_sums(SumLaw.TREATED, 4.0, 50, budget)
    k = [min(max(round(v / noise.step), -noise.largest), noise.largest) for v in score_1]
    signed = sum(value if a else -value for value, a in zip(k, treated, strict=True))
    sums = [sum(k), int(treated.sum()), sum(v * v for v in k), signed]
    expected = tuple(factor * total for factor, total in zip(noise.multipliers, sums, strict=True))
    assert noise.totals(score_1, treated) == expected
    with pytest.raises(DeclarationError, match=r"treated of shape \(49,\)"):
        noise.totals(score_1, treated[1:])
