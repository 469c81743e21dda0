"""How far an average effect may be off by its nuisances: from released and public numbers, to first
order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import SumLaw
from dp2erm_cvx.calibration.base import bracketed
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.steps.covariates import CovariateLaw, CovariateMean, DifferenceSquare, MeanSquare
from dp2erm_cvx.steps.nuisances import LEFT, STRETCH, Confounding, LinearNuisances, TwoValues, rare
from dp2erm_cvx.steps.record_map import Rows
from dp2erm_cvx.steps.score import AverageScore, EffectScore, OverlapScore, Released, TreatedScore
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import TreatmentRate, released_mass

#: Part of the confounding that an unbent regression of two values may leave, as probabilities are
#: no lines; with slopes by arm; on one side of a rule; and where that of one arm alone is carried
#: on to the other one.
BENT, BENT_ARMS, BENT_SIDE, CARRIED = 0.04, 0.12, 0.25, 0.2
#: The same of a regression in common that no released propensity helps, at these distances of the
#: arms: of an event whose log odds vary by 1 along their difference, in a loss of slope .45,
#: without noise. A test computes it.
BENT_ALONE = ((0.3, 0.6, 0.9, 1.2, 1.5), (0.10, 0.11, 0.14, 0.19, 0.27))
#: What the sampling error of a regression counts, as its residuals are heavier than normal ones.
HEAVIER = 1.15
#: How far a group may lie off the common regression, in deviations of residuals: its rate's noise
#: counts it.
OFFSET = 0.5
#: How far the mean of covariates lies off 0 on one side of a rule, in standard deviations.
SIDE = 0.8
#: Values of a standard normal variable, and their probabilities.
NODES = np.linspace(-8.0, 8.0, 401)
WEIGHTS = np.exp(-0.5 * NODES**2) / np.sum(np.exp(-0.5 * NODES**2))


@dataclass(frozen=True)
class NuisanceError:
    """Errors that the released nuisances add to an effect, in units of the outcome.

    ``bias`` bounds what shrinkage and common slopes of arms leave of the confounding, ``noise`` is
    the standard deviation that privacy noise of the nuisances adds, ``sampling`` the one that the
    sampling error of the regression adds, over the root of n. ``shift`` is what the estimate is
    corrected by.
    """

    bias: float
    noise: float
    sampling: float
    shift: float = 0.0


#: Nothing beside noise and sampling of the score.
NO_ERROR = NuisanceError(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Residuals:
    """What is public of the residuals that a score clips.

    Parameters
    ----------
    bound
        M_r, to which residuals are clipped, in units of the outcome.
    scale
        Guess of their standard deviation, in units of the outcome.
    outcome_bound
        Bound on the centered outcome, in its units.
    of_persons
        True where persons are units, whose mean may vary by any part of what their records do.
    """

    bound: float
    scale: float
    outcome_bound: float
    of_persons: bool

    def deviation(self, clipped: float) -> float:
        """The standard deviation of residuals, clipped to this one; of persons' means at least the
        guess.
        """
        residual = residual_deviation(clipped, self.bound, 0.5 * self.outcome_bound)
        return max(residual, self.scale) if self.of_persons else residual


@dataclass(frozen=True)
class EffectFacts:
    """What is public of an effect before anything is released: errors of its nuisances follow from
    it.

    Parameters
    ----------
    universe
        The datasets that the guarantee is about: number of records, bounds of covariates and
        outcome.
    estimand
        What is estimated, such as "ate".
    score
        The planned step that answers, which knows its nuisances once these are released.
    kind
        Class of the score of the estimand, whatever step answers.
    rate, mean, spread, along, propensity, average
        The planned steps that release the share of the treated, the mean and the mean square of the
        covariates, their mean square along the difference of two arms, the log odds of treatment,
        and the mean that regressions by arm are averaged at; None for one that is not released.
    law
        What is guessed of the covariates.
    assumed
        Distance of the arms, collinearity and heterogeneity, as declared or by default.
    known_propensity
        True where the probability of treatment is public, so that nothing is confounded.
    residuals
        Bound and guess of the residuals of the outcome regression.
    two_values
        Both values of an outcome that has no others.
    """

    universe: Universe
    estimand: str
    score: Any
    kind: type[EffectScore]
    rate: TreatmentRate | None
    mean: CovariateMean | None
    spread: MeanSquare | None
    along: DifferenceSquare | None
    propensity: Step | None
    average: Step | None
    law: CovariateLaw
    assumed: Confounding
    known_propensity: bool
    residuals: Residuals
    two_values: TwoValues | None


def nuisance_error(
    facts: EffectFacts, released: Released, deviation: float, share: float = 1.0
) -> NuisanceError:
    """Nuisance error of an effect whose score has at most this standard ``deviation`` over all
    records.

    Of a ratio ``share`` is the released mean of h. First order; where it holds is simulated, not
    proved.
    """
    pair = _confounded(facts, released)
    if pair is None:
        return NO_ERROR
    nuisances = pair[1]
    counted = nuisances.fit.mass
    # noise may leave a released mean of factors that none has
    least = min(max(share / counted, 1.0 / facts.universe.n_samples), 0.5)
    # the mean square of what scores multiply residuals by, at a constant propensity
    rate = nuisances.rate
    by_estimand = {
        TreatedScore.estimand: rate / (1.0 - rate),
        OverlapScore.estimand: least / (1.0 - least),
    }
    square = counted * by_estimand.get(facts.estimand, 1.0 / (rate * (1.0 - rate)))
    residual = facts.residuals.deviation(deviation / math.sqrt(square))
    return combined(*_arm_errors(facts, nuisances, released, (residual, residual)))


def group_errors(facts: EffectFacts, released: Released, deviation: float) -> list[NuisanceError]:
    """Nuisance errors of the effects in all groups; clipped residuals have at most this
    ``deviation``.
    """
    pair = _confounded(facts, released)
    if pair is None:
        return [NO_ERROR] * len(facts.universe.domain.groups)
    score, nuisances = pair
    residual = facts.residuals.deviation(deviation)
    groups = [(member.nuisances.rate, place) for place, member in enumerate(score.members)]
    both = residual, residual
    return [combined(*_arm_errors(facts, nuisances, released, both, group)) for group in groups]


def risk_errors(
    facts: EffectFacts, released: Released, risks: tuple[float, float]
) -> tuple[NuisanceError, NuisanceError]:
    """Nuisance errors of both released ``risks`` by regressions by arm, the treated first."""
    pair = _confounded(facts, released)
    if pair is None:
        return NO_ERROR, NO_ERROR
    least = 1.0 / facts.universe.n_samples
    shares = [min(max(risk, least), 1.0 - least) for risk in risks]
    treated, untreated = (math.sqrt(share * (1.0 - share)) for share in shares)
    first, second = _arm_errors(facts, pair[1], released, (untreated, treated))
    return second, first


def skewed(facts: EffectFacts, released: Released, deviation: float, least: float) -> float:
    """How far skewed residuals of the untreated may move an effect among the treated, beside its
    interval.

    The released sums say how far their mean lies off the regression. What ridge, noise and sampling
    do to that, by three standard deviations, is taken off; half of the rest may vary with the
    covariates. 0 below the ``least``, for other effects, events, a fitted propensity, and sums not
    of the untreated alone.
    """
    noise = facts.score.calibration
    pair = _confounded(facts, released) if noise.law is SumLaw.TREATED else None
    if pair is None or facts.two_values is not None or pair[1].log_odds is not None:
        return 0.0
    score, nuisances = pair
    total, treated, _, signed = noise.means([int(one) for one in released[facts.score.name]])
    treated, times = max(treated, 1.0 / noise.n_samples), 0.5 * score.widening
    mean = times * (signed - total) / treated
    fit, term = nuisances.fit, nuisances.term
    own = float(
        np.asarray(released[str(term.source)])[term.rows.constants(len(nuisances.spreads))][0]
    )
    residual = facts.residuals.deviation(deviation)
    curvature = max(float(fit.curvature(residual, nuisances.rate)[0]), 1e-12)
    shrunk = min(abs(own) * fit.gamma / curvature, facts.residuals.outcome_bound)
    by_sums = (
        times
        * math.hypot(noise.scales[0], noise.scales[3])
        * (2.0 if noise.noise.pure else 1.0) ** 0.5
    )
    by_fit = fit.noise / (fit.mass * fit.n_samples * (curvature + fit.gamma))
    deviations = (
        by_sums / treated,
        math.sqrt(2.0) * by_fit,
        residual / math.sqrt(noise.n_samples * treated),
    )
    off = float(0.5 * facts.assumed.distance * (abs(mean) - shrunk - 3.0 * math.hypot(*deviations)))
    return off if off > least else 0.0


def _confounded(facts: EffectFacts, released: Released) -> tuple[Any, LinearNuisances] | None:
    """The score at what was released, and its regressions; None where no line leaves
    confounding.
    """
    score = facts.score.at(facts.score.universe, released)
    nuisances = score.nuisances
    if facts.known_propensity or not isinstance(nuisances, LinearNuisances):
        return None
    return score, nuisances


def combined(*errors: NuisanceError) -> NuisanceError:
    """Error of an effect that either arm adds to: noises are independent, and shifts may cancel."""
    shift = math.fsum(one.shift for one in errors)
    return NuisanceError(
        math.fsum(one.bias - abs(one.shift) for one in errors) + abs(shift),
        math.hypot(*(one.noise for one in errors)),
        math.hypot(*(one.sampling for one in errors)),
        shift,
    )


def _arm_errors(
    facts: EffectFacts,
    nuisances: LinearNuisances,
    released: Released,
    residuals: tuple[float, float],
    group: tuple[float, int] | None = None,
) -> tuple[NuisanceError, ...]:
    """Errors of slopes that arms have in common, or of either arm, at its residuals' deviation.

    In a ``group``, of this rate and number, its own rate counts.
    """
    values, assumed = nuisances.two_values, facts.assumed
    last, rate, distance = nuisances.fit, nuisances.rate, assumed.distance
    n = last.mass * facts.universe.n_samples
    within = assumed.within(rate)
    residual = max(residuals)
    declared, left, noise = remaining(facts.spread, nuisances, released, residual, within)
    by_arm = len(noise) == 2
    # rows of regressions by arm, or of the one in common; errors of an arm count by its weight in
    # the effect
    arms, weights, steep = (
        np.eye(2) if by_arm else np.ones((1, 2)),
        np.array([rate, 1.0 - rate]),
        np.ones(2),
    )
    if values is not None:
        steep = np.array([values.steepness(float(one[0])) for one in nuisances.levels(released)])
        bend = BENT_ARMS if by_arm else BENT
        if facts.propensity is None and not by_arm:
            bend = bent_alone(distance)
        left = left + (CARRIED if facts.estimand == TreatedScore.estimand else bend)
    factors, parts = arms @ (weights * steep), arms @ weights
    # the slopes of either arm, or in common, before any shrinkage is undone
    k, term = len(nuisances.spreads), nuisances.term
    theta = np.asarray(released[str(term.source)])
    slopes: Array = theta[~term.rows.constants(k)].reshape(-1, k)
    half = 0.5 * facts.residuals.outcome_bound
    sizes = slope_sizes(nuisances, slopes, declared, half, factors / parts)
    off, apart, log_noise, reach, leak = distance, distance, 0.0, 0.0, None
    step = facts.propensity
    if step is not None:
        square = np.mean(np.square(nuisances.spreads), keepdims=True)
        ridge, log_noise = propensity_error(step, square, rate * (1.0 - rate) * within)
        off = ridge * distance
        if facts.estimand == AverageScore.estimand and not by_arm:
            seen, reach, log_noise, leak = overlap_error(facts, released, residual)
            off = max(off, seen)
        apart = math.hypot(off, math.sqrt(sizes.shape[1]) * log_noise)
        # its ridge may leave more as well, at most all of the distance
        left = left * np.minimum(
            np.hypot(1.0, doubt(facts.spread, released)), distance / max(off, 1e-300)
        )
    biases = np.linalg.norm(left * sizes, axis=1) * parts
    rates = np.sqrt(
        arms @ np.square(rate_error(facts, nuisances, released, residual, steep, group))
    )
    by_intercepts = np.zeros(2)
    if leak is not None:
        by_intercepts = 0.5 * leak
    elif distance > 0.0 and values is None:  # no leak was measured where steepness counts more
        by_intercepts = (
            0.5 * intercept_bias(nuisances, released, residual, assumed) * off / distance
        )
    noises = np.sqrt(np.mean(noise**2, axis=1)) * factors * max(apart, reach)
    counts = np.array([1.0 - rate, rate]) * last.weights(rate)
    own = counts * last.weights(rate)
    sampling = np.array([residual * math.sqrt(np.sum(own)) / np.sum(counts)])
    if by_arm:
        sampling = weights * np.array(residuals) * np.sqrt(own) / counts
    heavier, leaks = math.sqrt(HEAVIER / (n * within)) * max(apart, reach), arms @ by_intercepts
    share = rate if group is None else group[0]
    varying = last.leaning(rate, facts.kind.wanted(share)) * assumed.heterogeneity * residual
    few = rare(
        np.array([1.0 - share, share])
    )  # what noise does to it is counted below, whatever the share
    bias = off * (biases + varying) + np.abs(leaks) + 4.0 * half * np.any(arms * few, axis=1)
    moved = np.sqrt(noises**2 + (log_noise * (biases + varying)) ** 2 + rates**2)
    return tuple(
        NuisanceError(*row) for row in np.c_[bias, moved, heavier * sampling, -leaks].tolist()
    )


def bent_alone(distance: float) -> float:
    """Part of the confounding that a regression of two values leaves by itself, at this distance of
    the arms.

    Linear between and beyond the distances of ``BENT_ALONE``; at most 1.
    """
    distances, parts = BENT_ALONE
    slope = (parts[-1] - parts[-2]) / (distances[-1] - distances[-2])
    beyond = slope * max(distance - distances[-1], 0.0)
    return min(float(np.interp(distance, distances, parts)) + beyond, 1.0)


def remaining(
    spread: MeanSquare | None,
    nuisances: Any,
    released: Released,
    residual: float,
    within: float | None = None,
) -> tuple[Array, Array, Array]:
    """Shares of slopes (g, k) that ridge is predicted to take, what may stay of them, and their
    noise.

    ``within`` is the share of the variance of the covariates that lies within the arms; None: that
    of the declared distance, which slopes are stretched by.
    """
    shares = np.geomspace(nuisances.declared.least_share, 1.0, 9)
    declared, stretch = nuisances.shrinkage(nuisances.deviation)[0], nuisances.stretch
    errors = [nuisances.shrinkage(residual, share, within) for share in shares]
    unsure = np.hypot(LEFT, doubt(spread, released))
    left = np.max(
        [unsure * declared, *(np.abs(1.0 - stretch * (1.0 - part)) for part, _ in errors)], axis=0
    )
    return declared, left, stretch * np.max([noise for _, noise in errors], axis=0)


def slope_sizes(
    nuisances: LinearNuisances,
    slopes: Array,
    declared: Array,
    most: float,
    factors: ArrayLike = 1.0,
) -> Array:
    """Sizes (g, k) of released slopes before shrinkage, per standard deviation: norms of at most
    ``most``.
    """
    sizes: Array = slopes * np.array(nuisances.spreads) / np.maximum(1.0 - declared, 0.02)
    sizes = sizes * np.reshape(factors, (-1, 1))
    sizes *= np.minimum(1.0, most / np.maximum(np.linalg.norm(sizes, axis=1), 1e-300))[:, None]
    return sizes


def doubt(spread: MeanSquare | None, released: Released) -> Array:
    """Parts (k,) of what ridge is predicted to take by which that may be more, as mean squares are
    noisy.
    """
    error = np.zeros(1) if spread is None else spread.relative_error(released)
    return error / (1.0 - 0.7 * error)


def intercept_bias(
    nuisances: LinearNuisances, released: Released, deviation: float, assumed: Confounding
) -> Array:
    """Bias of an effect by the ridge on the intercept of either arm (2,), by way of the slopes.

    ``-D^2 gamma (1 - p) theta_1 / H`` and ``D^2 gamma p theta_0 / H``, D the ``assumed`` distance
    of the arms and H the curvature in slopes of unit size; p and 1 - p are squared where every arm
    has its own slopes.
    """
    rate, fit, term = nuisances.rate, nuisances.fit, nuisances.term
    if term.rows is Rows.POOLED:
        return np.zeros(2)
    shares = np.array([rate, rate - 1.0])
    places = term.rows.constants(len(nuisances.spreads))
    constants = np.asarray(released[str(term.source)])[places]
    curvature = fit.curvature(deviation, rate) * assumed.within(rate)
    if term.rows is Rows.ARMS:
        total = fit.gamma * shares * np.abs(shares) * constants / np.maximum(curvature, 1e-12)
    else:
        taking_part = fit.weights(rate) > 0.0
        total = fit.gamma * shares * taking_part * constants / float(np.sum(curvature))
    return np.asarray(assumed.distance**2 * total)


def rate_error(
    facts: EffectFacts,
    nuisances: LinearNuisances,
    released: Released,
    deviation: float,
    steep: Array,
    group: tuple[float, int] | None = None,
) -> tuple[float, ...]:
    """Error by the noise of the released rate, or of a ``group``'s, where an intercept is off."""
    step = facts.rate
    if step is None or nuisances.log_odds is not None:
        return 0.0, 0.0
    bound = facts.residuals.outcome_bound
    one, term = nuisances.fit, nuisances.term
    places = term.rows.constants(len(nuisances.spreads))
    constants = np.resize(np.asarray(released[str(term.source)])[places], 2)
    curvatures = np.maximum(one.curvature(deviation, nuisances.rate), 1e-12)
    parts = np.array([1.0 - nuisances.rate, nuisances.rate])
    multiples = 1.0 / parts
    if facts.estimand == TreatedScore.estimand:
        multiples = np.array([1.0 / float(np.prod(parts)), 0.0])
    squared, off = step.predicted_error, 0.0
    if group is not None:
        own, place = group
        multiples, off = 1.0 / np.array([1.0 - own, own]), OFFSET * deviation
        mass = released_mass(np.reshape(released[step.name], (2, -1))[:, place])
        squared = step.calibration.variance * (own**2 + (1.0 - own) ** 2) / max(mass, 1.0) ** 2
    noise = steep * one.noise / (one.n_samples * (curvatures + one.gamma))
    shrunk = steep * np.minimum(np.abs(constants) * one.gamma / curvatures, bound)
    total = np.minimum(noise**2 + shrunk**2 + off**2, bound**2) * multiples**2
    return tuple(np.sqrt(min(squared, 0.25) * total).tolist())


