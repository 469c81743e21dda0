"""Balance of the controls to the treated, who weigh 1, for the effect on the treated.

minimize    sum over controls of w_i log(w_i) + n/(2 ridge) ||m||^2
subject to  sum over controls of w_i = number of treated,  0 <= w_i <= cap,  w_i = 1 of the treated

with m = (sum over treated of g(x_i) - sum over controls of w_i g(x_i)) / n, g balance functions.
Released are these weights times n / (2 n_1), n_1 the number of treated, so that their sum is n and
each arm weighs half.
"""

from __future__ import annotations

import math
from typing import Any

from dp2erm_cvx.checks import public_size
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import Balance, Moments, scheme, setting


@scheme(
    balance=Moments(),
    ridge=setting("G_x**2", public_size),
    cap=setting(10.0, at_least=1, infinite=True),
    kinks=False,
)
def att_balancing(
    w: cp.Variable, records: Any, balance: Balance, ridge: float, cap: float
) -> cp.Problem:
    """Entropy balance of controls to the treated, for effects on them (Hainmueller 2012, relaxed).

    It needs a declared arm floor of at least n / (1 + cap), under which controls can weigh as much
    as the treated.

    Parameters
    ----------
    balance
        Balance functions of the scaled covariates, intercept excluded.
    ridge
        Above 0: the price of imbalance is its inverse; default: the squared norm bound of the
        functions, so that the stability bound does not depend on how covariates are scaled.
    cap
        At least 1: no control weighs more than so many treated records; ``inf`` for no cap. The
        smallest one that the arm floor admits has the smallest stability bound.
    """
    n = records.n
    controls = records.arms[:, 0]
    treated = records.arms[:, 1]
    imbalance = records.features(balance, "signed").T @ w / n
    price = n / (2 * ridge) * cp.sum_squares(imbalance)
    constraints = [controls @ w == cp.sum(treated), cp.multiply(treated, w) == treated, w >= 0]
    if math.isfinite(cap):
        constraints.append(w <= cap)
    return cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w))), constraints)
