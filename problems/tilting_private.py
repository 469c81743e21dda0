"""Inverse probability tilting by a differentially private coefficient.

minimize    sum_i exp(-<b_i, lam>) + <c_i, lam>  +  n (ridge + gamma)/2 ||lam||^2 + <b, lam>
subject to  ||lam||_2 <= radius

with b_i = e_{a_i} (x) g(x_i), c_i = e_{1 - a_i} (x) g(x_i), g = (constant, balance(x)), lam = (lam_0, lam_1)
and the noise b; then w_i = n f_i / sum_j f_j with f_i = 1 + exp(-<b_i, lam>). Objective perturbation makes
lam, of 2 (1 + k) entries, private. Both terms of a record enter the sensitivity of its gradient, and the ball
bounds the exponential: the gradients of one record lie in a set of diameter of order G (1 + exp(G radius)).
"""

import dataclasses
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from dp2erm_cvx import stability
from dp2erm_cvx.program import Domain, PrivateSeparable
from dp2erm_cvx.program.schemes.tilting_rows import TiltingRows


@dataclass(frozen=True)
class PrivateTilting(TiltingRows, PrivateSeparable):
    """Inverse propensities that balance, by a private coefficient: balance bought with budget.

    Parameters
    ----------
    share
        Share of the budget that buys the coefficient.
    ridge
        Relaxes exact balance; default: a tenth of the squared norm bound G^2 of (constant, g).
    radius
        Bound on ``||lam||``, at most 12/G; default 1/G. Noise grows with exp(G radius), and so do weights.
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of the constant balance function; default: the norm bound of ``balance``.
    """

    name = "tilting_private"
    formula = (
        "lam = argmin sum exp(-b_i'lam) + (c_i+b)'lam + n mu/2 |lam|^2, |lam| <= R;  w_i ~ 1 + exp(-b_i'lam)"
    )
    citation = "Graham, Pinto & Egel (2012); Tan (2020); Chaudhuri, Monteleoni & Sarwate (2011)"
    defaults = MappingProxyType({"constant": "G", "ridge": "G^2/10", "radius": "1/G"})
    # the loss is steeper than a logistic one: L/m stays below 30
    default_ridge = 0.1
    default_margin = 1.0

    def __post_init__(self) -> None:
        PrivateSeparable.__post_init__(self)
        TiltingRows.__post_init__(self)

    def resolve(self, domain: Domain) -> Self:
        return dataclasses.replace(super().resolve(domain), constant=self.bounds(domain)[1])

    def ball(self, domain: Domain) -> float:
        return self.within_reach(domain, super().ball(domain))

    def gradient_diameter(self, domain: Domain) -> float:
        G_x, _ = self.bounds(domain)
        return stability.tilting_gradient_diameter(self.row_bound(domain), G_x, self.ball(domain))
