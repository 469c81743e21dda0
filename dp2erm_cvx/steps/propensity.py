"""The probabilities of the arms of a treatment that has more than two, released."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from dp2erm_cvx.calibration import EXACT_ARITHMETIC, Calibration, Noise, Objective, predicted_error
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.steps.covariates import CovariateMean, MeanSquare
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.record_map import Rows, WithConstant
from dp2erm_cvx.steps.step import (
    Execution,
    Inputs,
    Step,
    StepResult,
    covering,
    noise_bound,
    on_grid,
    reserve,
    sample,
)
from dp2erm_cvx.steps.sums import TreatmentRate
from dp2erm_cvx.steps.weights import covers, released_minimizer, rests_on_gap
from dp2erm_cvx.universe import Universe


def calibrate_multinomial(objective: Objective, row_bound: float, n_arms: int, budget: Budget) -> Calibration:
    """Gamma noise of Theorem 27: ``scale = sqrt(2) M V / epsilon`` and ``n gamma = 4 M^2 V / epsilon``.

    Half of that ridge for two arms. All of epsilon pays for noise: the curvature vanishes at full slope.
    Raises CalibrationError where the bound does not cover what is declared.
    """
    epsilon, V = budget.epsilon, objective.bound.V
    times = 2.0 if n_arms == 2 else 4.0
    gamma = times * row_bound**2 / objective.n_samples * (V / epsilon) * (1.0 + 4e-12)
    sensitivity = math.sqrt(2.0) * row_bound * V
    setting = f"epsilon = {epsilon:g}, V = {V:g}, M = {row_bound:g}, K = {n_arms}"
    facts = {"sensitivity": sensitivity, "theorem": "Theorem 27 (multinomial)"}
    return objective.calibrated(Noise.GAMMA, budget, sensitivity / epsilon, gamma, setting, **facts)


@dataclass(frozen=True, kw_only=True)
class ArmPropensity(Step):
    """The perturbed multinomial regression of the arm on (1, x), a ``program`` of K arms: its contrasts.

    Pure noise alone; ``numerical_share`` of its budget covers the arithmetic, None where it is assumed.
    """

    name: str = "propensity"
    program: Any
    numerical_share: float | None = None

    @property
    def n_arms(self) -> int:
        """K."""
        return int(self.program.n_arms)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        where = WithConstant().universe(universe)
        n, bound, domain = where.n_samples, where.domain.covariate_bound, where.domain
        left, hidden = (
            (budget, None) if self.numerical_share is None else reserve(budget, self.numerical_share)
        )
        size = math.sqrt(2.0) * bound
        # Hessians have the trace (1 - ||q||^2) ||x||^2
        trace = (1.0 - 1.0 / self.n_arms) * bound**2
        n_parameters = (self.n_arms - 1) * where.n_columns
        loss = LossConstants(n_parameters, size, trace, 0.0, None, size, gradient_bound=size)
        weights = uniform_weights(n, factored=domain.weighted)
        objective = Objective(weights, loss, n, domain.relation, self.program.name)
        calibration = calibrate_multinomial(objective, bound, self.n_arms, left)
        radius = self.program.certified_radius(where, calibration.gamma, noise_bound(calibration))
        precision = covering(calibration, loss, n, radius, hidden)
        planned = replace(self, universe=where, bound=weights, loss=loss, calibration=calibration)
        return replace(planned, radius=radius, precision=precision)

    @property
    def theorem(self) -> str:
        return str(self.calibration.theorem)

    @property
    def predicted_error(self) -> float:
        assert self.loss is not None
        return predicted_error(self.calibration, self.loss, self.universe.n_samples)

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.program,)

    @property
    def certified_by_design(self) -> bool:
        return self.radius is not None

    @property
    def assumptions(self) -> tuple[str, ...]:
        weights = self.bound.assumptions
        return weights if self.precision is not None else (*weights, EXACT_ARITHMETIC)

    def names(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Of the released numbers: contrast j is of the arms up to the j-th one, less the one after it."""
        rows = Rows.POOLED.names(columns)
        return tuple(f"{name} | contrast {j + 1}" for j in range(self.n_arms - 1) for name in rows)

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the contrasts ((K - 1) p,) of the perturbed minimizer."""
        execution = replace(execution, seed=execution.label(self.name))
        records = WithConstant().records(inputs.records, released)
        drawn = sample(self.calibration, self.precision, execution.seed)
        instance = self.program.instance(records, self.calibration.gamma, drawn.value)
        solution = released_minimizer(instance, execution, self.radius)
        theta, certified = solution.point, solution.certified
        if self.precision is not None:
            certified = covers(self.precision, solution, drawn, instance)
            theta = on_grid(theta, self.precision.grid, execution.label("grid"))
        return StepResult(theta, certified, rests_on_gap(solution), solution, drawn.value)


def enters_no_outcome(step: Step) -> bool:
    """Whether a step is a function of covariates, treatments and weights alone, which questions may share."""
    kinds = TreatmentRate | CovariateMean | MeanSquare | ArmPropensity
    return isinstance(step, kinds) or (isinstance(step, Fit) and step.coefficient is not None)
