"""What an effect and a rule leave of a declared confounder, predicted without data."""

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import (
    Budget,
    Codebook,
    Domain,
    EffectRelease,
    PrivateEffect,
    PrivateRule,
    PrivateTwoStageERM,
    RuleRelease,
)
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan.kept_confounding import kept_confounding
from dp2erm_cvx.plan.kept_imbalance import DIFFERENCE

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=12.0)


def effect(n, epsilon=1.0, **changes):
    return kept_confounding(PrivateEffect(DOMAIN, Budget(epsilon), residual_scale=2.0, **changes).plan(n, 2))


def rule(n, **settings):
    return kept_confounding(PrivateRule(DOMAIN, Budget(1.0), outcome_scale=2.0, settings=settings).plan(n, 2))


def confounded(n, seed):
    """A covariate well inside the domain, apart by the declared difference, that moves the outcome by 2."""
    rng = np.random.default_rng(seed)
    a, z = np.arange(n) % 2, rng.standard_normal(n)
    z += DIFFERENCE * (a - 0.5)
    X = np.column_stack([0.25 * z, 0.25 * rng.standard_normal(n)])
    return X, a, 2.0 * (z + rng.standard_normal(n))


def test_records_and_epsilon_decide_how_much_stays():
    for kept in (effect, rule):
        shares = [kept(n) for n in (60, 400, 100_000)]
        assert shares == sorted(shares, reverse=True)
        assert shares[-1] < 0.05
        assert shares[0] > 0.3
    assert effect(400, epsilon=0.2) > effect(400, epsilon=5.0)
    for estimand in ("att", "overlap"):
        assert effect(100_000, estimand=estimand) < 0.05


def test_the_prediction_is_what_fits_leave():
    """Whole fits with their noise at two sizes, of which the prediction knows n and public guesses alone."""
    n, biases = 1000, []
    model = PrivateEffect(DOMAIN, Budget(0.5), residual_scale=2.0, arithmetic="assumed")
    for seed in range(40):
        biases.append(model.set_params(seed=seed).fit(*confounded(n, seed)).effect_)
    stays = abs(np.mean(biases)) / (2.0 * DIFFERENCE)
    error = np.std(biases) / np.sqrt(len(biases)) / (2.0 * DIFFERENCE)
    assert stays == pytest.approx(effect(n, epsilon=0.5), abs=3.0 * error + 0.05)
    assert error < 0.08 < 0.15 < stays


def test_a_rule_without_center_and_propensity_leaves_all():
    assert rule(400, center_share=None, propensity=None) == pytest.approx(1.0, abs=1e-6)
    assert rule(100_000, center_share=None) < 0.3


def test_nothing_is_predicted_where_nothing_is_confounded_or_known():
    assert effect(400, settings={"propensity": 0.5}) is None
    assert rule(400, propensity=[0.1, 0.2, 0.3]) is None
    assert effect(1000, settings={"cells": {0: 4, 1: 4}}, prognostic=[0, 1]) is not None


def test_a_release_says_it_and_warns():
    X, a, y = confounded(300, 0)
    for kind, read in ((PrivateEffect, EffectRelease), (PrivateRule, RuleRelease)):
        for epsilon, warned in ((0.05, True), (50.0, False)):
            release = kind(DOMAIN, Budget(epsilon), seed=1).fit(X, a, y).release_
            text = " ".join(release.summary().split())
            assert f"keeps about {min(release.kept_confounding, 1.0):.0%}" in text
            assert ("THE CORRECTION HARDLY WORKS" in text) is warned
            assert read.from_json(release.to_json()) == release
            told = f'"kept_confounding": {release.kept_confounding!r}'
            assert told in release.to_json()
            with pytest.raises(DeclarationError, match="kept_confounding"):
                read.from_json(release.to_json().replace(told, '"kept_confounding": -0.5'))


@pytest.mark.parametrize("also", [{"x": (-1.0, 1.0)}, {}], ids=["another varies", "nothing varies"])
def test_a_covariate_that_never_varies_costs_no_release(also):
    """The only level of a column is on in all records: what was paid for is released all the same."""
    book = Codebook(levels={"region": ["N"]})
    domain = Domain(2.0, 1.0, ranges={"region=N": (-1.0, 1.0), **also}, codebook=book)
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"region": ["N"] * 200, "x": rng.uniform(-1, 1, 200)})
    a, y = rng.integers(0, 2, 200), rng.uniform(-1, 1, 200)
    logistic = {"settings": {"propensity": "logistic"}}
    for model, known in (
        (PrivateEffect(domain, Budget(1.0)), "kept_confounding"),
        (PrivateRule(domain, Budget(1.0), **logistic), "kept_confounding"),
        (PrivateTwoStageERM(domain, Budget(1.0), "ipw_logistic", "arm_means"), "kept_imbalance"),
    ):
        release = model.fit(X, a, y).release_
        assert (getattr(release, known) is None) is (not also)
        assert type(release).from_json(release.to_json()) == release
