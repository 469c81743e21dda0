"""The effects that a score may be of: of all, of the treated, where arms overlap, risks, and of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp2erm_cvx.calibration import (
    ArmNoise,
    ContrastNoise,
    Noise,
    OverlapNoise,
    ScoreNoise,
    TreatedNoise,
    calibrate_arms,
    calibrate_contrasts,
    calibrate_overlap,
    calibrate_score,
    calibrate_treated,
)
from dp2erm_cvx.calibration.grid_sums import GridSums
from dp2erm_cvx.domain import Array, cleaned
from dp2erm_cvx.mechanism import arm_sums, contrast_sums, overlap_sums, score_sums, treated_sums
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.rule_nuisances import RuleNuisances
from dp2erm_cvx.steps.score import EffectScore, Parts


@dataclass(frozen=True)
class AverageScore(EffectScore):
    """``m_1 - m_0 + s f r``: augmented inverse propensity weighting, for the average effect."""

    estimand: ClassVar[str] = "ate"
    law: ClassVar[type[GridSums]] = ScoreNoise
    within: ClassVar[bool] = True

    def unweighted_noise(self, n_samples: int, budget: Budget, noise: Noise | str) -> GridSums:
        return calibrate_score(self.bound, n_samples, budget, noise)

    def unweighted_sums(self, parts: Parts, noise: Any) -> tuple[int, ...]:
        return score_sums(self.score(parts), noise)

    def score(self, parts: Parts) -> Array:
        m_0, m_1, center, e, treated, r, _ = parts
        return self.clipped(m_1 - m_0 - center, np.where(treated, r / e, -r / (1.0 - e)))


@dataclass(frozen=True)
class TreatedScore(EffectScore):
    """``a (m_1 - m_0 - c_0) + (a - (1 - a) o) r``, o the odds e/(1 - e): for the effect among the treated.

    Its mean is released with the number of treated, and their ratio is the effect. But for the clips m_1
    cancels, which is there so that the residual of a treated record does not hold the effect.
    """

    estimand: ClassVar[str] = "att"
    law: ClassVar[type[GridSums]] = TreatedNoise

    def capped(self, propensity: Array) -> Array:
        """A propensity (n,) of at most 1 - 1/F: small odds take weight from the hardly ever treated."""
        return np.minimum(cleaned(propensity - 0.5, 0.5) + 0.5, 1.0 - 1.0 / self.cap)

    def unweighted_noise(self, n_samples: int, budget: Budget, noise: Noise | str) -> GridSums:
        return calibrate_treated(self.bound, n_samples, budget, noise)

    def unweighted_sums(self, parts: Parts, noise: Any) -> tuple[int, ...]:
        return treated_sums(self.score(parts), parts.treated, noise)

    def score(self, parts: Parts) -> Array:
        m_0, m_1, center, e, treated, r, _ = parts
        predicted = np.where(treated, m_1 - m_0 - center, 0.0)
        return self.clipped(predicted, np.where(treated, r, -r * (e / (1.0 - e))))

    def share(self, parts: Parts) -> Array:
        return parts.treated.astype(np.float64)


@dataclass(frozen=True)
class OverlapScore(EffectScore):
    """``h (m_1 - m_0 - c_0) + s f r``, ``h = min(e, 1 - e)``, with matching factors ``f = h / P(A = a | x)``.

    For the effect in the population where either treatment is likely: no factor exceeds 1 (Theorem 13), and
    the mean is released with that of h, whose ratio is the effect.
    """

    estimand: ClassVar[str] = "overlap"
    law: ClassVar[type[GridSums]] = OverlapNoise
    largest_share: ClassVar[float] = 0.5

    def unweighted_noise(self, n_samples: int, budget: Budget, noise: Noise | str) -> GridSums:
        return calibrate_overlap(self.bound, n_samples, budget, noise)

    def unweighted_sums(self, parts: Parts, noise: Any) -> tuple[int, ...]:
        return overlap_sums(self.score(parts), self.share(parts), noise)

    def score(self, parts: Parts) -> Array:
        m_0, m_1, center, e, treated, r, _ = parts
        share = self.share(parts)
        factor = share / np.where(treated, e, 1.0 - e)
        return self.clipped(share * (m_1 - m_0 - center), np.where(treated, factor * r, -factor * r))

    def share(self, parts: Parts) -> Array:
        return np.minimum(parts.e, 1.0 - parts.e)


@dataclass(frozen=True)
class RiskScores(EffectScore):
    """``m_a + 1{A = a} f r`` of both arms: for risks, their difference, their ratio and the odds ratio.

    ``other_bound`` is G, which a prediction for the other arm is clipped to: the outcome bound is enough.
    """

    estimand: ClassVar[str] = "risks"
    law: ClassVar[type[GridSums]] = ArmNoise

    other_bound: float = 0.5

    def unweighted_noise(self, n_samples: int, budget: Budget, noise: Noise | str) -> GridSums:
        return calibrate_arms(self.bound, self.other_bound, n_samples, budget, noise)

    def unweighted_sums(self, parts: Parts, noise: Any) -> tuple[int, ...]:
        return arm_sums(*self._arms(parts), parts.treated, noise)

    def score(self, parts: Parts) -> Array:
        score_1, score_0 = self._arms(parts)
        difference: Array = score_1 - score_0 - parts.center
        return difference

    def _arms(self, parts: Parts) -> tuple[Array, Array]:
        m_0, m_1, _, e, treated, r, _ = parts
        score_1 = self.clipped(m_1, np.where(treated, r / e, 0.0))
        return score_1, self.clipped(m_0, np.where(treated, 0.0, r / (1.0 - e)))


@dataclass(frozen=True)
class ValueScore(AverageScore):
    """Gains of a released rule over treating nobody and over treating everybody, per record.

    The score of the average effect, without a center, counts for the first where the rule treats, and its
    negative for the second where it does not. Every record adds to one of the two.
    """

    estimand: ClassVar[str] = "value"
    law: ClassVar[type[GridSums]] = ContrastNoise

    nuisances: RuleNuisances
    center: float | None = 0.0

    def unweighted_noise(self, n_samples: int, budget: Budget, noise: Noise | str) -> GridSums:
        return calibrate_contrasts(self.bound, n_samples, budget, noise)

    def unweighted_sums(self, parts: Parts, noise: Any) -> tuple[int, ...]:
        assert parts.effect is not None
        treats, score = parts.effect > 0, self.score(parts)
        return contrast_sums(np.where(treats, score, -score), treats, noise)
