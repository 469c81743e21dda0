"""What may be declared about effects, rules and weights, and how their budgets are divided."""

import math
from dataclasses import replace

import cvxpy as cp
import pytest

from dp2erm_cvx import Budget, Domain, Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import ElasticNet
from dp2erm_cvx.plan import EffectStudy, RuleStudy, Study, make_plan, rule_of_use
from dp2erm_cvx.plan.defaults import ALONG_SHARE
from dp2erm_cvx.problems.arm_means import arm_means
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.problems.mmd import mmd
from dp2erm_cvx.problems.paper_entropy_balancing import PaperEntropyBalancing
from dp2erm_cvx.program import L1Ball
from dp2erm_cvx.steps.record_map import Balance
from tests.helpers import penalized_rule

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=4.0)


def effect(n=5000, epsilon=1.0, delta=0.0, k=3, domain=DOMAIN, **changes):
    universe = Universe(domain, n, k)
    return EffectStudy(universe, Budget(epsilon, delta), **({"residual_scale": 0.5} | changes))


def rule(n=1000, epsilon=1.0, delta=0.0, k=3, domain=DOMAIN, **changes):
    return RuleStudy(Universe(domain, n, k), Budget(epsilon, delta), outcome_scale=1.0, **changes)


def weights(first=None, second=None, domain=None, budget=None, **changes):
    universe = Universe(domain or Domain(2.0, 1.0, arm_floor=20), 100, 2)
    return Study(
        first or Uniform(), second or itr(), universe, budget or Budget(1.0, 1e-3), **changes
    )


ORDER = ("rate", "mean", "spread", "along", "center", "propensity", "rule", "score")


def test_arms_declared_far_apart_are_answered_by_a_regression_alone() -> None:
    near, far = (effect(20_000, confounding=apart).settings for apart in (1.19, 1.2))
    assert (near.propensity, far.propensity) == ("logistic", "constant")
    assert far.center_share > 2.0 * near.center_share
    declared = effect(20_000, confounding=1.2, declared={"propensity": "logistic"}).settings
    assert declared.center_share < 0.5  # as both are paid for
    # as probabilities are no lines, a regression alone errs more for events
    events = Domain(1.5, 0.5, outcome_center=0.5, binary_outcome=True)
    assert effect(20_000, domain=events, confounding=1.5).settings.propensity == "logistic"


def test_a_propensity_of_none_is_refused_for_an_event_as_for_any_outcome() -> None:
    numbers = Domain(1.5, 0.5, outcome_center=0.5)
    for domain in (numbers, replace(numbers, binary_outcome=True)):
        with pytest.raises(DeclarationError, match="propensity = None: must be a number"):
            effect(2000, domain=domain, declared={"propensity": None})


