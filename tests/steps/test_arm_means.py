"""Means of the covariates by arm: exact sensitivity, exact losses, planted errors, distances of
arms.
"""

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, Treatment, Universe
from dp2erm_cvx.audit import Declared, SearchPlan, noised_sums, search_additive
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.numbers import block_norm, calibrate_integers
from dp2erm_cvx.data.counts import SamplingWeights, Unit
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.inference.arms import EXPECTED, UNSURE, _expected_distance
from dp2erm_cvx.noise import _eulerian, cube_noise, perturb_integers, random_source
from dp2erm_cvx.steps.covariates import SQUARE_CUT, ArmMeans, CovariateLaw, DifferenceSquare
from dp2erm_cvx.steps.record_map import UNIT
from tests.audit.bugs import weaker

LEVELS = ("a", "b", "c")


def domain(k=2, levels=LEVELS, **codebook):
    treatment = Treatment("arm", levels=levels, contrasts="pairs")
    book = Codebook(treatment=treatment, **codebook)
    return Domain(2.0 * math.sqrt(k), 6.0, ranges=[(-1.0, 3.0)] * k, codebook=book)


def step_of(public, n=40, epsilon=1.0):
    k = len(public.ranges)
    universe = Universe(public, n, k)
    step = ArmMeans(share=0.1, law=CovariateLaw.of(public, k), norm=1.0)
    return step.planned(universe, step.calibrate(universe, Budget(epsilon)))


def units(public, k):
    """Single records of every arm at the corners and the middle of the box, and one that does not
    count.
    """
    points = [*itertools.product((-5.0, -1.0, 1.0, 3.0, 5.0), repeat=k)]
    for x, arm in itertools.product(points, range(len(public.arms))):
        yield public.records([x], [arm], [0.0])
    yield public.records([[1.0] * k], [0], [0.0], [0.0])


def persons(public, k):
    """Persons of up to three records in any arms, at corners: all that they may add."""
    rows = [*itertools.product(itertools.product((-1.0, 3.0), repeat=k), range(len(public.arms)))]
    for number in (1, 2, 3):
        for chosen in itertools.combinations_with_replacement(rows, number):
            x, arms = zip(*chosen, strict=True)
            yield public.records(x, arms, [0.0] * number, [1.0] * number, [0] * number)


def moved(step, candidates):
    """The largest movement of the sums over all pairs of units, in the norm of the noise."""
    sums = np.unique([step.exact_sums(one, {}) for one in candidates], axis=0)
    return max(step.calibration.norm(one - other) for one, other in itertools.combinations(sums, 2))


def two_arms(k=2, **codebook):
    """Of a treatment of two arms, as of more than two."""
    return replace(domain(k), codebook=Codebook(**codebook) if codebook else None)


def two_arms_step(public, n=40):
    k = len(public.ranges)
    universe, law = Universe(public, n, k), CovariateLaw.of(public, k)
    step = ArmMeans(share=0.1, law=law, norm=1.0)
    return step.planned(universe, step.calibrate(universe, Budget(1.0)))


def square_step(public, n=40):
    k = len(public.ranges)
    step = DifferenceSquare(share=0.1, law=CovariateLaw.of(public, k))
    return step.plan(Universe(public, n, k), Budget(1.0), {"mean": two_arms_step(public, n)})


@pytest.mark.parametrize("k", [1, 2])
def test_two_arms_are_moved_by_no_more_than_several(k):
    step = two_arms_step(two_arms(k))
    assert step.calibration.sensitivity == 2 * UNIT
    assert moved(step, units(two_arms(k), k)) == 2 * UNIT


