"""Prices of imbalances as CVXPY has them."""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np

from dp2erm_cvx.weighting.forms.form import LogSumExpPenalty, Penalty


def declared_price(
    penalty: Penalty, m: cp.Expression
) -> tuple[cp.Expression | float, list[cp.Constraint]]:
    """A price of m in CVXPY, and its constraints."""
    if isinstance(penalty, LogSumExpPenalty):
        return penalty.factor * cp.log_sum_exp(m), []
    if penalty.envelope:
        u = cp.Variable(m.shape)
        price, constraints = declared_price(replace(penalty, envelope=0.0), u)
        return price + cp.sum_squares(m - u) / (2.0 * penalty.envelope), constraints
    size = cp.pos(m) if penalty.sided else cp.abs(m)
    if penalty.norm is not None:
        size = cp.norm(m, penalty.norm)
    if penalty.hard:
        return 0.0, [size <= penalty.tolerance]
    if penalty.kinked:
        return penalty.price * cp.sum(size), []
    beyond = cp.pos(size - penalty.tolerance) if np.any(penalty.tolerance) else size
    if math.isinf(penalty.knee):
        return penalty.factor * cp.sum(cp.square(beyond)), []
    return penalty.factor * cp.sum(cp.huber(beyond, penalty.knee)), []
