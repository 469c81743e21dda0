"""Schemes and losses of the literature, as their authors would declare them."""

import cvxpy as cp
import numpy as np

from dp2erm_cvx.program import Ball, Bound, scheme, second_stage


@scheme.separable(ridge="M**2 / 10", radius="2 / M")
def matching(s):
    """Matching weights (Li & Greene 2013): min(p, 1 - p) over the propensity of the own arm."""
    return cp.logistic(-s), cp.minimum(-s, 0)


@scheme.separable(ridge="M**2", radius="1 / M")
def tailored(s):
    """Covariate balancing by the tailored loss of inverse propensities (Zhao 2019)."""
    return cp.exp(-s) - s, cp.logistic(-s)


@scheme.separable(ridge="M**2 / 5", cap=5.0)
def trimmed_ipw(s, cap):
    """Inverse propensity weights with a public cap on 1/propensity (Crump et al. 2009)."""
    return cp.logistic(-s), cp.minimum(cp.logistic(-s), np.log(cap))


@scheme.separable(ridge="M**2 / 5", power=2.0)
def beta_weights(s, power):
    """Beta family of balancing weights (Matsouaka & Zhou 2024): (p (1 - p))^(power - 1) (1 - p)."""
    return cp.logistic(-s), -power * cp.logistic(s) - (power - 1) * cp.logistic(-s)


@scheme(cap=4.0, rho=0.05)
def penalized_balance(w, records, cap, rho):
    """Weights near 1 under a squared penalty on the imbalance (Zubizarreta 2015, penalized)."""
    imbalance = cp.sum_squares(records.signed.T @ w) / records.n
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + rho * imbalance), [w <= cap])


@penalized_balance.bound
def _(n, M, cap, rho):
    """The gradient moves by 4 rho M^2 at one record and by 4 rho M^2 cap / sqrt(n) at the
    others.
    """
    return Bound.from_gradient(4 * rho * M * M * (1 + cap / n**0.5), w_max=cap)


@scheme(rho=0.1, cap=3.0, floor=0.05)
def entropy(w, records, rho, cap, floor):
    """Entropy beside the squared imbalance, on a box (Hainmueller 2012, penalized)."""
    imbalance = rho / records.n * cp.sum_squares(records.signed.T @ w)
    return cp.Problem(cp.Minimize(-cp.sum(cp.entr(w)) + imbalance), [floor <= w, w <= cap])


@entropy.bound
def _(n, M, rho, cap):
    """Rows z of norm M: 2 rho/n <., Z'w> z moves by at most this where one row does."""
    return Bound.from_gradient(4 * rho / n * M**2 * (n + cap * n**0.5), w_max=cap)


@second_stage(radius="outcome_bound / M", level=0.8, width=0.5)
def pinball(theta, records, radius, level, width):
    """A conditional quantile of the outcome by a smoothed pinball loss (Koenker & Bassett 1978)."""
    residual = records.y - records.x @ theta
    loss = width * cp.logistic(residual / width) - (1 - level) * residual
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= radius])


@second_stage(radius="1 / M", most=4.0)
def poisson(theta, records, radius, most):
    """Poisson regression of a count that is coded in the outcome, in a ball (Nelder & Wedderburn
    1972).
    """
    count = records.numbers("count", lambda x, a, y: round(most * (y + 1) / 2), 0, most)
    loss = cp.exp(records.x @ theta) - cp.multiply(count, records.x @ theta)
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= radius])


@second_stage(radius="outcome_bound / M", level=0.7)
def expectile(theta, records, radius, level):
    """A conditional expectile of the outcome by asymmetric least squares (Newey & Powell 1987)."""
    residual = records.y - records.x @ theta
    loss = level * cp.square(cp.pos(residual)) + (1 - level) * cp.square(cp.pos(-residual))
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= radius])


@second_stage(radius="4 / M")
def hinge_rule(theta, records, radius):
    """Outcome weighted learning with a squared hinge (Zhao et al. 2012): losses weigh by its
    size.
    """
    size = records.numbers("size", lambda x, a, y: abs(y), 0, records.outcome_bound)
    side = records.rows(
        "side", lambda x, a, y: (1 if y >= 0 else -1) * (2 * a - 1) * x, Ball(records.M)
    )
    loss = cp.multiply(size, cp.square(cp.pos(1 - side @ theta)))
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= radius])


@second_stage(scale=0.5, lasso=0.01)
def bounded_influence(theta, records, scale, lasso):
    """Log-cosh regression with an l1 penalty: no outcome pulls with more than the scale (Huber
    1981).
    """
    residual = (records.y - records.x @ theta) / scale
    loss = scale**2 * (2 * cp.logistic(residual) - residual)
    return cp.Problem(cp.Minimize(cp.sum(loss) + records.n * lasso * cp.norm1(theta)))


@second_stage(radius="outcome_bound / M", price=0.02)
def group_lasso(theta, records, radius, price):
    """Covariates that enter by pairs or not at all, with a robust loss (Yuan & Lin 2006)."""
    groups = sum(cp.norm(theta[first : first + 2]) for first in range(0, theta.size, 2))
    loss = cp.huber(records.y - records.x @ theta, 0.5)
    return cp.Problem(
        cp.Minimize(cp.sum(loss) + records.n * price * groups), [cp.norm(theta) <= radius]
    )


@second_stage(radius="outcome_bound / M", price=0.02, sparse=0.005)
def fused_lasso(theta, records, radius, price, sparse):
    """Ordered covariates, few of which differ from the one before (Tibshirani et al. 2005)."""
    penalty = price * cp.tv(theta) + sparse * cp.norm1(theta)
    loss = cp.square(records.y - records.x @ theta)
    return cp.Problem(cp.Minimize(cp.sum(loss) + records.n * penalty), [cp.norm(theta) <= radius])
