"""Steps, calibrated and composed from public quantities alone."""

from dp2erm_cvx.calibration.grid import Arithmetic
from dp2erm_cvx.plan.make import make_plan
from dp2erm_cvx.plan.pipeline import NUMERICAL_SHARE, Pipeline
from dp2erm_cvx.plan.plan import Plan, PlanResult
from dp2erm_cvx.plan.study import Study
from dp2erm_cvx.plan.two_stage import TwoStagePlan

__all__ = [
    "NUMERICAL_SHARE",
    "Arithmetic",
    "Pipeline",
    "Plan",
    "PlanResult",
    "Study",
    "TwoStagePlan",
    "make_plan",
]
