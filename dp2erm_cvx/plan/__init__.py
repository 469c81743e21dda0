"""Steps, calibrated and composed from public quantities alone."""

from dp2erm_cvx.calibration.numbers import Arithmetic
from dp2erm_cvx.plan.defaults import rule_of_use
from dp2erm_cvx.plan.effect import EffectStudy
from dp2erm_cvx.plan.plan import NUMERICAL_SHARE, Pipeline, Plan, PlanResult, make_plan
from dp2erm_cvx.plan.ranges import RangesStudy
from dp2erm_cvx.plan.rule import RuleStudy, Study
from dp2erm_cvx.plan.settings import EffectSettings, RuleSettings

__all__ = [
    "NUMERICAL_SHARE",
    "Arithmetic",
    "EffectSettings",
    "EffectStudy",
    "Pipeline",
    "Plan",
    "PlanResult",
    "RangesStudy",
    "RuleSettings",
    "RuleStudy",
    "Study",
    "make_plan",
    "rule_of_use",
]
