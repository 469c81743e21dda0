"""Overlap weights from a regularized logistic regression.

minimize    sum_i log(1 + exp(-<z_i, lam>)) + n ridge/2 ||lam||^2,   z_i = (2 a_i - 1) x_i
subject to  ||lam||_2 <= radius

then w_i = n f_i / sum_j f_j with f_i = 1 / (1 + exp(<z_i, lam>)), the fitted probability of the *other* arm:
bounded however poor the overlap, and of least asymptotic variance among balancing weights where residual
variances are equal. They target the population in which either treatment is likely.
"""

import math
from dataclasses import dataclass

from dp2erm_cvx import stability
from dp2erm_cvx.program import (
    OVERLAP,
    Domain,
    SeparableConstants,
    SeparableFirstStage,
)


@dataclass(frozen=True)
class OverlapWeights(SeparableFirstStage):
    """For arms that overlap little: the effect where either treatment is likely.

    Parameters
    ----------
    ridge
        Of the propensity coefficient; default M^2/10.
    """

    name = "overlap"
    formula = "lam = argmin sum log(1+exp(-z_i'lam)) + n mu/2 |lam|^2, |lam| <= R;  w_i ~ 1/(1+exp(z_i'lam))"
    citation = "Li, Morgan & Zaslavsky (2018)"
    theorem = "Theorem 3: D_psi = D_h, H = M r"
    log_weight = OVERLAP

    def constants(self, domain: Domain) -> SeparableConstants:
        M = domain.covariate_bound
        r = stability.logistic_radius(M, self.mu, self.radius)
        # the loss has gradients -sigma(-s) z, the log weight -sigma(s) z: one set, because z may be -z
        diameter = M * stability.gradient_diameter(M * r)
        return SeparableConstants(diameter, diameter, M * r if M * r < 700 else math.inf, r)
