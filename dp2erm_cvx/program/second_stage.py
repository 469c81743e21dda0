"""Second stages: perturbed weighted empirical risk minimization over theta."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.program.composite import Penalty
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.least_squares import LeastSquaresModel
from dp2erm_cvx.program.reach import least_squares_reach, public_reach
from dp2erm_cvx.program.regularizer import ElasticNet, UserRegularizer
from dp2erm_cvx.program.sets import Box, ConvexSet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.program.stage import Instance, Program


class SecondStage(Program):
    """Weighted empirical risk minimization with objective perturbation.

    ``theta_priv = argmin over Theta of (1/n) sum w_i l(theta; d_i) + R + gamma/2 ||theta||^2 + <b, theta>/n``
    (equation weighted_convex_opt_DP).
    """

    #: Whether every record gets the same recommendation, whatever its covariates.
    constant_rule: ClassVar[bool] = False

    @abc.abstractmethod
    def instance(
        self, records: Records, weights: Array, *, gamma: float, noise: Array | None = None
    ) -> Instance:
        """Bind the program to data, first-stage weights (n,), ``gamma`` and ``noise`` b (p,)."""

    @abc.abstractmethod
    def loss_constants(self, domain: Domain, n_features: int) -> LossConstants:
        """zeta_c, trace bound and mu_R over the domain; zeta_c may be infinite over an unbounded Theta."""

    @abc.abstractmethod
    def feasible(self, domain: Domain) -> ConvexSet:
        """Theta."""

    def refuse_unbounded(self, loss: LossConstants, domain: Domain) -> None:
        """Raise CalibrationError where zeta_c is infinite, as Theorems 1 and 2 need it finite."""
        if not np.isfinite(loss.gradient_radius):
            raise CalibrationError(
                f"{self.name}: the gradient of the squared loss is unbounded over "
                f"{type(self.feasible(domain)).__name__}; choose an l1 ball, an l2 ball or a box for theta, "
                "or calibration = 'renyi'"
            )

    def constants(self, domain: Domain, n_features: int) -> LossConstants:
        """The constants, all finite. Raises CalibrationError where zeta_c is not."""
        found = self.loss_constants(domain, n_features)
        self.refuse_unbounded(found, domain)
        return found

    def unconstrained(self) -> Self:
        """The same loss over R^p. Raises CalibrationError where that is not a plain squared loss."""
        raise CalibrationError(f"{self.name} is not a squared loss, which Theorems 7 and 8 need")

    def reachable_radius(
        self, domain: Domain, n_samples: int, n_features: int, gamma: float, noise_norm: float
    ) -> float | None:
        """Public bound on the radius that a solve is sure to be certified to, in the norm of theta.

        For all records of the domain, all weights >= 0 of sum n and every noise with ``||b|| <=
        noise_norm``. None where no such bound is known.
        """
        return None

    @abc.abstractmethod
    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        """Name of every coordinate of theta."""

    @abc.abstractmethod
    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        """Estimated net treatment effect (m,) at raw covariates X (m, k), in units of the outcome."""


@dataclass(frozen=True)
class WeightedLeastSquares(SecondStage):
    """Weighted least squares in Gram form, with any Theta and R of this package.

    minimize  ||F theta||^2 + <linear, theta> + <noise, theta> + curvature/2 ||theta||^2 + n R(theta)
    subject to  theta in Theta,

    n times the objective of equation weighted_convex_opt_DP up to a constant: F'F = sum w_i x_i x_i',
    linear = -2 sum w_i z_i x_i, curvature = n gamma. A concrete program states its design (x_i, z_i).
    """

    theta_set: ConvexSet | None = None
    regularizer: ElasticNet | UserRegularizer = ElasticNet()
    cone: ClassVar[str] = "QP (SOCP over an l2 ball)"
    #: The kind of set that :meth:`default_set` returns; its size comes in as a Parameter.
    default_kind: ClassVar[ConvexSet]

    @abc.abstractmethod
    def design(self, records: Records) -> tuple[Array, Array]:
        """X (n, p) and z (n,) of the squared loss ``(z_i - <x_i, theta>)^2``."""

    @abc.abstractmethod
    def default_set(self, domain: Domain) -> ConvexSet:
        """Theta where none is chosen: a public function of the domain."""

    def feasible(self, domain: Domain) -> ConvexSet:
        return self.theta_set or self.default_set(domain)

    def resolve(self, domain: Domain) -> Self:
        return dataclasses.replace(self, theta_set=self.feasible(domain))

    def __post_init__(self) -> None:
        # exact types: the derived constants and the prox are proved for these
        if self.theta_set is not None and type(self.theta_set) not in (WholeSpace, L1Ball, L2Ball, Box):
            raise DeclarationError(
                f"theta_set = {self.theta_set!r}: must be WholeSpace, L1Ball, L2Ball or Box"
            )
        if type(self.regularizer) not in (ElasticNet, UserRegularizer):
            raise DeclarationError(
                f"regularizer = {self.regularizer!r}: must be ElasticNet or UserRegularizer"
            )

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
        factor = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T
        data: dict[str, Value] = {
            "factor": factor,
            "linear": -2 * (X.T @ (weights * z)),
            "noise": b,
            "curvature": n * gamma,
            "n_samples": float(n),
            **self.feasible(records.domain).bounds(),
        }
        if isinstance(self.regularizer, UserRegularizer):
            smooth = LeastSquaresModel(X, z, weights, n * gamma, b, Penalty(self.feasible(records.domain)))
            return Instance(self, lambda: data, None, n * gamma, smooth)
        data |= {"l1": n * self.regularizer.l1, "l2": n * self.regularizer.l2}
        ridge = n * (gamma + self.regularizer.l2)
        penalty = Penalty(self.feasible(records.domain), n * self.regularizer.l1)
        return Instance(self, lambda: data, LeastSquaresModel(X, z, weights, ridge, b, penalty), ridge)

    def reachable_radius(
        self, domain: Domain, n_samples: int, n_features: int, gamma: float, noise_norm: float
    ) -> float | None:
        """The radius where Newton's method stops (:func:`~dp2erm_cvx.program.reach.radius_at_floor`).

        None for a user's regularizer, which only a duality gap judges, for constants that state no bounds on
        x and z, and for a curvature too small for floating point. Raises DeclarationError, and ProgramError
        for a user's regularizer that no gap can be measured for.
        """
        n, ridge, reach = public_reach(n_samples, gamma, noise_norm)
        loss = self.loss_constants(domain, n_features)
        if isinstance(self.regularizer, UserRegularizer):
            self.regularizer.refuse_unchecked(loss.n_parameters)
            return None
        if loss.covariate_bound is None or loss.response_bound is None:
            return None
        theta_set, p = self.feasible(domain), loss.n_parameters
        return least_squares_reach(
            n,
            p,
            covariate_bound=loss.covariate_bound,
            response_bound=loss.response_bound,
            ridge=n * (ridge + self.regularizer.l2),
            noise_norm=reach,
            set_norm=theta_set.norm_bound(p),
            set_rounding=theta_set.rounding(p),
            is_mean=loss.is_mean,
        )

    def declare(self, leaf: Leaves) -> Declaration:
        factor = leaf("factor")
        theta = cp.Variable(factor.shape[1], name="theta")
        objective = (
            cp.sum_squares(factor @ theta)
            + leaf("linear") @ theta
            + leaf("noise") @ theta
            + leaf("curvature", nonneg=True) / 2 * cp.sum_squares(theta)
        )
        if isinstance(self.regularizer, UserRegularizer):
            objective += leaf("n_samples", nonneg=True) * self.regularizer.declared(theta)
        else:
            if self.regularizer.l1:
                objective += leaf("l1", nonneg=True) * cp.norm(theta, 1)
            if self.regularizer.l2:
                objective += leaf("l2", nonneg=True) / 2 * cp.sum_squares(theta)
        kind = self.theta_set or self.default_kind
        bounds = [leaf(name, nonneg=True) for name in kind.parameters]
        return Declaration(objective, {"theta": theta}, kind.constraints(theta, *bounds))

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        return values["theta"]
