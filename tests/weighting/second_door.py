"""Schemes whose variable is the weights, as their authors write them in a file."""

import cvxpy as cp

from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.kernels import Gaussian


@scheme(ridge=0.1, cap=3.0)
def least_dispersion(w, records, ridge, cap):
    """Stable weights (Zubizarreta 2015), the imbalance priced: both arms are balanced to each
    other.
    """
    n = records.n
    imbalance = records.signed.T @ w / n
    price = n / (2 * ridge) * cp.sum_squares(imbalance)
    constraints = [cp.sum(w) == n, w >= 0, w <= cap]
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) / 2 + price), constraints)


@scheme(ridge=0.5, cap=3.0)
def alike(w, records, ridge, cap):
    """Weights under which both arms look alike to a kernel."""
    imbalance = records.features(Gaussian(1.0), "signed").T @ w
    objective = records.n * ridge * cp.sum_squares(w - 1) + cp.sum_squares(imbalance)
    return cp.Problem(cp.Minimize(objective), [cp.sum(w) == records.n, w <= cap])


@scheme(ridge=0.05, cap=4.0)
def of_treated(w, records, ridge, cap):
    """Even weights of controls that weigh as many as the treated and resemble them."""
    a = records.treatment
    price = records.n / (2 * ridge) * cp.sum_squares(records.signed.T @ w / records.n)
    constraints = [(1 - a) @ w == cp.sum(a), w >= a, w <= a + cap * (1 - a)]
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) / 2 + price), constraints)


@scheme(cap=3.0, rho=1.0)
def robust(w, records, cap, rho):
    """Weights near 1 under the norm of the imbalance."""
    price = rho * cp.norm(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + price), [w <= cap])
