"""Overlap weights from a differentially private logistic regression.

minimize    sum_i log(1 + exp(-<z_i, lam>)) + n (ridge + gamma)/2 ||lam||^2 + <b, lam>
subject to  ||lam||_2 <= radius

with z_i = (2 a_i - 1) x_i; then w_i = n f_i / sum_j f_j with f_i = 1 / (1 + exp(<z_i, lam>)), the fitted
probability of the *other* arm. Objective perturbation makes lam private. Over the ball f varies by a factor
of at most exp(M radius), which bounds the largest weight; the target is the population of ``overlap``.
"""

from dataclasses import dataclass
from types import MappingProxyType

from dp2erm_cvx import stability
from dp2erm_cvx.program import OVERLAP, Domain, PrivateSeparable


@dataclass(frozen=True)
class PrivateOverlap(PrivateSeparable):
    """For arms that overlap little: the effect where either treatment is likely, by a private propensity.

    Parameters
    ----------
    share
        Share of the budget that buys the coefficient.
    ridge
        Of the propensity coefficient; default M^2/100.
    radius
        Bound on ``||lam||``, finite because nothing else bounds a weight; default 2/M.
    """

    name = "overlap_private"
    formula = (
        "lam = argmin sum log(1+exp(-z_i'lam)) + b'lam + n mu/2 |lam|^2, |lam| <= R;  "
        "w_i ~ 1/(1+exp(z_i'lam))"
    )
    defaults = MappingProxyType({"ridge": "M^2/100", "radius": "2/M"})
    citation = "Li, Morgan & Zaslavsky (2018); Chaudhuri, Monteleoni & Sarwate (2011)"
    log_weight = OVERLAP

    def gradient_diameter(self, domain: Domain) -> float:
        M = domain.covariate_bound
        return M * stability.gradient_diameter(min(M * self.ball(domain), 1e300))
