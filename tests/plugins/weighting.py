"""Balancing weights of the literature as problems in the weights, each in a few lines of CVXPY.

A small ridge is exact balance. No weight is above ``cap`` times the mean weight of its arm, if both
arms weigh half and a public share of the records is ``treated``.
"""

import cvxpy as cp
import numpy as np

from dp2erm_cvx.program import Ball, scheme
from dp2erm_cvx.program.kernels import Energy, Gaussian

#: Public points that landmark kernels are centered at, in the first covariate.
LANDMARKS = (-0.75, -0.25, 0.25, 0.75)


def to_all(w, records):
    """Sums of (1, x) over each arm, less half of those over all records."""
    half = cp.hstack([records.n / 2, cp.sum(records.x, axis=0) / 2])
    return records.by_arm(1.0).T @ w - cp.hstack([half, half])


def capped(w, records, cap, treated):
    """Boxes of the weights by arm."""
    caps = cap / 2 * np.array([1 / (1 - treated), 1 / treated])
    return [w <= records.arms @ caps]


@scheme(ridge=0.1, cap=3.0, treated=0.5)
def entropy_balancing_capped(w, records, ridge, cap, treated):
    """Entropy balancing, relaxed by a ridge (Hainmueller 2012)."""
    price = cp.sum_squares(to_all(w, records)) / (2 * ridge * records.n)
    return cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w))), capped(w, records, cap, treated))


@scheme(ridge=0.1, cap=3.0, treated=0.5)
def stable_weights(w, records, ridge, cap, treated):
    """Weights of least variance, their imbalance penalized (Zubizarreta 2015)."""
    price = cp.sum_squares(to_all(w, records)) / (2 * ridge * records.n)
    return cp.Problem(
        cp.Minimize(price + cp.sum_squares(w - 1) / 2), capped(w, records, cap, treated)
    )


def three_ways(w, records, kernel, alpha):
    """Squared distances of both arms to half of all records, and of the arms to each other."""
    half = cp.sum(records.features(kernel), axis=0) / 2
    controls = cp.sum_squares(records.features(kernel, "controls").T @ w - half)
    treated = cp.sum_squares(records.features(kernel, "treated").T @ w - half)
    apart = cp.sum_squares(records.features(kernel, "signed").T @ w)
    return alpha * (controls + treated) + (1 - alpha) * apart


@scheme(ridge=0.1, cap=3.0, treated=0.5)
def energy_weights(w, records, ridge, cap, treated):
    """Energy balancing weights, improved (Huling & Mak 2024)."""
    price = three_ways(w, records, Energy(), 0.5) / (2 * ridge * records.n)
    return cp.Problem(
        cp.Minimize(price + cp.sum_squares(w - 1) / 2), capped(w, records, cap, treated)
    )


@scheme(ridge=0.1, cap=3.0, treated=0.5, bandwidth=1.0)
def kernel_balancing(w, records, ridge, cap, bandwidth, treated):
    """Kernel balance of the arms to each other and to all records (Chen et al. 2024)."""
    price = three_ways(w, records, Gaussian(bandwidth), 0.5) / (2 * ridge * records.n)
    return cp.Problem(
        cp.Minimize(price + cp.sum_squares(w - 1) / 2), capped(w, records, cap, treated)
    )


@scheme(ridge=0.1, cap=3.0, treated=0.5)
def bump_balancing(w, records, ridge, cap, treated):
    """Entropy balance of kernels at public landmarks (Hazlett 2020, at public points)."""

    def bumps(x, a, y):
        return (2 * a - 1) * np.exp(-2 * (x[0] - np.array(LANDMARKS)) ** 2) / 2

    rows = records.rows("bumps", bumps, Ball(1.0), len(LANDMARKS))
    price = cp.sum_squares(rows.T @ w) / (2 * ridge * records.n)
    return cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w))), capped(w, records, cap, treated))


@scheme(ridge=0.1, cap=4.0)
def treated_balancing(w, records, ridge, cap):
    """Entropy balance of the controls to the treated, who weigh 1 (Hainmueller 2012)."""
    price = cp.sum_squares(records.signed.T @ w) / (2 * ridge * records.n)
    controls, treated = records.arms[:, 0], records.arms[:, 1]
    sums = [controls @ w == cp.sum(treated), cp.multiply(treated, w) == treated]
    return cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w))), [*sums, w <= cap])


@scheme(cap=3.0, treated=0.5, rho=1.0, smoothing=0.02)
def robust_weights(w, records, cap, rho, treated):
    """Weights near 1 under the worst mean of a ball of linear functions (Hirshberg & Wager
    2021).
    """
    price = rho * cp.norm(to_all(w, records))
    return cp.Problem(
        cp.Minimize(price + cp.sum_squares(w - 1) / 2), capped(w, records, cap, treated)
    )


@scheme(cap=3.0, treated=0.5, rho=1.0, smoothing=0.02)
def sparse_imbalance(w, records, cap, rho, treated):
    """Weights near 1 under the sum of all imbalances: few of them are left (Ning, Peng & Imai
    2020).
    """
    price = rho * cp.norm1(to_all(w, records))
    return cp.Problem(
        cp.Minimize(price + cp.sum_squares(w - 1) / 2), capped(w, records, cap, treated)
    )


@scheme(tolerance=0.02, cap=4.0)
def approximate_balance(w, records, tolerance, cap):
    """Weights of least variance with the imbalance of the arms below a tolerance (Zubizarreta
    2015).
    """
    apart = cp.abs(records.signed.T @ w) <= records.n / 2 * tolerance
    halves = records.arms.T @ w == records.n / 2
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1)), [apart, halves, w <= cap])


SCHEMES = (
    entropy_balancing_capped,
    stable_weights,
    energy_weights,
    kernel_balancing,
    bump_balancing,
    treated_balancing,
    robust_weights,
    sparse_imbalance,
)
