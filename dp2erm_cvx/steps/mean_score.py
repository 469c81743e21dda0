"""The step that releases an effect: exact sums of a score, with noise on integers (Theorem 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.sums import GridSums
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.number import SumsPlan
from dp2erm_cvx.steps.score import EffectScore
from dp2erm_cvx.steps.step import Step, StepPlan, divide
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
        return self.planned(universe, noise, None, None, self.exact, self.score)

    @property
    def planned(self) -> type[MeanScorePlan]:
        """What it becomes when it is calibrated."""
        return MeanScorePlan


@dataclass(frozen=True)
class RuleValue(MeanScore):
    """What a released rule is worth, from a ``share`` of the budget."""

    name: ClassVar[str] = "value"
    takes_rest: ClassVar[bool] = False

    share: float = 0.1

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        """Pure noise leaves delta to the others."""
        return divide(budget, self.share, self.noise)

    @property
    def planned(self) -> type[MeanScorePlan]:
        return RuleValuePlan


@dataclass(frozen=True)
class MeanScorePlan(SumsPlan):
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

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """Those of the score."""
        return self.score.sums(records, released, self.calibration)


class RuleValuePlan(MeanScorePlan):
    """That of a rule's value."""

    name: ClassVar[str] = "value"
