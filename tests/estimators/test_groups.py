"""Effects among the records of one group, and in every group: exact sums, intervals, and what is
refused.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, Ledger, PrivateEffect, read_release
from dp2erm_cvx.data.cells import Treatment
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.report import release_page
from dp2erm_cvx.report.figures import forest_plot
from dp2erm_cvx.steps.execution import Execution
from dp2erm_cvx.steps.nuisances import LinearNuisances
from dp2erm_cvx.steps.record_map import UNIT, Rows, Term
from dp2erm_cvx.steps.score import AverageScore, GroupScore

BOOK = Codebook(
    Treatment("drug", "yes", "no"), "pressure", {"ward": ["A", "B", "C"], "sex": ["F", "M"]}
)
DOMAIN = Domain(
    2.5, 60.0, 90.0, ranges=BOOK.ranges({"age": (20.0, 90.0), "score": (0.0, 10.0)}), codebook=BOOK
)
WARDS = {"A": 2.0, "B": 5.0, "C": 8.0}


def table(n=6000, seed=1):
    """Rates of treatment differ between wards, records of ward Z are in no declared one."""
    rng = np.random.default_rng(seed)
    age, score, sex = rng.uniform(20, 90, n), rng.uniform(0, 10, n), rng.choice(["F", "M"], n)
    ward = rng.choice(["A", "B", "C", "Z"], n, p=[0.4, 0.3, 0.25, 0.05])
    a = rng.random(n) < 1 / (1 + np.exp(-0.2 * (score - 5) - 0.8 * (ward == "B")))
    effect = np.array([WARDS.get(one, 50.0) for one in ward])
    y = 70 + 0.2 * age + 2 * score + 2 * (ward == "C") + effect * a + 6 * rng.standard_normal(n)
    frame = pd.DataFrame({"age": age, "score": score, "ward": ward, "sex": sex})
    return frame, np.where(a, "yes", "no"), y


def by_ward(domain):
    return PrivateEffect(domain, Budget(1.0), by="ward").public()


def model(**changes):
    return PrivateEffect(DOMAIN, Budget(2.0), **({"residual_scale": 6.0, "seed": 1} | changes))


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("prognostic", [None, ["age", "score"]])
def test_every_group_has_its_own_effect(prognostic):
    for seed in range(2):
        release = model(by="ward", seed=seed, prognostic=prognostic).fit(*table(seed=seed)).release_
        assert release.by == "ward"
        for one, (ward, effect) in zip(release.groups, WARDS.items(), strict=True):
            assert one.group == ward
            low, high = one.interval.low, one.interval.high
            assert one.joint.low < low < effect < high < one.joint.high
            assert high - low < 4.0
            if ward != "A":
                contrast = one.contrast.interval
                assert contrast.low < effect - WARDS["A"] < contrast.high
                assert high - low < contrast.high - contrast.low < 7.0
        first, second, third = release.groups
        assert first.contrast is None
        assert third.interval.low > first.interval.high  # they differ, and that is seen
        assert second.treated > first.treated + 0.05
        assert sum(one.counted for one in release.groups) == pytest.approx(5700, abs=150)
        assert release.counted == pytest.approx(sum(one.counted for one in release.groups))
        assert release.interval.low < 0.42 * 2 + 0.32 * 5 + 0.26 * 8 < release.interval.high


@pytest.mark.parametrize("changes", [{"by": "ward"}, {"where": {"ward": "B"}}])
def test_nothing_of_a_record_outside_enters(changes):
    X, a, y = table(600)
    plan, data = model(**changes, settings={"propensity": "constant"}).plan_and_data(X, a, y)
    inside = X["ward"].isin(["B"] if "where" in changes else list(WARDS)).to_numpy()
    assert 0 < inside.sum() < 600
    far = (X * 1).assign(age=np.where(inside, X["age"], 85.0), sex=np.where(inside, X["sex"], "M"))
    other = model(**changes).plan_and_data(
        far, np.where(inside, a, "yes"), np.where(inside, y, 149.0)
    )[1]
    one, same = (plan.run(part, Execution("newton", 1e-6, 3)).released for part in (data, other))
    for name, numbers in one.items():
        assert np.array_equal(numbers, same[name]), name


SMALL = Domain(4.0, 20.0, codebook=BOOK)


def group_records(seed, domain, n=4000):
    """Records of an exactly linear outcome without any noise, whose slopes differ between the arms;
    rates.
    """
    rng = np.random.default_rng(seed)
    x, ward = rng.uniform(-1, 1, (n, 2)), rng.integers(0, 3, n)
    x[:, 0] += 0.3 * ward
    a = (rng.random(n) < 0.3 + 0.2 * ward + 0.1 * x[:, 0]).astype(int)
    y = np.where(a == 1, x @ BETA[1] + 1.0 + ward, x @ BETA[0]) + 0.7 * ward
    records = domain.records(x, a, y, (ward[:, None] == np.arange(3)).astype(float))
    sums = [[UNIT * np.sum((a == arm) & (ward == place)) for place in range(3)] for arm in (1, 0)]
    return records, ward, np.array(sums)


BETA, CENTER = np.array([[0.5, -0.3], [0.9, 0.1]]), np.array([0.2, 0.4, 0.8, 0.3])


def score_of(kind, domain, n=4000):
    nuisances = LinearNuisances(Term(Rows.COMMON, "center"), "rate")
    score = kind(nuisances, 50.0, 40.0, 100.0, 0.5, missing=True)
    return score.plan(Universe(domain, n, 2), Budget(1.0), {})


def test_the_bias_in_a_group_is_that_of_its_own_rate_exactly():
    records, ward, sums = group_records(3, by_ward(SMALL))
    a, known, score = (
        records.a,
        {"center": CENTER, "rate": sums.ravel()},
        score_of(GroupScore, by_ward(SMALL)),
    )
    noise = score.calibration
    result = np.reshape(score.exact_sums(records, known), (3, 3))
    members = score.at(records, known).members
    for place, (member, integers) in enumerate(zip(members, result, strict=True)):
        inside = ward == place
        rate = a[inside].mean()
        assert member.nuisances.rate == pytest.approx(rate)
        assert member.widening == pytest.approx(0.5 / min(rate, 1 - rate))
        mean, size, _ = noise.means(integers)
        assert 2 * size == pytest.approx(inside.mean())
        x = records.covariates[inside]
        apart = x[a[inside] == 1].mean(axis=0) - x[a[inside] == 0].mean(axis=0)
        effect = np.mean(1.0 + place + x @ (BETA[1] - BETA[0]))
        bias = ((1 - rate) * BETA[1] + rate * BETA[0] - CENTER[2:]) @ apart
        assert abs(bias) > 0.002
        assert 0.5 + member.widening * mean / size == pytest.approx(effect + bias, abs=2e-5)
        # at the rate of all records it would be another number
        common = replace(member, nuisances=replace(member.nuisances, rate=a.mean()))
        part = replace(
            records, X=records.X[inside], a=a[inside], y=records.y[inside], sampling=None
        )
        other = np.mean(common.score(common.parts(part, known)))
        assert place == 1 or abs(other - (effect + bias - 0.5)) > 0.01


def test_one_group_of_several_sums_what_it_does_alone():
    records, ward, sums = group_records(4, by_ward(SMALL))
    score, alone = (score_of(kind, by_ward(SMALL)) for kind in (GroupScore, AverageScore))
    noise, single = score.calibration, alone.calibration
    assert (noise.step, noise.largest) == (single.step, single.largest)
    result = np.reshape(score.exact_sums(records, {"center": CENTER, "rate": sums.ravel()}), (3, 3))
    where = replace(SMALL, codebook=replace(BOOK, where={"ward": "B"}))
    silent = where.records(records.X, records.a, records.y, (ward == 1).astype(float))
    same = alone.exact_sums(silent, {"center": CENTER, "rate": sums[:, 1]})
    assert [
        int(one) // factor for one, factor in zip(result[1], noise.multipliers, strict=True)
    ] == [one // factor for one, factor in zip(same, single.multipliers, strict=True)]


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("other", ["B", "A"])
def test_a_group_without_records_has_an_unbounded_effect(other, tmp_path):
    X, a, y = table(2000)
    X["ward"] = np.where(X["ward"] == "A", "A", other)
    book = Ledger(tmp_path / "book.sqlite")
    book.declare("data", Budget(10.0))
    release = model(by="ward", seed=2).fit(X, a, y).release_
    assert release.groups[0].interval.low is not None
    empty = release.groups[2]
    assert (empty.interval.low, empty.interval.high, empty.joint.low) == (None, None, None)
    assert (empty.contrast.interval.low, empty.contrast.interval.high) == (None, None)
    assert math.isfinite(empty.estimate)
    assert "unbounded" in release.summary()
    silent = replace(release, interval=empty.interval).summary()
    nothing = ": unknown, in units of the outcome (95 % CI unb"
    assert (nothing in release.summary(), nothing in silent) == (False, True)
    assert read_release(release.to_json()) == release
    assert verify(release).holds
    assert "ward: A" in release_page(release)
    axes, seeded = forest_plot(release).axes[0], "NOT PRIVATE: SEEDED NOISE"
    assert len(axes.collections) >= 1
    assert axes.get_title(loc="left").endswith(seeded)
    private = replace(release, guarantee=replace(release.guarantee, standing=Standing.PRIVATE))
    assert seeded not in forest_plot(private).axes[0].get_title(loc="left")
    charged = model(by="ward", where={"sex": "F"}, seed=None, ledger=book, dataset="data").fit(
        X, a, y
    )
    assert charged.receipt_.note == "effect (ate by ward, where sex is F) of drug on pressure"


def test_a_record_is_in_one_group_whatever_is_handed_in():
    domain = by_ward(DOMAIN)
    handed = [[0.3, 1.0, 1.0], [0.0, -1.0, 2.0], [np.nan, 0.0, 0.0], [0.0, 7.0, 0.0]]
    records = domain.records(np.zeros((4, 7)), [0, 1, 0, 1], np.zeros(4), handed)
    assert records.group_counts.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert records.counts.tolist() == [1, 1, 0, 1]
    for wrong in (None, np.ones(4), np.ones((4, 2))):
        with pytest.raises(DeclarationError, match="3 groups"):
            domain.records(np.zeros((4, 7)), [0, 1, 0, 1], np.zeros(4), wrong)
    with pytest.raises(DataError, match="shape"):
        Dataset(
            np.zeros((4, 1)),
            np.array([0, 1, 0, 1]),
            np.zeros(4),
            ("x",),
            sampling=np.ones((4, 1, 1)),
        )
