"""Second stages with another convex loss than the squared one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.images import ImageRecords
from dp2erm_cvx.model.certified_radius import checked_perturbation, radius_at_floor
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import ElasticNet
from dp2erm_cvx.model.sums import compensated_sum, rounded_sum
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.losses.certified_margins import MarginSum
from dp2erm_cvx.program.losses.image_rows import rows_of
from dp2erm_cvx.program.losses.linear_rule import LinearStage
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.program.losses.margin_rows import MarginRows
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.universe import Universe

#: Largest ratio of curvatures for which a solve of a loss whose Hessian jumps is sure of its radius: Newton's
#: method may stall on such a loss, and beyond 1e7 projected gradient has been seen to miss it as well.
STEEPEST = 1e6


@dataclass(frozen=True)
class WeightedMarginLoss(LinearStage):
    """Weighted convex losses of a margin.

    minimize    sum_i w_i (c_i phi(s_i) + t_i s_i) + <noise, theta> + curvature/2 ||theta||^2 + n R(theta)
    subject to  s_i = <z_i, theta> - o_i,  theta in Theta,

    n times the objective of equation weighted_convex_opt_DP. The margins are variables of their own because a
    product of two Parameters is not DPP. A user's regularizer is refused: no gap certificate covers it here.
    """

    by_blocks: ClassVar[bool] = True

    cone: ClassVar[str] = "exponential or QP (SOCP over an l2 ball)"
    # they define the margins; Theta is fixed
    moving: ClassVar[frozenset[str]] = frozenset({"Z", "offset"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.regularizer) is not ElasticNet:
            raise DeclarationError(f"regularizer: {self.name} takes an ElasticNet only")

    def rows(self, records: Records) -> MarginRows:
        """z, o and c of every record."""
        if isinstance(records, ImageRecords) and self.takes_all:
            return rows_of(records, offset=self.response(records))
        return MarginRows(self.covariates(records.domain, records.X), self.response(records))

    def tilts(self, records: Records) -> Array | None:
        """Numbers t (n,), None for 0: their terms are linear, so that solvers see them beside the noise."""
        return None

    def instance(
        self, records: Records, weights: Array, *, gamma: float, noise: Array | None = None
    ) -> Instance:
        return self.resolve(records.domain)._bind(records, weights, gamma, noise)

    def _bind(self, records: Records, weights: Array, gamma: float, noise: Array | None) -> Instance:
        assert isinstance(self.regularizer, ElasticNet)
        domain = records.domain
        ridge, theta_set = records.n_samples * (gamma + self.regularizer.l2), self.feasible(domain)
        linear = self._linear(records, weights, noise)
        model = MarginModel(
            records.rows(self.rows),
            self.loss,
            ridge,
            Penalty(theta_set, records.n_samples * self.regularizer.l1),
            multipliers=weights,
            linear=linear,
        )

        def data() -> dict[str, Value]:
            n, p = model.Z.shape
            b = np.zeros(p) if linear is None else linear
            leaves = {"Z": model.Z, "offset": model.whole.offsets, "multipliers": model.multipliers}
            return {**leaves, **self.penalty_data(domain, n, gamma, b)}

        return Instance(self, data, model, ridge)

    def _linear(self, records: Records, weights: Array, noise: Array | None) -> Array | None:
        """Noise, and the sum of ``w_i t_i z_i``."""
        pulls = records.rows(self._pulls).map(_weighted_sum, weights)
        sums = [part for part in pulls if part is not None]
        if not sums:
            return noise
        return rounded_sum(sums if noise is None else [*sums, (noise, np.zeros_like(noise))])

    def _pulls(self, records: Records) -> Array | None:
        tilts = self.tilts(records)
        return None if tilts is None else tilts[:, None] * self.rows(records).Z

    def certified_radius(self, universe: Universe, gamma: float, noise_bound: float) -> float | None:
        """The radius where Newton's method stops (``radius_at_floor``); weights may add up to less than n.

        None over an unbounded Theta, where a loss with flat tails may take more steps than a solve is given,
        for a loss whose Hessian jumps where gamma is below about a millionth of its curvature, and for a
        curvature too small for floating point. Raises DeclarationError.
        """
        domain = universe.domain
        assert isinstance(self.regularizer, ElasticNet)
        n = universe.n_samples
        extra, noise = checked_perturbation(gamma, noise_bound)
        p = self.loss_constants(universe).n_parameters
        bounds, theta_set = self.row_bounds(universe), self.feasible(domain)
        loss = self.resolve(domain).loss
        if not math.isfinite(theta_set.norm_bound(p)):
            return None
        terms = MarginSum(
            n,
            p,
            loss,
            bounds,
            theta_set,
            ridge=n * (extra + self.regularizer.l2),
            linear=noise,
            weighted=True,
        )
        sizes = terms.sizes()
        if sizes is None:
            return None
        if math.isinf(loss.concordance) and sizes.smoothness > STEEPEST * sizes.strong_convexity:
            return None
        return radius_at_floor(sizes)

    def declare(self, leaf: Leaves) -> Declaration:
        Z = leaf("Z")
        theta, s = cp.Variable(Z.shape[1], name="theta"), cp.Variable(Z.shape[0], name="margins")
        penalties, constraints = self.penalties(leaf, theta)
        phi = self.loss.epigraph(s)
        objective = leaf("multipliers", nonneg=True) @ phi.objective + penalties
        margins = {"margins": s == Z @ theta - leaf("offset")}
        return Declaration(
            objective,
            {"theta": theta, "margins": s} | phi.variables,
            margins | phi.constraints | constraints,
            phi.auxiliary,
        )


def _weighted_sum(rows: Array | None, weights: Array) -> tuple[Array, Array] | None:
    return None if rows is None else compensated_sum(weights[:, None] * rows)
