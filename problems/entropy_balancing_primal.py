"""Entropy balancing weights from the exact primal of the regularized dual.

minimize    sum_i w_i log(w_i) + n/(2 ridge) ||near||^2 + n radius ||far||_2
subject to  sum_i w_i = n
            B'w/n - t = near + far

where far is absent if the radius is infinite. Minimized over the split of the residual r = near + far,
the penalty is n huber(||r||, ridge * radius) / (2 ridge): the Fenchel dual of "ridge and ball" in
``entropy_balancing``, whose multiplier is lam = (t - B'w/n) / ridge, put into the ball. The weights of
the two programs are the same.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import cvxpy as cp

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import (
    Array,
    Declaration,
    Instance,
    Leaves,
    Records,
    RidgedEntropyFirstStage,
    Value,
)
from dp2erm_cvx.program.exponential import ExponentialModel


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
    cone = "exponential, second-order"
    citation = "Hainmueller (2012); Lee & Chen (2026), eq. entropy_weight_primal"
    # they define the residuals; the set of the coefficient is fixed
    moving = frozenset({"B", "target"})
    theorem = "Theorem 4"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ridge == 0:
            raise DeclarationError(
                "ridge = 0: must be greater than 0; for exact balance use entropy_balancing_hard"
            )

    def data(self, records: Records) -> dict[str, Value]:
        B, target = self.moments(records)
        n = records.n_samples
        data: dict[str, Value] = {"B": B, "target": target, "penalty": n / self.mu}
        return data if math.isinf(self.radius) else data | {"price": n * self.radius}

    def declare(self, leaf: Leaves) -> Declaration:
        B = leaf("B")
        n, dimension = B.shape
        weights = cp.Variable(n, name="weights")
        near = cp.Variable(dimension, name="near")
        objective = -cp.sum(cp.entr(weights)) + leaf("penalty", nonneg=True) / 2 * cp.sum_squares(near)
        variables, split = {"weights": weights, "near": near}, near
        if not math.isinf(self.radius):
            far = variables["far"] = cp.Variable(dimension, name="far")
            objective += leaf("price", nonneg=True) * cp.norm(far, 2)
            split = near + far
        balance = B.T @ weights / n - leaf("target") == split
        return Declaration(objective, variables, {"total": cp.sum(weights) == n, "balance": balance})

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        model = instance.model
        assert isinstance(model, ExponentialModel)
        # the centered rows, because a solver meets sum(w) = n only approximately
        return model.penalty.prox((model.target - model.B.T @ values["weights"] / model.n) / self.mu, 1.0)
