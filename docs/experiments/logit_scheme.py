"""A scheme of one's own: weights between two ends.

It balances the masses of both arms, too.
"""

from typing import Any

import cvxpy as cp

from dp2erm_cvx.program import scheme, setting

#: Least weight.
LOW = 0.1


@scheme(ridge=0.03, cap=2.0, treated=setting(0.5, above=0, below=1), kinks=False)
def logit_scheme(
    w: cp.Variable, records: Any, ridge: float, cap: float, treated: float
) -> cp.Problem:
    """Weights near 1 in the logit distance of survey calibration (Deville & Sarndal 1992).

    Parameters
    ----------
    ridge
        Above 0: an imbalance costs its square over 2 n times this.
    cap
        At least 2: no weight is above so many times the mean weight of its arm, if both arms weigh
        half.
    treated
        Public share of the treated, for the caps alone.
    """
    half = cp.hstack([records.n / 2, cp.sum(records.x, axis=0) / 2])
    imbalance = records.by_arm(1.0).T @ w - cp.hstack([half, half])
    price = cp.sum_squares(imbalance) / (2 * ridge * records.n)
    of_control, of_treated = cap / 2 / (1 - treated), cap / 2 / treated
    top = max(of_control, of_treated)
    distance = cp.sum(cp.kl_div(w - LOW, 1 - LOW)) + cp.sum(cp.kl_div(top - w, top - 1))
    curvature = (top - LOW) / ((1 - LOW) * (top - 1))
    caps = cp.hstack([of_control, of_treated])
    constraints = [cp.sum(w) == records.n, w >= LOW, w <= records.arms @ caps]
    return cp.Problem(cp.Minimize(distance / curvature + price), constraints)
