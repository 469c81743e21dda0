"""Steps, calibrated and composed from public quantities alone."""

from dp2erm_cvx.calibration.grid import Arithmetic
from dp2erm_cvx.plan.make import make_plan
from dp2erm_cvx.plan.plan import Plan, PlanResult
from dp2erm_cvx.plan.study import NUMERICAL_SHARE, Study

__all__ = ["NUMERICAL_SHARE", "Arithmetic", "Plan", "PlanResult", "Study", "make_plan"]
