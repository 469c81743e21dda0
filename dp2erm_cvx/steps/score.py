"""Effects as means of one score per record, given released nuisances (Theorems 10 and 12)."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp2erm_cvx.calibration import (
    ArmNoise,
    Noise,
    ScoreNoise,
    TreatedNoise,
    calibrate_arms,
    calibrate_score,
    calibrate_treated,
)
from dp2erm_cvx.calibration.grid_sums import GridSums
from dp2erm_cvx.domain import Array, Records, cleaned
from dp2erm_cvx.mechanism import arm_sums, score_sums, treated_sums
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_number, public_size
from dp2erm_cvx.steps.nuisances import Nuisances

Released = Mapping[str, Array]


@dataclass(frozen=True)
class EffectScore(abc.ABC):
    """What is summed about every record, with public clips; a concrete estimand comes on top.

    Parameters
    ----------
    nuisances
        m_a(x) and e(x), given what was released.
    cap
        F of at least 2: e is clipped to [1/F, 1 - 1/F], so that no factor exceeds F.
    residual_bound
        M_r: the residual ``y - m_a(x)`` is clipped to [-M_r, M_r], after the subtraction.
    bound
        B, which the score less its ``center`` is clipped to.
    center
        c_0, a public guess of what is estimated.
    """

    #: What is estimated, as it is declared.
    estimand: ClassVar[str]

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

    @abc.abstractmethod
    def calibrate(self, n_samples: int, budget: Budget, noise: Noise | str) -> GridSums:
        """The noise of the sums, by the bounds of the score alone."""

    @abc.abstractmethod
    def sums(self, records: Records, released: Released, noise: Any) -> tuple[int, ...]:
        """The exact sums, before their noise. Private."""

    def regressions(self, records: Records, released: Released) -> tuple[Array, Array]:
        """m_0 and m_1 (n,) at every record."""
        x, ones = records.covariates, np.ones(records.n_samples)
        return self.nuisances.outcome(x, 0.0 * ones, released), self.nuisances.outcome(x, ones, released)

    def propensity(self, records: Records, released: Released) -> Array:
        """E (n,) between 1/F and 1 - 1/F."""
        found = self.nuisances.propensity(records.covariates, released)
        return cleaned(found - 0.5, 0.5 - 1.0 / self.cap) + 0.5

    def residual(self, records: Records, predicted: Array) -> Array:
        """``y`` less what was predicted (n,), clipped after the subtraction."""
        with np.errstate(over="ignore", invalid="ignore"):
            return cleaned(records.y - predicted, self.residual_bound)


@dataclass(frozen=True)
class AverageScore(EffectScore):
    """``m_1 - m_0 + s f r``: augmented inverse propensity weighting, for the average effect."""

    estimand: ClassVar[str] = "ate"

    def calibrate(self, n_samples: int, budget: Budget, noise: Noise | str) -> ScoreNoise:
        return calibrate_score(self.bound, n_samples, budget, noise)

    def sums(self, records: Records, released: Released, noise: ScoreNoise) -> tuple[int, ...]:
        return score_sums(self.of(records, released), noise)

    def of(self, records: Records, released: Released) -> Array:
        """The score (n,) less its center, before it is clipped to B; row by row. Private."""
        m_0, m_1 = self.regressions(records, released)
        e, treated = self.propensity(records, released), records.a == 1
        r = self.residual(records, np.where(treated, m_1, m_0))
        with np.errstate(over="ignore", invalid="ignore"):
            score: Array = (m_1 - m_0) + np.where(treated, r / e, -r / (1.0 - e)) - self.center
        return score


@dataclass(frozen=True)
class TreatedScore(EffectScore):
    """``(a - (1 - a) o) (y - m_0) - c_0 a``, o the odds e/(1 - e): for the effect among the treated.

    Its mean is released with the number of treated, and their ratio is the effect.
    """

    estimand: ClassVar[str] = "att"

    def calibrate(self, n_samples: int, budget: Budget, noise: Noise | str) -> TreatedNoise:
        return calibrate_treated(self.bound, n_samples, budget, noise)

    def sums(self, records: Records, released: Released, noise: TreatedNoise) -> tuple[int, ...]:
        m_0, _ = self.regressions(records, released)
        e, r = self.propensity(records, released), self.residual(records, m_0)
        score = np.where(records.a == 1, r - self.center, -r * (e / (1.0 - e)))
        return treated_sums(score, records.a, noise)


@dataclass(frozen=True)
class RiskScores(EffectScore):
    """``m_a + 1{A = a} f r`` of both arms: for risks, their difference, their ratio and the odds ratio.

    ``other_bound`` is G, which a prediction for the other arm is clipped to: the outcome bound is enough.
    """

    estimand: ClassVar[str] = "risks"

    other_bound: float = 0.5

    def calibrate(self, n_samples: int, budget: Budget, noise: Noise | str) -> ArmNoise:
        return calibrate_arms(self.bound, self.other_bound, n_samples, budget, noise)

    def sums(self, records: Records, released: Released, noise: ArmNoise) -> tuple[int, ...]:
        m_0, m_1 = self.regressions(records, released)
        e, treated = self.propensity(records, released), records.a == 1
        r = self.residual(records, np.where(treated, m_1, m_0))
        with np.errstate(over="ignore", invalid="ignore"):
            score_1 = m_1 + np.where(treated, r / e, 0.0)
            score_0 = m_0 + np.where(treated, 0.0, r / (1.0 - e))
        return arm_sums(score_1, score_0, records.a, noise)
