"""Inverse propensity weights from a regularized logistic regression, and from a private one.

minimize    sum_i log(1 + exp(-<z_i, lam>)) + n ridge/2 ||lam||^2,   z_i = (2 a_i - 1) x_i
subject to  ||lam||_2 <= radius

then w_i = n f_i / sum_j f_j with f_i = min(1 + exp(-<z_i, lam>), trim): equations IPW_beta_logistic_loss
(n times) and IPW_weight_def of the paper. The public trim caps the unnormalized weight. The private variant
adds ``n gamma/2 ||lam||^2 + <b, lam>`` to the objective: given lam, each weight depends on its own record and
the normalization only, so the second stage needs no more than a bound on the largest weight.
"""

import math
from dataclasses import dataclass, replace
from types import MappingProxyType

from dp2erm_cvx import stability
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.program import (
    LogWeight,
    PrivateSeparable,
    SeparableFirstStage,
    StabilityBound,
    Universe,
    setting,
)
from dp2erm_cvx.program.log_weights import trimmed


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

    trim: float = setting(math.inf, above=1, infinite=True)

    name = "ipw_logistic"
    formula = (
        "lam = argmin sum log(1+exp(-z_i'lam)) + n mu/2 |lam|^2, |lam| <= R;  w_i ~ min(1+exp(-z_i'lam), F)"
    )
    formulas = MappingProxyType({"ridge": "M**2 / 10"})
    citation = "Rosenbaum & Rubin (1983); Lee & Chen (2026), Prop. IPW_estimated_stability"
    theorem = "Theorem 3-IPW"

    @property
    def log_weight(self) -> LogWeight:
        return trimmed(self.trim)

    def bound(self, universe: Universe) -> StabilityBound:
        M = universe.domain.covariate_bound
        own = stability.ipw_logistic(
            universe.n_samples, M, self.mu, radius=self.ball(universe.domain), trim=self.trim
        )
        derived = super().bound(universe)
        w_max = min(own.w_max, derived.w_max)
        return replace(min(own, derived, key=lambda bound: bound.V), w_max=w_max)

    def printed_bound(self, universe: Universe) -> StabilityBound:
        if math.isfinite(self.trim):
            raise CalibrationError("the paper's bound for a logistic propensity is for untrimmed weights")
        M = universe.domain.covariate_bound
        return stability.paper_ipw_logistic(universe.n_samples, M, self.mu, self.ball(universe.domain))


@dataclass(frozen=True)
class PrivateLogistic(PrivateSeparable, IPWLogistic):
    """Balance bought with budget instead of bias: no ridge is needed for stability.

    Parameters
    ----------
    ridge
        Of the propensity coefficient; default M^2/100.
    radius
        Bound on ``||lam||``, ``inf`` for none; default 3.3/M: a propensity from 0.036 to 0.964, for a third
        less noise than without a ball. At least one of radius and trim must be finite.
    """

    trim: float = setting(10.0, above=1, infinite=True)

    name = "ipw_private"
    formula = "lam = argmin sum log(1+exp(-z_i'lam)) + n mu/2 |lam|^2 + b'lam;  w_i ~ min(1+exp(-z_i'lam), F)"
    formulas = MappingProxyType({"ridge": "M**2 / 100", "radius": "3.3 / M"})
    citation = "Chaudhuri, Monteleoni & Sarwate (2011)"
