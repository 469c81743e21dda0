"""Inverse propensity weights from a regularized logistic regression, and their private variant.

minimize    sum_i log(1 + exp(-s_i)) + n ridge/2 ||v||^2,   s_i = (2 a_i - 1) <x_i, v>
subject to  ||v|| <= radius

and w_i proportional to min(1 + exp(-s_i), trim): equations IPW_beta_logistic_loss (n times) and
IPW_weight_def of the paper. The private variant adds ``n gamma/2 ||v||^2 + <b, v>`` to the
objective: given v, each weight depends on its own record and the normalization only, so the second
stage needs no more than a bound on the largest weight. It needs no ridge for stability, and a
finite radius or trim.
"""

from __future__ import annotations

import math
from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import private, scheme, setting


@scheme.separable(ridge="M**2 / 10", trim=setting(math.inf, above=1, infinite=True))
def ipw_logistic(s: Any, trim: float) -> Any:
    """Rosenbaum & Rubin (1983); Lee & Chen (2026), Prop. IPW_estimated_stability.

    For a propensity that is better understood than the outcome: no overlap assumption.

    Parameters
    ----------
    trim
        Above 1: public cap F on 1/propensity.
    """
    return cp.logistic(-s), cp.minimum(cp.logistic(-s), math.log(trim))


# a propensity from 0.036 to 0.964, for a third less noise than without a ball
ipw_private = private(
    ipw_logistic, name="ipw_private", ridge="M**2 / 100", radius="3.3 / M", trim=10.0
)
