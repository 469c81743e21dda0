"""Weights of least dispersion, with a tolerance or with a price on the largest imbalance.

minimize    sum_i (w_i - 1)^2 / 2 + price(m)
subject to  sum_i w_i = n,  0 <= w_i <= cap of the arm of i

with m = (c (W_0 - n/2), c (W_1 - n/2), m_0, m_1), W_a the weight of arm a, m_a = sum over arm a of
w_i g(x_i) less half of the sum of all g(x_i), g balance functions and c a constant. The caps are
cap / (2 (1 - treated)) for controls and cap / (2 treated) for treated, with a public share of the
treated.

``minimal_dispersion`` has the price sum_k max(|m_k| - n tolerance / 2, 0)^2 / (2 n ridge), which
goes to the constraint |m_k| <= n tolerance / 2 as the ridge goes to 0. ``residual_balancing`` has
the Moreau envelope of the price max_k m_k^2 / (2 n ridge), which jumps in its gradient where two
imbalances are the largest; as of Athey, Imbens and Wager, but that their problem is solved for one
arm at a time.
"""

from __future__ import annotations

from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import (
    ARM_SETTINGS,
    Balance,
    capped_by_arm,
    imbalance_of_arms,
    scheme,
    setting,
)


@scheme(**ARM_SETTINGS, tolerance=setting(0.05, at_least=0), kinks=False)
def minimal_dispersion(
    w: cp.Variable,
    records: Any,
    balance: Balance,
    constant: float,
    ridge: float,
    cap: float,
    treated: float,
    tolerance: float,
) -> cp.Problem:
    """Minimal dispersion, with imbalance free within a tolerance (Wang & Zubizarreta 2020).

    Parameters
    ----------
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2; default: the
        norm bound of ``balance``.
    ridge
        Above 0: an imbalance beyond the tolerance costs its square over 2 n times this; default:
        the squared norm bound of the functions and the constant.
    cap
        No weight is above so many times the mean weight of its arm, if both arms weigh half;
        ``inf`` for none.
    treated
        Public share of the treated, for the caps alone.
    tolerance
        Difference of means that costs nothing, in units of the functions, if the arm weighs n/2.
    """
    n = records.n
    imbalance = imbalance_of_arms(w, records, balance, constant)
    beyond = cp.pos(cp.abs(imbalance) - n * tolerance / 2)
    price = cp.sum_squares(beyond) / (2 * ridge * n)
    constraints = [cp.sum(w) == n, w >= 0, *capped_by_arm(w, records, cap, treated)]
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) / 2 + price), constraints)


@scheme(**ARM_SETTINGS, smoothing=1.0)
def residual_balancing(
    w: cp.Variable,
    records: Any,
    balance: Balance,
    constant: float,
    ridge: float,
    cap: float,
    treated: float,
) -> cp.Problem:
    """Weights of approximate residual balancing, by the largest imbalance (Athey et al. 2018).

    Parameters
    ----------
    smoothing
        Parameter of the Moreau envelope of the price, in units of the squared norm bound of the
        functions and the constant, as the default ridge is. V follows from it: balance within
        little needs a small ridge and a small smoothing.
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2; default: the
        norm bound of ``balance``.
    ridge
        Above 0: the largest imbalance costs its square over 2 n times this; default: the squared
        norm bound of the functions and the constant.
    cap
        No weight is above so many times the mean weight of its arm, if both arms weigh half;
        ``inf`` for none.
    treated
        Public share of the treated, for the caps alone.
    """
    n = records.n
    imbalance = imbalance_of_arms(w, records, balance, constant)
    price = cp.square(cp.norm_inf(imbalance)) / (2 * ridge * n)
    constraints = [cp.sum(w) == n, w >= 0, *capped_by_arm(w, records, cap, treated)]
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) / 2 + price), constraints)
