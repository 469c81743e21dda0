"""A look at records before anything is spent: what it stops, what not, and that it leaves no
trace.
"""

import inspect
import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, Ledger, PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.diagnostics.look import AskedAbout, Findings, look, rows_that_do_not_match, seen_of
from dp2erm_cvx.diagnostics.look import records as records_module
from dp2erm_cvx.diagnostics.look.relations import (
    SampleMoments,
    bent,
    distance,
    ordered,
    pooled_within,
)
from dp2erm_cvx.diagnostics.look.rules import RULES
from dp2erm_cvx.errors import DataError
from tests.diagnostics.look_tables import HIDDEN, LEAKING, SOUNDLY, base, kit, yes

pytestmark = pytest.mark.looks


def shares(tables):
    """A tenth of the tables, then the rest."""
    every = [pytest.param(kind, seed, id=f"{kind.__name__}-{seed}") for kind, seed in tables]
    slow = [
        pytest.param(kind, seed, id=f"{kind.__name__}-{seed}", marks=pytest.mark.slow)
        for place, (kind, seed) in enumerate(tables)
        if place % 10
    ]
    return every[::10] + slow


@pytest.mark.parametrize(("kind", "seed"), shares(SOUNDLY))
def test_a_sound_table_is_not_stopped(kind, seed):
    assert kind(seed).findings().gross == ()


@pytest.mark.parametrize(("kind", "seed"), shares(LEAKING))
def test_a_leak_is_stopped_unless_it_is_named_as_hidden(kind, seed):
    assert bool(kind(seed).findings().gross) is (kind not in HIDDEN)


def test_as_many_tables_are_tried_as_the_page_says():
    assert (len(SOUNDLY), len(LEAKING)) == (80, 55)
    assert sum(kind not in HIDDEN for kind, _ in LEAKING) == 52


def fit(model, *data, **how):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(*data, **how)
    return [str(one.message) for one in told]


def effect_of(case, **how):
    return PrivateEffect(case.public(), Budget(4.0), residual_scale=4.0, **how)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            lambda X, a, y: (X.sample(frac=1, random_state=0), a, y),
            "the same index in another order",
        ),
        (lambda X, a, y: (X, y, a), "no record is treated"),
        (lambda X, a, y: (X, a == "yes", y), "no record is treated"),
        (
            lambda X, a, y: (X, a, y.astype(str).str.replace(".", ",")),
            "most of them hold a decimal comma",
        ),
        (lambda X, a, y: (X, ["yes"] * len(a), y), "no record is a control"),
        (
            lambda X, a, y: (X, np.where(np.arange(len(a)) < 5, "yes", "no"), y),
            "5 records are in the arm",
        ),
        (lambda X, a, y: (X.assign(severity="high"), a, y), "most of them hold words"),
    ],
)
def test_python_is_as_careful_as_the_command_line(tmp_path, data, told):
    case, _, _ = base(1)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.declare("t", Budget(9.0))
    model = effect_of(case, ledger=ledger, dataset="t")
    given = data(case.X, pd.Series(case.arm), pd.Series(case.y))
    with pytest.raises(DataError, match=told) as refused:
        model.fit(*given)
    assert "nothing was charged; fit(..., accept=True) releases all the same" in str(refused.value)
    assert ledger.account("t").receipts == ()
    assert any(
        told in line
        for line in fit(replace(model, ledger=None, dataset=None, seed=1), *given, accept=True)
    )


def test_a_covariate_that_is_the_treatment_stops_every_estimator():
    case = kit(0)
    data = case.X, case.arm, case.y
    domain, budget = case.public(), Budget(1.0)
    for model in (
        PrivateEffect(domain, budget, seed=1),
        PrivateRule(domain, budget, seed=1),
        PrivateTwoStageERM(domain, budget, second_stage="arm_means", first_stage="uniform", seed=1),
    ):
        with pytest.raises(DataError, match="kit decides arm"):
            model.fit(*data)
    # one that is not adjusted for decides nothing, and a public propensity leaves nothing to
    # overlap
    assert not fit(PrivateEffect(domain, budget, prognostic=["severity"], seed=1), *data)
    told = fit(PrivateEffect(domain, budget, settings={"propensity": 0.5}, seed=1), *data)
    assert [line for line in told if "constant public propensity" in line]


