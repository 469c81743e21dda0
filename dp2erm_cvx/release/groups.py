"""An effect in each of several groups of records, and how far they lie apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dp2erm_cvx.calibration import GridSums
from dp2erm_cvx.calibration.base import sum_quantile
from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan import EffectStudy, Plan
from dp2erm_cvx.plan.effect_error import NO_ERROR, NuisanceError, group_errors
from dp2erm_cvx.release.interval import EffectInterval, ScoreInterval, ScoreParts, linear_interval, misses
from dp2erm_cvx.release.ratio import part_interval, part_spread, roundings_of
from dp2erm_cvx.release.record import STRICT
from dp2erm_cvx.steps.estimands import GroupScore
from dp2erm_cvx.steps.nuisances import LinearNuisances

#: Probability that the spread of residuals is more than what is read off the released squares.
FEW = 0.005


@dataclass(frozen=True)
class GroupContrast:
    """The effect in a group less that in the first one.

    Its ``interval`` holds by itself, its ``joint`` one together with those of all groups.
    """

    __pydantic_config__: ClassVar = STRICT

    estimate: float
    interval: EffectInterval
    joint: EffectInterval


@dataclass(frozen=True)
class GroupEffect:
    """The effect in one ``group``, a level of the declared column.

    ``counted`` is what its records count, as released with noise, ``treated`` the released rate of treatment
    in it, None where that is public. The ``interval`` holds by itself; the ``joint`` ones of all groups hold
    together at the same level (Bonferroni). ``contrast`` is None for the first group, which it is with.
    """

    __pydantic_config__: ClassVar = STRICT

    group: str
    counted: float
    treated: float | None
    estimate: float
    interval: EffectInterval
    joint: EffectInterval
    standard_deviation: float
    contrast: GroupContrast | None = None


@dataclass(frozen=True)
class GroupMean:
    """Released sums of one of several groups, and what its interval allows for.

    Parameters
    ----------
    noise
        What was calibrated for all groups.
    released
        The three integers of this one.
    center
        The public c_0.
    widening
        What its scores were divided by.
    group, treated
        Its name, and the released rate of treatment in it.
    error
        What the nuisances add.
    persons
        Whether it is of persons, who may have records in several groups: what is sampled in two of them may
        then have any correlation.
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
    def size(self) -> float:
        """Share of all n that the records of the group count: at least one record's."""
        return min(max(2.0 * self.noise.means(self.released)[1], 1.0 / self.noise.n_samples), 1.0)

    @property
    def variance(self) -> float:
        """Variance of the treatment in the group, by its rate; 1/4 where that is public."""
        return 0.25 if self.treated is None else self.treated * (1.0 - self.treated)

    def beside(self, deviation: float, own: float) -> float:
        """The standard deviation of a sum, of its ``own`` part and of that of other groups, at most."""
        return deviation + own if self.persons else math.hypot(deviation, own)

    def interval(self, level: float) -> ScoreInterval:
        """The effect in the group: infinite where its size is within the noise."""
        return part_interval(self.noise, self.released, self.center, level, self.widening, self.error)

    def parts(self, share: float, psi: float, size: float) -> ScoreParts:
        """Parts of an estimate that is ``psi`` above the center, by a released ``size`` of the denominator.

        The standard deviation of sampling but with probability ``share``, the scales of both noises, and what
        rounding adds; all in units of the outcome.
        """
        own = psi / self.widening
        deviation = part_spread(self.noise, self.released, share)[0](own)
        factor, ends = self.widening / (0.5 * size), roundings_of(self.noise)
        scales = tuple(
            factor * times * one for times, one in zip((1.0, abs(own)), self.noise.scales, strict=False)
        )
        return factor * deviation, scales, factor * (ends[0] + abs(own) * ends[1])


def group_contrast(group: GroupMean, reference: GroupMean, level: float) -> ScoreInterval:
    """The effect in a group less that in the reference, from what was released of both.

    Noise and sampling of the scores are independent between groups; what the common regressions add is not,
    and is taken to be of opposite sign. Ratios are linearized: the part of either group is enlarged by what
    its own interval exceeds the linear one. Raises DeclarationError unless ``1/2 <= level < 1``.
    """
    share, tail = misses(level)
    deviation, rounding, estimates, infinite = 0.0, 0.0, [], False
    scales: tuple[float, ...] = ()
    for one in (group, reference):
        interval = one.interval(level)
        half = 0.5 * (interval.high - interval.low)
        infinite = infinite or math.isinf(half)
        spread, own, rounded = one.parts(0.5 * share, interval.estimate - one.center, one.size)
        error = one.error
        errors = error.noise, math.hypot(spread, error.sampling), error.bias
        linear = linear_interval(one.noise, (0.0, level, tail), (spread, own, rounded), errors).high
        more = 1.0 if math.isinf(half) else max(1.0, half / linear)
        deviation, rounding = one.beside(deviation, more * spread), rounding + rounded
        scales += tuple(more * scale for scale in own)
        estimates.append(interval.estimate)
    noise = group.error.noise + reference.error.noise
    sampling = math.hypot(deviation, group.error.sampling + reference.error.sampling)
    estimate, bias = estimates[0] - estimates[1], group.error.bias + reference.error.bias
    score = deviation, scales, rounding
    interval = linear_interval(group.noise, (estimate, level, tail), score, (noise, sampling, bias))
    return replace(interval, low=-math.inf, high=math.inf) if infinite else interval


