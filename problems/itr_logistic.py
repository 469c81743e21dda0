"""Individualized treatment rule by outcome-weighted logistic loss.

minimize    sum_i w_i |y_i| log(1 + exp(-<z_i, theta>)) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = sign(y_i) (2 a_i - 1) x_i, y the centered net outcome: a convex surrogate of the outcome lost by
recommending against a treatment that did well (or for one that did badly). <x, theta> is a score, not an
effect: its sign is the recommendation. The gradient is bounded whatever Theta is.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.program import (
    LOGISTIC,
    ConvexSet,
    Domain,
    L2Ball,
    LinearStage,
    LossConstants,
    MarginRows,
    Records,
    RowBounds,
    Universe,
    WeightedMarginLoss,
    saturation_of,
)


@dataclass(frozen=True)
class LogisticRule(LinearStage, WeightedMarginLoss):
    """Theta defaults to the l2 ball of radius 4/M: no score exceeds 4, a probability of 0.98."""

    name = "itr_logistic"
    formula = (
        "theta = argmin sum w_i |y_i| log(1+exp(-z_i'theta)) + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    )
    cone = "exponential (and second-order over an l2 ball)"
    citation = "Zhao et al. (2012); Chen et al. (2017)"
    theorem = "Theorems 1 and 2: zeta_c = M M' max cos(t) / (1 + exp(-M |theta| sin(t))), trace M' M^2 / 4"
    defaults = MappingProxyType({**LinearStage.defaults, "theta_set": "l2 ball of radius 4/M"})
    loss = LOGISTIC

    def default_set(self, domain: Domain) -> ConvexSet:
        return L2Ball(4.0 / domain.covariate_bound)

    def rows(self, records: Records) -> MarginRows:
        side = np.where(records.y < 0, -1.0, 1.0) * (2 * records.a - 1)
        X = self.covariates(records.domain, records.X)
        return MarginRows(side[:, None] * X, np.zeros(len(X)), np.abs(records.y))

    def row_bounds(self, universe: Universe) -> RowBounds:
        domain = universe.domain
        return RowBounds(self.size(universe)[1], 0.0, domain.outcome_bound)

    def loss_constants(self, universe: Universe) -> LossConstants:
        domain = universe.domain
        p, M, size = self.size(universe)
        y = domain.outcome_bound
        saturation = saturation_of(self.loss, M, factor=y, ball=M * size)
        # gradients are -|y| sigma(-<z, theta>) z: those of a logistic loss, 0 among them, times numbers in
        # [0, M']; a distance is convex in these numbers, so its largest value is at their ends
        return LossConstants(
            n_parameters=p,
            gradient_radius=0.5 * y * M * stability.gradient_diameter(M * size),
            hessian_trace=0.25 * y * M**2,
            strong_convexity=self.regularizer.strong_convexity,
            theta_bound=size if np.isfinite(size) else None,
            # the loss at theta = 0 is at most M' log 2, so that gamma/2 ||theta||^2 is
            outcome_bound=math.sqrt(y * math.log(2.0)),
            gradient_bound=y * M,
            saturation=saturation,
            is_margin=True,
            box=self.box(universe, y * self.loss.largest_slope(M * size)),
        )
