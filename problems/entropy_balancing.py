"""Entropy balancing: weights near 1 whose means in both arms are those of all records.

``entropy_balancing`` has a price of what imbalance is left:

minimize    sum_i w_i log(w_i / d_i) + n/(2 ridge) huber(||m||, ridge * radius)
subject to  sum_i w_i = n,  0 <= w_i <= cap of the arm

The base weights d_i are 1, or half of the inverse of the public share of the arm.

with m = (m_0, m_1), m_a = sum over arm a of w_i g(x_i) / n - gbar / 2, g = (constant, balance(x));
without a radius the price is n/(2 ridge) ||m||^2. Without a cap it is the Fenchel dual of

minimize    n ( log mean_i exp(<b_i, lam>) - <t, lam> + ridge/2 ||lam||^2 )
subject to  ||lam||_2 <= radius

with b_i = e_{a_i} (x) g(x_i), t = (gbar, gbar)/2 and weights proportional to exp(<b_i, lam>):
equation entropy_dual of the paper but for the scaling of its rows, which is that of
``paper_entropy_balancing``.

``entropy_balancing_hard`` has exact balance, ``m = 0`` in place of the price (equation
entropy_weight_primal of the paper, n times, with a uniform base measure and arms of n/2). It is not
private: no stability bound exists for hard constraints that depend on the data. Its certificate is
a backward error, and infeasible records are refused by a proof.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dp2erm_cvx.checks import declared_choice, public_size
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import Balance, Moments, capped_by_arm, caps_of_arms, scheme, setting


@scheme(
    balance=Moments(),
    constant=setting("G_x", public_size),
    ridge=setting("constant**2 + G_x**2", public_size, zero=True),
    radius=setting(math.inf, public_size, infinite=True),
    cap=setting(3.0, above=0, infinite=True),
    treated=setting(0.5, above=0, below=1),
    bases=setting("even", declared_choice, words=("even", "by_arm")),
    kinks=False,
)
def entropy_balancing(
    w: cp.Variable,
    records: Any,
    balance: Balance,
    constant: float,
    ridge: float,
    radius: float,
    cap: float,
    treated: float,
    bases: str,
) -> cp.Problem:
    """The default choice for observational data: an arm may be empty (Hainmueller 2012, relaxed).

    Parameters
    ----------
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2; default: the
        norm bound of ``balance``.
    ridge
        Above 0: the price of imbalance is its inverse; default: the squared norm bound of the
        functions and the constant, so that the stability bound does not depend on how covariates
        are scaled.
    radius
        Bound on the slope of the price, in units of its argument; ``inf`` for none.
    cap
        No weight is above so many times the mean weight of its arm, if both arms weigh half;
        ``inf`` for none.
    treated
        Public share of the treated, for caps and bases; a wrong one costs balance and no privacy.
    bases
        "even": weights are near 1. "by_arm": near ``1 / (2 share)`` of their arm, its mean weight
        where both arms weigh half; a cap below 1, which some records could not meet, is then raised
        to 1.

    Raises
    ------
    DeclarationError
        For a ridge of 0.
    """
    if ridge == 0.0:
        raise DeclarationError(
            "ridge = 0: must be greater than 0. Within a radius alone the price is radius times "
            "the norm of the imbalance, which a small ridge smooths: declare one, or write n * "
            "radius * cp.norm(imbalance) in a scheme of your own"
        )
    n = records.n
    half = cp.sum(records.features(balance), axis=0) / 2
    # n/2 as a sum over records: beside a number as large as n the weight of one record would lose
    # digits
    mass = constant * (records.arms.T @ w - cp.sum(records.ones) / 2)
    of_controls = records.features(balance, "controls").T @ w - half
    of_treated = records.features(balance, "treated").T @ w - half
    imbalance = cp.hstack([mass, of_controls, of_treated]) / n
    squares = cp.sum_squares(imbalance)
    if math.isfinite(radius):
        squares = cp.huber(cp.norm(imbalance), ridge * radius)
    price = n / (2 * ridge) * squares
    if bases == "even":
        constraints = [cp.sum(w) == n, w >= 0, *capped_by_arm(w, records, cap, treated)]
        return cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w))), constraints)
    base_of_arms = tuple(caps_of_arms(1.0, treated).tolist())
    base = records.numbers(
        "base", lambda x, a, y: base_of_arms[a], min(base_of_arms), max(base_of_arms)
    )
    constraints = [cp.sum(w) == n, w >= 0]
    if math.isfinite(cap):
        constraints.append(w <= records.arms @ np.maximum(caps_of_arms(cap, treated), 1.0))
    return cp.Problem(cp.Minimize(price + cp.sum(cp.kl_div(w, base))), constraints)


@scheme(balance=Moments(), kinks=False)
def entropy_balancing_hard(w: cp.Variable, records: Any, balance: Balance) -> cp.Problem:
    """Exact balance, without privacy alone (Hainmueller 2012).

    Lee & Chen (2026) state it in eq. entropy_weight_primal.

    Arms that weigh as many as they have records, in place of n/2 each, have these weights times 2
    n_a / n.

    Parameters
    ----------
    balance
        Balance functions of the scaled covariates, intercept excluded.

    Raises
    ------
    InfeasibleError
        When it is solved, where it is proved that no weights balance them.
    """
    half = cp.sum(records.features(balance), axis=0) / 2
    of_controls = records.features(balance, "controls").T @ w == half
    of_treated = records.features(balance, "treated").T @ w == half
    sums = records.arms.T @ w == records.n / 2
    return cp.Problem(cp.Minimize(-cp.sum(cp.entr(w))), [sums, w >= 0, of_controls, of_treated])
