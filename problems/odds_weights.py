"""Odds weights of a regularized logistic regression, for the effect on the treated.

minimize    sum_i log(1 + exp(-s_i)) + n ridge/2 ||v||^2,   s_i = (2 a_i - 1) <x_i, v>
subject to  ||v|| <= radius

and w_i proportional to 1 at the treated, and to min(exp(<x_i, v>), trim) at controls.
"""

from __future__ import annotations

import math
from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import scheme, setting


@scheme.separable(ridge="M**2 / 10", radius="3 / M", trim=setting(math.inf, above=0, infinite=True))
def odds_weights(u: Any, arm: int, trim: float) -> Any:
    """Odds of a logistic propensity (Hirano & Imbens 2001): the effect on the treated.

    Their V is large by nature: a control at whom treatment is nearly certain may weigh as much as
    many others. ``att_calibration`` leaves as little imbalance at a small part of it, unless
    treatment is rare.

    Parameters
    ----------
    trim
        Above 0: public cap on the odds.
    """
    if arm:
        return cp.logistic(-u), 0
    return cp.logistic(u), cp.minimum(u, math.log(trim))
