"""Stable balancing weights: of least variance, with balance as a penalty or within a tolerance.

``stable_balancing`` has a squared penalty, on one simplex:

minimize    alpha ( ||G_0'w - t||^2 + ||G_1'w - t||^2 )
            + (1 - alpha) ||G_0'w - G_1'w||^2 + n ridge ||w||^2
subject to  sum_i w_i = n,  w >= 0

with rows g(x_i) = (constant, balance(x_i)), G_a those of arm a (the others 0) and t = G'1/2.
``stable_balancing_hard`` has constraints:

minimize    sum_i w_i^2 / 2
subject to  sum over arm a of w_i = n/2 for a = 0, 1,  w >= 0
            | sum over arm a of w_i g_k(x_i) - (n/2) mean g_k |  <=  (n/2) tolerance   for all a, k

in units of the scaled covariates. It is not private: the constraints depend on the data, no
stability bound exists for them, and whether they have a solution depends on the data as well. Its
certificate is a backward error, and infeasible records are refused by a proof.
"""

from __future__ import annotations

from typing import Any

from dp2erm_cvx.checks import public_size
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import Balance, BalanceFunctions, Moments, scheme, setting


@scheme(
    alpha=setting(1.0, at_least=0, at_most=1),
    balance=Moments(),
    constant=setting("G_x", public_size),
    ridge=setting("constant**2 + G_x**2", public_size),
    kinks=False,
)
def stable_balancing(
    w: cp.Variable,
    records: Any,
    alpha: float,
    balance: Moments | BalanceFunctions,
    constant: float,
    ridge: float,
) -> cp.Problem:
    """Balance of a few moments by weights that stay even (Zubizarreta 2015, penalized).

    Parameters
    ----------
    alpha
        In [0, 1]: weighs balance to the sample against balance between the arms.
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2; default: the
        norm bound of ``balance``.
    ridge
        Above 0; default: the squared norm bound of the functions and the constant, so that the
        stability bound does not depend on how covariates are scaled.
    """
    n = records.n
    mass = records.arms.T @ w
    half = cp.sum(records.features(balance), axis=0) / 2
    controls = records.features(balance, "controls").T @ w
    treated = records.features(balance, "treated").T @ w
    to_sample = cp.sum_squares(controls - half) + cp.sum_squares(treated - half)
    to_sample += constant**2 * cp.sum_squares(mass - n / 2)
    apart = cp.sum_squares(treated - controls) + constant**2 * cp.square(mass[1] - mass[0])
    imbalance = alpha * to_sample + (1 - alpha) * apart
    return cp.Problem(
        cp.Minimize(imbalance + n * ridge * cp.sum_squares(w)), [cp.sum(w) == n, w >= 0]
    )


@scheme(tolerance=setting(0.05, above=0), balance=Moments(), kinks=False)
def stable_balancing_hard(
    w: cp.Variable, records: Any, tolerance: float, balance: Balance
) -> cp.Problem:
    """Balance within a tolerance (Zubizarreta 2015); without privacy alone.

    Parameters
    ----------
    tolerance
        Above 0, on the mean of every balance function over either arm.
    balance
        Balance functions of the scaled covariates, intercept excluded.

    Raises
    ------
    InfeasibleError
        When it is solved, where it is proved that no weights meet the tolerance.
    """
    half = cp.sum(records.features(balance), axis=0) / 2
    of_controls = records.features(balance, "controls").T @ w - half
    of_treated = records.features(balance, "treated").T @ w - half
    within = cp.norm_inf(cp.hstack([of_controls, of_treated])) <= records.n / 2 * tolerance
    sums = records.arms.T @ w == records.n / 2
    return cp.Problem(cp.Minimize(cp.sum_squares(w) / 2), [sums, w >= 0, within])
