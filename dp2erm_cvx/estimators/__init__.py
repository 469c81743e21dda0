"""Estimators: a two-stage fit with differential privacy, and the same without."""

from dp2erm_cvx.estimators.base import LEAST_TOLERANCE, TOLERANCE, PrivateWorkings, TwoStageERM
from dp2erm_cvx.estimators.private import PrivateTwoStageERM

__all__ = [
    "LEAST_TOLERANCE",
    "TOLERANCE",
    "PrivateTwoStageERM",
    "PrivateWorkings",
    "TwoStageERM",
]
