"""A private rule end to end: what it learns, JSON, refusals, and what neighbors may never see."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dp2erm_cvx import Budget, Codebook, Domain, Ledger, PrivateRule, RuleRelease, effects, recommend
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.release import json_schema
from dp2erm_cvx.release.file import read_release_file
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.sampling import SamplingWeights

DOMAIN = Domain(
    covariate_bound=1.5, outcome_bound=6.0, outcome_center=1.0, ranges={"u": (0.0, 2.0), "v": (-1.0, 1.0)}
)


def table(n=3000, seed=0):
    """Treat where v > 0; u raises the outcome and the probability of treatment."""
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(0, 2, n), rng.uniform(-1, 1, n)
    a = rng.binomial(1, 1 / (1 + np.exp(-1.5 * (u - 1) - 0.8)))
    y = 2 * u + a * v + 0.4 * rng.standard_normal(n)
    return pd.DataFrame({"u": u, "v": v}), a, y


def model(**changes):
    return PrivateRule(DOMAIN, Budget(2.0), **{"outcome_scale": 1.2, "seed": 1} | changes)


def accuracy(fitted, X):
    return np.mean(fitted.predict(X) == (X["v"] > 0))


def test_the_rule_is_found_where_weights_1_are_wrong():
    X, a, y = table()
    alone = model(settings={"center_share": None, "propensity": None}).fit(X, a, y)
    assert accuracy(alone, X) < 0.8
    found = model().fit(X, a, y)
    assert [step.step for step in found.release_.steps] == ["center", "propensity", "rule"]
    assert accuracy(found, X) > 0.9
    assert found.release_.flipped_share < 0.15
    # the size of the effect as well: it is v
    slopes = np.polyfit(X["v"], found.decision_function(X), 1)
    assert slopes == pytest.approx([1.0, 0.0], abs=0.35)


def test_sampling_weights_turn_a_rule_to_the_population_that_was_sampled():
    """Treatment harms most of the population, and helps those whom the survey took five times as often."""
    rng = np.random.default_rng([0, 1])
    X, a, y = table(20_000)
    helped = rng.random(len(y)) < 0.3
    y = y - a * X["v"] + a * np.where(helped, 1.0, -1.0)
    kept = rng.random(len(y)) < np.where(helped, 0.5, 0.1)
    book = Codebook(sampling_weights=SamplingWeights("wt", 2.5))
    X, a, y = X[kept].assign(wt=np.where(helped[kept], 0.5, 2.5)), a[kept], y[kept]
    alike = model().fit(X[["u", "v"]], a, y)
    domain = replace(DOMAIN, codebook=book)
    weighted = PrivateRule(domain, Budget(2.0), outcome_scale=1.2, seed=1).fit(X, a, y)
    assert np.mean(alike.predict(X)) > 0.8
    assert np.mean(weighted.predict(X)) < 0.2
    assert weighted.release_.settings["mass"] == pytest.approx(0.4 * alike.release_.settings["mass"])
    assert "stand for by the weights in wt" in " ".join(weighted.release_.summary().split())
    assert not verify(weighted.release_).refuted


def test_a_wrong_center_is_insured_by_the_propensity():
    """A center that misses the curved part of the outcome, with treatment that follows it."""
    rng = np.random.default_rng(2)
    X, _, _ = table(8000, 3)
    e = 1 / (1 + np.exp(-1.5 * (X["u"] - 1)))
    a = rng.binomial(1, e)
    y = 3 * (X["u"] - 1) * np.abs(X["u"] - 1) + a * X["v"] + 0.4 * rng.standard_normal(len(X))
    found = model().fit(X, a, y)
    assert accuracy(found, X) > 0.9


def test_an_unseeded_release_is_private_and_comes_back_from_json(tmp_path):
    X, a, y = table(600)
    fitted = model(seed=None).fit(X, a, y)
    release = fitted.release_
    assert release.private
    assert RuleRelease.from_json(release.to_json()) == release
    plain = json.loads(release.to_json())
    assert set(json_schema(RuleRelease)["required"]) <= set(plain)
    (tmp_path / "rule.json").write_text(release.to_json())
    read = read_release_file(tmp_path / "rule.json")
    assert effects(read, X).tolist() == fitted.decision_function(X).tolist()
    assert recommend(read, X.to_numpy()).tolist() == fitted.predict(X).tolist()
    assert not model().fit(X, a, y).release_.private
    frame = release.to_frame()
    assert frame["parameter"].tolist() == ["intercept", "u", "v"]
    assert "theta" in release._repr_html_()


def test_a_decision_is_that_of_its_own_record_to_the_last_bit():
    X, a, y = table(500)
    fitted = model().fit(X, a, y)
    together = fitted.decision_function(X)
    assert together.tolist() == [fitted.decision_function(X.iloc[[i]])[0] for i in range(len(X))]
    assert fitted.decision_function(X[["v", "u"]]).tolist() == together.tolist()


def test_a_known_propensity_spends_nothing_on_it():
    X, a, y = table(2000)
    found = model(settings={"propensity": (0.8, 1.5, 0.0)}).fit(X, a, y)
    assert [step.step for step in found.release_.steps] == ["center", "rule"]
    assert found.release_.guarantee.stability_theorem.startswith("Theorem 13")
    assert accuracy(found, X) > 0.9
    assert RuleRelease.from_json(found.release_.to_json()) == found.release_


def test_gaussian_noise():
    X, a, y = table()
    budget = Budget(2.0, 1e-6)
    found = PrivateRule(DOMAIN, budget, outcome_scale=1.2, noise="gaussian", seed=2).fit(X, a, y)
    assert found.release_.guarantee.delta == 1e-6
    assert accuracy(found, X) > 0.75


def test_the_ledger_is_charged_before_noise_is_drawn(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.declare("trial", Budget(3.0))
    found = model(seed=None, ledger=ledger, dataset="trial").fit(*table(300))
    assert ledger.account("trial").spent.epsilon == pytest.approx(2.0)
    assert found.receipt_ is not None


@pytest.mark.parametrize("treated", [0, 1])
def test_no_dataset_makes_a_fit_refuse(treated):
    X, _, _ = table(300)
    wild = X.assign(u=1e300, v=-1e300)
    for y in (np.zeros(300), np.full(300, 1e300), np.where(np.arange(300) % 2, 1e308, -1e308)):
        for data in (X, wild):
            release = model(seed=None).fit(data, np.full(300, treated), y).release_
            assert release.private
            assert np.all(np.isfinite(release.theta))


def test_it_is_an_estimator():
    fitted = model().fit(*table(300))
    other = clone(fitted)
    assert other.get_params()["outcome_scale"] == 1.2
    with pytest.raises(NotFittedError):
        other.predict(table(5)[0])
    back = pickle.loads(pickle.dumps(fitted))
    assert back.release_ == fitted.release_
    assert fitted.n_features_in_ == 2
    assert list(fitted.feature_names_in_) == ["u", "v"]


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome_scale": 0.0},
        {"expected": ["skewness"]},
        {"seed": -1},
        {"settings": {"unknown": 1}},
        {"settings": {"propensity": (0.1, 0.2)}},
        {"dataset": "trial"},
    ],
)
def test_refusals(changes):
    with pytest.raises(DeclarationError):
        model(**changes).fit(*table(50))


def test_wrong_data_are_refused():
    X, a, y = table(50)
    with pytest.raises(DataError):
        model().fit(X, a + 1, y)
    with pytest.raises(DeclarationError, match="columns"):
        model().fit(X.rename(columns={"u": "w"}), a, y)
    with pytest.raises(DataError, match="columns"):
        model().fit(X, a, y).predict(X.to_numpy()[:, :1])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"flipped_share": 1.5}, "flipped_share"),
        ({"noise_effect": -1.0}, "flipped_share"),
        ({"theta": [1.0, 2.0]}, "theta"),
        ({"theta": [1e308, 1e308, 1e308]}, "too large"),
        ({"steps": []}, "steps"),
        ({"nuisances": []}, "steps"),
        ({"n_samples": 1}, "n_samples"),
        ({"private": True}, "standing"),
        ({"settings": {}}, "settings"),
        ({"domain": {}}, "domain"),
    ],
)
def test_what_no_release_states_is_refused(change, complaint):
    plain = json.loads(model().fit(*table(300)).release_.to_json())
    with pytest.raises(DeclarationError, match=complaint):
        RuleRelease.from_json(json.dumps(plain | change))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda step: step.update(scale=step["scale"] / 4), "too little noise"),
        (lambda step: step.update(epsilon=step["epsilon"] / 4), "too little noise"),
        (lambda step: step["numerical"].update(scale=-1.0), "too little noise"),
        (lambda step: step["numerical"].update(epsilon=50.0), "too little noise"),
        (lambda step: step.update(step="center"), "steps"),
    ],
)
def test_noise_that_no_release_has_is_refused(change, complaint):
    """What a file says of its noise must not contradict its epsilon, nor its steps the settings."""
    fitted = PrivateRule(Domain(1.5, 4.0), Budget(1.0), arithmetic="counted", seed=1)
    plain = json.loads(fitted.fit(*table(60)).release_.to_json())
    assert RuleRelease.from_json(json.dumps(plain)).to_json() == json.dumps(plain, indent=2)
    change(plain["steps"][-1])
    with pytest.raises(DeclarationError, match=complaint):
        RuleRelease.from_json(json.dumps(plain))


def test_steps_are_those_of_the_settings():
    plain = json.loads(model().fit(*table(300)).release_.to_json())
    plain["settings"]["propensity"] = None if plain["settings"]["propensity"] == "logistic" else "logistic"
    with pytest.raises(DeclarationError, match="settings"):
        RuleRelease.from_json(json.dumps(plain))


def test_a_share_of_the_budget_says_what_the_rule_is_worth():
    X, a, y = table(4000)
    fitted = model(settings={"value_share": 0.2}).fit(X, a, y)
    release = fitted.release_
    assert [step.step for step in release.steps] == ["center", "propensity", "rule", "value"]
    assert sum(step.epsilon for step in release.steps) == pytest.approx(2.0)
    treats = fitted.predict(X)
    truths = np.mean(treats * X["v"]), np.mean((treats - 1) * X["v"])
    assert [gain.over for gain in release.gains] == ["treating nobody", "treating everybody"]
    for gain, truth in zip(release.gains, truths, strict=True):
        assert gain.interval.low < truth < gain.interval.high
        assert gain.interval.low < gain.estimate < gain.interval.high
    assert RuleRelease.from_json(release.to_json()) == release
    assert "treating everybody" in release.summary()
    plain = json.loads(release.to_json())
    half_open = [gain | {"interval": gain["interval"] | {"high": None}} for gain in plain["gains"]]
    for gains in ([], half_open, plain["gains"][:1]):
        with pytest.raises(DeclarationError, match="gains"):
            RuleRelease.from_json(json.dumps(plain | {"gains": gains}))


@pytest.mark.parametrize("settings", [{"propensity": None}, {"center_share": 0.5, "value_share": 1.0}])
def test_a_value_needs_a_propensity_and_a_share(settings):
    with pytest.raises(DeclarationError, match="value"):
        model(settings={"value_share": 0.2} | settings).fit(*table(50))


@pytest.mark.slow
def test_intervals_of_gains_cover_them():
    hits = []
    for seed in range(60):
        X, a, y = table(2000, seed + 100)
        fitted = model(seed=seed, settings={"value_share": 0.2}).fit(X, a, y)
        everyone = table(40_000, 9)[0]
        treats = fitted.predict(everyone)
        truths = np.mean(treats * everyone["v"]), np.mean((treats - 1) * everyone["v"])
        intervals = [gain.interval for gain in fitted.release_.gains]
        hits += [one.low <= truth <= one.high for one, truth in zip(intervals, truths, strict=True)]
    assert np.mean(hits) > 0.9
