"""Average treatment effect as the paper's plug-in: the treatment-rule regression with x = 1.

minimize    sum_i w_i (2 (2 a_i - 1) y_i - theta)^2 + n R(theta) + n gamma/2 theta^2 + b theta
subject to  theta in Theta (default: |theta| <= 2M')

Without R, Theta and noise, theta is the weighted mean of 2 (2a - 1) y. It estimates the effect only where
each arm has weight n/2; a ridge in the first stage breaks that, and ``arm_means`` does not need it.
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
class PlugInATE(WeightedLeastSquares):
    """One parameter, the weighted mean of ``2 (2a - 1) y`` with y centered at the public center."""

    constant_rule = True

    name = "plug_in_ate"
    formula = "theta = argmin sum w_i (2(2a_i-1)y_i - theta)^2 + n gamma/2 theta^2 + b theta"
    citation = "Lee & Chen (2026), plug-in specialization"
    theorem = "Theorems 1 and 2: zeta_c = 4M', trace 2"
    defaults = MappingProxyType({"theta_set": "box 2M'"})
    default_kind = Box(1.0)

    def default_set(self, domain: Domain) -> ConvexSet:
        return Box(2 * domain.outcome_bound)

    def design(self, records: Records) -> tuple[Array, Array]:
        return np.ones((records.n_samples, 1)), 2.0 * (2 * records.a - 1) * records.y

    def loss_constants(self, universe: Universe) -> LossConstants:
        domain = universe.domain
        bound = self.feasible(domain).norm_bound(1)
        return LossConstants(
            n_parameters=1,
            # gradient 2(theta - z): theta cancels in differences and |z| <= 2M'
            gradient_radius=4 * domain.outcome_bound,
            hessian_trace=2.0,
            strong_convexity=self.regularizer.strong_convexity,
            theta_bound=bound if math.isfinite(bound) else None,
            outcome_bound=domain.outcome_bound,
            gradient_bound=2 * (bound + 2 * domain.outcome_bound),
            covariate_bound=1.0,
            response_bound=2 * domain.outcome_bound,
            is_mean=True,
            is_margin=True,
        )

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        return ("effect",)

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        return np.full(len(np.atleast_2d(np.asarray(X))), theta[0])
