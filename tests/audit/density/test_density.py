"""The density audit of complete releases: no pair loses more than epsilon, some nearly all of
it.
"""

import dataclasses
import math

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, OpenDomain, PrivateEffect, PrivateRanges
from dp2erm_cvx.audit import SearchPlan, audit_density, search_density
from dp2erm_cvx.audit.density import _hockey_stick, _Judged
from dp2erm_cvx.audit.laws import ObjectiveLaw, ReleaseLaw
from dp2erm_cvx.errors import CertificateError, DataError, DeclarationError
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.plan import RuleStudy, make_plan
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.regression import saturating_regression
from dp2erm_cvx.steps.record_map import Balance
from tests.audit.bugs import DOMAIN, MEAN, loss_at_zero, release, weaker
from tests.audit.clock import WorkClock
from tests.audit.density.released import (
    FLIP,
    LEAVING,
    MOVED,
    OPPOSED,
    SAMPLED,
    effect,
    rule,
    weighted,
    weights,
)
from tests.audit.density.test_laws import FIRST, LINE, LOSSES, SQUARED
from tests.audit.pairs import aligned, changed_record, drawn, heavy, lone, neighbors
from tests.helpers import penalized_rule
from tests.rows import one_of, slow_rows

BOXED = Domain(1.3, 1.0, intercept=0.5, coordinate_bound=1.0)
BOX_RULE = {"domain": dataclasses.replace(DOMAIN, coordinate_bound=1.0), "noise": "box"}
SATURATING = {"second": saturating_regression(slope=0.1), "arithmetic": "assumed"}
HALVED = dataclasses.replace(DOMAIN, outcome_center=0.5, outcome_bound=0.5)
#: Every other record is 0, so that the gradients and curvatures of the first are all there are.
TURNED = changed_record((1, 0, 1), (1, 0, -1), n=6)
MATCHED = changed_record((1, 1, 1), (1, 0, -1), (1, 0, 1))
OTHERS = [5.0, 0.0, 0.0, 0.0, 0.5, 5.0, 0.5]


def public_propensity():
    study = rule(0.3, balance="inverse").plan(8, 1).study
    return make_plan(
        dataclasses.replace(study, declared={**study.declared, "propensity": (1.0, 2.0)})
    )


