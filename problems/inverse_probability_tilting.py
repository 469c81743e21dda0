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

from dp2erm_cvx import stability
from dp2erm_cvx.program import Domain, SeparableFirstStage
from dp2erm_cvx.program.schemes.tilting_rows import TiltingRows
from dp2erm_cvx.stability import Beside


@dataclass(frozen=True)
class InverseProbabilityTilting(TiltingRows, SeparableFirstStage):
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

    name = "inverse_probability_tilting"
    formula = (
        "lam = argmin sum exp(-b_i'lam) + c_i'lam + n mu/2 |lam|^2, |lam| <= R;  w_i ~ 1 + exp(-b_i'lam)"
    )
    citation = "Graham, Pinto & Egel (2012); Zhao (2019); Tan (2020)"
    theorem = "Theorem 3: D_psi of order G (1 + exp(G r)), H = G r"
    defaults = MappingProxyType({"constant": "G", "ridge": "squared norm bound of (constant, g)"})
    default_ridge = 1.0

    def __post_init__(self) -> None:
        SeparableFirstStage.__post_init__(self)
        TiltingRows.__post_init__(self)

    def resolve(self, domain: Domain) -> Self:
        return dataclasses.replace(super().resolve(domain), constant=self.bounds(domain)[1])

    def ball(self, domain: Domain) -> float:
        # at 0 the mean gradient is at most sqrt(2) G; beyond that ball no minimizer lies
        G = self.row_bound(domain)
        r = min(self.radius, math.sqrt(2.0) * G / self.mu * (1 + 1e-12)) if self.mu > 0 else self.radius
        return self.within_reach(domain, r)

    def beside(self, domain: Domain) -> Beside:
        G, r = self.row_bound(domain), self.ball(domain)
        return Beside(
            stability.tilting_gradient_diameter(G, self.bounds(domain)[0], r) / G,
            stability.tilting_log_weight_diameter(G, r) / G,
        )
