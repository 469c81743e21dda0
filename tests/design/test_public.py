"""Tuning on public data: repeatable, the same for every order, and open about what fails."""

import json
import math

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.design import PublicData, tune
from dp2erm_cvx.design.public import treatment_probabilities, value_of_rule
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing

DOMAIN = Domain(1.5, 1.0)


def records(n: int = 120, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    a = (rng.uniform(size=n) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    return X, a, np.clip(0.4 * X[:, 1] * (2 * a - 1) + 0.1 * rng.normal(size=n), -1, 1)


def public(n: int = 120, seed: int = 0) -> PublicData:
    return PublicData(*records(n, seed), source="simulated")


def candidate(epsilon: float = 5.0, first="uniform", second="itr", domain=DOMAIN, **changes):
    return PrivateTwoStageERM(domain, Budget(epsilon), first, second, **changes)


def models() -> dict:
    return {
        "much noise": candidate(0.05),
        "little noise": candidate(200.0),
        "balanced": candidate(200.0, EntropyBalancing(ridge=0.05)),
    }


def test_the_clear_winner_wins_and_uniform_weights_are_seen():
    result = tune({name: models()[name] for name in ("much noise", "little noise")}, public(), n_samples=100)
    assert result.best == "little noise"
    gap, error = result.behind("much noise")
    assert gap > 2 * error > 0
    assert result.row("little noise").effective_share == pytest.approx(1.0)
    balanced = tune({"balanced": models()["balanced"]}, public(), n_samples=100, replicates=3)
    assert balanced.row("balanced").effective_share < 0.95
    assert balanced.row("balanced").V > result.row("little noise").V


def test_it_is_repeatable_and_the_order_of_candidates_does_not_matter():
    given = models()
    first = tune(given, public(), n_samples=100, replicates=3, seed=4)
    again = tune(dict(reversed(given.items())), public(), n_samples=100, replicates=3, seed=4)
    other = tune(given, public(), n_samples=100, replicates=3, seed=5)
    assert [row.name for row in first.rows] == list(given)
    assert (first.best, first.rows) == (again.best, again.rows[::-1])
    assert first.rows != other.rows


def test_equal_candidates_score_equally_and_the_name_decides():
    result = tune({"b": candidate(), "a": candidate()}, public(), n_samples=100, replicates=4)
    assert result.row("a").scores == result.row("b").scores
    assert result.best == "a"
    assert result.behind("b") == (0.0, 0.0)
    listed = tune([candidate(), candidate(0.1)], public(), n_samples=100, replicates=2)
    assert [row.name for row in listed.rows] == ["candidate 1", "candidate 2"]


def test_means_and_errors_are_those_of_the_scores():
    result = tune(models(), public(), n_samples=100, replicates=5)
    for row in result.rows:
        assert row.mean == pytest.approx(np.mean(row.scores))
        assert row.standard_error == pytest.approx(np.std(row.scores, ddof=1) / math.sqrt(5))
        assert (row.failures, row.reason, row.uncertified) == (0, "", 0)
    best = result.row(result.best)
    assert best.mean == max(row.mean for row in result.rows)
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["source"] == "simulated"
    assert plain["best"] == result.best
    assert "ESS/n" in str(result)
    assert all(row.name in str(result) for row in result.rows)


def test_nothing_is_charged_and_seeds_and_ledgers_of_candidates_are_not_used(tmp_path):
    from dp2erm_cvx.ledger import Ledger

    ledger = Ledger(tmp_path / "ledger.db")
    ledger.declare("trial", Budget(100.0))
    charged = candidate(ledger=ledger, dataset="trial")
    result = tune({"a": charged, "b": candidate(seed=3)}, public(), n_samples=100, replicates=2)
    assert result.row("a").scores == result.row("b").scores
    assert ledger.account("trial").receipts == ()
    assert not hasattr(charged, "release_")


def test_refused_plans_are_rows():
    result = tune({"bad": candidate(second="arm_means", calibration="renyi"), "good": candidate()}, public(),
                  n_samples=100, replicates=2)  # fmt: skip
    bad = result.row("bad")
    assert bad.reason
    assert (bad.scores, bad.mean, bad.V) == ((), None, None)
    assert result.best == "good"
    assert bad.reason in str(result)
    with pytest.raises(CalibrationError, match="no candidate has a plan: bad"):
        tune({"bad": candidate(second="arm_means", calibration="renyi")}, public(), n_samples=100)


def test_failures_are_counted_and_never_win():
    # a floor that some bootstrap samples miss
    X, a, y = records()
    few = int(np.sum(a))
    domain = Domain(1.5, 1.0, arm_floor=few - 10)
    result = tune([candidate(domain=domain)], PublicData(X, a, y, source="simulated"), n_samples=110)
    row = result.rows[0]
    assert 0 < row.failures < 20
    assert row.failures == row.scores.count(None)
    assert row.reason.startswith("DataError: an arm has fewer")

    def fails_for_much_noise(model, X, a, y):
        if model.budget.epsilon < 1 and X[0, 0] > 0:
            raise DataError("not today")
        return 100.0 if model.budget.epsilon < 1 else 0.0

    given = {"much": candidate(0.5), "little": candidate(5.0)}
    result = tune(given, public(), n_samples=100, score=fails_for_much_noise)
    assert 0 < result.row("much").failures < 20
    assert result.row("much").mean == 100.0
    assert result.best == "little"
    hopeless = Domain(1.5, 1.0, arm_floor=100)
    with pytest.raises(CalibrationError, match="no candidate could be scored"):
        tune(
            [candidate(domain=hopeless)], PublicData(X, a, y, source="s"), n_samples=108, replicates=1, seed=2
        )


def test_another_score_sees_what_was_left_out():
    simulated = simulate("linear", 300, rng=0)
    data = simulated.dataset
    domain = Domain(math.sqrt(11), 10.0, intercept=1.0)
    seen = []

    def agreement(model, X, a, y):
        places = [int(np.flatnonzero(np.all(data.X == row, axis=1))[0]) for row in X]
        seen.append(len(places))
        assert np.array_equal(data.y[places], y)
        assert np.array_equal(data.a[places], a)
        return float(np.mean(model.predict(X) == simulated.optimal_rule[places]))

    given = {"much": candidate(0.1, domain=domain), "little": candidate(1e4, domain=domain)}
    there = PublicData(data.X, data.a, data.y, source="simulated")
    result = tune(given, there, n_samples=300, replicates=4, score=agreement)
    assert result.scored_by == "agreement"
    assert result.best == "little"
    assert result.row("little").mean > 0.8
    # a bootstrap sample of the same size leaves out 1/e of the records
    assert np.mean(seen) == pytest.approx(300 / math.e, rel=0.1)
    seen.clear()
    larger = tune(given, there, n_samples=3000, replicates=2, score=agreement, holdout=0.2)
    assert set(seen) == {60}
    assert larger.n_samples == 3000


def test_columns_are_those_of_the_domain():
    pd = pytest.importorskip("pandas")
    X, a, y = records()
    domain = Domain(1.5, 1.0, ranges={"dose": (-1, 1), "age": (-1, 1)})
    frame = pd.DataFrame(X, columns=["dose", "age"])
    by_name = tune(
        [candidate(domain=domain)], PublicData(frame, a, y, source="s"), n_samples=99, replicates=2
    )
    by_place = tune([candidate(domain=domain)], PublicData(X, a, y, source="s"), n_samples=99, replicates=2)
    assert by_name.rows == by_place.rows
    with pytest.raises(DeclarationError, match="the public data have age, dose"):
        tune([candidate(domain=domain)], PublicData(frame[["age", "dose"]], a, y, source="s"), n_samples=99)


def test_the_value_of_a_rule_is_unconfounded():
    X, a, y = records(20_000, seed=3)
    # the outcome is better for a large first covariate, which is also why people were treated
    y = X[:, 0] + 0.2 * a
    data = PublicData(X, a, y, source="simulated").within(DOMAIN)
    probability = treatment_probabilities(data, DOMAIN)
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-2 * X[:, 0] * (2 * a - 1))), rtol=0.1)
    treat_all, treat_none = (value_of_rule(np.full(len(a), arm), a, y, probability) for arm in (1, 0))
    assert treat_all - treat_none == pytest.approx(0.2, abs=0.05)
    assert np.mean(y[a == 1]) - np.mean(y[a == 0]) > 0.7
    with pytest.raises(DataError, match="recommends"):
        value_of_rule(1 - a, a, y, probability)


