"""Every kind of scheme at random public settings: an independent fit, the bound, and the arm floor."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.stability import (
    EntropyConstants,
    KernelConstants,
    entropy_balancing,
    entropy_balancing_paper_scaling,
    kernel_balancing,
    known_coefficient,
    logistic_propensity,
    pooled_kernel_balancing,
    randomized_trial,
    separable,
)
from tests.stability import kernel_movement
from tests.stability.kernel_movement import Groups
from tests.stability.movement import entropy_weights, ipw_weights, minimize_in_ball, scaled_entropy_weights
from tests.stability.search_pairs import of_each_record, on_margins

INF = math.inf


def log_uniform(rng, low, high):
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


# a scheme returns (fit on points (a, x), bound, arm floor) at random public settings


def logistic_scheme(rng, n):
    ridge, radius = log_uniform(rng, 1e-3, 3), float(rng.choice([INF, log_uniform(rng, 0.3, 5)]))
    trim = float(rng.choice([INF, log_uniform(rng, 1.2, 10)]))
    return on_margins(ipw_weights(ridge, radius, trim)), logistic_propensity(n, 1.0, ridge, radius, trim), 0


def entropy_scheme(rng, n):
    ridge, radius = log_uniform(rng, 0.03, 5), float(rng.choice([INF, log_uniform(rng, 0.3, 3)]))
    constant, mass = float(rng.choice([0.1, 1.0, 2.0])), str(rng.choice(["equal", "proportional"]))
    floor = int(rng.choice([0, max(1, n // 5)]))
    bound = entropy_balancing(n, EntropyConstants(1.0, constant, ridge, radius, mass, floor or None))
    return entropy_weights(1.0, constant, ridge, radius, mass), bound, floor


def scaled_entropy_scheme(rng, n):
    ridge, radius = log_uniform(rng, 0.03, 5), float(rng.choice([INF, log_uniform(rng, 0.1, 3)]))
    floor = max(1, int(rng.uniform(0.05, 0.5) * n))
    bound = entropy_balancing_paper_scaling(n, ridge, floor, radius)
    return scaled_entropy_weights(ridge, floor, radius), bound, floor


def kernel_fit(ridge, alpha, pooled, width):
    def fit(points, count):
        square = np.sum((points[:, None, 1:] - points[None, :, 1:]) ** 2, axis=2)
        groups = Groups.from_gram(np.exp(-square / width**2), points[:, 0].astype(int), count)
        return kernel_movement.weights(groups, ridge, alpha, pooled)

    return fit


def kernel_scheme(rng, n):
    n, ridge = max(n, 6), n * log_uniform(rng, 0.05, 20)
    floor, alpha = max(2, int(rng.uniform(0.1, 0.45) * n)), float(rng.choice([0.0, 0.5, 1.0]))
    fit = kernel_fit(ridge, alpha, False, log_uniform(rng, 0.2, 2))
    return fit, kernel_balancing(n, KernelConstants(1.0, ridge, alpha=alpha), floor), floor


def pooled_scheme(rng, n):
    ridge, alpha = n * log_uniform(rng, 0.05, 20), float(rng.choice([0.0, 0.5, 1.0]))
    fit = kernel_fit(ridge, alpha, True, log_uniform(rng, 0.2, 2))
    return fit, pooled_kernel_balancing(n, KernelConstants(1.0, ridge, alpha=alpha)), 0


def known_scheme(rng, n):
    norm, trim = log_uniform(rng, 0.1, 5), float(rng.choice([INF, log_uniform(rng, 1.2, 10)]))

    def f(points):
        return np.minimum(1 + np.exp(-norm * (2 * points[:, 0] - 1) * points[:, 1]), trim)

    return of_each_record(f), known_coefficient(n, 1.0, norm, trim), 0


def trial_scheme(rng, n):
    p = float(rng.uniform(0.02, 0.98))
    return of_each_record(lambda d: np.where(d[:, 0] == 1, 1 / p, 1 / (1 - p))), randomized_trial(n, p), 0


def generic_scheme(rng, n):
    """Least squares of the treatment on x, weights exp(tilt <lam, x>): a scheme outside the library."""
    ridge, radius, tilt = log_uniform(rng, 0.05, 5), log_uniform(rng, 0.2, 2), log_uniform(rng, 0.2, 1)

    def fit(points, count):
        x, a, total = points[:, 1:], points[:, 0], count.sum()

        def objective(curvature):
            def at(lam):
                rest = x @ lam - a
                hessian = (x.T * count) @ x / total + curvature * np.eye(2)
                value = count @ rest**2 / (2 * total) + curvature / 2 * lam @ lam
                return value, (count * rest) @ x / total + curvature * lam, hessian

            return at

        w = np.exp(tilt * x @ minimize_in_ball(objective, ridge, radius, 2))
        return total * w / (count @ w)

    r = min(radius, 1 / ridge)
    bound = separable(n, ridge, 2 * (1 + r), 2 * tilt, 2 * tilt * r, r)
    return fit, bound, 0


SCHEMES = {
    "ipw logistic": logistic_scheme,
    "entropy": entropy_scheme,
    "entropy, scaled": scaled_entropy_scheme,
    "kernel": kernel_scheme,
    "pooled kernel": pooled_scheme,
    "known coefficient": known_scheme,
    "trial": trial_scheme,
    "generic": generic_scheme,
}
