"""Individualized treatment rule by a Huber loss: outliers pull with a bounded gradient.

minimize    sum_i w_i H(z_i - <x_i, theta>) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = 2 (2 a_i - 1) y_i and H(r) = r^2 up to |r| = threshold, 2 threshold |r| - threshold^2 beyond. The
gradient is at most 2 M threshold whatever Theta is, which a squared loss needs a small Theta for.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from dp2erm_cvx.program import Curve, Domain, Huber, Part, WeightedMarginLoss, public_size
from dp2erm_cvx.program.first_stage import resolved


@dataclass(frozen=True)
class HuberRule(WeightedMarginLoss):
    """The rule of ``itr`` with less pull from outliers, and less noise where the threshold is small.

    Theta defaults to the l2 ball of radius M'/M, over which no predicted effect exceeds M'.

    Parameters
    ----------
    threshold
        In units of the outcome; default: M', half the largest ``|z|``.
    """

    threshold: float | None = None

    name = "itr_huber"
    formula = (
        "theta = argmin sum w_i H(2(2a_i-1)y_i - x_i'theta) + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    )
    cone = "QP (SOCP over an l2 ball)"
    citation = "Huber (1964); Xiao, Zhang & Lu (2019)"
    theorem = "Theorems 1 and 2: zeta_c = min(2 M k, that of the squared loss), trace 2 M^2"
    defaults = MappingProxyType({**WeightedMarginLoss.defaults, "threshold": "M'"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None:
            object.__setattr__(self, "threshold", public_size("threshold", self.threshold))

    def resolve(self, domain: Domain) -> Self:
        k = domain.outcome_bound if self.threshold is None else self.threshold
        return replace(super().resolve(domain), threshold=k)

    @property
    def loss(self) -> Curve:
        return Curve((Part(1.0, Huber(resolved("threshold", self.threshold))),))
