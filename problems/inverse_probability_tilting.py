"""Inverse probability tilting: propensities that balance each arm to the whole sample.

minimize    sum_i exp(-s_i) + t_i  +  n ridge/2 ||v||^2,
            s_i = <g_i, v_a>,  t_i = <g_i, v_(1-a)>,  a = a_i
subject to  ||v|| <= radius

with g = (constant, balance(x)) and v = (v_0, v_1), and w_i proportional to 1 + exp(-s_i). Without a
ridge the stationarity condition reads "sum of f g over either arm = sum of g over all records", f =
1 + exp(-s).
"""

from __future__ import annotations

from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import private, scheme


@scheme.separable(by_arm=True, ridge="G**2")
def inverse_probability_tilting(s: Any, t: Any) -> Any:
    """Graham, Pinto & Egel (2012); Zhao (2019); Tan (2020).

    Inverse propensities that balance: in place of ``ipw_logistic`` where balance matters more. The
    loss is exponential, so the stability bound grows with exp(G radius): declare a radius of the
    order of 1/G where much balance is wanted. One beyond 12/G is refused where the ridge does not
    enforce less.
    """
    return cp.exp(-s) + t, cp.logistic(-s)


# the loss is steeper than a logistic one: L/m stays below 30
tilting_private = private(
    inverse_probability_tilting, name="tilting_private", ridge="G**2 / 10", radius="1 / G"
)