def test_nothing_of_a_look_is_in_a_release(tmp_path):
    case = kit(0)
    X = case.X.assign(kit=np.roll(case.X["kit"], 1))
    told = []
    for data, accept in (((case.X, case.arm, case.y), True), ((X, case.arm, case.y), False)):
        ledger = Ledger(tmp_path / f"{accept}.db")
        ledger.declare("t", Budget(9.0))
        model = effect_of(case, ledger=ledger, dataset="t")
        found = fit(model, *data, accept=accept)
        release = json.loads(model.release_.to_json())
        # what the released means of the arms say stands in a release, with or without a look
        for name in ("distance", "overlaps"):
            release.pop(name, None)
        told.append((len(found) > 0, sorted(release), ledger.account("t").receipts[0].note))
        text = model.release_.to_json()
        assert "decides" not in text
        assert "accept" not in text
    assert [one[0] for one in told] == [True, False]
    assert told[0][1:] == told[1][1:]


def test_no_look_is_taken_where_records_are_announced():
    case = kit(0)
    data = Dataset.declared(case.public(), case.X, case.arm, case.y)
    effect_of(case, seed=1).fit_announced(data)


@pytest.mark.parametrize("kind", [PrivateEffect, PrivateRule, PrivateTwoStageERM])
def test_an_estimator_is_looked_over_by_shells(kind):
    model = kind(Domain(1.0, 1.0), Budget(1.0))
    names = dir(model)
    assert {"fit", "plan", "domain"} <= set(names)
    assert "score" not in names
    assert dict(inspect.getmembers(model))["budget"] == Budget(1.0)
    assert hasattr(model, "_repr_html_")


def test_a_look_in_blocks_finds_what_it_finds_in_memory(tmp_path):
    for kind, seed in ((kit, 0), (LEAKING[17][0], 17), (SOUNDLY[3][0], 3)):
        case = kind(seed)
        path = tmp_path / f"{kind.__name__}.parquet"
        frame = case.X.assign(arm=case.arm, score=case.y)
        frame.to_parquet(path, row_group_size=300)
        public = case.public()
        data = BlockedDataset.read(path, treatment="arm", outcome="score").declared(public)
        assert look(seen_of(data, public), AskedAbout(public)) == case.findings()
    with pytest.raises(DataError, match="kit decides arm"):
        PrivateEffect(kit(0).public(), Budget(1.0), seed=1).fit(
            BlockedDataset.read(tmp_path / "kit.parquet", treatment="arm", outcome="score")
        )


def test_parts_of_a_table_add_up_and_a_sample_of_them_is_one_of_the_whole(monkeypatch):
    monkeypatch.setattr(records_module, "SAMPLE", 500)
    case = kit(0)
    public = case.public()
    data = Dataset.declared(public, case.X, case.arm, case.y)
    whole = seen_of(data, public)
    parts = [
        records_module.seen_in(data.at(np.arange(first, first + 400)), public, first=first)
        for first in range(0, 2000, 400)
    ]
    together = sum(parts[1:], parts[0])
    assert len(together.sample.a) == len(whole.sample.a) == 500
    for name in ("X", "a", "y"):
        np.testing.assert_array_equal(getattr(together.sample, name), getattr(whole.sample, name))
    np.testing.assert_array_equal(together.fingerprints.copies(), whole.fingerprints.copies())
    assert together.counts.arms == whole.counts.arms
    assert (together.n_records, together.arms.tolist()) == (2000, whole.arms.tolist())


def test_copies_are_counted_among_those_fingerprints_that_are_kept(monkeypatch):
    monkeypatch.setattr(records_module, "_KEPT", 100)
    column = np.repeat(np.arange(3000.0), 3)
    kept = records_module.Fingerprints.of([column])
    assert 0 < len(kept.values) <= 200
    assert set(kept.copies().tolist()) == {3}
    same = records_module.Fingerprints.of([np.zeros(3000)])
    assert same.copies().tolist() in ([3000], [])


def explained(columns, target):
    moments = SampleMoments.of(np.column_stack([columns, target]))
    return moments.explained(range(columns.shape[1]), columns.shape[1])


