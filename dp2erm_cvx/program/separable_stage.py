"""First stages whose coefficient minimizes a sum of margin losses: what Theorem 3 is about."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Self

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.program.certified_weights import margin_weights_error
from dp2erm_cvx.program.composite import Penalty
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.first_stage import FirstStage, public_radius, public_ridge, resolved
from dp2erm_cvx.program.kind import Kind
from dp2erm_cvx.program.margin_loss import LogisticLoss, MarginLoss
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_weight import MarginWeight
from dp2erm_cvx.program.neighbors import ReplacedRows, RowNeighbors
from dp2erm_cvx.program.sets import L2Ball, WholeSpace
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class SeparableConstants:
    """What Theorem 3 asks for, over all records of the domain and all ``||lam|| <= radius``.

    Attributes
    ----------
    gradient_diameter : D_psi, diameter of the gradients of the loss of one record
    log_weight_diameter : D_h, diameter of the gradients of its log weight (with the zero vector if clipped)
    log_weight_range : H, length of the interval that its log weight lies in
    radius : r, bound on ``||lam||`` on every dataset
    """

    gradient_diameter: float
    log_weight_diameter: float
    log_weight_range: float
    radius: float


@dataclass(frozen=True)
class SeparableFirstStage(FirstStage):
    """``w_i ~ f(<u_i, lam>)``, lam the minimizer of a ridged sum of margin losses; u_i = z_i as a rule.

    minimize    sum_i phi(<z_i, lam>) + <linear, lam> + n ridge/2 ||lam||^2
    subject to  ||lam||_2 <= radius

    A concrete program names ``loss`` phi and ``log_weight`` f, and states its constants; ``rows`` are
    ``z_i = (2 a_i - 1) x_i`` unless it says otherwise, and so are the ``weight_rows`` u_i.

    Parameters
    ----------
    ridge
        Keeps lam stable; default: a tenth of the squared norm bound of the rows, so that the stability bound
        does not depend on how covariates are scaled.
    radius
        Bound on ``||lam||``; ``inf`` for none.
    """

    defaults = MappingProxyType({"ridge": "0.1 times the squared norm bound of the rows"})
    kind: ClassVar[Kind] = Kind.EXPONENTIAL
    cone: ClassVar[str] = "exponential, second-order"
    #: phi and f.
    loss: ClassVar[MarginLoss] = LogisticLoss()
    log_weight: ClassVar[MarginWeight]

    ridge: float | None = None
    radius: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", public_ridge(self.ridge))
        object.__setattr__(self, "radius", public_radius(self.radius))

    @abc.abstractmethod
    def constants(self, domain: Domain) -> SeparableConstants:
        """Constants of a resolved program, from public quantities alone."""

    def rows(self, records: Records) -> Array:
        """The rows z_i, (n, k), each a function of its own record."""
        signed: Array = (2 * records.a - 1)[:, None] * records.X
        return signed

    def row_bound(self, domain: Domain) -> float:
        """Bound on ``||z_i||`` over the domain."""
        return domain.covariate_bound

    def weight_rows(self, records: Records) -> Array | None:
        """The rows u_i (n, k) that weights are read at; None for those of the loss.

        A weight that depends on the arm has other rows in either: 0 for an arm whose records all count alike.
        """
        return None

    def weight_row_bound(self, domain: Domain) -> float:
        """Bound on ``||u_i||`` over the domain."""
        return self.row_bound(domain)

    def n_rows(self, universe: Universe) -> int | None:
        """k, or None where only the data tell."""
        return universe.n_columns

    def linear_terms(self, records: Records) -> Array | None:
        """Rows (n, k) whose sum over records is the linear term of the objective; None for 0."""
        return None

    def resolve(self, domain: Domain) -> Self:
        if self.ridge is not None:
            return self
        return dataclasses.replace(self, ridge=0.1 * self.row_bound(domain) ** 2)

    @property
    def mu(self) -> float:
        """The ridge. Raises ProgramError where it is still left to the domain."""
        return resolved("ridge", self.ridge)

    def ball(self, domain: Domain) -> float:
        """The radius that is solved with: one that never binds may take the place of an infinite one."""
        return self.radius

    def data(self, records: Records) -> dict[str, Value]:
        data: dict[str, Value] = {"Z": self.rows(records), "curvature": records.n_samples * self.mu}
        linear, ball = self._linear(records), self.ball(records.domain)
        if linear is not None:
            data["linear"] = linear
        return data if math.isinf(ball) else data | {"radius": ball}

    def declare(self, leaf: Leaves) -> Declaration:
        Z = leaf("Z")
        lam = cp.Variable(Z.shape[1], name="coefficient")
        objective = cp.sum(self.loss.declared(Z @ lam))
        objective += leaf("curvature", nonneg=True) / 2 * cp.sum_squares(lam)
        if leaf.has("linear"):
            objective += leaf("linear") @ lam
        ball = {"ball": cp.norm(lam, 2) <= leaf("radius", nonneg=True)} if leaf.has("radius") else {}
        return Declaration(objective, {"coefficient": lam}, ball)

    def model(self, records: Records) -> MarginModel:
        ball = self.ball(records.domain)
        penalty = Penalty(WholeSpace() if math.isinf(ball) else L2Ball(ball))
        return MarginModel(
            self.rows(records),
            self.loss,
            records.n_samples * self.mu,
            penalty,
            norm_bound=ball,
            linear=self._linear(records),
            weight=self.log_weight,
            weight_rows=self.weight_rows(records),
        )

    def row_neighbors(self, records: Records) -> RowNeighbors | None:
        if self.weight_rows(records) is not None:
            return None  # a fast path moves one row of a record, not two
        terms, total = self.linear_terms(records), self._linear(records)

        def replaced(index: NDArray[np.int64], new: Records) -> ReplacedRows:
            rows, own = self.rows(new), self.linear_terms(new)
            if terms is None or total is None or own is None:
                return ReplacedRows(rows)
            return ReplacedRows(rows, total - terms[index] + own)

        return replaced

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        # a solver meets the ball only approximately, or not at all where it fails: outside it an exponential
        # loss may overflow, and a point that is judged by nan cannot be polished either
        model = instance.model
        assert isinstance(model, MarginModel)
        return model.penalty.set.project(values["coefficient"])

    def certified_error(self, universe: Universe) -> float | None:
        domain = universe.domain
        k, z, ball = self.n_rows(universe), self.row_bound(domain), self.ball(domain)
        if k is None:
            return None
        found = margin_weights_error(
            universe.n_samples,
            k,
            row_bound=z,
            slope=self.loss.largest_slope(z * ball),
            curvature=self.loss.largest_curvature(z * ball),
            linear=self.linear_bound(domain),
            ridge=self.mu,
            radius=ball,
            lipschitz=self.log_weight.lipschitz,
            weight_bound=self.weight_row_bound(domain),
        )
        return math.inf if found is None else found

    def linear_bound(self, domain: Domain) -> float:
        """Bound on the norm of one row of :meth:`linear_terms`."""
        return 0.0

    def _linear(self, records: Records) -> Array | None:
        terms = self.linear_terms(records)
        return None if terms is None else np.array([math.fsum(column) for column in terms.T])
