"""Effects in several groups of records and mean outcomes of several arms, as they are stated."""

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
            contrast = replace(
                contrast,
                interval=contrast.interval.withheld(),
                joint=contrast.joint.withheld(),
            )
        return replace(
            self,
            contrast=contrast,
            interval=self.interval.withheld(),
            joint=self.joint.withheld(),
        )


def state_groups(groups: Sequence[GroupMean], level: float) -> Iterator[GroupEffect]:
    """The effects in all groups, with their contrasts to the first.

    Joint intervals are at the levels of Bonferroni: of all groups, and of all contrasts.
    """
    joint_level = 1.0 - (1.0 - level) / max(len(groups), 1)
    for place, group in enumerate(groups):
        own = group.interval(level)
        joint = group.interval(joint_level)
        yield GroupEffect(
            group=group.group,
            counted=group.noise.n_samples * group.counted,
            treated=group.treated,
            estimate=own.estimate,
            interval=EffectInterval.of(own),
            joint=EffectInterval.of(joint),
            standard_deviation=own.standard_deviation,
            contrast=None if place == 0 else _contrast(group, groups, level),
        )


def _contrast(group: GroupMean, groups: Sequence[GroupMean], level: float) -> GroupContrast:
    """The effect in a group less that in the first of all ``groups``."""
    joint_level = 1.0 - (1.0 - level) / (len(groups) - 1)
    own = group_contrast(group, groups[0], level)
    joint = group_contrast(group, groups[0], joint_level)
    return GroupContrast(own.estimate, EffectInterval.of(own), EffectInterval.of(joint))


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


def arms_without_overlap(
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
    """Mean outcomes of all arms with their contrasts, and the interval of the first contrast.

    Parameters
    ----------
    facts
        What is public of the nuisances.
    released
        Released numbers of every step.
    level
        Level of every interval; joint ones are at the level of Bonferroni for all contrasts.
    predicted
        Whether intervals allow for what the nuisances leave of the confounding.

    Raises
    ------
    DeclarationError
        Unless ``1/2 <= level < 1``.
    """
    book = facts.universe.domain.codebook
    assert book is not None
    labels = book.treatment.labels
    pairs = book.treatment.pairs
    joint_level = 1.0 - (1.0 - level) / len(pairs)
    interval, shares = arm_intervals(facts, released, 1.0 - joint_level, predicted=predicted)
    weights = np.eye(len(labels))
    alone = [interval(weights[arm] - weights[other], level) for arm, other in pairs]
    contrasts = []
    for (arm, other), own in zip(pairs, alone, strict=True):
        joint = interval(weights[arm] - weights[other], joint_level)
        contrasts.append(
            ArmContrast(
                level=labels[arm],
                against=labels[other],
                estimate=own.estimate,
                interval=EffectInterval.of(own),
                joint=EffectInterval.of(joint),
            )
        )
    means = []
    for label, share, weight in zip(labels, shares, weights, strict=True):
        own = interval(weight, level)
        means.append(ArmMean(label, share, own.estimate, EffectInterval.of(own)))
    return ArmEffects(tuple(means), tuple(contrasts)), alone[0]
