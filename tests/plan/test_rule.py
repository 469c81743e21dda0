"""What is declared about a rule, how its budget is divided, and what its plan predicts."""

import math

import numpy as np
import pytest

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Domain, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import RuleStudy, make_plan, rule_of_use
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.record_map import Balance
from dp2erm_cvx.steps.step import Execution
from tests.plan.changed import changed

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=4.0)
RICH, MIDDLE, POOR = (Universe(DOMAIN, n, 3) for n in (1000, 300, 100))


def study(universe=RICH, epsilon=1.0, delta=0.0, **changes):
    return RuleStudy(universe, Budget(epsilon, delta), outcome_scale=1.0, **changes)


def names(declared):
    return [step.name for step in make_plan(declared).steps]


def test_the_public_rule_of_use():
    assert names(study(RICH)) == ["spread", "center", "propensity", "rule"]
    assert names(study(MIDDLE)) == ["center", "rule"]
    assert names(study(POOR)) == ["rule"]
    for fact in ("main effect", "confounding"):
        assert names(study(POOR, expected=(fact,))) == ["center", "rule"]
    assert names(study(RICH, declared={"propensity": 0.5})) == ["spread", "center", "rule"]
    # public coefficients are of covariates as the domain scales them
    assert names(study(RICH, declared={"propensity": (0.1, 0.2, 0.3, 0.4)})) == ["center", "rule"]
    alone = {"center_share": None, "propensity": None, "mean_share": None, "spread_share": None}
    assert names(study(RICH, declared=alone)) == ["rule"]
    # a mean of the covariates is worth its price where it is known to a fraction of their spread
    ranged = Domain(covariate_bound=2.0, outcome_bound=4.0, ranges=dict.fromkeys("uvw", (-1.0, 1.0)))
    assert names(study(Universe(ranged, 4000, 3)))[:2] == ["mean", "spread"]
    assert names(study(Universe(ranged, 1000, 3)))[:2] == ["spread", "center"]
    value = ["sides", "arms", "value"]
    assert names(study(RICH, declared={"value_share": 0.2}))[-4:] == ["rule", *value]
    assert names(study(POOR, declared={"value_share": 0.2})) == ["rule", *value]
    assert names(study(RICH, declared={"value_share": 0.2, "propensity": 0.5}))[-3:] == ["rule", *value[1:]]
    # n epsilon per column is what counts, the constant among the columns
    assert rule_of_use(Universe(DOMAIN, 1200, 7), Budget(1.0), 1.0).propensity == "logistic"
    assert rule_of_use(Universe(DOMAIN, 1200, 7), Budget(0.99), 1.0).propensity is None


@pytest.mark.parametrize("universe", [RICH, MIDDLE, POOR], ids=["rich", "middle", "poor"])
@pytest.mark.parametrize(
    ("noise", "delta", "arithmetic"), [("gamma", 0.0, "counted"), ("gaussian", 1e-6, "assumed")]
)
@pytest.mark.parametrize("balance", Balance)
def test_the_steps_spend_the_budget_and_no_more(universe, arithmetic, noise, delta, balance):
    declared = study(
        universe, 1.0, delta, noise=noise, arithmetic=arithmetic, declared={"balance": str(balance)}
    )
    plan = make_plan(declared)
    spent = [step.guarantee for step in plan.steps]
    # Gaussian steps that share one delta spend more by themselves
    assert 1.0 - 1e-9 < sum(part.epsilon for part in spent) <= (2.0 if plan.joint else 1.0)
    assert sum(part.delta for part in spent) <= delta
    # where pure noise is predicted to err less in every step, no delta is spent
    assert plan.guarantee == Budget(1.0, delta if any(part.delta for part in spent) else 0.0)
    assert plan.counted is (arithmetic == "counted")
    assert plan.proven
    assert plan.certified_by_design
    assert [step.bound.V for step in plan.steps] == [2.0] * len(plan.steps)
    if plan.joint:
        return
    shares = {step.name: step.guarantee.epsilon for step in plan.steps}
    settings = declared.settings
    if "center" in shares:
        assert shares["center"] == pytest.approx(settings.center_share, rel=1e-9)
    if "propensity" in shares:
        assert shares["propensity"] == pytest.approx(settings.propensity_share, rel=1e-9)
    assert shares["rule"] == pytest.approx(1.0 - settings.spent, rel=1e-9)