def test_costs_count():
    X, a, y = records()
    dear, paid = Domain(1.5, 1.0, treatment_cost=0.75), PublicData(X, a, y + 0.75 * a, source="s")
    free = tune([candidate()], PublicData(X, a, y, source="s"), n_samples=100, replicates=3)
    costly = tune([candidate(domain=dear)], paid, n_samples=100, replicates=3)
    np.testing.assert_allclose(costly.rows[0].scores, free.rows[0].scores, rtol=1e-9)
    ignored = tune([candidate()], paid, n_samples=100, replicates=3)
    assert ignored.rows[0].mean > costly.rows[0].mean + 0.1


@pytest.mark.parametrize(
    ("match", "changes"),
    [
        ("tune_privately", {"public": records()}),
        ("tune_privately", {"public": None}),
        ("at least one candidate", {"models": {}}),
        ("at least one candidate", {"models": []}),
        ("must be a dict", {"models": "itr"}),
        ("must be a PrivateTwoStageERM", {"models": ["itr"]}),
        ("name of a candidate", {"models": {"": candidate()}}),
        ("name of a candidate", {"models": {3: candidate()}}),
        ("different domains", {"models": [candidate(), candidate(domain=Domain(2.0, 1.0))]}),
        ("must be a Domain", {"models": [candidate(domain="clinic")]}),
        ("n_samples", {"n_samples": 1}),
        ("n_samples", {"n_samples": 10.5}),
        ("n_samples", {"n_samples": math.nan}),
        ("holdout=0.3", {"n_samples": 1000}),
        ("holdout", {"holdout": 1.0}),
        ("holdout", {"holdout": 1e-9}),
        ("holdout", {"holdout": math.inf}),
        ("replicates", {"replicates": 0}),
        ("seed", {"seed": -1}),
        ("score", {"score": "value"}),
        ("score returned = nan", {"score": lambda *_: math.nan}),
        ("score returned = None", {"score": lambda *_: None}),
    ],
)
def test_what_is_refused(match, changes):
    given = {"models": [candidate()], "public": public(), "n_samples": 100} | changes
    with pytest.raises(DeclarationError, match=match):
        tune(given.pop("models"), given.pop("public"), **given)


@pytest.mark.parametrize("source", ["", " ", "two\nlines", None, 3, "x" * 201])
def test_sources_that_are_none(source):
    with pytest.raises(DeclarationError, match="source"):
        PublicData(*records(), source=source)


def test_public_data_are_checked_and_kept():
    X, a, y = records()
    data = PublicData(X, a, y, source="a registry")
    X[0] = 7.0
    assert data.X[0, 0] != 7.0
    assert repr(data) == "PublicData(source='a registry', n_samples=120)"
    with pytest.raises(DataError, match="row 1"):
        PublicData(X * np.nan, a, y, source="a registry")
    with pytest.raises(DataError, match="one treatment only"):
        tune([candidate()], PublicData(X, np.ones(120, int), y, source="s"), n_samples=100)
