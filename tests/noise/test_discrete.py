"""Discrete noise on a grid, on exact integers and among candidates: laws, guarantees, hostile
input.
"""

import itertools
import math
import random
import sys
from dataclasses import replace
from fractions import Fraction
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.calibration import IntegerNoise, Noise, SumLaw, calibrate_sums
from dp2erm_cvx.calibration.numbers import GridNoise, calibrate_grid, calibrate_integers
from dp2erm_cvx.errors import CalibrationError, CertificateError, DeclarationError
from dp2erm_cvx.noise import (
    _rounded,
    perturb_integers,
    perturb_on_grid,
    private_choice,
    quantile_places,
    quantile_scores,
    selection_scale,
)
from dp2erm_cvx.privacy import Budget
from tests.noise.laws import STREAMS, forced_uniforms, permute_and_flip

pytestmark = pytest.mark.fresh_noise  # false alarms have a probability below 1e-10 in all
SEEDS = [None, 1]
HUGE, SIZE = sys.float_info.max, 4000


def grid_noise(p, scale, exponent, shift=1.0):
    """Noise at the epsilon that its scale pays for."""
    return GridNoise(shift, exponent, scale, (shift + p * 2.0**exponent) / scale * (1 + 1e-9), p)


def steps(values, exponent):
    """The values in grid steps, exactly."""
    result = [Fraction(float(value)) / Fraction(2) ** exponent for value in values]
    assert all(step.denominator == 1 for step in result)
    return np.array([int(step) for step in result])


def fit(drawn, scale, reach, kind=Noise.GAMMA):
    """P-value of the chi-square test against P(k) ~ exp(-|k| / scale), or a rounded normal one."""
    k = np.arange(-reach, reach + 1)
    law = math.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)
    if kind is Noise.GAUSSIAN:
        law = stats.norm.cdf((k + 0.5) / scale) - stats.norm.cdf((k - 0.5) / scale)
    tail = (1 - law.sum()) / 2
    expected = np.array([tail, *law, tail]) * drawn.size
    observed = np.bincount(
        np.clip(drawn, -reach - 1, reach + 1) + reach + 1, minlength=expected.size
    )
    assert expected.min() > 5
    return stats.chisquare(observed, expected).pvalue


def on_the_grid(exponent, scale, seed):
    noise = grid_noise(SIZE, scale * 2.0**exponent, exponent)
    return steps(perturb_on_grid(np.full(SIZE, 3 * 2.0**exponent), noise, seed=seed), exponent) - 3


def on_integers(kind, scale, way):
    noise = IntegerNoise(1, scale, kind, 1.001 / scale, 0.0)
    return np.array(perturb_integers([7] * SIZE, noise, **way)) - 7


