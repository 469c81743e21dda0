"""The perturbed minimizer of a weighted program: theta, a regression, or a propensity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import (
    EXACT_ARITHMETIC,
    Calibration,
    MarginCalibration,
    Noise,
    Objective,
    Perturbed,
    calibrate_output,
    predicted_error,
)
from dp2erm_cvx.calibration.numbers import GridNoise
from dp2erm_cvx.calibration.profiles import LossLaw, relieved
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.data.blocks import Beside
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.noise import Draw
from dp2erm_cvx.paper import BoundFamily
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import FirstStage, Instance, PrivateFirstStage, SecondStage
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.solve import Solution
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.steps.calibrators import Calibrator, calibrator
from dp2erm_cvx.steps.covariates import CovariateMean, DifferenceSquare, MeanSquare
from dp2erm_cvx.steps.execution import Execution, Inputs, StepResult
from dp2erm_cvx.steps.record_map import OutcomeRows, Rows, WithConstant
from dp2erm_cvx.steps.step import Precision, Step, noise_bound, reserve, sample
from dp2erm_cvx.steps.sums import TreatmentRate
from dp2erm_cvx.steps.weights import WeightsPlan, released_minimizer, to_grid


@dataclass(frozen=True, kw_only=True)
class Fit(Step):
    """The perturbed minimizer of a ``program``, released.

    Parameters
    ----------
    program
        A second stage; or a private first stage, whose coefficient is released at weights 1
        (Theorem 9).
    first
        The first stage whose weights the minimizer is at. Without one every record counts 1, or its
        own factor.
    map
        What every record goes through first (Theorem 10), None for nothing.
    calibrator
        How the noise is calibrated.
    split
        The share of epsilon that pays for the noise; None: chosen in public.
    tolerance
        The relative error of the weights at a coefficient that V counts.
    family
        Whose bounds on V are taken.
    either
        Whether gamma noise, at the declared ``split``, takes the place of Gaussian noise, at its
        own, where it is predicted to err less.
    """

    program: SecondStage | PrivateFirstStage
    first: FirstStage | None = None
    map: OutcomeRows | None = None
    calibrator: Calibrator = calibrator("sharp")
    split: float | None = None
    tolerance: float = 0.0
    family: BoundFamily = BoundFamily.SHARP
    either: bool = False

    @property
    def coefficient(self) -> PrivateFirstStage | None:
        """The private first stage whose coefficient it releases, None for a second stage."""
        return None if isinstance(self.program, SecondStage) else self.program

    @property
    def second(self) -> SecondStage:
        """The second stage that it solves."""
        assert isinstance(self.program, SecondStage)
        return self.program

    @property
    def weighted(self) -> bool:
        return self.first is not None

    @property
    def regression(self) -> OutcomeRows | None:
        return None if self.coefficient is not None else self.map

    @property
    def counted(self) -> bool:
        # a curvature too small for floating point leaves the precision out
        return self.precision is not None

    def uncountable(self, universe: MappedUniverse) -> str | None:
        """The paper's calibrations, and a program that does not say what it is certified to."""
        where = universe if self.map is None else self.map.universe(universe)
        if self.coefficient is None and self.calibrator.family is BoundFamily.PAPER:
            return "the paper's calibrations assume exact arithmetic"
        program = self.program.at(where)
        if program.certified_radius(where, where.space.covariate_bound**2, 0.0) is None:
            return f"{self.program.name} does not state what it is certified to"
        return None

    def plan(self, universe: MappedUniverse, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        """Calibrate the noise on the mapped records, whatever the earlier steps release.

        Theorem 10 is about such steps.
        """
        where = universe if self.map is None else self.map.universe(universe)
        if not self.either or Noise(self.noise).pure:
            return self._planned(where, budget, self.noise, earlier)
        # delta is no reason for more noise
        impure = replace(self, split=None)._planned(where, budget, self.noise, earlier)
        pure = self._planned(where, budget, Noise.GAMMA, earlier)
        return pure if pure.predicted_error < impure.predicted_error else impure

    def _planned(
        self, where: MappedUniverse, budget: Budget, law: Noise | str, earlier: Mapping[str, Step]
    ) -> Self:
        """The step, calibrated on mapped records with noise of this law."""
        program = self.program.at(where)
        weights = self._weights(where, earlier)
        loss = program.loss_constants(where)
        if self.first is None and self._factored(where):
            loss = loss.factored()
        left, hidden = reserve(budget, self.numerical_share)
        objective = self._objective(program, weights, loss, where)
        calibration, reason = self._calibration(objective, left, law, where.space.covariate_bound)
        if hidden is not None and calibration.perturbed is Perturbed.OUTPUT:
            # one discrete draw covers the statistic and its error: nothing has to be set aside
            calibration = calibrate_output(objective, budget)
        if self.map is not None:
            reason = f"regressions on mapped records take calibration = {self.calibrator.name!r}"
        fit = replace(
            self,
            program=program,
            universe=where,
            loss=loss,
            weights=weights,
            bound=weights.bound,
            reason=None if self.coefficient is not None else reason,
        )
        fit = fit.perturbed_by(calibration, hidden)
        if not isinstance(program, PrivateFirstStage):
            return fit
        grid = None if fit.precision is None else fit.precision.grid
        norm = coefficient_bound(calibration, loss, where.n_samples, grid)
        at_coefficient = WeightsPlan.of(program, where, self.tolerance, self.family, norm)
        return replace(fit, weights=at_coefficient)

    def _objective(
        self,
        program: SecondStage | PrivateFirstStage,
        weights: WeightsPlan,
        loss: LossConstants,
        where: MappedUniverse,
    ) -> Objective:
        """What is public of the objective that is perturbed."""
        objective = Objective(
            weights.bound, loss, where.n_samples, where.space.relation, program.name
        )
        if self.map is not None:
            objective = replace(objective, blocks=self.map.blocks)
        if not isinstance(program, SecondStage):
            return objective
        return replace(
            objective,
            weights="weights 1" if self.first is None else self.first.name,
            theta_set=type(program.feasible(where.space)).__name__,
            restriction=_restriction(program),
        )

    def _calibration(
        self, objective: Objective, budget: Budget, law: Noise | str, row_bound: float
    ) -> tuple[Calibration, str]:
        return self.calibrator.explained(objective, budget, law, self.split)

    def _factored(self, where: MappedUniverse) -> bool:
        """True if a record may count less than 1."""
        return where.space.weighted or (self.map is not None and self.map.factored)

    def _weights(self, where: MappedUniverse, earlier: Mapping[str, Step]) -> WeightsPlan:
        """Weights of the first stage.

        Those of a private one were planned by the step ``propensity``, with its coefficient, and
        are taken from there. Raises CalibrationError where no theorem covers the first stage.
        """
        if self.first is None:
            n = where.n_samples
            return WeightsPlan(None, uniform_weights(n, factored=self._factored(where)), 0.0, n)
        at = earlier.get("propensity")
        if at is not None and at.weights is not None:
            return at.weights
        return WeightsPlan.of(self.first, where, self.tolerance, self.calibrator.family)

    def relieved(self, relief: float) -> Self:
        if self.loss is None or not isinstance(self.calibration, MarginCalibration):
            return self
        less = relieved(self.calibration, relief, self.loss.strong_convexity)
        hidden = None if self.precision is None else self.precision.grid.epsilon
        return self.perturbed_by(less, hidden)

    def perturbed_by(self, calibration: Calibration, hidden: float | None) -> Self:
        """A step with other noise, certified and covered anew by ``hidden`` of epsilon."""
        program = self.program
        if isinstance(program, SecondStage) and calibration.perturbed is not Perturbed.OBJECTIVE:
            program = program.unconstrained()
        gamma = 0.0
        longest_noise = 0.0
        if calibration.perturbed is not Perturbed.OUTPUT:
            gamma = calibration.gamma
            longest_noise = noise_bound(calibration)
        radius = program.certified_radius(self.universe, gamma, longest_noise)
        precision = None  # exact arithmetic is assumed
        if hidden is not None and radius is not None:
            precision = Precision.covering(
                calibration, self.loss, self.universe.n_samples, radius, hidden
            )
        return replace(self, calibration=calibration, radius=radius, precision=precision)

    @property
    def theorem(self) -> str:
        return str(self.calibration.theorem)

    @property
    def predicted_error(self) -> float:
        return predicted_error(self.calibration, self.loss, self.universe.n_samples)

    @property
    def loss_law(self) -> LossLaw | None:
        """Law of Theorem 16 for a loss that saturates.

        There is none where weights are planned from its noise.
        """
        return None if self.map is None else _saturating_law(self.calibration)

    @property
    def programs(self) -> tuple[Program, ...]:
        if self.coefficient is not None or self.weights is None or self.weights.program is None:
            return (self.program,)
        return (self.weights.program, self.program)

    @property
    def certified_by_design(self) -> bool:
        """True if the step is certified on every dataset, or all weights at its coefficient."""
        if self.coefficient is not None and self.map is not None:
            return self.radius is not None
        return self.weights.known and (self.coefficient is not None or self.radius is not None)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The bound, and how numerical error enters: of weights V, of theta noise of its own."""
        if self.coefficient is not None:
            return ()
        weights = self.weights.assumption
        if self.precision is None:
            limit = self.weights.tolerance
            within = f"{limit:g} relative" if self.radius is None else f"within {self.radius:.3g}"
            numerics = (f"{weights}; theta is certified to {within}", EXACT_ARITHMETIC)
        else:
            counted = f"theta is within {self.precision.tolerance:.3g} of the exact one"
            hidden = f"2 x {self.precision.grid.epsilon:.3g} of epsilon hides"
            if self.perturbed is Perturbed.OUTPUT:
                hidden = "its discrete Laplace noise covers"
            numerics = (weights, f"arithmetic is counted: {counted}, which {hidden}")
        return (*self.bound.assumptions, *numerics)

    def mapped(
        self, records: Records, released: Mapping[str, Array]
    ) -> tuple[Records, Beside | None]:
        """The records that the program is solved on, and the factors (n,) of a second stage."""
        if self.map is None:
            return records, None
        where = self.map.at(released, records.n_samples)
        mapped = where.records(records, released)
        if self.coefficient is not None:  # which knows by itself what records count
            return mapped, None
        return mapped, records.column(partial(where.factors, released=released))

    def solved(self) -> SecondStage:
        """The second stage as it is solved: without its set where theta is projected afterwards."""
        return self.second if self.perturbed is Perturbed.OBJECTIVE else self.second.unconstrained()

    def instance(
        self, records: Records, weights: Beside | None, noise: Array | None = None
    ) -> Instance:
        """The program that is solved at weights (n,) and ``noise`` (p,), on mapped records."""
        gamma = self.calibration.gamma
        if self.coefficient is not None:
            assert noise is not None
            return self.coefficient.perturbed(records, gamma, noise)
        assert weights is not None
        return self.solved().instance(records, weights, gamma=gamma, noise=noise)

    def run(
        self, inputs: Inputs, released: Mapping[str, Array], execution: Execution
    ) -> StepResult:
        """Release the minimizer (p,).

        Noise is a linear term of the objective, or added to the minimizer.
        """
        weights: Beside | None
        if self.weighted:
            assert inputs.weights is not None
            records, weights = inputs.records, inputs.weights.value
        else:  # no two draws of a run may share their bits
            execution = replace(execution, seed=execution.label(self.name))
            records, weights = self.mapped(inputs.records, released)
        out = self._solved(records, weights, execution)
        if self.coefficient is not None:
            return out
        out = replace(out, released=self.second.feasible(self.universe.space).project(out.released))
        if self.regression is not None:
            theta = self.regression.unscaled(out.released, inputs.records.n_features)
            return replace(out, released=theta)  # all of it post-processing
        # no weights of sum n move more than 2n, whether or not they are the minimizer
        if inputs.weights is not None and self.weights is not None and not self.weights.covers_all:
            certified = out.certified and inputs.weights.certified
            out = replace(out, certified=certified, by_gap=out.by_gap or _by_gap(inputs.weights))
        return out

    def _solved(self, records: Records, weights: Beside | None, execution: Execution) -> StepResult:
        """The minimizer with its noise, before it is projected.

        Noise is added to the solution (Theorem 8), or a linear term of the objective (Theorems 1,
        2, 7 and 9).
        """
        if self.perturbed is Perturbed.OUTPUT:
            return self._perturbed_output(self.instance(records, weights), execution)
        drawn = sample(self.calibration, self.precision, execution.seed)
        instance = self.instance(records, weights, drawn.value)
        if self.coefficient is not None and self.map is None and self.precision is None:
            return self._exact_coefficient(instance, drawn, execution)
        # a coefficient is published itself, whatever V covers, and no weights are read here
        is_theta = self.coefficient is None
        solution = released_minimizer(instance, execution, self.radius, outputs=is_theta)
        theta = solution.value if is_theta else solution.point
        certified = solution.certified
        if self.precision is not None:
            certified = self.precision.covers(solution, drawn, instance)
            seed = execution.label("grid")
            if isinstance(self.program, PrivateFirstStage) and seed is not None:
                # the label of this draw is older than the step
                seed = seed.replace("grid propensity", "propensity grid")
            theta = self.precision.on_grid(theta, seed)
        return StepResult(theta, certified, _by_gap(solution), solution, drawn.value)

    def _perturbed_output(self, instance: Instance, execution: Execution) -> StepResult:
        """The minimizer, to which noise is added (Theorem 8)."""
        solution = released_minimizer(instance, execution, self.radius)
        if self.precision is None:
            theta = solution.value + sample(self.calibration, None, execution.seed).value
        else:
            theta = self.precision.on_grid(solution.value, execution.seed)
        noise = theta - solution.value
        return StepResult(theta, solution.certified, _by_gap(solution), solution, noise)

    def _exact_coefficient(
        self, instance: Instance, drawn: Draw, execution: Execution
    ) -> StepResult:
        """A coefficient as if it were the exact minimizer.

        Weights within the tolerance of its own stand for that; where V covers all weights none have
        to be certified.
        """
        solution = released_minimizer(instance, execution, None)
        weights = to_grid(solution)
        needed = not self.weights.covers_all
        certified = weights.certified or not needed
        by_gap = needed and _by_gap(weights)
        return StepResult(solution.point, certified, by_gap, solution, drawn.value)


def calibrate_multinomial(
    objective: Objective, row_bound: float, n_arms: int, budget: Budget
) -> Calibration:
    """Gamma noise of Theorem 27.

    Its scale is ``sqrt(2) M V / epsilon``, and ``n gamma = 4 M^2 V / epsilon``, half of that for
    two arms. All of epsilon pays for noise: the curvature vanishes at full slope.

    Parameters
    ----------
    objective
        What is public of the objective.
    row_bound
        M, bound on the norm of a row.
    n_arms
        Number of arms.
    budget
        What may be spent.

    Raises
    ------
    CalibrationError
        Where the bound does not cover what is declared.
    """
    epsilon = budget.epsilon
    V = objective.bound.V
    times = 2.0 if n_arms == 2 else 4.0
    gamma = times * row_bound**2 / objective.n_samples * (V / epsilon) * (1.0 + 4e-12)
    sensitivity = math.sqrt(2.0) * row_bound * V
    return objective.calibrated(
        Noise.GAMMA,
        budget,
        sensitivity / epsilon,
        gamma,
        sensitivity=sensitivity,
        theorem="Theorem 27 (multinomial)",
    )


@dataclass(frozen=True, kw_only=True)
class ArmPropensity(Fit):
    """The multinomial regression of the arm on (1, x), a ``program`` of K > 2 arms: its contrasts.

    Its noise is pure.
    """

    name: str = "propensity"
    program: Any
    map: OutcomeRows | None = WithConstant()

    def _calibration(
        self, objective: Objective, budget: Budget, law: Noise | str, row_bound: float
    ) -> tuple[Calibration, str]:
        calibration = calibrate_multinomial(objective, row_bound, self.program.n_arms, budget)
        return calibration, "Theorem 27"

    @property
    def assumptions(self) -> tuple[str, ...]:
        weights = self.bound.assumptions
        return weights if self.precision is not None else (*weights, EXACT_ARITHMETIC)

    def names(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the released numbers.

        Contrast j is of the first j arms, less the one after them.
        """
        names: list[str] = []
        for contrast in range(1, self.program.n_arms):
            for name in Rows.POOLED.names(columns):
                names.append(f"{name} | contrast {contrast}")
        return tuple(names)


def enters_no_outcome(step: Step) -> bool:
    """True if a step is a function of covariates, treatments and weights alone.

    Questions may share such a step.
    """
    if isinstance(step, Fit):
        return step.coefficient is not None
    return isinstance(step, TreatmentRate | CovariateMean | MeanSquare | DifferenceSquare)


def _by_gap(solution: Solution) -> bool:
    """True if a duality gap alone certifies the solution.

    No public number bounds it on every dataset.
    """
    return solution.certificate.basis == "duality gap"


def _restriction(program: SecondStage) -> str | None:
    """Why a program has no form without its set; None where it has one."""
    try:
        program.unconstrained()
    except CalibrationError as error:
        return str(error)
    return None


def coefficient_bound(
    calibration: Calibration, loss: LossConstants, n_samples: int, grid: GridNoise | None
) -> float:
    """A norm that a private coefficient exceeds with probability less than ``exp(-1500)``.

    That holds for either noise. The noise b moves the minimizer by at most
    ``||b|| / (n (mu + gamma))``; that on the grid is added to it.
    """
    if loss.theta_bound is None:
        return math.inf
    curvature = n_samples * (loss.strong_convexity + calibration.gamma)
    norm = loss.theta_bound + noise_bound(calibration) / curvature
    if grid is not None:
        # the l1 norm of p discrete Laplace variables has the tail of Gamma(p), but for a step of
        # the grid each
        p = grid.n_parameters
        norm += grid.scale * (2.0 * p + 2000.0) + 2.0 * p * math.ldexp(1.0, grid.exponent)
    return norm


def _saturating_law(calibration: object) -> LossLaw | None:
    """Law of Gaussian noise for a loss of a margin whose curvature falls with its slope."""
    if not isinstance(calibration, MarginCalibration) or calibration.jacobian > 0.0:
        return None
    return LossLaw(calibration.sensitivity / calibration.scale, calibration.curvature)
