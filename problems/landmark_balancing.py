"""Kernel balancing at public points: means of Gaussian kernels at landmarks are alike in both arms.

minimize    sum_i w_i log(w_i) + ||m||^2 / (2 n ridge)
subject to  sum_i w_i = n,  0 <= w_i <= cap of the arm of i

with m = (c (W_0 - n/2), c (W_1 - n/2), m_0, m_1), W_a the weight of arm a, m_a = sum over arm a of
w_i g(x_i) less half of the sum of all g(x_i), g_j(x) = (k(x, l_j) - 1/2) / sqrt(J) for J public
points l_j. Hazlett (2020) balances the kernels at all records; here the points are public, so that
a record moves its own row alone. In units of the functions a mean of a kernel is compared up to an
error of its order 1/sqrt(J).
"""

from __future__ import annotations

from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import (
    ARM_SETTINGS,
    Balance,
    Landmarks,
    capped_by_arm,
    imbalance_of_arms,
    scheme,
)


@scheme(**{**ARM_SETTINGS, "balance": Landmarks()}, kinks=False)
def landmark_balancing(
    w: cp.Variable,
    records: Any,
    balance: Balance,
    constant: float,
    ridge: float,
    cap: float,
    treated: float,
) -> cp.Problem:
    """Entropy balance of kernels at public points (Hazlett 2020, at landmarks).

    Parameters
    ----------
    balance
        The landmarks.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2; default: the
        norm bound of ``balance``.
    ridge
        Above 0: an imbalance costs its square over 2 n times this; default: the squared norm bound
        of the functions and the constant.
    cap
        No weight is above so many times the mean weight of its arm, if both arms weigh half;
        ``inf`` for none.
    treated
        Public share of the treated, for the caps alone.
    """
    n = records.n
    imbalance = imbalance_of_arms(w, records, balance, constant)
    price = cp.sum_squares(imbalance) / (2 * ridge * n)
    constraints = [cp.sum(w) == n, w >= 0, *capped_by_arm(w, records, cap, treated)]
    return cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w))), constraints)
