"""Beta weights."""

import cvxpy as cp

from dp2erm_cvx.program import scheme


@scheme.separable(ridge="M**2 / 5", power=2.0)
def beta_weights(s, power):
    """Beta family of balancing weights (Matsouaka & Zhou 2024): (p (1 - p))^(power - 1) (1 - p)."""
    return cp.logistic(-s), -power * cp.logistic(s) - (power - 1) * cp.logistic(-s)
