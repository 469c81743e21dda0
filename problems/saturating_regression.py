"""Linear regression of the outcome by a loss without curvature at full slope, over all of R^p.

minimize    sum_i w_i phi(y_i - <x_i, theta>) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with y the centered outcome and phi(s) = S |s| + S^2 (exp(-|s|/S) - 1): s^2/2 near 0, S |s| far out. No record
pulls with more than S, and one that does adds no curvature: under pure noise the whole epsilon buys noise
(Theorem 15), and neither Theta nor the bound on the outcome enters it.
"""

from dataclasses import dataclass

from dp2erm_cvx.program import Array, Domain, Records
from dp2erm_cvx.program.losses.saturating_stage import SaturatingStage


@dataclass(frozen=True)
class SaturatingRegression(SaturatingStage):
    """Linear prediction, between that of the mean (large slope) and that of the median (small slope)."""

    name = "saturating_regression"
    formula = "theta = argmin sum w_i phi(y_i - x_i'theta) + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    citation = "Huber & Ronchetti (2009), bounded influence"

    def response(self, records: Records) -> Array:
        return records.y

    def response_bound(self, domain: Domain) -> float:
        return domain.outcome_bound
