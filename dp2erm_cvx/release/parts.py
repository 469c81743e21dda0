"""Effects in several groups of records, mean outcomes of several arms, and how far they lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import GridSums
from dp2erm_cvx.calibration.base import sum_quantile
from dp2erm_cvx.checks import Stated
from dp2erm_cvx.plan import EffectStudy, Plan
from dp2erm_cvx.plan.arms import AVERAGE, arm_errors
from dp2erm_cvx.plan.effect_error import NO_ERROR, NuisanceError, group_errors, residual_deviation
from dp2erm_cvx.release.interval import EffectInterval, ScoreInterval, linear_interval, misses
from dp2erm_cvx.release.ratio import part_interval, part_test
from dp2erm_cvx.steps.nuisances import ArmNuisances, LinearNuisances, rare
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.score import ArmScores, GroupScore

#: Probability that the spread of residuals is more than what is read off the released squares.
FEW = 0.005


@dataclass(frozen=True)
class GroupContrast(Stated):
    """The effect in a group less that in the first one.

    Its ``interval`` holds by itself, its ``joint`` one together with those of all groups.
    """

    estimate: float
    interval: EffectInterval
    joint: EffectInterval


@dataclass(frozen=True)
class GroupEffect(Stated):
    """The effect in one ``group``, a level of the declared column.

    ``counted`` is what its records count, as released with noise, ``treated`` the released rate of treatment
    in it, None where that is public. The ``interval`` holds by itself; the ``joint`` ones of all groups hold
    together at the same level (Bonferroni). ``contrast`` is None for the first group, which it is with.
    """

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

    ``released`` are three integers with the ``noise`` of all groups, ``center`` the public c_0, ``widening``
    what scores were divided by, ``treated`` the released rate of treatment, and ``error`` what nuisances add.
    ``persons`` may have records in several groups: what is sampled in two of these may have any correlation.
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
        return part_interval(self.noise, self.released, self.center, level, self.widening, self.error)

    def parts(self, share: float, psi: float, size: float) -> tuple[float, Sequence[float], float]:
        """Parts of an estimate that is ``psi`` above the center, by a released ``size`` of the denominator.

        The standard deviation of sampling but with probability ``share``, the scales of both noises, and what
        rounding adds; all in units of the outcome.
        """
        own, factor = psi / self.widening, self.widening / (0.5 * size)
        test = part_test(self.noise, self.released, share)
        scales, roundings = (
            [factor * one, factor * abs(own) * other] for one, other in (test.scales, test.roundings)
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

    Noise and sampling of the scores are independent between groups; what the common regressions add is not.
    """
    deviations, scales, roundings = zip(*parts, strict=True)
    errors = [(one.error.bias, one.error.noise, one.error.sampling) for one in groups]
    deviation = sum(deviations) if groups[0].persons else math.hypot(*deviations)
    added = deviation, [each for own in scales for each in own], sum(roundings)
    error = NuisanceError(*(np.array(list(weights)) @ errors).tolist())
    return linear_interval(groups[0].noise, level, estimate, added, error)


def group_contrast(group: GroupMean, reference: GroupMean, level: float) -> ScoreInterval:
    """The effect in a group less that in the reference, from what was released of both.

    What the common regressions add is taken to be of opposite sign. Ratios are linearized: the part of either
    group is enlarged by what its own interval exceeds the linear one. Raises DeclarationError unless ``1/2 <=
    level < 1``.
    """
    (share, _), pair, parts = misses(level), (group, reference), []
    intervals = [one.interval(level) for one in pair]
    halves = [0.5 * (interval.high - interval.low) for interval in intervals]
    for one, interval, half in zip(pair, intervals, halves, strict=True):
        own = one.parts(0.5 * share, interval.estimate - one.center, one.size)
        linear = linear_interval(one.noise, level, 0.0, own, one.error).high
        more = max(1.0, half / linear) if math.isfinite(half) else 1.0
        parts.append((more * own[0], [more * scale for scale in own[1]], own[2]))
    result = _combined(pair, level, intervals[0].estimate - intervals[1].estimate, parts, (1.0, 1.0))
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
    within = total <= 2.0 * sum_quantile(noise.noise, tail, 0.0, *[2.0 * noise.scales[1]] * len(groups))
    return replace(result, low=-math.inf, high=math.inf) if within else result


