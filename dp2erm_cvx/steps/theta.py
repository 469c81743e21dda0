"""Theta: a weighted convex program whose objective, or whose minimizer, is perturbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dp2erm_cvx.calibration import (
    EXACT_ARITHMETIC,
    Calibration,
    Calibrator,
    GridNoise,
    Noise,
    Objective,
    OutputCalibration,
    Perturbed,
    RenyiCalibration,
    calibrate_output,
    predicted_error,
)
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants, RenyiCurve, StabilityBound
from dp2erm_cvx.program import FirstStage, SecondStage
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.steps.precision import (
    Precision,
    covering,
    curve_of,
    noise_bound,
    on_grid,
    sample,
    spent_by,
)
from dp2erm_cvx.steps.propensity import PropensityPlan
from dp2erm_cvx.steps.solving import covers, released_minimizer, rests_on_gap
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult, reserve
from dp2erm_cvx.steps.weights import WeightsPlan, plan_weights, weights_one
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class Theta(Step):
    """Theta of ``second`` at the weights of ``first``, by what the other steps leave of the budget.

    Without a first stage the weights are 1.
    """

    name: ClassVar[str] = "theta"
    takes_rest: ClassVar[bool] = True

    first: FirstStage | None
    second: SecondStage
    calibrator: Calibrator
    noise: Noise | str = Noise.GAMMA
    split: float | None = None
    tolerance: float = 0.0
    numerical_share: float | None = None

    def uncountable(self, universe: Universe) -> str | None:
        """The paper's calibrations, and a program that does not say what it is certified to."""
        if self.calibrator.family is BoundFamily.PAPER:
            return "the paper's calibrations assume exact arithmetic"
        if self.second.certified_radius(universe, universe.domain.covariate_bound**2, 0.0) is None:
            return f"{self.second.name} does not state what it is certified to"
        return None

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> ThetaPlan:
        """Calibrate the noise of theta to the bound of its weights."""
        weights, loss = self.weights(universe, earlier), self.loss(universe)
        left, epsilon = budget, 0.0
        if self.numerical_share is not None:
            left, epsilon = reserve(budget, self.numerical_share)
        objective = self._objective(universe, weights, loss)
        calibration, reason = self.calibrator.explained(objective, left, self.noise, self.split)
        if self.numerical_share is not None and isinstance(calibration, OutputCalibration):
            # one discrete draw covers the statistic and its error: nothing has to be set aside
            calibration = calibrate_output(objective, budget)
        hidden = None if self.numerical_share is None else epsilon
        radius, covered = _certified(calibration, self.second, universe, loss, hidden)
        return ThetaPlan(universe, calibration, covered, loss, self.second, weights, radius, reason)

    def weights(self, universe: Universe, earlier: Mapping[str, StepPlan]) -> WeightsPlan:
        """Those of the first stage, 1 without one. Raises CalibrationError where no theorem covers it."""
        propensity = earlier.get("propensity")
        if self.first is None:
            return weights_one(universe.n_samples)
        if isinstance(propensity, PropensityPlan):
            return propensity.weights
        return plan_weights(self.first, universe, self.tolerance, self.calibrator.family)

    def loss(self, universe: Universe) -> LossConstants:
        """What is public of the loss. Raises CalibrationError where a constant is missing."""
        return self.second.loss_constants(universe)

    def _objective(self, universe: Universe, weights: WeightsPlan, loss: LossConstants) -> Objective:
        second, domain = self.second, universe.domain
        restriction = None
        try:
            second.unconstrained()
        except CalibrationError as error:
            restriction = str(error)
        weighting = "weights 1" if self.first is None else self.first.name
        names = (second.name, weighting, type(second.feasible(domain)).__name__)
        return Objective(weights.bound, loss, universe.n_samples, domain.relation, *names, restriction)


