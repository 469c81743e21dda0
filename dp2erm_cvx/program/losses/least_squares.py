"""Perturbed weighted least squares: its composite, and its declaration by a Gram matrix."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Self

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.model.certified_radius import checked_perturbation, least_squares_radius
from dp2erm_cvx.model.composite import Composite, Penalty
from dp2erm_cvx.model.regularizer import ElasticNet, UserRegularizer
from dp2erm_cvx.model.sets import WholeSpace
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, dot_error, product_error, sum_error
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.second_stage import PenalizedSecondStage
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.universe import Universe


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


@dataclass(frozen=True)
class WeightedLeastSquares(PenalizedSecondStage):
    """Weighted least squares in Gram form, with any Theta and R of this package.

    minimize  ||F theta||^2 + <linear, theta> + <noise, theta> + curvature/2 ||theta||^2 + n R(theta)
    subject to  theta in Theta,

    n times the objective of equation weighted_convex_opt_DP up to a constant: F'F = sum w_i x_i x_i',
    linear = -2 sum w_i z_i x_i, curvature = n gamma. A concrete program states its design (x_i, z_i).
    """

    cone: ClassVar[str] = "QP (SOCP over an l2 ball)"

    @abc.abstractmethod
    def design(self, records: Records) -> tuple[Array, Array]:
        """X (n, p) and z (n,) of the squared loss ``(z_i - <x_i, theta>)^2``."""

    def unconstrained(self) -> Self:
        if self.regularizer != ElasticNet():
            raise CalibrationError(f"{self.name}: Theorems 7 and 8 cover no regularizer; leave it out")
        return dataclasses.replace(self, theta_set=WholeSpace())

    def instance(
        self, records: Records, weights: Array, *, gamma: float, noise: Array | None = None
    ) -> Instance:
        X, z = self.design(records)
        n, p = X.shape
        b = np.zeros(p) if noise is None else np.asarray(noise, dtype=np.float64)
        eigenvalues, vectors = np.linalg.eigh((X.T * weights) @ X)
        data: dict[str, Value] = {
            "factor": np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T,
            "linear": -2 * (X.T @ (weights * z)),
            **self.penalty_data(records.domain, n, gamma, b),
        }
        if isinstance(self.regularizer, UserRegularizer):
            smooth = LeastSquaresModel(X, z, weights, n * gamma, b, Penalty(self.feasible(records.domain)))
            return Instance(self, lambda: data, None, n * gamma, smooth)
        ridge = n * (gamma + self.regularizer.l2)
        penalty = Penalty(self.feasible(records.domain), n * self.regularizer.l1)
        return Instance(self, lambda: data, LeastSquaresModel(X, z, weights, ridge, b, penalty), ridge)

    def certified_radius(self, universe: Universe, gamma: float, noise_bound: float) -> float | None:
        """The radius where Newton's method stops (``radius_at_floor``).

        None for a user's regularizer, which only a duality gap judges, for constants that state no bounds on
        x and z, and for a curvature too small for floating point. Raises DeclarationError, and ProgramError
        for a user's regularizer that no gap can be measured for.
        """
        extra, noise = checked_perturbation(gamma, noise_bound)
        loss = self.loss_constants(universe)
        if isinstance(self.regularizer, UserRegularizer):
            self.regularizer.refuse_unchecked(loss.n_parameters)
            return None
        if loss.covariate_bound is None or loss.response_bound is None:
            return None
        theta_set, p = self.feasible(universe.domain), loss.n_parameters
        return least_squares_radius(
            universe.n_samples,
            p,
            covariate_bound=loss.covariate_bound,
            response_bound=loss.response_bound,
            ridge=universe.n_samples * (extra + self.regularizer.l2),
            noise_bound=noise,
            set_norm=theta_set.norm_bound(p),
            set_rounding=theta_set.rounding(p),
            is_mean=loss.is_mean,
        )

    def declare(self, leaf: Leaves) -> Declaration:
        factor = leaf("factor")
        theta = cp.Variable(factor.shape[1], name="theta")
        penalties, constraints = self.penalties(leaf, theta)
        objective = cp.sum_squares(factor @ theta) + leaf("linear") @ theta + penalties
        return Declaration(objective, {"theta": theta}, constraints)
