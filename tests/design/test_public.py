"""A design on public records: repeatable, fair to every pipeline, and open about what fails."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import (
    Budget,
    Codebook,
    Dataset,
    Domain,
    PrivateEffect,
    PrivateRule,
    PrivateTwoStageERM,
)
from dp2erm_cvx.design import DesignRequest, PublicData, design
from dp2erm_cvx.design.samples import treatment_probabilities, value_of_rule
from dp2erm_cvx.design.simulation import design_candidates
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from tests.command_line import done, run

DOMAIN = Domain(1.5, 1.0)


def records(n: int = 120, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    a = (rng.uniform(size=n) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    return Dataset.from_arrays(
        X, a, np.clip(0.4 * X[:, 1] * (2 * a - 1) + 0.1 * rng.normal(size=n), -1, 1)
    )


def request(data=None, n=100, domain=DOMAIN, goal="rule", **changes):
    public = PublicData(
        records() if data is None else data,
        "simulated",
        **{name: changes.pop(name) for name in ("holdout",) if name in changes},
    )
    return DesignRequest(
        domain, n, 2, Budget(5.0), goal, **{"public": public, "replicates": 10, **changes}
    )


def candidate(epsilon: float = 5.0, first="uniform", second="itr", domain=DOMAIN, **changes):
    return PrivateTwoStageERM(domain, Budget(epsilon), first, second, **changes)


@pytest.mark.slow
def test_the_clear_winner_wins_and_a_design_is_repeatable():
    models = {"much noise": candidate(0.05), "little noise": candidate(200.0)}
    models["balanced"] = candidate(200.0, entropy_balancing(ridge=0.05))
    result, again = (design(request(), models) for _ in range(2))
    assert result.rows == again.rows != design(request(seed=5), models).rows
    noisy, calm = result.row("much noise"), result.row("little noise")
    assert [one.name for one in result.rows][-1] == "much noise"
    assert (result.answers, calm.effective, calm.value) == (
        True,
        pytest.approx(1),
        -np.mean(calm.scores),
    )
    assert calm.value - noisy.value > noisy.value_half
    assert calm.value > result.beside.value
    assert result.row("balanced").effective < 0.95
    with pytest.raises(DeclarationError, match="did you mean balanced"):
        result.row("balanzed")
    listed = design(request(), [candidate(), candidate(0.05)])
    plain = json.loads(json.dumps(listed.to_dict()))
    assert plain["public"] == "simulated"
    assert [row["name"] for row in plain["rows"]] == ["candidate 1", "candidate 2"]
    assert "declared public: simulated" in str(listed)


def test_nothing_is_charged_and_seeds_and_ledgers_of_candidates_are_not_used(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.declare("trial", Budget(100.0))
    charged = candidate(ledger=ledger, dataset="trial")
    plain, alone = (design(request(), [one]) for one in (candidate(seed=3), charged))
    assert plain.best.scores == alone.best.scores
    assert (ledger.account("trial").receipts, hasattr(charged, "release_")) == ((), False)


def test_what_fails_is_a_row_and_never_wins():
    given = {"bad": candidate(second="arm_means", calibration="renyi"), "good": candidate()}
    result = design(request(), given)
    assert result.best.name == "good"
    assert "8 of 8 runs failed" in result.row("bad").reason  # it is run on no more datasets
    assert result.row("bad").reason in " ".join(str(result).split())
    # a floor that some bootstrap samples miss
    domain = Domain(1.5, 1.0, arm_floor=int(np.sum(records().a)) - 10)
    failed = design(request(n=110, domain=domain, replicates=20), [candidate(domain=domain)])
    assert "an arm has fewer" in failed.best.reason
    assert not failed.answers


def test_rules_are_judged_on_records_that_the_sample_left_out():
    data, rng = records(300), np.random.default_rng(0)

    def rows_of(part):
        return {tuple(row) for row in part.X}

    shares = []
    for _ in range(20):
        sample = request(data, 300).public.sample(request(data, 300), rng)
        assert rows_of(sample.data) | rows_of(sample.judged_at) == rows_of(data)
        assert not rows_of(sample.data) & rows_of(sample.judged_at)
        shares.append(len(sample.judged_at.X) / 300)
    # a bootstrap sample of the same size leaves out 1/e of the records
    assert np.mean(shares) == pytest.approx(1 / math.e, rel=0.1)
    aside = request(data, 3000, holdout=0.2)
    sample = aside.public.sample(aside, rng)
    assert (len(sample.data.X), len(sample.judged_at.X)) == (3000, 60)
    assert not rows_of(sample.data) & rows_of(sample.judged_at)


def test_the_value_of_a_rule_is_unconfounded():
    data = records(20_000, seed=3)
    X, a = data.X, data.a
    # the outcome is better for a large first covariate, which is also why people were treated
    y = X[:, 0] + 0.2 * a
    probability = treatment_probabilities(Dataset.from_arrays(X, a, y), DOMAIN)
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-2 * X[:, 0] * (2 * a - 1))), rtol=0.1)
    treat_all, treat_none = (
        value_of_rule(np.full(len(a), arm), a, y, 1 / probability) for arm in (1, 0)
    )
    assert treat_all - treat_none == pytest.approx(0.2, abs=0.05)
    assert np.mean(y[a == 1]) - np.mean(y[a == 0]) > 0.7
    with pytest.raises(DataError, match="recommends"):
        value_of_rule(1 - a, a, y, 1 / probability)


def test_costs_of_treatment_count_in_values():
    data = records()
    dear = Domain(1.5, 1.0, treatment_cost=0.75)
    paid = Dataset.from_arrays(data.X, data.a, data.y + 0.75 * data.a)
    free, ignored = (design(request(one), [candidate()]).best for one in (data, paid))
    costly = design(request(paid, domain=dear), [candidate(domain=dear)]).best
    np.testing.assert_allclose(costly.scores, free.scores, rtol=1e-9)
    assert ignored.value > costly.value + 0.1


@pytest.mark.slow
def test_an_effect_is_that_of_the_public_records():
    """Of confounded public records: the interval of the default covers, weights of 1 do not come
    near.
    """
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (2000, 2))
    a = (rng.random(2000) < 1 / (1 + np.exp(-1.5 * X[:, 0]))).astype(int)
    data = Dataset.from_arrays(X, a, X[:, 0] + 0.5 * a + 0.3 * rng.standard_normal(2000))
    domain = Domain(1.5, 3.0, treatment_cost=0.1)
    asked = request(data, 2000, domain, "effect")
    given = {
        "plain means": candidate(5.0, second="arm_means", domain=domain),
        "default": PrivateEffect(domain, Budget(5.0), residual_scale=0.3),
    }
    result = design(asked, given)
    assert (result.best.name, result.answers) == ("default", True)
    assert result.row("default").error < 0.1 < result.row("plain means").bias
    assert result.confounded_by == pytest.approx(result.row("plain means").bias, abs=0.05)
    other = PrivateEffect(domain, Budget(5.0), residual_scale=0.3, estimand="overlap")
    overlap = design(request(data, 2000, domain, "effect", estimand="overlap"), {"overlap": other})
    assert abs(overlap.best.bias) < 0.1


def test_records_that_do_not_count_are_not_controls(tmp_path, monkeypatch):
    """A fifth has an unknown treatment and large outcomes: they would turn every decision round."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    x, arm = rng.uniform(-1, 1, 1500), rng.choice(["drug", "none", "?"], 1500, p=[0.4, 0.4, 0.2])
    y = np.where(arm == "?", 9.0, 2.0 * (arm == "drug") + 0.3 * rng.standard_normal(1500))
    frame = pd.DataFrame({"x": x, "arm": arm, "y": y})
    book = Codebook({"column": "arm", "treated": "drug", "control": "none"}, "y")
    domain = Domain(1.5, 10.0, ranges={"x": (-1.0, 1.0)}, codebook=book, intercept=1.0)
    public = PublicData(Dataset.coded(domain, frame, frame.arm, frame.y), "simulated", holdout=0.3)
    asked = DesignRequest(domain, 1000, 1, Budget(50.0), "rule", public=public, replicates=10)
    result = design(
        asked,
        {"rule": PrivateRule(domain, Budget(50.0)), "weights": candidate(50.0, domain=domain)},
    )
    for name in ("rule", "weights"):
        assert result.row(name).value == pytest.approx(2.0, abs=0.3)  # everybody is treated
    assert result.confounded_by == pytest.approx(0.0, abs=0.1)
    monkeypatch.setattr(
        "dp2erm_cvx.design.result.design_candidates", lambda one: design_candidates(one, 1)
    )
    frame.to_csv("pilot.csv", index=False)
    text = (
        'outcome_column = "y"\noutcome_bound = 10\n[treatment]\ncolumn = "arm"\ntreated = "drug"\n'
    )
    with open("d.toml", "w", encoding="utf-8") as file:
        file.write(text + 'control = "none"\n[ranges]\nx = [-1, 1]\n')
    words = [
        "design",
        "d.toml",
        "--n",
        "1000",
        "--epsilon",
        "20",
        "--goal",
        "rule",
        "--replicates",
        "10",
    ]
    actual = done(
        *words, "--public", "pilot.csv", "--source", "a pilot", "--holdout", "0.3", "--json"
    )
    facts = json.loads(actual.stdout)
    assert facts["public"] == "a pilot"
    assert facts["rows"][0]["value"] == pytest.approx(2.0, abs=0.3)
    assert "--source is missing" in run(*words, "--public", "pilot.csv").stderr


