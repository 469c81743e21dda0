"""Separable schemes of other links and entropies, as authors declare them."""

import cvxpy as cp

from dp2erm_cvx.program import probit, scheme


@scheme.separable(ridge="M**2 / 5")
def probit_weights(s):
    """Inverse propensity weights of a probit regression (Imbens 2004)."""
    return probit(-s), probit(-s)


@scheme.separable(ridge="M**2 / 5")
def entropy_weights(s):
    """Entropy weights (Zhou, Matsouaka & Thomas 2020): the entropy of treatment over the
    propensity.
    """
    own, other = cp.exp(-cp.logistic(-s)), cp.exp(-cp.logistic(s))
    return cp.logistic(-s), cp.log(cp.entr(own) + cp.entr(other)) + cp.logistic(-s)
