"""Distributionally robust balance."""

import cvxpy as cp

from dp2erm_cvx.program import Bound, scheme


@scheme(cap=3.0, rho=1.0)
def robust(w, records, cap, rho):
    """Weights near 1 under the norm of the imbalance: a second-order cone program."""
    imbalance = cp.norm(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + rho * imbalance), [w <= cap])


@robust.bound
def _(M, cap, rho):
    return Bound.from_l2((2 * rho * M * cap) ** 0.5, w_max=cap)
