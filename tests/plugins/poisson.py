"""Poisson regression."""

import cvxpy as cp

from dp2erm_cvx.program import second_stage


@second_stage(radius="1 / M", most=4.0)
def poisson(theta, records, radius, most):
    """Poisson regression of a count that is coded in the outcome, in a ball (Nelder & Wedderburn 1972)."""
    count = records.numbers("count", lambda x, a, y: round(most * (y + 1) / 2), 0, most)
    loss = cp.exp(records.x @ theta) - cp.multiply(count, records.x @ theta)
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= radius])
