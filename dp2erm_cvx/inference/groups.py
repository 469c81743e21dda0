"""Effects in several groups of records, from what was released of each: intervals and contrasts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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


class _EstimateErrors(NamedTuple):
    """What moves the estimate of one group, in units of the outcome.

    Parameters
    ----------
    deviation
        Standard deviation of sampling, over the root of n.
    scales
        Scales of the noises.
    rounding
        What rounding adds.
    """

    deviation: float
    scales: Sequence[float]
    rounding: float


@dataclass(frozen=True)
class GroupMean:
    """Released sums of one of several groups, and what its interval allows for.

    Parameters
    ----------
    noise
        That of the sums of all groups.
    released
        Three integers.
    center
        The public c_0, in units of the outcome.
    widening
        What scores were divided by.
    group
        Name of the group.
    treated
        Released rate of treatment; None where it is public.
    error
        What the nuisances add to the effect.
    persons
        True where persons may have records in several groups: what is sampled in two of these may
        have any correlation.
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

    def errors_at(self, share: float, psi: float, size: float) -> _EstimateErrors:
        """What moves an estimate that lies ``psi`` above the center.

        Parameters
        ----------
        share
            Probability that sampling varies by more than is stated.
        psi
            The estimate less the center, in units of the outcome.
        size
            The released size that it is divided by, as a share of n.
        """
        ratio = psi / self.widening
        factor = self.widening / (0.5 * size)
        test = part_test(self.noise, self.released, share)
        by_size = factor * abs(ratio)
        return _EstimateErrors(
            deviation=factor * test.deviation(ratio),
            scales=[factor * test.scales[0], by_size * test.scales[1]],
            rounding=factor * test.roundings[0] + by_size * test.roundings[1],
        )


def _interval_of_sum(
    groups: Sequence[GroupMean],
    level: float,
    estimate: float,
    errors: Sequence[_EstimateErrors],
    weights: Sequence[float],
) -> ScoreInterval:
    """Interval of a sum over groups, to which their errors are added by ``weights``.

    Noise and sampling of the scores are independent between groups; what the common regressions add
    is not.
    """
    deviations = [one.deviation for one in errors]
    deviation = sum(deviations) if groups[0].persons else math.hypot(*deviations)
    scales: list[float] = []
    for one in errors:
        scales.extend(one.scales)
    rounding = sum(one.rounding for one in errors)
    of_groups = [(group.error.bias, group.error.noise, group.error.sampling) for group in groups]
    of_regressions = NuisanceError(*(np.array(weights) @ of_groups).tolist())
    parts = (deviation, scales, rounding)
    return linear_interval(groups[0].noise, level, estimate, parts, of_regressions)


def group_contrast(group: GroupMean, reference: GroupMean, level: float) -> ScoreInterval:
    """The effect in a group less that in the reference, from what was released of both.

    What the common regressions add is taken to be of opposite sign. Ratios are linearized: the part
    of either group is enlarged by what its own interval exceeds the linear one.

    Parameters
    ----------
    group
        What was released of the group.
    reference
        What was released of the group that it is compared with.
    level
        Coverage of the interval.

    Returns
    -------
    ScoreInterval
        Without ends where the size of either group is within its noise.

    Raises
    ------
    DeclarationError
        Unless ``1/2 <= level < 1``.
    """
    share, _ = misses(level)
    pair = (group, reference)
    errors = []
    estimates = []
    bounded = True
    for one in pair:
        interval = one.interval(level)
        half_width = 0.5 * (interval.high - interval.low)
        linear_errors = one.errors_at(0.5 * share, interval.estimate - one.center, one.size)
        linear = linear_interval(one.noise, level, 0.0, linear_errors, one.error).high
        factor = max(1.0, half_width / linear) if math.isfinite(half_width) else 1.0
        errors.append(
            _EstimateErrors(
                deviation=factor * linear_errors.deviation,
                scales=[factor * scale for scale in linear_errors.scales],
                rounding=linear_errors.rounding,
            )
        )
        estimates.append(interval.estimate)
        bounded = bounded and half_width != math.inf
    result = _interval_of_sum(pair, level, estimates[0] - estimates[1], errors, (1.0, 1.0))
    return result if bounded else replace(result, low=-math.inf, high=math.inf)


def group_average(groups: Sequence[GroupMean], level: float) -> ScoreInterval:
    """The average effect over the records of all groups, from what was released of each.

    Parameters
    ----------
    groups
        What was released of every group.
    level
        Coverage of the interval.

    Returns
    -------
    ScoreInterval
        Without ends where the size of all groups is within its noise.

    Raises
    ------
    DeclarationError
        Unless ``1/2 <= level < 1``.
    """
    share, tail = misses(level)
    noise = groups[0].noise
    total = sum(one.counted for one in groups)
    size = min(max(total, 1.0 / noise.n_samples), 1.0)
    psi = sum(2.0 * one.widening * noise.means(one.released)[0] for one in groups) / size
    weights = np.array([one.size for one in groups])
    weights /= np.sum(weights)
    errors = [one.errors_at(share / len(groups), psi, size) for one in groups]
    center = float(weights @ [one.center for one in groups])
    result = _interval_of_sum(groups, level, center + psi, errors, weights.tolist())
    size_noises = [2.0 * noise.scales[1]] * len(groups)
    largest_noise = 2.0 * sum_quantile(noise.noise, tail, 0.0, *size_noises)
    if total <= largest_noise:
        return replace(result, low=-math.inf, high=math.inf)
    return result


def group_means(
    facts: EffectFacts, released: Mapping[str, Array], *, predicted: bool
) -> list[GroupMean]:
    """Means of every group.

    Parameters
    ----------
    facts
        What is public of the effects.
    released
        Numbers by the names of the steps.
    predicted
        True to count what the nuisances add to the effects.
    """
    score = facts.score
    noise = score.calibration
    group_score = score.at(score.universe, released)
    assert isinstance(group_score, GroupScore)
    assert noise.law.has_shares
    assert group_score.center is not None
    domain = facts.universe.domain
    means = []
    sums_of_groups = np.reshape(released[score.name], (-1, 3))
    for name, member, sums in zip(domain.groups, group_score.members, sums_of_groups, strict=True):
        rate = member.nuisances.rate if isinstance(member.nuisances, LinearNuisances) else None
        public = facts.known_propensity or isinstance(rate, str)
        means.append(
            GroupMean(
                noise=noise,
                released=tuple(int(number) for number in sums),
                center=group_score.center,
                widening=member.widening,
                group=name,
                treated=None if public else rate,
                persons=domain.units is not None,
            )
        )
    if not predicted:
        return means
    errors = group_errors(facts, released, _residual_deviation(means))
    return [
        replace(one, center=one.center + error.shift, error=error)
        for one, error in zip(means, errors, strict=True)
    ]


def _residual_deviation(groups: Sequence[GroupMean]) -> float:
    """At least the standard deviation of clipped residuals in all groups, but for ``FEW``.

    The noise of a sum of squares in all groups is less, beside the sum, than that in one of them.
    """
    noise = groups[0].noise
    factors = [4.0 * one.variance * one.widening**2 for one in groups]
    scales = [factor * noise.scales[2] for factor in factors]
    margin = sum_quantile(noise.noise, FEW, 0.0, *scales)
    squares = 0.0
    for factor, one in zip(factors, groups, strict=True):
        squares += factor * one.noise.means(one.released)[2]
    total = squares + margin
    size = sum(one.size for one in groups)
    most = max(factors) * noise.bound**2
    return math.sqrt(min(max(total / size, 0.0), most))
