"""Inverse propensity weights from a regularized logistic regression.

minimize    sum_i log(1 + exp(-<z_i, lam>)) + n ridge/2 ||lam||^2,   z_i = (2 a_i - 1) x_i
subject to  ||lam||_2 <= radius

then w_i = n f_i / sum_j f_j with f_i = min(1 + exp(-<z_i, lam>), trim): equations IPW_beta_logistic_loss
(n times) and IPW_weight_def of the paper. The public trim caps the unnormalized weight.
"""

import math
from dataclasses import dataclass, replace
from types import MappingProxyType

from dp2erm_cvx import stability
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.program import (
    LogWeight,
    SeparableFirstStage,
    StabilityBound,
    Universe,
    public_number,
    trimmed,
)


@dataclass(frozen=True)
class IPWLogistic(SeparableFirstStage):
    """For a propensity that is better understood than the outcome: no overlap assumption.

    Parameters
    ----------
    ridge
        Of the propensity coefficient; default M^2/10, so that the stability bound does not depend on how
        covariates are scaled.
    radius
        Bound on ``||lam||``; ``inf`` for none.
    trim
        Above 1: public cap F on 1/propensity.
    """

    trim: float = math.inf

    name = "ipw_logistic"
    formula = (
        "lam = argmin sum log(1+exp(-z_i'lam)) + n mu/2 |lam|^2, |lam| <= R;  w_i ~ min(1+exp(-z_i'lam), F)"
    )
    defaults = MappingProxyType({"ridge": "M^2/10"})
    citation = "Rosenbaum & Rubin (1983); Lee & Chen (2026), Prop. IPW_estimated_stability"
    theorem = "Theorem 3-IPW"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "trim", public_number("trim", self.trim, above=1, infinite=True))

    @property
    def log_weight(self) -> LogWeight:
        return trimmed(self.trim)

    def bound(self, universe: Universe) -> StabilityBound:
        M = universe.domain.covariate_bound
        own = stability.ipw_logistic(universe.n_samples, M, self.mu, radius=self.radius, trim=self.trim)
        derived = super().bound(universe)
        w_max = min(own.w_max, derived.w_max)
        return replace(min(own, derived, key=lambda bound: bound.V), w_max=w_max)

    def printed_bound(self, universe: Universe) -> StabilityBound:
        if math.isfinite(self.trim):
            raise CalibrationError("the paper's bound for a logistic propensity is for untrimmed weights")
        M = universe.domain.covariate_bound
        return stability.paper_ipw_logistic(universe.n_samples, M, self.mu, self.radius)
