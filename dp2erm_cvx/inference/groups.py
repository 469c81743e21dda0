"""Effects in several groups of records, from what was released of each: intervals and contrasts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import GridSums
from dp2erm_cvx.calibration.base import sum_quantile
from dp2erm_cvx.inference.effect_error import group_errors
from dp2erm_cvx.inference.interval import ScoreInterval, linear_interval, misses
from dp2erm_cvx.inference.nuisances import NO_ERROR, EffectFacts, NuisanceError
from dp2erm_cvx.inference.ratio import part_interval, part_test
from dp2erm_cvx.steps.nuisances import LinearNuisances
from dp2erm_cvx.steps.score import GroupScore

#: Probability that the spread of residuals is more than what is read off the released squares.
FEW = 0.005


@dataclass(frozen=True)
class GroupMean:
    """Released sums of one of several groups, and what its interval allows for.

    ``released`` are three integers with the ``noise`` of all groups, ``center`` the public c_0,
    ``widening`` what scores were divided by, ``treated`` the released rate of treatment, and
    ``error`` what nuisances add. ``persons`` may have records in several groups: what is sampled in
    two of these may have any correlation.
    """

    noise: GridSums
    released: tuple[int, ...]
    center: float
    widening: float
    group: str
    treated: float | None = None
    error: NuisanceError = NO_ERROR
    persons: bool = False

    @property
    def counted(self) -> float:
        """Share of all n that the records of the group count, with its noise."""
        return 2.0 * self.noise.means(self.released)[1]

    @property
    def size(self) -> float:
        """Share of n that the records count, at least one record's and at most 1."""
        return min(max(self.counted, 1.0 / self.noise.n_samples), 1.0)

    @property
    def variance(self) -> float:
        """Variance of the treatment in the group, by its rate; 1/4 where that is public."""
        return 0.25 if self.treated is None else self.treated * (1.0 - self.treated)

    def interval(self, level: float) -> ScoreInterval:
        """The effect in the group: infinite where its size is within the noise."""
        return part_interval(
            self.noise, self.released, self.center, level, self.widening, self.error
        )

    def parts(self, share: float, psi: float, size: float) -> tuple[float, Sequence[float], float]:
        """Parts of an estimate that is ``psi`` above the center, by a released ``size`` of the
        denominator.

        The standard deviation of sampling but with probability ``share``, the scales of both
        noises, and what rounding adds; all in units of the outcome.
        """
        own, factor = psi / self.widening, self.widening / (0.5 * size)
        test = part_test(self.noise, self.released, share)
        scales, roundings = (
            [factor * one, factor * abs(own) * other]
            for one, other in (test.scales, test.roundings)
        )
        return factor * test.deviation(own), scales, sum(roundings)


def _combined(
    groups: Sequence[GroupMean],
    level: float,
    estimate: float,
    parts: Iterable[tuple[float, Sequence[float], float]],
    weights: Iterable[float],
) -> ScoreInterval:
    """Interval of a sum of ``parts`` of groups, to which their errors are added by ``weights``.

    Noise and sampling of the scores are independent between groups; what the common regressions add
    is not.
    """
    deviations, scales, roundings = zip(*parts, strict=True)
    errors = [(one.error.bias, one.error.noise, one.error.sampling) for one in groups]
    deviation = sum(deviations) if groups[0].persons else math.hypot(*deviations)
    added = deviation, [each for own in scales for each in own], sum(roundings)
    error = NuisanceError(*(np.array(list(weights)) @ errors).tolist())
    return linear_interval(groups[0].noise, level, estimate, added, error)


def group_contrast(group: GroupMean, reference: GroupMean, level: float) -> ScoreInterval:
    """The effect in a group less that in the reference, from what was released of both.

    What the common regressions add is taken to be of opposite sign. Ratios are linearized: the part
    of either group is enlarged by what its own interval exceeds the linear one. Raises
    DeclarationError unless ``1/2 <= level < 1``.
    """
    (share, _), pair, parts = misses(level), (group, reference), []
    intervals = [one.interval(level) for one in pair]
    halves = [0.5 * (interval.high - interval.low) for interval in intervals]
    for one, interval, half in zip(pair, intervals, halves, strict=True):
        own = one.parts(0.5 * share, interval.estimate - one.center, one.size)
        linear = linear_interval(one.noise, level, 0.0, own, one.error).high
        more = max(1.0, half / linear) if math.isfinite(half) else 1.0
        parts.append((more * own[0], [more * scale for scale in own[1]], own[2]))
    result = _combined(
        pair, level, intervals[0].estimate - intervals[1].estimate, parts, (1.0, 1.0)
    )
    return replace(result, low=-math.inf, high=math.inf) if math.inf in halves else result


def group_average(groups: Sequence[GroupMean], level: float) -> ScoreInterval:
    """The average effect over the records of all groups, from what was released of each.

    Infinite where the size of all of them is within its noise. Raises DeclarationError unless
    ``1/2 <= level < 1``.
    """
    (share, tail), noise = misses(level), groups[0].noise
    total, weights = sum(one.counted for one in groups), np.array([one.size for one in groups])
    size = min(max(total, 1.0 / noise.n_samples), 1.0)
    psi = sum(2.0 * one.widening * noise.means(one.released)[0] for one in groups) / size
    weights /= np.sum(weights)
    parts = (one.parts(share / len(groups), psi, size) for one in groups)
    center = float(weights @ [one.center for one in groups])
    result = _combined(groups, level, center + psi, parts, weights)
    within = total <= 2.0 * sum_quantile(
        noise.noise, tail, 0.0, *[2.0 * noise.scales[1]] * len(groups)
    )
    return replace(result, low=-math.inf, high=math.inf) if within else result


def group_means(
    facts: EffectFacts, released: Mapping[str, Array], *, predicted: bool
) -> list[GroupMean]:
    """Means of every group; where ``predicted``, with what the nuisances add to its effect."""
    score = facts.score
    universe, noise = score.universe, score.calibration
    own = score.at(universe, released)
    assert isinstance(own, GroupScore)
    assert noise.law.counts
    assert own.center is not None
    means, domain = [], facts.universe.domain
    each = zip(domain.groups, own.members, np.reshape(released[score.name], (-1, 3)), strict=True)
    for name, member, sums in each:
        rate = member.nuisances.rate if isinstance(member.nuisances, LinearNuisances) else None
        public = facts.known_propensity or isinstance(rate, str)
        integers, treated = tuple(int(number) for number in sums), None if public else rate
        one = GroupMean(noise, integers, own.center, member.widening, name, treated)
        means.append(replace(one, persons=domain.units is not None))
    if predicted:
        errors = group_errors(facts, released, _residual_deviation(means))
        return [
            replace(one, center=one.center + error.shift, error=error)
            for one, error in zip(means, errors, strict=True)
        ]
    return means


def _residual_deviation(groups: Sequence[GroupMean]) -> float:
    """At least the standard deviation of clipped residuals in all groups, but with probability
    ``FEW``.

    The noise of a sum of squares in all groups is less, beside the sum, than that in one of them.
    """
    noise, factors = groups[0].noise, [4.0 * one.variance * one.widening**2 for one in groups]
    squares = (
        factor * one.noise.means(one.released)[2]
        for factor, one in zip(factors, groups, strict=True)
    )
    margin = sum_quantile(noise.noise, FEW, 0.0, *(factor * noise.scales[2] for factor in factors))
    total, size = sum(squares) + margin, sum(one.size for one in groups)
    most = max(factors) * noise.bound**2
    return math.sqrt(min(max(total / size, 0.0), most))
