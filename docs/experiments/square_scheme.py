"""A scheme of one's own: weights of least variance.

It balances the masses of both arms, too.
"""

from typing import Any

import cvxpy as cp

from dp2erm_cvx.program import scheme, setting


@scheme(ridge=0.03, cap=2.0, treated=setting(0.5, above=0, below=1))
def square_scheme(
    w: cp.Variable, records: Any, ridge: float, cap: float, treated: float
) -> cp.Problem:
    """Weights near 1 in squares, their imbalance penalized (Zubizarreta 2015).

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
    caps = cap / 2 * cp.hstack([1 / (1 - treated), 1 / treated])
    return cp.Problem(cp.Minimize(price + cp.sum_squares(w - 1) / 2), [w <= records.arms @ caps])
