"""The step that releases an effect: exact sums of a score, with noise on integers (Theorem 12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.grid_sums import GridSums
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.number import NumberPlan
from dp2erm_cvx.steps.score import EffectScore
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class MeanScore(Step):
    """The sums of ``score`` and what its interval needs, by what the other steps leave of the budget."""

    name: ClassVar[str] = "score"
    takes_rest: ClassVar[bool] = True

    score: EffectScore
    noise: Noise | str = Noise.GAMMA
    exact: bool = True

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> MeanScorePlan:
        """Calibrate the noise to the bounds of the score, whatever the nuisances turn out to be."""
        noise = self.score.calibrate(universe.n_samples, budget, self.noise)
        score = replace(self.score, nuisances=self.score.nuisances.planned(earlier))
        return MeanScorePlan(universe, noise, None, None, self.exact, score)


@dataclass(frozen=True)
class MeanScorePlan(NumberPlan):
    """The calibrated noise of all sums."""

    name: ClassVar[str] = "score"

    calibration: GridSums
    score: EffectScore

    @property
    def theorem(self) -> str:
        return f"Theorem 12 ({self.calibration.noise.mechanism} noise, second moment included)"

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the mean."""
        scale = self.calibration.scales[0] ** 2
        return 2.0 * scale if self.calibration.noise is Noise.GAMMA else scale

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the integers of the score."""
        sums = self.score.sums(inputs.records, released, self.calibration)
        return self.noised(sums, self.calibration.integers, execution)
