"""The parts of a stability audit, each against an independent computation."""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Quantity, SearchPlan, audit_stability, surrogates
from dp2erm_cvx.audit import stability as module
from dp2erm_cvx.audit.changes import Base, Changes
from dp2erm_cvx.audit.climbs import slopes_followed, solves_of_step
from dp2erm_cvx.audit.movement import NeighborPair, resolve
from dp2erm_cvx.audit.pairs import Pairs, draw_pair, next_pair, records_at
from dp2erm_cvx.audit.rounds import STRATEGIES
from dp2erm_cvx.audit.search import Deadline, Gain, State, evolve
from dp2erm_cvx.audit.weighing import ProgramWeights
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.neighbors import neighborhood as batch
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program import Gaussian, Moments, scheme
from dp2erm_cvx.program.kernels import Linear, PublicSample
from dp2erm_cvx.program.registry import programs
from tests.audit.stability.reference import reference_program
from tests.helpers import make_records
from tests.plugins.literature import penalized_balance
from tests.plugins.robust import robust
from tests.rows import slow


def exact(w, v, j):
    """The quantities from their definitions, one term at a time."""
    n = len(w)
    gap = [abs(float(w[i]) - float(v[i])) for i in range(n)]
    l0 = sum(size > 0 for size in gap)
    squares = math.fsum(size**2 for size in gap)
    return {
        Quantity.V: math.fsum([gap[i] for i in range(n) if i != j]) + w[j] + v[j],
        Quantity.L1: math.fsum(gap),
        Quantity.L2: math.sqrt(squares),
        Quantity.L0: l0,
        Quantity.W1: math.fsum(gap) + 2 * max(min(a, b) for a, b in zip(w, v, strict=True)),
        Quantity.W2: math.sqrt(
            (squares + 2 * max(a * b for a, b in zip(w, v, strict=True))) * (1 + l0)
        ),
        Quantity.LARGEST: max(*w, *v),
    }


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6), n=st.integers(2, 40), error=st.sampled_from([0.0, 1e-9, 1e-3, 0.3])
)
def test_intervals_hold_the_exact_movement(seed, n, error):
    rng = np.random.default_rng(seed)
    w, v = n * rng.dirichlet(np.full(n, 0.7), 2)
    if seed % 3 == 0:
        v = w.copy()
        v[0], v[1] = w[1], w[0]
    computed = []
    for exact_weights in (w, v):
        noise = rng.normal(size=n) * (rng.random(n) < rng.choice([0.1, 1.0]))
        noise *= error / max(np.abs(noise).sum(), 1e-300) * rng.random()
        computed.append(np.maximum(exact_weights + noise, 0.0))
    j = int(rng.integers(n))
    result = NeighborPair(None, None, j, "").moved(*((one, error) for one in computed)).movements
    for quantity, value in exact(w, v, j).items():
        assert result[quantity].low <= value <= result[quantity].high
    if error == 0.0:
        assert result[Quantity.V].high - result[Quantity.V].low < 1e-10


@scheme(uneven=0.0)
def entropic(w, records, uneven):
    imbalance = cp.sum_squares(records.signed.T @ w) / records.n
    own = uneven * cp.square(w[3] - 2)
    return cp.Problem(cp.Minimize(imbalance + own - cp.sum(cp.entr(w))), [0.05 <= w, w <= 3])


