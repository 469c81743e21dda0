"""Effects as means of one score per record, given released nuisances (Theorems 10 and 12)."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import GridSums, Noise, SumLaw, calibrate_sums
from dp2erm_cvx.calibration.sums import SHARE_BITS
from dp2erm_cvx.checks import check_settings, public_size, setting
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records, cleaned
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.nuisances import LinearNuisances, RuleNuisances
from dp2erm_cvx.steps.record_map import Arms, Rows, treated_share
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import IntegerSums

Released = Mapping[str, Array]
#: Sums that are released: where all records count, where some may not, and by sampling weights.
Laws = tuple[SumLaw, SumLaw, SumLaw]


class Parts(NamedTuple):
    """What scores of n records are made of.

    Parameters
    ----------
    m_0
        Predicted outcomes (n,) of the untreated.
    m_1
        Predicted outcomes (n,) of the treated.
    center
        c_0.
    e
        Probabilities of treatment (n,), clipped.
    treated
        Who was treated (n,).
    residual
        Clipped residuals r (n,).
    effect
        What a released rule estimates (n,); None without a rule.
    """

    m_0: Array
    m_1: Array
    center: float
    e: Array
    treated: NDArray[np.bool_]
    residual: Array
    effect: Array | None = None


@dataclass(frozen=True)
class EffectScore(IntegerSums):
    """Sums of scores over records with public clips, and what their interval needs (Theorem 12).

    Where persons are units, the mean over a person's records that count is summed, of clipped
    scores and of what stands beside them: a point of the convex hull of what one record may add
    (Theorem 25).

    Parameters
    ----------
    nuisances
        m_a(x) and e(x), given what was released.
    cap
        F of at least 2: e is clipped to [1/F, 1 - 1/F], so that no factor exceeds F.
    residual_bound
        M_r: the residual ``y - m_a(x)`` is clipped to [-M_r, M_r], after the subtraction.
    score_bound
        B, which the score less its ``center`` is clipped to. What is predicted is clipped first,
        and the weighted residual to the room that this leaves on either side: symmetric residuals
        stay of mean 0.
    center
        c_0, a public guess of what is estimated; None: the released effect where all covariates are
        0, no larger than two outcome bounds.
    sampled
        Whether records count by their sampling weights, so that what is estimated is a ratio of two
        means.
    missing
        Whether, without those, records may lack a treatment, which then do not count.
    widening
        What B is multiplied by at the released rate of treatment: sums are of scores divided by it,
        so that their noise is calibrated before any rate is known. 1 until it is, and at most
        ``widest``.
    other_bound
        G, which the prediction for the other arm is clipped to; None where no sum holds that alone.
    """

    #: What is estimated, as it is declared.
    estimand: ClassVar[str]
    laws: ClassVar[Laws]
    #: What a record counts by at most before its sampling weight.
    largest_share: ClassVar[float] = 1.0
    #: What records count in a common outcome regression where nothing is declared.
    arms: ClassVar[Arms] = Arms.BALANCED
    #: Rows of its outcome regression.
    rows: ClassVar[Rows] = Rows.COMMON
    #: B over M_r before any widening where nothing is declared, by a constant and by a logistic
    #: propensity.
    bound_over_clip: ClassVar[tuple[float, float]] = (2.0, 4.0)
    #: M_r in standard deviations of residuals.
    residuals: ClassVar[float] = 3.0
    #: Whether predictions and residuals are clipped together, whatever the outcome.
    whole: ClassVar[bool] = False
    #: Noise of the mean score, in that of a mean alone.
    price: ClassVar[float] = 1.0
    #: Shares of the budget to choose from for a logistic propensity, 0 for a constant one.
    propensities: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.2, 0.3)

    name: str = field(default="score", kw_only=True)
    nuisances: Any
    cap: float = setting(at_least=2.0)
    residual_bound: float = setting(check=public_size)
    score_bound: float = setting(check=public_size)
    center: float | None = setting(None, title="effect_")
    sampled: bool = False
    missing: bool = False
    widening: float = 1.0
    widest: float = math.inf
    other_bound: float | None = None

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def law(self) -> SumLaw:
        """The sums that are released."""
        return self.laws[2 if self.sampled else int(self.missing)]

    def calibrate(self, universe: MappedUniverse, budget: Budget) -> GridSums:
        """The noise of the sums, by the bounds of the score alone, whatever the nuisances are."""
        bound = self.part * self.score_bound if self.law.has_shares else self.score_bound
        other = self.other_bound if self.law.of_arms else None
        return calibrate_sums(
            self.law, bound, universe.n_samples, budget, self.noise, other_bound=other
        )

    @property
    def theorem(self) -> str:
        number = "26" if self.calibration.law is SumLaw.DISJOINT else "12"
        mechanism = self.calibration.noise.mechanism
        return f"Theorem {number} ({mechanism} noise, second moment included)"

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the mean."""
        scale: float = self.calibration.scales[0] ** 2
        return 2.0 * scale if self.calibration.noise is Noise.GAMMA else scale

    def knowing(self, earlier: Mapping[str, Step]) -> Self:
        """The score, once the steps that the nuisances rest on are planned."""
        return replace(self, nuisances=self.nuisances.planned(earlier))

    def exact_sums(self, records: Records, released: Released) -> tuple[int, ...]:
        """Sums of ``u phi`` and of ``u h``.

        u is a sampling weight over its bound, and h what a record counts by. Both sums are halved
        where h may be 1. Raises DeclarationError where the noise is for another n.
        """
        n = records.n_samples
        if n != self.calibration.n_samples:
            raise DeclarationError(f"{n} records: the noise is for {self.calibration.n_samples}")
        score = self.at(records, released)
        parts = records.by_units(partial(score.block_sums, released=released))
        return tuple(sum(column) for column in zip(*parts, strict=True))

    def block_sums(self, block: Records, released: Released) -> tuple[int, ...]:
        """Sums of a block of whole units, by a score ``at`` what was released. Private."""
        columns = block.by_unit(*self.columns(self.parts(block, released), block.counts))
        if self.sampled and block.unit is not None:  # of several groups together at most one half
            score, share = columns
            columns = score, np.ldexp(np.floor(np.ldexp(share, SHARE_BITS)), -SHARE_BITS)
        return tuple(self.calibration.totals(*columns))

    def at(self, where: MappedUniverse | Records, released: Released) -> Self:
        """The score, with what follows from ``released`` and the universe of records worked out."""
        nuisances = self.nuisances.worked_out(released, where.n_samples)
        score = replace(self, nuisances=nuisances)
        if isinstance(self.nuisances, LinearNuisances) and isinstance(self.nuisances.rate, str):
            score = score.scaled(nuisances.rate, where.space)
        return replace(score, center=score._center(where.n_features, where.space, released))

    def scaled(self, rate: float, space: Space) -> Self:
        """The score with bounds for a released ``rate`` of treatment."""
        return self

    def columns(self, parts: Parts, counts: Array) -> tuple[Array, ...]:
        """Columns that records of these ``counts`` (n,) add. Private.

        They are scores, and what counts beside these.
        """
        factors = self.part * counts if self.law.has_shares else counts
        score = factors * self.score(parts) / self.widening
        if self.law is SumLaw.SCORE:
            return (score,)
        return score, factors * self.mass(parts)

    @classmethod
    def wanted(cls, rate: float) -> float:
        """The share that slopes of the treated should have in common ones, at a treated share."""
        return 1.0 - rate

    @property
    def part(self) -> float:
        """Factor that makes the share of a record at most one half."""
        return 0.5 / self.largest_share

    @abc.abstractmethod
    def score(self, parts: Parts) -> Array:
        """The score (n,) less its center, row by row. Private."""

    def mass(self, parts: Parts) -> Array:
        """Weight of every record (n,) in the effect's population, beside its sampling weight.

        Private.
        """
        return np.ones(len(parts.treated))

    def _center(self, n_features: int, space: Space, released: Released) -> float:
        if self.center is not None:
            return self.center
        m_0, m_1, _, _ = self.nuisances.at(np.zeros((1, n_features)), released)
        difference = cleaned(m_1, space.outcome_bound) - cleaned(m_0, space.outcome_bound)
        return float(difference[0])

    def capped(self, propensity: Array) -> Array:
        """A propensity (n,) between 1/F and 1 - 1/F."""
        return cleaned(propensity - 0.5, 0.5 - 1.0 / self.cap) + 0.5

    def clipped(self, predicted: Array, weighted: Array) -> Array:
        """The sum (n,) of a prediction and a weighted residual, within the widened B.

        Of an event the sum is clipped as a whole: its residuals are longer on one side, and what a
        noisy prediction leaves no room for would be a bias.
        """
        bound = self.widening * self.score_bound
        inner = cleaned(predicted, bound)
        if self.whole or self.nuisances.two_values is not None:
            return cleaned(inner + weighted, bound)
        return inner + cleaned(weighted, bound - np.abs(inner))

    def parts(self, records: Records, released: Released) -> Parts:
        """What scores are made of.

        m_0 and m_1 are at most the outcome bound in size; the residual is clipped after the
        subtraction.
        """
        x = records.covariates
        space = records.space
        m_0, m_1, e, effect = self.nuisances.at(x, released)
        m_0 = cleaned(m_0, space.outcome_bound)
        m_1 = cleaned(m_1, space.outcome_bound)
        treated = records.a == 1
        residual = cleaned(records.y - np.where(treated, m_1, m_0), self.residual_bound)
        return Parts(
            m_0=m_0,
            m_1=m_1,
            center=self._center(x.shape[1], space, released),
            e=self.capped(e),
            treated=treated,
            residual=residual,
            effect=effect,
        )


