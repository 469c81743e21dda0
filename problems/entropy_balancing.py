"""Entropy balancing weights from the regularized dual.

minimize    n ( log mean_i exp(<b_i, lam>) - <t, lam> + ridge/2 ||lam||^2 )
subject to  ||lam||_2 <= radius

then w_i = n exp(<b_i, lam>) / sum_j exp(<b_j, lam>). With b_i = e_{a_i} (x) g(x_i), g = (constant,
balance(x)), and t = (gbar, gbar)/2 (equal arm mass) or (n_0 gbar, n_1 gbar)/n (proportional): equation
entropy_dual of the paper with its sign reversed, the 2-norm ball of its stability theorem, and a scaling
that does not depend on the data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import cvxpy as cp

from dp2erm_cvx import stability
from dp2erm_cvx.program import (
    Array,
    Declaration,
    Domain,
    Instance,
    Leaves,
    Records,
    RidgedEntropyFirstStage,
    StabilityBound,
    Value,
)


@dataclass(frozen=True)
class EntropyBalancing(RidgedEntropyFirstStage):
    """``ridge`` relaxes exact balance (default: the squared norm bound of g), ``radius`` bounds the dual."""

    name = "entropy_balancing"
    formula = "lam = argmin log mean exp(b_i'lam) - t'lam + mu/2 |lam|^2, |lam| <= R;  w_i ~ exp(b_i'lam)"
    cone = "exponential, second-order"
    citation = "Hainmueller (2012); Lee & Chen (2026), Theorem entropy_weight_stability"
    theorem = "Theorem 4"

    def data(self, records: Records) -> dict[str, Value]:
        B, target = self.moments(records)
        data: dict[str, Value] = {
            "B": B,
            "target": target,
            "curvature": records.n_samples * self.mu,
        }
        return data if math.isinf(self.radius) else data | {"radius": self.radius}

    def declare(self, leaf: Leaves) -> Declaration:
        B = leaf("B")
        n, dimension = B.shape
        lam = cp.Variable(dimension, name="dual")
        log_mean = cp.log_sum_exp(B @ lam) - math.log(n)
        ridge = leaf("curvature", nonneg=True) / 2 * cp.sum_squares(lam)
        objective = n * (log_mean - leaf("target") @ lam) + ridge
        ball = {} if math.isinf(self.radius) else {"ball": cp.norm(lam, 2) <= leaf("radius", nonneg=True)}
        return Declaration(objective, {"dual": lam}, ball)

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        return values["dual"]

    def bound(self, n_samples: int, domain: Domain) -> StabilityBound:
        if self.scaling == "paper":
            return stability.entropy_balancing_paper_scaling(n_samples, **self.paper_arguments(domain))
        return stability.entropy_balancing(n_samples, **self.bound_arguments(domain))

    def paper_bound(self, n_samples: int, domain: Domain) -> StabilityBound:
        return stability.paper_entropy_balancing(n_samples, **self.paper_arguments(domain))