def value_error(
    step: EffectScore,
    residuals: Residuals,
    spread: MeanSquare | None,
    released: Released,
    deviation: float,
    *,
    treats: bool,
) -> NuisanceError:
    """Error of what a rule gains on one side of it.

    The arms are taken to lie one standard deviation apart there; nothing where the propensity is
    public.

    Parameters
    ----------
    step
        The planned score of the value of the rule.
    residuals
        What is public of the residuals that it clips.
    spread
        The planned step that releases the mean square of the covariates, if any.
    released
        Numbers by the names of the steps.
    deviation
        Bound on the standard deviation of the score, in units of the outcome.
    treats
        True for those that the rule treats.

    Returns
    -------
    NuisanceError
    """
    nuisances = step.at(step.universe, released).nuisances
    if nuisances.by_side is None or nuisances.counts is None:
        return NO_ERROR
    n, rate, own = step.universe.n_samples, nuisances.rate, nuisances.by_side[treats]
    distance, within = nuisances.declared.distance, nuisances.declared.within(rate)
    half = 0.5 * residuals.outcome_bound
    residual = residuals.deviation(deviation * math.sqrt(rate * (1.0 - rate)))
    fit, theta = nuisances.fit, np.reshape(released[str(nuisances.term.source)], (2, -1))
    part = float(nuisances.counts.shares(released)[int(treats)].sum())
    shares, against, rates = (np.array([1.0 - one, one]) for one in (own, 1.0 - own, rate))
    declared, left, noise = remaining(spread, nuisances, released, residual)
    sizes = slope_sizes(nuisances, theta[:, 1:], declared, half)
    if nuisances.two_values is not None:
        steep = [
            nuisances.two_values.steepness(float(one[0])) for one in nuisances.levels(released)
        ]
        left, sizes, noise = left + BENT_SIDE, sizes * np.c_[steep], noise * np.c_[steep]
    stays, moved = np.linalg.norm(left * sizes, axis=1), np.sqrt(np.mean(noise**2, axis=1))
    curvature = np.maximum(fit.curvature(residual, rate), 1e-12)
    shrunk = np.minimum(np.abs(theta[:, 0]) * fit.gamma / curvature, half)
    # the ridge on an intercept leaks into slopes along the mean of the arm
    leak = shrunk / within * distance * rates[::-1]
    mean = fit.noise / (n * (curvature + fit.gamma))
    wrong = float(np.sum((mean**2 + shrunk**2 + SIDE**2 * (moved**2 + stays**2)) / shares**2))
    sampling = float(np.sum(against**2 / np.maximum(fit.mass * rates, 1e-12)))
    counted = nuisances.counts.predicted_error / (max(part, 1.0 / n) * n) ** 2
    by_rate = math.sqrt(counted * float(np.sum(shares**2)) * min(wrong, (2.0 * half) ** 2))
    return NuisanceError(
        bias=part * distance * float(against @ (stays + leak)),
        noise=part * math.hypot(distance * float(np.linalg.norm(against * moved)), by_rate),
        sampling=part * math.sqrt(HEAVIER * sampling / (within * n)) * residual * distance,
    )


