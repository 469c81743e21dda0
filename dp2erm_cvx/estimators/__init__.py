"""Estimators: a two-stage fit with differential privacy, and the same without."""

from dp2erm_cvx.estimators.base import PrivateWorkings, TwoStageERM
from dp2erm_cvx.estimators.effect import PrivateEffect
from dp2erm_cvx.estimators.fitting import LEAST_TOLERANCE, TOLERANCE
from dp2erm_cvx.estimators.private import PrivateTwoStageERM
from dp2erm_cvx.estimators.rule import PrivateRule

__all__ = [
    "LEAST_TOLERANCE",
    "TOLERANCE",
    "PrivateEffect",
    "PrivateRule",
    "PrivateTwoStageERM",
    "PrivateWorkings",
    "TwoStageERM",
]
