"""Weighted linear regression of the outcome, for transfer to another population.

minimize    sum_i w_i (y_i - <x_i, theta>)^2 + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with y the centered outcome. Under the weights of ``kernel_mean_matching`` it predicts in the target
population (covariate shift). What the estimator calls an effect is here
the predicted outcome less its public center.
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
class Regression(LinearStage, WeightedLeastSquares):
    """Linear prediction. Theta defaults to the l2 ball of radius M'/M: no prediction exceeds M'."""

    name = "regression"
    formula = "theta = argmin sum w_i (y_i - x_i'theta)^2 + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    citation = "Shimodaira (2000); Lee & Chen (2026), transfer learning"
    theorem = "Theorems 1 and 2: zeta_c = max sin(t) (2 M^2 |theta| cos(t) + 2 M M'), trace 2 M^2"

    def design(self, records: Records) -> tuple[Array, Array]:
        return self.covariates(records.domain, records.X), records.y

    def loss_constants(self, universe: Universe) -> LossConstants:
        domain = universe.domain
        p, M, size = self.size(universe)
        return LossConstants(
            n_parameters=p,
            gradient_radius=squared_gradient_radius(2 * M**2 * size, 2 * M * domain.outcome_bound),
            hessian_trace=2 * M**2,
            strong_convexity=self.regularizer.strong_convexity,
            theta_bound=size if np.isfinite(size) else None,
            outcome_bound=domain.outcome_bound,
            gradient_bound=2 * M**2 * size + 2 * M * domain.outcome_bound,
            covariate_bound=M,
            response_bound=domain.outcome_bound,
            is_margin=True,
            box=self.box(universe, 2 * M * size + 2 * domain.outcome_bound),
        )
