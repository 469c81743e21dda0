"""Cells: what a replacement moves, what that costs, and what is a function of released numbers alone."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx.domain import Domain, Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.plan import EffectStudy
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.cells import UNIT, CellSums, Partition
from dp2erm_cvx.steps.step import Execution, Inputs

DOMAIN = Domain(covariate_bound=9.0, outcome_bound=2.0, ranges={"u": (0.0, 10.0), "v": (-1.0, 1.0)})
CUTS = {"u": [2.0, 5.0], "v": [0.0]}
N = 7
UNIVERSE = Universe(DOMAIN, N, 2)
PARTITION = Partition.declared(CUTS, UNIVERSE)


def planned(epsilon=1.0, delta=0.0, noise="gamma"):
    return CellSums(share=0.5, noise=noise, partition=PARTITION).plan(UNIVERSE, Budget(epsilon, delta), {})


#: Raw records on both sides of every cut, far outside of the domain too.
RECORDS = [
    (np.array([u, v]), a, y)
    for u, v in itertools.product((-1e300, 1.999, 2.0, 5.0, 1e300), (-1.0, 0.0))
    for a in (0, 1)
    for y in (-1e300, -2.0, -0.3, 0.0, 1e-9, 2.0)
]


def sums(plan, *raw):
    X, a, y = zip(*raw, strict=True)
    records = DOMAIN.records(np.array(X), np.array(a), np.array(y))
    return np.reshape(plan.exact_sums(records, {}), (-1, 2, 2))


def test_a_replacement_moves_everything_by_two_records_at_most():
    own = [sums(planned(), record).ravel() for record in RECORDS]
    for result in own:
        assert result.min() >= 0
        assert result.sum() == UNIT
    pairs = [one - other for one, other in itertools.combinations(own, 2)]
    assert max(int(np.abs(moved).sum()) for moved in pairs) == 2 * UNIT
    assert max(int(np.sum(moved**2)) for moved in pairs) == 2 * UNIT**2


def test_sums_are_those_of_their_records():
    rng = np.random.default_rng(3)
    chosen = [RECORDS[k] for k in rng.integers(len(RECORDS), size=50)]
    assert np.array_equal(sums(planned(), *chosen), sum(sums(planned(), record) for record in chosen))
    table = sums(planned(), *chosen) / UNIT
    counts, outcomes = table.sum(axis=2), 2.0 * (table[:, :, 0] - table[:, :, 1])
    y = np.clip([record[2] for record in chosen], -2.0, 2.0)
    assert counts.sum() == 50
    assert outcomes.sum() == pytest.approx(y.sum(), abs=50 / UNIT)
    treated = np.array([record[1] for record in chosen])
    assert counts[:, 1].sum() == treated.sum()
    assert outcomes[:, 1].sum() == pytest.approx(y[treated == 1].sum(), abs=50 / UNIT)


def largest_loss(plan, one, other):
    """Of discrete Laplace noise on every integer, in the worst output: exact in each of them by itself."""
    law = plan.calibration
    loss = 0.0
    for mine, theirs in zip(one.ravel().tolist(), other.ravel().tolist(), strict=True):
        outputs = {mine, theirs, min(mine, theirs) - 3, max(mine, theirs) + 3, (mine + theirs) // 2}
        loss += max(abs(z - theirs) - abs(z - mine) for z in outputs) / law.scale
    return loss


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
def test_the_loss_of_the_worst_pair_is_the_budget(epsilon):
    plan = planned(epsilon)
    pairs = itertools.combinations([sums(plan, record) for record in RECORDS[::5]], 2)
    losses = [largest_loss(plan, *pair) for pair in pairs]
    assert 0.999 * epsilon < max(losses) <= epsilon
    # as if counts alone were released, or as if no record could change its cell
    careless = replace(plan, calibration=replace(plan.calibration, scale=0.5 * plan.calibration.scale))
    pair = sums(careless, RECORDS[0]), sums(careless, RECORDS[-1])
    assert largest_loss(careless, *pair) > 1.9 * epsilon


def test_gaussian_noise_is_for_the_euclidean_movement():
    """It is the shorter one at a delta that nobody should spend; else noise is that without a delta."""
    plan = planned(1.0, 0.05, "gaussian")
    assert plan.calibration.sensitivity**2 > 2 * UNIT**2 > (plan.calibration.sensitivity - 1) ** 2
    assert plan.guarantee == Budget(1.0, 0.05)
    assert planned(1.0, 1e-6, "gaussian").calibration == planned(1.0).calibration
    with pytest.raises(CalibrationError, match="delta"):
        planned(noise="gaussian")


def test_every_entry_gets_noise_of_its_own():
    plan = planned(0.5)
    rng = np.random.default_rng(0)
    records = DOMAIN.records(rng.normal(size=(N, 2)), np.zeros(N, dtype=int), np.zeros(N))
    result = [
        plan.run(Inputs(None, records), {}, Execution("newton", 1e-9, seed)).released for seed in range(400)
    ]
    drawn = (np.array(result) - np.array(plan.exact_sums(records, {}))) / UNIT
    assert drawn.shape == (400, 4 * PARTITION.size)
    assert np.std(drawn, axis=0) == pytest.approx(math.sqrt(2) * 4.0, rel=0.3)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(24)).max() < 0.25
    assert plan.predicted_error == pytest.approx(2 * 4.0**2, rel=1e-9)
    exact = plan.run(Inputs(None, records), {}, Execution("newton", 1e-9)).released
    assert exact.dtype == np.int64


# the partition


def test_cuts_are_in_raw_units_and_belong_to_the_cell_above():
    X = np.array([[1.999999, -1e-9], [2.0, 0.0], [4.9999, 0.5], [5.0, -0.5], [-7.0, -1.0], [99.0, 3.0]])
    wide = replace(DOMAIN, covariate_bound=1e6)
    assert PARTITION.index(wide.records(X, np.zeros(6), np.zeros(6)).covariates).tolist() == [
        0,
        3,
        3,
        4,
        0,
        5,
    ]
    assert PARTITION.shape == (3, 2)
    np.testing.assert_allclose(PARTITION.raw(DOMAIN)[0], CUTS["u"], rtol=1e-15)
    boxes = [(slice(0, 1), slice(0, 2)), (slice(1, 3), slice(1, 2)), (slice(0, 3), slice(0, 2))]
    assert PARTITION.names(boxes, ("u", "v"), DOMAIN) == ("u < 2", "2 <= u, 0 <= v", "all")


def test_a_center_moves_no_cut():
    """Records were cut where the middle of the range scales to, and the release named the declared cut."""
    moved = replace(DOMAIN, covariate_bound=1e6, center={"u": 2.0, "v": -0.5})
    result = Partition.declared(CUTS, Universe(moved, N, 2))
    X = np.array([[1.99, -0.01], [2.01, -0.01], [4.99, 0.01], [5.01, 0.01]])
    assert result.index(moved.features(X)).tolist() == [0, 2, 3, 5]
    for own, cuts in zip(result.raw(moved), CUTS.values(), strict=True):
        np.testing.assert_allclose(own, cuts, rtol=1e-15, atol=1e-15)


@given(st.lists(st.floats(allow_nan=True), min_size=2, max_size=2), st.integers(0, 10**6))
@settings(max_examples=50)
def test_the_cell_of_a_record_is_a_function_of_this_record(place, seed):
    x = np.random.default_rng(seed).normal(size=(N, 2))
    x[3] = place
    result = PARTITION.index(x)
    assert np.array_equal(result, [PARTITION.index(row[None])[0] for row in x])
    assert 0 <= result.min() <= result.max() < PARTITION.size


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        (5, "cuts by covariate"),
        ({"u": [1.0]}, "v is adjusted for"),
        ({"u": [1.0], "v": [0.0], "w": [0.0]}, "unknown covariate"),
        ({"u": [5.0, 2.0], "v": [0.0]}, "increase"),
        ({"u": [math.nan], "v": [0.0]}, "finite"),
        ({"u": 2.5, "v": [0.0]}, "whole number"),
        ({"u": "thirds", "v": [0.0]}, "must be a number"),
        ({"u": 10**7, "v": 2}, "at most"),
        ({"u": 1000, "v": 1000}, "at most"),
    ],
)
def test_what_is_no_partition_is_refused(declared, complaint):
    with pytest.raises(DeclarationError, match=complaint):
        Partition.declared(declared, UNIVERSE)


# declared with an effect


def study(epsilon=1.0, universe=UNIVERSE, **declared):
    return EffectStudy(universe, Budget(epsilon), residual_scale=0.5, declared=declared)


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ({"cells": CUTS, "rows": "mix"}, "one of the two"),
        ({"cells": CUTS, "propensity": "logistic"}, "propensity"),
        ({"propensity": "cells"}, "propensity"),
        ({"rows": None}, "one of the two"),
    ],
)
def test_cells_and_lines_do_not_mix(declared, complaint):
    with pytest.raises(DeclarationError, match=complaint):
        study(**declared)
