"""The effects that a score may be of: of all, of the treated, where arms overlap, risks, and of a rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from dp2erm_cvx.calibration import GridSums, SumLaw
from dp2erm_cvx.domain import Array, Domain, Records, Universe, cleaned
from dp2erm_cvx.steps.nuisances import LinearNuisances, RuleNuisances
from dp2erm_cvx.steps.record_map import Arms, Rows, treated_share
from dp2erm_cvx.steps.score import EffectScore, Parts, Released

_Laws = tuple[SumLaw, SumLaw, SumLaw]


@dataclass(frozen=True)
class AverageScore(EffectScore):
    """``m_1 - m_0 + s f r``: augmented inverse propensity weighting, for the average effect.

    Where treatments may be missing, it is the ratio of two sums over the records that have one.
    """

    estimand: ClassVar[str] = "ate"
    laws: ClassVar[_Laws] = (SumLaw.SCORE, SumLaw.WHOLE, SumLaw.WITHIN)

    def scaled(self, rate: float, domain: Domain) -> Self:
        """B in proportion to the larger inverse of the rate, and F at least four times that."""
        inverse = 1.0 / min(rate, 1.0 - rate)
        return replace(self, widening=min(0.5 * inverse, self.widest), cap=max(self.cap, 4.0 * inverse))

    def score(self, parts: Parts) -> Array:
        m_0, m_1, center, e, treated, r, _ = parts
        return self.clipped(m_1 - m_0 - center, np.where(treated, r / e, -r / (1.0 - e)))


@dataclass(frozen=True)
class GroupScore(AverageScore):
    """The score in each of several groups of records, with the group's own rate as its propensity.

    ``members`` are the scores of all groups in their order, once their rates are released.
    """

    laws: ClassVar[_Laws] = (SumLaw.WHOLE_GROUPS, SumLaw.WHOLE_GROUPS, SumLaw.GROUPS)
    price: ClassVar[float] = 1.25
    propensities: ClassVar[tuple[float, ...]] = (0.0,)

    members: tuple[AverageScore, ...] = ()

    def at(self, where: Universe | Records, released: Released) -> Self:
        score, n_groups = super().at(where, released), len(where.domain.groups)
        nuisances, rates = score.nuisances, list[float | None]([None] * n_groups)
        if isinstance(self.nuisances, LinearNuisances) and isinstance(self.nuisances.rate, str):
            sums = np.reshape(released[self.nuisances.rate], (2, n_groups))
            rates = [treated_share(column, where.n_samples) for column in sums.T]
        clips = self.cap, self.residual_bound, self.bound, score.center, True  # records count as in surveys
        members = []
        for rate in rates:
            own = AverageScore(nuisances, *clips, widest=self.widest)
            if rate is not None:
                own = replace(own, nuisances=replace(nuisances, rate=rate)).scaled(rate, where.domain)
            members.append(own)
        return replace(score, members=tuple(members))

    def block_sums(self, block: Records, released: Released, noise: GridSums) -> tuple[int, ...]:
        """The sums of every group by itself, in turn."""
        sums: tuple[int, ...] = ()
        for own, counts in zip(self.members, block.group_counts.T, strict=True):
            inside = counts > 0.0
            X, a, y = block.X[inside], block.a[inside], block.y[inside]
            unit = None if block.unit is None else block.unit[inside]
            part = Records(X, a, y, block.domain, counts[inside], unit)
            sums += own.block_sums(part, released, noise)
        return sums


@dataclass(frozen=True)
class ArmScores(EffectScore):
    """``1{A = a} r / e_a`` of K > 2 arms: with the mean of the regressions, their mean outcomes (Theorem 26).

    A record adds to the sums of its own arm alone: they are disjoint, of a B of its own for every arm, the
    ``widenings`` (K,) of the common one. Beside them stands what all records count. A person adds the means
    of its records, each of them clipped: sizes of all arms add up to no more than B.
    """

    estimand: ClassVar[str] = "ate"
    laws: ClassVar[_Laws] = (SumLaw.DISJOINT, SumLaw.DISJOINT, SumLaw.OVERLAP)
    rows: ClassVar[Rows] = Rows.ARMS
    arms: ClassVar[Arms] = Arms.ALIKE
    price: ClassVar[float] = 1.5
    propensities: ClassVar[tuple[float, ...]] = (0.0,)

    widenings: tuple[float, ...] = ()

    def at(self, where: Universe | Records, released: Released) -> Self:
        nuisances = self.nuisances.worked_out(released, where.n_samples)
        shares = np.array(nuisances.shares)
        widenings = tuple(np.minimum(1.0 / (len(shares) * shares), self.widest).tolist())
        cap = max(self.cap, 4.0 / float(np.min(shares)))
        return replace(self, nuisances=nuisances, center=0.0, widenings=widenings, cap=cap)

    def parts(self, records: Records, released: Released) -> Parts:
        """The regression of the record's own arm, its probability and the clipped residual."""
        x, a = records.covariates, records.a
        own = self.nuisances.outcome(x, a.astype(np.float64), released)
        e = np.maximum(cleaned(self.nuisances.own(x, a, released), 1.0), 1.0 / self.cap)
        residual = cleaned(records.y - own, self.residual_bound)
        return Parts(own, own, 0.0, e, records.counts > 0.0, residual)

    def score(self, parts: Parts) -> Array:
        return parts.residual / parts.e

    def columns(self, parts: Parts, counts: Array) -> tuple[Array, ...]:
        return self.score(parts), counts

    def block_sums(self, block: Records, released: Released, noise: GridSums) -> tuple[int, ...]:
        """Sum and squares of every arm in turn, then what the records count."""
        score, counted = self.columns(self.parts(block, released), block.counts)
        arms = (
            np.where(block.a == arm, counted * cleaned(score / widening, noise.bound), 0.0)
            for arm, widening in enumerate(self.widenings)
        )
        return noise.totals(*block.by_unit(*arms, counted))


