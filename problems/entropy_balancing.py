"""Entropy balancing weights from the regularized dual.

minimize    n ( log mean_i exp(<b_i, lam>) - <t, lam> + ridge/2 ||lam||^2 )
subject to  ||lam||_2 <= radius

then w_i = n f_i / sum_j f_j, f_i = q_i min(exp(<b_i, lam>), trim), q the base measure (uniform: the mean is
that of q otherwise). With b_i = e_{a_i} (x) g(x_i), g = (constant, balance(x)), and t = (gbar, gbar)/2 (equal
arm mass) or (n_0 gbar, n_1 gbar)/n (proportional), it is equation entropy_dual of the paper with its sign
reversed. It has the 2-norm ball of its stability theorem, and a scaling that does not depend on the data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.program import (
    Array,
    Declaration,
    Instance,
    Leaves,
    Records,
    RidgedEntropyFirstStage,
    StabilityBound,
    Universe,
    Value,
    public_number,
    setting,
)
from dp2erm_cvx.program.exponential import ExponentialModel


def _positive(name: str, values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(public_number(name, q, above=0) for q in values)


@dataclass(frozen=True)
class EntropyBalancing(RidgedEntropyFirstStage):
    """The default choice for observational data: no overlap assumption, and an arm may be empty.

    Parameters
    ----------
    trim
        Public cap on exp(<b_i, lam>) before the weights are normalized. It does not go together with a base
        measure.
    base_measure
        q, one public positive number per record; None: uniform.
    """

    trim: float = setting(math.inf, above=0, infinite=True)
    base_measure: tuple[float, ...] | None = setting(None, _positive)

    name = "entropy_balancing"
    formula = "lam = argmin log mean exp(b_i'lam) - t'lam + mu/2 |lam|^2, |lam| <= R;  w_i ~ exp(b_i'lam)"
    cone = "exponential, second-order"
    citation = "Hainmueller (2012); Lee & Chen (2026), Theorem entropy_weight_stability"
    theorem = "Theorem 4"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base_measure is not None and math.isfinite(self.trim):
            raise DeclarationError("trim and base_measure: declare one of them")

    def log_base(self, n_samples: int) -> Array:
        """log(n q_i), (n,). Raises DeclarationError unless q has one entry per record."""
        if self.base_measure is None:
            return np.zeros(n_samples)
        if len(self.base_measure) != n_samples:
            raise DeclarationError(
                f"base_measure has {len(self.base_measure)} entries for {n_samples} records"
            )
        log_q: Array = np.log(np.array(self.base_measure))
        return log_q - math.log(math.fsum(self.base_measure) / n_samples)

    def largest_log_base(self, n_samples: int) -> float:
        # a plan may be for any number of records: none of them is stored
        return 0.0 if self.base_measure is None else float(np.max(np.abs(self.log_base(n_samples))))

    def data(self, records: Records) -> dict[str, Value]:
        B, target = self.moments(records)
        data: dict[str, Value] = {
            "B": B,
            "target": target,
            "curvature": records.n_samples * self.mu,
        }
        if self.base_measure is not None:
            data["log_base"] = self.log_base(records.n_samples)
        return data if math.isinf(self.radius) else data | {"radius": self.radius}

    def declare(self, leaf: Leaves) -> Declaration:
        B = leaf("B")
        n, dimension = B.shape
        lam = cp.Variable(dimension, name="dual")
        scores = B @ lam
        if self.base_measure is not None:
            scores = scores + leaf("log_base")
        log_mean = cp.log_sum_exp(scores) - math.log(n)
        ridge = leaf("curvature", nonneg=True) / 2 * cp.sum_squares(lam)
        objective = n * (log_mean - leaf("target") @ lam) + ridge
        ball = {} if math.isinf(self.radius) else {"ball": cp.norm(lam, 2) <= leaf("radius", nonneg=True)}
        return Declaration(objective, {"dual": lam}, ball)

    def model(self, records: Records) -> ExponentialModel:
        log_base = 0.0 if self.base_measure is None else self.log_base(records.n_samples)
        return ExponentialModel(
            *self.balanced(records), self.mu, self.radius, trim=self.trim, log_base=log_base
        )

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        return values["dual"]

    @property
    def trim_bound(self) -> float:
        return self.trim

    @property
    def base_measure_ratio(self) -> float:
        q = self.base_measure
        return 1.0 if q is None else max(q) / min(q) * (1 + 1e-12)

    def bound(self, universe: Universe) -> StabilityBound:
        if self.base_measure is not None:
            raise CalibrationError(
                "entropy balancing with a base_measure has no sharp bound: leave it out, or use the paper's"
            )
        return super().bound(universe)
