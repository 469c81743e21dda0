"""Individualized treatment rule by outcome-weighted logistic loss.

minimize    sum_i w_i |y_i| log(1 + exp(-<z_i, theta>)) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = sign(y_i) (2 a_i - 1) x_i, y the centered net outcome: a convex surrogate of the outcome lost by
recommending against a treatment that did well (or for one that did badly). <x, theta> is a score, not an
effect: its sign is the recommendation. The gradient is bounded whatever Theta is.
"""

from typing import Any

import cvxpy as cp

from dp2erm_cvx.program import second_stage


@second_stage()
def itr_logistic(theta: cp.Variable, records: Any) -> cp.Problem:
    """Outcome-weighted learning by a logistic loss (Zhao et al. 2012; Chen et al. 2017).

    Theta defaults to the l2 ball of radius 4/M: no score exceeds 4, a probability of 0.98.
    """
    loss = cp.logistic(-(records.favored @ theta))
    return cp.Problem(cp.Minimize(records.size @ loss), [cp.norm(theta) <= 4 / records.M])
