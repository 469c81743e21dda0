"""The average effect: a mean of one score per record, and its second moment for nothing (Theorem 12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp2erm_cvx.calibration import Noise, ScoreNoise, calibrate_score
from dp2erm_cvx.domain import Array, Records, cleaned
from dp2erm_cvx.mechanism import perturb_integers, score_sums
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_number, public_size
from dp2erm_cvx.steps.nuisances import Nuisances
from dp2erm_cvx.steps.number import NumberPlan
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class EffectScore:
    """``m_1 - m_0 + s f r`` of every record: augmented inverse propensity weighting with public clips.

    Parameters
    ----------
    nuisances
        m_a(x) and e(x), given what was released.
    cap
        F of at least 2: e is clipped to [1/F, 1 - 1/F], so that no factor f exceeds F.
    residual_bound
        M_r: the residual ``y - m_a(x)`` is clipped to [-M_r, M_r], after the subtraction.
    bound
        B, which the score less its ``center`` is clipped to.
    center
        c_0, a public guess of the effect.
    """

    nuisances: Nuisances
    cap: float
    residual_bound: float
    bound: float
    center: float = 0.0

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "cap", public_number("cap", self.cap, at_least=2.0))
        for name in ("residual_bound", "bound"):
            put(self, name, public_size(name, getattr(self, name)))
        put(self, "center", public_number("effect_center", self.center))

    def of(self, records: Records, released: Mapping[str, Array]) -> Array:
        """The score (n,) less its center, before it is clipped to B; row by row. Private."""
        x, treated = records.covariates, records.a == 1
        ones = np.ones(records.n_samples)
        m_0 = self.nuisances.outcome(x, 0.0 * ones, released)
        m_1 = self.nuisances.outcome(x, ones, released)
        e = np.clip(self.nuisances.propensity(x, released), 1.0 / self.cap, 1.0 - 1.0 / self.cap)
        with np.errstate(over="ignore", invalid="ignore"):
            residual = cleaned(records.y - np.where(treated, m_1, m_0), self.residual_bound)
            weighted = np.where(treated, residual / e, -residual / (1.0 - e))
            score: Array = (m_1 - m_0) + weighted - self.center
        return score


@dataclass(frozen=True)
class MeanScore(Step):
    """The mean of ``score`` and its second moment, by what the other steps leave of the budget."""

    name: ClassVar[str] = "score"
    takes_rest: ClassVar[bool] = True

    score: EffectScore
    noise: Noise | str = Noise.GAMMA
    exact: bool = True

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> MeanScorePlan:
        """Calibrate the noise to the bound of the score: no record moves the mean by more than 2B/n."""
        noise = calibrate_score(self.score.bound, universe.n_samples, budget, self.noise)
        return MeanScorePlan(universe, noise, None, None, self.exact, self.score)


@dataclass(frozen=True)
class MeanScorePlan(NumberPlan):
    """The calibrated noise of both sums."""

    name: ClassVar[str] = "score"

    calibration: ScoreNoise
    score: EffectScore

    @property
    def theorem(self) -> str:
        return f"Theorem 12 ({self.calibration.noise.mechanism} noise, second moment included)"

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the mean."""
        scale = self.calibration.mean_scale**2
        return 2.0 * scale if self.calibration.noise is Noise.GAMMA else scale

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the two integers (2,) of the score, in int64."""
        sums = score_sums(self.score.of(inputs.records, released), self.calibration)
        noised = perturb_integers(
            sums, self.calibration.integers, exact=self.exact, seed=execution.label(self.name)
        )
        return StepResult(np.array(noised, dtype=np.int64))
