"""Bound, calibration and numerical tolerance of a release, from public quantities alone."""

from dp2erm_cvx.plan.make import make_plan
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.plan.precision import NUMERICAL_SHARE, Arithmetic, Precision

__all__ = ["NUMERICAL_SHARE", "Arithmetic", "Plan", "Precision", "make_plan"]
