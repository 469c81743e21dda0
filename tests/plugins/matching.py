"""Matching weights."""

import cvxpy as cp

from dp2erm_cvx.program import scheme


@scheme.separable(ridge="M**2 / 10", radius="2 / M")
def matching(s):
    """Matching weights (Li & Greene 2013): min(p, 1 - p) over the propensity of the own arm."""
    return cp.logistic(-s), cp.minimum(-s, 0)
