"""Calibration of survey sampling as weights of two arms.

Distances are logit, empirical likelihood and raking.

minimize    sum_i d(w_i) + ||m||^2 / (2 n ridge)
subject to  sum_i w_i = n,  low <= w_i <= cap of the arm of i

with m = (c (W_0 - n/2), c (W_1 - n/2), m_0, m_1), W_a the weight of arm a, m_a = sum over arm a of
w_i g(x_i) less half of the sum of all g(x_i), g balance functions and c a constant. The caps are
cap / (2 (1 - treated)) for controls and cap / (2 treated) for treated, with a public share of the
treated.

``logit_calibration`` has the distance of Deville and Sarndal (1992, case 6) from weights 1, with L
= low and U the larger cap, scaled to the curvature 1 at 1:

d(w) = (1 - L)(U - 1)/(U - L) [ (w - L) log((w - L)/(1 - L)) + (U - w) log((U - w)/(U - 1)) ]

``empirical_likelihood`` has d(w) = -log(w). ``raking`` has d(w) = w log(w) - w + 1, and public
margins in the place of the records' own: m_a = sum over arm a of w_i g(x_i), g functions less their
public margins. All are calibration with exact constraints as the ridge goes to 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import (
    ARM_SETTINGS,
    Balance,
    capped_by_arm,
    caps_of_arms,
    imbalance_of_arms,
    scheme,
    setting,
)


@scheme(
    **{**ARM_SETTINGS, "cap": setting(3.0, above=1, at_most=1e6)},
    low=setting(0.1, at_least=0, below=1),
    kinks=False,
)
def logit_calibration(
    w: cp.Variable,
    records: Any,
    balance: Balance,
    constant: float,
    ridge: float,
    cap: float,
    treated: float,
    low: float,
) -> cp.Problem:
    """Weights of a public interval, by the logit distance (Deville & Sarndal 1992).

    Parameters
    ----------
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2; default: the
        norm bound of ``balance``.
    ridge
        Above 0: an imbalance costs its square over 2 n times this; default: the squared norm bound
        of the functions and the constant.
    cap
        Above 1: no weight is above so many times the mean weight of its arm, if both arms weigh
        half.
    treated
        Public share of the treated, for the caps alone.
    low
        Least weight, in [0, 1).
    """
    n = records.n
    top = float(np.max(caps_of_arms(cap, treated)))
    distance = cp.sum(cp.kl_div(w - low, 1 - low)) + cp.sum(cp.kl_div(top - w, top - 1))
    curvature = (top - low) / ((1 - low) * (top - 1))
    imbalance = imbalance_of_arms(w, records, balance, constant)
    price = cp.sum_squares(imbalance) / (2 * ridge * n)
    constraints = [cp.sum(w) == n, w >= low, *capped_by_arm(w, records, cap, treated)]
    return cp.Problem(cp.Minimize(distance / curvature + price), constraints)


@scheme(**ARM_SETTINGS, low=setting(0.1, at_least=0, below=1), kinks=False)
def empirical_likelihood(
    w: cp.Variable,
    records: Any,
    balance: Balance,
    constant: float,
    ridge: float,
    cap: float,
    treated: float,
    low: float,
) -> cp.Problem:
    """Empirical likelihood under balance of both arms (Qin & Lawless 1994; Han & Wang 2013).

    Parameters
    ----------
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2; default: the
        norm bound of ``balance``.
    ridge
        Above 0: an imbalance costs its square over 2 n times this; default: the squared norm bound
        of the functions and the constant.
    cap
        No weight is above so many times the mean weight of its arm, if both arms weigh half. Large
        weights answer most, so that V grows with the cap; ``inf`` for none.
    treated
        Public share of the treated, for the caps alone.
    low
        Least weight, in [0, 1).
    """
    n = records.n
    imbalance = imbalance_of_arms(w, records, balance, constant)
    price = cp.sum_squares(imbalance) / (2 * ridge * n)
    constraints = [cp.sum(w) == n, w >= low, *capped_by_arm(w, records, cap, treated)]
    return cp.Problem(cp.Minimize(price - cp.sum(cp.log(w))), constraints)


@scheme(**ARM_SETTINGS, kinks=False)
def raking(
    w: cp.Variable,
    records: Any,
    balance: Balance,
    constant: float,
    ridge: float,
    cap: float,
    treated: float,
) -> cp.Problem:
    """Raking of both arms to public margins, those of a population (Deming & Stephan 1940).

    Parameters
    ----------
    balance
        Functions of the scaled covariates, less their margins: in both arms they are to have the
        mean 0. ``BalanceFunctions(lambda x: x - margins, ...)`` with public margins; by default the
        margins are the middles of the declared ranges.
    constant
        Value of a constant beside the functions, which holds the arm masses near n/2; default: the
        norm bound of ``balance``.
    ridge
        Above 0: a difference of margins costs its square over 2 n times this; default: the squared
        norm bound of the functions and the constant.
    cap
        No weight is above so many times the mean weight of its arm, if both arms weigh half;
        ``inf`` for none.
    treated
        Public share of the treated, for the caps alone.
    """
    n = records.n
    masses = constant * (records.arms.T @ w - n / 2)
    margins = records.features(balance, "by_arm").T @ w
    price = cp.sum_squares(cp.hstack([masses, margins])) / (2 * ridge * n)
    constraints = [cp.sum(w) == n, w >= 0, *capped_by_arm(w, records, cap, treated)]
    return cp.Problem(cp.Minimize(cp.sum(cp.kl_div(w, 1)) + price), constraints)
