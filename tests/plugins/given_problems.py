"""Problems as users of CVXPY have them: named parameters in the place of data, no name of this
package.
"""

import cvxpy as cp
import numpy as np

P = 4


def stable_weights(n):
    """Weights of least variance that balance the arms (Zubizarreta 2015)."""
    w = cp.Variable(n, name="w", nonneg=True)
    X = cp.Parameter((n, P), name="X")
    rho = cp.Parameter(nonneg=True, name="rho", value=10.0)
    imbalance = X.T @ w / n
    objective = cp.sum_squares(w - 1) / (2 * n) + rho / 2 * cp.sum_squares(imbalance)
    return cp.Problem(cp.Minimize(n * objective), [cp.sum(w) == n, w <= 3])


def entropy_to_the_treated(n):
    """Entropy balancing of the controls to the means of the treated (Hainmueller 2012)."""
    weights = cp.Variable(n, name="weights")
    Z = cp.Parameter((n, P), name="Z")
    goal = cp.Parameter(P, name="goal")
    treated = cp.Parameter(n, name="treated", nonneg=True)
    price = cp.Parameter(pos=True, name="price")
    objective = cp.sum(cp.entr(weights)) - price * n * cp.sum_squares(Z.T @ weights / n - goal)
    return cp.Problem(
        cp.Maximize(objective),
        [cp.sum(weights) == n, cp.multiply(treated, weights) == 0, weights <= 5],
    )


def within_a_tolerance(n):
    """Least variance, where an imbalance within a tolerance costs nothing (Wang & Zubizarreta
    2020).
    """
    w = cp.Variable(n, name="w")
    X = cp.Parameter((n, P), name="X")
    tolerance = cp.Parameter(nonneg=True, name="tolerance", value=0.02)
    beyond = cp.pos(cp.abs(X.T @ w / n) - tolerance)
    return cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1) + 20 * n * cp.sum_squares(beyond)),
        [cp.sum(w) == n, w >= 0, w <= 3],
    )


def to_a_census(n):
    """Weights near 1 that have the margins of a census (Deming & Stephan 1940)."""
    w = cp.Variable(n, name="w")
    X = cp.Parameter((n, P), name="X")
    census = np.array([0.1, 0.0, -0.05, 0.1])
    off = X.T @ w - n * census
    return cp.Problem(
        cp.Minimize(cp.sum(cp.kl_div(w, 1)) + 10 / n * cp.sum_squares(off)),
        [cp.sum(w) == n, w <= 4],
    )


def by_arm(n):
    """Both arms weigh half, and each has the means of all records."""
    w = cp.Variable(n, name="w")
    G = cp.Parameter((n, 2 * P + 2), name="G")
    A = cp.Parameter((n, 2), name="A")
    half = cp.Parameter(2 * P + 2, name="half")
    rho = cp.Parameter(pos=True, name="rho", value=5.0)
    objective = cp.sum_squares(w - 1) / 2 + rho / n * cp.sum_squares(G.T @ w - half)
    return cp.Problem(cp.Minimize(objective), [A.T @ w == np.full(2, n / 2), w >= 0, w <= 4])
