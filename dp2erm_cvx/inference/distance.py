"""How far arms lie apart, from released means by arm: what alarms, and what widens an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import Stated
from dp2erm_cvx.inference.limits import surely_more
from dp2erm_cvx.inference.nuisances import EffectFacts
from dp2erm_cvx.steps.covariates import ArmMeans
from dp2erm_cvx.steps.score import Released

#: Deviations of the noise that the lower end of a distance lies off what was released: of a normal
#: one nine in ten ends are below.
LOWER = 1.28
#: Share of distances that may lie below a lower end which holds for several covariates together.
MISSED = 0.1
#: Arms whose means lie farther apart, in standard deviations within them, hardly overlap: formulas
#: of first order end there.
OVERLAP_ENDS = 2.0
#: The least mean square along a difference that is not taken for its noise.
LEAST_SQUARE = 0.25


def deviations_of(facts: EffectFacts, released: Released) -> Array:
    """Standard deviations (k,) of the covariates of which means by arm were released."""
    if facts.spread is None:
        return np.array(facts.law.spreads)
    return facts.spread.deviations(released)


def fourth_moment(covariance: Array) -> float:
    """Mean fourth power of the length of the noise of one block, by its covariance (k, k).

    The noise of a block of q = 1 + k numbers is ``R U`` with U uniform in the cube, so that the
    fourth moment of R is ``(q + 3) (q + 4) / ((q + 1) (q + 2))`` times its squared second one.
    """
    q = 1 + len(covariance)
    ratio = (q + 3) * (q + 4) / ((q + 1) * (q + 2))
    total = float(np.trace(covariance))
    uniform = 2.0 * float(np.sum(covariance**2)) - 1.2 * float(np.sum(np.diag(covariance) ** 2))
    return ratio * (total**2 + uniform)


@dataclass(frozen=True)
class Distance(Stated):
    """How far both arms lie apart by what was released, in standard deviations of all records.

    Parameters
    ----------
    least
        The lower end: nine times in ten the distance is larger.
    estimate
        The distance itself, at least the lower end.
    """

    least: float
    estimate: float


def released_distance(facts: EffectFacts, released: Released) -> Distance | None:
    """The distance of both arms along the difference of their released means.

    Its square is the squared length of that difference in released deviations, less what its noise
    adds to it on average, over the mean square of the covariates along it. At the lower end it is
    less by ``LOWER`` deviations of what the noises of both add to it.

    Parameters
    ----------
    facts
        What is public of the effect.
    released
        Numbers by the names of the steps.

    Returns
    -------
    Distance or None
        None where nothing was released that says so.
    """
    mean, along = facts.mean, facts.along
    several = len(facts.universe.domain.arms) > 2
    if several or not isinstance(mean, ArmMeans) or (along is None and len(mean.law.spreads) > 1):
        return None
    deviations = deviations_of(facts, released)
    difference, noise = mean.difference(released)
    blocks = noise / np.outer(deviations, deviations)
    squared, variance = squared_length(difference / deviations, blocks)
    if squared <= 0.0:
        return Distance(0.0, 0.0)
    square = 1.0
    unsure = 0.0
    if along is not None:
        square = max(along.mean_square(released), LEAST_SQUARE)
        unsure = math.sqrt(along.predicted_error) / square
    off = LOWER * math.hypot(math.sqrt(variance) / squared, unsure)
    estimate = math.sqrt(squared / square)
    return Distance(estimate * math.sqrt(max(1.0 - off, 0.0)), estimate)


def squared_length(difference: Array, blocks: Array) -> tuple[float, float]:
    """Squared length of a released difference less that of its noise, and the variance of that.

    The length is without bias.

    Parameters
    ----------
    difference
        The difference (k,) of means of covariates, in their standard deviations.
    blocks
        Covariances (m, k, k) of m independent parts of its noise.

    Returns
    -------
    tuple of float
        The squared length, which may be negative, and its variance.
    """
    covariance = np.sum(blocks, axis=0)
    length = float(np.sum(difference**2))
    squared = length - float(np.trace(covariance))
    variance = 0.0
    for place, block in enumerate(blocks):
        for other in blocks[:place]:
            variance += 4.0 * float(np.sum(other * block))
    for block in blocks:
        variance += fourth_moment(block) - float(np.trace(block)) ** 2
    # what is left of the difference without its noise lies along it
    along = float(difference @ covariance @ difference) / max(length, 1e-300)
    return squared, variance + 4.0 * max(squared, 0.0) * along


def distances_from_the_rest(
    facts: EffectFacts, released: Released, shares: Array
) -> list[Distance]:
    """How far every arm of several lies from all others, along the covariate that says most.

    The distance along a combination of covariates is at least that along each of them, however they
    are correlated. Lower ends hold for all k covariates together: of normal noise nine in ten are
    below the distance.

    Parameters
    ----------
    facts
        What is public of the effect.
    released
        Numbers by the names of the steps.
    shares
        The shares (K,) of the arms.

    Returns
    -------
    list of Distance
        One for each arm, in standard deviations of all records; empty where no means by arm were
        released.
    """
    if not isinstance(facts.mean, ArmMeans):
        return []
    differences, noise = facts.mean.apart(released)
    deviations = deviations_of(facts, released)
    relative_error = np.zeros(len(deviations))
    if facts.spread is not None:
        relative_error = np.broadcast_to(facts.spread.relative_error(released), len(deviations))
    lower = float(special.ndtri(1.0 - MISSED / len(deviations)))
    distances = []
    for difference, covariance, share in zip(differences, noise, shares.tolist(), strict=True):
        # the mean of all lies between that of the arm and that of the others
        size = np.abs(difference) / (deviations * (1.0 - share))
        error = np.sqrt(np.diag(covariance)) / (deviations * (1.0 - share))
        off = lower * np.hypot(error, 0.5 * relative_error * size)
        place = int(np.argmax(size - off))
        least = max(float(size[place] - off[place]), 0.0)
        distances.append(Distance(least, float(size[place])))
    return distances


def hardly_overlap(declared: float, distance: Distance | None, rate: float) -> bool:
    """Whether released means lie so far apart that two arms hardly overlap.

    Of the variance along the difference, ``rate (1 - rate)`` times its square lies between the
    arms; the rest is within them. Where released numbers do not say more than is declared, their
    lower end counts.

    Parameters
    ----------
    declared
        The distance that was declared, in standard deviations.
    distance
        What was released of it; None for nothing.
    rate
        Share of the treated.
    """
    if distance is None:
        return False
    length = distance.least
    if surely_more(distance.least, declared):
        length = distance.estimate
    within = 1.0 - rate * (1.0 - rate) * length**2
    return length**2 > OVERLAP_ENDS**2 * within


def at_released_distance(facts: EffectFacts, distance: Distance | None) -> EffectFacts:
    """The facts with arms as far apart as was released.

    They stay as they are where that is not surely more than is declared.
    """
    if distance is None or not surely_more(distance.least, facts.assumed.distance):
        return facts
    return replace(facts, assumed=replace(facts.assumed, distance=distance.estimate))
