"""Inverse probability tilting: propensities calibrated so that each arm balances to the whole sample.

minimize    sum_i exp(-<b_i, lam>) + <c_i, lam>  +  n ridge/2 ||lam||^2
subject to  ||lam||_2 <= radius

with b_i = e_{a_i} (x) g(x_i), c_i = e_{1 - a_i} (x) g(x_i), g = (constant, balance(x)), lam = (lam_0, lam_1);
then w_i = n f_i / sum_j f_j with f_i = 1 + exp(-<b_i, lam>). Without a ridge the stationarity condition reads
"sum of f g over either arm = sum of g over all records": the balancing loss of Zhao (2019) and the calibrated
loss of Tan (2020), whose solution is the tilting of Graham, Pinto & Egel (2012). The private variant adds
``n gamma/2 ||lam||^2 + <b, lam>``. Both terms of a record enter the sensitivity of its gradient, and the ball
bounds the exponential: the gradients of one record lie in a set of diameter of order G (1 + exp(G radius)).
"""

import math
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import stability
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import (
    Array,
    Curve,
    Domain,
    Kind,
    PrivateSeparable,
    Records,
    SeparableFirstStage,
    Universe,
)
from dp2erm_cvx.program.curves import EXPONENTIAL
from dp2erm_cvx.program.first_stage import BalancedStage
from dp2erm_cvx.program.log_weights import INVERSE_PROPENSITY
from dp2erm_cvx.stability import Beside

#: The largest margin that a radius may allow for: the loss there is exp(12).
_LARGEST_MARGIN = 12.0


@dataclass(frozen=True)
class InverseProbabilityTilting(BalancedStage, SeparableFirstStage):
    """Inverse propensities that balance: in place of ``ipw_logistic`` where balance matters more.

    Parameters
    ----------
    ridge
        Relaxes exact balance; default: the squared norm bound of g.
    radius
        Bound on ``||lam||``. The loss is exponential, so the stability bound grows with exp(G radius):
        declare a radius of the order of 1/G where much balance is wanted. One beyond 12/G is refused where
        the ridge does not enforce less.
    """

    name = "inverse_probability_tilting"
    formula = (
        "lam = argmin sum exp(-b_i'lam) + c_i'lam + n mu/2 |lam|^2, |lam| <= R;  w_i ~ 1 + exp(-b_i'lam)"
    )
    citation = "Graham, Pinto & Egel (2012); Zhao (2019); Tan (2020)"
    theorem = "Theorem 3: D_psi of order G (1 + exp(G r)), H = G r"
    formulas = MappingProxyType({"constant": "G_x", "ridge": "G**2"})
    defaults = MappingProxyType({"constant": "G", "ridge": "squared norm bound of (constant, g)"})
    log_weight = INVERSE_PROPENSITY

    @property
    def loss(self) -> Curve:
        """exp(-s)."""
        return EXPONENTIAL

    def row_bound(self, domain: Domain) -> float:
        """G: norm bound of b and c."""
        return math.hypot(*self.bounds(domain)) * (1 + 1e-12)

    def linear_bound(self, domain: Domain) -> float:
        return self.row_bound(domain)

    def n_rows(self, universe: Universe) -> int:
        """2 (1 + k) for k balance functions."""
        return 2 * (1 + self.balance.size(universe.n_features))

    def rows(self, records: Records) -> Array:
        """The rows b_i."""
        return self._in_arm(records, records.a)

    def linear_terms(self, records: Records) -> Array:
        """The rows c_i."""
        return self._in_arm(records, 1 - records.a)

    def _in_arm(self, records: Records, arm: NDArray[np.int64]) -> Array:
        g, inside = self.functions(records), arm[:, None]
        return np.hstack([(1 - inside) * g, inside * g])

    def ball(self, domain: Domain) -> float:
        r, G = super().ball(domain), self.row_bound(domain)
        if self.kind is not Kind.PRIVATE and self.mu > 0:
            # at 0 the mean gradient is at most sqrt(2) G; beyond that ball no minimizer without noise lies
            r = min(r, math.sqrt(2.0) * G / self.mu * (1 + 1e-12))
        if not G * r <= _LARGEST_MARGIN:
            raise DeclarationError(
                f"radius = {r:g}: weights of exp({G * r:.3g}) are out of reach; declare a radius "
                f"of at most 12/G = {_LARGEST_MARGIN / G:.3g}"
            )
        return r

    def gradient_diameter(self, domain: Domain) -> float:
        G_x, _ = self.bounds(domain)
        return stability.tilting_gradient_diameter(self.row_bound(domain), G_x, self.ball(domain))

    def beside(self, domain: Domain) -> Beside:
        G = self.row_bound(domain)
        log_weights = stability.tilting_log_weight_diameter(G, self.ball(domain))
        return Beside(self.gradient_diameter(domain) / G, log_weights / G)


@dataclass(frozen=True)
class PrivateTilting(PrivateSeparable, InverseProbabilityTilting):
    """Inverse propensities that balance, by a private coefficient: balance bought with budget.

    Parameters
    ----------
    ridge
        Relaxes exact balance; default: a tenth of the squared norm bound G^2 of (constant, g).
    radius
        Bound on ``||lam||``, at most 12/G; default 1/G. Noise grows with exp(G radius), and so do weights.
    """

    name = "tilting_private"
    formula = (
        "lam = argmin sum exp(-b_i'lam) + (c_i+b)'lam + n mu/2 |lam|^2, |lam| <= R;  w_i ~ 1 + exp(-b_i'lam)"
    )
    citation = "Graham, Pinto & Egel (2012); Tan (2020); Chaudhuri, Monteleoni & Sarwate (2011)"
    # the loss is steeper than a logistic one: L/m stays below 30
    formulas = MappingProxyType({"constant": "G_x", "ridge": "G**2 / 10", "radius": "1 / G"})
    defaults = MappingProxyType({"constant": "G", "ridge": "G^2/10", "radius": "1/G"})
