"""Perturbed weighted least squares, declared by its Gram matrix."""

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
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import ElasticNet, UserRegularizer, WholeSpace
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.program.curves import SQUARE, Curve
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.losses.least_squares import LeastSquaresModel
from dp2erm_cvx.program.losses.linear_rule import LinearStage
from dp2erm_cvx.program.penalized_stage import PenalizedSecondStage
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class WeightedLeastSquares(PenalizedSecondStage):
    """Weighted least squares in Gram form, with any Theta and R of this package.

    minimize  ||F theta||^2 + <linear, theta> + <noise, theta> + curvature/2 ||theta||^2 + n R(theta)
    subject to  theta in Theta,

    n times the objective of equation weighted_convex_opt_DP up to a constant: F'F = sum w_i x_i x_i',
    linear = -2 sum w_i z_i x_i, curvature = n gamma. A concrete program states its design (x_i, z_i).
    """

    by_blocks: ClassVar[bool] = True

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
        n, domain = records.n_samples, records.domain
        rows, penalty = records.rows(self.design), Penalty(self.feasible(domain))
        l1 = l2 = 0.0
        if isinstance(self.regularizer, ElasticNet):
            l1, l2 = self.regularizer.l1, self.regularizer.l2
            penalty = dataclasses.replace(penalty, l1=n * l1)
        b = None if noise is None else np.asarray(noise, dtype=np.float64)
        model = LeastSquaresModel(rows, weights, n * (gamma + l2), b, penalty)

        def data() -> dict[str, Value]:
            X, z = model.whole
            eigenvalues, vectors = np.linalg.eigh((X.T * weights) @ X)
            return {
                "factor": np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T,
                "linear": -2 * (X.T @ (weights * z)),
                **self.penalty_data(domain, n, gamma, model.linear),
            }

        if isinstance(self.regularizer, UserRegularizer):
            return Instance(self, data, None, n * gamma, model)
        return Instance(self, data, model, model.ridge)

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


@dataclass(frozen=True)
class LinearLeastSquares(LinearStage, WeightedLeastSquares):
    """``(z_i - <x_i, theta>)^2``, z the response of a record."""

    loss: ClassVar[Curve] = SQUARE
    theorem: ClassVar[str] = "Theorems 1 and 2: zeta_c = max sin(t) (2 M^2 |theta| cos(t) + 2 M Z), 2 M^2"

    def design(self, records: Records) -> tuple[Array, Array]:
        return self.covariates(records.domain, records.X), self.response(records)

    def loss_constants(self, universe: Universe) -> LossConstants:
        rows = self.row_bounds(universe)
        return dataclasses.replace(
            super().loss_constants(universe),
            outcome_bound=universe.domain.outcome_bound,
            covariate_bound=rows.norm,
            response_bound=rows.offset[1],
        )