@dataclass(frozen=True)
class AverageScore(EffectScore):
    """``m_1 - m_0 + s f r``: augmented inverse propensity weighting, for the average effect.

    Where treatments may be missing, it is the ratio of two sums over the records that have one.
    """

    estimand: ClassVar[str] = "ate"
    laws: ClassVar[Laws] = (SumLaw.SCORE, SumLaw.WHOLE, SumLaw.WITHIN)

    def scaled(self, rate: float, space: Space) -> Self:
        """B in proportion to the larger inverse of the rate, and F at least four times that."""
        inverse = 1.0 / min(rate, 1.0 - rate)
        widening = min(0.5 * inverse, self.widest)
        return replace(self, widening=widening, cap=max(self.cap, 4.0 * inverse))

    def score(self, parts: Parts) -> Array:
        m_0, m_1, center, e, treated, r, _ = parts
        return self.clipped(m_1 - m_0 - center, np.where(treated, r / e, -r / (1.0 - e)))


@dataclass(frozen=True)
class GroupScore(AverageScore):
    """The score in each of several groups, by its own rate.

    Parameters
    ----------
    members
        The score of every group, once the rates are released.
    """

    laws: ClassVar[Laws] = (SumLaw.WHOLE_GROUPS, SumLaw.WHOLE_GROUPS, SumLaw.GROUPS)
    price: ClassVar[float] = 1.25
    propensities: ClassVar[tuple[float, ...]] = (0.0,)

    members: tuple[AverageScore, ...] = ()

    def at(self, where: MappedUniverse | Records, released: Released) -> Self:
        score = super().at(where, released)
        n_groups = where.space.n_groups
        rates: list[float | None] = [None] * n_groups
        if isinstance(self.nuisances, LinearNuisances) and isinstance(self.nuisances.rate, str):
            sums = np.reshape(released[self.nuisances.rate], (2, n_groups))
            rates = [treated_share(column, where.n_samples) for column in sums.T]
        common = AverageScore(
            nuisances=score.nuisances,
            cap=self.cap,
            residual_bound=self.residual_bound,
            score_bound=self.score_bound,
            center=score.center,
            sampled=True,  # records count as in surveys
            widest=self.widest,
            calibration=self.calibration,
        )
        members = []
        for rate in rates:
            member = common
            if rate is not None:
                own_rate = replace(score.nuisances, rate=rate)
                member = replace(common, nuisances=own_rate).scaled(rate, where.space)
            members.append(member)
        return replace(score, members=tuple(members))

    def block_sums(self, block: Records, released: Released) -> tuple[int, ...]:
        """The sums of every group by itself, in turn."""
        sums: list[int] = []
        for member, counts in zip(self.members, block.group_counts.T, strict=True):
            inside = counts > 0.0
            of_group = Records(
                block.X[inside],
                block.a[inside],
                block.y[inside],
                block.space,
                counts[inside],
                None if block.unit is None else block.unit[inside],
            )
            sums.extend(member.block_sums(of_group, released))
        return tuple(sums)


