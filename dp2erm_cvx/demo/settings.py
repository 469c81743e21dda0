"""What the demonstration on NHEFS declares before the data are seen, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dp2erm_cvx import registry
from dp2erm_cvx.datasets import nhefs_domain
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import Box, FirstStage, LossStage

#: Norm of the ten scaled covariates; the constant 1 in front of them comes on top.
COVARIATES_BOUND = 2.5
#: In kg: who would gain more than this by giving up is flagged by the rule.
TREATMENT_COST = 3.0
#: In kg: an arm's mean change of weight lies between -5 and 10 kg, one person's between -17.5 and 22.5 kg.
ARM_MEAN_BOUND = 7.5
#: What drives a change of weight, as is known without these data: age, and the weight at the start.
PROGNOSTIC = ("age", "wt71")
#: In kg: how far changes of weight in ten years lie apart, for people of one age and weight.
RESIDUAL_SCALE = 7.5
#: In kg: how far they lie apart for all.
OUTCOME_SCALE = 8.0
#: The rule looks at these alone: few parameters, little noise.
FEATURES = PROGNOSTIC


@dataclass(frozen=True)
class DemoScheme:
    """A first stage with its short name in the tables and the public reason for its settings."""

    label: str
    program: FirstStage
    reason: str


#: Budgets of the effect, the lead first; that of the weights it stands beside; those of the rule.
EFFECT_BUDGETS = (Budget(2.0), Budget(1.0))
WEIGHT_BUDGETS = (Budget(2.0),)
RULE_BUDGETS = (Budget(1.0), Budget(8.0))


def effect_domain() -> Domain:
    """The public domain of the effect: the data set's default, and a constant for the propensity model."""
    return nhefs_domain(covariate_bound=math.hypot(COVARIATES_BOUND, 1.0), intercept=1.0)


def schemes() -> tuple[DemoScheme, ...]:
    """First stages, from none to stronger balance within each family."""
    first = registry.first_stages()
    squared = effect_domain().covariate_bound ** 2
    balance = 2 * COVARIATES_BOUND**2
    return (
        DemoScheme("uniform", registry.build(first, "uniform"), "no weighting: the baseline"),
        DemoScheme(
            "entropy",
            registry.build(first, "entropy_balancing", ridge=balance),
            f"entropy balancing; ridge {balance:g} = G^2, the squared norm bound of the balance functions",
        ),
        DemoScheme(
            "entropy, ridge/4",
            registry.build(first, "entropy_balancing", ridge=balance / 4),
            f"ridge {balance / 4:g}: a quarter, for better balance",
        ),
        DemoScheme(
            "IPW",
            registry.build(first, "ipw_logistic", ridge=squared / 10, trim=4.0),
            f"logistic propensity; ridge {squared / 10:g} = M^2/10; no 1/propensity above 4",
        ),
        DemoScheme(
            "IPW, ridge/10",
            registry.build(first, "ipw_logistic", ridge=squared / 100, trim=4.0),
            f"ridge {squared / 100:g}: a tenth, for better balance",
        ),
    )


def composed_scheme() -> DemoScheme:
    """The last scheme again, with a private coefficient (Theorem 9)."""
    squared = effect_domain().covariate_bound ** 2
    program = registry.build(registry.first_stages(), "ipw_private", share=0.3, ridge=squared / 100, trim=4.0)
    return DemoScheme("private IPW", program, "the same with 30 % of epsilon spent on the propensity")


def arm_means() -> LossStage:
    """The effect as the difference of two arm means, each within :data:`ARM_MEAN_BOUND` of the center."""
    return _least_squares("arm_means", theta_set=Box(ARM_MEAN_BOUND))


def plug_in() -> LossStage:
    """The effect as one weighted mean, which is exact only where each arm has half of the weight."""
    return _least_squares("plug_in_ate")


def _least_squares(name: str, **given: Any) -> LossStage:
    built = registry.build(registry.second_stages(), name, **given)
    assert isinstance(built, LossStage)
    return built
