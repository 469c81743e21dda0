"""Steps that add noise to exact integers: nothing is solved, and nothing has to be certified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.calibration import IntegerNoise, Perturbed, RangeNoise, ScoreNoise
from dp2erm_cvx.privacy import Budget, StabilityBound
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.steps.step import StepPlan


@dataclass(frozen=True)
class NumberPlan(StepPlan):
    """Calibrated noise of a few sums over records; ``exact`` where it is drawn without floating point."""

    weighted: ClassVar[bool] = False

    calibration: IntegerNoise | ScoreNoise | RangeNoise
    exact: bool

    @property
    def bound(self) -> StabilityBound:
        """That of weights 1."""
        return uniform_weights(self.universe.n_samples)

    @property
    def theorem(self) -> str:
        """Laplace or Gaussian noise on integers."""
        return f"{self.calibration.noise.mechanism} noise on integers"

    @property
    def guarantee(self) -> Budget:
        """All numbers together; nothing is rounded after the noise."""
        return Budget(self.calibration.epsilon, self.calibration.delta)

    @property
    def perturbed(self) -> Perturbed:
        """The statistic itself."""
        return Perturbed.OUTPUT

    @property
    def counted(self) -> bool:
        """Whether the noise is exact."""
        return self.exact
