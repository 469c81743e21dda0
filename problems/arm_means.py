"""Average treatment effect as the difference of two weighted arm means.

minimize    sum_i w_i (y_i - theta_{a_i})^2 + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta (default: |theta_k| <= M')

with y the centered outcome: the second stage with x = (1 - a, a). The effect is theta_1 - theta_0, whatever
the arm masses are, which a ridge in the first stage may leave unequal.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.program import (
    Array,
    Box,
    ConvexSet,
    Domain,
    LossConstants,
    Records,
    Universe,
    WeightedLeastSquares,
)


@dataclass(frozen=True)
class ArmMeans(WeightedLeastSquares):
    """Two parameters: the weighted mean outcome without and with treatment, minus the public center."""

    constant_rule = True

    name = "arm_means"
    formula = (
        "theta = argmin sum w_i (y_i - theta_{a_i})^2 + n gamma/2 |theta|^2 + b'theta;  ATE = theta_1-theta_0"
    )
    citation = "Hajek-type weighted difference of means"
    theorem = "Theorems 1 and 2: zeta_c = max(2M', sqrt2 (M' + B)), trace 2"
    defaults = MappingProxyType({"theta_set": "box M'"})
    default_kind = Box(1.0)

    def default_set(self, domain: Domain) -> ConvexSet:
        return Box(domain.outcome_bound)

    def design(self, records: Records) -> tuple[Array, Array]:
        return np.column_stack([1.0 - records.a, records.a]).astype(np.float64), records.y

    def loss_constants(self, universe: Universe) -> LossConstants:
        domain = universe.domain
        theta_set = self.feasible(domain)
        # gradient 2(theta_a - y) e_a: two records of one arm differ by at most 4M', of two arms by sqrt2
        # * 2(M' + B)
        largest = theta_set.bound if isinstance(theta_set, Box) else theta_set.norm_bound(2)
        return LossConstants(
            n_parameters=2,
            gradient_radius=max(2 * domain.outcome_bound, math.sqrt(2) * (domain.outcome_bound + largest)),
            hessian_trace=2.0,
            strong_convexity=self.regularizer.strong_convexity,
            theta_bound=theta_set.norm_bound(2) if math.isfinite(largest) else None,
            outcome_bound=domain.outcome_bound,
            gradient_bound=2 * (largest + domain.outcome_bound),
            covariate_bound=1.0,
            response_bound=domain.outcome_bound,
            is_margin=True,
        )

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        return ("mean_control", "mean_treated")

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        return np.full(len(np.atleast_2d(np.asarray(X))), theta[1] - theta[0])
