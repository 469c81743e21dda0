"""Average treatment effects as weighted means: of either arm, or the paper's plug-in.

minimize    sum_i w_i (z_i - <x_i, theta>)^2 + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta, by default a box of the bound on z

``arm_means`` has x = (1 - a, a) and z = y, the centered outcome: the effect is theta_1 - theta_0, whatever
the arm masses are, which a ridge in the first stage may leave unequal. ``plug_in_ate`` is the regression of
``itr`` with x = 1 and z = 2 (2a - 1) y: theta is its weighted mean, which estimates the effect only where
each arm has weight n/2.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.program import Array, Box, Domain, LossConstants, Records, Universe, WeightedLeastSquares


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
        theta_set, bound = self.feasible(universe.domain), universe.domain.outcome_bound
        # gradient 2(theta_a - y) e_a: two records of one arm differ by at most 4M', of two arms by sqrt2
        # * 2(M' + B)
        largest = theta_set.bound if isinstance(theta_set, Box) else theta_set.norm_bound(2)
        radius = max(2 * bound, math.sqrt(2) * (bound + largest))
        return _constants(self, universe, radius, bound, largest)

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        return ("mean_control", "mean_treated")

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        return np.full(len(np.atleast_2d(np.asarray(X))), theta[1] - theta[0])


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
        largest, bound = self.feasible(universe.domain).norm_bound(1), universe.domain.outcome_bound
        # gradient 2(theta - z): theta cancels in differences and |z| <= 2M'
        return _constants(self, universe, 4 * bound, 2 * bound, largest)

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        return ("effect",)

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        return np.full(len(np.atleast_2d(np.asarray(X))), theta[0])


def _constants(
    stage: WeightedLeastSquares, universe: Universe, radius: float, response: float, largest: float
) -> LossConstants:
    """Constants of means, from the radius of gradients and bounds on the response and a coordinate."""
    p = len(stage.parameter_names((), universe.domain))
    return LossConstants(
        n_parameters=p,
        gradient_radius=radius,
        hessian_trace=2.0,
        strong_convexity=stage.regularizer.strong_convexity,
        theta_bound=stage.feasible(universe.domain).norm_bound(p) if math.isfinite(largest) else None,
        outcome_bound=universe.domain.outcome_bound,
        gradient_bound=2 * (largest + response),
        covariate_bound=1.0,
        response_bound=response,
        is_mean=p == 1,
        is_margin=True,
    )