@dataclass(frozen=True)
class ArmScores(EffectScore):
    """``1{A = a} r / e_a`` of K > 2 arms, for their mean outcomes (Theorem 26).

    The mean of the regressions is added to it. A record adds to the sums of its own arm alone.
    Beside them stands what all records count. A person adds the means of its records, each of them
    clipped: sizes of all arms add up to no more than B.

    Parameters
    ----------
    widenings
        What the B of every arm (K,) is in that in common, once the shares are released.
    """

    estimand: ClassVar[str] = "ate"
    laws: ClassVar[Laws] = (SumLaw.DISJOINT, SumLaw.DISJOINT, SumLaw.OVERLAP)
    rows: ClassVar[Rows] = Rows.ARMS
    arms: ClassVar[Arms] = Arms.ALIKE
    price: ClassVar[float] = 1.5
    propensities: ClassVar[tuple[float, ...]] = (0.0,)

    widenings: tuple[float, ...] = ()

    def at(self, where: MappedUniverse | Records, released: Released) -> Self:
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

    def block_sums(self, block: Records, released: Released) -> tuple[int, ...]:
        """Sum and squares of every arm in turn, then what the records count."""
        score = self.score(self.parts(block, released))
        noise = self.calibration
        columns = []
        for arm, widening in enumerate(self.widenings):
            clipped = block.counts * cleaned(score / widening, noise.bound)
            columns.append(np.where(block.a == arm, clipped, 0.0))
        return tuple(noise.totals(*block.by_unit(*columns, block.counts)))


