"""Effects of a treatment of more than two arms: settings, what is refused, and what nuisances leave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.plan.defaults import CAP, MARGIN, OPTIMISM, effect_rule, planned_fit
from dp2erm_cvx.plan.effect_error import HEAVIER, NO_ERROR, NuisanceError, remaining, slope_sizes
from dp2erm_cvx.plan.settings import EffectSettings
from dp2erm_cvx.steps.covariates import CovariateLaw
from dp2erm_cvx.steps.nuisances import LEFT, STRETCH, Confounding, RidgeFit
from dp2erm_cvx.steps.record_map import Arms, Rows
from dp2erm_cvx.steps.score import ArmScores, AverageScore
from dp2erm_cvx.steps.step import Step

if TYPE_CHECKING:
    from dp2erm_cvx.plan.effect import EffectStudy
    from dp2erm_cvx.plan.plan import Plan

#: The step that releases the mean of the covariates which regressions by arm are averaged at, and its share
#: of what center and propensity leave.
AVERAGE, AVERAGE_SHARE = "average", 0.15
#: M_r over standard deviations of residuals, but for what the ridge does: of least predicted error, with
#: what M_r cuts off an exponential tail.
REACHES = (2.0, 2.5, 3.0, 3.5)
#: n epsilon per covariate and arm from which on a multinomial regression is tried: intervals are as long
#: there as without it where outcomes are linear, and it saves bias where they are not (measured).
FEW = 1600.0
#: Part of the confounding that a regression of two values may leave which is not unbent, at a slope of twice
#: the outcome bound: its derivative is off by as much between probabilities of .2 and .8.
BENT = 0.2


def arms_rule(study: EffectStudy, epsilon: float) -> EffectSettings:
    """The settings of several arms where nothing is declared, of the least predicted error of a contrast."""
    book, universe, values = study.universe.domain.codebook, study.universe, study.two_values
    assert book is not None
    shares, n_arms = tuple(book.treatment.rates), len(book.treatment.labels)
    rule = effect_rule(study, epsilon, study.residual_scale, 1.0 / n_arms, known=bool(shares))
    total = universe.mass * universe.n_samples * epsilon
    rate = max(0.02, min(0.1, 40.0 * n_arms / total))
    # lines of outcomes of two values are not unbent, so that they can be averaged: their loss hardly bends
    rule = replace(
        rule,
        arms=Arms.ALIKE,
        noise_ratio=0.0,
        slope=rule.slope if values is None else 2.0 * universe.domain.outcome_bound,
        rate_share=rate,
        propensity=shares or "constant",
        cap=max(CAP, 2.0 / min(shares, default=1.0 / n_arms)),
    )
    left = 1.0 - (rule.spread_share or 0.0) - (0.0 if shares else rate) - (rule.mean_share or 0.0)
    multinomial: list[tuple[Any, float]] = [("multinomial", pair) for pair in (0.1, 0.15, 0.2, 0.3)]
    kinds: list[tuple[Any, float]] = [(rule.propensity, rule.propensity_share)]
    few = FEW * n_arms * universe.n_features
    # without a guess of residuals nothing is cut off them: those of durations are long on one side
    reaches = REACHES if values is None and study.residual_scale is not None else REACHES[:1]
    if study.declared.get("propensity") == "multinomial":
        kinds = multinomial
    elif not shares and "propensity" not in study.declared and total >= few:
        kinds += multinomial
    tried = [
        (
            _clipped(
                study,
                replace(rule, rows=rows, center_share=center, propensity=kind, propensity_share=share),
                epsilon,
                reach,
            ),
            study.scale * math.exp(-1.0 - reach) if len(reaches) > 1 else 0.0,
        )
        for rows in (Rows.COMMON, Rows.ARMS)
        for center in np.arange(0.1, 0.9, 0.05).tolist()
        for kind, share in kinds
        if center + (share if kind == "multinomial" else 0.0) < 0.9 * left
        for reach in reaches
    ]
    return min(tried, key=lambda pair: arms_error(study, pair[0], epsilon) + pair[1] ** 2)[0]


def _clipped(study: EffectStudy, settings: EffectSettings, total: float, reach: float) -> EffectSettings:
    """These settings with M_r and B that leave room for what noise and ridge do to intercepts.

    M_r cuts off nothing where no standard deviation of residuals is declared.
    B is M_r at equal shares of the arms, twice that where probabilities vary.
    """
    values, bound = study.two_values, study.universe.domain.outcome_bound
    if values is None and study.residual_scale is None:
        settings = replace(settings, residual_bound=2.0 * bound)
    elif values is None:
        deviation, shrunk = _room(study, *_planned_fit(study, settings, total))
        settings = replace(settings, residual_bound=min(reach * deviation + shrunk, 2.0 * bound))
    longest = settings.residual_bound if values is None else values.width
    times = 2.0 if settings.propensity == "multinomial" else 1.0
    return replace(settings, score_bound=times * len(study.universe.domain.arms) * longest)


def _room(study: EffectStudy, fit: RidgeFit, shares: tuple[float, ...]) -> tuple[float, float]:
    """The standard deviation of residuals with the noise of an intercept, and what the ridge takes off it."""
    curvature = float(np.min(fit.curvature(study.scale, shares))) + fit.gamma
    half = 0.5 * study.universe.domain.outcome_bound
    noise = fit.noise / (fit.n_samples * curvature)
    return math.hypot(study.scale, noise), half * fit.gamma / curvature


def _planned_fit(
    study: EffectStudy, settings: EffectSettings, total: float
) -> tuple[RidgeFit, tuple[float, ...]]:
    """The outcome regression as planned, and the shares of the arms that it is planned for."""
    shares, n_arms = settings.propensity, len(study.universe.domain.arms)
    rate = min(shares) if isinstance(shares, tuple) else 1.0 / n_arms
    n, p = study.universe.mass * study.universe.n_samples, study.universe.n_features
    columns, rows = p + (1 if settings.rows is Rows.ARMS else n_arms), settings.rows
    epsilon = settings.center_share * total
    fit = planned_fit(n, columns, epsilon, settings.slope, settings.norm_bound, rows)
    return fit, (rate,) + ((1.0 - rate) / (n_arms - 1),) * (n_arms - 1)


def arms_error(study: EffectStudy, settings: EffectSettings, total: float) -> float:
    """The mean squared error of a contrast of the smallest arm and another one, at ``total`` epsilon."""
    sigma, n_arms, norm = study.scale, len(study.universe.domain.arms), settings.norm_bound
    declared = Confounding(0.0) if isinstance(settings.propensity, tuple) else study.assumed
    fit, all_shares = _planned_fit(study, settings, total)
    n, p, rate = fit.n_samples, study.universe.n_features, all_shares[0]
    law = CovariateLaw.of(study.universe.domain, p)
    spread = norm * math.sqrt(law.mean_square(1.0, norm) / p)
    errors = fit.errors(np.array([spread]), sigma, all_shares, declared.within(all_shares))
    remains, noise = (float(error[0, 0]) for error in errors)
    stretch = min(1.0 / max(1.0 - remains, 1e-9), STRETCH)
    noise, still, away = noise * stretch, 1.0 - stretch * (1.0 - remains), declared.distance
    if settings.propensity == "multinomial":
        paid, row = settings.propensity_share * total, 1.0 + norm**2
        gamma, scale = 8.0 * row / (n * paid), 2.0 * math.sqrt(2.0 * row) / paid
        curvature = rate * declared.within(all_shares) * spread**2 + gamma
        log_noise = scale * math.sqrt((n_arms - 1) * (p + 1) + 1.0) * spread / (n * curvature)
        away = min(OPTIMISM * math.hypot(gamma / curvature * away, math.sqrt(p) * log_noise), away)
    # by arm, both have errors of their own; in common, what effects vary by stays as well
    by_arm = settings.rows is Rows.ARMS
    varying = 0.0 if by_arm else declared.typical * sigma
    times = math.sqrt(2.0) * (1.0 - rate) if by_arm else 1.0
    residuals = sigma**2 + p * noise**2 + (still * sigma) ** 2 + 0.5 * varying**2
    reach = settings.score_bound / n_arms / rate
    scale = ArmScores.price * 2.0 * reach / (n * (1.0 - AVERAGE_SHARE) * (1.0 - settings.spent) * total)
    sampling = (2.0 * residuals / rate + away**2 * sigma**2 + 4.0 * MARGIN * reach * scale) / n
    bias = away * (times * max(LEFT * remains, still) * sigma + (1.0 - rate) * varying)
    return sampling + 4.0 * scale**2 + (times * noise * away) ** 2 + bias**2


def check_arms(study: EffectStudy) -> None:
    """Raise DeclarationError where what is declared of more than two arms is for two alone."""
    domain, settings = study.universe.domain, study.settings
    assert domain.codebook is not None
    for declared, instead in (
        (study.estimand != AverageScore.estimand, f"estimand = {brief(study.estimand)}: take 'ate'"),
        (domain.groups, "by: leave it out, or declare where"),
        (domain.sampling is not None, "sampling_weights: leave them out"),
        (domain.treatment_cost, "treatment_cost: leave it out, or subtract it from the outcome"),
        (domain.arm_floor, "arm_floor: leave it out"),
        (study.noise is not Noise.GAMMA, f"noise = {str(study.noise)!r}: take 'gamma'"),
        (study.effect_center is not None, "effect_center: leave it out"),
        (settings.rows not in (Rows.COMMON, Rows.ARMS), "rows: take 'common' or 'arms'"),
        (settings.arms is not Arms.ALIKE, "arms: take 'alike'"),
        (isinstance(settings.propensity, float), "propensity: declare rates in [treatment]"),
        (settings.propensity == "logistic", "propensity = 'logistic': take 'multinomial'"),
    ):
        if declared:
            raise DeclarationError(f"{instead}; it is not known for a treatment of {len(domain.arms)} levels")
    rates = domain.codebook.treatment.rates
    if (rates and settings.propensity != rates) or (not rates and isinstance(settings.propensity, tuple)):
        raise DeclarationError("propensity: rates of the levels are declared in [treatment]")


def arm_errors(
    plan: Plan[EffectStudy], released: Mapping[str, Array], deviation: float
) -> tuple[list[NuisanceError], float]:
    """Errors that nuisances leave in every arm's mean outcome, at residuals of this standard ``deviation``.

    In a contrast of slopes by arm both add, and noises are independent. With slopes in common it is the
    second number that counts, the standard deviation of what their noise and sampling adds to any contrast:
    the arms lie at most the declared distance apart, and so does each of them from all. Nothing where the
    propensity is public.
    """
    study, score = plan.study, plan.main
    nuisances = score.at(score.universe, released).nuisances
    shares, k = np.array(nuisances.shares), len(nuisances.spreads)
    if study.settings.known is not None:
        return [NO_ERROR] * len(shares), 0.0
    fit, term, away = nuisances.fit, nuisances.term, study.confounding
    declared, left, each = remaining(plan, nuisances, released, deviation)
    noise = np.sqrt(np.mean(each**2, axis=1))
    theta, constant = (
        replace(term, stretch=None).coefficient(k, released),
        term.rows.constants(k, len(shares)),
    )
    left = left + (0.0 if study.two_values is None else BENT)
    half = 0.5 * study.universe.domain.outcome_bound
    sizes = slope_sizes(nuisances, theta[~constant].reshape(-1, k), declared, half)
    stays = np.linalg.norm(left * sizes, axis=1)
    within, n = study.assumed.within(nuisances.shares), fit.mass * fit.n_samples
    heavier = HEAVIER / (n * within)
    # an intercept is off by noise and ridge, and the residuals of its arm do not cancel it at a wrong rate
    curvature, rate = np.maximum(fit.curvature(deviation, nuisances.shares), 1e-12), plan.step("rate")
    off = (fit.noise / (fit.n_samples * (curvature + fit.gamma))) ** 2
    off = off + np.minimum(np.abs(theta[constant]) * fit.gamma / curvature, 2.0 * half) ** 2
    counted = 0.0 if rate is None else rate.calibration.variance * rate.calibration.unit**2 / n**2
    by_rate = np.sqrt(np.minimum(off, 4.0 * half**2) * np.minimum(counted / shares**2, 0.25))
    apart, log_noise = away * (1.0 - shares), np.zeros(len(shares))
    propensity = plan.step("propensity")
    if propensity is not None:
        apart, log_noise = _left_by(propensity, shares, nuisances.spreads, fit.mass * within, away)
    reaches = np.hypot(apart, math.sqrt(k) * log_noise)
    varying, common = 0.0, 0.0
    if term.rows is Rows.COMMON:  # slopes of an arm differ from those in common by what effects vary by
        varying = study.heterogeneity * deviation
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


def _left_by(
    step: Step, shares: Array, spreads: tuple[float, ...], within: float, away: float
) -> tuple[Array, Array]:
    """Distance of every arm (K,) from all that a multinomial regression leaves, and its noise there.

    To first order log odds are shrunk by ``gamma (gamma + s^2 W)^-1``, W the covariance of the arms at their
    ``shares``, of the part ``within`` of the variance: what stays of the mean of arm a is its row of that
    times ``pi_b (1 - pi_b) D / pi_a`` at most, and at most what there was.
    """
    calibration, universe = step.calibration, step.universe
    square = float(np.mean(np.square(spreads)))
    W = np.diag(shares) - np.outer(shares, shares)
    inverse = np.linalg.inv(calibration.gamma * np.eye(len(shares)) + square * within * W)
    left = calibration.gamma * np.abs(inverse) @ (shares * (1.0 - shares)) / shares
    deviation = math.sqrt(float(calibration.variances[0]) * square) / universe.n_samples
    noise = deviation * np.linalg.norm(W @ inverse, axis=1) / shares
    return away * np.minimum(left, 1.0 - shares), noise