def test_distances_are_those_of_their_definition():
    rng = np.random.default_rng(0)
    arm = (rng.random(20_000) < 0.3).astype(float)
    column = rng.standard_normal(20_000) + 2.0 * arm
    share, rank = explained(np.column_stack([column, 3 * column, np.ones(20_000)]), arm)
    assert rank == 1
    assert distance(share, arm.mean()) == pytest.approx(2.0, abs=0.06)
    # a line in fifty columns of noise explains nothing once its rank is allowed for
    noise = [explained(rng.standard_normal((300, 50)), arm[:300])[0] for _ in range(40)]
    assert abs(np.mean(noise)) < 0.02
    assert distance(1.0, 0.5) == np.inf
    # half treated, a distance of d sds of all records is d / sqrt(1 - d^2 / 4) within arms
    assert pooled_within(1.0, 0.5) == pytest.approx(1 / np.sqrt(0.75))
    assert pooled_within(2.0, 0.5) == np.inf
    assert np.isnan(explained(rng.standard_normal((20, 8)), arm[:20])[0])


def test_pairs_are_ordered_where_neither_is_tied():
    rng = np.random.default_rng(1)
    y = rng.standard_normal(2000)
    for column, target in (
        (np.round(y), y),
        (-np.exp(y), y),
        (y, np.round(y, 1)),
        ((y > 2.2) * 1.0, y),
    ):
        assert ordered(column, target, 0.0) == 1.0
    assert 0.4 < ordered(rng.standard_normal(2000), y, 0.0) < 0.6
    assert np.isnan(ordered(np.zeros(2000), y, 0.0))


def test_a_product_that_drives_both_is_named_and_no_other():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((3000, 4))
    arm = (rng.random(3000) < 1 / (1 + np.exp(-1.5 * X[:, 0] * X[:, 1]))).astype(float)
    y = 2 * X[:, 0] * X[:, 1] + X[:, 2] ** 2 + arm + rng.standard_normal(3000)
    assert bent(X, arm, y) == [(0, 1)]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda X: {"severity": X.severity.where(X.index % 100 > 1, "missing")},
            "hold words, which count as",
        ),
        (lambda X: {"severity": X.severity.where(X.index % 20 > 0, 9.0)}, None),
        (
            lambda X: {"severity": X.severity.where(X.index % 20 > 0, -9.0)},
            "severity: -9 stand there far more",
        ),
        (
            lambda X: {"age": X.age.where(X.index % 20 > 0, 99)},
            "age: 99 stand there far more often",
        ),
        (lambda X: {"age": 55}, "age is the same for 100.0% of the records"),
    ],
)
def test_what_is_no_reason_to_stop_is_a_line(change, line):
    case, _, _ = base(4)
    found = replace(case, X=case.X.assign(**change(case.X))).findings()
    assert found.gross == ()
    assert (line is None) or any(line in told for told in found.lines), found


def test_levels_groups_and_gaps_are_lines():
    case, rng, treated = base(5)
    case = case.having(
        levels={"ward": ["N", "S", "X"]}, ward=np.where(np.arange(2000) < 15, "N", "S")
    )
    severity = case.X.severity.where(rng.random(2000) > 0.02 + 0.1 * treated)
    case = replace(case, X=case.X.assign(severity=severity), book={"group": "ward"})
    lines = " | ".join(case.findings().lines)
    for told in (
        "ward=X",
        "group ward = N has 15 records",
        "group ward = X has 0",
        "severity is empty for 1",
    ):
        assert told in lines


def test_indexes_are_compared():
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0]})
    other = pd.Series([1, 0, 1], index=[7, 8, 9])
    assert rows_that_do_not_match(frame, [1, 0, 1], frame["x"]) == Findings()
    assert rows_that_do_not_match(frame, other, frame["x"]).lines[0].endswith("where that is right")
    assert rows_that_do_not_match(frame, frame["x"][::-1], frame["x"]).gross


def test_a_long_stop_is_not_cut_in_its_middle():
    found = Findings(tuple(f"finding {number} {'x' * 90}" for number in range(9)))
    with pytest.raises(
        DataError, match=r"finding 3 x+; and 5 more, which dp2erm check lists; nothing was"
    ):
        found.refuse("--yes")


def test_every_rule_says_what_it_is_and_its_limit():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.limit and rule.finds.__doc__ for rule in RULES)
    assert [rule.stops for rule in RULES] == sorted((rule.stops for rule in RULES), reverse=True)


def test_persons_are_counted_and_not_their_records():
    case, _, _ = base(6)
    X = case.X.assign(pid=np.char.add("p", (np.arange(2000) // 250).astype(str)))
    case = replace(
        case, X=X, book={"unit": {"column": "pid", "number": 500}}, arm=yes(np.arange(2000) < 1000)
    )
    assert [line for line in case.findings().gross if line.startswith("4 persons are in the arm")]
