"""Nuisances from cells: a tree and means that are functions of the released integers alone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx.domain import Domain, Universe
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.cells import LEAST, CellNuisances, CellSums, Partition, grow, leaf_means
from dp2erm_cvx.steps.score import AverageScore
from tests.steps.scored import scores

DOMAIN = Domain(covariate_bound=2.0, outcome_bound=2.0, ranges={"u": (-1.0, 1.0), "v": (-1.0, 1.0)})
N = 40
UNIVERSE = Universe(DOMAIN, N, 2)
PLAN = CellSums(share=0.5, partition=Partition.declared({"u": 6, "v": [0.0]}, UNIVERSE)).plan(
    UNIVERSE, Budget(1.0), {}
)
NUISANCES = CellNuisances(0.5).planned({"cells": PLAN})


def integers(seed, size=2.0**30):
    rng = np.random.default_rng(seed)
    drawn = size * rng.standard_t(2, size=4 * PLAN.partition.size)
    return {"cells": np.clip(drawn, -(2.0**62), 2.0**62).astype(np.int64)}


def records(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, 2)), rng.integers(0, 2, N), rng.normal(size=N) * 3


@given(st.integers(0, 10**6), st.integers(0, N - 1), st.sampled_from([1.0, 2.0**21, 2.0**30, 2.0**62]))
@settings(max_examples=40)
def test_one_record_changes_its_own_score_alone(seed, place, size):
    X, a, y = records(seed)
    theirs = X.copy(), a.copy(), y.copy()
    theirs[0][place], theirs[1][place], theirs[2][place] = 1e9, 1 - a[place], -1e9
    released = integers(seed, size)
    score = AverageScore(NUISANCES, 5.0, 1.0, 3.0)
    one, other = (scores(score, DOMAIN.records(*data), released) for data in ((X, a, y), theirs))
    kept = np.arange(N) != place
    assert np.array_equal(one[kept], other[kept])
    assert np.all(np.isfinite(one))


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 2.0**21, 2.0**30, 2.0**62]))
@settings(max_examples=40)
def test_nuisances_stay_inside_whatever_is_released(seed, size):
    x, released = DOMAIN.records(*records(seed)).covariates, integers(seed, size)
    *m, e, _ = NUISANCES.at(x, released)
    assert np.all(np.abs(m) <= 2.0)
    assert np.all((e >= 0.0) & (e <= 1.0))
    # by the numbers, not by the array that holds them, and without what was kept
    again = CellNuisances(0.5).planned({"cells": PLAN})
    other = {"cells": released["cells"].copy(), "score": np.ones(2)}
    assert np.array_equal(again.at(x, other)[:2], m)


@given(st.integers(0, 10**6), st.sampled_from([(7,), (5, 4), (3, 2, 4)]), st.sampled_from([1.0, 50.0, 1e12]))
@settings(max_examples=40)
def test_leaves_partition_the_grid(seed, shape, size):
    table = np.random.default_rng(seed).normal(size, size, (*shape, 2, 2))
    boxes = grow(table, 0.3, 2.0)
    covered = np.zeros(shape, dtype=int)
    for box in boxes:
        covered[box] += 1
    assert np.all(covered == 1)
    assert len(boxes) == 1 or all(table[box].sum() >= LEAST for box in boxes)
    assert boxes == grow(table.copy(), 0.3, 2.0)


def noisy(mean_0, mean_1, treated, count, noise, seed):
    """A table (..., 2, 2) of cells with these outcomes and shares, with Laplace noise of this scale."""
    arms = np.stack([count * (1 - treated), count * treated], axis=-1)
    means = np.stack([mean_0, mean_1], axis=-1)
    table = np.stack([arms * (1 + means) / 2, arms * (1 - means) / 2], axis=-1)
    return table + np.random.default_rng(seed).laplace(scale=noise, size=table.shape)


def test_without_noise_the_means_are_those_of_the_leaves():
    rng = np.random.default_rng(1)
    outcome, treated = rng.uniform(-0.9, 0.9, (8, 2)), rng.uniform(0.2, 0.8, 8)
    count = rng.uniform(500, 1000, 8)
    sums = noisy(outcome[:, 0], outcome[:, 1], treated, count, 0.0, 0)
    held, means, shares = leaf_means(sums, np.ones(8), 0.0, 0.0)
    np.testing.assert_allclose(means, outcome, atol=1e-9)
    np.testing.assert_allclose(held, count)
    # sampling alone is left, of which a share has a variance without a guess
    np.testing.assert_allclose(shares, treated, atol=0.02)


def test_a_known_propensity_is_not_estimated():
    x = DOMAIN.records(*records(0)).covariates
    assert np.all(CellNuisances(0.5, 0.3).planned({"cells": PLAN}).at(x, integers(0))[2] == 0.3)