@pytest.mark.one_row_in(18)
@pytest.mark.parametrize("n", [5000, 1000, 300, 100])
@pytest.mark.parametrize(
    ("noise", "delta", "arithmetic"), [("gamma", 0.0, "counted"), ("gaussian", 1e-6, "assumed")]
)
@pytest.mark.parametrize(
    ("study", "declared"),
    [
        *((effect, {"propensity": one}) for one in ("logistic", "constant", 0.5)),
        *((rule, {"balance": str(one)}) for one in Balance),
    ],
)
def test_the_steps_spend_the_budget_and_no_more(study, declared, noise, delta, arithmetic, n):
    study = study(n, delta=delta, noise=noise, arithmetic=arithmetic, declared=declared)
    plan, settings = make_plan(study), study.settings
    spent = {step.name: step.guarantee for step in plan.steps}
    # Gaussian steps that share one delta spend more by themselves
    assert 1.0 - 1e-9 < sum(part.epsilon for part in spent.values()) <= (2.0 if plan.joint else 1.0)
    assert sum(part.delta for part in spent.values()) <= delta
    # where gamma noise is predicted to err less in every step, no delta is spent
    gaussian = [step.name for step in plan.steps if step.calibration.noise == "gaussian"]
    assert plan.guarantee == Budget(1.0, delta if gaussian else 0.0)
    assert {*gaussian} <= {"mean", "spread", "along", "center", "propensity", "rule"}
    assert (plan.counted, plan.proven, plan.certified_by_design) == (
        arithmetic == "counted",
        True,
        True,
    )
    assert [step.bound.V for step in plan.steps] == [2.0] * len(plan.steps)
    assert list(spent) == [name for name in ORDER if name in spent]
    # a few numbers have no part of one delta
    assert plan.joint is False or isinstance(study, RuleStudy)
    known = {
        "propensity": settings.propensity == "logistic",
        "rate": isinstance(settings.propensity, str),
    }
    shares = {
        name: getattr(settings, f"{name}_share", None)
        for name in ORDER[:6]
        if known.get(name, True)
    }
    takes = {name: share for name, share in shares.items() if share is not None}
    if "along" in spent:  # which takes a part of the share of the mean
        takes |= {"mean": (1.0 - ALONG_SHARE) * takes["mean"], "along": ALONG_SHARE * takes["mean"]}
    assert {*takes, settings.rest} == {*spent}
    for name, share in (
        {} if plan.joint else takes | {settings.rest: 1.0 - settings.spent}
    ).items():
        assert spent[name].epsilon == pytest.approx(share, rel=1e-9)


def test_the_public_rule_of_use():
    def names(n=1000, epsilon=1.0, declared=None, expected=(), domain=DOMAIN):
        study = rule(n, epsilon, declared=declared or {}, expected=expected, domain=domain)
        return [step.name for step in make_plan(study).steps]

    assert names() == ["spread", "center", "propensity", "rule"]
    assert names(300) == ["center", "rule"]
    assert names(100) == ["rule"]
    for fact in ("main effect", "confounding"):
        assert names(100, expected=(fact,)) == ["center", "rule"]
    assert names(declared={"propensity": 0.5}) == ["spread", "center", "rule"]
    # public coefficients are of covariates as the domain scales them
    assert names(declared={"propensity": (0.1, 0.2, 0.3, 0.4)}) == ["center", "rule"]
    alone = {"center_share": None, "propensity": None, "mean_share": None, "spread_share": None}
    assert names(declared=alone) == ["rule"]
    # a mean of the covariates is worth its price where it is known to a fraction of their spread
    ranged = Domain(
        covariate_bound=2.0, outcome_bound=4.0, ranges=dict.fromkeys("uvw", (-1.0, 1.0))
    )
    assert names(4000, domain=ranged)[:2] == ["mean", "spread"]
    assert names(domain=ranged)[:2] == ["spread", "center"]
    value = ["sides", "arms", "value"]
    assert names(declared={"value_share": 0.2})[-4:] == ["rule", *value]
    assert names(100, declared={"value_share": 0.2}) == ["rule", *value]
    assert names(declared={"value_share": 0.2, "propensity": 0.5})[-3:] == ["rule", *value[1:]]
    # n epsilon per column is what counts, the constant among the columns
    assert rule_of_use(Universe(DOMAIN, 1200, 7), Budget(1.0), 1.0).propensity == "logistic"
    assert rule_of_use(Universe(DOMAIN, 1200, 7), Budget(0.99), 1.0).propensity is None