def group_average(groups: Sequence[GroupMean], level: float) -> ScoreInterval:
    """The average effect over the records of all groups, from what was released of each.

    Infinite where the size of all of them is within its noise. Raises DeclarationError unless
    ``1/2 <= level < 1``.
    """
    share, tail = misses(level)
    means = [one.noise.means(one.released) for one in groups]
    total = sum(2.0 * size for _, size, _ in means)
    size = min(max(total, 1.0 / groups[0].noise.n_samples), 1.0)
    psi = sum(2.0 * one.widening * mean[0] for one, mean in zip(groups, means, strict=True)) / size
    deviation, rounding, scales = 0.0, 0.0, tuple[float, ...]()
    for one in groups:
        spread, own, rounded = one.parts(share / len(groups), psi, size)
        deviation, scales, rounding = one.beside(deviation, spread), scales + own, rounding + rounded
    parts = [one.size / sum(each.size for each in groups) for one in groups]
    errors = [(one.error.noise, one.error.sampling, one.error.bias) for one in groups]
    noise, more, bias = (
        sum(part * error[place] for part, error in zip(parts, errors, strict=True)) for place in range(3)
    )
    center = sum(part * one.center for part, one in zip(parts, groups, strict=True))
    public = center + psi, level, tail
    interval = linear_interval(
        groups[0].noise, public, (deviation, scales, rounding), (noise, math.hypot(deviation, more), bias)
    )
    noises = [2.0 * one.noise.scales[1] for one in groups]
    within = total <= 2.0 * sum_quantile(groups[0].noise.noise, tail, 0.0, *noises)
    return replace(interval, low=-math.inf, high=math.inf) if within else interval


def group_means(
    plan: Plan[EffectStudy], released: Mapping[str, Array], *, predicted: bool
) -> list[GroupMean]:
    """Means of every group; where ``predicted``, with what the nuisances add to its effect."""
    score, universe = plan.main, plan.main.universe
    own, noise = score.score.at(universe, released), score.calibration
    assert isinstance(own, GroupScore)
    assert noise.law.counts
    assert own.center is not None
    means = []
    each = zip(universe.domain.groups, own.members, np.reshape(released[score.name], (-1, 3)), strict=True)
    for name, member, sums in each:
        rate = member.nuisances.rate if isinstance(member.nuisances, LinearNuisances) else None
        public = plan.study.settings.known is not None or isinstance(rate, str)
        integers = tuple(int(number) for number in sums)
        means.append(
            GroupMean(
                noise,
                integers,
                own.center,
                member.widening,
                name,
                None if public else rate,
                persons=universe.domain.units is not None,
            )
        )
    if predicted:
        errors = group_errors(plan, released, _residual_deviation(means))
        return [
            replace(one, center=one.center + error.shift, error=error)
            for one, error in zip(means, errors, strict=True)
        ]
    return means


def _residual_deviation(groups: Sequence[GroupMean]) -> float:
    """At least the standard deviation of clipped residuals in all groups, but with probability ``FEW``.

    The noise of a sum of squares in all groups is less, beside the sum, than that in one of them.
    """
    noise, factors = groups[0].noise, [4.0 * one.variance * one.widening**2 for one in groups]
    squares = (factor * one.noise.means(one.released)[2] for factor, one in zip(factors, groups, strict=True))
    margin = sum_quantile(noise.noise, FEW, 0.0, *(factor * noise.scales[2] for factor in factors))
    total, size = sum(squares) + margin, sum(one.size for one in groups)
    most = max(factors) * noise.bound**2
    return math.sqrt(min(max(total / size, 0.0), most))


def state_groups(groups: Sequence[GroupMean], level: float, unit: float) -> Iterator[GroupEffect]:
    """The effects in all groups, with their contrasts to the first; ``unit`` is that of the outcome."""
    numbers = max(len(groups), 1), max(len(groups) - 1, 1)
    levels = tuple(1.0 - (1.0 - level) / number for number in numbers)
    for place, one in enumerate(groups):
        own, joint = one.interval(level), one.interval(levels[0])
        contrast = None
        if place:
            apart, all_apart = (group_contrast(one, groups[0], each) for each in (level, levels[1]))
            ends = (EffectInterval.of(each).times(unit) for each in (apart, all_apart))
            contrast = GroupContrast(unit * apart.estimate, *ends)
        yield GroupEffect(
            one.group,
            2.0 * one.noise.n_samples * one.noise.means(one.released)[1],
            one.treated,
            unit * own.estimate,
            EffectInterval.of(own).times(unit),
            EffectInterval.of(joint).times(unit),
            unit * own.standard_deviation,
            contrast,
        )


def group_rows(groups: Sequence[GroupEffect]) -> Iterator[dict[str, Any]]:
    """One for every group: its effect, and its contrast to the first."""
    for one in groups:
        row = {"group": one.group, "estimate": one.estimate, **asdict(one.interval)}
        row |= {"counted": one.counted, "treated": one.treated}
        row |= {"joint_low": one.joint.low, "joint_high": one.joint.high}
        if one.contrast is not None:
            apart = one.contrast
            row |= {"contrast": apart.estimate, "contrast_low": apart.interval.low}
            row |= {"contrast_high": apart.interval.high}
        yield row
