"""Neighboring Gaussian releases of a squared loss, and their exact divergences."""

import dataclasses
import math

import numpy as np
from scipy import stats

from dp2erm_cvx.calibration import Objective
from dp2erm_cvx.calibration.renyi import gradient_movement
from dp2erm_cvx.curves.loss_constants import LossConstants
from tests.helpers import bound_of


def squared_loss(p, M, Z, theta_bound=None):
    """The constants of ``(z - <x, theta>)^2`` over R^p, ``||x|| <= M`` and ``|z| <= Z``."""
    return LossConstants(
        p, math.inf, 2 * M * M, 0.0, theta_bound, Z, covariate_bound=M, response_bound=Z
    )


def objective_of(V, loss, n):
    return Objective(bound_of(V), loss, n)


def coupled_variation(w, w_new):
    return float(np.abs(w - w_new).sum() + 2 * min(w[0], w_new[0]))


@dataclasses.dataclass
class Side:
    """Half of a neighboring pair: what determines the law of theta."""

    X: np.ndarray
    z: np.ndarray
    w: np.ndarray

    def law(self, gamma, scale):
        """Mean and covariance of theta."""
        n, p = self.X.shape
        A = 2 * (self.X.T * self.w) @ self.X + n * gamma * np.eye(p)
        inverse = np.linalg.inv(A)
        return inverse @ (2 * self.X.T @ (self.w * self.z)), scale**2 * inverse @ inverse


def random_pair(rng, loss):
    """Neighbors at the edge of the universe: record 0 is replaced, weights move together or
    freely.
    """
    n, p = int(rng.integers(2, 8)), loss.n_parameters
    M, Z = loss.covariate_bound, loss.response_bound
    kind = rng.integers(3)
    X = rng.normal(size=(n, p))
    X *= M / np.linalg.norm(X, axis=1, keepdims=True)
    if kind == 1:
        X *= rng.random((n, 1)) ** 0.3
    if kind == 2:
        X = M * np.eye(p)[rng.integers(0, p, n)] * rng.choice([-1, 0, 1], n)[:, None]
    X_new = X.copy()
    fresh = rng.normal(size=p)
    X_new[0] = (
        X[0] * rng.choice([0, 1, -1]) if rng.random() < 0.5 else M * fresh / np.linalg.norm(fresh)
    )
    # aligned responses make the noiseless theta as large as it can be
    z = Z * (np.where(X.sum(1) >= 0, 1.0, -1.0) if kind == 2 else rng.choice([-1.0, 1.0], n))
    z_new = z.copy()
    z_new[0] = Z * rng.choice([-1.0, 1.0])
    w = n * rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 10.0])))
    w_new = (
        n * rng.dirichlet(np.ones(n))
        if rng.random() < 0.3
        else w * np.exp(0.1 * rng.normal(size=n))
    )
    w_new *= n / w_new.sum()
    return Side(X, z, w), Side(X_new, z_new, w_new)


def exact_divergence(first, second, order, gamma, scale):
    """Renyi divergence of two Gaussians, in the parameter theta."""
    (mean, cov), (mean_new, cov_new) = first.law(gamma, scale), second.law(gamma, scale)
    mixed = order * cov_new + (1 - order) * cov
    if np.linalg.eigvalsh(mixed)[0] <= 0:
        return math.inf
    shift = mean_new - mean

    def logdet(matrix):
        return np.linalg.slogdet(matrix)[1]

    volume = logdet(mixed) - (1 - order) * logdet(cov) - order * logdet(cov_new)
    return order / 2 * shift @ np.linalg.solve(mixed, shift) - volume / (2 * (order - 1))


def attacks(count, seed=3):
    """(exact divergence, order, V, loss, n, scale, gamma), V and tau as large as random neighbors
    allow.
    """
    rng = np.random.default_rng(seed)
    for _ in range(count):
        loss = squared_loss(int(rng.integers(1, 4)), float(rng.choice([1.0, 0.5, 3.0])), 2.0)
        first, second = random_pair(rng, loss)
        V, n = max(coupled_variation(first.w, second.w), 1e-2), len(first.w)
        tau = 10 ** rng.uniform(-3, 0.3)
        gamma = loss.covariate_bound**2 * V / (n * tau)
        order = 1 + rng.choice([rng.random(), 0.99, 1e-3]) / (tau * (2 + tau))
        scale = gradient_movement(V, loss, gamma) * 10 ** rng.uniform(-1, 4)
        yield exact_divergence(first, second, order, gamma, scale), order, V, loss, n, scale, gamma


def one_dimensional_pairs(count, seed=8):
    """(loss, first, second, V): neighbors with one parameter, the same weights and a flipped
    response.
    """
    rng = np.random.default_rng(seed)
    loss = squared_loss(1, 1.0, 2.0)
    for _ in range(count):
        n = int(rng.integers(2, 30))
        w = n * rng.dirichlet(np.full(n, rng.choice([1.0, 10.0])))
        sign = rng.choice([-1.0, 1.0], n) if rng.random() < 0.3 else np.ones(n)
        x = np.ones(n) * rng.choice([0.0, 0.2, 1.0], n)
        if rng.random() < 0.5:
            # the pull 2s/(2 s^2 + n gamma) on theta is largest at 2 s^2 = n gamma
            x[1:] = rng.random()
        x_new, sign_new = x.copy(), sign.copy()
        x[0], x_new[0] = 1.0, rng.choice([-1.0, 0.0, 1.0])
        sign_new[0] = -sign[0]
        first = Side(x[:, None], 2 * sign, w)
        second = Side(x_new[:, None], 2 * sign_new, w)
        yield loss, first, second, coupled_variation(w, w)


def losses(first, second, gamma, scale, points=18_001):
    """Probabilities and privacy losses of a one-dimensional release, on a grid over nine
    deviations.
    """
    ((mean,), ((var,),)), ((mean_new,), ((var_new,),)) = (
        first.law(gamma, scale),
        second.law(gamma, scale),
    )
    sd = math.sqrt(var)
    steps = np.linspace(-9, 9, points)
    t = mean + sd * steps
    loss = stats.norm.logpdf(t, mean, sd) - stats.norm.logpdf(t, mean_new, math.sqrt(var_new))
    return stats.norm.pdf(steps) * (steps[1] - steps[0]), loss


def hockey_stick(first, second, epsilon, gamma, scale):
    """Exact delta of two one-dimensional Gaussians at epsilon: the integral of (p - e^eps p')_+."""
    mass, loss = losses(first, second, gamma, scale)
    return float(np.sum(mass * np.maximum(-np.expm1(epsilon - loss), 0.0)))


def composed_hockey_stick(first, second, epsilon, gamma, scale):
    """The same for two releases with independent noise."""
    mass, loss = losses(first, second, gamma, scale, points=601)
    together = np.add.outer(loss, loss)
    return float(mass @ np.maximum(-np.expm1(np.minimum(epsilon - together, 1.0)), 0.0) @ mass)
