"""Individualized treatment rule by outcome-weighted logistic loss.

minimize    sum_i w_i |y_i| log(1 + exp(-<z_i, theta>)) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = sign(y_i) (2 a_i - 1) x_i, y the centered net outcome: a convex surrogate of the outcome lost by
recommending against a treatment that did well (or for one that did badly). <x, theta> is a score, not an
effect: its sign is the recommendation. The gradient is bounded whatever Theta is.
"""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dp2erm_cvx.program import (
    ConvexSet,
    Domain,
    L2Ball,
    MarginRows,
    Records,
    RowBounds,
    Universe,
    WeightedMarginLoss,
)
from dp2erm_cvx.program.curves import LOGISTIC


@dataclass(frozen=True)
class LogisticRule(WeightedMarginLoss):
    """Theta defaults to the l2 ball of radius 4/M: no score exceeds 4, a probability of 0.98."""

    name = "itr_logistic"
    formula = (
        "theta = argmin sum w_i |y_i| log(1+exp(-z_i'theta)) + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    )
    cone = "exponential (and second-order over an l2 ball)"
    citation = "Zhao et al. (2012); Chen et al. (2017)"
    theorem = "Theorems 1 and 2: zeta_c = M M' max cos(t) / (1 + exp(-M |theta| sin(t))), trace M' M^2 / 4"
    defaults = MappingProxyType({**WeightedMarginLoss.defaults, "theta_set": "l2 ball of radius 4/M"})
    loss = LOGISTIC

    def default_set(self, domain: Domain) -> ConvexSet:
        return L2Ball(4.0 / domain.covariate_bound)

    def rows(self, records: Records) -> MarginRows:
        side = np.where(records.y < 0, -1.0, 1.0) * (2 * records.a - 1)
        X = self.covariates(records.domain, records.X)
        return MarginRows(side[:, None] * X, np.zeros(len(X)), np.abs(records.y))

    def row_bounds(self, universe: Universe) -> RowBounds:
        domain = universe.domain
        return RowBounds(self.row_norm(domain), factor=(0.0, domain.outcome_bound))
