"""Sharp stability bounds: how far the weights can move between two neighboring datasets.

Every function maps public numbers to a :class:`~dp2erm_cvx.privacy.StabilityBound`; none of them sees
data. What is bounded is the coupled variation ``V = ||w - w'||_1 + 2 min(w_j, w'_j)`` of two weight vectors
that sum to ``n``, for datasets that differ in record ``j``.
"""

from dp2erm_cvx.stability.entropy import entropy_balancing
from dp2erm_cvx.stability.fixed import known_coefficient, randomized_trial, uniform_weights
from dp2erm_cvx.stability.logistic import ipw_logistic
from dp2erm_cvx.stability.overlap_constant import overlap_constant
from dp2erm_cvx.stability.tilt import largest_weight, tilt_lemma

__all__ = [
    "entropy_balancing",
    "ipw_logistic",
    "known_coefficient",
    "largest_weight",
    "overlap_constant",
    "randomized_trial",
    "tilt_lemma",
    "uniform_weights",
]
