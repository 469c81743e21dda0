"""Linear regression of the outcome by a loss without curvature at full slope, over all of R^p.

minimize    sum_i w_i phi(y_i - <x_i, theta>) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with y the centered outcome and phi(s) = S |s| + S^2 (exp(-|s|/S) - 1): s^2/2 near 0, S |s| far out. No record
pulls with more than S, and one that does adds no curvature: under pure noise the whole epsilon buys noise
(Theorem 15), and neither Theta nor the bound on the outcome enters it.
"""

import dataclasses
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import numpy as np

from dp2erm_cvx.program import (
    ConvexSet,
    Domain,
    LinearStage,
    LossConstants,
    MarginRows,
    Records,
    RowBounds,
    Universe,
    WeightedMarginLoss,
    WholeSpace,
    public_size,
    resolved,
)
from dp2erm_cvx.program.losses.linear_rule import squared_gradient_radius
from dp2erm_cvx.program.losses.saturating_loss import ExtremalLoss


@dataclass(frozen=True)
class SaturatingRegression(LinearStage, WeightedMarginLoss):
    """Linear prediction, between that of the mean (large slope) and that of the median (small slope).

    Parameters
    ----------
    slope
        S, in units of the outcome; 1 to 1.5 times the usual size of a residual serves well. Default: M'/2,
        too large where the bound on the outcome is generous.
    """

    slope: float | None = None

    name = "saturating_regression"
    formula = "theta = argmin sum w_i phi(y_i - x_i'theta) + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    cone = "exponential (and second-order over an l2 ball)"
    citation = "Huber & Ronchetti (2009), bounded influence"
    theorem = "Theorem 15: slope S, curvature 1 - |phi'|/S; Theorems 1 and 2: zeta_c <= M S, trace M^2"
    defaults = MappingProxyType({**LinearStage.defaults, "theta_set": "R^p", "slope": "M'/2"})
    default_kind = WholeSpace()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slope is not None:
            object.__setattr__(self, "slope", public_size("slope", self.slope))

    def default_set(self, domain: Domain) -> ConvexSet:
        return WholeSpace()

    def resolve(self, domain: Domain) -> Self:
        S = domain.outcome_bound / 2 if self.slope is None else self.slope
        return dataclasses.replace(super().resolve(domain), slope=S)

    @property
    def loss(self) -> ExtremalLoss:
        return ExtremalLoss(resolved("slope", self.slope))

    def rows(self, records: Records) -> MarginRows:
        X = self.covariates(records.domain, records.X)
        return MarginRows(X, records.y, np.ones(len(X)))

    def row_bounds(self, universe: Universe) -> RowBounds:
        return RowBounds(self.size(universe)[1], universe.domain.outcome_bound, 1.0)

    def loss_constants(self, universe: Universe) -> LossConstants:
        y = universe.domain.outcome_bound
        p, M, size = self.size(universe)
        loss = self.resolve(universe.domain).loss
        # gradients are phi'(<x, theta> - y) x, and |phi'(s)| <= |s|: each is one of half the squared loss at
        # a response between y and <x, theta>
        steepest = M * loss.largest_slope(y + M * size)
        squared = squared_gradient_radius(2 * M**2 * size, 2 * M * max(y, M * size)) / 2
        return LossConstants(
            n_parameters=p,
            gradient_radius=min(squared, steepest),
            hessian_trace=M**2,
            strong_convexity=self.regularizer.strong_convexity,
            theta_bound=size if math.isfinite(size) else None,
            # phi(y) <= S |y| at theta = 0 bounds gamma/2 ||theta||^2
            outcome_bound=math.sqrt(loss.full_slope * y),
            gradient_bound=steepest,
            saturation=loss.saturation(M),
        )
