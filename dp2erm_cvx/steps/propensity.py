"""The coefficient of a private first stage: objective perturbation at uniform weights (Theorem 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dp2erm_cvx.calibration import Calibration, Noise, Objective, Perturbed, calibrator, predicted_error
from dp2erm_cvx.calibration.profiles import LossLaw, saturating_law
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants, RenyiCurve, StabilityBound
from dp2erm_cvx.program import PrivateFirstStage
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.stability import own_factors
from dp2erm_cvx.steps.precision import (
    Precision,
    coefficient_bound,
    covering,
    curve_of,
    noise_bound,
    on_grid,
    sample,
    spent_by,
)
from dp2erm_cvx.steps.record_map import RecordMap
from dp2erm_cvx.steps.solving import covers, released_minimizer, rests_on_gap, to_grid
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult, divide, reserve
from dp2erm_cvx.steps.weights import WeightsPlan, plan_weights
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class Propensity(Step):
    """The private coefficient of ``first``, released to the steps that follow.

    ``tolerance`` is the relative error of the weights at it that V counts, by a bound of the ``family``;
    ``numerical_share`` of its budget covers the arithmetic, none of it where exact arithmetic is assumed.
    ``split`` is the share of epsilon that pays for the noise, ``map`` what the records go through first,
    ``share`` what it takes of the budget in place of the share that ``first`` declares. With ``either`` law
    gamma noise takes the place of Gaussian noise where it is predicted to err less.
    """

    name: ClassVar[str] = "propensity"

    first: PrivateFirstStage
    noise: Noise | str = Noise.GAMMA
    tolerance: float = 0.0
    family: BoundFamily = BoundFamily.SHARP
    numerical_share: float | None = None
    split: float | None = None
    map: RecordMap | None = None
    share: float | None = None
    either: bool = False

    def uncountable(self, universe: Universe) -> str | None:
        """A program that does not say what it is certified to."""
        where = universe if self.map is None else self.map.universe(universe)
        if self.first.certified_radius(where, where.domain.covariate_bound**2, 0.0) is None:
            return f"{self.first.name} does not state what it is certified to"
        return None

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        """Pure noise leaves delta to the others."""
        return divide(budget, self.first.share if self.share is None else self.share, self.noise)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> PropensityPlan:
        """Calibrate the noise of the coefficient, and bound the weights at it."""
        if self.either and not Noise(self.noise).pure:
            pure = replace(self, noise=Noise.GAMMA)
            plans = [one._plan(universe, budget) for one in (self, pure)]
            return min(plans, key=lambda plan: plan.predicted_error)
        return self._plan(universe, budget)

    def _plan(self, universe: Universe, budget: Budget) -> PropensityPlan:
        universe = universe if self.map is None else self.map.universe(universe)
        n, epsilon = universe.n_samples, 0.0
        first = self.first.resolve(universe.domain)
        loss, factored = first.loss_constants(universe), universe.domain.weighted
        loss = loss.factored() if factored else loss
        if self.numerical_share is not None:
            budget, epsilon = reserve(budget, self.numerical_share)
        bound = own_factors(n, factored=factored)
        objective = Objective(bound, loss, n, universe.domain.relation, first.name)
        calibration = calibrator("sharp").calibrate(objective, budget, self.noise, self.split)
        assert isinstance(calibration, Calibration)
        hidden = None if self.numerical_share is None else epsilon
        radius, covered = _certified(first, universe, calibration, loss, hidden)
        norm = coefficient_bound(calibration, loss, n, None if covered is None else covered.grid)
        weights = plan_weights(first, universe, self.tolerance, self.family, norm)
        return PropensityPlan(universe, calibration, covered, loss, first, weights, self.map, radius)


@dataclass(frozen=True)
class PropensityPlan(StepPlan):
    """The calibrated coefficient; ``weights`` are those at it, which the later steps use.

    ``radius`` is what the coefficient is certified to on every dataset; None where that is not known.
    """

    name: ClassVar[str] = "propensity"
    weighted: ClassVar[bool] = False

    calibration: Calibration
    loss: LossConstants
    first: PrivateFirstStage
    weights: WeightsPlan
    map: RecordMap | None = None
    radius: float | None = None

    @property
    def bound(self) -> StabilityBound:
        """That of weights 1, or of what every record counts by itself."""
        factored = self.universe.domain.weighted
        return own_factors(self.universe.n_samples, factored=factored)

    @property
    def theorem(self) -> str:
        """That of its calibration."""
        return self.calibration.theorem

    @property
    def guarantee(self) -> Budget:
        """What the coefficient spends, its arithmetic included."""
        return spent_by(self.calibration, self.precision)

    @property
    def curve(self) -> RenyiCurve | None:
        """The curve of Theorem 16, its arithmetic included."""
        return curve_of(self.calibration, self.precision)

    @property
    def loss_law(self) -> LossLaw | None:
        """That of Theorem 16, where the weights at it are not planned from its noise."""
        return None if self.map is None else saturating_law(self.calibration)

    def perturbed_by(self, calibration: Calibration, hidden: float | None) -> Self:
        """The same regression with other noise, certified and covered anew by ``hidden`` of epsilon."""
        radius, covered = _certified(self.first, self.universe, calibration, self.loss, hidden)
        return replace(self, calibration=calibration, radius=radius, precision=covered)

    @property
    def perturbed(self) -> Perturbed:
        """The objective."""
        return Perturbed.OBJECTIVE

    @property
    def predicted_error(self) -> float:
        """Predicted excess of the first-stage objective, by noise and gamma."""
        return predicted_error(self.calibration, self.loss, self.universe.n_samples)

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.first,)

    @property
    def certified_by_design(self) -> bool:
        """Whether the coefficient of mapped records is certified on every dataset, or the weights at it."""
        return self.weights.known if self.map is None else self.radius is not None

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the coefficient (p,)."""
        records = inputs.records
        if self.map is not None:
            records = self.map.records(records, released)
        drawn = sample(self.calibration, self.precision, execution.label("propensity"))
        instance = self.first.perturbed(records, self.calibration.gamma, drawn.noise)
        if self.precision is None:
            # of mapped records the coefficient itself is published, whatever V covers
            if self.map is not None:
                solution = released_minimizer(instance, execution, self.radius)
                by_gap = rests_on_gap(solution)
                return StepResult(solution.point, solution.certified, by_gap, solution, drawn.noise)
            # as the exact minimizer, which weights within the tolerance of its own stand for
            solution = released_minimizer(instance, execution, None)
            judged, needed = to_grid(solution), not self.weights.covers_all
            return StepResult(
                solution.point,
                judged.certified or not needed,
                needed and rests_on_gap(judged),
                solution,
                drawn.noise,
            )
        solution = released_minimizer(instance, execution, self.precision.radius)
        certified = covers(self.precision, solution, drawn, instance)
        coefficient = on_grid(solution.point, self.precision.grid, execution.label("propensity grid"))
        return StepResult(coefficient, certified, False, solution, drawn.noise)


def _certified(
    first: PrivateFirstStage,
    universe: Universe,
    calibration: Calibration,
    loss: LossConstants,
    hidden: float | None,
) -> tuple[float | None, Precision | None]:
    """What the coefficient is certified to, and what covers its arithmetic by ``hidden`` of epsilon."""
    radius = first.certified_radius(universe, calibration.gamma, noise_bound(calibration))
    return radius, covering(calibration, loss, universe.n_samples, radius, hidden)
