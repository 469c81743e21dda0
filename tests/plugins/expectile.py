"""A conditional expectile."""

import cvxpy as cp

from dp2erm_cvx.program import second_stage


@second_stage(radius="outcome_bound / M", level=0.7)
def expectile(theta, records, radius, level):
    """A conditional expectile of the outcome by asymmetric least squares (Newey & Powell 1987)."""
    residual = records.y - records.x @ theta
    loss = level * cp.square(cp.pos(residual)) + (1 - level) * cp.square(cp.pos(-residual))
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= radius])
