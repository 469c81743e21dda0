"""The choice itself: its law is the stated one, and it is as private as stated."""

import math
import random
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

from dp2erm_cvx import Domain
from dp2erm_cvx.design.private import LEVELS, SENSITIVITY, total_gain, unit
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.mechanism import private_choice, repeatable_choice
from dp2erm_cvx.mechanism.discrete import selection_scale
from tests.mechanism.laws import permute_and_flip

DOMAIN = Domain(1.0, 2.0)


def agreement(epsilon: float, scores: list[int], size: int = 20_000) -> float:
    """p-value of draws at sensitivity 2 and this epsilon against the law at epsilon 1, whose rate is 1/4."""
    law = np.array(permute_and_flip(scores, 0.25))
    assert math.fsum(law) == pytest.approx(1.0)
    choose = repeatable_choice(2, epsilon, random.Random(1))
    counts = np.bincount([choose(scores) for _ in range(size)], minlength=len(scores))
    expected, likely = size * law, size * law > 100
    assert np.sum(counts[~likely]) <= 10
    return float(chi2.sf(np.sum((counts - expected)[likely] ** 2 / expected[likely]), np.sum(likely) - 1))


@pytest.mark.parametrize("scores", [[0, -3, -7], [5, 5], [0, -1, -1, -40], [2**40, 2**40 - 4, 0]])
def test_a_repeatable_choice_has_the_same_law_and_twice_the_epsilon_is_seen(scores):
    assert agreement(1.0, scores) > 1e-4
    assert len(set(scores)) == 1 or agreement(2.0, scores) < 1e-6


@pytest.mark.parametrize("epsilon", [1e-300, 1e-3, 1.0, 1e3, 1e300])
@pytest.mark.parametrize("kind", ["private", "repeatable"])
def test_scales_of_any_size(kind, epsilon):
    if kind == "private":
        pytest.importorskip("opendp")
        choose = private_choice(SENSITIVITY, epsilon)
    else:
        choose = repeatable_choice(SENSITIVITY, epsilon, random.Random(0))
    # all three of them but for 3 (2/3)^80 < 1e-13
    places = {choose([0, 10 * SENSITIVITY, -SENSITIVITY]) for _ in range(80)}
    assert places == {1} if epsilon > 100 else places == {0, 1, 2} if epsilon < 0.1 else 1 in places
    with pytest.raises(CalibrationError, match="no scale of noise"):
        selection_scale(SENSITIVITY, 5e-324)


RECORDS = [(a, y) for a in (0, 1) for y in (-2.0, -0.7, 0.0, 2.0)]
RULES = np.array(list(product((0, 1), repeat=2)))


def scores(records: list[tuple[int, float]], rules: np.ndarray, p: float) -> list[int]:
    a, net = np.array([one[0] for one in records]), np.array([one[1] for one in records])
    return [total_gain(rule, a, net, DOMAIN, p) for rule in rules]


def worst_loss(rate: float, *, p: float = 0.3) -> float:
    """The largest log ratio over all pairs of datasets of two records that share the first, for 4 rules."""
    worst = 0.0
    for rest in RECORDS:
        laws = []
        for one in RECORDS:
            # what a rule says about the replaced record may be either, before and after
            for says in product((0, 1), repeat=4):
                rules = np.column_stack([RULES[:, 0], says])
                laws.append(permute_and_flip(scores([rest, one], rules, p), rate))
        table = np.log(np.array(laws))
        worst = max(worst, float(np.max(table.max(axis=0) - table.min(axis=0))))
    return worst


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_privacy_over_all_neighbors(epsilon):
    loss = worst_loss(1.0 / selection_scale(SENSITIVITY, epsilon))
    assert 0.5 * epsilon < loss <= epsilon * (1 + 1e-12)


def test_the_loss_is_attained_and_half_the_sensitivity_is_caught():
    # a lead that no record overturns, and one record whose score turns round for both rules
    lead, rules = [(1, 2.0)] * 4, np.array([[1] * 5, [0] * 5])
    pair = [scores([*lead, (1, y)], rules, 0.5) for y in (2.0, -2.0)]
    for believed, factor in ((SENSITIVITY, 1.0), (SENSITIVITY // 2, 2.0)):
        chances = [permute_and_flip(one, 0.8 / (2 * believed)) for one in pair]
        loss = max(abs(math.log(before / after)) for before, after in zip(*chances, strict=True))
        assert loss == pytest.approx(0.8 * factor)
    # flips are covered, and needed
    kept, flipped = (scores([*lead, (a, 2.0)], rules, 0.5) for a in (1, 0))
    assert max(abs(one - other) for one, other in zip(kept, flipped, strict=True)) == SENSITIVITY


@pytest.mark.parametrize("p", [1e-9, 0.2, 0.5, 0.9])
def test_scores_keep_their_range(p):
    hostile = math.nan, math.inf, -math.inf, 1e300, -2.0, 2.0, 5e-324
    for a, chosen, net in product((0, 1), (0, 1), hostile):
        assert abs(total_gain(np.array([chosen]), np.array([a]), np.array([net]), DOMAIN, p)) <= LEVELS


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_the_mean_gain_is_the_value_over_a_coin_toss(p):
    treated, control = np.array([1.5, -1.0, 0.3]), np.array([-0.5, 0.8, 0.3])
    rule = np.array([1, 0, 1])
    # the exact mean over randomized treatments
    mean = p * total_gain(rule, np.ones(3, int), treated, DOMAIN, p)
    mean += (1 - p) * total_gain(rule, np.zeros(3, int), control, DOMAIN, p)
    expected = np.mean(np.where(rule == 1, treated, control)) - np.mean(treated + control) / 2
    assert mean * unit(DOMAIN, p, 3) == pytest.approx(expected, abs=1e-4)