def near(first, second, changed):
    """True if two datasets of records are neighbors at this row, in their space."""
    kept, ends, space = np.arange(first.n_samples) != changed, (first, second), first.space
    same = np.array_equal(first.X[kept], second.X[kept]) and np.array_equal(
        first.a[kept], second.a[kept]
    )
    inside = all(
        (np.linalg.norm(end.covariates, axis=1) <= space.features_bound + 1e-12).all()
        for end in ends
    )
    return (
        same
        and inside
        and min(min(end.a.sum(), (1 - end.a).sum()) for end in ends) >= (space.arm_floor or 0)
    )


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("n", "floor", "relation"),
    [(400, 100, "replace-one"), (5, None, "replace-one"), (12, 6, "replace-one-keep-treatment")],
)
def test_pairs_of_a_search_are_neighbors_inside_the_domain(n, floor, relation):
    ranges = {"ranges": [(-5.0, 1.0), (0.0, 2.0)], "intercept": 0.3}
    domain = Domain(1.3, 3.0, 10.0, 0.5, arm_floor=floor, relation=Neighboring(relation), **ranges)
    universe, rng = Universe(domain, n, 2), np.random.default_rng(1)
    starts = Pairs.starts(universe, 70, rng)
    valid = np.flatnonzero(np.isfinite(starts.count).all(axis=1))
    assert len(valid) > 30
    chosen, pair, moves = [starts.take(np.array([k])) for k in valid], None, 0
    for k in range(90):
        following = draw_pair(universe, rng) if k % 3 == 0 else next_pair(universe, pair, rng)
        moves += k % 3 > 0 and not np.array_equal(following.X, pair.X)
        chosen.append(pair := following)
    assert moves > 20
    flips = 0
    for one in chosen:
        ends = one.records(domain.space)
        assert near(*ends, 0)
        flips += ends[0].a[0] != ends[1].a[0]
        for records, raw in zip(ends, one.raw(domain), strict=True):
            # nothing is clipped: what was drawn is what is audited
            np.testing.assert_allclose(domain.records(*raw).X, records.X, atol=1e-9)
            assert np.all(np.abs(raw[2] - 10.0 - 0.5 * raw[1]) <= 3.0 + 1e-9)
    assert (flips > 0) == universe.flips


