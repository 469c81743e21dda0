"""The scale of an outcome from pairs: exact sensitivity and losses, planted errors, what follows
from it.
"""

import functools
import itertools
import math
from collections import Counter
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, Universe, noise, read_release
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.data.counts import Unit
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.noise import drawn_in_order
from dp2erm_cvx.plan.defaults import scale_share
from dp2erm_cvx.steps import outcome_scale
from dp2erm_cvx.steps.outcome_scale import CLASSES, SCALE, OutcomeScale, class_names

EPSILON = 1.0
#: Outcomes of three classes of differences, and a unit that does not count.
VALUES = (-4.0, -3.99, 4.0, None)


def domain(**codebook):
    return Domain(1.0, 4.0, codebook=Codebook(**codebook) if codebook else None)


PLAIN = domain()


def step_of(public, n, epsilon=EPSILON):
    return OutcomeScale().plan(Universe(public, n, 1), Budget(epsilon), {})


def records_of(outcomes):
    """One record of every seat; None does not count."""
    y = [0.0 if one is None else one for one in outcomes]
    counts = [float(one is not None) for one in outcomes]
    n = len(outcomes)
    return PLAIN.records(np.zeros((n, 1)), np.zeros(n, dtype=int), y, counts)


def pairings(seats):
    """All ways to pair an even number of seats."""
    first, *others = seats
    if len(others) == 1:
        return [[(first, others[0])]]
    found = []
    for other in others:
        left = [seat for seat in others if seat != other]
        found += [[(first, other), *rest] for rest in pairings(left)]
    return found


def all_pairings(n):
    """All that may be drawn of n seats: one of an odd number is left out."""
    if n % 2 == 0:
        return pairings(range(n))
    left_out = ([seat for seat in range(n) if seat != one] for one in range(n))
    return [pairing for seats in left_out for pairing in pairings(seats)]


def used(counts):
    """Counts of the three classes that VALUES make."""
    return tuple(int(counts[place]) for place in (0, 6, CLASSES - 1))


@functools.cache
def table(n):
    """Counts by outcomes of n seats and pairing."""
    step = step_of(PLAIN, n)
    drawn = [np.array(one) for one in all_pairings(n)]
    known = {}
    for outcomes in itertools.product(VALUES, repeat=n):
        records = records_of(outcomes)
        known[outcomes] = [used(step.counts(records, pairs)) for pairs in drawn]
    return known


def neighbors(n):
    """All datasets of n seats, beside those that differ in one of them."""
    for outcomes in itertools.product(VALUES, repeat=n):
        for seat, value in itertools.product(range(n), VALUES):
            yield outcomes, (*outcomes[:seat], value, *outcomes[seat + 1 :])


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_record_moves_two_counts_by_one_at_any_pairing(n):
    known = table(n)
    moved = [
        sum(abs(a - b) for a, b in zip(one, other, strict=True))
        for first, second in neighbors(n)
        for one, other in zip(known[first], known[second], strict=True)
    ]
    assert max(moved) == step_of(PLAIN, n).calibration.sensitivity == 2


def law(counts, scale, reach=5):
    """Log probabilities of all outputs near, of the average over these equally likely counts."""
    points = np.array(list(itertools.product(range(-reach, reach + 3), repeat=3)))
    centers, times = np.unique(np.array(counts), axis=0, return_counts=True)
    sizes = np.abs(points[:, None, :] - centers[None, :, :]).sum(axis=2)
    return special.logsumexp(-sizes / scale, b=times / len(counts), axis=1)


def shuffled_loss(known, scale):
    """The largest loss over datasets that differ in one record, in whatever order they come."""
    laws = {outcomes: law(counts, scale) for outcomes, counts in known.items()}
    sets = {}
    for outcomes, one in laws.items():
        sets.setdefault(tuple(sorted(map(str, outcomes))), one)
    worst = 0.0
    for (first, one), (second, other) in itertools.combinations(sets.items(), 2):
        if _common(first, second) == len(first) - 1:
            worst = max(worst, float(np.max(np.abs(one - other))))
    return worst


def _common(first, second):
    left, found = list(second), 0
    for one in first:
        if one in left:
            left.remove(one)
            found += 1
    return found


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_pairs_in_secret_lose_epsilon_and_no_more_whatever_the_order_of_the_records(n):
    scale = step_of(PLAIN, n).calibration.scale
    loss = shuffled_loss(table(n), scale)
    assert loss <= EPSILON
    if n % 2 == 0:  # of an odd number a seat is left out, which hides it for a part
        assert loss >= 0.98 * EPSILON


