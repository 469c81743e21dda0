"""Stable balancing with an l2 penalty."""

import cvxpy as cp

from dp2erm_cvx.program import Bound, scheme


@scheme(cap=4.0, rho=0.05)
def penalized_balance(w, records, cap, rho):
    """Weights near 1 under a squared penalty on the imbalance (Zubizarreta 2015, penalized)."""
    imbalance = cp.sum_squares(records.signed.T @ w) / records.n
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + rho * imbalance), [w <= cap])


@penalized_balance.bound
def _(n, M, cap, rho):
    """The gradient moves by 4 rho M^2 at one record and by 4 rho M^2 cap / sqrt(n) at the others."""
    return Bound.from_gradient(4 * rho * M * M * (1 + cap / n**0.5), w_max=cap)
