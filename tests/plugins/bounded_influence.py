"""regression of bounded influence."""

import cvxpy as cp

from dp2erm_cvx.program import second_stage


@second_stage(scale=0.5, lasso=0.01)
def bounded_influence(theta, records, scale, lasso):
    """Log-cosh regression with an l1 penalty: no outcome pulls with more than the scale (Huber 1981)."""
    residual = (records.y - records.x @ theta) / scale
    loss = scale**2 * (2 * cp.logistic(residual) - residual)
    return cp.Problem(cp.Minimize(cp.sum(loss) + records.n * lasso * cp.norm1(theta)))
