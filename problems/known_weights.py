"""Weights that are public functions of one record: all 1, or of a known propensity.

minimize    sum_i w_i^2 / f_i
subject to  sum_i w_i = n,  w >= 0

whose solution is w_i = n f_i / sum_j f_j, with f_i = min(1 + exp(-(2 a_i - 1) <x_i, coefficient>),
trim) (equation inverse_weight of the paper), or f_i = min(1 / p_{a_i}, trim) in a randomized trial
(its section "Stability of IPW under Randomized Trial"). ``uniform`` has f_i = 1, the strong
baseline that every table should show: the second stage is then ordinary, unweighted empirical risk
minimization.
"""

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.arrays import ROUND_UP
from dp2erm_cvx.checks import numbers
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import (
    Array,
    ClosedFormWeights,
    MappedUniverse,
    Records,
    Space,
    StabilityBound,
    setting,
)

#: Largest margin whose exponential is a number with room to spare.
_LARGEST_MARGIN = 690.0


@dataclass(frozen=True)
class Uniform(ClosedFormWeights):
    """Weights 1 for every record."""

    name = "uniform"
    formula = "w_i = 1"
    citation = "Chaudhuri, Monteleoni & Sarwate (2011)"
    theorem = "V = 2 (weights do not depend on the data)"

    @property
    def balances_arms(self) -> bool:
        return True  # by nothing: what they leave is all of it

    def log_weights(self, records: Records) -> Array:
        return np.zeros(records.n_samples)

    def log_range(self, space: Space) -> tuple[float, float]:
        return 0.0, 0.0

    def bound(self, universe: MappedUniverse) -> StabilityBound:
        return stability.uniform_weights(universe.n_samples)


@dataclass(frozen=True)
class KnownCoefficient(ClosedFormWeights):
    """For a propensity that is known, or was released before.

    Parameters
    ----------
    coefficient
        One public entry per column of the records (the intercept first, if any).
    trim
        Public cap F on 1/propensity.
    """

    coefficient: tuple[float, ...] = setting((), numbers, each="covariate")
    trim: float = setting(math.inf, above=1, infinite=True)

    name = "ipw_known"
    examples = (
        {"coefficient": (0.1, 0.6, 0.0, -0.8)},
        {"coefficient": (0.5, 2.0, 0.0, -2.0), "trim": 5.0},
    )
    formula = "w_i = n f_i / sum f,  f_i = min(1 + exp(-z_i'c), F)"
    citation = "Lee & Chen (2026), Prop. IPW_known_beta"
    theorem = "V = 2 w_max, H = M ||coefficient||"
    assumption = "the coefficient is public"

    def log_weights(self, records: Records) -> Array:
        if len(self.coefficient) != records.X.shape[1]:
            raise DeclarationError(
                f"coefficient has {len(self.coefficient)} entries for {records.X.shape[1]} "
                "columns, intercept included"
            )
        margin = (2 * records.a - 1) * (records.X @ np.array(self.coefficient))
        logs: Array = np.logaddexp(0.0, -margin)
        return logs

    def log_range(self, space: Space) -> tuple[float, float]:
        margin = space.covariate_bound * math.hypot(*self.coefficient) * ROUND_UP
        margin = min(margin, _LARGEST_MARGIN)
        cap = math.log(self.trim)
        least = math.log1p(math.exp(-margin))
        most = math.log1p(math.exp(margin))
        return min(least, cap), min(most, cap)


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

    propensity: float = setting(0.5, at_least=1e-300, below=1)
    trim: float = setting(math.inf, above=1, infinite=True)

    name = "ipw_randomized"
    formula = "w_i = n f_i / sum f,  f_i = min(1/p_{a_i}, F)"
    citation = "Lee & Chen (2026), Prop. stability_IPW_randomized_trial"
    theorem = "V = 2 w_max, H = |log(p_1/p_0)|"
    assumption = "the propensity is public and not estimated"

    def log_weights(self, records: Records) -> Array:
        logs: Array = -np.log([1 - self.propensity, self.propensity])[records.a]
        return logs

    def log_range(self, space: Space) -> tuple[float, float]:
        p = self.propensity
        cap = math.log(self.trim)
        least = -math.log(max(p, 1 - p))
        most = -math.log(min(p, 1 - p))
        return min(least, cap), min(most, cap)
