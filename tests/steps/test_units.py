"""Persons with several records as units: exact movements, refusals, what stays private."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import (
    Budget,
    Codebook,
    Domain,
    PrivateEffect,
    PrivateRanges,
    PrivateRule,
    PrivateTwoStageERM,
    Treatment,
)
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.objective import jacobian_loss
from dp2erm_cvx.calibration.sums import _ROWS, SumLaw
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.design.request import DesignRequest
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.mechanism import quantile_scores
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.private_ranges import candidates
from dp2erm_cvx.release.record import Standing
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.release.words import promised
from dp2erm_cvx.report.datasheet import datasheet
from dp2erm_cvx.sampling import SamplingWeights, Unit
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.sums import IntegerSums, _counts_of_persons, _filled
from tests.audit.bugs import whole
from tests.calibration.test_sums import FEW, FEW_MARKS, added, law_noise, means, movement, records


def test_arms_that_are_clipped_by_themselves_move_by_more():
    """A person at the bound of two arms at once: twice the ball that the noise of disjoint sums covers."""
    noise = law_noise(SumLaw.DISJOINT, Noise.GAMMA)
    rows = np.array([[*noise.totals([s], [1.0])[:2], *noise.totals([s], [1.0])] for s in (-4.0, 4.0)])
    assert movement(np.vstack([rows, 0 * rows]).astype(float), Noise.GAMMA) > 1.3 * noise.sensitivity
    held = np.array([noise.totals([s], [s], [1.0]) for s in (-4.0, 4.0)])
    assert movement(held.astype(float), Noise.GAMMA) <= noise.sensitivity


def test_means_of_both_arms_move_by_more_than_single_records_do():
    """The convex hull is not enough where squares of sum and difference are released."""
    noise = law_noise(SumLaw.ARMS, Noise.GAMMA)
    planted = replace(noise, law=SumLaw.COUNTED_ARMS)
    result = movement(added(planted, means(records(SumLaw.COUNTED_ARMS, FEW, FEW_MARKS), 2)), Noise.GAMMA)
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
    assert _ROWS[SumLaw.COUNTED_ARMS].moved(K, round(r * K), True) / K**2 == pytest.approx(largest, rel=1e-5)


def test_bounds_of_the_proofs_for_gaussian_noise():
    x, y = np.meshgrid(np.linspace(0, 2, 401), np.linspace(0, 2, 401))
    apart = (x**2 + y**2) / 2 + (x * (2 - x)) ** 2 + (y * (2 - y)) ** 2 + (x + y - x * y) ** 2 / 4
    assert apart.max() <= 4.0 + 1e-12  # both arms
    q = np.linspace(0, 1, 1001)
    assert ((1 + q) ** 2 * (4 + 9 * (1 - q) ** 2)).max() <= 16.0 + 1e-12  # contrasts
    most, least, part = np.meshgrid(*(np.linspace(0, 1, 101),) * 3)
    least, d = least * most, part * (1.0 + least) * most
    d = part * (most + least)
    one = 100 * d**2 + 49 * (most - least) ** 2 + 49 * d**2 * (2 * most - d) ** 2
    assert np.all(one <= 200 * (most + least) + 1e-9)  # groups, of which shares add up to 2


def test_the_sum_of_the_squares_of_both_contrasts_would_not_do():
    v, w = np.array([1.0, 0.0]), np.array([-0.5, 0.5])
    assert 2 * np.abs(v - w).sum() + v @ v - w @ w == 4.5
    assert 2 * np.abs(v - w).sum() + np.abs(v).sum() ** 2 - np.abs(w).sum() ** 2 == 4.0


def test_shares_of_a_person_add_up_to_at_most_one_exactly():
    for k in (1, 2, 3, 7, 10, 49, 1000, 4097):
        one = Unit("id", 2).shared(np.ones(k), np.zeros(k, dtype=np.int64))[0]
        assert 1 - Fraction(1, 2**40) < sum(map(Fraction, one.tolist())) <= 1
        several = Unit("id", 2, 3).shared(np.ones(k), np.zeros(k, dtype=np.int64))[0]
        assert min(k, 3) / 3 - 2.0**-40 < sum(map(Fraction, several.tolist())) <= Fraction(min(k, 3), 3)
    result = Unit("id", 3).shared(np.array([1.0, 0, 1, 1, 1, 0]), [0, 0, 1, -1, 0, 2])[0]
    np.testing.assert_allclose(result, [0.5, 0, 1, 0, 0.5, 0], rtol=1e-15)


def test_trace_of_several_records_is_covered_where_a_rank_of_one_is_not():
    """Two orthogonal records of weight 1/2: log det(I + P) = 2 log 1.5, above log(1 + tr P)."""
    exact = math.log(np.linalg.det(np.eye(2) + 0.5 * np.eye(2)))
    loss = LossConstants(
        n_parameters=2,
        gradient_radius=1.0,
        hessian_trace=1.0,
        strong_convexity=0.0,
        theta_bound=None,
        outcome_bound=1.0,
    )
    assert jacobian_loss(2.0, loss, 1, 1.0) >= exact - 1e-12
    assert math.log1p(1.0) < exact


SEX = {"sex": ["F", "M"]}
N = 40


def domain(number=N, count=1, **declared):
    book = Codebook(
        unit={"column": "id", "number": number, "count": count},
        treatment={"column": "arm"},
        outcome="y",
        levels=SEX,
        **declared,
    )
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
    "ate": {},
    "att": {"estimand": "att"},
    "overlap": {"estimand": "overlap"},
    "by": {"by": "sex"},
    "where": {"where": {"sex": "F"}},
    "cells": {"settings": {"cells": {"x": 2, "sex=F": 1, "sex=M": 1}}},
    "public": {"settings": {"propensity": 0.4}},
    "arms": {},
}
LEVELS = Treatment(column="arm", levels=("0", "1", "2"), contrasts="pairs")
GRID = pd.DataFrame(
    [
        {"id": "p0", "x": x, "sex": sex, "arm": arm, "y": y}
        for x in (-1.0, 0.3)
        for sex in ("F", "M")
        for arm, y in ((0, -9.0), (1, 9.0), (None, 0.0))
    ]
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


def lists(most):
    """All lists of at most ``most`` records of the grid, as tables of one person."""
    for size in range(most + 1):
        for chosen in itertools.combinations_with_replacement(range(len(GRID)), size):
            yield GRID.iloc[list(chosen)]


@pytest.mark.parametrize(
    ("name", "count"),
    [*((name, 1) for name in [*EFFECTS, "risks", "rule"]), ("ate", 2), ("att", 2), ("arms", 2)],
)
def test_no_list_of_records_moves_a_step_by_more_than_its_noise_covers(name, count):
    """Sums are added over persons: two lists move them by what one of them adds less what the other does."""
    others, coded = frame(), []
    both = count == 1 and name in ("ate", "att", "overlap", "by", "rule")
    for noise in ("gamma", "gaussian")[: 1 + both]:
        fitted = replace(
            model(name, noise=noise, seed=0, domain=domain(count=count)), budget=Budget(2.0, 1e-6)
        )
        seen = []
        fitted.look = lambda plan, result, seen=seen: seen.append((plan, result.released))
        fitted.fit(others, others.arm, others.y)
        (plan, released), public = seen[0], seen[0][0].study.start.domain
        coded = coded or [Dataset.coded(fitted.public(), one, one.arm, one.y) for one in lists(2)]
        steps = [step for step in plan.steps if isinstance(step, IntegerSums)]
        sums = {step.name: [] for step in steps}
        for data in coded:
            records = public.records(data.X, data.a, data.y, data.sampling, data.person)
            for step in steps:
                sums[step.name].append([float(one) for one in step.exact_sums(records, released)])
                records = step.mapped(records, released)
        for step in steps:
            moved = movement(np.array(sums[step.name]), step.integers.noise)
            stated = step.integers.sensitivity
            assert 0.15 * stated < moved <= stated, step.name


def test_three_whole_records_would_shift_a_regression_three_times_as_far(monkeypatch):
    """Far out every record pulls with its full slope: by at most epsilon of the noise for all of a person."""
    others = frame(12, seed=2, most=1).query("id != 'p0'")
    fitted = PrivateEffect(domain(12), Budget(1.0), residual_scale=0.5, settings={"propensity": 0.5})
    row = pd.DataFrame([{"id": "p0", "x": 1.0, "sex": "F", "arm": 1, "y": 0.0}])
    ratios = {}
    for count in (1, 3, "whole"):
        if count == "whole":
            monkeypatch.setattr(Unit, "shared", whole)
        gradients = []
        for y in (2.0, -2.0):
            one = pd.concat([others, *[row.assign(y=y)] * (1 if count == 1 else 3)])
            plan, data = fitted.prepared(one, one.arm, one.y)
            step, public = plan.step("center"), plan.study.start.domain
            records = public.records(data.X, data.a, data.y, data.sampling, data.person)
            mapped, weights = step.mapped(records, {})
            program = step.instance(mapped, weights, np.zeros(step.calibration.n_parameters)).model
            gradients.append(program.gradient(np.zeros(step.calibration.n_parameters)))
        ratios[count] = float(np.linalg.norm(gradients[0] - gradients[1])) / step.calibration.scale
    assert ratios[3] == pytest.approx(ratios[1], rel=1e-9)
    assert 0.5 * step.calibration.epsilon < ratios[1] <= step.calibration.epsilon
    assert ratios["whole"] == pytest.approx(3.0 * ratios[1], rel=1e-9)


def test_neighbors_of_an_audit_differ_in_the_records_of_one_person():
    table = frame(8, seed=3)
    other = table.copy()
    other.loc[[0, len(table) - 1], "x"] = 0.9
    fitted = PrivateEffect(domain(8), Budget(1.0), settings={"propensity": 0.5}, arithmetic="assumed")
    with pytest.raises(DataError, match="several persons differ"):
        audit_density(fitted, (table, table.arm, table.y), (other, other.arm, other.y))


@pytest.mark.parametrize("name", [*EFFECTS, "risks", "rule"])
def test_nothing_but_what_noise_is_added_to_depends_on_the_number_of_rows(name):
    table = frame()
    more = pd.concat([table, *[table[table.id == "p3"]] * 50, GRID.iloc[:3].assign(id="  ")])
    both = []
    for one in (table, more):
        fitted = model(name, seed=5).fit(one, one.arm, one.y)
        both.append(json.loads(fitted.release_.to_json()))
    first, second = both
    assert set(first) == set(second)
    for field in ("n_samples", "steps", "settings", "domain", "declared", "guarantee", "columns"):
        if name != "rule" or field != "settings":
            kept = [{**one[field], "effect_center": 0} if field == "settings" else one[field] for one in both]
            assert kept[0] == kept[1], field
    assert [sorted(one) for one in first["nuisances"]] == [sorted(one) for one in second["nuisances"]]
    assert str(len(table)) not in json.dumps({k: first[k] for k in ("declared", "steps", "guarantee")})


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


def test_a_table_without_rows_is_one_of_persons_without_records():
    empty = frame().iloc[:0]
    fitted = model("ate", seed=3).fit(empty, empty.arm, empty.y)
    assert fitted.release_.n_samples == N
    assert fitted.interval_ == (-math.inf, math.inf)


@pytest.mark.parametrize("count", [1, 2, 10, 30])
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
    fitted = PrivateEffect(public, Budget(8.0), residual_scale=1.0, settings={"propensity": 0.5}, seed=1)
    low, high = fitted.fit(table, table.arm, table.y).interval_
    effect = (0.9 + 0.1 * count * 3.0) / (0.9 + 0.1 * count)
    assert low < effect < high
    assert high - low < 0.8
    assert count > 1 or fitted.effect_ == pytest.approx(effect, abs=0.12)
    told, words = (
        " ".join(fitted.release_.summary(10_000).split()),
        "the mean over persons of their mean effects",
    )
    if count > 1:
        words = f"those of a person together at most as {count}: the estimate is of the mean effect"
    assert words in told


def test_records_that_count_unequally_are_refused_where_sampling_weights_are():
    public = domain(count=2)
    for fit in (
        lambda: model("risks", domain=public).plan(N, 3),
        lambda: PrivateRule(public, Budget(2.0), settings={"value_share": 0.4}).plan(N, 3),
    ):
        with pytest.raises(DeclarationError, match=r"count = 2: .* with count = 1 every person counts once"):
            fit()


def otherwise(**declared):
    """The domain with another declaration in its codebook."""
    return replace(domain(), codebook=replace(domain().codebook, **declared))


@pytest.mark.parametrize(
    "other",
    [
        domain(count=2),
        domain().of_records,
        otherwise(unit=Unit("visit", N)),
        otherwise(treatment=Treatment("arm", levels=("0", "1", "2"))),
        otherwise(sampling_weights=SamplingWeights("wt", 2.0)),
        otherwise(eligible=("x >= 0",)),
        otherwise(treatment=Treatment("other arm")),
        otherwise(outcome="z"),
    ],
)
def test_a_release_is_not_verified_against_another_protected_unit(other):
    table = frame()
    release = model("ate", seed=1).fit(table, table.arm, table.y).release_
    assert verify(release, domain()).holds
    assert not verify(release, other).holds


def test_a_person_moves_the_scores_of_a_range_as_one_record_does(monkeypatch):
    """All lists of at most two records; three whole ones would move them three times as far."""
    book, rank = domain().codebook, 12 * UNIT
    declared = PrivateRanges(0.5, book.ranges({"x": None}), (-2.0, 2.0), codebook=book)
    public, others = declared.domain(3), frame(most=2).query("id != 'p0'")
    grids = [candidates(None), None, None, None]
    middle = declared.middles(3)[0]

    def filled(counts):
        return [_filled(one, grids[0], middle, above, N * UNIT) for above, one in enumerate(counts)]

    def scores(rows):
        both = pd.concat([others, rows])
        data = Dataset.coded(declared, both, both.arm, both.y)
        result = _counts_of_persons(data, public, grids)
        assert result[1:] == [(), (), ()]
        return [quantile_scores(one, rank) for one in filled(result[0])]

    def moved(tables):
        result = np.array([scores(one) for one in tables])
        return int(max(np.abs(result - one).max() for one in result))

    rows = GRID.assign(x=np.linspace(-2, 2, len(GRID)))
    tables = [rows.iloc[list(c)] for k in range(3) for c in itertools.combinations(range(len(rows)), k)]
    assert moved(tables) == UNIT
    three = [pd.concat([rows[rows.arm == 1].query(side)] * 9).iloc[:3] for side in ("x < -1", "x > 0.8")]
    assert UNIT - 3 < moved(three) <= UNIT
    alone = Dataset.coded(declared, others, others.arm, others.y)
    one_each = others.drop_duplicates("id")
    data = Dataset.coded(declared, one_each, one_each.arm, one_each.y)
    result = filled(_counts_of_persons(data, public, grids)[0])
    assert all(np.all(one % UNIT == 0) and one.sum() == N * UNIT for one in result)
    monkeypatch.setattr(Unit, "shared", whole)
    assert moved(three) == 3 * UNIT
    assert alone.n_samples == N


def test_ranges_of_persons_are_released_whatever_their_numbers_of_rows():
    table, book = frame(400, seed=1), domain(400).codebook
    declared = PrivateRanges(0.3, book.ranges({"x": None}), None, codebook=book)
    result = []
    for one in (table, pd.concat([table, table])):
        fitted = PrivateEffect(declared, Budget(8.0), residual_scale=0.5, seed=2).fit(one, one.arm, one.y)
        result.append(json.loads(fitted.release_.to_json()))
        assert verify(fitted.release_).holds
    assert result[0]["ranges"] == result[1]["ranges"]
    assert result[0]["steps"] == result[1]["steps"]
    assert result[0]["n_samples"] == 400
    assert result[0]["estimate"] == pytest.approx(result[1]["estimate"], abs=1e-6)


def test_what_does_not_know_persons_refuses_them():
    table, public = frame(), domain()
    fits = [
        lambda: PrivateTwoStageERM(public, Budget(1.0)).fit(table, table.arm, table.y),
        lambda: PrivateTwoStageERM(public, Budget(1.0)).plan(N, 3),
        lambda: DesignRequest(public, N, 3, Budget(1.0)),
    ]
    for fit in fits:
        with pytest.raises(DeclarationError, match=r"unit: .* protects single records"):
            fit()
    data = Dataset.coded(public, table, table.arm, table.y)
    records = public.records(data.X, data.a, data.y, data.sampling, data.person)
    with pytest.raises(DeclarationError, match="replaces all records of a person"):
        records.replaced(0, np.zeros(3), 1)
    with pytest.raises(DeclarationError, match="which of 40 persons"):
        public.records(data.X, data.a, data.y, data.sampling)
    with pytest.raises(DeclarationError, match="declares 40 persons"):
        Universe(public, N + 1, 3)
    with pytest.raises(DataError, match="40 persons, and number = 39"):
        Dataset.coded(domain(39), table, table.arm, table.y)
    fitted = model("ate", seed=1)
    plan = fitted.plan(N, 3)
    for other in (replace(data, person=None, persons=None), replace(data, persons=N + 1)):
        with pytest.raises(DataError, match="are not those of the domain"):
            plan.run(other, fitted.execution())
    single = PrivateEffect(replace(public, codebook=replace(public.codebook, unit=None)), Budget(1.0), seed=1)
    for estimator, other in [(model("ate"), replace(data, person=None, persons=None)), (single, data)]:
        with pytest.raises(DataError, match="are not those of the domain"):
            estimator.fit(other)
        assert not hasattr(estimator, "release_")
    once = replace(data, repeats=np.ones(len(data.a), dtype=np.int64))  # which would count a person twice
    assert fitted.fit(once).release_.to_json() == model("ate", seed=1).fit(data).release_.to_json()


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"column": "id", "number": 1}, "at least 2"),
        ({"column": "arm", "number": 9}, "declared otherwise"),
        ({"column": "id"}, "number"),
        (3, "must be a table"),
    ],
)
def test_invalid_units_are_refused(declared, said):
    with pytest.raises(DeclarationError, match=said):
        Codebook(unit=declared, treatment={"column": "arm"}, levels=SEX)


def test_a_unit_is_read_back_as_it_was_declared():
    assert Codebook.from_dict(domain().codebook.to_dict()).unit == Unit("id", N)
    assert Domain.from_dict(domain().to_dict()) == domain()


def test_a_release_and_its_record_say_that_persons_are_protected():
    table = frame()
    release = model("ate", seed=1).fit(table, table.arm, table.y).release_
    release = replace(release, guarantee=replace(release.guarantee, standing=Standing.PRIVATE))
    told = " ".join(map(" ".join, promised(release)))
    assert "Replacing any one of the 40 persons, with all of their records, by any other" in told
    assert "the number of persons" in told
    assert "A person with several records is protected less" not in told
    sheet = json.dumps(datasheet(release))
    assert "differ in all records of one of them" in sheet
    assert "same number of records" not in sheet
    page = " ".join(release.summary(10_000).split())
    assert "The interval takes persons to be independent, not records." in page
