"""Inverse propensity weights from a differentially private logistic regression.

minimize    sum_i log(1 + exp(-<z_i, lam>)) + n (ridge + gamma)/2 ||lam||^2 + <b, lam>
subject to  ||lam||_2 <= radius

with z_i = (2 a_i - 1) x_i; then w_i = n f_i / sum_j f_j with f_i = min(1 + exp(-<z_i, lam>), trim).
Objective perturbation makes lam private; given lam, each weight depends on its own record and the
normalization only, so the second stage needs no more than a bound on the largest weight.
"""

from dataclasses import dataclass
from types import MappingProxyType

from dp2erm_cvx.program import LogWeight, PrivateSeparable, public_number, trimmed


@dataclass(frozen=True)
class PrivateLogistic(PrivateSeparable):
    """Balance bought with budget instead of bias: no ridge is needed for stability.

    Parameters
    ----------
    share
        Share of the budget that buys the coefficient.
    ridge
        Of the propensity coefficient; default M^2/100.
    radius
        Bound on ``||lam||``, ``inf`` for none; default 3.3/M: a propensity from 0.036 to 0.964, for a third
        less noise than without a ball. At least one of radius and trim must be finite.
    trim
        Above 1: public cap F on 1/propensity.
    """

    trim: float = 10.0

    name = "ipw_private"
    formula = "lam = argmin sum log(1+exp(-z_i'lam)) + n mu/2 |lam|^2 + b'lam;  w_i ~ min(1+exp(-z_i'lam), F)"
    defaults = MappingProxyType({"ridge": "M^2/100", "radius": "3.3/M"})
    default_margin = 3.3
    citation = "Chaudhuri, Monteleoni & Sarwate (2011)"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "trim", public_number("trim", self.trim, above=1, infinite=True))

    @property
    def log_weight(self) -> LogWeight:
        return trimmed(self.trim)
