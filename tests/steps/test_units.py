"""Persons with several records as units: exact movements, refusals, what stays private."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import (
    Budget,
    Codebook,
    Dataset,
    Domain,
    OpenDomain,
    PrivateEffect,
    PrivateRanges,
    PrivateRule,
)
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.objective import jacobian_loss
from dp2erm_cvx.calibration.sums import _ROWS, SumLaw
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.data.cells import Treatment
from dp2erm_cvx.data.counts import SamplingWeights, Unit
from dp2erm_cvx.data.private_ranges import candidates
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.design.request import DesignRequest
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.noise import quantile_scores
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.report.words import promised
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.sums import IntegerSums, _counts_of_persons, _filled
from tests.audit.bugs import whole
from tests.calibration.test_sums import FEW, FEW_MARKS, added, law_noise, means, movement, records


def test_arms_that_are_clipped_by_themselves_move_by_more():
    """A person at the bound of two arms at once: twice the ball that the noise of disjoint sums
    covers.
    """
    noise = law_noise(SumLaw.DISJOINT, Noise.GAMMA)
    rows = np.array(
        [[*noise.totals([s], [1.0])[:2], *noise.totals([s], [1.0])] for s in (-4.0, 4.0)]
    )
    assert (
        movement(np.vstack([rows, 0 * rows]).astype(float), Noise.GAMMA) > 1.3 * noise.sensitivity
    )
    held = np.array([noise.totals([s], [s], [1.0]) for s in (-4.0, 4.0)])
    assert movement(held.astype(float), Noise.GAMMA) <= noise.sensitivity


def test_means_of_both_arms_move_by_more_than_single_records_do():
    """The convex hull is not enough where squares of sum and difference are released."""
    noise = law_noise(SumLaw.ARMS, Noise.GAMMA)
    planted = replace(noise, law=SumLaw.COUNTED_ARMS)
    result = movement(
        added(planted, means(records(SumLaw.COUNTED_ARMS, FEW, FEW_MARKS), 2)), Noise.GAMMA
    )
    # a person who falls silent attains what the noise of counted arms covers
    assert result / noise.sensitivity == pytest.approx(1 + (7 - 9 / 4) ** 2 / 16 / 46.875, abs=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5, 0.7, 0.78, 0.9, 1.0])
def test_what_means_of_both_arms_move_is_the_extreme_of_quadratic_forms_on_an_octagon(share):
    r, edge = share, [(1.0, share), (share, 1.0)]
    corners = np.array([(x * s, y * t) for x, y in edge for s in (-1, 1) for t in (-1, 1)])
    order = np.argsort(np.arctan2(corners[:, 1], corners[:, 0]))
    corners, largest = corners[order], 0.0
    for signs in itertools.product((1, -1), repeat=5):
        linear = 18.0 * np.array(signs[:2])
        a, b, c = 4 * signs[2], 4 * signs[3], signs[4]
        form = np.array([[a + b + c, b - a], [b - a, a + b - c]], dtype=float)
        points = list(corners)
        for first, second in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            way = second - first
            bend = way @ form @ way
            if abs(bend) > 1e-12:
                t = -(linear @ way + 2 * first @ form @ way) / (2 * bend)
                points += [first + t * way] if 0 < t < 1 else []
        inner = np.linalg.solve(-2 * form, linear)
        points += [inner] if np.abs(inner).max() <= 1 and np.abs(inner).sum() <= 1 + r else []
        values = [linear @ u + u @ form @ u for u in points]
        largest = max(largest, max(values) - min(values))
    K = 2**20
    assert _ROWS[SumLaw.COUNTED_ARMS].moved(K, round(r * K), True) / K**2 == pytest.approx(
        largest, rel=1e-5
    )


def test_shares_of_a_person_add_up_to_at_most_one_exactly():
    for k in (1, 2, 3, 7, 10, 49, 1000, 4097):
        one = Unit("id", 2).shared(np.ones(k), np.zeros(k, dtype=np.int64))[0]
        assert 1 - Fraction(1, 2**40) < sum(map(Fraction, one.tolist())) <= 1
        several = Unit("id", 2, 3).shared(np.ones(k), np.zeros(k, dtype=np.int64))[0]
        assert (
            min(k, 3) / 3 - 2.0**-40
            < sum(map(Fraction, several.tolist()))
            <= Fraction(min(k, 3), 3)
        )
    result = Unit("id", 3).shared(np.array([1.0, 0, 1, 1, 1, 0]), [0, 0, 1, -1, 0, 2])[0]
    np.testing.assert_allclose(result, [0.5, 0, 1, 0, 0.5, 0], rtol=1e-15)


def test_trace_of_several_records_is_covered_where_a_rank_of_one_is_not():
    """Two orthogonal records of weight 1/2: log det(I + P) = 2 log 1.5, above log(1 + tr P)."""
    loss = LossConstants(2, 1.0, 1.0, 0.0, None, 1.0)
    assert jacobian_loss(2.0, loss, 1, 1.0) >= 2.0 * math.log(1.5) - 1e-12 > math.log(2.0)


N = 40


def domain(number=N, count=1):
    unit = {"column": "id", "number": number, "count": count}
    book = Codebook(unit=unit, treatment={"column": "arm"}, outcome="y", levels={"sex": ["F", "M"]})
    return Domain(1.8, 2.0, ranges=book.ranges({"x": (-1, 1)}), codebook=book)


def frame(number=N, seed=0, most=4):
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(number), rng.integers(1, most + 1, number))
    x = rng.uniform(-1, 1, len(person))
    arm = rng.binomial(1, 1 / (1 + np.exp(-x)))
    y = x + arm + 0.3 * rng.standard_normal(number)[person] + 0.3 * rng.standard_normal(len(person))
    sex = np.where(rng.random(len(person)) < 0.5, "F", "M")
    return pd.DataFrame({"id": [f"p{k}" for k in person], "x": x, "sex": sex, "arm": arm, "y": y})


EFFECTS = {
    "ate": {}, "arms": {}, "att": {"estimand": "att"}, "overlap": {"estimand": "overlap"},
    "by": {"by": "sex"}, "where": {"where": {"sex": "F"}},
    "public": {"settings": {"propensity": 0.4}},
}  # fmt: skip
LEVELS = Treatment(column="arm", levels=("0", "1", "2"), contrasts="pairs")
ROWS = itertools.product((-1.0, 0.3), ("F", "M"), ((0, -9.0), (1, 9.0), (None, 0.0)))
GRID = pd.DataFrame(
    [{"id": "p0", "x": x, "sex": sex, "arm": arm, "y": y} for x, sex, (arm, y) in ROWS]
)


def model(name, **declared):
    public = declared.pop("domain", domain())
    if name == "arms":
        public = replace(public, codebook=replace(public.codebook, treatment=LEVELS))
    if name == "rule":
        return PrivateRule(public, Budget(2.0), settings={"value_share": 0.4}, **declared)
    if name == "risks":
        public = replace(public, outcome_center=0.5, outcome_bound=0.5)
        return PrivateEffect(public, Budget(2.0), estimand="risks", **declared)
    return PrivateEffect(public, Budget(2.0), residual_scale=0.5, **EFFECTS[name], **declared)


@cache
def coded_lists(public):
    """All lists of at most two records of the grid, as data of one person."""
    lists = (
        c
        for size in range(3)
        for c in itertools.combinations_with_replacement(range(len(GRID)), size)
    )
    tables = (GRID.iloc[list(chosen)] for chosen in lists)
    return [Dataset.coded(public, one, one.arm, one.y) for one in tables]


@pytest.mark.one_row_in(12)
@pytest.mark.parametrize(
    ("name", "count"),
    [*((name, 1) for name in [*EFFECTS, "risks", "rule"]), ("ate", 2), ("att", 2), ("arms", 2)],
)
def test_no_list_of_records_moves_a_step_by_more_than_its_noise_covers(name, count):
    """Sums are added over persons: two lists move them by what one of them adds less what the other
    does.
    """
    others = frame()
    both = count == 1 and name in ("ate", "by")
    for noise in ("gamma", "gaussian")[: 1 + both]:
        fitted, seen = model(name, noise=noise, seed=0, domain=domain(count=count)), []
        fitted = replace(fitted, budget=Budget(2.0, 1e-6))
        fitted.after_run = lambda plan, result, seen=seen: seen.append((plan, result.released))
        fitted.fit(others, others.arm, others.y)
        (plan, released), public = seen[0], seen[0][0].study.start.domain
        steps = [step for step in plan.steps if isinstance(step, IntegerSums)]
        sums = {step.name: [] for step in steps}
        for data in coded_lists(fitted.public()):
            records = public.records(data.X, data.a, data.y, data.sampling, data.person)
            for step in steps:
                sums[step.name].append([float(one) for one in step.exact_sums(records, released)])
                records = step.mapped(records, released)
        for step in steps:
            moved = movement(np.array(sums[step.name]), step.integers.noise)
            stated = step.integers.sensitivity
            assert 0.15 * stated < moved <= stated, step.name


def test_rows_of_nobody_and_their_order_change_nothing():
    table = frame()
    order = np.random.default_rng(0).permutation(N)
    moved = pd.concat([table[table.id == f"p{k}"] for k in order])
    strangers = GRID.assign(id=[None, "", " ", float("nan")] * 3)
    result = []
    for one in (table, moved, pd.concat([strangers, table]), table.assign(id=" " + table.id + " ")):
        fitted = model("ate", seed=3).fit(one, one.arm, one.y)
        result.append((fitted.release_.nuisances[0], fitted.effect_))
    assert len({one[0] for one in result}) == 1
    np.testing.assert_allclose([one[1] for one in result], result[0][1], rtol=1e-9)
    # of persons without records
    fitted = model("ate", seed=3).fit(table.iloc[:0], table.arm[:0], table.y[:0])
    assert (fitted.release_.n_samples, fitted.interval_) == (N, (-math.inf, math.inf))


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("count", [1, 2, 30])
def test_the_effect_is_the_mean_over_persons_or_over_records_so_counted(count):
    """A tenth of persons have 30 records of effect 3, the others one each of effect 1."""
    rng, number = np.random.default_rng(1), 8000
    k = np.where(np.arange(number) % 10 == 0, 30, 1)
    person = np.repeat(np.arange(number), k)
    arm = rng.binomial(1, 0.5, len(person))
    y = arm * np.where(k == 30, 3.0, 1.0)[person] + 0.1 * rng.standard_normal(len(person))
    x = rng.uniform(-1, 1, len(person))
    table = pd.DataFrame({"id": person, "x": x, "sex": "F", "arm": arm, "y": y})
    public = replace(domain(number, count), outcome_bound=4.0)
    fitted = PrivateEffect(
        public, Budget(8.0), residual_scale=1.0, settings={"propensity": 0.5}, seed=1
    )
    low, high = fitted.fit(table, table.arm, table.y).interval_
    effect = (0.9 + 0.1 * count * 3.0) / (0.9 + 0.1 * count)
    assert low < effect < high
    assert high - low < 0.8
    assert count > 1 or fitted.effect_ == pytest.approx(effect, abs=0.12)
    words = "the mean over persons of their mean effects"
    if count > 1:
        words = f"those of a person together at most as {count}: the estimate is of the mean effect"
    assert words in " ".join(fitted.release_.summary(10_000).split())


def otherwise(**declared):
    """The domain with another declaration in its codebook."""
    return replace(domain(), codebook=replace(domain().codebook, **declared))


@pytest.fixture(scope="module")
def release():
    table = frame()
    return model("ate", seed=1).fit(table, table.arm, table.y).release_


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    "other",
    [
        domain(count=2), domain().of_records, otherwise(unit=Unit("visit", N)),
        otherwise(treatment=LEVELS),
        otherwise(sampling_weights=SamplingWeights("wt", 2.0)), otherwise(eligible=("x >= 0",)),
        otherwise(treatment=Treatment("other arm")), otherwise(outcome="z"),
    ],
)  # fmt: skip
def test_a_release_is_not_verified_against_another_protected_unit(release, other):
    assert verify(release, domain()).holds
    assert not verify(release, other).holds


def test_a_release_says_that_persons_are_protected(release):
    release = replace(release, guarantee=replace(release.guarantee, standing=Standing.PRIVATE))
    told = " ".join(map(" ".join, promised(release)))
    assert "Replacing any one of the 40 persons, with all of their records, by any other" in told
    assert "the number of persons" in told
    assert "A person with several records is protected less" not in told
    page = " ".join(release.summary(10_000).split())
    assert "The interval takes persons to be independent, not records." in page


def test_a_person_moves_the_scores_of_a_range_as_one_record_does(monkeypatch):
    """All lists of at most two records; three whole ones would move them three times as far."""
    book = domain().codebook
    declared = OpenDomain(book.ranges({"x": None}), (-2.0, 2.0), codebook=book)
    others, grid, middle = (
        frame(most=2).query("id != 'p0'"),
        candidates(None),
        declared.middles(3)[0],
    )

    def filled(table):
        data = Dataset.coded(declared, table, table.arm, table.y)
        counts, *public = _counts_of_persons(
            data, replace(declared.codebook.unit, count=1), [grid, None, None, None]
        )
        assert public == [(), (), ()]
        return [_filled(one, grid, middle, above, N * UNIT) for above, one in enumerate(counts)]

    def moved(tables):
        counts = (filled(pd.concat([others, one])) for one in tables)
        result = np.array([[quantile_scores(one, 12 * UNIT) for one in both] for both in counts])
        return int(max(np.abs(result - one).max() for one in result))

    rows = GRID.assign(x=np.linspace(-2, 2, len(GRID)))
    tables = [
        rows.iloc[list(c)] for k in range(3) for c in itertools.combinations(range(len(rows)), k)
    ]
    assert moved(tables) == UNIT
    three = [
        pd.concat([rows[rows.arm == 1].query(side)] * 9).iloc[:3] for side in ("x < -1", "x > 0.8")
    ]
    assert UNIT - 3 < moved(three) <= UNIT
    result = filled(others.drop_duplicates("id"))
    assert all(np.all(one % UNIT == 0) and one.sum() == N * UNIT for one in result)
    monkeypatch.setattr(Unit, "shared", whole)
    assert moved(three) == 3 * UNIT


def test_ranges_of_persons_are_released_whatever_their_numbers_of_rows():
    table, book = frame(400, seed=1), domain(400).codebook
    declared = OpenDomain(book.ranges({"x": None}), None, codebook=book)
    result = []
    for one in (table, pd.concat([table, table])):
        ranges = PrivateRanges(declared, Budget(2.4), seed=2).fit(one, one.arm, one.y)
        fitted = PrivateEffect(ranges.domain_, Budget(5.6), seed=2).fit(one, one.arm, one.y)
        assert verify(ranges.release_).holds
        assert verify(fitted.release_).holds
        result.append((ranges.release_, fitted.release_))
    assert result[0][0] == result[1][0]
    assert result[0][1].steps == result[1][1].steps
    assert [one.n_samples for one in result[0]] == [400, 400]
    assert [one.guarantee.unit for one in result[0]] == ["persons by id"] * 2
    assert result[0][1].estimate == pytest.approx(result[1][1].estimate, abs=1e-6)


def coded(public):
    table = frame()
    return Dataset.coded(public, table, table.arm, table.y)


def of_data(public, **others):
    data = replace(coded(domain()), **others)
    return public.records(data.X, data.a, data.y, data.sampling, data.person)


def run(**others):
    estimator = model("ate", seed=1)
    estimator.plan(N, 3).run(replace(coded(domain()), **others), estimator.execution())


def fitted(estimator, **others):
    try:
        estimator.fit(replace(coded(domain()), **others))
    finally:
        assert not hasattr(estimator, "release_")


def audited():
    table, other = frame(8, seed=3), frame(8, seed=3)
    other.loc[[0, len(table) - 1], "x"] = 0.9
    estimator = PrivateEffect(
        domain(8), Budget(1.0), settings={"propensity": 0.5}, arithmetic="assumed"
    )
    audit_density(estimator, (table, table.arm, table.y), (other, other.arm, other.y))


NOBODY: dict = {"person": None, "persons": None}
APART, OUTSIDE = r"unit: .* protects single records", "are not those of the domain"
COUNTED = r"count = 2: .* with count = 1 every person counts once"


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: PrivateTwoStageERM(domain(), Budget(1.0)).fit(frame(), frame().arm, frame().y),
        APART),
        (lambda: PrivateTwoStageERM(domain(), Budget(1.0)).plan(N, 3), APART),
        (lambda: DesignRequest(domain(), N, 3, Budget(1.0)), APART), (audited,
        "several persons differ"),
        (lambda: of_data(domain()).replaced(0, np.zeros(3), 1), "replaces all records of a person"),
        (lambda: of_data(domain(), person=None), "which of 40 persons"),
        (lambda: Universe(domain(), N + 1, 3), "declares 40 persons"),
        (lambda: coded(domain(39)), "40 persons, and number = 39"), (lambda: run(**NOBODY),
        OUTSIDE),
        (lambda: run(persons=N + 1), OUTSIDE), (lambda: fitted(model("ate"), **NOBODY), OUTSIDE),
        (lambda: fitted(PrivateEffect(otherwise(unit=None), Budget(1.0), seed=1)), OUTSIDE),
        *((lambda k=k: model(k, domain=domain(count=2)).plan(N, 3), COUNTED) for k in ("risks",
        "rule")),
        (lambda: otherwise(unit={"column": "id", "number": 1}), "at least 2"),
        (lambda: otherwise(unit={"column": "arm", "number": 9}), "declared otherwise"),
        (lambda: otherwise(unit={"column": "id"}), "number"), (lambda: otherwise(unit=3),
        "must be a table"),
    ],
)  # fmt: skip
def test_what_does_not_know_persons_refuses_them(call, said):
    with pytest.raises((DataError, DeclarationError), match=said):
        call()


def test_a_unit_is_read_back_and_no_row_counts_a_person_twice(release):
    assert Codebook.from_dict(domain().codebook.to_dict()).unit == Unit("id", N)
    assert Domain.from_dict(domain().to_dict()) == domain()
    once = replace(coded(domain()), repeats=np.ones(len(frame()), dtype=np.int64))
    assert model("ate", seed=1).fit(once).release_.to_json() == release.to_json()
