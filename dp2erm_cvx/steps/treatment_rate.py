"""A constant propensity: the number of treated records with noise, which n is public for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp2erm_cvx.calibration import IntegerNoise, Noise, calibrate_integers
from dp2erm_cvx.domain import Array
from dp2erm_cvx.mechanism import perturb_integers
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.number import NumberPlan
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult, divide
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class TreatmentRate(Step):
    """The number of treated records, from a ``share`` of the budget: one replacement moves it by 1."""

    name: ClassVar[str] = "propensity"

    share: float
    noise: Noise | str = Noise.GAMMA
    exact: bool = True

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        return divide(budget, self.share, self.noise)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> TreatmentRatePlan:
        noise = calibrate_integers(1, budget, self.noise)
        return TreatmentRatePlan(universe, noise, None, None, self.exact)


@dataclass(frozen=True)
class TreatmentRatePlan(NumberPlan):
    """The calibrated count."""

    name: ClassVar[str] = "propensity"

    calibration: IntegerNoise

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the treated share."""
        return 2.0 * (self.calibration.scale / self.universe.n_samples) ** 2

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the noisy number (1,) of treated records."""
        treated, seed = int(inputs.records.a.sum()), execution.label(self.name)
        noised = perturb_integers((treated,), self.calibration, exact=self.exact, seed=seed)
        return StepResult(np.array(noised, dtype=np.int64))
