"""The multinomial regression of a treatment of several arms as an exact smooth function."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from operator import attrgetter

import numpy as np

from dp2erm_cvx.blocks import Blocks, tree_sum
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.model.composite import Composite, Sizes
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, dot_error, product_error, sum_error

_ROOT_2 = math.sqrt(2.0)


def contrasts(n_arms: int) -> Array:
    """Orthonormal columns (K, K - 1) that are each orthogonal to ones: arms in the order of their numbers."""
    basis = np.zeros((n_arms, n_arms - 1))
    for j in range(n_arms - 1):
        basis[: j + 1, j], basis[j + 1, j] = 1.0, -(j + 1.0)
        basis[:, j] /= math.sqrt((j + 1.0) * (j + 2.0))
    return basis


class MultinomialModel(Composite):
    """``sum w_i (log sum_a exp(<z_i, theta_a>) - <z_i, theta_{A_i}>) + ridge/2 ||v||^2 + <noise, v>``.

    ``theta = Q v`` (K, p) for the :func:`contrasts` Q: its arms add up to 0, and its norm is that of v.
    Rows z (p,) of records have at most the norm ``row_bound``, their counts w lie in [0, 1]. Sums over
    blocks of records are added in a tree.
    """

    def __init__(self, blocks: Blocks[Records], p: int, ridge: float, noise: Array, row_bound: float) -> None:
        self.blocks, self.p, self.ridge, self.noise = blocks, p, ridge, noise
        self.dimension, self.row_bound = len(noise), row_bound
        self.basis = contrasts(self.dimension // p + 1)
        # in the space of the contrasts no Hessian of a log of exponentials exceeds one half
        self.mass = float(sum(map(np.sum, blocks.map(attrgetter("counts"))))) * (1.0 + 1e-9)
        self.smoothness = 0.5 * self.mass * row_bound**2 + ridge
        self.self_concordance = _ROOT_2 * row_bound

    def coefficients(self, v: Array) -> Array:
        """Theta (K, p)."""
        theta: Array = self.basis @ v.reshape(len(self.basis) - 1, -1)
        return theta

    def _sum(self, function: Callable[..., Array], v: Array) -> Array:
        return tree_sum(self.blocks.map(partial(function, theta=self.coefficients(v), basis=self.basis)))

    def value(self, v: Array) -> float:
        return float(self._sum(_losses, v) + 0.5 * self.ridge * (v @ v) + self.noise @ v)

    def gradient(self, v: Array) -> Array:
        gradient: Array = (self.basis.T @ self._sum(_pull, v)).ravel() + self.ridge * v + self.noise
        return gradient

    def hessian(self, v: Array) -> Array:
        return self._sum(_curvature, v) + self.ridge * np.eye(self.dimension)

    def rounding(self, v: Array) -> float:
        norm, n_arms = float(np.linalg.norm(v)), len(self.basis)
        fixed, growing = rounding_of(self.blocks.n_samples, self.p, n_arms, self.row_bound, self.mass)
        linear = self.ridge * norm + float(np.linalg.norm(self.noise))
        return fixed + growing * norm + 4.0 * UNIT * linear

    def hessian_rounding(self, v: Array) -> float:
        norm, n_arms = float(np.linalg.norm(v)), len(self.basis)
        error = product_error(self.blocks.n_samples) + (8.0 * n_arms + 64.0) * UNIT
        error += 16.0 * (dot_error(self.p) + (n_arms + 2) * UNIT) * self.row_bound * norm
        return n_arms * error * self.mass * self.row_bound**2 + 4.0 * UNIT * self.ridge


def _logits(block: Records, theta: Array) -> Array:
    """Logits less the largest of a record (n, K)."""
    logits: Array = block.X @ theta.T
    logits -= np.max(logits, axis=1, keepdims=True)
    return logits


def _probabilities(block: Records, theta: Array) -> Array:
    parts = np.exp(_logits(block, theta))
    p: Array = parts / np.sum(parts, axis=1, keepdims=True)
    return p


def _losses(block: Records, theta: Array, basis: Array) -> Array:
    logits = _logits(block, theta)
    own = np.take_along_axis(logits, block.a[:, None], axis=1)[:, 0]
    return np.asarray(block.counts @ (np.log(np.sum(np.exp(logits), axis=1)) - own))


def _pull(block: Records, theta: Array, basis: Array) -> Array:
    pull = _probabilities(block, theta)
    pull[np.arange(len(pull)), block.a] -= 1.0
    pull *= block.counts[:, None]
    return np.array([blocked_rmatvec(block.X, np.ascontiguousarray(column)) for column in pull.T])


def _curvature(block: Records, theta: Array, basis: Array) -> Array:
    q, p, k = _probabilities(block, theta), block.X.shape[1], len(basis) - 1
    along, hessian = q @ basis, np.zeros((k, p, k, p))
    for i in range(k):
        for j in range(i + 1):
            curvature = q @ (basis[:, i] * basis[:, j]) - along[:, i] * along[:, j]
            part = (block.X * (block.counts * curvature)[:, None]).T @ block.X
            hessian[i, :, j], hessian[j, :, i] = part, part.T
    return hessian.reshape(k * p, k * p)


def rounding_of(n: int, p: int, n_arms: int, row_bound: float, mass: float) -> tuple[float, float]:
    """Bound on the rounding of a gradient: what is fixed, and what grows with the norm of v.

    A logit is off by at most ``delta = (dot_error + (K + 2) u) M ||v||``, so a probability by at most ``4
    delta + (K + 16) u`` of itself; pulls of norm at most the root of 2 are summed in blocks and turned into
    contrasts.
    """
    sums = _ROOT_2 * (sum_error(n) + (2 * n_arms + 8) * UNIT)
    fixed = mass * row_bound * ((n_arms + 16) * UNIT + sums)
    growing = 4.0 * (dot_error(p) + (n_arms + 2) * UNIT) * mass * row_bound**2
    return 1.01 * fixed, 1.01 * growing


def multinomial_sizes(
    n: int, n_rows: int, p: int, n_arms: int, row_bound: float, ridge: float, noise_bound: float
) -> Sizes:
    """Sizes of every such sum over at most ``n_rows`` of mass n, for noise of at most this norm."""
    fixed, growing = rounding_of(n_rows, p, n_arms, row_bound, n * (1.0 + 1e-9))
    steep = n * _ROOT_2 * row_bound + noise_bound
    # at the minimizer ridge ||v||^2 <= n log K + ||noise|| ||v||, as 0 has no smaller a value
    far = math.sqrt(2.0 * n * math.log(n_arms) / ridge) + 2.0 * noise_bound / ridge
    return Sizes(
        strong_convexity=ridge,
        smoothness=0.5 * n * (1.0 + 1e-9) * row_bound**2 + ridge,
        slope=steep,
        rounding=fixed + 4.0 * UNIT * noise_bound,
        rounding_growth=growing + 4.0 * UNIT * ridge,
        minimizer_norm=min(far, steep / ridge),
        set_norm=math.inf,
        set_rounding=0.0,
    )