def test_noise_for_one_count_would_lose_twice_epsilon():
    """Planted: a histogram whose sensitivity is taken to be 1."""
    assert shuffled_loss(table(4), 1.0 / EPSILON) > 1.9 * EPSILON


@pytest.mark.parametrize(
    "pairing", [((0, 1), (2, 3), (4, 5)), ((0, 3), (1, 2), (4, 5))], ids=["file", "public shuffle"]
)
def test_pairs_that_do_not_depend_on_a_secret_lose_more_where_records_are_sorted(pairing):
    """Planted: in a table sorted by its outcomes one record moves all others by a seat."""
    step = step_of(PLAIN, 6)
    laws = {}
    for outcomes in itertools.combinations_with_replacement((-4.0, -3.99, 4.0), 6):
        counts = used(step.counts(records_of(outcomes), np.array(pairing)))
        laws[outcomes] = law([counts], step.calibration.scale)
    losses = [
        float(np.max(np.abs(laws[first] - laws[second])))
        for first, second in itertools.combinations(laws, 2)
        if _common(first, second) == 5
    ]
    assert max(losses) > 1.9 * EPSILON


def test_units_that_do_not_count_keep_their_seats():
    """Planted: left out before they are paired, one of them moves all that follow.

    Where they keep their seats, all neighbors are within two: the test of all pairings has such
    units.
    """
    step = step_of(PLAIN, 4)
    pairs = np.array([(0, 1), (2, 3)])

    def counts(outcomes):
        here = [one for one in outcomes if one is not None]
        kept = pairs[: len(here) // 2]
        return used(step.counts(records_of([*here, *[None] * (4 - len(here))]), kept))

    known = {one: counts(one) for one in itertools.product(VALUES, repeat=4)}
    moved = [
        sum(abs(a - b) for a, b in zip(known[one], known[other], strict=True))
        for one, other in neighbors(4)
    ]
    assert max(moved) > 2


@pytest.mark.parametrize("seeded", [False, True])
def test_all_seats_are_paired_once_and_every_pair_is_as_likely(seeded):
    step = step_of(PLAIN, 5)
    drawn = [step.drawn_pairs(seed if seeded else None) for seed in range(2000)]
    assert all(len(set(pairs.ravel().tolist())) == 4 for pairs in drawn)
    seen = np.zeros((5, 5))
    for pairs in drawn:
        for one, other in pairs.tolist():
            seen[one, other] += 1
            seen[other, one] += 1
    # 2 of 10 pairs in each of 2000: 400 of each, and a standard deviation of 18
    assert np.all(np.abs(seen[~np.eye(5, dtype=bool)] - 400) < 90)


def test_every_order_of_drawn_numbers_is_as_likely():
    orders = Counter(tuple(drawn_in_order(4, 3).tolist()) for _ in range(4800))
    assert set(orders) == set(itertools.permutations(range(4), 3))
    # 200 of each of 24 orders, and a standard deviation of 14
    assert max(abs(times - 200) for times in orders.values()) < 70


def test_keys_of_which_two_are_equal_are_drawn_anew(monkeypatch):
    keys = iter([[7, 5, 7], [3, 9, 3], [8, 2, 5]])
    source = SimpleNamespace(randbytes=lambda size: np.array(next(keys), dtype=np.uint64).tobytes())
    monkeypatch.setattr(noise, "random_source", lambda seed: source)
    assert drawn_in_order(3, 2).tolist() == [1, 2]
    assert next(keys, None) is None


@pytest.mark.parametrize("seed", [None, 1])
def test_no_more_seats_are_drawn_than_say_enough(seed):
    step = step_of(PLAIN, 10**9)
    assert step.n_seats == outcome_scale.MOST_SEATS
    pairs = step.drawn_pairs(seed)
    assert pairs.shape == (step.n_seats // 2, 2)
    assert pairs.max() > 9 * 10**8


def test_a_person_has_the_mean_of_its_own_records_and_one_without_any_does_not_count():
    public = domain(unit=Unit("person", number=4))
    step = step_of(public, 4)
    y, person = [1.0, 3.0, 0.0, -1.0], [0, 0, 1, 2]
    records = public.records(np.zeros((4, 1)), [0, 0, 0, 0], y, [1.0] * 4, person)
    both = step.counts(records, np.array([(0, 1), (2, 3)]))
    assert np.flatnonzero(both).tolist() == [CLASSES - 2]  # 2 - 0, of a range of 8
    assert both.sum() == 1  # the fourth has no record


def counts_of(y, step, seed=0, noise=True):
    """Counts (CLASSES,) of outcomes, with Laplace noise of the scale of the step."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(len(y))[: step.n_seats].reshape(-1, 2)
    apart = np.abs(y[pairs[:, 0]] - y[pairs[:, 1]])
    counts = np.bincount(np.searchsorted(step.edges, apart, side="right"), minlength=CLASSES)
    return counts + (rng.laplace(0.0, step.calibration.scale, CLASSES) if noise else 0.0)


LAWS = {
    "normal": (lambda rng, n: rng.normal(0.0, 1.0, n), 0.9, 1.3),
    "nine in ten are ties": (
        lambda rng, n: np.where(rng.random(n) < 0.9, 0.0, rng.gamma(1, 1, n)),
        1.0,
        8.0,
    ),
    "counts": (lambda rng, n: rng.poisson(0.3, n) * 1.0, 1.0, 3.0),
    "two clusters": (
        lambda rng, n: np.where(rng.random(n) < 0.3, 2.0, -1.0) + rng.normal(0, 0.1, n),
        0.5,
        2,
    ),
    "heavy tails": (lambda rng, n: np.clip(rng.standard_t(3, n), -10, 10), 0.6, 1.3),
}


@pytest.mark.parametrize("bound", [10.0, 1000.0])
@pytest.mark.parametrize("name", LAWS)
def test_the_scale_is_that_of_the_outcome_however_wide_its_bound(name, bound):
    drawn, low, high = LAWS[name]
    step = OutcomeScale().plan(Universe(Domain(1.0, bound), 20_000, 1), Budget(0.02), {})
    y = drawn(np.random.default_rng(5), 20_000)
    found = [step.scale(counts_of(y, step, seed)) / np.std(y) for seed in range(5)]
    assert low < min(found) <= max(found) < high


def test_counts_that_are_noise_alone_say_half_the_outcome_bound():
    step = step_of(PLAIN, 40, epsilon=0.01)
    assert step.scale(np.zeros(CLASSES)) == 2.0
    assert step.scale(np.full(CLASSES, -1e15)) == 2.0
    assert 0.0 < step.scale(np.array([1e15, *[0] * (CLASSES - 1)])) <= 2.0


def test_classes_are_named_in_units_of_the_outcome():
    names = class_names(step_of(PLAIN, 4).edges)
    assert len(names) == CLASSES
    assert names[-1] == "from 4"
    assert names[1].startswith("from 0.000244")


@pytest.mark.parametrize(
    ("total", "share"), [(999.0, None), (1000.0, 0.1), (2000.0, 0.05), (1e6, 0.03)]
)
def test_the_share_of_the_scale_is_what_its_noise_needs(total, share):
    assert scale_share(total) == share


def frame(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    a = (rng.random(n) < 0.5).astype(int)
    return X, a, 3.0 * a - 2.0 * X[:, 0] + rng.normal(0.0, 1.0, n)


def model(**asked):
    return PrivateEffect(Domain(1.5, 40.0, ranges=[(-1.0, 1.0)] * 2), Budget(2.0), **asked)


ABSURD = (
    np.zeros(CLASSES),
    np.full(CLASSES, -(10**9)),
    np.array([10**9, *[0] * (CLASSES - 1)]),
    np.array([*[0] * (CLASSES - 1), 10**9]),
)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("counts", ABSURD, ids=["nothing", "negative", "ties", "far"])
@pytest.mark.parametrize(
    "settings", [{}, {"weights": "entropy_balancing"}], ids=["score", "weights"]
)
def test_every_output_has_a_plan_within_what_was_charged(settings, counts):
    plan = model(**settings).plan(2000, 2)
    later = plan.after(counts)
    assert later.guarantee == plan.guarantee
    assert [step.name for step in later.steps] == [step.name for step in plan.steps]
    assert math.fsum(step.guarantee.epsilon for step in later.steps) <= 2.0
    for one, other in zip(plan.steps, later.steps, strict=True):
        assert one.guarantee.epsilon == pytest.approx(other.guarantee.epsilon, rel=1e-12)


def test_gaussian_steps_share_one_delta_beside_the_scale():
    settings = replace(model(), budget=Budget(2.0, 1e-6), noise="gaussian")
    plan = settings.plan(2000, 2)
    declared = replace(settings, residual_scale=40.0 / 3.0).plan(2000, 2)
    assert plan.step(SCALE).guarantee.delta == 0.0
    assert plan.joint == declared.joint
    # whatever law later steps have at the scale that is released, all of delta is charged before
    assert plan.guarantee == Budget(2.0, 1e-6)
    assert all(plan.after(counts).guarantee == plan.guarantee for counts in ABSURD)
    assert plan.curve is None  # the law of later steps follows from the scale


def test_the_release_says_its_scale_and_is_read_back_and_no_other_counts_are():
    fitted = model(seed=3).fit(*frame())
    release = fitted.release_
    assert release.settings["residual_scale"] == pytest.approx(np.std(frame()[2]), rel=0.5)
    text = release.to_json()
    assert read_release(text) == release
    first = release.nuisances[0]
    assert first.step == SCALE
    moved = replace(first, coefficient=(0.0,) * CLASSES)
    forged = replace(release, nuisances=(moved, *release.nuisances[1:]))
    with pytest.raises(DeclarationError, match="follows"):
        read_release(forged.to_json())


def test_a_scale_cannot_be_declared_as_if_it_had_been_released():
    release = model(seed=3).fit(*frame()).release_
    forged = replace(
        release, declared={**release.declared, "released_scale": {"value": 0.1, "planned": {}}}
    )
    with pytest.raises(DeclarationError, match="cannot be declared"):
        read_release(forged.to_json())


def test_a_share_is_refused_where_the_scale_is_known():
    with pytest.raises(DeclarationError, match="leave one of them out"):
        model(residual_scale=1.0, settings={"scale_share": 0.05}).plan(2000, 2)
    event = Domain(1.5, 0.5, 0.5, binary_outcome=True)
    with pytest.raises(DeclarationError, match="two values"):
        PrivateEffect(event, Budget(2.0), settings={"scale_share": 0.05}).plan(2000, 2)


def test_nothing_is_released_first_where_a_scale_is_declared_or_the_budget_is_too_small():
    assert model(residual_scale=1.0).plan(2000, 2).step(SCALE) is None
    assert model(settings={"scale_share": None}).plan(2000, 2).step(SCALE) is None
    assert model().plan(400, 2).step(SCALE) is None
    assert model().plan(500, 2).step(SCALE) is not None


#: Records of persons: nobody, one record, and two whose mean lies in the middle.
PERSONS = ((), (-4.0,), (-3.99,), (4.0,), (4.0, -4.0))


def numbered(persons):
    """Records of persons as a table has them: numbered in their order, those without a record left
    out.
    """
    here = [own for own in persons if own]
    person = [number for number, own in enumerate(here) for _ in own]
    y = [value for own in here for value in own]
    n = len(y)
    public = domain(unit=Unit("person", number=len(persons)))
    records = public.records(np.zeros((n, 1)), np.zeros(n, dtype=int), y, np.ones(n), person)
    return step_of(public, len(persons)), records


def test_persons_lose_epsilon_and_no_more_though_one_who_leaves_moves_all_that_follow():
    drawn = [np.array(one) for one in all_pairings(4)]
    secret, fixed = {}, {}
    for persons in itertools.combinations_with_replacement(PERSONS, 4):
        step, records = numbered(persons)
        counts = [
            tuple(step.counts(records, pairs)[[0, 6, CLASSES - 2, CLASSES - 1]]) for pairs in drawn
        ]
        secret[persons] = law([one[:3] for one in _merged(counts)], step.calibration.scale)
        fixed[persons] = counts[0]
    near = [pair for pair in itertools.combinations(secret, 2) if _common(*pair) == 3]
    assert max(float(np.max(np.abs(secret[one] - secret[other]))) for one, other in near) <= EPSILON
    # planted: pairs by the order of the labels
    assert max(np.abs(np.subtract(fixed[one], fixed[other])).sum() for one, other in near) > 2


def _merged(counts):
    """Counts with the last two classes put together."""
    return [(ties, close, apart + far) for ties, close, apart, far in counts]


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("counts", ABSURD, ids=["nothing", "negative", "ties", "far"])
def test_later_steps_are_those_of_a_declared_scale_at_what_is_left_of_the_budget(counts):
    """So what is known of the loss of these holds at every output."""
    plan = model().plan(2000, 2)
    study = plan.after(counts).study
    settings = {
        name: value for name, value in asdict(study.settings).items() if name != "scale_share"
    }
    declared = replace(model(residual_scale=study.scale, settings=settings), budget=study.rest)
    pairs = zip(plan.after(counts).steps[1:], declared.plan(2000, 2).steps, strict=True)
    assert all(one.calibration == other.calibration for one, other in pairs)


def test_an_audit_of_densities_refuses_what_follows_from_a_secret_pairing():
    table = frame(40)
    plan = model(settings={"scale_share": 0.1}).plan(40, 2)
    with pytest.raises(DeclarationError, match="declare residual_scale"):
        audit_density(plan, table, table)
