"""Effects as means of one score per record, given released nuisances (Theorems 10 and 12)."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import GridSums, Noise, SumLaw, calibrate_sums
from dp2erm_cvx.calibration.sums import SHARE_BITS
from dp2erm_cvx.domain import Array, Domain, Records, Universe, cleaned
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import check_settings, public_size, setting
from dp2erm_cvx.steps.nuisances import LinearNuisances
from dp2erm_cvx.steps.record_map import Arms, Rows
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import IntegerSums

Released = Mapping[str, Array]


class Parts(NamedTuple):
    """m_0, m_1 and e (n,) at every record, c_0, who was treated (n,), and the clipped residuals r (n,).

    They are what every score is made of: of a block of records as of all of them, row by row. ``effect`` (n,)
    is what a released rule estimates, where there is one.
    """

    m_0: Array
    m_1: Array
    center: float
    e: Array
    treated: NDArray[np.bool_]
    residual: Array
    effect: Array | None = None


@dataclass(frozen=True)
class EffectScore(abc.ABC):
    """Base of scores, summed over records with public clips.

    Where persons are units, what is summed is the mean over a person's records that count, of their clipped
    scores and of what stands beside them: a point of the convex hull of what one record may add (Theorem 25).
    Squares are those of a person's mean.

    Parameters
    ----------
    nuisances
        m_a(x) and e(x), given what was released.
    cap
        F of at least 2: e is clipped to [1/F, 1 - 1/F], so that no factor exceeds F.
    residual_bound
        M_r: the residual ``y - m_a(x)`` is clipped to [-M_r, M_r], after the subtraction.
    bound
        B, which the score less its ``center`` is clipped to. What is predicted is clipped first, and the
        weighted residual to the room that this leaves on either side: symmetric residuals stay of mean 0.
    center
        c_0, a public guess of what is estimated; None: the released effect where all covariates are 0, no
        larger than two outcome bounds.
    sampled
        Whether records count by their sampling weights, so that what is estimated is a ratio of two means.
    missing
        Whether, without those, records may lack a treatment, which then do not count.
    widening
        What B is multiplied by at the released rate of treatment: sums are of scores divided by it, so that
        their noise is calibrated before any rate is known. 1 until it is, and at most ``widest``.
    other_bound
        G, which the prediction for the other arm is clipped to; None where no sum holds that alone.
    """

    #: What is estimated, as it is declared.
    estimand: ClassVar[str]
    #: The sums that it releases: where all records count, where some may not, and by sampling weights.
    laws: ClassVar[tuple[SumLaw, SumLaw, SumLaw]]
    #: What a record counts by at most before its sampling weight.
    largest_share: ClassVar[float] = 1.0
    #: What records count in a common outcome regression where nothing is declared.
    arms: ClassVar[Arms] = Arms.BALANCED
    #: Rows of its outcome regression.
    rows: ClassVar[Rows] = Rows.COMMON
    #: B over M_r before any widening where nothing is declared, by a constant and by a logistic propensity.
    reach: ClassVar[tuple[float, float]] = (2.0, 4.0)
    #: M_r in standard deviations of residuals.
    residuals: ClassVar[float] = 3.0
    #: Whether predictions and residuals are clipped together, whatever the outcome.
    whole: ClassVar[bool] = False
    #: Noise of the mean score, in that of a mean alone.
    price: ClassVar[float] = 1.0
    #: Shares of the budget to choose from for a logistic propensity, 0 for a constant one.
    propensities: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.2, 0.3)

    nuisances: Any
    cap: float = setting(at_least=2.0)
    residual_bound: float = setting(check=public_size)
    bound: float = setting(check=public_size)
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

    def calibrate(self, n_samples: int, budget: Budget, noise: Noise | str) -> GridSums:
        """The noise of the sums, by the bounds of the score alone."""
        bound = self.part * self.bound if self.law.counts else self.bound
        other = self.other_bound if self.law.of_arms else None
        return calibrate_sums(self.law, bound, n_samples, budget, noise, other_bound=other)

    def sums(self, records: Records, released: Released, noise: GridSums) -> tuple[int, ...]:
        """The exact sums, before their noise: integers, added block by block. Private.

        With factors u in [0, 1] of sampling weights those of ``u phi`` and of ``u h``, h what a record counts
        by without them, both halved where h may be 1.

        Raises DeclarationError where the noise is for another number of records.
        """
        if records.n_samples != noise.n_samples:
            raise DeclarationError(f"{records.n_samples} records: the noise is for {noise.n_samples}")
        own = self.at(records, released)
        parts = records.by_units(partial(own.block_sums, released=released, noise=noise))
        return tuple(sum(column) for column in zip(*parts, strict=True))

    def block_sums(self, block: Records, released: Released, noise: GridSums) -> tuple[int, ...]:
        """Sums of a block of whole units, by a score ``at`` what was released. Private."""
        columns = block.by_unit(*self.columns(self.parts(block, released), block.counts))
        if self.sampled and block.unit is not None:  # of several groups together at most one half
            score, share = columns
            columns = score, np.ldexp(np.floor(np.ldexp(share, SHARE_BITS)), -SHARE_BITS)
        return noise.totals(*columns)

    def at(self, where: Universe | Records, released: Released) -> Self:
        """The score, with what follows from ``released`` and from the universe of records worked out."""
        nuisances = self.nuisances.worked_out(released, where.n_samples)
        score = replace(self, nuisances=nuisances)
        if isinstance(self.nuisances, LinearNuisances) and isinstance(self.nuisances.rate, str):
            score = score.scaled(nuisances.rate, where.domain)
        return replace(score, center=score._center(where.n_features, where.domain, released))

    def scaled(self, rate: float, domain: Domain) -> Self:
        """The score with bounds for a released ``rate`` of treatment."""
        return self

    def columns(self, parts: Parts, counts: Array) -> tuple[Array, ...]:
        """Columns that records of these ``counts`` (n,) add: scores, and what beside them counts. Private."""
        factors = self.part * counts if self.law.counts else counts
        score = factors * self.score(parts) / self.widening
        return (score,) if self.law is SumLaw.SCORE else (score, factors * self.share(parts))

    @classmethod
    def wanted(cls, rate: float) -> float:
        """The share that the slopes of the treated should have in common ones, at this rate of treatment."""
        return 1.0 - rate

    @property
    def part(self) -> float:
        """Factor that makes the share of a record at most one half."""
        return 0.5 / self.largest_share

    @abc.abstractmethod
    def score(self, parts: Parts) -> Array:
        """The score (n,) less its center, row by row. Private."""

    def share(self, parts: Parts) -> Array:
        """Weight of every record (n,), beside its sampling weight, in the effect's population. Private."""
        return np.ones(len(parts.treated))

    def _center(self, n_features: int, domain: Domain, released: Released) -> float:
        if self.center is not None:
            return self.center
        predicted = self.nuisances.at(np.zeros((1, n_features)), released)[:2]
        m_0, m_1 = (cleaned(outcome, domain.outcome_bound) for outcome in predicted)
        return float((m_1 - m_0)[0])

    def capped(self, propensity: Array) -> Array:
        """A propensity (n,) between 1/F and 1 - 1/F."""
        return cleaned(propensity - 0.5, 0.5 - 1.0 / self.cap) + 0.5

    def clipped(self, predicted: Array, weighted: Array) -> Array:
        """The sum (n,) of a prediction and a weighted residual, within the widened B: whole for an event."""
        bound = self.widening * self.bound
        inner = cleaned(predicted, bound)
        # residuals of an event are longer on one side: what a noisy prediction leaves no room for is a bias
        if self.whole or self.nuisances.two_values is not None:
            return cleaned(inner + weighted, bound)
        return inner + cleaned(weighted, bound - np.abs(inner))

    def parts(self, records: Records, released: Released) -> Parts:
        """m_0 and m_1 at most the outcome bound in size; the residual is clipped after the subtraction."""
        x, domain = records.covariates, records.domain
        center = self._center(x.shape[1], domain, released)
        (*outcomes, e, effect), treated = self.nuisances.at(x, released), records.a == 1
        m_0, m_1 = (cleaned(outcome, domain.outcome_bound) for outcome in outcomes)
        residual = cleaned(records.y - np.where(treated, m_1, m_0), self.residual_bound)
        return Parts(m_0, m_1, center, self.capped(e), treated, residual, effect)


@dataclass(frozen=True, kw_only=True)
class MeanScore(IntegerSums):
    """The sums of a ``score``, an effect's or a rule's value, and what its interval needs (Theorem 12)."""

    name: str = "score"
    score: EffectScore

    def calibrate(self, universe: Universe, budget: Budget) -> GridSums:
        """By the bounds of the score, whatever the nuisances turn out to be."""
        return self.score.calibrate(universe.n_samples, budget, self.noise)

    @property
    def theorem(self) -> str:
        number = "26" if self.calibration.law is SumLaw.DISJOINT else "12"
        return f"Theorem {number} ({self.calibration.noise.mechanism} noise, second moment included)"

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the mean."""
        scale: float = self.calibration.scales[0] ** 2
        return 2.0 * scale if self.calibration.noise is Noise.GAMMA else scale

    def exact_sums(self, records: Records, released: Released) -> tuple[int, ...]:
        """Exact sums of the score."""
        return self.score.sums(records, released, self.calibration)

    def knowing(self, earlier: Mapping[str, Step]) -> MeanScore:
        """The score, once the steps that the nuisances rest on are planned."""
        return replace(self, score=replace(self.score, nuisances=self.score.nuisances.planned(earlier)))
