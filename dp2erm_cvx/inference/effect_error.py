"""What the interval of an effect allows for its released nuisances.

The regressions of an outcome leave a part of the confounding, by their ridge, their noise and
their sampling error. Equations (A3), (A11), (A13), (A14) and (A21) to (A28) of the page
"Allowances of an interval", ``docs/theory/allowances.md``. First order; where it holds is
simulated, not proved.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.inference.nuisances import (
    HEAVIER,
    LEAST_CURVATURE,
    NO_ERROR,
    TINY,
    EffectFacts,
    NuisanceError,
    combined,
    confounded,
    doubt,
    propensity_error,
    remaining,
    slope_sizes,
    steepness_by_arm,
)
from dp2erm_cvx.inference.overlap import overlap_error
from dp2erm_cvx.steps.nuisances import LinearNuisances, RidgeFit, rare
from dp2erm_cvx.steps.record_map import Rows
from dp2erm_cvx.steps.score import AverageScore, OverlapScore, Released, TreatedScore
from dp2erm_cvx.steps.sums import TreatmentRate, released_mass

#: Part of the confounding that a regression in common of an outcome of two values may leave once
#: it is unbent, as probabilities are no lines, beside a released propensity.
BENT = 0.04
#: The same of regressions by arm.
BENT_ARMS = 0.12
#: The same of the regression of one arm that is carried on to the other one.
CARRIED = 0.2
#: Distances of the arms, in standard deviations, at which ``BENT_ALONE`` was computed.
BENT_DISTANCES = (0.3, 0.6, 0.9, 1.2, 1.5)
#: The same of a regression in common that no released propensity helps: of an event whose log odds
#: vary by 1 along the difference, in a loss of slope .45, without noise. A test computes it.
BENT_ALONE = (0.10, 0.11, 0.14, 0.19, 0.27)
#: How far the outcomes of a group may lie off the regression in common, in standard deviations of
#: residuals: the noise of its rate counts it. Chosen; coverage with it is measured.
OFFSET = 0.5


class _Group(NamedTuple):
    """One of several groups.

    Parameters
    ----------
    rate
        Its released share of the treated.
    place
        Its number.
    """

    rate: float
    place: int


class _Distances(NamedTuple):
    """What the propensity leaves of the distance of the arms, in standard deviations.

    Parameters
    ----------
    bias
        D_b: what a bias of slopes is multiplied by.
    noisy
        D_e: what noise and sampling of slopes are multiplied by.
    log_odds_noise
        v_e, the standard deviation of the noise of a log odds; 0 of a constant propensity.
    half_leaks
        Half of what the ridge on the intercept of either arm adds to the effect (2,), the untreated
        first, in units of the outcome: (l_0, l_1) D_b / (2 D). It is taken off the estimate.
    """

    bias: float
    noisy: float
    log_odds_noise: float
    half_leaks: Array


class _Slopes(NamedTuple):
    """What is wrong with the slopes of a regression in common (g = 1) or of two by arm (g = 2).

    Parameters
    ----------
    arms
        Which arms (g, 2) a regression is of.
    bias
        b_s (g,), the bound on the bias of an effect at a distance of one standard deviation.
    noise
        v_s (g,), the standard deviation of its noise at that distance.
    """

    arms: Array
    bias: Array
    noise: Array


def nuisance_error(
    facts: EffectFacts, released: Released, deviation: float, share: float = 1.0
) -> NuisanceError:
    """Nuisance error of an effect.

    Parameters
    ----------
    facts
        What is public of the effect.
    released
        Numbers by the names of the steps.
    deviation
        Bound on the standard deviation of the score over all records, in units of the outcome.
    share
        Of a ratio, the released mean of what records count in its denominator.
    """
    pair = confounded(facts, released)
    if pair is None:
        return NO_ERROR
    nuisances = pair[1]
    square = _square_of_factors(facts, nuisances, share)
    residual = facts.residuals.deviation(deviation / math.sqrt(square))
    return combined(*_regression_errors(facts, nuisances, released, (residual, residual)))


def group_errors(facts: EffectFacts, released: Released, deviation: float) -> list[NuisanceError]:
    """Nuisance errors of the effects in all groups.

    Parameters
    ----------
    facts
        What is public of the effects.
    released
        Numbers by the names of the steps.
    deviation
        Bound on the standard deviation of clipped residuals, in units of the outcome.
    """
    pair = confounded(facts, released)
    if pair is None:
        return [NO_ERROR] * len(facts.universe.domain.groups)
    score, nuisances = pair
    residual = facts.residuals.deviation(deviation)
    errors = []
    for place, member in enumerate(score.members):
        group = _Group(member.nuisances.rate, place)
        parts = _regression_errors(facts, nuisances, released, (residual, residual), group)
        errors.append(combined(*parts))
    return errors


def risk_errors(
    facts: EffectFacts, released: Released, risks: tuple[float, float]
) -> tuple[NuisanceError, NuisanceError]:
    """Nuisance errors of both risks, the treated first, by regressions by arm.

    Parameters
    ----------
    facts
        What is public of the risks.
    released
        Numbers by the names of the steps.
    risks
        The released risks, the treated first. They say how far residuals vary.
    """
    pair = confounded(facts, released)
    if pair is None:
        return NO_ERROR, NO_ERROR
    least = 1.0 / facts.universe.n_samples
    deviations = []
    for risk in risks:
        share = min(max(risk, least), 1.0 - least)
        deviations.append(math.sqrt(share * (1.0 - share)))
    treated, untreated = deviations
    first, second = _regression_errors(facts, pair[1], released, (untreated, treated))
    return second, first


def _square_of_factors(facts: EffectFacts, nuisances: LinearNuisances, share: float) -> float:
    """Mean square of what scores multiply residuals by, at a constant propensity: (A3)."""
    counted = nuisances.fit.mass
    rate = nuisances.rate
    if facts.estimand == TreatedScore.estimand:
        square = rate / (1.0 - rate)
    elif facts.estimand == OverlapScore.estimand:
        # noise may leave a released mean of factors that none has
        least = min(max(share / counted, 1.0 / facts.universe.n_samples), 0.5)
        square = least / (1.0 - least)
    else:
        square = 1.0 / (rate * (1.0 - rate))
    return float(counted * square)


def _regression_errors(
    facts: EffectFacts,
    nuisances: LinearNuisances,
    released: Released,
    residuals: tuple[float, float],
    group: _Group | None = None,
) -> tuple[NuisanceError, ...]:
    """Errors that a regression in common adds to an effect, or that each of two by arm adds.

    Parameters
    ----------
    facts
        What is public of the effect.
    nuisances
        The regressions at what was released.
    released
        Numbers by the names of the steps.
    residuals
        Standard deviations of the residuals of the untreated and of the treated, in units of the
        outcome.
    group
        The group whose effect it is; None for all records.

    Returns
    -------
    tuple
        One error, or those by the untreated and by the treated.
    """
    fit = nuisances.fit
    rate = nuisances.rate
    residual = max(residuals)
    share_treated = rate if group is None else group.rate
    distances = _distances(facts, nuisances, released, residual)
    steepness = steepness_by_arm(nuisances, released)
    slopes = _slopes(facts, nuisances, released, residual, steepness, distances.bias)
    half_leaks = slopes.arms @ distances.half_leaks

    # (A23): t = |share of the treated in the slopes - pi*| eta sigma
    leaning = fit.leaning(rate, facts.kind.wanted(share_treated))
    lean_bias = leaning * facts.assumed.heterogeneity * residual
    slope_bias = slopes.bias + lean_bias

    # (A24): b = D_b (b_s + t) + |half of the leaks| + 2 M' where an arm is too rare. Shares are not
    # taken to be noisy here, as (A26) counts what noise does to them.
    arm_shares = np.array([1.0 - share_treated, share_treated])
    too_rare = np.any(slopes.arms * rare(arm_shares), axis=1)
    bias = distances.bias * slope_bias + np.abs(half_leaks)
    bias = bias + 2.0 * facts.residuals.outcome_bound * too_rare

    # (A27): v^2 = (v_s D_e)^2 + (v_e (b_s + t))^2 + v_p^2
    by_slopes = slopes.noise * distances.noisy
    by_log_odds = distances.log_odds_noise * slope_bias
    rate_errors = rate_error(facts, nuisances, released, residual, steepness, group)
    by_rate = np.sqrt(slopes.arms @ np.square(rate_errors))
    noise = np.sqrt(by_slopes**2 + by_log_odds**2 + by_rate**2)

    # (A28): s = D_e (1.15 / (c n l))^(1/2) times what a regression varies by
    n_counted = fit.mass * facts.universe.n_samples
    heavier = math.sqrt(HEAVIER / (n_counted * facts.assumed.within(rate)))
    sampling = heavier * distances.noisy * _sampling(fit, rate, residuals)

    rows = np.column_stack([bias, noise, sampling, -half_leaks]).tolist()
    return tuple(NuisanceError(*row) for row in rows)


def _distances(
    facts: EffectFacts, nuisances: LinearNuisances, released: Released, residual: float
) -> _Distances:
    """What is left of the declared distance: equations (A13), (A20) and (A22)."""
    assumed = facts.assumed
    rate = nuisances.rate
    step = facts.propensity
    if step is None:
        # (A13): a constant propensity leaves all of it, D_b = D_e = D
        half_leaks = _half_leaks(facts, nuisances, released, residual, assumed.distance)
        return _Distances(assumed.distance, assumed.distance, 0.0, half_leaks)

    # (A13): D_b = k_e D
    treatment_variance = rate * (1.0 - rate) * assumed.within(rate)
    mean_square = np.mean(np.square(nuisances.spreads), keepdims=True)
    ridge, log_odds_noise = propensity_error(step, mean_square, treatment_variance)
    bias_distance = ridge * assumed.distance
    root_k = math.sqrt(len(nuisances.spreads))
    if facts.estimand != AverageScore.estimand or nuisances.fit.rows is Rows.ARMS:
        # (A13): D_e = (D_b^2 + J v_e^2)^(1/2)
        return _Distances(
            bias=bias_distance,
            noisy=math.hypot(bias_distance, root_k * log_odds_noise),
            log_odds_noise=log_odds_noise,
            half_leaks=_half_leaks(facts, nuisances, released, residual, bias_distance),
        )

    # (A20): the larger of both distances, with the noise and the leaks at the overlap that there is
    overlap = overlap_error(facts, released, residual)
    bias_distance = max(bias_distance, overlap.distance)
    noisy_distance = math.hypot(bias_distance, root_k * overlap.log_odds_noise)
    return _Distances(
        bias=bias_distance,
        noisy=max(noisy_distance, overlap.equal_distance),
        log_odds_noise=overlap.log_odds_noise,
        half_leaks=0.5 * overlap.intercepts,
    )


def _half_leaks(
    facts: EffectFacts,
    nuisances: LinearNuisances,
    released: Released,
    residual: float,
    bias_distance: float,
) -> Array:
    """Half of what the ridge on either intercept adds (2,), at the distance D_b.

    Of two values no leak was measured, as steepness counts more there.
    """
    distance = facts.assumed.distance
    if distance <= 0.0 or nuisances.two_values is not None:
        return np.zeros(2)
    leaks = intercept_bias(facts, nuisances, released, residual)
    return np.asarray(0.5 * leaks * bias_distance / distance)


def intercept_bias(
    facts: EffectFacts, nuisances: LinearNuisances, released: Released, deviation: float
) -> Array:
    """Bias of an effect by the ridge on the intercept of either arm: equation (A22).

    The mean residual of an arm is not 0 then, which moves slopes along the mean of its covariates.

    Parameters
    ----------
    facts
        What is public of the effect.
    nuisances
        The regressions at what was released.
    released
        Numbers by the names of the steps.
    deviation
        Standard deviation of residuals, in units of the outcome.

    Returns
    -------
    Array
        What either arm adds (2,), the untreated first, in units of the outcome.
    """
    rows = nuisances.term.rows
    if rows is Rows.POOLED:
        return np.zeros(2)
    fit = nuisances.fit
    rate = nuisances.rate
    intercepts, _ = nuisances.coefficients(released)
    signed_shares = np.array([rate, rate - 1.0])
    curvatures = fit.curvature(deviation, rate) * facts.assumed.within(rate)
    if rows is Rows.ARMS:
        # (A22): l_a = (1 - 2a) D^2 gamma (1 - P_a)^2 theta_a / (l H_a)
        pulls = fit.gamma * signed_shares * np.abs(signed_shares)
        shifts = pulls * intercepts / np.maximum(curvatures, LEAST_CURVATURE)
    else:
        # (A22): l_a = (1 - 2a) D^2 gamma (1 - P_a) theta_a / (l H), of arms that count in slopes
        counts = fit.weights(rate) > 0.0
        shifts = fit.gamma * signed_shares * counts * intercepts / float(np.sum(curvatures))
    return np.asarray(facts.assumed.distance**2 * shifts)


def _slopes(
    facts: EffectFacts,
    nuisances: LinearNuisances,
    released: Released,
    residual: float,
    steepness: Array,
    bias_distance: float,
) -> _Slopes:
    """Bias and noise of slopes, by the weight that their arms have in an effect: (A21), (A25).

    Parameters
    ----------
    facts
        What is public of the effect.
    nuisances
        The regressions at what was released.
    released
        Numbers by the names of the steps.
    residual
        Standard deviation of residuals, in units of the outcome.
    steepness
        U'_a, what unbending multiplies the slopes of either arm by (2,).
    bias_distance
        D_b, in standard deviations.
    """
    rate = nuisances.rate
    by_arm = nuisances.fit.rows is Rows.ARMS
    arms = np.eye(2) if by_arm else np.ones((1, 2))
    # pi: an effect rests on (1 - p) beta_1 + p beta_0
    arm_weights = np.array([rate, 1.0 - rate])
    weights = arms @ arm_weights
    steep_weights = arms @ (arm_weights * steepness)

    errors = remaining(facts.spread, nuisances, released, residual, facts.assumed.within(rate))
    wrong_parts = errors.wrong
    if nuisances.two_values is not None:
        # (A11): k' + what is left where probabilities are no lines
        wrong_parts = wrong_parts + _bend(facts, by_arm)
    if facts.propensity is not None:
        # (A14): k' min((1 + d^2)^(1/2), D / D_b)
        more = np.hypot(1.0, doubt(facts.spread, released))
        most = facts.assumed.distance / max(bias_distance, TINY)
        wrong_parts = wrong_parts * np.minimum(more, most)

    _, slopes = nuisances.coefficients(released)
    largest = 0.5 * facts.residuals.outcome_bound
    sizes = slope_sizes(nuisances, slopes, errors.shrunk, largest, steep_weights / weights)
    return _Slopes(
        arms=arms,
        # (A21): b_s = pi |k' beta|
        bias=np.linalg.norm(wrong_parts * sizes, axis=1) * weights,
        # (A25): v_s = pi U' (mean of v'^2)^(1/2)
        noise=np.sqrt(np.mean(errors.noise**2, axis=1)) * steep_weights,
    )


def _bend(facts: EffectFacts, by_arm: bool) -> float:
    """Part of a slope that is left where probabilities are no lines: equation (A11)."""
    if facts.estimand == TreatedScore.estimand:
        return CARRIED
    if by_arm:
        return BENT_ARMS
    if facts.propensity is None:
        return bent_alone(facts.assumed.distance)
    return BENT


def bent_alone(distance: float) -> float:
    """Part of the confounding that a regression of two values leaves by itself.

    It is linear between and beyond the distances of ``BENT_ALONE``, and at most 1.

    Parameters
    ----------
    distance
        Of the arms, in standard deviations.
    """
    slope = (BENT_ALONE[-1] - BENT_ALONE[-2]) / (BENT_DISTANCES[-1] - BENT_DISTANCES[-2])
    beyond = slope * max(distance - BENT_DISTANCES[-1], 0.0)
    return min(float(np.interp(distance, BENT_DISTANCES, BENT_ALONE)) + beyond, 1.0)


def _sampling(fit: RidgeFit, rate: float, residuals: tuple[float, float]) -> Array:
    """What a regression varies by (g,), by the weight that its arms have in an effect: (A28).

    It is per standard deviation, times the root of n and of the share of the variance within arms.
    """
    record_weights = fit.weights(rate)
    counts = np.array([1.0 - rate, rate]) * record_weights
    squares = counts * record_weights
    if fit.rows is Rows.ARMS:
        # pi_a sigma_a / P_a^(1/2)
        arm_weights = np.array([rate, 1.0 - rate])
        return np.asarray(arm_weights * np.array(residuals) * np.sqrt(squares) / counts)
    return np.array([max(residuals) * math.sqrt(np.sum(squares)) / np.sum(counts)])


def rate_error(
    facts: EffectFacts,
    nuisances: LinearNuisances,
    released: Released,
    deviation: float,
    steepness: Array,
    group: _Group | None = None,
) -> Array:
    """Error by the noise of the released rate, where an intercept is off: equation (A26).

    Parameters
    ----------
    facts
        What is public of the effect.
    nuisances
        The regressions at what was released.
    released
        Numbers by the names of the steps.
    deviation
        Standard deviation of residuals, in units of the outcome.
    steepness
        What unbending multiplies an error of either arm by (2,).
    group
        The group whose own rate counts; None for all records.

    Returns
    -------
    Array
        Standard deviations (2,) by either arm, the untreated first, in units of the outcome.
    """
    if facts.rate is None or nuisances.log_odds is not None:
        return np.zeros(2)
    fit = nuisances.fit
    rate = nuisances.rate
    if group is None:
        off_regression = 0.0
        rate_variance = facts.rate.predicted_error
        multiples = _rate_multiples(facts, rate)
    else:
        off_regression = OFFSET * deviation
        rate_variance = _group_rate_variance(facts.rate, released, group)
        multiples = 1.0 / np.array([1.0 - group.rate, group.rate])

    # (A26): E_a^2 = (U' s_b / (n (H_a + gamma)))^2 + (U' |theta_a| gamma / H_a)^2 + o^2
    bound = facts.residuals.outcome_bound
    intercepts = np.resize(nuisances.coefficients(released)[0], 2)
    curvatures = np.maximum(fit.curvature(deviation, rate), LEAST_CURVATURE)
    by_noise = steepness * fit.noise / (fit.n_samples * (curvatures + fit.gamma))
    by_ridge = steepness * np.minimum(np.abs(intercepts) * fit.gamma / curvatures, bound)
    mean_residuals = np.minimum(by_noise**2 + by_ridge**2 + off_regression**2, bound**2)
    # (A26): v_p^2 = s_p^2 sum_a m_a^2 E_a^2
    return np.sqrt(min(rate_variance, 0.25) * (mean_residuals * multiples**2))


def _rate_multiples(facts: EffectFacts, rate: float) -> Array:
    """m_a (2,), by which the mean residuals of the arms move an effect at a wrong rate: (A26)."""
    shares = np.array([1.0 - rate, rate])
    if facts.estimand == TreatedScore.estimand:
        return np.array([1.0 / float(np.prod(shares)), 0.0])
    return np.asarray(1.0 / shares)


def _group_rate_variance(step: TreatmentRate, released: Released, group: _Group) -> float:
    """s_p^2, the variance of the noise of the rate of a group: equation (A26)."""
    sums = np.reshape(released[step.name], (2, -1))[:, group.place]
    squared_shares = group.rate**2 + (1.0 - group.rate) ** 2
    return float(step.calibration.variance * squared_shares / max(released_mass(sums), 1.0) ** 2)
