"""Nuisances: cells and what a replacement moves in them, and outcomes of two values, unbent exactly."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from dp2erm_cvx import Budget, Domain, Universe
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import EffectStudy, make_plan
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.cells import LEAST, UNIT, CellNuisances, CellSums, Partition, grow, leaf_means
from dp2erm_cvx.steps.nuisances import LinearNuisances, TwoValues
from dp2erm_cvx.steps.record_map import Rows, Term
from tests.calibration.test_sums import movement

GRID = Domain(covariate_bound=9.0, outcome_bound=2.0, ranges={"u": (0.0, 10.0), "v": (-1.0, 1.0)})
CUTS = {"u": [2.0, 5.0], "v": [0.0]}
UNIVERSE = Universe(GRID, 7, 2)
PARTITION = Partition.declared(CUTS, UNIVERSE)
#: Raw records on both sides of every cut, far outside of the domain too.
RECORDS = [
    ((u, v), a, y)
    for u, v in itertools.product((-1e300, 1.999, 2.0, 5.0, 1e300), (-1.0, 0.0))
    for a in (0, 1)
    for y in (-1e300, -2.0, -0.3, 0.0, 1e-9, 2.0)
]


def planned(epsilon=1.0, delta=0.0, noise="gamma"):
    return CellSums(share=0.5, noise=noise, partition=PARTITION).plan(UNIVERSE, Budget(epsilon, delta), {})


def sums(*raw):
    X, a, y = map(np.array, zip(*raw, strict=True))
    return np.reshape(planned().exact_sums(GRID.records(X, a, y), {}), (-1, 2, 2))


def test_a_replacement_moves_everything_by_two_records_at_most():
    """Gaussian noise is for the Euclidean norm, and at a usual delta it is the longer one."""
    own = np.array([sums(record).ravel() for record in RECORDS])
    assert own.min() >= 0
    assert set(own.sum(axis=1)) == {UNIT}
    assert (movement(own, Noise.GAMMA), movement(own, Noise.GAUSSIAN) ** 2) == (
        2 * UNIT,
        pytest.approx(2 * UNIT**2, rel=1e-14),
    )
    for epsilon in (0.1, 1.0, 7.0):
        assert 0.999 * epsilon < 2 * UNIT / planned(epsilon).calibration.scale <= epsilon
    plan = planned(1.0, 0.05, "gaussian")
    assert plan.calibration.sensitivity**2 > 2 * UNIT**2 > (plan.calibration.sensitivity - 1) ** 2
    assert plan.guarantee == Budget(1.0, 0.05)
    assert planned(1.0, 1e-6, "gaussian").calibration == planned(1.0).calibration


def test_sums_are_those_of_their_records():
    rng = np.random.default_rng(3)
    chosen = [RECORDS[k] for k in rng.integers(len(RECORDS), size=50)]
    assert np.array_equal(sums(*chosen), sum(sums(record) for record in chosen))
    table = sums(*chosen) / UNIT
    counts, outcomes = table.sum(axis=2), 2.0 * (table[:, :, 0] - table[:, :, 1])
    treated, y = (np.array(own) for own in list(zip(*chosen, strict=True))[1:])
    assert counts.sum(axis=0).tolist() == [sum(treated == 0), sum(treated == 1)]
    for arm in (0, 1):
        expected = np.clip(y[treated == arm], -2.0, 2.0).sum()
        assert outcomes[:, arm].sum() == pytest.approx(expected, abs=50 / UNIT)


@pytest.mark.parametrize("center", [None, {"u": 2.0, "v": -0.5}])
def test_cuts_are_in_raw_units_and_belong_to_the_cell_above(center):
    """Whatever the center is: records were cut where the middle of the range scales to."""
    domain = replace(GRID, covariate_bound=1e6, center=center)
    partition = Partition.declared(CUTS, Universe(domain, 7, 2))
    X = np.array([[1.999999, -1e-9], [2.0, 0.0], [4.9999, 0.5], [5.0, -0.5], [-7.0, -1.0], [99.0, 3.0]])
    assert partition.index(domain.features(X)).tolist() == [0, 3, 3, 4, 0, 5]
    assert (partition.shape, partition.size) == ((3, 2), 6)
    for own, cuts in zip(partition.raw(domain), CUTS.values(), strict=True):
        np.testing.assert_allclose(own, cuts, rtol=1e-15, atol=1e-15)
    boxes = [(slice(0, 1), slice(0, 2)), (slice(1, 3), slice(1, 2)), (slice(0, 3), slice(0, 2))]
    assert partition.names(boxes, ("u", "v"), domain) == ("u < 2", "2 <= u, 0 <= v", "all")


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        (5, "cuts by covariate"),
        ({"u": [1.0]}, "v is adjusted for"),
        ({"u": [1.0], "v": [0.0], "w": [0.0]}, "unknown covariate"),
        ({"u": [5.0, 2.0], "v": [0.0]}, "increase"),
        ({"u": [float("nan")], "v": [0.0]}, "finite"),
        ({"u": 2.5, "v": [0.0]}, "whole number"),
        ({"u": "thirds", "v": [0.0]}, "must be a number"),
        ({"u": 10**7, "v": 2}, "at most"),
        ({"u": 1000, "v": 1000}, "at most"),
    ],
)
def test_what_is_no_partition_is_refused(declared, complaint):
    with pytest.raises(DeclarationError, match=complaint):
        Partition.declared(declared, UNIVERSE)


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


def test_without_noise_the_means_are_those_of_the_leaves():
    rng = np.random.default_rng(1)
    outcome, treated = rng.uniform(-0.9, 0.9, (8, 2)), rng.uniform(0.2, 0.8, 8)
    count = rng.uniform(500, 1000, 8)
    arms = np.stack([count * (1 - treated), count * treated], axis=-1)
    held, means, shares = leaf_means(
        np.stack([arms * (1 + outcome) / 2, arms * (1 - outcome) / 2], axis=-1), np.ones(8), 0.0, 0.0
    )
    np.testing.assert_allclose(means, outcome, atol=1e-9)
    np.testing.assert_allclose(held, count)
    # sampling alone is left, of which a share has a variance without a guess
    np.testing.assert_allclose(shares, treated, atol=0.02)
    nuisances = CellNuisances(0.5, known=0.3).planned({"cells": planned()})
    assert set(nuisances.at(np.zeros((5, 2)), {"cells": np.arange(24)})[2]) == {0.3}


EVENT = Domain(covariate_bound=1.5, outcome_bound=0.5, outcome_center=0.5, binary_outcome=True)


@pytest.mark.parametrize("slope", [0.2, 0.45, 1.0])
@pytest.mark.parametrize("mean", [1e-6, 0.02, 0.1, 0.5, 0.7, 0.999])
def test_unbending_inverts_the_population_equation(mean, slope):
    """m minimizes E phi_c(Y - m) for Y ~ Bernoulli(mean): its gradient is 0 there, and U(m) is the mean."""

    def gradient(m):
        return (1.0 - mean) * (1.0 - math.exp(-m / slope)) - mean * (1.0 - math.exp(-(1.0 - m) / slope))

    m = brentq(gradient, 0.0, 1.0, xtol=1e-16, rtol=1e-15)
    values = TwoValues(0.0, 1.0, slope)
    assert float(values.unbent(m)) == pytest.approx(mean, abs=1e-12)
    assert values.bent(mean) == pytest.approx(m, abs=1e-9)
    # the same outcome in other units, measured from elsewhere
    other = TwoValues(-3.0, 6.0, 6.0 * slope)
    assert float(other.unbent(6.0 * m - 3.0)) == pytest.approx(6.0 * mean - 3.0, abs=1e-11)
    # curvature and steepness are derivatives
    h = 1e-5
    curved = (gradient(m + h) - gradient(m - h)) / (2.0 * h) * slope
    assert values.curvature(m) == pytest.approx(curved, rel=1e-4)
    inside = min(max(m, h), 1.0 - h)
    steep = float(values.unbent(inside + h) - values.unbent(inside - h)) / (2.0 * h)
    assert values.steepness(inside) == pytest.approx(steep, rel=1e-4)


def test_unbending_removes_the_bend_of_data_without_noise():
    """Two cells by arm, all counts exact: the released center misses their means, the unbent one does not."""
    means = {(0, -1.0): 0.05, (0, 1.0): 0.15, (1, -1.0): 0.2, (1, 1.0): 0.6}
    cells = [(*at, y, round(400 * (p if y else 1 - p))) for at, p in means.items() for y in (1, 0)]
    a, x, y = (np.repeat([cell[place] for cell in cells], [cell[3] for cell in cells]) for place in range(3))
    universe = Universe(EVENT, len(a), 1)
    study = EffectStudy(universe, Budget(1.0), residual_scale=0.4, estimand="risks", confounding=0.0)
    step, where = (plan := make_plan(study)).step("center"), replace(plan.step("center").regression, rate=0.5)
    records, quiet = EVENT.records(x[:, None], a, y), np.zeros(step.calibration.n_parameters)
    mapped, factors = where.records(records, {}), where.factors(records, {})
    instance = step.program.instance(mapped, factors, gamma=1e-9, noise=quiet)
    theta = where.unscaled(solve(instance, tolerance=1e-9).value, 1)
    lines = LinearNuisances(Term(Rows.ARMS, "center"), 0.5)
    unbent = replace(lines, two_values=TwoValues(-0.5, 1.0, study.settings.slope))
    for (arm, at), mean in means.items():
        point = np.array([[at]]), np.full(1, float(arm)), {"center": theta}
        assert 0.5 + float(unbent.outcome(*point)[0]) == pytest.approx(mean, abs=1e-4)
        assert abs(0.5 + float(lines.outcome(*point)[0]) - mean) > 0.01


def test_an_outcome_of_two_values_is_one_of_its_ends():
    result = EVENT.net_outcome([0, 1, 0, 1, 1], [0.0, 1.0, 0.3, 7.0, 0.5])
    assert result.tolist() == [-0.5, 0.5, -0.5, 0.5, 0.0]
    assert Domain.from_dict(EVENT.to_dict()) == EVENT
    assert "binary_outcome" not in replace(EVENT, binary_outcome=False).to_dict()
    for changes in ({"binary_outcome": 1}, {"treatment_cost": 0.1}):
        with pytest.raises(DeclarationError, match="binary_outcome"):
            replace(EVENT, **changes)
