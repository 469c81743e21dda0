"""Individualized treatment rule by a Huber loss: outliers pull with a bounded gradient.

minimize    sum_i w_i H(z_i - <x_i, theta>) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = 2 (2 a_i - 1) y_i and H(r) = r^2 up to |r| = threshold, 2 threshold |r| - threshold^2 beyond. The
gradient is at most 2 M threshold whatever Theta is, which a squared loss needs a small Theta for.
"""

from typing import Any

import cvxpy as cp

from dp2erm_cvx.program import second_stage


@second_stage(threshold="outcome_bound")
def itr_huber(theta: cp.Variable, records: Any, threshold: float) -> cp.Problem:
    """The rule of ``itr`` with less pull from outliers (Huber 1964; Xiao, Zhang & Lu 2019).

    Less noise where the threshold is small. Theta defaults to the l2 ball of radius M'/M, over which no
    predicted effect exceeds M'.

    Parameters
    ----------
    threshold
        In units of the outcome; default: M', half the largest ``|z|``.
    """
    loss = cp.huber(records.x @ theta - records.response, threshold)
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= records.outcome_bound / records.M])
