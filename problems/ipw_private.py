"""Inverse propensity weights from a differentially private logistic regression.

minimize    sum_i log(1 + exp(-<z_i, lam>)) + n (ridge + gamma)/2 ||lam||^2 + <b, lam>
subject to  ||lam||_2 <= radius

with z_i = (2 a_i - 1) x_i; then w_i = n f_i / sum_j f_j with f_i = min(1 + exp(-<z_i, lam>), trim).
Objective perturbation makes lam private; given lam, each weight depends on its own record and the
normalization only, so the second stage needs no more than a bound on the largest weight.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import cvxpy as cp

from dp2erm_cvx import stability
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.program import (
    Array,
    Declaration,
    Domain,
    Instance,
    Leaves,
    LogisticModel,
    LossConstants,
    PrivateFirstStage,
    Records,
    StabilityBound,
    Universe,
    Value,
    WholeSpace,
    checked_perturbation,
    coefficient_weights_error,
    logistic_minimizer_radius,
    public_number,
    public_radius,
    public_ridge,
    resolved,
)


@dataclass(frozen=True)
class PrivateLogistic(PrivateFirstStage):
    """Balance bought with budget instead of bias: no ridge is needed for stability.

    Parameters
    ----------
    share
        Share of the budget that buys the coefficient.
    ridge
        Of the propensity coefficient; default M^2/100.
    radius
        Bound on ``||lam||``. At least one of radius and trim must be finite.
    trim
        Above 1: public cap F on 1/propensity.
    """

    share: float = 0.3
    ridge: float | None = None
    radius: float = float("inf")
    trim: float = 10.0

    name = "ipw_private"
    formula = "lam = argmin sum log(1+exp(-z_i'lam)) + n mu/2 |lam|^2 + b'lam;  w_i ~ min(1+exp(-z_i'lam), F)"
    defaults = MappingProxyType({"ridge": "M^2/100"})
    cone = "exponential, second-order"
    citation = "Chaudhuri, Monteleoni & Sarwate (2011)"
    theorem = "Theorem 9: V = 2 w_max, given lam"

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", public_number("share", self.share, above=0))
        if self.share >= 1:
            raise DeclarationError(f"share = {self.share!r}: must be between 0 and 1")
        object.__setattr__(self, "ridge", public_ridge(self.ridge))
        object.__setattr__(self, "radius", public_radius(self.radius))
        object.__setattr__(self, "trim", public_number("trim", self.trim, above=1, infinite=True))

    def resolve(self, domain: Domain) -> Self:
        if self.ridge is not None:
            return self
        return dataclasses.replace(self, ridge=0.01 * domain.covariate_bound**2)

    @property
    def mu(self) -> float:
        """The ridge. Raises ProgramError where it is still left to the domain."""
        return resolved("ridge", self.ridge)

    def perturbed_data(self, records: Records, gamma: float, noise: Array) -> dict[str, Value]:
        data: dict[str, Value] = {
            "Z": (2 * records.a - 1)[:, None] * records.X,
            "curvature": records.n_samples * (self.mu + gamma),
            "noise": noise,
        }
        return data if math.isinf(self.radius) else data | {"radius": self.radius}

    def declare(self, leaf: Leaves) -> Declaration:
        Z = leaf("Z")
        lam = cp.Variable(Z.shape[1], name="coefficient")
        ridge = leaf("curvature", nonneg=True) / 2 * cp.sum_squares(lam)
        objective = cp.sum(cp.logistic(-(Z @ lam))) + ridge + leaf("noise") @ lam
        ball = {} if math.isinf(self.radius) else {"ball": cp.norm(lam, 2) <= leaf("radius", nonneg=True)}
        return Declaration(objective, {"coefficient": lam}, ball)

    def perturbed_model(self, records: Records, gamma: float, noise: Array) -> LogisticModel:
        Z = (2 * records.a - 1)[:, None] * records.X
        return LogisticModel(Z, self.mu + gamma, self.radius, self.trim, noise)

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        return values["coefficient"]

    def certified_radius(self, universe: Universe, gamma: float, noise_bound: float) -> float | None:
        domain, n, p = universe.domain, universe.n_samples, universe.n_columns
        extra, noise = checked_perturbation(gamma, noise_bound)
        return logistic_minimizer_radius(
            n,
            p,
            covariate_bound=domain.covariate_bound,
            ridge=n * (self.resolve(domain).mu + extra),
            noise_bound=noise,
            set_norm=self.radius,
            set_rounding=WholeSpace().rounding(p),
        )

    def certified_error(self, universe: Universe) -> float | None:
        # given the coefficient; how large it may be is not known without its calibration or a radius
        return None if math.isinf(self.radius) else self.certified_error_at(universe, self.radius)

    def certified_error_at(self, universe: Universe, norm: float) -> float | None:
        M = universe.domain.covariate_bound
        return coefficient_weights_error(universe.n_columns, covariate_bound=M, norm=min(norm, self.radius))

    def loss_constants(self, universe: Universe) -> LossConstants:
        domain = universe.domain
        M = domain.covariate_bound
        if self.mu == 0 and math.isinf(self.radius):
            raise CalibrationError("ipw_private: declare a positive ridge or a finite radius")
        diameter = M * stability.gradient_diameter(min(M * self.radius, 1e300))
        return LossConstants(
            n_parameters=universe.n_columns,
            gradient_radius=diameter / 2,
            hessian_trace=M**2 / 4,
            strong_convexity=self.mu,
            theta_bound=self.radius if math.isfinite(self.radius) else math.sqrt(2 * math.log(2) / self.mu),
            outcome_bound=1.0,
        )

    def bound(self, universe: Universe) -> StabilityBound:
        if math.isinf(self.radius) and math.isinf(self.trim):
            raise CalibrationError("ipw_private: declare a finite radius or trim, or no weight is bounded")
        # exp(-700) is lost against 1: without a radius any margin whatever
        bound, norm = (
            (1.0, 700.0) if math.isinf(self.radius) else (universe.domain.covariate_bound, self.radius)
        )
        known = stability.known_coefficient(universe.n_samples, bound, norm, trim=self.trim)
        return dataclasses.replace(
            known, assumptions=("the coefficient is a private output of the first stage",)
        )
