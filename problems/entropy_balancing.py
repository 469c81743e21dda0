"""Entropy balancing weights from the regularized dual.

minimize    n ( log mean_i exp(<b_i, lam>) - <t, lam> + ridge/2 ||lam||^2 )
subject to  ||lam||_2 <= radius

then w_i = n f_i / sum_j f_j, f_i = q_i min(exp(<b_i, lam>), trim), q the base measure (uniform: the mean is
that of q otherwise). With b_i = e_{a_i} (x) g(x_i), g = (constant, balance(x)), and t = (gbar, gbar)/2 (equal
arm mass) or (n_0 gbar, n_1 gbar)/n (proportional), it is equation entropy_dual of the paper with its sign
reversed. It has the 2-norm ball of its stability theorem, and a scaling that does not depend on the data.

``entropy_balancing_primal`` is its exact primal, with the same weights:

minimize    sum_i w_i log(w_i) + n/(2 ridge) ||near||^2 + n radius ||far||_2
subject to  sum_i w_i = n
            B'w/n - t = near + far

where far is absent if the radius is infinite. Minimized over the split of the residual r = near + far,
the penalty is n huber(||r||, ridge * radius) / (2 ridge): the Fenchel dual of "ridge and ball" in
``entropy_balancing``, whose multiplier is lam = (t - B'w/n) / ridge, put into the ball. The weights of
the two programs are the same.

``entropy_balancing_hard`` has exact balance, ``B'w/n = t`` in place of the penalties (equation
entropy_weight_primal of the paper, n times, with a uniform base measure). Its dual is ``entropy_balancing``
at ridge 0 and infinite radius, flat in at least one direction (the two constants), so that lam is not unique;
the weights are. It is not private: no stability bound exists for hard constraints that depend on the data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx.errors import DeclarationError, InfeasibleError
from dp2erm_cvx.program import Array, Declaration, Instance, Kind, Params, Records, setting
from dp2erm_cvx.program.balance import MomentTargets
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.entropy import EntropyFirstStage, ExponentialModel, RidgedEntropyFirstStage
from dp2erm_cvx.public import numbers


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
    base_measure: tuple[float, ...] | None = setting(None, numbers, each="record", above=0)

    name = "entropy_balancing"
    formula = "lam = argmin log mean exp(b_i'lam) - t'lam + mu/2 |lam|^2, |lam| <= R;  w_i ~ exp(b_i'lam)"
    citation = "Hainmueller (2012); Lee & Chen (2026), Theorem entropy_weight_stability"
    theorem = "Theorem 4"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base_measure is not None and math.isfinite(self.trim):
            raise DeclarationError("trim and base_measure: declare one of them")

    def data(self, records: Records) -> dict[str, Value]:
        data = super().data(records) | {"curvature": records.n_samples * self.mu}
        if self.base_measure is not None:
            data["log_base"] = self.log_base(records.n_samples)
        return data if math.isinf(self.radius) else data | {"radius": self.radius}

    def declare(self, data: Params) -> Declaration:
        B = data("B")
        n, dimension = B.shape
        lam = cp.Variable(dimension, name="dual")
        scores = B @ lam
        if self.base_measure is not None:
            scores = scores + data("log_base")
        log_mean = cp.log_sum_exp(scores) - math.log(n)
        ridge = data("curvature", nonneg=True) / 2 * cp.sum_squares(lam)
        objective = n * (log_mean - data("target") @ lam) + ridge
        ball = {} if math.isinf(self.radius) else {"ball": cp.norm(lam, 2) <= data("radius", nonneg=True)}
        return Declaration(objective, {"dual": lam}, ball)


@dataclass(frozen=True)
class EntropyBalancingPrimal(RidgedEntropyFirstStage):
    """The weights of ``entropy_balancing``, as an independent check of its dual.

    Parameters
    ----------
    ridge
        As in the dual, but above 0: for ridge 0 see ``entropy_balancing_hard``.
    """

    name = "entropy_balancing_primal"
    formula = "w = argmin sum w log w + n huber(|B'w/n - t|, mu R) / (2 mu), sum w = n"
    citation = "Hainmueller (2012); Lee & Chen (2026), eq. entropy_weight_primal"
    theorem = "Theorem 4"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ridge == 0:
            raise DeclarationError(
                "ridge = 0: must be greater than 0; for exact balance use entropy_balancing_hard"
            )

    def data(self, records: Records) -> dict[str, Value]:
        n = records.n_samples
        data = super().data(records) | {"penalty": n / self.mu}
        return data if math.isinf(self.radius) else data | {"price": n * self.radius}

    def declare(self, data: Params) -> Declaration:
        B = data("B")
        n, dimension = B.shape
        weights = cp.Variable(n, name="weights")
        near = cp.Variable(dimension, name="near")
        objective = -cp.sum(cp.entr(weights)) + data("penalty", nonneg=True) / 2 * cp.sum_squares(near)
        variables, split = {"weights": weights, "near": near}, near
        if not math.isinf(self.radius):
            far = variables["far"] = cp.Variable(dimension, name="far")
            objective += data("price", nonneg=True) * cp.norm(far, 2)
            split = near + far
        balance = B.T @ weights / n - data("target") == split
        return Declaration(objective, variables, {"total": cp.sum(weights) == n, "balance": balance})

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        model: Any = instance.composite
        # the centered rows, because a solver meets sum(w) = n only approximately
        far = (model.target - model.Z.T @ values["weights"] / model.n) / self.mu
        return np.asarray(model.penalty.prox(far, 1.0))


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
        model: Any = instance.composite
        # stationarity: log w_i + 1 + total + <b_i, balance>/n = 0, so lam = -balance/n
        point: Array = model.basis.T @ (-duals["balance"] / model.n)
        return point
