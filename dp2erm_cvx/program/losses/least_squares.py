"""The composite of perturbed weighted least squares."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite, Penalty
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, dot_error, product_error, sum_error


class LeastSquaresModel(Composite):
    """f(theta) = sum_i w_i (z_i - <x_i, theta>)^2 + ridge/2 ||theta||^2 + <linear, theta>.

    ``X`` (n, p), ``z``, ``weights`` (n,), ``linear`` (p,), ``ridge = n (gamma + l2)``. The gradient
    is taken record by record, not through the Gram matrix that solvers are given.
    """

    self_concordance = 0.0

    def __init__(
        self, X: Array, z: Array, weights: Array, ridge: float, linear: Array, penalty: Penalty
    ) -> None:
        self.X, self.z, self.weights, self.linear = X, z, weights, linear
        self.n, self.dimension = len(X), int(X.shape[1])
        self.ridge, self.penalty = ridge, penalty
        self._hessian = 2 * ((X.T * weights) @ X) + ridge * np.eye(self.dimension)
        self.smoothness = float(np.linalg.eigvalsh(self._hessian)[-1]) * (1 + 1e-9)
        self.row_norms: Array = np.linalg.norm(X, axis=1)
        # theta itself may be 0: a relative radius is then stated in a gradient step from 0 within Theta
        first_step = -self.gradient(np.zeros(self.dimension)) / (self.smoothness or 1.0)
        self.least_scale = float(np.linalg.norm(penalty.set.project(first_step)))

    def value(self, v: Array) -> float:
        residual = self.z - self.X @ v
        return float(self.weights @ residual**2) + 0.5 * self.ridge * float(v @ v) + float(self.linear @ v)

    def gradient(self, v: Array) -> Array:
        residual = self.X @ v - self.z
        return 2 * blocked_rmatvec(self.X, self.weights * residual) + self.ridge * v + self.linear

    def hessian(self, v: Array) -> Array:
        return self._hessian

    def hessian_rounding(self, v: Array) -> float:
        # entry (j, k) is wrong by a share of sum w |x_j| |x_k|, a matrix of norm sum w ||x||^2 at most
        moment = 2 * float(self.weights @ self.row_norms**2)
        return (product_error(self.n) + 8 * UNIT) * moment + 4 * UNIT * self.ridge

    def rounding(self, v: Array) -> float:
        return float(np.linalg.norm(self.rounding_by_coordinate(v)))

    def rounding_by_coordinate(self, v: Array) -> Array:
        size = np.abs(self.X) @ np.abs(v) + np.abs(self.z)
        error = dot_error(self.dimension) + 8 * UNIT + sum_error(self.n)
        data: Array = 2 * error * (np.abs(self.X).T @ (self.weights * size))
        return data + 8 * UNIT * (self.ridge * np.abs(v) + np.abs(self.linear))

    def output_scale(self, v: Array) -> float:
        return max(float(np.linalg.norm(v)), self.least_scale) or 1.0
