"""Second stages: perturbed weighted empirical risk minimization over theta."""

from __future__ import annotations

import abc
import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import cvxpy as cp
from numpy.typing import ArrayLike

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.regularizer import ElasticNet, UserRegularizer
from dp2erm_cvx.model.sets import Box, ConvexSet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.program.declaration import Leaves, Value
from dp2erm_cvx.program.stage import Instance, Program
from dp2erm_cvx.universe import Universe


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
    def loss_constants(self, universe: Universe) -> LossConstants:
        """zeta_c, trace bound and mu_R over the domain; zeta_c may be infinite over an unbounded Theta."""

    @abc.abstractmethod
    def feasible(self, domain: Domain) -> ConvexSet:
        """Theta."""

    def constants(self, universe: Universe) -> LossConstants:
        """The constants, all finite. Raises CalibrationError where zeta_c is not."""
        found = self.loss_constants(universe)
        found.refuse_unbounded(self.name, type(self.feasible(universe.domain)).__name__)
        return found

    def unconstrained(self) -> Self:
        """The same loss over R^p. Raises CalibrationError where that is not a plain squared loss."""
        raise CalibrationError(f"{self.name} is not a squared loss, which Theorems 7 and 8 need")

    def certified_radius(self, universe: Universe, gamma: float, noise_bound: float) -> float | None:
        """Public bound on the radius that a solve is sure to be certified to, in the norm of theta.

        For all records of the domain, all weights >= 0 of sum n and every noise with ``||b|| <=
        noise_bound``. None where no such bound is known.
        """
        return None

    @abc.abstractmethod
    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        """Name of every coordinate of theta."""

    @abc.abstractmethod
    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        """Estimated net treatment effect (m,) at raw covariates X (m, k), in units of the outcome."""


@dataclass(frozen=True)
class PenalizedSecondStage(SecondStage):
    """A second stage over a set with a regularizer; a concrete loss comes on top.

    Parameters
    ----------
    theta_set
        Theta, the public set of the parameter; None leaves it to the program and the domain.
    regularizer
        R, added to the loss: an elastic net, or one of your own.
    """

    theta_set: ConvexSet | None = None
    regularizer: ElasticNet | UserRegularizer = ElasticNet()
    #: The kind of set that :meth:`default_set` returns; its size comes in as a Parameter.
    default_kind: ClassVar[ConvexSet]

    @abstractmethod
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

    def penalty_data(self, domain: Domain, n: int, gamma: float, noise: Array) -> dict[str, Value]:
        """Leaves of :meth:`penalties`: noise b (p,), n gamma, and what Theta and R have."""
        data: dict[str, Value] = {
            "noise": noise,
            "curvature": n * gamma,
            "n_samples": float(n),
            **self.feasible(domain).bounds(),
        }
        if isinstance(self.regularizer, UserRegularizer):
            return data
        return data | {"l1": n * self.regularizer.l1, "l2": n * self.regularizer.l2}

    def penalties(self, leaf: Leaves, theta: cp.Variable) -> tuple[Any, dict[str, Any]]:
        """``<noise, theta> + curvature/2 ||theta||^2 + n R(theta)``, and Theta as constraints."""
        objective = leaf("noise") @ theta + leaf("curvature", nonneg=True) / 2 * cp.sum_squares(theta)
        if isinstance(self.regularizer, UserRegularizer):
            objective += leaf("n_samples", nonneg=True) * self.regularizer.declared(theta)
        else:
            if self.regularizer.l1:
                objective += leaf("l1", nonneg=True) * cp.norm(theta, 1)
            if self.regularizer.l2:
                objective += leaf("l2", nonneg=True) / 2 * cp.sum_squares(theta)
        kind = self.theta_set or self.default_kind
        bounds = [leaf(name, nonneg=True) for name in kind.parameters]
        return objective, kind.constraints(theta, *bounds)

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        return values["theta"]