@dataclass(frozen=True)
class ThetaPlan(StepPlan):
    """The calibrated theta, at what is planned for its ``weights``.

    ``radius`` is what theta is certified to on every dataset, counted or not; None where that is not known.
    """

    name: ClassVar[str] = "theta"

    calibration: Calibration | OutputCalibration
    loss: LossConstants
    second: SecondStage
    weights: WeightsPlan
    radius: float | None = None
    reason: str = ""

    @property
    def bound(self) -> StabilityBound:
        """That of the weights."""
        return self.weights.bound

    @property
    def theorem(self) -> str:
        """That of its calibration."""
        return self.calibration.theorem

    @property
    def guarantee(self) -> Budget:
        """What theta spends, its arithmetic included."""
        if isinstance(self.calibration, OutputCalibration):
            return Budget(self.calibration.epsilon)
        return spent_by(self.calibration, self.precision)

    @property
    def perturbed(self) -> Perturbed:
        """The objective, that over all of R^p (Theorem 7), or the minimizer (Theorem 8)."""
        if isinstance(self.calibration, OutputCalibration):
            return Perturbed.OUTPUT
        unconstrained = isinstance(self.calibration, RenyiCalibration)
        return Perturbed.UNCONSTRAINED if unconstrained else Perturbed.OBJECTIVE

    @property
    def grid(self) -> GridNoise | None:
        """The noise that covers the arithmetic of theta."""
        return None if self.precision is None else self.precision.grid

    @property
    def program(self) -> SecondStage:
        """The second stage as it is solved: without its set where theta is projected afterwards."""
        return self.second if self.perturbed is Perturbed.OBJECTIVE else self.second.unconstrained()

    @property
    def predicted_error(self) -> float:
        """Predicted excess of the second-stage objective, by noise and gamma."""
        return predicted_error(self.calibration, self.loss, self.universe.n_samples)

    @property
    def curve(self) -> RenyiCurve | None:
        """The curve of Theorem 7 or 16, its arithmetic included."""
        return curve_of(self.calibration, self.precision)

    def perturbed_by(self, calibration: Calibration, hidden: float | None) -> Self:
        """The same program with other noise, certified and covered anew by ``hidden`` of epsilon."""
        radius, covered = _certified(calibration, self.second, self.universe, self.loss, hidden)
        return replace(self, calibration=calibration, radius=radius, precision=covered)

    @property
    def certified_by_design(self) -> bool:
        """Whether public bounds say what both stages are certified to on every dataset of the universe."""
        return self.weights.known and self.radius is not None

    @property
    def programs(self) -> tuple[Program, ...]:
        first = () if self.weights.program is None else (self.weights.program,)
        return (*first, self.second)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee rests on: the bound, and how numerical error enters.

        That of the weights enters V, that of theta is covered by noise of its own.
        """
        weights = self.weights.assumption
        if self.precision is None:
            told = self.weights.tolerance
            within = f"{told:g} relative" if self.radius is None else f"within {self.radius:.3g}"
            numerics = (f"{weights}; theta is certified to {within}", EXACT_ARITHMETIC)
        else:
            counted = f"theta is within {self.precision.tolerance:.3g} of the exact one"
            hidden = f"2 x {self.precision.grid.epsilon:.3g} of epsilon hides"
            if self.perturbed is Perturbed.OUTPUT:
                hidden = "its discrete Laplace noise covers"
            numerics = (weights, f"arithmetic is counted: {counted}, which {hidden}")
        return (*self.bound.assumptions, *numerics)

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release theta (p,), projected to its set."""
        assert inputs.weights is not None
        found = self.minimize(inputs.records, inputs.weights.value, execution)
        assert found.solution is not None
        # no weights of sum n move more than 2n, whether or not they are the minimizer
        judged = [] if self.weights.covers_all else [inputs.weights]
        return replace(
            found,
            certified=found.certified and all(weights.certified for weights in judged),
            by_gap=any(rests_on_gap(solution) for solution in (*judged, found.solution)),
        )

    def minimize(self, records: Records, weights: Array, execution: Execution) -> StepResult:
        """Release theta at weights (n,): noise is added to what is minimized, or to the minimizer."""
        step = self._mean if isinstance(self.calibration, OutputCalibration) else self._minimizer
        found = step(records, weights, execution)
        theta_set = self.second.feasible(self.universe.domain)
        return replace(found, released=theta_set.project(found.released))  # post-processing

    def _mean(self, records: Records, weights: Array, execution: Execution) -> StepResult:
        """Theorem 8: noise is added to the solution."""
        assert isinstance(self.calibration, OutputCalibration)
        instance = self.program.instance(records, weights, gamma=0.0)
        solution = released_minimizer(instance, execution, self.radius)
        if self.precision is None:
            theta = solution.value + sample(self.calibration.law, None, execution.seed).noise
        else:
            theta = on_grid(solution.value, self.precision.grid, execution.seed)
        return StepResult(theta, solution.certified, False, solution, theta - solution.value)

    def _minimizer(self, records: Records, weights: Array, execution: Execution) -> StepResult:
        """Theorems 1, 2 and 7: noise is a linear term of the objective."""
        assert isinstance(self.calibration, Calibration)
        drawn = sample(self.calibration, self.precision, execution.seed)
        instance = self.program.instance(records, weights, gamma=self.calibration.gamma, noise=drawn.noise)
        solution = released_minimizer(instance, execution, self.radius)
        if self.precision is None:
            return StepResult(solution.value, solution.certified, False, solution, drawn.noise)
        certified = covers(self.precision, solution, drawn, instance)
        theta = on_grid(solution.value, self.precision.grid, execution.label("grid"))
        return StepResult(theta, certified, False, solution, drawn.noise)


def _certified(
    calibration: Calibration | OutputCalibration,
    second: SecondStage,
    universe: Universe,
    loss: LossConstants,
    hidden: float | None,
) -> tuple[float | None, Precision | None]:
    """What theta is certified to, and what covers its arithmetic by ``hidden`` of epsilon."""
    if isinstance(calibration, OutputCalibration):
        radius = second.unconstrained().certified_radius(universe, 0.0, 0.0)
    else:
        program = second.unconstrained() if isinstance(calibration, RenyiCalibration) else second
        radius = program.certified_radius(universe, calibration.gamma, noise_bound(calibration))
    return radius, covering(calibration, loss, universe.n_samples, radius, hidden)
