"""Second stages over any Theta of this package, with any regularizer of it."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import cvxpy as cp

from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.sets import Box, ConvexSet, ElasticNet, L1Ball, L2Ball, UserRegularizer, WholeSpace
from dp2erm_cvx.program.declaration import Leaves, Value
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.stage import Instance


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
