"""Weights that users of R packages know, declared here: one function for each line of the page."""

import cvxpy as cp
import numpy as np

from dp2erm_cvx.program import Ball, scheme

#: Means of the covariates in a population that is known, public as census figures are.
CENSUS = (0.1, 0.0, -0.05)
#: Public shares of four strata of two covariates, of which the cells of a table are made.
SHARES = (0.3, 0.25, 0.25, 0.2)


def off_all(w, records):
    """Sums of (1, x) over each arm, less half of those over all records."""
    half = cp.hstack([records.n / 2, cp.sum(records.x, axis=0) / 2])
    return records.by_arm(1.0).T @ w - cp.hstack([half, half])


@scheme(ridge=0.1, low=0.5, high=2.0, cap=4.0)
def base_weights(w, records, ridge, low, high, cap):
    """``ebalance(base.weight=)``: near weights that a design gives, in a public interval."""
    base = records.numbers("base", lambda x, a, y: 1 + x[0] / 2, low, high)
    price = cp.sum_squares(off_all(w, records)) / (2 * ridge * records.n)
    return cp.Problem(cp.Minimize(price + cp.sum(cp.kl_div(w, base))), [w <= cap])


@scheme(rho=20.0, cap=3.0, tolerances=0.02)
def tolerances(w, records, rho, cap, tolerances):
    """``optweight(tols=)``, ``sbw(bal_tol=)``: an imbalance within its tolerance costs nothing."""
    beyond = cp.pos(cp.abs(off_all(w, records)) - records.n * tolerances)
    price = rho / records.n * cp.sum_squares(beyond)
    return cp.Problem(cp.Minimize(price + cp.sum_squares(w - 1)), [w <= cap])


@scheme(rho=20.0, least=0.1, cap=3.0)
def least_weight(w, records, rho, least, cap):
    """``optweight(min.w=)``: no record weighs less."""
    price = rho / records.n * cp.sum_squares(off_all(w, records))
    return cp.Problem(cp.Minimize(price + cp.sum_squares(w - 1)), [least <= w, w <= cap])


@scheme(rho=20.0, cap=4.0)
def public_targets(w, records, rho, cap):
    """``optweight(targets=)``, ``sbw(par_tar=)``: both arms have the means of a known
    population.
    """
    rows = records.rows("row", lambda x, a, y: np.kron((1 - a, a), (1.0, *x[:3])), Ball(2**0.5), 8)
    goal = records.n / 2 * np.array([1.0, *CENSUS] * 2)
    price = rho / records.n * cp.sum_squares(rows.T @ w - goal)
    return cp.Problem(cp.Minimize(price + cp.sum_squares(w - 1)), [w <= cap])


@scheme(rho=20.0, cap=3.0)
def one_at_a_time(w, records, rho, cap):
    """``optweight(norm="entropy")`` where nearly the largest imbalance is what is priced."""
    price = rho / records.n * cp.square(cp.norm(off_all(w, records), 8))
    return cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w))), [w <= cap])


@scheme(rho=20.0, cap=4.0)
def poststratified(w, records, rho, cap):
    """``poststratify`` of balance: cells have their public shares, in each arm."""
    cell = records.rows(
        "cell", lambda x, a, y: np.arange(8) == 4 * a + 2 * (x[0] >= 0) + (x[1] >= 0), Ball(1.0), 8
    )
    goal = records.n / 2 * np.array(SHARES * 2)
    price = rho / records.n * cp.sum_squares(cell.T @ w - goal)
    return cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w))), [w <= cap])


@scheme(rho=20.0, cap=3.0)
def within_strata(w, records, rho, cap):
    """``by=`` of WeightIt, as a price: the arms are compared within strata."""

    def signed(x, a, y):
        stratum = np.arange(2) == (x[0] >= 0)
        return np.kron(stratum, (2 * a - 1) * np.array([1.0, *x[:3]]))

    apart = records.rows("apart", signed, Ball(2**0.5), 8).T @ w
    price = rho / records.n * cp.sum_squares(apart)
    return cp.Problem(cp.Minimize(price + cp.sum_squares(w - 1)), [w <= cap])


SCHEMES = (
    base_weights,
    tolerances,
    least_weight,
    public_targets,
    one_at_a_time,
    poststratified,
    within_strata,
)
