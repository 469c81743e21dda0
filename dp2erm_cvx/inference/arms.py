"""Mean outcomes of more than two arms: intervals of their sums, and what nuisances leave in them.

:func:`arm_errors` is equations (A38) to (A45) of the page "Allowances of an interval",
``docs/theory/allowances.md``; :func:`arm_intervals` is Theorem 26 and the section "Intervals of
several arms" of the page "Private effects".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import GridSums
from dp2erm_cvx.calibration.base import sum_quantile
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.inference.distance import deviations_of, squared_length
from dp2erm_cvx.inference.interval import ScoreInterval, linear_interval
from dp2erm_cvx.inference.nuisances import (
    HEAVIER,
    LEAST_CURVATURE,
    NO_ERROR,
    EffectFacts,
    NuisanceError,
    remaining,
    residual_deviation,
    slope_sizes,
)
from dp2erm_cvx.steps.covariates import ArmMeans
from dp2erm_cvx.steps.nuisances import LEAST_WITHIN, ArmNuisances, rare
from dp2erm_cvx.steps.record_map import Rows
from dp2erm_cvx.steps.score import ArmScores
from dp2erm_cvx.steps.step import Step

#: Part of the confounding that a regression of two values may leave which is not unbent, at a slope
#: of twice the outcome bound: its derivative is off by as much between probabilities of .2 and .8.
BENT = 0.2
#: The squared distance of an arm from all that is expected before its mean is released, over the
#: declared one squared.
EXPECTED = 0.75
#: The standard deviation of that expectation, over the declared distance squared.
UNSURE = 0.5
#: Standard deviations of the squared distance that are added to it, so that half widths hold.
ADDED = 0.5


@dataclass(frozen=True)
class _ArmOutcomes:
    """Mean outcomes of all K arms by what was released, and what may move them.

    All of it is in units of the outcome, and per record that counts.

    Parameters
    ----------
    noise
        That of the sums of the arms.
    domain
        Labels and units of the records.
    n_samples
        n, the number of records.
    size
        Share of n that the records count.
    lines
        Intercepts and slopes (K, 1 + k) of the regressions, as scores subtract them.
    means
        The released mean (k,) of the covariates.
    mean_noise
        Scale of its noise.
    spread
        Bound on the standard deviation of any combination of covariates.
    residuals
        Mean weighted residuals (K,).
    deviations
        Bounds on their standard deviations over the root of n (K,).
    scales
        Scales of their noise (K,).
    count_noise
        Scale of the noise of the number of records, as a share of it.
    roundings
        What rounding may add to them (K,).
    errors
        What the nuisances leave in every arm.
    common
        Standard deviation of what slopes in common add to any contrast.
    """

    noise: GridSums
    domain: Domain
    n_samples: int
    size: float
    lines: Array
    means: Array
    mean_noise: float
    spread: float
    residuals: Array
    deviations: Array
    scales: Array
    count_noise: float
    roundings: Array
    errors: tuple[NuisanceError, ...]
    common: float = 0.0

    @property
    def absolute(self) -> Array:
        """Sizes (K,) of the mean outcomes, measured from the center of the outcome."""
        return np.abs(self.lines[:, 0] + self.lines[:, 1:] @ self.means + self.residuals)

    def interval(self, weights: Array, level: float) -> ScoreInterval:
        """Interval of a sum of ``weights`` (K,) times the mean outcomes.

        Sums of arms are of different records: their errors are uncorrelated; of persons, who may be
        in several arms, they may not be, nor with what the mean covariate varies by. All that is
        divided by the released size has its noise; where persons count by their numbers of records,
        the size varies as well.
        """
        line = weights @ self.lines
        sizes = np.abs(weights)
        slopes = line[1:]
        total = float(weights @ self.residuals + slopes @ self.means)
        noises = (
            *(sizes * self.scales),
            *np.abs(slopes * self.mean_noise),
            abs(total) * self.count_noise,
        )
        middle = self.domain.outcome_center * float(np.sum(weights))
        parts = (
            self._deviation(weights, slopes) / math.sqrt(self.n_samples),
            [float(one) for one in noises if one > 0.0],
            float(sizes @ self.roundings),
        )
        estimate = middle + float(line[0]) + total
        return linear_interval(self.noise, level, estimate, parts, self._error(weights))

    def _deviation(self, weights: Array, slopes: Array) -> float:
        """Standard deviation of sampling, over the root of n."""
        by_arm = np.abs(weights) * self.deviations
        deviation = self.spread * math.hypot(*slopes)
        deviation += float(np.linalg.norm(by_arm, None if self.domain.units is None else 1))
        if self.domain.uneven:
            deviation += abs(float(weights @ self.residuals)) / math.sqrt(self.size)
        return deviation

    def _error(self, weights: Array) -> NuisanceError:
        """What the nuisances leave in the sum."""
        noises = weights * [one.noise for one in self.errors]
        samplings = weights * [one.sampling for one in self.errors]
        return NuisanceError(
            bias=float(np.abs(weights) @ [one.bias for one in self.errors]),
            noise=math.hypot(self.common, *noises),
            sampling=math.hypot(*samplings),
        )


class _Distances(NamedTuple):
    """How far every arm (K,) stays from all, in standard deviations.

    Parameters
    ----------
    bias
        D_b: what a bias of slopes is multiplied by.
    noisy
        D_e: what noise and sampling of slopes are multiplied by.
    log_odds_noise
        v_e: the standard deviation of what the noise of a propensity adds, per standard deviation
        of a covariate.
    """

    bias: Array
    noisy: Array
    log_odds_noise: Array


def arm_intervals(
    facts: EffectFacts, released: Mapping[str, Array], missed: float, *, predicted: bool
) -> tuple[Callable[[Array, float], ScoreInterval], tuple[float, ...]]:
    """Intervals of sums of weights (K,) times the mean outcomes of the arms.

    Parameters
    ----------
    facts
        What is public of the effect.
    released
        Numbers by the names of the steps.
    missed
        Bounds of moments miss with a tenth of this probability.
    predicted
        True to count what the nuisances leave.

    Returns
    -------
    tuple
        A function of weights and a level that returns an interval; the shares (K,) of the arms.
    """
    step = facts.score
    noise = step.calibration
    score = step.at(step.universe, released)
    assert isinstance(score, ArmScores)
    nuisances = score.nuisances
    assert isinstance(nuisances, ArmNuisances)
    average = facts.average
    assert average is not None
    domain = facts.universe.domain
    n = facts.universe.n_samples
    widenings = np.array(score.widenings)
    n_arms = len(widenings)
    tail = 0.1 * missed / (2 * n_arms)

    # mean score, mean square and number of records of every arm
    *sums, number = (int(one) for one in released[step.name])
    pairs = np.reshape(sums, (n_arms, 2)).tolist()
    means = np.array([noise.means((*pair, number)) for pair in pairs])
    largest_squares = np.clip(means[:, 1] + noise.margin(tail, 1), 0.0, noise.bound**2)
    squares = largest_squares * widenings**2
    # as shares of the records that count, a share of n
    size = min(max(float(means[0, 2]), 1.0 / n), 1.0)
    mean_sums = np.asarray(released[average.name], dtype=np.float64) * average.calibration.unit
    mean_noise = float(average.calibration.scale) * average.calibration.unit / (n * size)
    outcomes = _ArmOutcomes(
        noise=noise,
        domain=domain,
        n_samples=n,
        size=size,
        lines=_lines(nuisances, released, n_arms, facts.universe.n_features),
        means=mean_sums / (n * size),
        mean_noise=mean_noise,
        # no direction varies by more than all variances together, and their sum alone was released
        spread=float(np.linalg.norm(nuisances.spreads)) / math.sqrt(size),
        residuals=means[:, 0] * widenings / size,
        deviations=np.sqrt(squares / size**2),
        scales=noise.scales[0] * widenings / size,
        count_noise=noise.scales[2] / size,
        roundings=widenings * (0.5 * noise.step + noise.coupling * noise.units[0]) / size,
        errors=(NO_ERROR,) * n_arms,
    )
    if predicted:
        # what noise may hide of the mean square of all arms is less than that of each
        factors = widenings**2 * nuisances.shares / n_arms
        hidden = sum_quantile(noise.noise, tail, 0.0, *(noise.scales[1] * factors))
        rounding = noise.coupling * noise.units[1] * float(np.sum(factors))
        mean_square = float(factors @ means[:, 1]) + hidden + rounding
        largest = float(np.mean(squares * nuisances.shares))
        mean_square = min(max(mean_square, 0.0), largest)
        outcomes = _with_errors(facts, released, outcomes, math.sqrt(mean_square / size))
    return outcomes.interval, nuisances.shares


def _lines(nuisances: ArmNuisances, released: Mapping[str, Array], n_arms: int, k: int) -> Array:
    """Intercepts and slopes (K, 1 + k) of the regressions of all arms, as scores subtract them."""
    points = np.vstack([np.zeros((1, k)), np.eye(k)])
    lines = np.empty((n_arms, 1 + k))
    for arm in range(n_arms):
        lines[arm] = nuisances.outcome(points, np.full(1 + k, float(arm)), released)
    lines[:, 1:] -= lines[:, :1]
    return lines


def _with_errors(
    facts: EffectFacts, released: Mapping[str, Array], outcomes: _ArmOutcomes, clipped: float
) -> _ArmOutcomes:
    """The outcomes with what the nuisances leave, at residuals of this deviation once clipped."""
    bound = facts.universe.domain.outcome_bound
    residual = residual_deviation(clipped, facts.residuals.bound, 0.5 * bound)
    # that of a record: a person's mean may vary by any part of it
    least = 1e-9 * (0.5 * bound) if outcomes.domain.units is None else facts.residuals.scale
    errors, common = arm_errors(facts, released, max(residual, least))
    sizes = outcomes.absolute
    for arm in np.flatnonzero(_rare(facts, released)):
        # any mean outcome of an arm that is too rare
        errors[arm] = replace(errors[arm], bias=float(sizes[arm]) + bound)
    return replace(outcomes, errors=tuple(errors), common=common)


def _rare(facts: EffectFacts, released: Mapping[str, Array]) -> NDArray[np.bool_]:
    """The arms (K,) that may have at most one record in fifty, by three deviations of the noise."""
    step = facts.rate
    if step is None:
        return np.zeros(len(facts.universe.domain.arms), dtype=bool)
    counts = np.asarray(released[step.name], dtype=np.float64)
    total = max(float(np.sum(np.maximum(counts, 0.0))), 1.0)
    records = total * step.calibration.unit
    deviation = math.sqrt(step.calibration.variance) / records
    return rare(counts / total, deviation)


def arm_errors(
    facts: EffectFacts, released: Mapping[str, Array], deviation: float
) -> tuple[list[NuisanceError], float]:
    """Errors that nuisances leave in every arm's mean outcome.

    In a contrast of slopes by arm both add, and noises are independent. How far every arm lies from
    all is as :func:`arm_distances` has it. Nothing is left where the propensity is public.

    Parameters
    ----------
    facts
        What is public of the effect.
    released
        Numbers by the names of the steps.
    deviation
        Standard deviation of residuals, in units of the outcome.

    Returns
    -------
    tuple
        The errors of the arms, and the standard deviation of what noise and sampling of slopes in
        common add to any contrast; 0 for slopes by arm.
    """
    score = facts.score
    nuisances = score.at(score.universe, released).nuisances
    shares = np.array(nuisances.shares)
    if facts.known_propensity:
        return [NO_ERROR] * len(shares), 0.0
    fit = nuisances.fit
    by_arm = nuisances.term.rows is Rows.ARMS
    in_common = nuisances.term.rows is Rows.COMMON

    # (A38): d = max d_a / (1 - pi_a), as no two arms lie farther apart if each lies as far from all
    # as it would then; l = max(1 - sum pi_a d_a^2, 1/5)
    from_all = arm_distances(facts, released, shares)
    between = float(np.max(from_all / (1.0 - shares)))
    within = max(1.0 - float(shares @ from_all**2), LEAST_WITHIN)
    distances = _distances(facts, nuisances, from_all, within)

    # (A21) and (A25) of every arm: b_s = |k' beta|, v_s^2 = mean of v'^2
    intercepts, slopes = nuisances.coefficients(released)
    errors = remaining(facts.spread, nuisances, released, deviation, within)
    wrong_parts = errors.wrong + (0.0 if facts.two_values is None else BENT)
    largest = 0.5 * facts.residuals.outcome_bound
    sizes = slope_sizes(nuisances, slopes, errors.shrunk, largest)
    slope_bias = np.linalg.norm(wrong_parts * sizes, axis=1)
    slope_noise = np.sqrt(np.mean(errors.noise**2, axis=1))

    # (A42): of slopes in common, t = eta sigma, and what moves all arms together
    heavier = HEAVIER / (fit.mass * fit.n_samples * within)
    varying = 0.0
    common = 0.0
    if in_common:
        varying = facts.assumed.heterogeneity * deviation
        common = min(between, 2.0 * max(distances.noisy.tolist()))
        common *= math.hypot(float(slope_noise[0]), deviation * math.sqrt(heavier))

    # (A43): b_a = D_b b_s + (1 - pi_a) D_b t + what the ridge on its intercept leaks into slopes
    curvatures = np.maximum(fit.curvature(deviation, nuisances.shares), LEAST_CURVATURE)
    leaks = between**2 * np.abs(intercepts) * fit.gamma / within
    if by_arm:
        bias_distances = distances.bias
        leaks = leaks / curvatures
        leak_shares = (1.0 - shares) * bias_distances / between if between else shares
    else:
        # Of slopes in common an arm has at most half of the distance of two.
        bias_distances = np.minimum(distances.bias, 0.5 * between)
        leaks = leaks / float(np.sum(curvatures))
        leak_shares = shares
    bias = bias_distances * slope_bias + (1.0 - shares) * bias_distances * varying
    bias = bias + leaks * leak_shares

    # (A44): v_a^2 = 1_A (D_e v_s)^2 + (v_e b_s)^2 + v_p^2
    by_slopes = by_arm * distances.noisy * slope_noise
    by_log_odds = distances.log_odds_noise * slope_bias
    by_rate = _rate_errors(facts, nuisances, intercepts, curvatures)
    noise = np.sqrt(by_slopes**2 + by_log_odds**2 + by_rate**2)

    # (A45): s_a = 1_A D_e sigma (1.15 / (c n l pi_a))^(1/2)
    sampling = by_arm * distances.noisy * deviation * np.sqrt(heavier / shares)
    rows = np.column_stack([bias, noise, sampling]).tolist()
    return [NuisanceError(*row) for row in rows], common


def _rate_errors(
    facts: EffectFacts, nuisances: ArmNuisances, intercepts: Array, curvatures: Array
) -> Array:
    """Errors v_p (K,) by the noise of released shares, where an intercept is off: (A39).

    An intercept is off by noise and ridge, and the residuals of its arm do not cancel it at a wrong
    rate.
    """
    fit = nuisances.fit
    shares = np.array(nuisances.shares)
    bound = facts.residuals.outcome_bound
    # (A39): E_a^2 = (s_b / (n (H_a + gamma)))^2 + min(|theta_a| gamma / H_a, M')^2, at most M'^2
    by_noise = (fit.noise / (fit.n_samples * (curvatures + fit.gamma))) ** 2
    by_ridge = np.minimum(np.abs(intercepts) * fit.gamma / curvatures, bound) ** 2
    mean_residuals = np.minimum(by_noise + by_ridge, bound**2)
    # (A39): times min(s_p^2 / (c n pi_a)^2, 1/4)
    count_variance = 0.0
    if facts.rate is not None:
        count_variance = facts.rate.calibration.variance / (fit.mass * fit.n_samples) ** 2
    share_variances = np.minimum(count_variance / shares**2, 0.25)
    return np.asarray(np.sqrt(mean_residuals * share_variances))


def _distances(
    facts: EffectFacts, nuisances: ArmNuisances, from_all: Array, within: float
) -> _Distances:
    """What a propensity leaves of the distances (K,) of the arms: equations (A40) and (A41)."""
    step = facts.propensity
    if step is None:
        bias_distances = from_all
        log_odds_noise = np.zeros(len(from_all))
    else:
        shares = np.array(nuisances.shares)
        counted_within = nuisances.fit.mass * within
        bias_distances, log_odds_noise = _left_by(
            step, shares, nuisances.spreads, counted_within, from_all
        )
    # (A41): D_e = (D_b^2 + J v_e^2)^(1/2)
    root_k = math.sqrt(len(nuisances.spreads))
    noisy = np.hypot(bias_distances, root_k * log_odds_noise)
    return _Distances(bias_distances, noisy, log_odds_noise)


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
    scales = np.outer(deviations, deviations)
    distances = []
    for difference, of_noise, most in zip(differences, noise, at_most, strict=True):
        distances.append(_expected_distance(difference / deviations, of_noise / scales, most))
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
    step: Step, shares: Array, spreads: tuple[float, ...], counted_within: float, from_all: Array
) -> tuple[Array, Array]:
    """Distances D_b (K,) that a multinomial propensity leaves, and its noise v_e (K,) there: (A40).

    To first order log odds are shrunk by ``gamma (gamma + u^2 c l W)^-1``, W the covariance of the
    arms at their shares. What stays of the mean of arm a is its row of that times
    ``pi_b d_b / pi_a`` at most, and at most its own distance.

    Parameters
    ----------
    step
        The planned step that releases the propensity.
    shares
        pi (K,), the shares of the arms.
    spreads
        Standard deviations (k,) of the covariates.
    counted_within
        c l, the share of the variance within the arms times what a record counts.
    from_all
        d (K,), the distances of the arms without it.
    """
    gamma = step.calibration.gamma
    square = float(np.mean(np.square(spreads)))
    W = np.diag(shares) - np.outer(shares, shares)
    inverse = np.linalg.inv(gamma * np.eye(len(shares)) + square * counted_within * W)
    # (A40): D_b = min(gamma / pi_a sum_b |inverse_ab| pi_b d_b, d_a)
    bias_distances = gamma * np.abs(inverse) @ (shares * from_all) / shares
    # (A40): v_e = s_e u / (n pi_a) |(W inverse)_a|
    deviation = math.sqrt(float(step.calibration.variances[0]) * square) / step.universe.n_samples
    log_odds_noise = deviation * np.linalg.norm(W @ inverse, axis=1) / shares
    return np.minimum(bias_distances, from_all), log_odds_noise