def group_means(
    plan: Plan[EffectStudy], released: Mapping[str, Array], *, predicted: bool
) -> list[GroupMean]:
    """Means of every group; where ``predicted``, with what the nuisances add to its effect."""
    score, universe = plan.main, plan.main.universe
    own, noise = score.at(universe, released), score.calibration
    assert isinstance(own, GroupScore)
    assert noise.law.counts
    assert own.center is not None
    means, domain = [], universe.domain
    each = zip(domain.groups, own.members, np.reshape(released[score.name], (-1, 3)), strict=True)
    for name, member, sums in each:
        rate = member.nuisances.rate if isinstance(member.nuisances, LinearNuisances) else None
        public = plan.study.settings.known is not None or isinstance(rate, str)
        integers, treated = tuple(int(number) for number in sums), None if public else rate
        one = GroupMean(noise, integers, own.center, member.widening, name, treated)
        means.append(replace(one, persons=domain.units is not None))
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


def state_groups(groups: Sequence[GroupMean], level: float) -> Iterator[GroupEffect]:
    """The effects in all groups, with their contrasts to the first."""
    for place, one in enumerate(groups):
        joint = 1.0 - (1.0 - level) / len(groups), 1.0 - (1.0 - level) / max(len(groups) - 1, 1)
        own, ends = one.interval(level), EffectInterval.of(one.interval(joint[0]))
        contrast = None
        if place:
            apart, all_apart = (group_contrast(one, groups[0], each) for each in (level, joint[1]))
            both = (EffectInterval.of(each) for each in (apart, all_apart))
            contrast = GroupContrast(apart.estimate, *both)
        yield GroupEffect(
            one.group,
            one.noise.n_samples * one.counted,
            one.treated,
            own.estimate,
            EffectInterval.of(own),
            ends,
            own.standard_deviation,
            contrast,
        )


@dataclass(frozen=True)
class ArmMean(Stated):
    """The mean outcome if everybody were in the arm of this ``level``; a risk where that is of an event.

    ``share`` is that of its records, as it was released with noise, or public. The ``interval`` holds by
    itself.
    """

    level: str
    share: float
    estimate: float
    interval: EffectInterval


@dataclass(frozen=True)
class ArmContrast(Stated):
    """The mean outcome in one arm less that in another one, the one ``against`` which it is.

    Its ``interval`` holds by itself, the ``joint`` ones of all contrasts together (Bonferroni).
    """

    level: str
    against: str
    estimate: float
    interval: EffectInterval
    joint: EffectInterval


@dataclass(frozen=True)
class ArmEffects(Stated):
    """All arms in the order of their levels, and all contrasts that were declared."""

    means: tuple[ArmMean, ...]
    contrasts: tuple[ArmContrast, ...]


def arm_effects(
    plan: Plan[EffectStudy], released: Mapping[str, Array], level: float, *, predicted: bool
) -> tuple[ArmEffects, ScoreInterval]:
    """The means of all arms with their contrasts, from what a run ``released``; then the first contrast.

    Where ``predicted``, intervals allow for what the nuisances leave of the confounding. Raises
    DeclarationError unless ``1/2 <= level < 1``.
    """
    book = plan.study.universe.domain.codebook
    assert book is not None
    pairs, labels = book.treatment.pairs, book.treatment.labels
    all_level = 1.0 - (1.0 - level) / len(pairs)
    interval, shares = _combinations(plan, released, 1.0 - all_level, predicted=predicted)
    alone, own, contrasts = np.eye(len(labels)), list[ScoreInterval](), list[ArmContrast]()
    for arm, other in pairs:
        own.append(interval(alone[arm] - alone[other], level))
        joint = interval(alone[arm] - alone[other], all_level)
        ends = EffectInterval.of(own[-1]), EffectInterval.of(joint)
        contrasts.append(ArmContrast(labels[arm], labels[other], own[-1].estimate, *ends))
    means = []
    for label, share, weights in zip(labels, shares, alone, strict=True):
        one = interval(weights, level)
        means.append(ArmMean(label, share, one.estimate, EffectInterval.of(one)))
    return ArmEffects(tuple(means), tuple(contrasts)), own[0]