@dataclass(frozen=True)
class TreatedScore(EffectScore):
    """``a (m_1 - m_0 - c_0) + (a - (1 - a) o) r``, o the odds e/(1 - e): for the effect among the treated.

    Its mean is released with the number of treated, and their ratio is the effect. But for the clips m_1
    cancels, which is there so that the residual of a treated record does not hold the effect.
    """

    estimand: ClassVar[str] = "att"
    laws: ClassVar[_Laws] = (SumLaw.TREATED, SumLaw.TREATED, SumLaw.OVERLAP)
    arms: ClassVar[Arms] = Arms.CONTROLS
    reach: ClassVar[tuple[float, float]] = (1.0, 2.0)
    residuals: ClassVar[float] = 4.0
    price: ClassVar[float] = 8.0 / 7.0
    propensities: ClassVar[tuple[float, ...]] = (0.0,)

    @classmethod
    def wanted(cls, rate: float) -> float:
        return 0.0

    def capped(self, propensity: Array) -> Array:
        """A propensity (n,) of at most 1 - 1/F: small odds take weight from the hardly ever treated."""
        return np.minimum(cleaned(propensity - 0.5, 0.5) + 0.5, 1.0 - 1.0 / self.cap)

    def scaled(self, rate: float, domain: Domain) -> Self:
        """B in proportion to the larger of 1 and the odds, and F at least twice what they need."""
        odds = rate / (1.0 - rate)
        return replace(self, widening=max(min(odds, self.widest), 1.0), cap=max(self.cap, 2.0 * (1.0 + odds)))

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
    laws: ClassVar[_Laws] = (SumLaw.OVERLAP,) * 3
    largest_share: ClassVar[float] = 0.5
    arms: ClassVar[Arms] = Arms.MATCHED
    reach: ClassVar[tuple[float, float]] = (1.0, 1.0)
    price: ClassVar[float] = 5.0 / 4.0
    propensities: ClassVar[tuple[float, ...]] = (0.1, 0.2, 0.3)

    def capped(self, propensity: Array) -> Array:
        """The released propensity (n,) itself, 1/2 where it is no number: no factor exceeds 1."""
        return cleaned(propensity - 0.5, 0.5) + 0.5

    def score(self, parts: Parts) -> Array:
        m_0, m_1, center, e, treated, r, _ = parts
        own = np.where(treated, e, 1.0 - e)
        factor = np.minimum((1.0 - own) / np.maximum(own, 0.5), 1.0)
        predicted = self.share(parts) * (m_1 - m_0 - center)
        return self.clipped(predicted, np.where(treated, factor * r, -factor * r))

    def share(self, parts: Parts) -> Array:
        return np.minimum(parts.e, 1.0 - parts.e)


@dataclass(frozen=True)
class RiskScores(EffectScore):
    """``m_a + 1{A = a} f r`` of both arms: for risks, their difference, their ratio and the odds ratio.

    ``other_bound`` is G, which a prediction for the other arm is clipped to: the outcome bound is enough.
    Where records may be silent, the number of those that are not is released with the sums.
    """

    estimand: ClassVar[str] = "risks"
    laws: ClassVar[_Laws] = (SumLaw.ARMS, SumLaw.COUNTED_ARMS, SumLaw.OVERLAP)
    rows: ClassVar[Rows] = Rows.ARMS
    arms: ClassVar[Arms] = Arms.ALIKE
    whole: ClassVar[bool] = True

    other_bound: float | None = 0.5

    def columns(self, parts: Parts, counts: Array) -> tuple[Array, ...]:
        score_1, score_0 = self._arms(parts)
        sums = counts * score_1 / self.widening, counts * score_0 / self.widening, counts * parts.treated
        return (*sums, counts) if self.missing else sums

    def scaled(self, rate: float, domain: Domain) -> Self:
        """B as far as scores of an event reach; no factor of a constant propensity is capped."""
        inverse = 1.0 / min(rate, 1.0 - rate)
        widening = (inverse - 0.5) / 1.5
        return replace(self, widening=min(widening, self.widest), cap=max(self.cap, inverse))

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
    laws: ClassVar[_Laws] = (SumLaw.CONTRASTS,) * 3
    arms: ClassVar[Arms] = Arms.ALIKE
    rows: ClassVar[Rows] = Rows.ARMS

    nuisances: RuleNuisances
    center: float | None = 0.0

    def columns(self, parts: Parts, counts: Array) -> tuple[Array, ...]:
        assert parts.effect is not None
        treats, score = parts.effect > 0, counts * self.score(parts) / self.widening
        return np.where(treats, score, 0.0), np.where(treats, 0.0, -score)
