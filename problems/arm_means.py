"""Average treatment effects as weighted means: of either arm, or the paper's plug-in.

minimize    sum_i w_i (z_i - <x_i, theta>)^2 + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta, by default a box of the bound on z

``arm_means`` has x = (1 - a, a) and z = y, the centered outcome: the effect is theta_1 - theta_0,
whatever the arm masses are, which a ridge in the first stage may leave unequal. ``plug_in_ate`` is
the regression of ``itr`` with x = 1 and z = 2 (2a - 1) y: theta is its weighted mean, which
estimates the effect only where each arm has weight n/2.
"""

from __future__ import annotations

from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import second_stage


@second_stage(coordinates=("mean_control", "mean_treated"))
def arm_means(theta: cp.Variable, records: Any) -> cp.Problem:
    """Hajek-type weighted difference of means.

    Two parameters: the weighted mean outcome without and with treatment, minus the public center.
    """
    loss = cp.sum_squares(records.arms @ theta - records.y)
    return cp.Problem(cp.Minimize(loss), [cp.abs(theta) <= records.outcome_bound])


@second_stage(coordinates=("effect",))
def plug_in_ate(theta: cp.Variable, records: Any) -> cp.Problem:
    """Plug-in specialization (Lee & Chen 2026).

    One parameter, the weighted mean of ``2 (2a - 1) y`` with y centered at the public center.
    """
    loss = cp.sum_squares(records.ones @ theta - records.response)
    return cp.Problem(cp.Minimize(loss), [cp.abs(theta) <= 2 * records.outcome_bound])