def _combinations(
    plan: Plan[EffectStudy], released: Mapping[str, Array], missed: float, *, predicted: bool
) -> tuple[Callable[[Array, float], ScoreInterval], tuple[float, ...]]:
    """Intervals of sums of weights (K,) times the mean outcomes, at a level; then the shares of the arms.

    Bounds of moments miss with a tenth of the probability ``missed``. Sums of arms are of different records:
    their errors are uncorrelated; of persons, who may be in several arms, they may not be, nor with what the
    mean covariate varies by. All that is divided by the released size has its noise; where persons count by
    their numbers of records, the size varies as well.
    """
    step, study, domain = plan.main, plan.study, plan.study.universe.domain
    score, noise, average = step.at(step.universe, released), step.calibration, plan.step(AVERAGE)
    assert isinstance(score, ArmScores)
    nuisances = score.nuisances
    assert isinstance(nuisances, ArmNuisances)
    assert average is not None
    n, widenings = study.universe.n_samples, np.array(score.widenings)
    n_arms, k = len(widenings), study.universe.n_features
    *sums, number = (int(one) for one in released[step.name])
    table = np.array([noise.means((*pair, number)) for pair in np.reshape(sums, (n_arms, 2)).tolist()])
    margin = noise.margin(0.1 * missed / (2 * n_arms), 1)
    squares = np.clip(table[:, 1] + margin, 0.0, noise.bound**2) * widenings**2
    # as shares of the records that count, a share of n
    size = min(max(float(table[0, 2]), 1.0 / n), 1.0)
    # intercepts and slopes (K, 1 + k) of the regressions of all arms, as scores subtract them
    points, arms = np.vstack([np.zeros((1, k)), np.eye(k)]), range(n_arms)
    lines = np.array([nuisances.outcome(points, np.full(1 + k, float(arm)), released) for arm in arms])
    lines[:, 1:] -= lines[:, :1]
    # no direction varies by more than all variances together, and their sum alone was released
    spread = float(np.linalg.norm(nuisances.spreads)) / math.sqrt(size)
    means = np.asarray(released[AVERAGE], dtype=np.float64) / (UNIT * n * size)
    blur = float(average.calibration.scale) * average.calibration.unit / (n * size)
    residuals, deviations = table[:, 0] * widenings / size, np.sqrt(squares / size**2)
    scales, count = noise.scales[0] * widenings / size, noise.scales[2] / size
    roundings = widenings * (0.5 * noise.step + noise.coupling * noise.units[0]) / size
    errors, common = [NO_ERROR] * n_arms, 0.0
    if predicted:
        half = 0.5 * domain.outcome_bound
        residual = residual_deviation(
            math.sqrt(float(np.mean(squares * nuisances.shares)) / size), study.settings.residual_bound, half
        )
        # that of a record: a person's mean may vary by any part of it
        least = 1e-9 * half if domain.units is None else study.scale
        errors, common = arm_errors(plan, released, max(residual, least))
        outcomes = np.abs(lines[:, 0] + lines[:, 1:] @ means + residuals)
        for arm in np.flatnonzero(_rare(plan, released)):
            errors[arm] = replace(errors[arm], bias=float(outcomes[arm]) + 2.0 * half)

    def interval(weights: Array, level: float) -> ScoreInterval:
        line, sizes = weights @ lines, np.abs(weights)
        total = float(weights @ residuals + line[1:] @ means)
        deviation = spread * math.hypot(*line[1:])
        deviation += float(np.linalg.norm(sizes * deviations, None if domain.units is None else 1))
        if domain.uneven:
            deviation += abs(float(weights @ residuals)) / math.sqrt(size)
        noises = (*(sizes * scales), *np.abs(line[1:] * blur), abs(total) * count)
        parts = [float(one) for one in noises if one > 0.0]
        error = NuisanceError(
            float(sizes @ [one.bias for one in errors]),
            math.hypot(common, *(weights * [one.noise for one in errors])),
            math.hypot(*(weights * [one.sampling for one in errors])),
        )
        middle = domain.outcome_center * float(np.sum(weights))
        added = deviation / math.sqrt(n), parts, float(sizes @ roundings)
        return linear_interval(noise, level, middle + float(line[0]) + total, added, error)

    return interval, nuisances.shares


def _rare(plan: Plan[EffectStudy], released: Mapping[str, Array]) -> NDArray[np.bool_]:
    """The arms (K,) that may be too rare; of many of them the noise of a share is counted up to half."""
    step = plan.step("rate")
    if step is None:
        return np.zeros(len(plan.study.universe.domain.arms), dtype=bool)
    counts = np.asarray(released[step.name], dtype=np.float64)
    total = max(float(np.sum(np.maximum(counts, 0.0))), 1.0)
    deviation = math.sqrt(step.calibration.variance) * step.calibration.unit * UNIT / total
    return rare(counts / total, deviation)