def propensity_error(step: Step, squares: Array, variance: float) -> tuple[float, float]:
    """The part of a log odds that gamma shrinks away, and the noise of one, per standard deviation.

    At the ``squares`` of uncorrelated combinations of the covariates, and this ``variance`` of
    treatments.
    """
    calibration, universe = step.calibration, step.universe
    total = variance * squares * universe.mass + calibration.gamma
    noise = float(calibration.variances[-1]) * np.mean(squares / (universe.n_samples * total) ** 2)
    ridge = calibration.gamma / (
        variance * float(np.mean(squares)) * universe.mass + calibration.gamma
    )
    return ridge, math.sqrt(float(noise))


def overlap_error(
    facts: EffectFacts, released: Released, residual: float
) -> tuple[float, float, float, Array]:
    """Error that a released propensity e~, the cap and clips leave of common slopes: error 4 in the
    theory.

    First the distance of the arms along the log odds, ``E Z (e/e~ P_1 - (1 - e)/(1 - e~) P_0)``, at
    normal ``residual``; second the distance at which errors of slopes alone would add what those of
    intercepts and slopes along Z do, third the noise of a log odds, fourth what the ridge on either
    intercept (2,) adds.
    """
    pair, step, mean = _confounded(facts, released), facts.propensity, facts.mean
    assert pair is not None
    assert step is not None
    law = facts.law if mean is None else mean.around(released)
    score, nuisances = pair
    assert nuisances.log_odds is not None
    fit, term = nuisances.fit, nuisances.term
    within = facts.assumed.within(nuisances.rate)
    variance, spreads = (
        nuisances.rate * (1.0 - nuisances.rate) * within,
        np.array(nuisances.spreads),
    )
    spread, covariance = (
        math.sqrt(float(np.mean(spreads**2))),
        spreads[:, None] * law.correlations * spreads,
    )
    squares = np.maximum(np.linalg.eigvalsh(covariance), 0.0)
    middle, *slopes = np.asarray(released[str(nuisances.log_odds.source)]).tolist()
    ridge, noise = propensity_error(step, squares, variance)
    slope = math.sqrt(max(float(slopes @ covariance @ slopes) - len(slopes) * noise**2, 0.0))
    fitted, lost = special.expit(middle + slope * NODES), variance * ridge / (1.0 - ridge) * slope

    def reaches(true: float) -> bool:
        return bool(WEIGHTS @ (NODES * (special.expit(middle + true * NODES) - fitted)) >= lost)

    e = special.expit(middle + bracketed(reaches, STRETCH * slope, slope) * NODES)
    curved = [
        min(variance, float(WEIGHTS @ (z * e * (1.0 - e)))) for z in (NODES**2, np.ones_like(e))
    ]
    along, across = (propensity_error(step, squares, one)[1] for one in curved)
    curvature, capped = fit.curvature(residual, nuisances.rate), score.capped(fitted)
    size, effect, hessian = fit.scale * spread, np.zeros(3), fit.gamma * np.eye(3)
    for arm, (own, inverse) in enumerate(((1.0 - e, 1.0 - capped), (e, capped))):
        row = np.stack(np.broadcast_arrays(1.0 - arm, arm, size * NODES))
        clip = np.minimum(score.residual_bound, score.widening * score.score_bound * inverse)
        weighted = own / inverse * special.erf(clip / (math.sqrt(2.0) * residual))
        effect += (2 * arm - 1) * row @ (WEIGHTS * (weighted - 1.0))
        hessian += curvature[arm] * (row * (WEIGHTS * own)) @ row.T / float(WEIGHTS @ own)
    errors, total = (
        np.linalg.solve(hessian, effect),
        float(np.sum(curvature)) * within * size**2 + fit.gamma,
    )
    constants = np.asarray(released[str(term.source)])[term.rows.constants(len(slopes))]
    reach = float(np.linalg.norm(errors)) * total / size
    noise = math.sqrt((along**2 + (len(slopes) - 1) * across**2) / len(slopes))
    return abs(float(effect[2])) / size, reach, noise, fit.gamma * errors[:2] * constants


def clipped_square(deviation: float, bound: float) -> float:
    """Mean square of normal residuals of this ``deviation`` once they are clipped at ``bound``."""
    z = bound / deviation
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    tail = float(special.ndtr(-z))
    return deviation**2 * (1.0 - 2.0 * tail - 2.0 * z * density) + 2.0 * bound**2 * tail


def residual_deviation(deviation: float, bound: float, largest: float) -> float:
    """Deviation, at most ``largest``, of normal residuals of this ``deviation`` once clipped at
    ``bound``.
    """

    def reaches(sigma: float) -> bool:
        return clipped_square(sigma, bound) >= deviation**2

    return bracketed(reaches, largest, 1e-9 * largest)
