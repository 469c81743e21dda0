"""A conditional quantile."""

import cvxpy as cp

from dp2erm_cvx.program import second_stage


@second_stage(radius="outcome_bound / M", level=0.8, width=0.5)
def pinball(theta, records, radius, level, width):
    """A conditional quantile of the outcome by a smoothed pinball loss (Koenker & Bassett 1978)."""
    residual = records.y - records.x @ theta
    loss = width * cp.logistic(residual / width) - (1 - level) * residual
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= radius])