def test_weights_and_persons_of_two_arms_move_the_sums_by_no_more():
    weights = two_arms(1, sampling_weights=SamplingWeights("wt", 2.0))
    records = [
        weights.records([[x]], [a], [0.0], [w])
        for x in (-1.0, 3.0)
        for a in (0, 1)
        for w in (0, 0.7, 2)
    ]
    assert moved(two_arms_step(weights), records) == 2 * UNIT
    several = two_arms(1, unit=Unit("person", number=40))
    assert 2 * UNIT - 6 <= moved(two_arms_step(several), persons(several, 1)) <= 2 * UNIT


def directions():
    """What may have been released of two arms: differences along both covariates, along one, and
    none.
    """
    for difference in ([0.2, 0.1], [0.0, -0.3], [0.0, 0.0]):
        first, second = np.array([20.0, 0.0, 0.0]), np.array([20.0, *(20.0 * np.array(difference))])
        yield {"mean": np.concatenate([first, second]) * UNIT}


def test_a_record_moves_the_square_along_a_difference_by_its_cut_at_every_difference():
    public, far = two_arms(2), []
    step = square_step(public)
    assert step.calibration.sensitivity == SQUARE_CUT * UNIT
    for released in directions():
        sums = [step.exact_sums(one, released)[0] for one in units(public, 2)]
        assert max(sums) - min(sums) <= SQUARE_CUT * UNIT
        far.append(max(sums) - min(sums))
    assert max(far) == SQUARE_CUT * UNIT


def test_squares_that_are_not_cut_would_move_by_more(monkeypatch):
    """Planted: a record at the corner of its box adds its whole square."""
    step = square_step(two_arms(2))
    monkeypatch.setattr("dp2erm_cvx.steps.covariates.SQUARE_CUT", 36)
    sums = [step.exact_sums(one, next(directions()))[0] for one in units(two_arms(2), 2)]
    assert max(sums) - min(sums) > SQUARE_CUT * UNIT


def test_a_person_adds_at_most_one_cut_square():
    public = two_arms(2, unit=Unit("person", number=40))
    step, released = square_step(public), next(directions())
    sums = [step.exact_sums(one, released)[0] for one in persons(public, 2)]
    assert 0 <= min(sums)
    assert max(sums) - min(sums) <= SQUARE_CUT * UNIT


def test_a_square_along_a_difference_is_made_of_its_own_record():
    """A row has the same square whatever rows stand beside it, to the last bit."""
    rng, public = np.random.default_rng(4), two_arms(2)
    x = rng.uniform(-1.0, 3.0, (33, 2))
    step, released = square_step(public), next(directions())
    whole = step.exact_sums(public.records(x, np.zeros(33, dtype=int), np.zeros(33)), released)[0]
    single = sum(step.exact_sums(public.records([one], [0], [0.0]), released)[0] for one in x)
    assert whole == single


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("levels", [LEVELS, ("a", "b", "c", "d", "e")])
def test_a_record_moves_the_sums_by_two_of_its_parts_for_any_number_of_arms(k, levels):
    step = step_of(domain(k, levels))
    assert step.calibration.sensitivity == 2 * UNIT
    assert moved(step, units(domain(k, levels), k)) == 2 * UNIT


def test_a_person_in_several_arms_moves_the_sums_by_no_more_than_a_record():
    public = domain(1, unit=Unit("person", number=40))
    assert 2 * UNIT - 6 <= moved(step_of(public), persons(public, 1)) <= 2 * UNIT


def test_sums_rounded_once_for_all_persons_would_move_by_more(monkeypatch):
    """Planted: a person's rows, each rounded to the nearest part, count more than one record
    together.
    """
    public = domain(1, unit=Unit("person", number=40))
    monkeypatch.setattr("dp2erm_cvx.steps.covariates.np.floor", np.ceil)
    assert moved(step_of(public), persons(public, 1)) > 2 * UNIT


def test_a_range_of_one_rounding_step_counts_no_more_than_its_records():
    """Divided by half of such a width, a covariate is 0 or 2 before it is clipped."""
    public = replace(domain(1), ranges=[(1.0, np.nextafter(1.0, 2.0))])
    records = public.records([[1.0], [np.nextafter(1.0, 2.0)], [5.0]], [0, 1, 1], np.zeros(3))
    sums = np.reshape(step_of(public).exact_sums(records, {}), (3, 2))
    assert np.all(np.abs(sums[:, 1]) <= sums[:, 0])


