"""An effect by the weights of a declared scheme: interval, refusals, study file and
verification.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, read_release
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.inference.rehearsal import Public, normal_records, rehearsed
from dp2erm_cvx.inference.weighted import expected_interval
from dp2erm_cvx.plan.effect import weighted_facts
from dp2erm_cvx.program import scheme, setting
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.study import read_study

P = 3


@scheme(ridge=setting(0.05, above=0))
def capped_squares(w: cp.Variable, records: Any, ridge: float) -> cp.Problem:
    """Squared weights under caps of three, with the masses of the arms among what is balanced."""
    half = cp.hstack([records.n / 2, cp.sum(records.x, axis=0) / 2])
    imbalance = records.by_arm(1.0).T @ w - cp.hstack([half, half])
    price = cp.sum_squares(imbalance) / (2 * ridge * records.n)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) / 2 + price), [w <= 3])


@scheme(ridge=setting(0.1, above=0))
def by_totals(w: cp.Variable, records: Any, ridge: float) -> cp.Problem:
    """Each arm weighs as many as it has records."""
    price = cp.sum_squares(records.by_arm(1.0).T @ w) / (2 * ridge * records.n)
    totals = records.arms.T @ w == cp.sum(records.arms, axis=0)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + price), [totals])


def domain_of(**changes: Any) -> Domain:
    return Domain(
        **{
            "covariate_bound": math.sqrt(P),
            "outcome_bound": 6.0,
            "ranges": [(-1.0, 1.0)] * P,
            **changes,
        }
    )


def drawn(n: int, seed: int, strength: float = 0.6) -> tuple[Array, Array, Array]:
    """Covariates, treatments and outcomes; the effect is 1, the arms lie about ``strength``
    apart.
    """
    rng = np.random.default_rng([41, seed])
    X = rng.uniform(-1.0, 1.0, (n, P))
    score = X.sum(axis=1) * math.sqrt(3.0 / P)
    a = (rng.random(n) < 1.0 / (1.0 + np.exp(-strength * score))).astype(float)
    return X, a, score + a + rng.standard_normal(n)


def model_of(**changes: Any) -> PrivateEffect:
    settings: dict[str, Any] = {
        "residual_scale": 1.0,
        "weights": "entropy_balancing",
        "seed": 5,
        **changes,
    }
    domain = settings.pop("domain", domain_of())
    return PrivateEffect(domain, settings.pop("budget", Budget(2.0)), **settings)


@pytest.fixture(scope="module")
def fitted() -> PrivateEffect:
    return model_of().fit(*drawn(3000, 0))


def test_the_interval_holds_the_effect(fitted: PrivateEffect) -> None:
    release = fitted.release_
    low, high = fitted.interval_
    assert low < 1.0 < high
    assert high - low < 0.4
    assert release.target == "effect"
    weighting = release.weighting
    assert weighting is not None
    assert weighting.program == "entropy_balancing"
    assert 0.2 < weighting.left < 0.7
    assert 1.0 <= weighting.inflation < 1.4
    assert 5.0 < weighting.stability < 20.0
    parts = [release.interval.noise_half_width, release.interval.sampling_half_width]
    assert max(part for part in parts if part) < 0.5 * (high - low)


def test_a_plan_predicts_the_half_width_of_the_interval(fitted: PrivateEffect) -> None:
    """By the formula of the release, at numbers that are expected: what it printed was half as
    wide.
    """
    plan = fitted.plan(3000, P)
    predicted = 1.96 * math.sqrt(plan.study.predicted_error)
    assert predicted == pytest.approx(fitted.release_.interval.half_width, rel=0.12)
    records = normal_records(plan.study.start, 3000, 0.5, 1.0)
    interval, weighting = expected_interval(weighted_facts(plan), records, 0.95)
    # but for the share of the budget that covers arithmetic
    assert predicted == pytest.approx(0.5 * (interval.high - interval.low), rel=2e-3)
    assert weighting.stability == fitted.plan(3000, P).main.at_rate(0.5).movement
    text = " ".join(str(plan).split())
    assert f"Predicted 95 % half width: {predicted:.3g}" in text
    assert "where half are treated" in text


def test_what_must_hold_is_said_at_once(fitted: PrivateEffect) -> None:
    text = " ".join(fitted.release_.summary(200).split())
    assert "outcomes that are linear in the covariates" in text
    assert "at most 1 standard deviations apart (confounding)" in text
    assert "near normal along their difference" in text
    assert "sum of weighted residuals" in text
    assert "Tipping point" not in text
    plan = " ".join(str(fitted.plan(3000, P)).split())
    assert "move by at most V =" in plan
    assert "near normal along their difference" in plan


def test_a_release_is_read_and_verified_again(fitted: PrivateEffect) -> None:
    text = fitted.release_.to_json()
    assert read_release(text, EffectRelease) == fitted.release_
    plain = json.loads(text)
    assert plain["declared"]["weights"] == "entropy_balancing"
    for change in (
        lambda one: one["weighting"].update(left=0.1),
        lambda one: one["weighting"].update(stability=3.0),
        lambda one: one.update(estimate=one["estimate"] + 0.1),
        lambda one: one["interval"].update(low=one["interval"]["low"] + 0.05),
    ):
        changed = json.loads(text)
        change(changed)
        with pytest.raises(Dp2ermError):
            read_release(json.dumps(changed), EffectRelease)
    assert verify(fitted.release_).holds


def test_effects_without_a_scheme_do_not_name_one() -> None:
    release = model_of(weights=None).fit(*drawn(600, 1)).release_
    assert "weighting" not in json.loads(release.to_json())
    assert "weights" not in release.declared


def test_a_scheme_of_ones_own_answers() -> None:
    model = model_of(weights=capped_squares(ridge=0.05), confounding=0.8).fit(*drawn(3000, 2))
    low, high = model.interval_
    assert low < 1.0 < high
    assert model.release_.weighting.program == "capped_squares"
    assert model.release_.declared["weights"]["settings"]["ridge"] == 0.05


def test_two_values_are_answered_without_a_bent_line() -> None:
    n = 6000
    X, a, _ = drawn(n, 3)
    rng = np.random.default_rng(8)
    share = 0.4 + 0.1 * X.sum(axis=1) / math.sqrt(P) * math.sqrt(3.0) + 0.1 * a
    y = (rng.random(n) < np.clip(share, 0.0, 1.0)).astype(float)
    domain = domain_of(outcome_bound=0.5, outcome_center=0.5, binary_outcome=True)
    model = model_of(domain=domain, residual_scale=0.48).fit(X, a, y)
    low, high = model.interval_
    assert low < 0.1 < high
    assert high - low < 0.2
    assert model.release_.settings["residual_bound"] == 1.0


def test_the_rule_of_use_follows_the_declared_distance() -> None:
    near, far = (
        model_of(confounding=distance).plan(3000, P).main.program for distance in (1.3, 1.4)
    )
    assert near.value("cap") == 1.5
    assert far.value("cap") == 2.0
    assert far.value("ridge") == pytest.approx(near.value("ridge") / 3.0)
    bound = model_of().plan(3000, P).main.universe.space.features_bound
    assert near.value("ridge") == pytest.approx(3.6 / math.sqrt(3000 * 2.0 * P) * bound**2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"estimand": "att"}, "average effect alone"),
        ({"estimand": "overlap"}, "average effect alone"),
        ({"settings": {"propensity": 0.5}}, "take the place of propensity"),
        ({"settings": {"propensity": "logistic"}}, "take the place of propensity"),
        ({"settings": {"rows": "arms"}}, "slopes that both arms have in common"),
        ({"weights": "ipw_logistic"}, "have no proof"),
        ({"weights": "no_such_scheme"}, "unknown program"),
        ({"weights": 3}, "must be a scheme"),
        ({"weights": by_totals()}, "totals by arm"),
    ],
)
def test_what_has_no_proof_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Dp2ermError, match=said) as refused:
        model_of(**changes).plan(400, P)
    assert "\n" not in str(refused.value)


def test_records_in_blocks_and_a_ledger_are_as_for_every_effect() -> None:
    plan = model_of(seed=None).plan(1000, P)
    assert plan.guarantee == Budget(2.0)
    assert plan.certified_by_design
    assert [program.name for program in plan.programs][-1] == "entropy_balancing"


@pytest.mark.slow
def test_a_study_file_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import cvxpy as cp\n"
        "from dp2erm_cvx.program import scheme\n\n"
        "@scheme(ridge=0.05)\n"
        "def mine(w, records, ridge):\n"
        "    half = cp.hstack([records.n / 2, cp.sum(records.x, axis=0) / 2])\n"
        "    off = records.by_arm(1.0).T @ w - cp.hstack([half, half])\n"
        "    price = cp.sum_squares(off) / (2 * ridge * records.n)\n"
        "    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + price), [w <= 2.5])\n"
    )
    study = tmp_path / "study.toml"
    study.write_text(
        'outcome_column = "y"\noutcome_bound = 6.0\ncovariate_bound = 1.5\ntreatment = "a"\n'
        "[ranges]\nx = [-1, 1]\nz = [-1, 1]\n"
        "[budget]\nepsilon = 2.0\n"
        '[[effect]]\nname = "first"\nshare = 0.5\nweights = "entropy_balancing"\n'
        '[[effect]]\nname = "second"\nshare = 0.3\nweights = "mine.py"\n'
        '[[effect]]\nname = "third"\nshare = 0.2\n'
        'weights = {name = "entropy_balancing", ridge = 0.1, cap = 1.5, bases = "by_arm"}\n'
    )
    read = read_study(study)
    models = read.models()
    plans = {name: model.plan(2000, ("x", "z")) for name, model in models.items()}
    assert plans["first"].main.program.name == "entropy_balancing"
    assert plans["second"].main.program.name == "mine"
    assert plans["second"].step("weighted_sum") is not None
    third = plans["third"].main
    assert third.program.value("ridge") == 0.1
    assert third.program.value("cap") == 1.5
    # what is left to the domain is that of the records that the weights are of
    assert third.program.value("constant") == third.universe.space.features_bound


def test_the_rehearsal_is_what_first_order_says() -> None:
    """``mu / (mu + u^2 w / 2)`` where caps do not bind, u the spread and w the share within the
    arms.
    """
    plan = model_of(confounding=0.3).plan(4000, P)
    program = plan.main.program.with_settings(cap=math.inf)
    space = plan.main.universe.space
    bound = space.features_bound
    spread = 0.3 * bound
    public = Public(space, 0.5, 0.0, (spread,) * P, 0.3)
    trial = rehearsed(program, public)
    ridge = program.value("ridge")
    within = 1.0 - 0.25 * 0.3**2
    expected = ridge / (ridge + spread**2 * within / 2.0)
    assert trial.left == pytest.approx(expected, rel=0.08)
    assert trial.mass == pytest.approx(0.0, abs=1e-3)
    noisy = rehearsed(program, replace(public, rate_noise=0.01))
    assert noisy.left == trial.left
    assert 0.001 < noisy.mass < 0.06
    capped = rehearsed(plan.main.program, replace(public, distance=1.5))
    assert capped.left > trial.left


@pytest.mark.slow
@pytest.mark.parametrize(("strength", "declared"), [(0.6, 1.0), (1.2, 1.0), (2.0, 1.5)])
def test_intervals_cover_the_effect_in_seeded_samples(strength: float, declared: float) -> None:
    """Intervals at .95 hold the effect in at least .85 of 40 samples of each population, seeded."""
    n = 6000
    model = model_of(confounding=declared, budget=Budget(1.0))
    plan = model.plan(n, P)
    held = 0
    for seed in range(40):
        records = Dataset.declared(model.domain, *drawn(n, seed, strength))
        release = model.set_params(seed=100 + seed).run_plan(plan, records).release
        held += release.interval.low < 1.0 < release.interval.high
    assert held >= 34
