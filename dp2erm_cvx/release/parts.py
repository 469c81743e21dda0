"""Effects in several groups of records, mean outcomes of several arms, and how far they lie
apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import Stated
from dp2erm_cvx.inference.arms import arm_intervals
from dp2erm_cvx.inference.distance import Distance, distances_from_the_rest, hardly_overlap
from dp2erm_cvx.inference.groups import GroupMean, group_contrast
from dp2erm_cvx.inference.interval import ScoreInterval
from dp2erm_cvx.inference.nuisances import EffectFacts
from dp2erm_cvx.release.interval import EffectInterval


@dataclass(frozen=True)
class GroupContrast(Stated):
    """The effect in a group less that in the first one.

    Parameters
    ----------
    estimate
        The difference, in units of the outcome.
    interval
        Its interval, which holds by itself.
    joint
        Its interval that holds together with those of all groups.
    """

    estimate: float
    interval: EffectInterval
    joint: EffectInterval


@dataclass(frozen=True)
class GroupEffect(Stated):
    """The effect in one group.

    Parameters
    ----------
    group
        The level of the declared column.
    counted
        What the records of the group count, as released with noise.
    treated
        Released rate of treatment in the group; None where it is public.
    estimate
        The effect in the group, in units of the outcome.
    interval
        Its interval, which holds by itself.
    joint
        Its interval that holds together with those of all groups at the same level (Bonferroni).
    standard_deviation
        A bound on the standard deviation of the score in the group.
    contrast
        The effect less that in the first group; None for the first group.
    """

    group: str
    counted: float
    treated: float | None
    estimate: float
    interval: EffectInterval
    joint: EffectInterval
    standard_deviation: float
    contrast: GroupContrast | None = None

    def without_intervals(self) -> GroupEffect:
        """The same of arms that hardly overlap, of which no interval is stated."""
        contrast = self.contrast
        if contrast is not None:
            own, all_together = contrast.interval.withheld(), contrast.joint.withheld()
            contrast = replace(contrast, interval=own, joint=all_together)
        own, all_together = self.interval.withheld(), self.joint.withheld()
        return replace(self, contrast=contrast, interval=own, joint=all_together)


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
    """The mean outcome if everybody were in one arm; a risk where the outcome is an event.

    Parameters
    ----------
    level
        The level of the treatment.
    share
        Share of its records, as released with noise, or public.
    estimate
        The mean outcome.
    interval
        Its interval, which holds by itself.
    """

    level: str
    share: float
    estimate: float
    interval: EffectInterval


@dataclass(frozen=True)
class ArmContrast(Stated):
    """The mean outcome in one arm less that in another one.

    Parameters
    ----------
    level
        The level of the treatment.
    against
        The level that it is compared with.
    estimate
        The difference, in units of the outcome.
    interval
        Its interval, which holds by itself.
    joint
        Its interval that holds together with those of all contrasts (Bonferroni).
    """

    level: str
    against: str
    estimate: float
    interval: EffectInterval
    joint: EffectInterval


@dataclass(frozen=True)
class ArmEffects(Stated):
    """Mean outcomes and contrasts of more than two arms.

    Parameters
    ----------
    means
        Mean outcomes of all arms, in the order of their levels.
    contrasts
        All contrasts that were declared.
    """

    means: tuple[ArmMean, ...]
    contrasts: tuple[ArmContrast, ...]

    def without_intervals(self, levels: Collection[str]) -> ArmEffects:
        """The same where arms of these ``levels`` hardly overlap with the others.

        No interval is stated of their means, nor of contrasts with one of them.
        """
        means = list[ArmMean]()
        for mean in self.means:
            if mean.level in levels:
                mean = replace(mean, interval=mean.interval.withheld())
            means.append(mean)
        contrasts = list[ArmContrast]()
        for contrast in self.contrasts:
            if contrast.level in levels or contrast.against in levels:
                own = contrast.interval.withheld()
                contrast = replace(contrast, interval=own, joint=contrast.joint.withheld())
            contrasts.append(contrast)
        return ArmEffects(tuple(means), tuple(contrasts))


@dataclass(frozen=True)
class ArmApart(Stated):
    """An arm of several that hardly overlaps with the others.

    Parameters
    ----------
    level
        The level of the treatment.
    distance
        How far its covariates lie from those of all others, along the one that says most.
    """

    level: str
    distance: Distance


def arms_apart(
    facts: EffectFacts, released: Mapping[str, Array], arms: ArmEffects
) -> tuple[ArmApart, ...]:
    """The arms that hardly overlap with all others, by the rule of two arms for each of them.

    Parameters
    ----------
    facts
        What is public of the effect.
    released
        Numbers by the names of the steps.
    arms
        Mean outcomes and contrasts.

    Returns
    -------
    tuple of ArmApart
        Those arms, in the order of their levels.
    """
    shares = np.array([one.share for one in arms.means])
    distances = distances_from_the_rest(facts, released, shares)
    if not distances:
        return ()
    declared = facts.assumed.distance
    return tuple(
        ArmApart(mean.level, distance)
        for mean, distance in zip(arms.means, distances, strict=True)
        if hardly_overlap(declared, distance, mean.share)
    )


def arm_effects(
    facts: EffectFacts, released: Mapping[str, Array], level: float, *, predicted: bool
) -> tuple[ArmEffects, ScoreInterval]:
    """The means of all arms with their contrasts, from what a run ``released``; then the first
    contrast.

    Where ``predicted``, intervals allow for what the nuisances leave of the confounding. Raises
    DeclarationError unless ``1/2 <= level < 1``.
    """
    book = facts.universe.domain.codebook
    assert book is not None
    pairs, labels = book.treatment.pairs, book.treatment.labels
    all_level = 1.0 - (1.0 - level) / len(pairs)
    interval, shares = arm_intervals(facts, released, 1.0 - all_level, predicted=predicted)
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