def test_noise_on_single_entries_would_have_to_pay_for_all_of_them():
    """Planted: Laplace noise of the same scale on every entry loses as often as there are
    columns.
    """
    step = step_of(domain(2))
    sums = [np.array(step.exact_sums(one, {})) for one in units(domain(2), 2)]
    loss = max(np.sum(np.abs(one - other)) for one, other in itertools.combinations(sums, 2))
    assert loss / step.calibration.scale > 2.9 * step.calibration.epsilon


def plan_of(n=30, epsilon=1.0):
    settings = {"mean_share": 0.2, "rows": "arms", "propensity": "constant"}
    model = PrivateEffect(domain(), Budget(epsilon), residual_scale=1.0, settings=settings)
    return model.plan(n, 2)


def two_arms_plan(n=30):
    """At a budget at which means by arm pay."""
    settings = {"mean_share": 0.2, "rows": "arms", "propensity": "constant"}
    plan = PrivateEffect(two_arms(), Budget(8.0), residual_scale=1.0, settings=settings).plan(n, 2)
    assert isinstance(plan.step("mean"), ArmMeans)
    return plan


def searched(plan):
    """The worst neighbors of a plan that releases nothing but the means by arm."""
    step = plan.step("mean")
    alone = replace(plan, steps=(step,))
    declared = Declared(step.calibration.epsilon)
    search = SearchPlan(60, seed=0)
    return search_additive(noised_sums(alone, {}), plan.study.start, declared, search=search)


@pytest.mark.parametrize("plan", [plan_of, two_arms_plan])
def test_a_search_finds_all_of_epsilon_and_no_more(plan):
    found = searched(plan())
    assert not found.exceeds
    assert found.audit.found >= 0.98 * found.audit.allowed


def test_a_search_finds_noise_of_half_the_scale():
    weak = weaker(plan_of(), "mean", scale=0.5)
    assert searched(weak).exceeds


def test_the_cube_law_is_a_sum_of_geometric_variables():
    """``(2k + 1)^q`` has the generating function ``B_q(x) / (1 - x)^(q + 1)``, exactly."""
    for q, k in itertools.product(range(1, 8), range(20)):
        weights = _eulerian(q)
        assert sum(weights) == 2**q * math.factorial(q)
        terms = (weight * math.comb(k - j + q, q) for j, weight in enumerate(weights[: k + 1]))
        assert sum(terms) == (2 * k + 1) ** q


@pytest.mark.parametrize(
    ("q", "rate"), [(1, Fraction(1, 2)), (2, Fraction(1, 2)), (3, Fraction(2, 3))]
)
def test_cube_noise_has_its_law(q, rate):
    source = random_source(7)
    drawn = np.array([cube_noise(q, rate, source) for _ in range(4000)])
    reached = Counter(np.max(np.abs(drawn), axis=1).tolist())
    shells = np.arange(60)
    points = (2 * shells + 1.0) ** q - np.where(shells > 0, np.abs(2 * shells - 1.0), 0.0) ** q
    chances = points * np.exp(-float(rate) * shells)
    expected = 4000 * chances / chances.sum()
    many = expected > 10.0
    observed = np.array([reached[shell] for shell in shells], dtype=float)
    table = np.append(observed[many], observed[~many].sum())
    assert stats.chisquare(table, np.append(expected[many], expected[~many].sum())).pvalue > 1e-4
    # inside a shell all points are alike
    first = Counter(map(tuple, drawn[np.max(np.abs(drawn), axis=1) == 1].tolist()))
    assert stats.chisquare(list(first.values())).pvalue > 1e-4
    assert len(first) == 3**q - 1