#: What is released, on which neighbors, and the share of epsilon that these lose at least.
KEPT = {
    **{
        f"{FIRST[k % 3].name}, {second!r}": (
            release(FIRST[k % 3], second),
            drawn((neighbors, lone)[k // 3]),
            0,
        )
        for k, second in enumerate(SQUARED)
    },
    "the worst pair": (release(second="plug_in_ate"), drawn(aligned), 0.7),
    **{
        f"{loss}, {first}": (release(first, program, arithmetic="assumed"), pair, 0)
        for loss, (program, *_) in LOSSES.items()
        for first, pair in (("uniform", TURNED), ("entropy_balancing", drawn(lone, 6, seed=2)))
    },
    "composed": (release(LINE, MEAN), drawn(heavy, 4, 1), 0.7),
    # Theorem 15 is attained: by two full slopes, and by a full slope against a full curvature
    "two slopes": (release(**SATURATING), TURNED, 0.99),
    "a slope and a curvature": (
        release(**SATURATING),
        changed_record((1, 0, 0), (1, 0, 1), n=6),
        0.9,
    ),
    "box": (release(**SATURATING, noise="box", domain=BOXED), TURNED, 0.99),
    "box, itr": (release(second=itr(L2Ball(0.5)), noise="box", domain=BOXED), TURNED, 0),
    "effect": (effect(), MOVED, 0.5),
    "effect, score": (effect((0.05, 0.05)), FLIP, 0.8),
    # where arms are as likely, the score of the flip reaches both ends of this bound
    "effect, even": (effect((0.05, 0.05), propensity=0.5, score_bound=1.8), FLIP, 0.9),
    "overlap": (effect(estimand="overlap"), FLIP, 0.2),
    "risks": (effect(estimand="risks", domain=HALVED), FLIP, 0.2),
    "treated": (effect(estimand="att", propensity="constant"), FLIP, 0.2),
    "weighted effect": (effect(domain=SAMPLED), weighted(OPPOSED, weights(5), weights(5)), 0.6),
    # a neighbor has another weight as well
    "effect, lighter": (effect(domain=SAMPLED), weighted(OPPOSED, weights(5), weights(0)), 0),
    "effect, beyond": (effect(domain=SAMPLED), weighted(OPPOSED, weights(0), weights(45, 45)), 0),
    "rule": (rule(), OPPOSED, 0.999),
    # a factor of 1, and full slopes in center and rule
    "rule, turned": (rule(0.3, 0.1), OPPOSED, 0.89),
    # the rule and the propensity see a flip; the center does not, unless the outcome turns as well
    "rule, flip": (rule(0.1, 0.2), LEAVING, 0.75),
    # center and rule have .85 of epsilon, which an outcome that turns takes; a flip takes less of
    # the rule
    "rule, box": (rule(0.2, 0.15, **BOX_RULE), OPPOSED, 0.8499),
    "rule, box, flip": (rule(0.2, 0.15, **BOX_RULE), LEAVING, 0.5),
    "rule, box, fixed": (rule(0.4, **BOX_RULE), OPPOSED, 0.99),
    **{
        f"rule, {balance}": (rule(0.2, 0.2, balance, budget), MATCHED, 0.3)
        for balance, budget in zip(Balance, (0.1, 5.0, 5.0), strict=True)
    },
    "rule, public propensity": (public_propensity(), OPPOSED, 0.3),
    # Theorem 14: a flip turns a response from one end to the other, against full slopes of all
    # others
    "rule, response": (rule(0.1, 0.1, response_bound=2.0), LEAVING, 0.4),
    "weighted rule": (rule(domain=SAMPLED), weighted(OPPOSED, weights(5), weights(5)), 0.999),
    # beyond the bound a record counts as the bound; without a number it does not
    "rule, beyond": (rule(domain=SAMPLED), weighted(OPPOSED, weights(5e9), weights(500)), 0.999),
    "rule, no number": (
        rule(domain=SAMPLED),
        weighted(OPPOSED, weights(np.inf), weights(5)),
        0.499,
    ),
    "rule, other weights": (
        rule(domain=SAMPLED),
        weighted(LEAVING, weights(1, OTHERS), weights(5, OTHERS)),
        0.5,
    ),
    "weighted steps": (
        rule(0.3, 0.1, domain=SAMPLED),
        weighted(OPPOSED, weights(5), weights(9)),
        0.89,
    ),
}


#: Rows whose steps are those of others, at other settings.
ALIKE = (
    *(name for name in KEPT if name.startswith("entropy_balancing, ")),
    "box, itr",
    "effect, even",
    "effect, lighter",
    "effect, beyond",
    "risks",
    "rule, turned",
    "rule, box, flip",
    "rule, box, fixed",
    "rule, overlap",
    "rule, matching",
    "rule, beyond",
    "rule, other weights",
    "weighted rule",
)


@pytest.mark.one_row_in(12)
@pytest.mark.parametrize("name", slow_rows(KEPT, *ALIKE))
def test_no_pair_loses_more_than_epsilon_and_some_nearly_all(name):
    model, pair, least = KEPT[name]
    result = audit_density(model, *pair, starts=2 if least == 0.9 else 1)
    loss = max(result.loss, loss_at_zero(model, pair))
    epsilon = getattr(model, "study", model).budget.epsilon
    assert least * epsilon < loss <= result.epsilon <= epsilon
    assert result.theta_loss <= result.loss
    assert len(result.outputs) > 1 or result.theta_loss > 0.9 * least
    assert result.numerical_error < 1e-6
    assert not result.exceeds
    assert not result.theta_exceeds


GAUSSIAN = {"delta": 0.05, "noise": "gaussian"}
#: What is released with Gaussian noise in some step, the pair, the draws, and what is planted.
DRAWN = {
    "arm means": (release(FIRST[1], SQUARED[1], **GAUSSIAN), drawn(aligned, seed=1), 600, None),
    "plug-in": (release(second="plug_in_ate", **GAUSSIAN), drawn(aligned), 500, {"scale": 0.5}),
    # Theorem 7, before the projection
    "Renyi": (release(delta=0.05, calibration="renyi"), drawn(aligned, seed=1), 600, None),
    "composed": (release(LINE, MEAN, **GAUSSIAN), drawn(heavy, 6, 1), 100, None),
    "composed, Renyi": (
        release(LINE, MEAN, delta=0.05, calibration="renyi"),
        drawn(heavy, 6, 1),
        100,
        None,
    ),
    "margin loss": (release(**SATURATING, **GAUSSIAN), TURNED, 150, {"scale": 0.2}),
    "effect": (effect(delta=0.05, propensity=0.5), FLIP, 100, None),
}


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("name", slow_rows(DRAWN, "arm means", "composed, Renyi"))
def test_gaussian_releases_keep_delta(name):
    model, pair, draws, planted = DRAWN[name]
    result = audit_density(model, *pair, draws=draws)
    stick = result.hockey_stick
    assert 0.0 <= stick.low <= stick.estimate <= stick.high <= (1.0 if draws < 600 else 0.05)
    assert stick.low <= result.delta <= 0.05
    assert not result.exceeds
    if planted:
        plan = model.plan(len(pair[0][1]), pair[0][0].shape[1])
        wrong = audit_density(weaker(plan, **planted), *pair, draws=draws)
        assert wrong.exceeds
        assert "EXCEEDED" in wrong._repr_html_()


def test_gaussian_steps_share_one_delta():
    """Center and rule with less noise than basic composition allows, and with far too little."""
    universe, declared = rule().plan(8, 1).study.universe, {"center_share": 0.5, "propensity": None}
    study = RuleStudy(
        universe, Budget(1.0, 0.05), outcome_scale=0.05, declared=declared, noise="gaussian"
    )
    plan = make_plan(study)
    assert plan.joint
    result = audit_density(plan, *OPPOSED, draws=100)
    assert result.hockey_stick.low <= result.delta <= 0.05
    assert not result.exceeds
    wrong = dataclasses.replace(plan, steps=tuple(step.relieved(4.0) for step in plan.steps))
    assert audit_density(wrong, *OPPOSED, draws=100).exceeds


def test_an_unknown_error_leaves_all_open():
    stick = _hockey_stick([[_Judged(2.0, math.nan, {})] * 200] * 2, 1.0)
    assert (stick.low, stick.high, stick.theta_low) == (0.0, 1.0, 0.0)
    assert not _hockey_stick([[_Judged(math.nan, 0.0, {})] * 200] * 2, 1.0).estimate


@pytest.mark.slow
@pytest.mark.parametrize("seed", one_of([2, 3], 2))
def test_a_longer_search_finds_no_less(seed):
    plans = SearchPlan(1, seed=seed), SearchPlan(4, seed=seed)
    one, more = (
        search_density(release("entropy_balancing"), 6, 1, search=plan, starts=1) for plan in plans
    )
    assert 0.0 < one.audit.loss <= more.audit.loss


LIMITED = {
    "objective": release("entropy_balancing"),
    "gaussian": release(delta=1e-3, noise="gaussian"),
    "effect": PrivateEffect(Domain(outcome_bound=2.0, covariate_bound=1.0), Budget(1.0)),
}


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("seconds", one_of([1, 100], 2))
@pytest.mark.parametrize("name", LIMITED)
def test_a_search_keeps_its_limit_in_seconds_and_says_what_it_cut(monkeypatch, name, seconds):
    clock = WorkClock(monkeypatch, ReleaseLaw, "log_density")
    found = search_density(LIMITED[name], 6, 1, search=SearchPlan(seconds=seconds, clock=clock))
    assert found.counts["audited"] >= 1
    assert found.audit.loss > 0.0 or name == "gaussian"
    # a first look at one pair and one audit are done in any case
    assert clock.seconds <= 1.1 * seconds + 20
    assert "the limit in seconds cut this audit short" in str(found)


@pytest.mark.slow
def test_a_search_that_its_limit_does_not_reach_is_that_without(monkeypatch):
    without = search_density(LIMITED["objective"], 6, 1, search=SearchPlan(1), starts=1)
    clock = WorkClock(monkeypatch, ReleaseLaw, "log_density")
    plan = SearchPlan(1, seconds=1e9, clock=clock)
    limited = search_density(LIMITED["objective"], 6, 1, search=plan, starts=1)
    assert str(limited) == str(without)
    assert "cut" not in str(without)


def test_equal_datasets_lose_nothing():
    data, _ = drawn(neighbors, seed=3)
    assert audit_density(release(), data, data, starts=2).loss == 0.0


PAIR = (X, a, y), other = drawn(neighbors, seed=3)
KEEP = dataclasses.replace(DOMAIN, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
OWN = release(second=penalized_rule(lambda theta: 0.1 * cp.norm(theta, 2))(theta_set=L2Ball(1.0)))
TWO = PAIR[0], (*other[:2], np.where(np.arange(12) == 1, -other[2], other[2]))
ALL = PAIR[0], (*other[:2], other[2] + 0.5)
SHORTER = PAIR[0], (X[1:], a[1:], y[1:])
TWO_WEIGHTS = weighted(OPPOSED, weights(4), [*weights(4)[:-1], 1.0])
INVALID = ({"starts": 0}, {"draws": 1}, {"seed": -1}, {"starts": 1.5})


@pytest.mark.parametrize(
    ("model", "pair", "settings", "error", "words"),
    [
        *((release(), PAIR, wrong, DeclarationError, next(iter(wrong))) for wrong in INVALID),
        (release(), TWO, {}, DataError, "^2 records differ row by row: neighbors differ in one"),
        (release(), ALL, {}, DataError, "^12 records differ row by row: neighbors differ in one"),
        (release(), SHORTER, {}, DataError, "are not neighbors"),
        (release(domain=KEEP), PAIR, {}, DataError, "does not protect"),
        (rule(domain=SAMPLED), TWO_WEIGHTS, {}, DataError, "^2 records differ row by row"),
        (OWN, PAIR, {}, DeclarationError, "with an elastic net"),
        (
            PrivateRanges(OpenDomain([None]), Budget(1000.0), seed=1),
            FLIP,
            {},
            DeclarationError,
            "ranges",
        ),
    ],
)
def test_what_is_no_pair_or_has_no_known_density_is_refused(model, pair, settings, error, words):
    with pytest.raises(error, match=words):
        audit_density(model, *pair, **settings)


def test_densities_that_are_no_numbers_are_no_audit(monkeypatch):
    monkeypatch.setattr(ObjectiveLaw, "error", lambda *_: math.nan)
    with pytest.raises(CertificateError, match="no output"):
        audit_density(release(), *PAIR, starts=1)


@pytest.mark.slow
def test_a_search_among_densities_that_are_no_numbers_audits_nothing(monkeypatch):
    monkeypatch.setattr(ObjectiveLaw, "log_density", lambda *_: math.nan)
    model, search = release(delta=1e-3, noise="gaussian"), SearchPlan(1, progress=print)
    with pytest.raises(CertificateError, match="nothing was audited"):
        search_density(model, 6, 1, search=search)
