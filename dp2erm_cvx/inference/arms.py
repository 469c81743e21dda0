"""Mean outcomes of more than two arms: intervals of their sums, and what nuisances leave in
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import sum_quantile
from dp2erm_cvx.inference.distance import deviations_of, squared_length
from dp2erm_cvx.inference.interval import ScoreInterval, linear_interval
from dp2erm_cvx.inference.nuisances import (
    HEAVIER,
    NO_ERROR,
    EffectFacts,
    NuisanceError,
    remaining,
    residual_deviation,
    slope_sizes,
)
from dp2erm_cvx.steps.covariates import ArmMeans
from dp2erm_cvx.steps.nuisances import LEAST_WITHIN, ArmNuisances, rare
from dp2erm_cvx.steps.record_map import UNIT, Rows
from dp2erm_cvx.steps.score import ArmScores
from dp2erm_cvx.steps.step import Step

#: Part of the confounding that a regression of two values may leave which is not unbent, at a slope
#: of twice the outcome bound: its derivative is off by as much between probabilities of .2 and .8.
BENT = 0.2
#: The squared distance of an arm from all that is expected before its mean is released, over the
#: declared one squared, and the standard deviation of that expectation.
EXPECTED, UNSURE = 0.75, 0.5
#: Standard deviations of the squared distance that are added to it, so that half widths hold.
ADDED = 0.5


def arm_intervals(
    facts: EffectFacts, released: Mapping[str, Array], missed: float, *, predicted: bool
) -> tuple[Callable[[Array, float], ScoreInterval], tuple[float, ...]]:
    """Intervals of sums of weights (K,) times the mean outcomes, at a level; then the shares of the
    arms.

    Bounds of moments miss with a tenth of the probability ``missed``. Sums of arms are of different
    records: their errors are uncorrelated; of persons, who may be in several arms, they may not be,
    nor with what the mean covariate varies by. All that is divided by the released size has its
    noise; where persons count by their numbers of records, the size varies as well.
    """
    step, universe, average = facts.score, facts.universe, facts.average
    domain = universe.domain
    score, noise = step.at(step.universe, released), step.calibration
    assert isinstance(score, ArmScores)
    nuisances = score.nuisances
    assert isinstance(nuisances, ArmNuisances)
    assert average is not None
    n, widenings = universe.n_samples, np.array(score.widenings)
    n_arms, k = len(widenings), universe.n_features
    *sums, number = (int(one) for one in released[step.name])
    table = np.array(
        [noise.means((*pair, number)) for pair in np.reshape(sums, (n_arms, 2)).tolist()]
    )
    tail = 0.1 * missed / (2 * n_arms)
    margin = noise.margin(tail, 1)
    squares = np.clip(table[:, 1] + margin, 0.0, noise.bound**2) * widenings**2
    # as shares of the records that count, a share of n
    size = min(max(float(table[0, 2]), 1.0 / n), 1.0)
    # intercepts and slopes (K, 1 + k) of the regressions of all arms, as scores subtract them
    points, arms = np.vstack([np.zeros((1, k)), np.eye(k)]), range(n_arms)
    lines = np.array(
        [nuisances.outcome(points, np.full(1 + k, float(arm)), released) for arm in arms]
    )
    lines[:, 1:] -= lines[:, :1]
    # no direction varies by more than all variances together, and their sum alone was released
    spread = float(np.linalg.norm(nuisances.spreads)) / math.sqrt(size)
    means = np.asarray(released[average.name], dtype=np.float64) / (UNIT * n * size)
    blur = float(average.calibration.scale) * average.calibration.unit / (n * size)
    residuals, deviations = table[:, 0] * widenings / size, np.sqrt(squares / size**2)
    scales, count = noise.scales[0] * widenings / size, noise.scales[2] / size
    roundings = widenings * (0.5 * noise.step + noise.coupling * noise.units[0]) / size
    errors, common = [NO_ERROR] * n_arms, 0.0
    if predicted:
        half = 0.5 * domain.outcome_bound
        # what noise may hide of the mean square of all arms is less than that of each
        parts = widenings**2 * nuisances.shares / n_arms
        hidden = sum_quantile(noise.noise, tail, 0.0, *(noise.scales[1] * parts))
        pooled = (
            float(parts @ table[:, 1])
            + hidden
            + noise.coupling * noise.units[1] * float(np.sum(parts))
        )
        pooled = min(max(pooled, 0.0), float(np.mean(squares * nuisances.shares)))
        residual = residual_deviation(math.sqrt(pooled / size), facts.residuals.bound, half)
        # that of a record: a person's mean may vary by any part of it
        least = 1e-9 * half if domain.units is None else facts.residuals.scale
        errors, common = arm_errors(facts, released, max(residual, least))
        outcomes = np.abs(lines[:, 0] + lines[:, 1:] @ means + residuals)
        for arm in np.flatnonzero(_rare(facts, released)):
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


def _rare(facts: EffectFacts, released: Mapping[str, Array]) -> NDArray[np.bool_]:
    """The arms (K,) that may be too rare; of many of them the noise of a share is counted up to
    half.
    """
    step = facts.rate
    if step is None:
        return np.zeros(len(facts.universe.domain.arms), dtype=bool)
    counts = np.asarray(released[step.name], dtype=np.float64)
    total = max(float(np.sum(np.maximum(counts, 0.0))), 1.0)
    deviation = math.sqrt(step.calibration.variance) * step.calibration.unit * UNIT / total
    return rare(counts / total, deviation)


def arm_errors(
    facts: EffectFacts, released: Mapping[str, Array], deviation: float
) -> tuple[list[NuisanceError], float]:
    """Errors that nuisances leave in every arm's mean outcome, at residuals of this standard
    ``deviation``.

    In a contrast of slopes by arm both add, and noises are independent. With slopes in common it is
    the second number that counts, the standard deviation of what their noise and sampling adds to
    any contrast. How far every arm lies from all is as :func:`arm_distances` has it. Nothing where
    the propensity is public.
    """
    score, assumed = facts.score, facts.assumed
    nuisances = score.at(score.universe, released).nuisances
    shares, k = np.array(nuisances.shares), len(nuisances.spreads)
    if facts.known_propensity:
        return [NO_ERROR] * len(shares), 0.0
    fit, term = nuisances.fit, nuisances.term
    distances = arm_distances(facts, released, shares)
    # no two arms lie farther apart than this, if each lies as far from all as it would then
    away = float(np.max(distances / (1.0 - shares)))
    within = max(1.0 - float(shares @ distances**2), LEAST_WITHIN)
    declared, left, each = remaining(facts.spread, nuisances, released, deviation, within)
    noise = np.sqrt(np.mean(each**2, axis=1))
    theta, constant = (
        replace(term, stretch=None).coefficient(k, released),
        term.rows.constants(k, len(shares)),
    )
    left = left + (0.0 if facts.two_values is None else BENT)
    half = 0.5 * facts.residuals.outcome_bound
    sizes = slope_sizes(nuisances, theta[~constant].reshape(-1, k), declared, half)
    stays = np.linalg.norm(left * sizes, axis=1)
    n = fit.mass * fit.n_samples
    heavier = HEAVIER / (n * within)
    # an intercept is off by noise and ridge, and the residuals of its arm do not cancel it at a
    # wrong rate
    curvature, rate = np.maximum(fit.curvature(deviation, nuisances.shares), 1e-12), facts.rate
    off = (fit.noise / (fit.n_samples * (curvature + fit.gamma))) ** 2
    off = off + np.minimum(np.abs(theta[constant]) * fit.gamma / curvature, 2.0 * half) ** 2
    counted = 0.0 if rate is None else rate.calibration.variance * rate.calibration.unit**2 / n**2
    by_rate = np.sqrt(np.minimum(off, 4.0 * half**2) * np.minimum(counted / shares**2, 0.25))
    apart, log_noise = distances, np.zeros(len(shares))
    propensity = facts.propensity
    if propensity is not None:
        apart, log_noise = _left_by(
            propensity, shares, nuisances.spreads, fit.mass * within, distances
        )
    reaches = np.hypot(apart, math.sqrt(k) * log_noise)
    varying, common = 0.0, 0.0
    if (
        term.rows is Rows.COMMON
    ):  # slopes of an arm differ from those in common by what effects vary by
        varying = assumed.heterogeneity * deviation
        common = min(away, 2.0 * max(reaches.tolist()))
        common *= math.hypot(float(noise[0]), deviation * math.sqrt(heavier))
    by_arm = term.rows is Rows.ARMS
    # the ridge on an intercept leaks into slopes along the mean of an arm
    leaks = away**2 * np.abs(theta[constant]) * fit.gamma / within
    leaks = leaks / (curvature if by_arm else float(np.sum(curvature)))
    # of slopes in common either arm has at most half of what stays of the distance between the two
    stayed = apart if by_arm else np.minimum(apart, 0.5 * away)
    bias = stayed * stays + (1.0 - shares) * stayed * varying
    bias = bias + leaks * ((1.0 - shares) * stayed / away if by_arm and away else shares)
    moved = np.sqrt((by_arm * reaches * noise) ** 2 + (log_noise * stays) ** 2 + by_rate**2)
    sampling = by_arm * reaches * deviation * np.sqrt(heavier / shares)
    return [NuisanceError(*row) for row in np.c_[bias, moved, sampling].tolist()], common


def arm_distances(facts: EffectFacts, released: Mapping[str, Array], shares: Array) -> Array:
    """How far the covariates of every arm lie from those of all, in their standard deviations.

    Of arms that lie at most D apart, an arm with the share s lies at most ``(1 - s) D`` from all.
    Where the means by arm were released (Theorem 30), the square of that is a guess: ``EXPECTED``
    of it, give or take ``UNSURE`` of it. The released squared distance, less what its noise adds to
    it on average, is weighed with the guess by their variances, and ``ADDED`` deviations of the
    result are added.

    Parameters
    ----------
    facts
        What is public of the effect; its ``assumed.distance`` is D.
    released
        Numbers by the names of the steps.
    shares
        The shares (K,) of the arms.

    Returns
    -------
    Array
        The distances (K,).
    """
    at_most = facts.assumed.distance * (1.0 - shares)
    if not isinstance(facts.mean, ArmMeans) or facts.assumed.distance == 0.0:
        return at_most
    differences, noise = facts.mean.apart(released)
    deviations = deviations_of(facts, released)
    distances = [
        _expected_distance(
            difference / deviations, of_noise / np.outer(deviations, deviations), most
        )
        for difference, of_noise, most in zip(differences, noise, at_most, strict=True)
    ]
    return np.array(distances)


def _expected_distance(difference: Array, noise: Array, at_most: float) -> float:
    """Distance of an arm from all, by a released ``difference`` (k,) and its noise's covariance.

    Parameters
    ----------
    difference
        The mean of the covariates of the arm less that of all (k,), in standard deviations.
    noise
        Covariance of its noise (k, k).
    at_most
        The distance that was declared.

    Returns
    -------
    float
        In standard deviations.
    """
    squared, variance = squared_length(difference, noise[None])
    guess_variance = (UNSURE * at_most**2) ** 2
    weight = guess_variance / (guess_variance + variance)
    mean = weight * squared + (1.0 - weight) * EXPECTED * at_most**2
    deviation = math.sqrt(weight * variance)
    return math.sqrt(max(mean, 0.0) + ADDED * deviation)


def _left_by(
    step: Step, shares: Array, spreads: tuple[float, ...], within: float, distances: Array
) -> tuple[Array, Array]:
    """Distance of every arm (K,) from all that a multinomial regression leaves, and its noise
    there.

    To first order log odds are shrunk by ``gamma (gamma + s^2 W)^-1``, W the covariance of the arms
    at their ``shares``, of the part ``within`` of the variance: what stays of the mean of arm a is
    its row of that times ``pi_b d_b / pi_a`` at most, d the ``distances`` that there were, and at
    most its own.
    """
    calibration, universe = step.calibration, step.universe
    square = float(np.mean(np.square(spreads)))
    W = np.diag(shares) - np.outer(shares, shares)
    inverse = np.linalg.inv(calibration.gamma * np.eye(len(shares)) + square * within * W)
    left = calibration.gamma * np.abs(inverse) @ (shares * distances) / shares
    deviation = math.sqrt(float(calibration.variances[0]) * square) / universe.n_samples
    noise = deviation * np.linalg.norm(W @ inverse, axis=1) / shares
    return np.minimum(left, distances), noise
