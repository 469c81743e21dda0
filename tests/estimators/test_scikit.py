"""scikit-learn's conventions: nested settings, no score, no search, and what a Pipeline has read
before.
"""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, scale

from dp2erm_cvx import (
    Budget,
    Domain,
    PrivateEffect,
    PrivateRule,
    PrivateTwoStageERM,
    TwoStageERM,
    read_release,
)
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.report.words import meaning, promised

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=4.0)
RNG = np.random.default_rng(0)
X, A, Y = RNG.uniform(-1, 1, (200, 2)), RNG.integers(0, 2, 200), RNG.uniform(-1, 1, 200)


class Scored(PrivateTwoStageERM):
    def score(self, X, a):
        return 0.0


def weighted(kind=PrivateTwoStageERM, **settings):
    return kind(DOMAIN, Budget(1.0), ipw_logistic(ridge=0.5), "arm_means", **settings)


def test_nested_settings_make_new_programs_domains_and_budgets():
    first = ipw_logistic(ridge=0.5)
    model = PrivateTwoStageERM(DOMAIN, Budget(1.0), first, "itr")
    assert model.get_params()["first_stage__ridge"] == 0.5
    assert "first_stage__ridge" not in model.get_params(deep=False)
    copy = clone(model).set_params(
        first_stage__ridge=2.0, budget__epsilon=3.0, domain__outcome_bound=1.0
    )
    assert copy.first_stage == replace(first, ridge=2.0)
    assert (copy.budget, copy.domain) == (Budget(3.0), replace(DOMAIN, outcome_bound=1.0))
    assert (model.first_stage, model.domain, first.ridge) == (first, DOMAIN, 0.5)
    assert clone(copy).get_params() == copy.get_params()
    assert copy.set_params(**copy.get_params()).get_params() == copy.get_params()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("first_stage__rigde", "mean first_stage__ridge"), ("budgt", "mean budget"), ("q", "known")],
)
def test_an_unknown_setting_changes_nothing(name, complaint):
    model = weighted()
    with pytest.raises(DeclarationError, match=complaint):
        model.set_params(**{"split": 0.5, name: 1.0})
    assert model.split is None


@pytest.mark.parametrize("kind", [PrivateTwoStageERM, PrivateEffect, PrivateRule])
def test_a_score_points_to_the_design(kind):
    with pytest.raises(DeclarationError, match="are compared by a design"):
        kind(DOMAIN, Budget(1.0)).score(X, A)
    assert not hasattr(TwoStageERM(DOMAIN), "score")  # nothing of it is private


def test_no_search_spends_anything(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.declare("trial", Budget(9.0))
    model = weighted(ledger=ledger, dataset="trial")
    with pytest.raises(DeclarationError, match="are compared by a design"):
        GridSearchCV(model, {"first_stage__ridge": [0.5, 1.0]}).fit(X, A)
    with pytest.raises(DeclarationError, match="are compared by a design"):
        cross_val_score(model, X, A, params={"y": Y})
    # an own scoring, or score, is never refused by itself: every fit refuses before it charges
    own = weighted(Scored, ledger=ledger, dataset="trial")
    for fitted, scoring in ((model, "accuracy"), (own, None)):
        with pytest.raises(ValueError, match="are compared by a design"):
            cross_val_score(fitted, X, A, params={"y": Y}, scoring=scoring)
    assert ledger.account("trial").receipts == ()
    # what is seeded is no release
    assert len(cross_val_score(weighted(seed=1), X, A, params={"y": Y}, scoring="accuracy")) == 5


@pytest.mark.slow
def test_a_pipeline_says_what_has_read_the_records():
    for kind, name in (
        (PrivateEffect, "privateeffect"),
        (PrivateTwoStageERM, "privatetwostageerm"),
    ):
        outer = make_pipeline(StandardScaler(), kind(DOMAIN, Budget(1.0)))
        with pytest.warns(UserWarning, match="step standardscaler of this Pipeline read all"):
            outer.fit(X, A, **{f"{name}__y": Y, f"{name}__conditional": True})
        release = outer[-1].release_
        assert "step standardscaler" in release.guarantee.assumptions[-1]
        assert (release.private, release.standing) == (False, Standing.FITTED_BEFORE)
        assert promised(release)[0][0] == meaning(release) in " ".join(release.summary(999).split())
        assert "what follows holds if step standardscaler of a Pipeline" in promised(release)[0][0]
        assert verify(release).holds
        both = replace(release, guarantee=replace(release.guarantee, standing=Standing.CONDITIONAL))
        assert "up to a proven distance, and if step standardscaler of a Pipeline" in meaning(both)
        assert read_release(release.to_json()) == release
        claimed = replace(release, guarantee=replace(release.guarantee, standing=Standing.PRIVATE))
        assert not verify(claimed).holds
    inner = make_pipeline(make_pipeline(weighted()))
    inner.set_params(pipeline__privatetwostageerm__first_stage__ridge=9.0)
    assert inner[0][0].first_stage.ridge == 9.0
    # a function may read all rows, a frozen step may have been fitted to them, of others nobody
    # knows
    own = type("Own", (FunctionTransformer,), {})(np.tanh)
    for step in (FunctionTransformer(scale), FrozenEstimator(StandardScaler().fit(X)), own):
        before = make_pipeline(step, weighted())
        with pytest.warns(UserWarning, match=f"step {type(step).__name__.lower()}"):
            before.fit(X, A, privatetwostageerm__y=Y, privatetwostageerm__conditional=True)
        assert before[-1].release_.standing is Standing.FITTED_BEFORE
    both = make_pipeline(StandardScaler(), inner)
    own = "pipeline__pipeline__privatetwostageerm__"
    with pytest.warns(UserWarning, match="step standardscaler"):
        both.fit(X, A, **{f"{own}y": Y, f"{own}conditional": True})


def test_steps_that_learn_nothing_are_no_reason_to_warn(recwarn):
    pipeline = make_pipeline(FunctionTransformer(np.tanh), "passthrough", weighted())
    pipeline.fit(X, A, privatetwostageerm__y=Y)
    told = [str(one.message) for one in recwarn] + [*pipeline[-1].release_.guarantee.assumptions]
    assert not any("Pipeline" in text for text in told)
