"""First stages whose weights are read from a coefficient that minimizes a sum of margin losses."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import ConvexSet, L2Ball, WholeSpace
from dp2erm_cvx.model.sums import compensated_sum, rounded_sum
from dp2erm_cvx.program.curves import LOGISTIC, Curve
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.first_stage import FirstStage, public_radius, public_ridge, resolved
from dp2erm_cvx.program.log_weights import LogWeight
from dp2erm_cvx.program.losses.certified_margins import MarginSum, RowBounds
from dp2erm_cvx.program.losses.image_rows import rows_of
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.program.losses.margin_rows import MarginRows
from dp2erm_cvx.program.stage import Instance, model_of
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class MarginFirstStage(FirstStage):
    """``w_i ~ f(<u_i, lam>)``, lam the minimizer of a ridged sum of margin losses; u_i = z_i as a rule.

    minimize    sum_i phi(<z_i, lam>) + <linear, lam> + n ridge/2 ||lam||^2
    subject to  ||lam||_2 <= radius

    A concrete program names ``loss`` phi and ``log_weight`` f; ``rows`` are ``z_i = (2 a_i - 1) x_i`` unless
    it says otherwise, and so are the ``weight_rows`` u_i.
    """

    by_blocks: ClassVar[bool] = True

    cone: ClassVar[str] = "exponential, second-order"
    #: The default ridge over the squared norm bound of the rows.
    default_ridge: ClassVar[float] = 0.1

    ridge: float | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", public_ridge(self.ridge))
        object.__setattr__(self, "radius", None if self.radius is None else public_radius(self.radius))

    @property
    def loss(self) -> Curve:
        """Phi."""
        return LOGISTIC

    @property
    @abc.abstractmethod
    def log_weight(self) -> LogWeight:
        """Log f; a class attribute where no setting enters it."""

    def rows(self, records: Records) -> Array:
        """The rows z_i, (n, k), each a function of its own record."""
        signed: Array = (2 * records.a - 1)[:, None] * records.X
        return signed

    def row_bound(self, domain: Domain) -> float:
        """Bound on ``||z_i||`` over the domain."""
        return domain.covariate_bound

    def row_widths(self, universe: Universe) -> tuple[float, ...] | None:
        """Half widths (k,) of a box that holds the rows; None where none is known."""
        return universe.widths if type(self).rows is MarginFirstStage.rows else None

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

    def linear_bound(self, domain: Domain) -> float:
        """Bound on the norm of one row of :meth:`linear_terms`."""
        return 0.0

    def resolve(self, domain: Domain) -> Self:
        if self.ridge is not None:
            return self
        return dataclasses.replace(self, ridge=self.default_ridge * self.row_bound(domain) ** 2)

    @property
    def mu(self) -> float:
        """The ridge. Raises ProgramError where it is still left to the domain."""
        return resolved("ridge", self.ridge)

    def ball(self, domain: Domain) -> float:
        """The radius that is solved with: one that never binds may take the place of an infinite one."""
        return resolved("radius", self.radius)

    def declare(self, leaf: Leaves) -> Declaration:
        Z = leaf("Z")
        lam = cp.Variable(Z.shape[1], name="coefficient")
        variables, constraints = {"coefficient": lam}, {}
        if leaf.has("counts"):  # margins of their own, as leaves are not multiplied by each other
            s = cp.Variable(Z.shape[0], name="margins")
            phi = self.loss.epigraph(s)
            objective = leaf("counts", nonneg=True) @ phi.objective
            variables, constraints = {**variables, "margins": s}, {"margins": s == Z @ lam}
        else:
            phi = self.loss.epigraph(Z @ lam)
            objective = cp.sum(phi.objective)
        objective += leaf("curvature", nonneg=True) / 2 * cp.sum_squares(lam)
        if leaf.has("linear"):
            objective += leaf("linear") @ lam
        ball = {"ball": cp.norm(lam, 2) <= leaf("radius", nonneg=True)} if leaf.has("radius") else {}
        return Declaration(
            objective, variables | phi.variables, constraints | ball | phi.constraints, phi.auxiliary
        )

    def margin_data(
        self, records: Records, gamma: float = 0.0, noise: Array | None = None, *, counted: bool = False
    ) -> dict[str, Value]:
        """Leaves of the declaration, with ``n gamma/2 ||lam||^2 + <noise, lam>`` added to the objective.

        Where losses are ``counted``, sampling weights multiply them.
        """
        data: dict[str, Value] = {"Z": self.rows(records), "curvature": records.n_samples * (self.mu + gamma)}
        linear, ball = self.linear(records, noise), self.ball(records.domain)
        if linear is not None:
            data["linear"] = linear
        if counted and records.sampling is not None:
            data["counts"] = records.counts
        return data if math.isinf(ball) else data | {"radius": ball}

    def margin_model(
        self, records: Records, gamma: float = 0.0, noise: Array | None = None, *, counted: bool = False
    ) -> MarginModel:
        """The exact form of the same."""
        return MarginModel(
            records.rows(partial(self._margin_rows, counted=counted)),
            self.loss,
            records.n_samples * (self.mu + gamma),
            Penalty(self._feasible(records.domain)),
            linear=self.linear(records, noise),
            weight=self.log_weight,
        )

    def _margin_rows(self, records: Records, *, counted: bool) -> MarginRows:
        factor = records.counts if counted and records.sampling is not None else None
        if (
            type(self).rows is MarginFirstStage.rows
            and type(self).weight_rows is MarginFirstStage.weight_rows
        ):
            return rows_of(records, sign=2.0 * records.a - 1.0, factor=factor)
        return MarginRows(self.rows(records), factor=factor, weight_rows=self.weight_rows(records))

    def margin_sum(
        self, universe: Universe, gamma: float = 0.0, noise_bound: float = 0.0
    ) -> MarginSum | None:
        """Public bounds of that form, for ``||b|| <= noise_bound``; None where k is not public."""
        k, n, domain = self.n_rows(universe), universe.n_samples, universe.domain
        if k is None:
            return None
        return MarginSum(
            n,
            k,
            self.loss,
            RowBounds(self.row_bound(domain)),
            self._feasible(domain),
            ridge=n * (self.mu + gamma),
            linear=n * self.linear_bound(domain) + noise_bound,
            weighted=domain.weighted,
        )

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        # a solver meets the ball only approximately, or not at all where it fails: outside it an exponential
        # loss may overflow, and a point that is judged by nan cannot be polished either
        return model_of(instance, MarginModel).penalty.set.project(values["coefficient"])

    def linear(self, records: Records, noise: Array | None = None) -> Array | None:
        """The sum of all linear terms, (k,), rounded once."""
        sums = [part for part in records.rows(self._linear_sum).each() if part is not None]
        if not sums:
            return noise
        return rounded_sum(sums if noise is None else [*sums, (noise, np.zeros_like(noise))])

    def _linear_sum(self, records: Records) -> tuple[Array, Array] | None:
        terms = self.linear_terms(records)
        return None if terms is None else compensated_sum(terms)

    def _feasible(self, domain: Domain) -> ConvexSet:
        ball = self.ball(domain)
        return WholeSpace() if math.isinf(ball) else L2Ball(ball)
