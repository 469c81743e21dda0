"""Overlap weights from a regularized logistic regression, also by a private coefficient.

minimize    sum_i log(1 + exp(-s_i)) + n ridge/2 ||v||^2,   s_i = (2 a_i - 1) <x_i, v>
subject to  ||v|| <= radius

and w_i proportional to sigma(-s_i)
"""

from __future__ import annotations

from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import private, scheme


@scheme.separable(ridge="M**2 / 10")
def overlap(s: Any) -> Any:
    """Overlap weights (Li, Morgan & Zaslavsky 2018): the fitted probability of the other arm.

    They are bounded however poor the overlap, and of least asymptotic variance among balancing
    weights where residual variances are equal. Their effect is that where either treatment is
    likely.
    """
    return cp.logistic(-s), -cp.logistic(s)


overlap_private = private(overlap, ridge="M**2 / 100", radius="2 / M")
