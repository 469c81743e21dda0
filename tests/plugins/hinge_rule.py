"""A treatment rule by outcome weighted learning."""

import cvxpy as cp

from dp2erm_cvx.program import Ball, second_stage


@second_stage(radius="4 / M")
def hinge_rule(theta, records, radius):
    """Outcome weighted learning with a squared hinge (Zhao et al. 2012): losses weigh by its size."""
    size = records.numbers("size", lambda x, a, y: abs(y), 0, records.outcome_bound)
    side = records.rows("side", lambda x, a, y: (1 if y >= 0 else -1) * (2 * a - 1) * x, Ball(records.M))
    loss = cp.multiply(size, cp.square(cp.pos(1 - side @ theta)))
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= radius])
