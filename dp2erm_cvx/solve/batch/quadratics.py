"""Many quadratic programs with one Hessian: free or in an l2 ball."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT, dot_error, sum_error
from dp2erm_cvx.program.losses.least_squares import LeastSquaresModel


class Gram:
    """``f(theta) = theta' H theta / 2 + <linear + noise, theta>`` with one factorization for all noises.

    ``slope_error`` and ``offset_error`` bound the error of a computed gradient as
    ``slope_error ||theta|| + offset_error``, up to the noise; ``curvature`` is a lower bound on the
    eigenvalues of H, ``smoothness`` an upper one.
    """

    def __init__(self, model: LeastSquaresModel) -> None:
        X, w = model.X, model.weights
        self.dimension, self.ridge = model.dimension, model.ridge
        self.H: Array = 2 * _in_blocks(X, X * w[:, None]) + model.ridge * np.eye(model.dimension)
        self.linear: Array = -2 * _in_blocks(X, (w * model.z)[:, None])[:, 0]
        self.values, self.vectors = np.linalg.eigh(self.H)
        error = sum_error(model.n) + 8 * UNIT
        norms = model.row_norms * (1 + 1e-12)
        wrong = 2 * error * float(w @ norms**2) + 4 * UNIT * model.ridge
        size = float(np.linalg.norm(self.H)) * (1 + 1e-9)
        self.slope_error = (wrong + dot_error(model.dimension) * size) * (1 + 1e-9)
        self.offset_error = (2 * error * float(w @ (norms * np.abs(model.z)))) * (1 + 1e-9)
        self.offset_error += 8 * UNIT * float(np.linalg.norm(self.linear))
        lost = wrong + 64 * model.dimension * UNIT * float(self.values[-1])
        self.curvature = max(float(self.values[0]) - lost, model.ridge)
        self.smoothness = (float(self.values[-1]) + lost) * (1 + 1e-9)

    def solve(self, right: Array) -> Array:
        """``H^-1 right_k`` for the rows of right (m, p)."""
        solved: Array = (right @ self.vectors / self.values) @ self.vectors.T
        return solved

    def gradient(self, theta: Array, noises: Array) -> Array:
        """Gradients (m, p) at theta (m, p) under noises (m, p)."""
        gradient: Array = theta @ self.H + self.linear + noises
        return gradient


def _in_blocks(X: Array, Y: Array) -> Array:
    """``X.T @ Y`` in blocks of 128 rows whose results are added pairwise."""
    n = len(X) // 128 * 128
    head = np.matmul(
        X[:n].reshape(-1, 128, X.shape[1]).transpose(0, 2, 1), Y[:n].reshape(-1, 128, Y.shape[1])
    )
    parts = np.concatenate([head, (X[n:].T @ Y[n:])[None]])
    while len(parts) > 1:
        half = len(parts) // 2
        paired = parts[:half] + parts[half : 2 * half]
        parts = np.concatenate([paired, parts[2 * half :]])
    total: Array = parts[0]
    return total


_MAX_STEPS = 40


def solve_in_ball(gram: Gram, noises: Array, radius: float) -> tuple[Array, Array]:
    """Points (m, p) and multipliers (m,) of ``min f`` over ``||theta|| <= radius``.

    ``theta = -(H + nu I)^-1 (linear + noise)`` with the nu >= 0 for which the norm is the radius. Newton's
    method on 1/||theta|| - 1/radius, which is concave and increasing in nu: from nu = 0 no step overshoots.
    """
    q = (gram.linear + noises) @ gram.vectors
    multiplier = np.zeros(len(q))
    for _ in range(_MAX_STEPS):
        shifted = gram.values + multiplier[:, None]
        square = (q / shifted) ** 2
        norm = np.sqrt(np.sum(square, axis=1))
        slope = np.sum(square / shifted, axis=1)
        step = (norm - radius) / radius * norm**2 / np.where(slope > 0, slope, 1.0)
        step = np.where(slope > 0, step, 0.0)
        following = np.maximum(multiplier + step, 0.0)
        if np.all(np.abs(following - multiplier) <= 4e-16 * (following + gram.values[-1])):
            break
        multiplier = following
    theta = -(q / (gram.values + multiplier[:, None])) @ gram.vectors.T
    norm = np.sqrt(np.sum(theta * theta, axis=1))
    scale = np.where(norm > radius, radius / np.where(norm > 0, norm, 1.0), 1.0)
    return theta * scale[:, None], multiplier
