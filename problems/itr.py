"""Individualized treatment rule by weighted least squares.

minimize    sum_i w_i (z_i - <x_i, theta>)^2 + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = 2 (2 a_i - 1) y_i, y the centered net outcome: n times equation weighted_convex_opt_itr of the
paper with objective perturbation. The rule treats where <x, theta> > 0.
"""

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.program import (
    Array,
    LinearStage,
    LossConstants,
    Records,
    Universe,
    WeightedLeastSquares,
)
from dp2erm_cvx.program.losses.linear_rule import squared_gradient_radius


@dataclass(frozen=True)
class TreatmentRule(LinearStage, WeightedLeastSquares):
    """The linear rule over all covariates, or over a public choice of them.

    Theta defaults to the l2 ball of radius M'/M, over which no predicted effect exceeds M'.
    """

    name = "itr"
    formula = (
        "theta = argmin sum w_i (2(2a_i-1)y_i - x_i'theta)^2 + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    )
    citation = "Tian et al. (2014); Chen et al. (2017); Lee & Chen (2026), Corollary ITR"
    theorem = "Theorems 1 and 2: zeta_c = max sin(t) (2 M^2 |theta| cos(t) + 4 M M'), trace 2 M^2"

    def design(self, records: Records) -> tuple[Array, Array]:
        z = 2.0 * (2 * records.a - 1) * records.y
        return self.covariates(records.domain, records.X), z

    def loss_constants(self, universe: Universe) -> LossConstants:
        domain = universe.domain
        p, M, size = self.size(universe)
        return LossConstants(
            n_parameters=p,
            gradient_radius=squared_gradient_radius(2 * M**2 * size, 4 * M * domain.outcome_bound),
            hessian_trace=2 * M**2,
            strong_convexity=self.regularizer.strong_convexity,
            theta_bound=size if np.isfinite(size) else None,
            outcome_bound=domain.outcome_bound,
            gradient_bound=2 * M**2 * size + 4 * M * domain.outcome_bound,
            covariate_bound=M,
            response_bound=2 * domain.outcome_bound,
            is_margin=True,
            box=self.box(universe, 2 * M * size + 4 * domain.outcome_bound),
        )
