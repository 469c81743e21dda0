"""Inverse probability tilting: propensities calibrated so that each arm balances to the whole sample.

minimize    sum_i exp(-<b_i, lam>) + <c_i, lam>  +  n ridge/2 ||lam||^2
subject to  ||lam||_2 <= radius

with b_i = e_{a_i} (x) g(x_i), c_i = e_{1 - a_i} (x) g(x_i), g = (constant, balance(x)), lam = (lam_0, lam_1);
then w_i = n f_i / sum_j f_j with f_i = 1 + exp(-<b_i, lam>). Without a ridge the stationarity condition reads
"sum of f g over either arm = sum of g over all records": the balancing loss of Zhao (2019) and the calibrated
loss of Tan (2020), whose solution is the tilting of Graham, Pinto & Egel (2012).
"""

import dataclasses
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import stability
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import (
    Array,
    BalanceFunctions,
    Domain,
    ExponentialLoss,
    InversePropensity,
    Moments,
    Records,
    SeparableConstants,
    SeparableFirstStage,
    StabilityBound,
    Universe,
    checked_balance,
    public_constant,
)


@dataclass(frozen=True)
class InverseProbabilityTilting(SeparableFirstStage):
    """Inverse propensities that balance: in place of ``ipw_logistic`` where balance matters more.

    Parameters
    ----------
    ridge
        Relaxes exact balance; default: the squared norm bound of g.
    radius
        Bound on ``||lam||``. The loss is exponential, so the stability bound grows with exp(G radius):
        declare a radius of the order of 1/G where much balance is wanted. One beyond 12/G is refused where
        the ridge does not enforce less.
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of the constant balance function; default: the norm bound of ``balance``.
    """

    balance: Moments | BalanceFunctions = Moments()
    constant: float | None = None

    name = "inverse_probability_tilting"
    formula = (
        "lam = argmin sum exp(-b_i'lam) + c_i'lam + n mu/2 |lam|^2, |lam| <= R;  w_i ~ 1 + exp(-b_i'lam)"
    )
    citation = "Graham, Pinto & Egel (2012); Zhao (2019); Tan (2020)"
    theorem = "Theorem 3: D_psi of order G (1 + exp(G r)), H = G r"
    defaults = MappingProxyType({"constant": "G", "ridge": "squared norm bound of (constant, g)"})
    loss = ExponentialLoss()
    log_weight = InversePropensity()

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_balance(self.balance)
        object.__setattr__(self, "constant", public_constant(self.constant))

    def bounds(self, domain: Domain) -> tuple[float, float]:
        """(G_x, c_0): norm bound of the balance functions and value of the constant."""
        balance_bound = self.balance.bound(domain.features_bound)
        return balance_bound, balance_bound if self.constant is None else self.constant

    def row_bound(self, domain: Domain) -> float:
        return math.hypot(*self.bounds(domain)) * (1 + 1e-12)

    def linear_bound(self, domain: Domain) -> float:
        return self.row_bound(domain)

    def n_rows(self, universe: Universe) -> int:
        return 2 * (1 + self.balance.size(universe.n_features))

    def resolve(self, domain: Domain) -> Self:
        ridge = self.row_bound(domain) ** 2 if self.ridge is None else self.ridge
        return dataclasses.replace(self, constant=self.bounds(domain)[1], ridge=ridge)

    def rows(self, records: Records) -> Array:
        return self._in_arm(records, records.a)

    def linear_terms(self, records: Records) -> Array:
        return self._in_arm(records, 1 - records.a)

    def _in_arm(self, records: Records, arm: NDArray[np.int64]) -> Array:
        constant = np.full(records.n_samples, self.bounds(records.domain)[1])
        g = np.column_stack([constant, self.balance(records.covariates)])
        inside = arm[:, None]
        return np.hstack([(1 - inside) * g, inside * g])

    def ball(self, domain: Domain) -> float:
        # at 0 the mean gradient is at most sqrt(2) G; beyond that ball no minimizer lies
        G = self.row_bound(domain)
        r = min(self.radius, math.sqrt(2.0) * G / self.mu * (1 + 1e-12)) if self.mu > 0 else self.radius
        if not G * r <= 12.0:
            raise DeclarationError(
                f"radius = {self.radius:g} with ridge = {self.mu:g}: weights of exp({G * r:.3g}) are out of "
                f"reach; declare a radius of at most 12/G = {12 / G:.3g}"
            )
        return r

    def constants(self, domain: Domain) -> SeparableConstants:
        G, r = self.row_bound(domain), self.ball(domain)
        return SeparableConstants(
            gradient_diameter=stability.tilting_gradient_diameter(G, self.bounds(domain)[0], r),
            log_weight_diameter=stability.tilting_log_weight_diameter(G, r),
            log_weight_range=G * r,
            radius=r,
        )

    def bound(self, universe: Universe) -> StabilityBound:
        return stability.separable(universe.n_samples, self.mu, **vars(self.constants(universe.domain)))
