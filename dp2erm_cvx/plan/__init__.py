"""Steps, calibrated and composed from public quantities alone."""

from dp2erm_cvx.calibration.numbers import Arithmetic
from dp2erm_cvx.plan.defaults import effect_rule, rule_of_use
from dp2erm_cvx.plan.effect import EffectPlan, EffectStudy
from dp2erm_cvx.plan.pipeline import NUMERICAL_SHARE, Pipeline
from dp2erm_cvx.plan.plan import Plan, PlanResult, make_plan
from dp2erm_cvx.plan.rule import RulePlan, RuleStudy
from dp2erm_cvx.plan.settings import EffectSettings, RuleSettings
from dp2erm_cvx.plan.weighted import Study, TwoStagePlan

__all__ = [
    "NUMERICAL_SHARE",
    "Arithmetic",
    "EffectPlan",
    "EffectSettings",
    "EffectStudy",
    "Pipeline",
    "Plan",
    "PlanResult",
    "RulePlan",
    "RuleSettings",
    "RuleStudy",
    "Study",
    "TwoStagePlan",
    "effect_rule",
    "make_plan",
    "rule_of_use",
]
