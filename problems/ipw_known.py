"""Inverse propensity weights with a known, public logistic coefficient.

minimize    sum_i w_i^2 / f_i,   f_i = min(1 + exp(-(2 a_i - 1) <x_i, coefficient>), trim)
subject to  sum_i w_i = n,  w >= 0

whose solution is w_i = n f_i / sum_j f_j (equation inverse_weight of the paper).
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
    public_number,
    setting,
)


def _numbers(name: str, values: tuple[float, ...]) -> tuple[float, ...]:
    if not (checked := tuple(public_number(name, value) for value in values)):
        raise DeclarationError(f"{name}: must have one entry per covariate")
    return checked


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

    coefficient: tuple[float, ...] = setting((), _numbers)
    trim: float = setting(math.inf, above=1, infinite=True)

    name = "ipw_known"
    examples = ({"coefficient": (0.1, 0.6, 0.0, -0.8)}, {"coefficient": (0.5, 2.0, 0.0, -2.0), "trim": 5.0})
    formula = "w_i = n f_i / sum f,  f_i = min(1 + exp(-z_i'c), F)"
    citation = "Lee & Chen (2026), Prop. IPW_known_beta"
    theorem = "V = 2 w_max, H = M ||coefficient||"

    def unnormalized(self, records: Records) -> Array:
        if len(self.coefficient) != records.X.shape[1]:
            raise DeclarationError(
                f"coefficient has {len(self.coefficient)} entries for {records.X.shape[1]} columns, "
                "intercept included"
            )
        margin: Array = (2 * records.a - 1) * (records.X @ np.array(self.coefficient))
        trimmed: Array = np.minimum(1 + np.exp(-np.maximum(margin, -690.0)), self.trim)
        return trimmed

    def bound(self, universe: Universe) -> StabilityBound:
        norm = math.hypot(*self.coefficient) * (1 + 1e-12)
        return stability.known_coefficient(
            universe.n_samples, universe.domain.covariate_bound, norm, trim=self.trim
        )

    def printed_bound(self, universe: Universe) -> StabilityBound:
        if math.isfinite(self.trim):
            raise CalibrationError("the paper's bound for a known coefficient is for untrimmed weights")
        norm = math.hypot(*self.coefficient) * (1 + 1e-12)
        return stability.paper_known_coefficient(universe.n_samples, universe.domain.covariate_bound, norm)