def test_noise_on_blocks_is_added_block_by_block_and_stays_in_64_bits():
    noise = calibrate_integers(2 * UNIT, Budget(1.0), block=3)
    values = [0, 1, 2, 10**6, 2**62, -(2**62)]
    one = perturb_integers(values, noise, seed=3)
    assert one == perturb_integers(values, noise, seed=3)
    drawn = np.array([perturb_integers([0] * 6, noise, seed=seed) for seed in range(1000)]) * 1.0
    assert np.mean(drawn**2) == pytest.approx(noise.variance, rel=0.15)
    # entries of a block share a length, those of two blocks do not
    squares = drawn**2
    assert np.corrcoef(squares[:, 0], squares[:, 1])[0, 1] > 0.1
    assert abs(np.corrcoef(squares[:, 0], squares[:, 4])[0, 1]) < 0.1
    assert max(map(abs, one)) < 2**63


def test_a_scale_that_does_not_pay_is_refused():
    noise = calibrate_integers(2 * UNIT, Budget(1.0), block=3)
    with pytest.raises(CalibrationError, match="does not pay"):
        perturb_integers([0] * 3, replace(noise, scale=0.999 * noise.scale), seed=1)
    with pytest.raises(DeclarationError, match="block = 2"):
        calibrate_integers(1, Budget(1.0, 1e-6), Noise.GAUSSIAN, block=2)
    with pytest.raises(CalibrationError, match="no coupling"):
        noise.coupling  # noqa: B018


def test_the_norm_adds_up_the_largest_entry_of_every_block():
    assert block_norm(np.array([1.0, -3.0, 2.0, 0.5, 0.0, 0.0]), 2) == 5.0


def test_means_by_arm_are_those_of_the_records():
    rng = np.random.default_rng(2)
    x, arm = rng.uniform(-1.0, 3.0, (200, 2)), rng.integers(0, 3, 200)
    step = step_of(domain(2), n=200, epsilon=1e6)
    records = domain(2).records(x, arm, np.zeros(200))
    x = (x - 1.0) / 2.0  # as covariates are scaled
    released = {step.name: np.array(step.exact_sums(records, {}))}
    assert step.noisy_mean(released) == pytest.approx(x.mean(axis=0), abs=1e-5)
    differences, noise = step.apart(released)
    of_arms = [x[arm == one].mean(axis=0) - x.mean(axis=0) for one in range(3)]
    assert differences == pytest.approx(np.array(of_arms), abs=1e-5)
    assert np.all(noise < 1e-9)


def test_the_predicted_noise_of_the_differences_is_what_they_have():
    step = step_of(domain(2), n=600, epsilon=0.5)
    rng = np.random.default_rng(5)
    records = domain(2).records(
        rng.uniform(-1, 3, (600, 2)), rng.integers(0, 3, 600), np.zeros(600)
    )
    sums = step.exact_sums(records, {})
    exact = step.apart({step.name: np.array(sums)})[0]
    drawn = [perturb_integers(sums, step.integers, seed=seed) for seed in range(400)]
    apart, noise = zip(*(step.apart({step.name: np.array(one)}) for one in drawn), strict=True)
    measured = np.mean(np.square(np.array(apart) - exact), axis=0)
    predicted = np.mean(noise, axis=0).diagonal(axis1=1, axis2=2)
    assert measured == pytest.approx(predicted, rel=0.35)


def test_a_distance_is_released_where_noise_is_small_and_declared_where_it_is_large():
    difference = np.array([0.3, 0.4])
    assert _expected_distance(difference, 1e-12 * np.eye(2), 0.8) == pytest.approx(0.5, rel=1e-4)
    # half a deviation of the guess is added to its mean
    assert EXPECTED + 0.5 * UNSURE == 1.0
    assert _expected_distance(difference, 1e6 * np.eye(2), 0.8) == pytest.approx(0.8, rel=1e-4)