@dataclass(frozen=True)
class TreatedScore(EffectScore):
    """``a (m_1 - m_0 - c_0) + (a - (1 - a) o) r``: for the effect among the treated.

    o are the odds e/(1 - e). Its mean is released with the number of treated, and their ratio is
    the effect. But for the clips m_1 cancels, which is there so that the residual of a treated
    record does not hold the effect.
    """

    estimand: ClassVar[str] = "att"
    laws: ClassVar[Laws] = (SumLaw.TREATED, SumLaw.TREATED, SumLaw.OVERLAP)
    arms: ClassVar[Arms] = Arms.CONTROLS
    bound_over_clip: ClassVar[tuple[float, float]] = (1.0, 2.0)
    residuals: ClassVar[float] = 4.0
    price: ClassVar[float] = 8.0 / 7.0
    propensities: ClassVar[tuple[float, ...]] = (0.0,)

    @classmethod
    def wanted(cls, rate: float) -> float:
        return 0.0

    def capped(self, propensity: Array) -> Array:
        """A propensity (n,) of at most 1 - 1/F.

        Small odds take weight from those who are hardly ever treated.
        """
        return np.minimum(cleaned(propensity - 0.5, 0.5) + 0.5, 1.0 - 1.0 / self.cap)

    def scaled(self, rate: float, space: Space) -> Self:
        """B in proportion to the larger of 1 and the odds, and F at least twice what they need."""
        odds = rate / (1.0 - rate)
        widening = max(min(odds, self.widest), 1.0)
        return replace(self, widening=widening, cap=max(self.cap, 2.0 * (1.0 + odds)))

    def score(self, parts: Parts) -> Array:
        m_0, m_1, center, e, treated, r, _ = parts
        predicted = np.where(treated, m_1 - m_0 - center, 0.0)
        return self.clipped(predicted, np.where(treated, r, -r * (e / (1.0 - e))))

    def mass(self, parts: Parts) -> Array:
        return parts.treated.astype(np.float64)