def test_evolution_strategy_finds_a_narrow_ridge_within_its_budget():
    seen = []

    def value(x):
        seen.append(len(x))
        return -(100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(axis=1)

    def values(asked):
        return [value(x) if k < 2 else np.full(len(x), np.nan) for k, x in asked]

    climbs = [(np.full(4, -0.5), 0.3, 6000), (np.zeros(3), 0.1, 3000), (np.zeros(3), 0.3, 100)]
    *ended, (_, nothing, _) = evolve(values, climbs, np.random.default_rng(3))
    assert sum(spent for *_, spent in ended) == sum(seen)
    for (best, result, spent), (*_, most) in zip(ended, climbs, strict=False):
        assert spent <= most
        assert result > -1e-3
        np.testing.assert_allclose(best, 1.0, atol=0.05)
    assert nothing == -math.inf


KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT
PLAIN, FLOOR = Domain(1.0, 1.0), Domain(1.5, 1.0, arm_floor=8, intercept=0.5)


def base_of(program, records):
    universe = MappedUniverse(records.space, records.n_samples, records.covariates.shape[1])
    return Base(
        ProgramWeights(program.resolve(records.space)), universe, records, records.covariates
    )


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", STRATEGIES)
def test_proposals_are_neighbors(name):
    rng, space = np.random.default_rng(0), Domain(1.0, 1.0, arm_floor=5).space
    records = records_at(space, space.inside(rng.normal(size=(30, 3))), rng.integers(2, size=30))
    program, keep = (
        reference_program("paper_entropy_balancing", ridge=0.5),
        replace(space, relation=KEEP),
    )
    base = base_of(program, records)
    changes = base.propose(
        "extreme" if name == "ascent" else name, 40, 40, np.random.default_rng(0)
    )
    kept = [changes.one(k, name, 0) for k in range(40)]
    pairs = [base.pair(change) for change in kept]
    inside = [k for k in range(40) if pairs[k] is not None]
    assert len(inside) > 10
    assert all(near(pairs[k].first, pairs[k].second, pairs[k].changed) for k in inside)
    moves = base.moved(changes)
    assert moves.number.tolist() == inside
    solved = resolve(base.weighing, [pairs[k] for k in inside[:5]])
    for k, pair in enumerate(solved):
        assert pair.movements[Quantity.V].apart(moves.movements[Quantity.V][k]) <= 1.0
    if name == "each":
        assert changes.index.tolist() == [(40 + k) % 30 for k in range(40)]
    if name == "flips":
        assert np.all(changes.arms != base.records.a[changes.index])
        assert len(base_of(program, replace(records, space=keep)).moved(changes)) == 0


def test_what_a_search_keeps_is_the_largest_by_every_quantity():
    space = Domain(1.0, 1.0).space
    rng = np.random.default_rng(0)
    records = records_at(space, space.inside(rng.normal(size=(30, 3))), rng.integers(2, size=30))
    base = base_of(reference_program("ipw_logistic", ridge=0.1), records)
    moves = base.moved(base.propose("random", 0, 60, rng))
    kept = moves.kept("random", 0, 4, 1e-9)
    for quantity, intervals in moves.movements.items():
        heights = sorted(
            (one[quantity.value] for one, _ in kept if quantity.value in one), reverse=True
        )
        assert heights == sorted(set(intervals.low.tolist()), reverse=True)[:4]
    best = moves.highest(6)
    assert len(set(moves.changes.index[best].tolist())) == 6
    assert best[0] == np.argmax(moves.movements[Quantity.V].low)


def random_records(space, n, d):
    rng = np.random.default_rng(1)
    return records_at(space, space.inside(rng.normal(size=(n, d))), rng.integers(2, size=n))


def test_steps_along_slopes_end_where_nothing_near_is_higher():
    space = Domain(1.0, 1.0).space
    rng = np.random.default_rng(1)
    base = base_of(reference_program("ipw_logistic", ridge=0.1), random_records(space, 30, 3))
    starts = base.moved(base.propose("random", 0, 4, rng))
    climbed = slopes_followed(base, starts, 1000, Deadline())
    ends = climbed.ends
    assert climbed.tried == climbed.solved <= 1000
    assert climbed.tried % solves_of_step(base) == 0
    assert np.array_equal(ends.index, starts.changes.index)
    assert np.all(np.linalg.norm(ends.covariates, axis=1) <= space.features_bound)
    before = starts.movements[Quantity.V].low
    after = base.moved(ends).movements[Quantity.V].low
    assert np.all(after > before)
    highest = np.argsort(-after)[:2]  # the climbs that went on to the end
    of = np.repeat(highest, 50)
    near = ends.covariates[of] + 0.02 * rng.normal(size=(100, 3))
    around = base.heights(ends.take(of), near, Deadline())
    assert np.all(around <= after[of] + 5e-3)  # V has kinks, at which slopes lead no further


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    ("program", "domain"),
    [
        (reference_program("ipw_logistic", ridge=0.1), PLAIN),
        (reference_program("ipw_logistic", ridge=0.003, radius=1.0, trim=2.5), FLOOR),
        (reference_program("overlap", ridge=0.003, radius=1.0), FLOOR),
        (reference_program("inverse_probability_tilting", ridge=0.02, radius=1.0), PLAIN),
        (reference_program("ipw_known", coefficient=(1.0, -0.5, 0.3), trim=2.0), PLAIN),
        (reference_program("entropy_balancing", ridge=0.02, cap=1.5), PLAIN),
        (reference_program("entropy_balancing", ridge=0.1, radius=0.3, treated=0.3), FLOOR),
        (reference_program("entropy_balancing", bases="by_arm", treated=0.3), FLOOR),
        (reference_program("stable_balancing", ridge=0.05, alpha=0.3), PLAIN),
        (reference_program("att_balancing"), PLAIN),
        (reference_program("att_calibration"), PLAIN),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_gradients_agree_with_differences(program, domain):
    base = base_of(program, random_records(domain.space, 40, 3))
    assert base.knows_gradients
    rng = np.random.default_rng(0)
    starts = base.propose("random", 0, 12, rng)
    moves = base.moved(Changes(starts.index, 0.9 * starts.covariates, starts.arms))
    changes = moves.changes
    off = off_differences(base, changes, 1e-4)
    # a kink of V may lie between the neighbors of a difference
    assert np.sum(off <= 1e-5) >= len(changes) - 2
    assert np.all(np.minimum(off, off_differences(base, changes, 1e-5)) <= 1e-5)


def off_differences(base, changes, step):
    """How far gradients of V (m,) are off its differences."""
    gradients = base.gradients(changes, changes.covariates, Deadline())
    differences = []
    for axis in step * np.eye(3):
        ahead = base.heights(changes, changes.covariates + axis, Deadline())
        behind = base.heights(changes, changes.covariates - axis, Deadline())
        differences.append((ahead - behind) / (2.0 * step))
    return np.max(np.abs(gradients - np.stack(differences, axis=1)), axis=1)


def test_a_gradient_that_is_off_its_difference_is_beside_a_kink():
    """One weight moves by 1.1e-5 alone, and turns around between both ends of the long step."""
    base = base_of(reference_program("att_calibration"), random_records(PLAIN.space, 40, 3))
    starts = base.propose("random", 0, 60, np.random.default_rng(2))
    changes = base.moved(Changes(starts.index, 0.9 * starts.covariates, starts.arms)).changes
    changes = changes.take(np.array([17]))
    assert off_differences(base, changes, 1e-4) > 0.1
    assert off_differences(base, changes, 1e-5) < 1e-6


def test_a_function_and_kernels_have_no_gradients():
    records = random_records(Domain(1.0, 1.0).space, 30, 3)
    kernels = base_of(reference_program("mmd", ridge=0.1), records)
    assert kernels.shares
    assert not kernels.knows_gradients
    assert solves_of_step(kernels) == 4 + 3
    starts = kernels.moved(kernels.propose("random", 0, 4, np.random.default_rng(0)))
    climbed = slopes_followed(kernels, starts, 100, Deadline())
    ends = kernels.moved(climbed.ends).movements[Quantity.V].low
    assert np.max(ends) > np.max(starts.movements[Quantity.V].low)
    assert climbed.tried <= 100


@pytest.mark.parametrize(
    "program",
    [
        reference_program("ipw_logistic", ridge=0.1),
        reference_program("overlap", ridge=0.03),
        reference_program("entropy_balancing", ridge=0.1),
    ],
    ids=lambda program: program.name,
)
def test_ascents_find_more_than_as_many_other_neighbors(program):
    base = base_of(program, random_records(Domain(1.0, 1.0).space, 40, 4))
    rng = np.random.default_rng(0)
    starts = base.moved(base.centered(0, 40))
    climbed = slopes_followed(base, starts.take(starts.highest(10)), 150, Deadline())
    assert climbed.tried <= 150
    ascended = base.moved(climbed.ends).movements[Quantity.V].low
    others = [base.propose(name, 0, 50, rng) for name in ("random", "extreme", "flips", "each")]
    found = [base.moved(changes).movements[Quantity.V].low for changes in others]
    assert np.max(ascended) > np.max(found)


def test_a_full_list_takes_only_what_is_larger():
    class Counted(float):
        looked = 0

        def __sub__(self, other):
            Counted.looked += 1
            return float(self) - float(other)

    state = State()
    for height in (3.0, 1.0, 2.0):
        state.add(Gain(pairs=[({"V": Counted(height)}, height)]), 3, 1e-9)
    before = Counted.looked
    for height in (0.5, 1.0, math.nan):
        state.add(Gain(pairs=[({"V": Counted(height)}, height)]), 3, 1e-9)
    assert Counted.looked == before
    assert state.pairs("V") == [3.0, 2.0, 1.0]
    state.add(Gain(pairs=[({"V": 2.5}, 2.5)]), 3, 1e-9)
    assert state.pairs("V") == [3.0, 2.5, 2.0]


@pytest.mark.one_row_in(15)
@pytest.mark.parametrize(
    ("program", "domain"),
    [
        (reference_program("ipw_logistic", ridge=0.01), PLAIN),
        slow((reference_program("ipw_logistic", ridge=0.003, radius=1.0, trim=2.5), FLOOR)),
        (reference_program("paper_entropy_balancing", ridge=0.3), PLAIN),
        slow((reference_program("paper_entropy_balancing", ridge=0.1, radius=0.7), FLOOR)),
        slow((reference_program("entropy_balancing", ridge=0.02, cap=1.5), PLAIN)),
        (reference_program("entropy_balancing", ridge=0.1, radius=0.3, treated=0.3), FLOOR),
        slow((reference_program("mmd", ridge=0.05, kernel=Gaussian(0.5)), PLAIN)),
        (reference_program("mmd", ridge=0.05, cap=1.7, alpha=0.2, kernel=Gaussian(0.3)), FLOOR),
        (reference_program("mmd_pooled", ridge=0.1, kernel=Linear(0.2)), PLAIN),
        slow((reference_program("overlap", ridge=0.01), PLAIN)),
        (reference_program("overlap", ridge=0.003, radius=1.0), FLOOR),
        (
            reference_program(
                "inverse_probability_tilting", ridge=0.02, radius=1.0, balance=Moments(2)
            ),
            FLOOR,
        ),
        (reference_program("energy_balancing", ridge=0.1), FLOOR),
        (reference_program("stable_balancing", ridge=0.05, alpha=0.3), PLAIN),
        slow((reference_program("kernel_mean_matching", ridge=0.1, kernel=Linear(0.2)), FLOOR)),
        slow((reference_program("kernel_mean_matching", ridge=0.1), PLAIN)),
        (
            reference_program("kernel_mean_matching", ridge=0.1, target=PublicSample([[0.9, 0.0]])),
            FLOOR,
        ),
        (reference_program("ipw_known", coefficient=(1.0, -0.5), trim=2.0), PLAIN),
        (reference_program("ipw_randomized", propensity=0.3), FLOOR),
        (penalized_balance(), PLAIN),
        (robust(), PLAIN),
        (entropic(), FLOOR),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_movements_on_distinct_rows_are_those_of_all_records(program, domain):
    universe = Universe(domain, 23, 2)
    program = program.resolve(domain.space)
    pairs = Pairs.starts(universe, 25, np.random.default_rng(4))
    quickly = surrogates.Surrogate.of(ProgramWeights(program), universe)
    full = surrogates.Surrogate(ProgramWeights(program), universe)
    with np.errstate(all="ignore"):
        quick, slow = quickly.movements(pairs), full.movements(pairs)
    assert np.isfinite(slow[Quantity.V]).sum() > 10
    # weights at a kink are certified to half of the digits
    error = 1e-5 if program.name == "robust" else 2e-7
    for quantity in (Quantity.V, Quantity.L1, Quantity.L2, Quantity.W1, Quantity.LARGEST):
        np.testing.assert_allclose(quick[quantity], slow[quantity], rtol=error, atol=error)


def test_a_search_goes_on_with_certified_weights_alone(monkeypatch):
    universe = Universe(FLOOR, 23, 2)
    quickly = surrogates.Surrogate.of(ProgramWeights(entropic().resolve(FLOOR.space)), universe)
    pairs = Pairs.starts(universe, 25, np.random.default_rng(4))
    monkeypatch.setattr("dp2erm_cvx.weighting.neighbors.kind_weights._MOST_STEPS", 1)
    assert np.isnan(quickly.movements(pairs)[Quantity.V]).all()


IPW = programs()["ipw_logistic"](ridge=0.05)


def test_a_wrong_batch_is_seen_by_the_check(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_DECLARED", 100)
    right = batch.minimize_together

    def wrong(*arguments, **more):
        result = right(*arguments, **more)
        result.points[1:] *= 1 + 1e-4  # the first of every batch is judged by itself
        return result

    monkeypatch.setattr(batch, "minimize_together", wrong)
    records = make_records(120, 3)
    audit = audit_stability(
        IPW, records, records.space, strategies=("random", "flips"), search=SearchPlan(200, seed=3)
    )
    assert audit.check.disagreement > 1


def test_weights_that_are_no_numbers_move_by_anything():
    pair = NeighborPair(None, None, 0, "").moved((np.full(3, np.nan), np.inf), (np.ones(3), 0.0))
    assert all(
        (one.low, one.high) in ((0.0, np.inf), (0.0, 3.0)) for one in pair.movements.values()
    )
