"""Stability bounds: how far the weights can move between two neighboring datasets.

Every function maps public numbers to a :class:`~dp2erm_cvx.privacy.StabilityBound`; none of them
sees data. They bound the coupled variation ``V = ||w - w'||_1 + 2 min(w_j, w'_j)`` of two weight
vectors that sum to ``n``, for datasets that differ in record ``j``.
"""

from dp2erm_cvx.stability.arm_curves import ArmCurves, minimizer_norm, record_diameter
from dp2erm_cvx.stability.base import (
    Bound,
    any_weights,
    fixed_up_to_scale,
    general_stability_theorem,
    largest_weight,
    tilt_lemma,
    uniform_weights,
)
from dp2erm_cvx.stability.separable import MarginMovement, margin_movement, separable

__all__ = [
    "ArmCurves",
    "Bound",
    "MarginMovement",
    "any_weights",
    "fixed_up_to_scale",
    "general_stability_theorem",
    "largest_weight",
    "margin_movement",
    "minimizer_norm",
    "record_diameter",
    "separable",
    "tilt_lemma",
    "uniform_weights",
]