@dataclass(frozen=True)
class OverlapScore(EffectScore):
    """``h (m_1 - m_0 - c_0) + s f r``, with ``h = min(e, 1 - e)``.

    f are the matching factors ``h / P(A = a | x)``. It is for the effect in the population where
    either treatment is likely. No factor exceeds 1. The means of this and of h are released
    together, and their ratio is the effect (Theorem 12 (b)).
    """

    estimand: ClassVar[str] = "overlap"
    laws: ClassVar[Laws] = (SumLaw.OVERLAP,) * 3
    largest_share: ClassVar[float] = 0.5
    arms: ClassVar[Arms] = Arms.MATCHED
    bound_over_clip: ClassVar[tuple[float, float]] = (1.0, 1.0)
    price: ClassVar[float] = 5.0 / 4.0
    propensities: ClassVar[tuple[float, ...]] = (0.1, 0.2, 0.3)

    def capped(self, propensity: Array) -> Array:
        """The released propensity (n,) itself, 1/2 where it is no number: no factor exceeds 1."""
        return cleaned(propensity - 0.5, 0.5) + 0.5

    def score(self, parts: Parts) -> Array:
        m_0, m_1, center, e, treated, r, _ = parts
        own = np.where(treated, e, 1.0 - e)
        factor = np.minimum((1.0 - own) / np.maximum(own, 0.5), 1.0)
        predicted = self.mass(parts) * (m_1 - m_0 - center)
        return self.clipped(predicted, np.where(treated, factor * r, -factor * r))

    def mass(self, parts: Parts) -> Array:
        return np.minimum(parts.e, 1.0 - parts.e)


@dataclass(frozen=True)
class RiskScores(EffectScore):
    """``m_a + 1{A = a} f r`` of both arms: for risks, their difference and their ratios."""

    estimand: ClassVar[str] = "risks"
    laws: ClassVar[Laws] = (SumLaw.ARMS, SumLaw.COUNTED_ARMS, SumLaw.OVERLAP)
    rows: ClassVar[Rows] = Rows.ARMS
    arms: ClassVar[Arms] = Arms.ALIKE
    whole: ClassVar[bool] = True
    other_bound: float | None = 0.5

    def columns(self, parts: Parts, counts: Array) -> tuple[Array, ...]:
        score_1, score_0 = self._arms(parts)
        columns: list[Array] = [
            counts * score_1 / self.widening,
            counts * score_0 / self.widening,
            counts * parts.treated,
        ]
        if self.missing:
            columns.append(counts)
        return tuple(columns)

    def scaled(self, rate: float, space: Space) -> Self:
        """B as far as scores of an event reach; no factor of a constant propensity is capped."""
        inverse = 1.0 / min(rate, 1.0 - rate)
        widening = (inverse - 0.5) / 1.5
        return replace(self, widening=min(widening, self.widest), cap=max(self.cap, inverse))

    def score(self, parts: Parts) -> Array:
        score_1, score_0 = self._arms(parts)
        return np.asarray(score_1 - score_0 - parts.center)

    def _arms(self, parts: Parts) -> tuple[Array, Array]:
        m_0, m_1, _, e, treated, r, _ = parts
        score_1 = self.clipped(m_1, np.where(treated, r / e, 0.0))
        return score_1, self.clipped(m_0, np.where(treated, 0.0, r / (1.0 - e)))


@dataclass(frozen=True)
class ValueScore(AverageScore):
    """Gains of a released rule over treating nobody and over treating everybody, per record.

    Where the rule treats the score of the average effect without a center, elsewhere its negative.
    """

    estimand: ClassVar[str] = "value"
    laws: ClassVar[Laws] = (SumLaw.CONTRASTS,) * 3
    arms: ClassVar[Arms] = Arms.ALIKE
    rows: ClassVar[Rows] = Rows.ARMS

    nuisances: RuleNuisances
    center: float | None = 0.0

    def at(self, where: MappedUniverse | Records, released: Released) -> Self:
        score = super().at(where, released)
        by_side = score.nuisances.by_side
        if by_side is None or score.nuisances.two_values is None:
            return score  # residuals about as long on either side are cut without a bias
        untreated_side, treated_side = by_side
        rarest = min(untreated_side, treated_side, 1.0 - untreated_side, 1.0 - treated_side)
        return score.scaled(rarest, where.space)

    def columns(self, parts: Parts, counts: Array) -> tuple[Array, ...]:
        assert parts.effect is not None
        treats = parts.effect > 0
        score = counts * self.score(parts) / self.widening
        return np.where(treats, score, 0.0), np.where(treats, 0.0, -score)
