"""Probabilities of the arms of a treatment that has more than two, by one multinomial regression.

minimize    sum_i w_i (log sum_a exp(<x_i, theta_a>) - <x_i, theta_{A_i}>)
            + n gamma/2 ||theta||^2 + <b, theta>
subject to  sum_a theta_a = 0

with the arm A_i of record i, and noise b that adds up to 0 over the arms as well. The gradient of a
record is ``(q - e_A) x``, of norm at most sqrt(2) M, and its Hessian has the trace
``(1 - ||q||^2) ||x||^2``, which vanishes where the gradient is largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp2erm_cvx.checks import whole_number
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.model.composite import MultinomialModel, multinomial_sizes
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import (
    Array,
    Declaration,
    Instance,
    MappedUniverse,
    Params,
    Program,
    Records,
    setting,
)


@dataclass(frozen=True)
class MultinomialPropensity(Program):
    """Multinomial logistic regression of the arm on the covariates (McFadden 1974).

    Parameters
    ----------
    n_arms
        K of at least 2.
    """

    n_arms: int = setting(3, whole_number, at_least=2)

    by_blocks: ClassVar[bool] = True
    name = "multinomial_propensity"
    formula = (
        "theta = argmin sum_i w_i (log sum_a exp(<x_i, theta_a>) - <x_i, theta_A_i>) + n gamma/2 "
        "|theta|^2"
    )
    citation = "McFadden (1974); Theorem 27"
    theorem = "Theorem 27 (pure noise)"

    def declare(self, data: Params) -> Declaration:
        Z = data("Z")
        chosen = data("chosen")
        theta = cp.Variable((self.n_arms, Z.shape[1]), name="theta")
        logits = cp.Variable((Z.shape[0], self.n_arms), name="logits")
        losses = data("weights", nonneg=True) @ cp.log_sum_exp(logits, axis=1)
        losses -= cp.sum(cp.multiply(chosen, logits))
        penalties = data("curvature", nonneg=True) / 2 * cp.sum_squares(theta)
        penalties += cp.sum(cp.multiply(data("noise"), theta))
        constraints = {"logits": logits == Z @ theta.T, "arms": cp.sum(theta, axis=0) == 0}
        return Declaration(losses + penalties, {"theta": theta, "logits": logits}, constraints)

    def read(self, instance: Instance, values: Any, duals: Any) -> Array:
        model: Any = instance.composite
        return np.asarray((model.basis.T @ values["theta"]).ravel())

    def loss_constants(self, universe: MappedUniverse) -> LossConstants:
        """Constants of the loss of a record, in the contrasts of the arms."""
        M = universe.space.covariate_bound
        gradient_bound = math.sqrt(2.0) * M
        return LossConstants(
            n_parameters=(self.n_arms - 1) * universe.n_columns,
            gradient_radius=gradient_bound,
            hessian_trace=(1.0 - 1.0 / self.n_arms) * M**2,
            strong_convexity=0.0,
            theta_bound=None,
            outcome_bound=gradient_bound,
            gradient_bound=gradient_bound,
        )

    def perturbed(self, records: Records, gamma: float, noise: Array) -> Instance:
        """Bind the program to rows and arms; ``noise`` ((K - 1) p,) is in contrasts of the arms."""
        bound = records.space.covariate_bound
        ridge = records.n_samples * gamma
        n_columns = len(noise) // (self.n_arms - 1)
        model = MultinomialModel(records.blocks, n_columns, ridge, noise, bound)

        def data() -> dict[str, Any]:
            weights = records.counts
            chosen = weights[:, None] * (records.a[:, None] == np.arange(self.n_arms))
            noises = model.coefficients(noise)
            return {
                "Z": records.X,
                "chosen": chosen,
                "weights": weights,
                "curvature": ridge,
                "noise": noises,
            }

        return Instance(self, data, model)

    def certified_radius(
        self, universe: MappedUniverse, gamma: float, noise_bound: float
    ) -> float | None:
        """Public bound on the radius that every solve is certified to, on whatever records."""
        n = universe.n_samples
        sizes = multinomial_sizes(
            n,
            universe.most_rows,
            universe.n_columns,
            self.n_arms,
            universe.space.covariate_bound,
            n * gamma,
            noise_bound,
        )
        return sizes.radius()
