"""Individualized treatment rule by a loss without curvature at full slope, over all of R^p.

minimize    sum_i w_i phi(z_i - <x_i, theta>) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = 2 (2 a_i - 1) y_i, y the centered net outcome or what a released center leaves of it, and phi(s) =
S |s| + S^2 (exp(-|s|/S) - 1). Under pure noise the whole epsilon buys noise (Theorem 15), and neither Theta
nor the bound on the outcome enters it.
"""

from dataclasses import dataclass

from dp2erm_cvx.program import Array, Domain, Records
from dp2erm_cvx.program.losses.saturating_stage import SaturatingStage


@dataclass(frozen=True)
class SaturatingRule(SaturatingStage):
    """The rule of ``itr`` over R^p, where no outcome pulls with more than a public slope.

    It has the sign of the effect where arms are balanced or the outcome is well centered, unless residuals
    are skewed in opposite directions in the arms: a larger slope then helps.
    """

    name = "itr_saturating"
    formula = (
        "theta = argmin sum w_i phi(2(2a_i-1)y_i - x_i'theta) + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    )
    citation = "Tian et al. (2014); Huber & Ronchetti (2009), bounded influence"

    def response(self, records: Records) -> Array:
        z: Array = 2.0 * (2 * records.a - 1) * records.y
        return z

    def response_bound(self, domain: Domain) -> float:
        return 2.0 * domain.outcome_bound
