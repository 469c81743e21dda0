"""Scores of candidates for a quantile: what they are, and that one record moves none by more than 1."""

import itertools
import math

import numpy as np
import pytest

from dp2erm_cvx.mechanism import private_choice, quantile_counts, quantile_scores
from tests.mechanism.laws import permute_and_flip

GRID = np.array([-10.0, 0.0, 0.5, 1.0, 40.0])
VALUES = (-math.inf, -10.0, -0.1, 0.0, 0.7, 1.0, 2.0, 1e308, math.nan)


def ranked(values: np.ndarray, grid: np.ndarray, rank: int, *, above: bool) -> list[int]:
    return quantile_scores(quantile_counts(values, grid, above=above), rank)


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
    found = []
    for c in GRID:
        least, most = sum(s < c for s in stands), sum(s <= c for s in stands)
        found.append(-min(abs(rank - k) for k in range(least, most + 1)))
    return found


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
            scores = np.array([ranked(np.array([*rest, one]), GRID, rank, above=above) for one in VALUES])
            assert np.max(scores.max(axis=0) - scores.min(axis=0)) <= 1


def worst_loss(scores_of, each):
    """The largest log ratio of the exact laws over pairs of datasets of four records that differ in one."""
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


def test_a_choice_between_neighbors_is_seen_to_be_private():
    pytest.importorskip("opendp")
    size, each = 1500, 1.0
    choose, shares = private_choice(1, each), []
    for one in (-10.0, 40.0):
        scores = ranked(np.array([-10.0] * 5 + [40.0] * 5 + [one]), GRID, 5, above=True)
        shares.append(np.bincount([choose(scores) for _ in range(size)], minlength=len(GRID)) / size)
        assert np.allclose(shares[-1], permute_and_flip(scores, 0.5 * each), atol=6 / math.sqrt(size))
    seen = np.minimum(*shares) > 0.05
    assert np.max(np.abs(np.log(shares[0][seen] / shares[1][seen]))) < each + 0.4
