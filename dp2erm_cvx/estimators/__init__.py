"""Estimators: two-stage fits with and without differential privacy, effects, rules, ranges."""

from dp2erm_cvx.estimators.fitting import LEAST_TOLERANCE, TOLERANCE
from dp2erm_cvx.estimators.goals import PrivateEffect, PrivateRule
from dp2erm_cvx.estimators.ranges import PrivateRanges
from dp2erm_cvx.estimators.two_stage import PrivateTwoStageERM, PrivateWorkings, TwoStageERM

__all__ = [
    "LEAST_TOLERANCE",
    "TOLERANCE",
    "PrivateEffect",
    "PrivateRanges",
    "PrivateRule",
    "PrivateTwoStageERM",
    "PrivateWorkings",
    "TwoStageERM",
]