@pytest.mark.parametrize(
    ("match", "changes"),
    [
        *(("at least one candidate", {"models": none}) for none in ({}, [])),
        ("must be a dict", {"models": "itr"}), ("other people's records", {"public": records()}),
        ("must be a PrivateRule or PrivateTwoStageERM", {"models": ["itr"]}),
        ("must be a PrivateEffect", {"models": [PrivateRule(DOMAIN, Budget(1.0))],
        "goal": "effect"}),
        ("releases a rule", {"models": [candidate()], "goal": "effect"}), ("holdout=0.3",
        {"n": 1000}),
        *(("name of a candidate", {"models": {name: candidate()}}) for name in ("", 3)),
        ("different domains", {"models": [candidate(), candidate(domain=Domain(2.0, 1.0))]}),
        ("another domain", {"models": [candidate(domain=Domain(2.0, 1.0))]}),
        ("must be a Domain", {"models": [candidate(domain="clinic")]}),
        *(("holdout", {"holdout": wrong}) for wrong in (1.0, 1e-9, math.inf)),
    ],
)  # fmt: skip
def test_bad_requests_are_refused(match, changes):
    given = changes.pop("models", [candidate()])
    with pytest.raises(DeclarationError, match=match):
        design(request(**changes), given)


def test_columns_in_another_order_are_another_domain():
    pairs = [("u", (-1.0, 1.0)), ("v", (0.0, 5.0))]
    one, same, other = (Domain(1.5, 1.0, ranges=dict(own)) for own in (pairs, pairs, pairs[::-1]))
    assert (one == same, hash(one) == hash(same), one == other) == (True, True, False)
    with pytest.raises(DeclarationError, match="declare different domains"):
        design(request(), [candidate(domain=one), candidate(domain=other)])


def test_public_data_have_a_source_and_fit_the_domain():
    data = records()
    for source in ("", " ", "two\nlines", None, 3, "x" * 201):
        with pytest.raises(DeclarationError, match="source"):
            PublicData(data, source=source)
    assert repr(PublicData(data, "a registry")) == "PublicData(source='a registry', n_samples=120)"
    with pytest.raises(DeclarationError, match="must be a Dataset"):
        PublicData(data.X, "a registry")
    domain = Domain(1.5, 1.0, ranges={"dose": (-1, 1), "age": (-1, 1)})
    with pytest.raises(DeclarationError, match="the public data have x1, x2"):
        request(data, domain=domain)
    with pytest.raises(DataError, match="one treatment only"):
        request(Dataset.from_arrays(data.X, np.ones(120, int), data.y))
