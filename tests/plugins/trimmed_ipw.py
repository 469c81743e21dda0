"""Inverse propensities with a cap."""

import cvxpy as cp
import numpy as np

from dp2erm_cvx.program import scheme


@scheme.separable(ridge="M**2 / 5", cap=5.0)
def trimmed_ipw(s, cap):
    """Inverse propensity weights with a public cap on 1/propensity (Crump et al. 2009)."""
    return cp.logistic(-s), cp.minimum(cp.logistic(-s), np.log(cap))
