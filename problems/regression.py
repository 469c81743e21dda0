"""Weighted linear regression of the outcome.

Its loss is squared, or one without curvature at full slope.

minimize    sum_i w_i phi(z_i - <x_i, theta>) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = y_i, the centered outcome. ``regression`` has phi(s) = s^2: under the weights of
``kernel_mean_matching`` it predicts in the target population (covariate shift). What the estimator
calls an effect is here the predicted outcome less its public center.

``saturating_regression`` has phi(s) = S |s| + S^2 (exp(-|s|/S) - 1) over all of R^p: s^2/2 near 0,
S |s| far out. No record pulls with more than S, and one that does adds no curvature: under pure
noise the whole epsilon buys noise (Theorem 15), and neither Theta nor the bound on the outcome
enters it.
"""

from __future__ import annotations

from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import bounded_influence, second_stage


@second_stage()
def regression(theta: cp.Variable, records: Any) -> cp.Problem:
    """Linear prediction (Shimodaira 2000; Lee & Chen 2026, transfer learning).

    Theta defaults to the l2 ball of radius M'/M: no prediction exceeds M'.
    """
    loss = cp.sum_squares(records.x @ theta - records.y)
    return cp.Problem(
        cp.Minimize(loss), [cp.norm(theta) <= records.outcome_bound / records.space.covariate_bound]
    )


@second_stage(slope="outcome_bound / 2")
def saturating_regression(theta: cp.Variable, records: Any, slope: float) -> cp.Problem:
    """Linear prediction by bounded influence (Huber & Ronchetti 2009).

    It is between that of the mean (large slope) and that of the median (small slope).

    Parameters
    ----------
    slope
        S, in units of the response; 1 to 1.5 times the usual size of a residual serves well.
        Default: half of the largest response, too large where the bound on the outcome is generous.
    """
    return cp.Problem(cp.Minimize(cp.sum(bounded_influence(records.x @ theta - records.y, slope))))
