"""Calibration of controls to the treated by bounded weights, for the effect on the treated.

minimize    sum over controls of F(<x_i, v>) - sum over treated of <x_i, v> + n ridge/2 ||v||^2
subject to  ||v|| <= radius

and w_i proportional to 1 at the treated, and to F'(<x_i, v>) at controls, a logistic curve from
``low`` to ``high`` with F'(0) = F''(0) = 1. Without a ridge the stationarity condition reads "sum
of F' x over controls = sum of x over the treated".
"""

from __future__ import annotations

import math
from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import scheme, setting


@scheme.separable(
    ridge="M**2 / 50",
    radius="30 / M",
    low=setting(0.2, above=0, below=1),
    high=setting(3.0, above=1),
)
def att_calibration(u: Any, arm: int, low: float, high: float) -> Any:
    """Bounded (logit) calibration of Deville & Sarndal (1992), of controls to the treated.

    The effect on the treated, at a small part of the V of ``odds_weights``. Where less than ``low``
    times as many records are treated as are controls, weights cannot fall to what the totals ask
    for, and balance is lost: declare a smaller ``low`` where treatment is rare.

    Parameters
    ----------
    low
        In (0, 1): the least weight of a control, where that of a treated record is 1.
    high
        Above 1: the largest one.
    """
    if arm:
        return -u, 0
    width = high - low
    scale = width / ((1 - low) * (high - 1))
    shift = math.log((1 - low) / (high - 1))
    loss = low * u + width / scale * cp.logistic(scale * u + shift)
    return loss, cp.log(low + width * cp.exp(-cp.logistic(-scale * u - shift)))