def test_every_step_is_calibrated_as_the_theorem_says():
    """1/beta = 2 M c / eps and gamma = 2 M^2 / (n eps), M with the constant, whatever factors there are."""
    plan = make_plan(study())
    # covariates are scaled to these norms, whatever was declared
    for step, share, c, norm in ((plan.step("center"), 0.3, 0.35, 1.6), (plan.main, 0.52, 0.7, 2.4)):
        M = math.hypot(1.0, norm)
        assert step.regression is not None
        assert step.universe.domain.covariate_bound == pytest.approx(M)
        assert step.calibration.theorem.startswith("Theorem 15")
        assert step.calibration.scale == pytest.approx(2 * M * c / share)
        assert step.calibration.gamma == pytest.approx(2 * M**2 / (1000 * share))
    propensity = plan.step("propensity")
    assert propensity.program.radius * math.hypot(1.0, plan.study.norm_bound) == pytest.approx(3.3)
    assert plan.main.regression.factored
    assert plan.main.bound.theorem.startswith("Theorem 13")
    assert not make_plan(study(MIDDLE)).main.regression.factored
    inverse = make_plan(study(declared={"balance": "inverse", "cap": 20.0}))
    assert inverse.main.calibration == plan.main.calibration


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ({"shares": 1}, "is no setting"),
        ({"balance": "nearest"}, "balance"),
        ({"cap": 1.0}, "cap"),
        ({"propensity": 1.0}, "propensity"),
        ({"propensity": "forest"}, "propensity"),
        ({"propensity": (0.1, 0.2)}, "4 public coefficients"),
        ({"propensity": (0.1, 0.2, 0.3, math.inf)}, "propensity"),
        ({"propensity": (0.1, 0.2, 0.3, 0.4), "spread_share": 0.1}, "spread_share would move those"),
        ({"center_share": 0.9, "propensity_share": 0.2}, "leave nothing"),
        ({"response_bound": 0.0}, "response_bound"),
        ({"response_bound": 1.0, "propensity": None}, "needs a propensity"),
        ({"center_share": 0.0}, "center_share"),
        ({"slope": math.nan}, "slope"),
        ({"center_norm": -1.0}, "center_norm"),
        ({"norm": math.inf}, "norm"),
        ({"norm_bound": 0.0}, "norm_bound"),
        ({"mean_share": 1.0}, "mean_share"),
        ({"spread_share": 0.9}, "leave nothing"),
        ({"split": 1.0}, "split"),
    ],
)
def test_what_is_no_setting_is_refused(declared, complaint):
    with pytest.raises(DeclarationError, match=complaint):
        study(declared=declared)


@pytest.mark.parametrize("expected", ["confounding", ("skewness",)])
def test_what_may_not_be_expected_is_refused(expected):
    with pytest.raises(DeclarationError, match="expected"):
        study(expected=expected)


def test_the_released_propensity_is_certified_to_a_public_radius():
    """Not to a tolerance relative to what the data make of it, whether or not arithmetic is counted."""
    data, execution = Dataset.from_arrays(np.zeros((8, 1)), np.ones(8), np.ones(8)), Execution("newton", 1e-6)
    declared = {"propensity": "logistic", "center_share": None, "mean_share": None, "spread_share": None}
    plan = make_plan(study(Universe(DOMAIN, 8, 1), epsilon=1e4, declared=declared))
    result = plan.step("propensity").radius
    assert result is not None
    assert result > 1e-5  # more than a relative tolerance would ask for
    assert plan.certified_by_design
    assert plan.run(data, execution).steps["propensity"].solution.within == result
    # a radius that nothing reaches is missed, and one that is not known certifies nothing by design
    assert not changed(plan, "propensity", radius=1e-60).run(data, execution).certified
    assert not changed(plan, "propensity", radius=None).certified_by_design