PUBLIC = (0.1, 0.2, 0.3, 0.4)
EVENT = Domain(covariate_bound=1.5, outcome_bound=0.5, outcome_center=0.5)
PAPER = PaperEntropyBalancing(radius=1.0)
OWN = penalized_rule(lambda theta: cp.norm(theta, 2))(theta_set=L1Ball(1.0))
COUNTED, PURE, FREE = {"arithmetic": "counted"}, Budget(1.0), {"domain": Domain(2.0, 1.0)}
#: Settings of a study and part of what is said of them.
BOTH = [
    ({"shares": 1}, "is no setting"), ({"cap": 1.0}, "cap"), ({"slope": math.nan}, "slope"),
    *(({"propensity": wrong}, "propensity") for wrong in (1.0, "forest", "cells")), ({"split": 1.0},
    "split"),
    ({"center_share": 0.0}, "center_share"), ({"mean_share": 1.0}, "mean_share"),
    ({"norm_bound": 0.0}, "norm_bound"), ({"spread_share": 0.9}, "leave nothing"),
    ({"center_share": 0.95, "propensity_share": 0.2}, "leave nothing"),
]  # fmt: skip
OF_EFFECTS = [
    ({"rows": "lines"}, "rows"), ({"arms": "both"}, "arms"),
    ({"rows": None}, "rows"), ({"cells": {"u": 2}}, "is no setting"),
    ({"center_share": 0.9, "rate_share": 0.1}, "leave nothing"),
]  # fmt: skip
OF_RULES = [
    *(({"propensity": wrong}, "4 public coefficients") for wrong in ((0.1, 0.2), PUBLIC * 2)),
    ({"balance": "nearest"}, "balance"), ({"propensity": (*PUBLIC[1:], math.inf)}, "propensity"),
    ({"center_norm": -1.0}, "center_norm"), ({"norm": math.inf}, "norm"),
    ({"propensity": PUBLIC, "spread_share": 0.1}, "spread_share would move those"),
    ({"response_bound": 0.0}, "response_bound"),
    ({"response_bound": 1.0, "propensity": None}, "needs a propensity"),
]  # fmt: skip
OF_WEIGHTS = [
    ({"first": mmd(cap=5.0), "calibration": "paper"}, "false under replace-one"),
    ({"first": PAPER, "calibration": "paper"} | FREE, "arm_floor"), ({"first": mmd()} | FREE,
    "arm_floor"),
    ({"first": mmd(cap=1.5, ridge=1e-3)}, "cap"), ({"calibration": "renyi", "budget": PURE},
    "delta"),
    ({"second": itr(regularizer=ElasticNet(l1=0.1)), "calibration": "renyi"}, "regul"),
    ({"second": arm_means(), "calibration": "output"}, "use plug_in_ate"),
    ({"first": ipw_private(radius=math.inf, trim=math.inf)}, "finite radius or trim"),
    (COUNTED | {"calibration": "paper"}, "paper's calibrations"),
    (COUNTED | {"second": OWN}, "penalized does"),
    *(({"split": 0.5, "calibration": one}, "split = 0.5") for one in ("renyi", "auto")),
    ({"calibration": "best"}, "must be one of"), ({"noise": "laplace"}, "noise"),
    ({"tolerance": -0.1}, "tolerance"), ({"arithmetic": "exact"}, "auto, counted, assumed"),
    *((COUNTED | {"numerical_share": one}, "numerical_share") for one in (0.0, 1.0, -0.1, math.nan,
    "x")),
]  # fmt: skip
RISKS = [{"outcome_bound": 1.0}, {"outcome_bound": 0.4}, {"outcome_center": 0.0}]


@pytest.mark.parametrize(
    ("study", "changes", "said"),
    [
        *((effect, {"declared": one}, said) for one, said in BOTH + OF_EFFECTS),
        *((rule, {"declared": one}, said) for one, said in BOTH + OF_RULES),
        *((rule, {"expected": wrong}, "expected") for wrong in ("confounding", ("skewness",))),
        *(
            (effect, {"estimand": "risks", "domain": replace(EVENT, **one)}, "a risk is of an")
            for one in RISKS
        ),
        *((weights, changes, said) for changes, said in OF_WEIGHTS),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(study, changes, said):
    with pytest.raises((CalibrationError, DeclarationError), match=said) as caught:
        make_plan(study(**changes))
    assert "\n" not in str(caught.value)
