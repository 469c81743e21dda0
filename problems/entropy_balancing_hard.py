"""Entropy balancing weights with exact balance, recovered through the multipliers.

minimize    sum_i w_i log(w_i)
subject to  sum_i w_i = n
            B'w/n = t

equation entropy_weight_primal of the paper (n times, uniform base measure). Its dual is
``entropy_balancing`` at ridge 0 and infinite radius, which is flat in at least one direction (the two
constants), so lam is not unique; the weights are. Not private: no stability bound exists for hard,
data-dependent constraints.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.program import Array, Declaration, Instance, Kind, Params, Records
from dp2erm_cvx.program.balance import MomentTargets
from dp2erm_cvx.program.entropy import EntropyFirstStage, ExponentialModel


@dataclass(frozen=True)
class EntropyBalancingHard(EntropyFirstStage):
    """Exact balance. Raises InfeasibleError where no weights meet the targets."""

    name = "entropy_balancing_hard"
    formula = "w = argmin sum w log w,  sum w = n,  B'w/n = t"
    citation = "Hainmueller (2012); Lee & Chen (2026), eq. entropy_weight_primal"
    theorem = "none: not private"
    relations = frozenset()
    kind = Kind.DIRECT
    unbounded = (
        "hard entropy balancing has no stability bound: its constraints depend on the data. "
        "Use entropy_balancing with a positive ridge"
    )

    def declare(self, data: Params) -> Declaration:
        B = data("B")
        n = B.shape[0]
        weights = cp.Variable(n, name="weights")
        balance = B.T @ weights / n == data("target")
        return Declaration(
            -cp.sum(cp.entr(weights)),
            {"weights": weights},
            {"total": cp.sum(weights) == n, "balance": balance},
        )

    def model(self, records: Records) -> ExponentialModel:
        try:
            return ExponentialModel.hard(*self.moments(records))
        except InfeasibleError:
            # the targets leave the span of the records; the linear program names the moments
            self.targets(records).refuse_infeasible()
            raise

    def targets(self, records: Records) -> MomentTargets:
        B, target = self.moments(records)
        n, k = records.n_samples, B.shape[1] // 2
        names = ("constant", *self.balance.names(records))
        held = [0, k]  # the two constants fix the mass of either arm
        rest = [j for j in range(2 * k) if j not in held]
        labels = tuple(f"{names[j % k]} ({'treated' if j >= k else 'control'})" for j in rest)
        # a moment is a share of the whole mass: in units of the mean of its arm
        share = np.where(np.array(rest) >= k, target[k], target[0]) / self.bounds(records.domain)[1]
        scale = 1 / np.maximum(share, 1e-300)
        return MomentTargets(
            B[:, held], n * target[held], B[:, rest] * scale / n, target[rest] * scale, labels, 0.0
        )

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        model = instance.model_as(ExponentialModel)
        # stationarity: log w_i + 1 + total + <b_i, balance>/n = 0, so lam = -balance/n
        point: Array = model.basis.T @ (-duals["balance"] / model.n)
        return point