GAMMA, GAUSSIAN = Noise.GAMMA, Noise.GAUSSIAN
WAYS = [{}, {"exact": False}, {"seed": 5}]
GRIDS = itertools.product((-30, 0, 5), (1.0, 4.0), SEEDS)
LAWS = [
    *((partial(on_the_grid, *case), GAMMA, case[1]) for case in GRIDS),
    *(
        (partial(on_integers, *c), *c[:2])
        for c in itertools.product((GAMMA, GAUSSIAN), (1.0, 3.3), WAYS)
    ),
]


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(("draw", "kind", "scale"), LAWS)
def test_draws_have_the_discrete_law_of_their_scale(draw, kind, scale):
    k, reach = draw(), math.floor(2 * scale)
    # the operating system's bits differ each time, so a false alarm must be as good as impossible
    assert fit(k, scale, reach, kind) > 1e-11
    assert fit(k, scale / 2, math.floor(scale), kind) < 1e-12
    for wrong in (np.abs(k), k[: SIZE // 2] * 2):
        assert fit(wrong, scale, reach, kind) < 1e-12
    assert abs(np.corrcoef(k[::2], k[1::2])[0, 1]) < 0.2


@pytest.mark.parametrize("seed", SEEDS)
def test_values_are_rounded_to_the_nearest_point(seed):
    # so little noise that a draw other than 0 has probability exp(-200)
    result = perturb_on_grid(
        [0.3, -1.7, 2.51, 1e15 + 0.25, -0.49], grid_noise(5, 1 / 200, 0), seed=seed
    )
    assert result.tolist() == [0, -2, 3, 1e15, 0]


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


def test_seeds_repeat_the_noise_and_nothing_else_does():
    grid, whole = calibrate_grid(1.0, 6, 1.0), calibrate_integers(10**12, Budget(1.0))
    for draw in (
        lambda seed: tuple(perturb_on_grid(np.arange(6.0), grid, seed=seed)),
        lambda seed: perturb_integers([0, 0], whole, seed=seed),
    ):
        assert len({draw(seed) for seed in [*range(20), *range(20), *[None] * 20]}) == 40


def test_noise_that_is_not_confirmed_is_refused():
    grid, whole = calibrate_grid(1.0, 3, 1.0), calibrate_integers(100, Budget(1.0))
    for right, draw, wrong in (
        (grid, perturb_on_grid, {"scale": grid.scale / 2}),
        (grid, perturb_on_grid, {"exponent": grid.exponent + 4}),
        (grid, perturb_on_grid, {"l1_sensitivity": grid.l1_sensitivity * 1.1}),
        (grid, perturb_on_grid, {"epsilon": grid.epsilon * 0.99}),
        (whole, perturb_integers, {"sensitivity": 101}),
        (whole, perturb_integers, {"scale": whole.scale / 2}),
        (whole, perturb_integers, {"epsilon": 0.99}),
    ):
        values = np.zeros(3) if right is grid else [0]
        with pytest.raises(CalibrationError, match="does not confirm epsilon"):
            draw(values, replace(right, **wrong))


@pytest.mark.parametrize("seed", SEEDS)
def test_values_that_are_not_finite_or_of_another_length_are_refused(seed):
    noise = calibrate_grid(1.0, 2, 1.0)
    for hostile in (math.nan, math.inf, -math.inf):
        with pytest.raises(CertificateError, match="not finite"):
            perturb_on_grid([0.0, hostile], noise, seed=seed)
    for values in ([], [0.0], np.zeros(3), np.zeros((1, 2)), 0.0):
        with pytest.raises(DeclarationError, match=r"the noise is for \(2,\)"):
            perturb_on_grid(values, noise, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shift", [1e-280, 1e-6, 1e270])
def test_hostile_values_give_finite_results(seed, shift):
    noise = calibrate_grid(shift, 6, 0.01)
    result = perturb_on_grid([1e290, -1e290, HUGE, -HUGE, 5e-324, 0.0], noise, seed=seed)
    assert np.all(np.isfinite(result))
    # beyond 2^53 scales the sum rounds back to the value
    assert result[2:4].tolist() == [HUGE, -HUGE]
    assert np.all(np.abs(result[4:]) < 200 * noise.scale)
    # half of these sums overflow: none of 60, or all of them, has probability 2^-59
    wide = grid_noise(60, 3e307, 1015, shift=1e307)
    for end in (HUGE, -HUGE):
        results = perturb_on_grid(np.full(60, end), wide, seed=seed)
        assert np.all(np.isfinite(results))
        assert 0 < np.sum(results == end) < 60


def test_without_the_extra_only_a_seed_works_or_what_is_not_exact(monkeypatch):
    monkeypatch.setattr("dp2erm_cvx.noise.find_spec", lambda name: None)
    noise = calibrate_grid(1.0, 2, 1.0)
    with pytest.raises(DeclarationError, match=r"opendp: install dp2erm-cvx\[secure\]"):
        perturb_on_grid([0.0, 1.0], noise)
    assert perturb_on_grid([0.0, 1.0], noise, seed=1).shape == (2,)
    for kind, package in (("gamma", "opendp"), ("gaussian", "python-flint")):
        noise = calibrate_integers(100, Budget(1.0, 1e-6), kind)
        with pytest.raises(DeclarationError, match=package):
            perturb_integers([0], noise)
        assert len(perturb_integers([0, 1], noise, exact=False)) == 2


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("scale", [0.3, 40.0, 4.0e12])
def test_the_nearest_integer_is_certain_whatever_the_bits(stream, scale):
    uniforms = forced_uniforms(stream, 2)
    result = _rounded(scale, uniforms)
    with mp.workdps(100):
        first, second = (mp.ldexp(2 * u.prefix + 1, -u.length - 1) for u in uniforms)
        length = scale * mp.sqrt(-2 * mp.log(first))
        ideal = (length * mp.cos(2 * mp.pi * second), length * mp.sin(2 * mp.pi * second))
        assert [int(mp.floor(value + 0.5)) for value in ideal] == list(result)


@pytest.mark.parametrize("kind", list(Noise))
@pytest.mark.parametrize("way", WAYS)
def test_hostile_values_stay_in_range(kind, way):
    noise = calibrate_integers(1, Budget(1.0, 1e-6), kind)
    result = perturb_integers([10**30, -(10**30), 0], noise, **way)
    assert all(isinstance(value, int) for value in result)
    assert abs(result[0] - 2**62) < 10**4
    assert abs(result[1] + 2**62) < 10**4


def test_sums_of_a_score_are_exact():
    noise = calibrate_sums(SumLaw.SCORE, 4.0, 7, Budget(1.0))
    score, top = [0.3, -1.7, 4.0, -4.0, 3.9999999, 1e-9, 2.0], noise.largest
    k = [round(value / noise.step) for value in score]
    assert noise.totals(score) == (2 * top * sum(k), sum(value * value for value in k))
    assert all(isinstance(value, int) for value in noise.totals(score))
    parts = [noise.totals(part) for part in (score[:3], score[3:])]
    assert tuple(map(sum, zip(*parts, strict=True))) == noise.totals(score)
    # hostile scores are clipped to public numbers
    assert noise.totals([math.nan, math.inf, -math.inf, HUGE, 1e300]) == (
        2 * top * 2 * top,
        4 * top * top,
    )
    with pytest.raises(DeclarationError, match=r"shape \(8,\)"):
        noise.totals([*score, 0.0])


def test_sums_of_both_arms_and_of_the_treated():
    def steps_of(noise, scores, tops):
        """Scores in whole steps of the grid, clipped."""
        return np.clip(np.rint(scores / noise.step), -tops, tops).astype(int)

    rng = np.random.default_rng(3)
    treated = rng.integers(0, 2, 50)
    score_1, score_0 = rng.normal(size=(2, 50)) * 3
    arms = calibrate_sums(SumLaw.ARMS, 4.0, 50, Budget(1.0), other_bound=0.5)
    own, other = (np.where(treated == arm, arms.largest, arms.largest_other) for arm in (1, 0))
    k, j = steps_of(arms, score_1, own), steps_of(arms, score_0, other)
    expected = k.sum(), j.sum(), sum((k - j) ** 2), sum((k + j) ** 2), sum(k * k - j * j)
    assert arms.totals(score_1, score_0, treated) == tuple(np.multiply(arms.multipliers, expected))
    noise = calibrate_sums(SumLaw.TREATED, 4.0, 50, Budget(1.0))
    k = steps_of(noise, score_1, noise.largest)
    expected = k.sum(), treated.sum(), sum(k * k), sum(k * (2 * treated - 1))
    assert noise.totals(score_1, treated) == tuple(np.multiply(noise.multipliers, expected))
    with pytest.raises(DeclarationError, match=r"treated of shape \(49,\)"):
        noise.totals(score_1, treated[1:])


GRID = np.array([-10.0, 0.0, 0.5, 1.0, 40.0])
VALUES = (-math.inf, -10.0, -0.1, 0.0, 0.7, 1.0, 2.0, 1e308, math.nan)


def ranked(values: np.ndarray, grid: np.ndarray, rank: int, *, above: bool) -> list[int]:
    return quantile_scores(
        np.bincount(quantile_places(values, grid, above=above), minlength=len(grid)), rank
    )


def by_hand(values, rank, above):
    """The same from the definition, one candidate after the other."""
    stands = []
    for value in values:
        if above or math.isnan(value):
            beyond = [c for c in GRID if not c < value]
            stands.append(beyond[0] if beyond and not math.isnan(value) else GRID[-1])
        else:
            below = [c for c in GRID if c <= value]
            stands.append(below[-1] if below else GRID[0])
    result = []
    for c in GRID:
        least, most = sum(s < c for s in stands), sum(s <= c for s in stands)
        result.append(-min(abs(rank - k) for k in range(least, most + 1)))
    return result


@pytest.mark.parametrize("above", [False, True])
def test_scores_are_distances_of_ranks(above):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = rng.choice(VALUES, 7)
        rank = int(rng.integers(0, 8))
        assert ranked(values, GRID, rank, above=above) == by_hand(values, rank, above)


@pytest.mark.parametrize("above", [False, True])
def test_one_record_moves_every_score_by_at_most_one(above):
    for rest in itertools.combinations_with_replacement(VALUES[1:-1], 2):
        for rank in range(4):
            scores = np.array(
                [ranked(np.array([*rest, one]), GRID, rank, above=above) for one in VALUES]
            )
            assert np.max(scores.max(axis=0) - scores.min(axis=0)) <= 1


def worst_loss(scores_of, each):
    """The largest log ratio of the exact laws over pairs of datasets of four records that differ in
    one.
    """
    worst = 0.0
    for rest in itertools.combinations_with_replacement((-10.0, 0.0, 0.7, 40.0), 3):
        laws = [permute_and_flip(scores_of(np.array([*rest, one])), 0.5 * each) for one in VALUES]
        table = np.log(np.array(laws))
        worst = max(worst, float(np.max(table.max(axis=0) - table.min(axis=0))))
    return worst


@pytest.mark.parametrize("each", [0.3, 2.0])
@pytest.mark.parametrize(("above", "rank"), [(False, 1), (True, 3), (True, 2)])
def test_the_choice_is_as_private_as_stated(each, above, rank):
    loss = worst_loss(lambda values: ranked(values, GRID, rank, above=above), each)
    assert 0.5 * each < loss <= each * (1 + 1e-12)


def test_planted_errors_are_caught():
    def twice(values):
        return [2 * score for score in ranked(values, GRID, 3, above=True)]

    def of_the_data(values):
        # candidates that are read off the records
        grid = np.unique(np.clip(np.nan_to_num(values), -20, 50))
        return ranked(values, np.resize(grid, 4), 3, above=True)

    assert worst_loss(twice, 0.5) > 0.5 * 1.5
    assert worst_loss(of_the_data, 0.5) > 0.5 * 1.5


def test_a_choice_has_the_law_of_permute_and_flip():
    size, each = 1500, 1.0
    choose = private_choice(1, each)
    for one in (-10.0, 40.0):
        scores = ranked(np.array([-10.0] * 5 + [40.0] * 5 + [one]), GRID, 5, above=True)
        shares = np.bincount([choose(scores) for _ in range(size)], minlength=len(GRID)) / size
        twelve = 6 / math.sqrt(size)  # deviations
        assert np.allclose(shares, permute_and_flip(scores, 0.5 * each), atol=twelve)


def test_a_repeatable_choice_has_the_law_of_permute_and_flip():
    choose, scores, size = private_choice(2, 1.0, random.Random(1)), [0, -3, -7, 0], 20_000
    shares = np.bincount([choose(scores) for _ in range(size)], minlength=4) / size
    assert np.allclose(
        shares, permute_and_flip(scores, 0.25), atol=3.5 / math.sqrt(size)
    )  # 7 deviations


@pytest.mark.parametrize("epsilon", [1e-300, 1e-3, 1.0, 1e3, 1e300])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sensitivity", [1, 2**21])
def test_a_choice_is_spread_at_small_epsilon_and_the_best_at_large(sensitivity, seed, epsilon):
    choose = private_choice(sensitivity, epsilon, None if seed is None else random.Random(seed))
    # all three of them but for 3 (2/3)^80 < 1e-13
    places = {choose([0, 10 * sensitivity, -sensitivity]) for _ in range(80)}
    if epsilon > 100:
        assert places == {1}
    elif epsilon < 0.1:
        assert places == {0, 1, 2}
    else:
        assert 1 in places
    with pytest.raises(CalibrationError, match="no scale of noise"):
        selection_scale(sensitivity, 5e-324)
