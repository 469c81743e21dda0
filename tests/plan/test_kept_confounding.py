"""What a rule leaves of a declared confounder, predicted without data."""

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, EffectRelease, PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan.predict import DIFFERENCE, kept_confounding
from dp2erm_cvx.release.rule import RuleRelease

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=12.0)


def rule(n, epsilon=1.0, **settings):
    model = PrivateRule(DOMAIN, Budget(epsilon), outcome_scale=2.0, settings=settings)
    return kept_confounding(model.plan(n, 2))


def confounded(n, seed):
    """A covariate well inside the domain, apart by the declared difference, that moves the outcome by 2."""
    rng = np.random.default_rng(seed)
    a, z = np.arange(n) % 2, rng.standard_normal(n)
    z += DIFFERENCE * (a - 0.5)
    X = np.column_stack([0.25 * z, 0.25 * rng.standard_normal(n)])
    return X, a, 2.0 * (z + rng.standard_normal(n))


def test_records_and_epsilon_decide_how_much_stays():
    shares = [rule(n) for n in (60, 400, 100_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.05
    assert shares[0] > 0.3
    assert rule(400, epsilon=0.2) > rule(400, epsilon=5.0)


def test_the_prediction_is_what_fits_leave():
    """Whole fits with their noise, of which the prediction knows n and public guesses alone."""
    model, effects = PrivateRule(DOMAIN, Budget(1.0), outcome_scale=2.0, arithmetic="assumed"), []
    for seed in range(40):
        X, a, y = confounded(400, seed)
        constant, *slopes = model.set_params(seed=seed).fit(X, a, y).release_.theta
        effects.append(constant + np.mean(X @ np.array(slopes)))
    stays = np.mean(effects) / (2.0 * DIFFERENCE)
    error = np.std(effects) / np.sqrt(len(effects)) / (2.0 * DIFFERENCE)
    assert stays == pytest.approx(rule(400), abs=3.0 * error + 0.05)
    assert error < 0.08 < 0.2 < stays


def test_a_rule_without_center_and_propensity_leaves_all():
    assert rule(400, center_share=None, propensity=None) == pytest.approx(1.0, abs=1e-6)
    assert rule(100_000, center_share=None) < 0.3


def test_nothing_is_predicted_where_nothing_is_confounded_or_known():
    assert rule(400, propensity=[0.1, 0.2, 0.3]) is None


def test_a_release_says_it_and_warns():
    X, a, y = confounded(300, 0)
    for epsilon, warned in ((0.05, True), (50.0, False)):
        release = PrivateRule(DOMAIN, Budget(epsilon), seed=1).fit(X, a, y).release_
        text = " ".join(release.summary().split())
        assert f"About {100 * min(release.kept_confounding, 1.0):.0f} % of the confounding" in text
        assert ("The correction hardly works" in text) is warned
        assert RuleRelease.from_json(release.to_json()) == release
        told = f'"kept_confounding": {release.kept_confounding!r}'
        assert told in release.to_json()
        with pytest.raises(DeclarationError, match="kept_confounding"):
            RuleRelease.from_json(release.to_json().replace(told, '"kept_confounding": -0.5'))


@pytest.mark.parametrize("also", [{"x": (-1.0, 1.0)}, {}], ids=["another varies", "nothing varies"])
def test_a_covariate_that_never_varies_costs_no_release(also):
    """The only level of a column is on in all records: what was paid for is released all the same."""
    book = Codebook(levels={"region": ["N"]})
    domain = Domain(2.0, 1.0, ranges={"region=N": (-1.0, 1.0), **also}, codebook=book)
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"region": ["N"] * 200, "x": rng.uniform(-1, 1, 200)})
    a, y = rng.integers(0, 2, 200), rng.uniform(-1, 1, 200)
    effect = PrivateEffect(domain, Budget(1.0)).fit(X, a, y).release_
    assert EffectRelease.from_json(effect.to_json()) == effect
    logistic = {"settings": {"propensity": "logistic"}}
    for model, known in (
        (PrivateRule(domain, Budget(1.0), **logistic), "kept_confounding"),
        (PrivateTwoStageERM(domain, Budget(1.0), "ipw_logistic", "arm_means"), "kept_imbalance"),
    ):
        release = model.fit(X, a, y).release_
        assert (getattr(release, known) is None) is (not also)
        assert type(release).from_json(release.to_json()) == release
