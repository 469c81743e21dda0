"""Covariate balancing by the tailored loss."""

import cvxpy as cp

from dp2erm_cvx.program import scheme


@scheme.separable(ridge="M**2", radius="1 / M")
def tailored(s):
    """Covariate balancing by the tailored loss of inverse propensities (Zhao 2019)."""
    return cp.exp(-s) - s, cp.logistic(-s)
