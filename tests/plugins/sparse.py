"""Separable schemes with an l1 norm or a box of the coefficient, as authors declare them."""

import cvxpy as cp

from dp2erm_cvx.program import scheme


@scheme.separable(ridge="M**2 / 10", l1="M / 50")
def sparse_overlap(s):
    """Overlap weights of a lasso propensity: imbalances of up to l1 are free (Tibshirani 1996)."""
    return cp.logistic(-s), -cp.logistic(s)


@scheme.separable(ridge="M**2 / 100", l1="M / 20")
def sparse_odds(u, arm):
    """Odds weights of a lasso propensity, for the effect on the treated."""
    if arm:
        return cp.logistic(-u), 0
    return cp.logistic(u), u


@scheme.separable(ridge="M**2 / 100", box="0.5 / M")
def overlap_in_a_box(s):
    """Overlap weights of a propensity whose coefficients are bounded one by one."""
    return cp.logistic(-s), -cp.logistic(s)
