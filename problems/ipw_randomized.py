"""Inverse propensity weights of a randomized trial with a known treatment probability.

minimize    sum_i w_i^2 / f_i,   f_i = min(1 / p_{a_i}, trim)
subject to  sum_i w_i = n,  w >= 0

whose solution is w_i = n f_i / sum_j f_j (section "Stability of IPW under Randomized Trial" of the paper).
"""

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.program import (
    Array,
    ClosedFormWeights,
    Records,
    StabilityBound,
    Universe,
    setting,
)


@dataclass(frozen=True)
class RandomizedTrial(ClosedFormWeights):
    """For trials whose treatment probability is known.

    Parameters
    ----------
    propensity
        Public probability of treatment.
    trim
        Public cap F on 1/p.
    """

    propensity: float = setting(0.5, at_least=1e-300)
    trim: float = setting(math.inf, above=1, infinite=True)

    name = "ipw_randomized"
    formula = "w_i = n f_i / sum f,  f_i = min(1/p_{a_i}, F)"
    citation = "Lee & Chen (2026), Prop. stability_IPW_randomized_trial"
    theorem = "V = 2 w_max, H = |log(p_1/p_0)|"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.propensity >= 1:
            raise DeclarationError(f"propensity = {self.propensity!r}: must be between 0 and 1")

    def unnormalized(self, records: Records) -> Array:
        of_arm: Array = np.array([1 / (1 - self.propensity), 1 / self.propensity])
        trimmed: Array = np.minimum(of_arm, self.trim)[records.a]
        return trimmed

    def bound(self, universe: Universe) -> StabilityBound:
        return stability.randomized_trial(universe.n_samples, self.propensity, trim=self.trim)

    def printed_bound(self, universe: Universe) -> StabilityBound:
        if math.isfinite(self.trim):
            raise CalibrationError("the paper's bound for a randomized trial is for untrimmed weights")
        return stability.paper_randomized_trial(universe.n_samples, self.propensity)
