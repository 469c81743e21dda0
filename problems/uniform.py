"""Uniform weights: the strong baseline that every table should show.

minimize    sum_i w_i^2
subject to  sum_i w_i = n,  w >= 0

so that w_i = 1: the second stage is then ordinary, unweighted empirical risk minimization.
"""

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.program import Array, ClosedFormWeights, Domain, Records, StabilityBound, Universe


@dataclass(frozen=True)
class Uniform(ClosedFormWeights):
    """Weights 1 for every record."""

    name = "uniform"
    balances_arms = True  # by nothing: what they leave is all of it
    formula = "w_i = 1"
    citation = "Chaudhuri, Monteleoni & Sarwate (2011)"
    theorem = "V = 2 (weights do not depend on the data)"

    def log_weights(self, records: Records) -> Array:
        return np.zeros(records.n_samples)

    def log_range(self, domain: Domain) -> tuple[float, float]:
        return 0.0, 0.0

    def bound(self, universe: Universe) -> StabilityBound:
        return stability.uniform_weights(universe.n_samples)

    def printed_bound(self, universe: Universe) -> StabilityBound:
        return stability.fixed_weights(universe.n_samples, 1.0)
