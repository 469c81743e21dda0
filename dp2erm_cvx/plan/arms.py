"""Effects of a treatment of more than two arms: settings, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.plan.declared import DeclaredEffect
from dp2erm_cvx.plan.defaults import CAP, MARGIN, OPTIMISM, UNKNOWN, effect_rule, planned_fit
from dp2erm_cvx.plan.settings import EffectSettings
from dp2erm_cvx.steps.covariates import CovariateLaw
from dp2erm_cvx.steps.nuisances import LEFT, Confounding, RidgeFit
from dp2erm_cvx.steps.record_map import Arms, Rows
from dp2erm_cvx.steps.score import ArmScores, AverageScore

#: The step that releases the mean of the covariates which regressions by arm are averaged at.
AVERAGE = "average"
#: Its share of what center and propensity leave.
AVERAGE_SHARE = 0.15
#: Clips M_r that are tried, in standard deviations of residuals, beside what the ridge moves them.
CLIPS = (2.0, 2.5, 3.0, 3.5)
#: n epsilon per covariate and arm from which on a multinomial regression is tried: intervals are as
#: long there as without it where outcomes are linear, and it saves bias where they are not
#: (measured).
FEW = 1600.0
#: Shares of the budget that are tried for the outcome regression, and for a multinomial propensity.
_CENTER_SHARES = tuple(np.arange(0.1, 0.9, 0.05).tolist())
_MULTINOMIAL_SHARES = (0.1, 0.15, 0.2, 0.3)
#: Most of what rate, spread and mean leave that the outcome regression and the propensity may take:
#: the rest is for the score.
_MOST_FOR_REGRESSIONS = 0.9


def arms_rule(
    study: DeclaredEffect, epsilon: float, planned: EffectSettings | None = None
) -> EffectSettings:
    """The settings of several arms where nothing is declared.

    Of all shapes of the regressions and all clips that are tried, they have the least predicted
    error of a contrast of the smallest arm (``arms_error``).

    Parameters
    ----------
    study
        What is declared.
    epsilon
        The budget that shares are shares of.
    planned
        Settings from before the scale of the outcome was released. If given, rows, kind and share
        of the propensity and share of the outcome regression are theirs, and only clips are tried.
    """
    rule = _arms_defaults(study, epsilon, planned)
    if planned is None:
        shapes = _shapes(study, epsilon, rule)
    else:
        kept = ("rows", "center_share", "propensity", "propensity_share")
        shapes = [replace(rule, **{name: getattr(planned, name) for name in kept})]
    clips = _clips(study)
    best = rule
    least_error = math.inf
    for shape in shapes:
        for clip in clips:
            settings = _clipped(study, shape, epsilon, clip)
            # what a clip cuts off an exponential tail; nothing where there is no choice
            cut_off = study.scale * math.exp(-1.0 - clip) if len(clips) > 1 else 0.0
            error = arms_error(study, settings, epsilon) + cut_off**2
            if error < least_error:
                best = settings
                least_error = error
    return best


def _arms_defaults(
    study: DeclaredEffect, epsilon: float, planned: EffectSettings | None
) -> EffectSettings:
    """The rule of one effect, with what is different for more than two arms."""
    universe = study.universe
    rates = _declared_rates(study)
    n_arms = len(universe.domain.arms)
    equal_share = 1.0 / n_arms
    rule = effect_rule(
        study, epsilon, equal_share, propensity_is_public=bool(rates), planned=planned
    )
    n_epsilon = universe.mass * universe.n_samples * epsilon
    slope = rule.slope
    if study.two_values is not None:
        # Lines of outcomes of two values are not unbent, so that they can be averaged: their loss
        # hardly bends.
        slope = 2.0 * universe.domain.outcome_bound
    return replace(
        rule,
        arms=Arms.ALIKE,
        noise_ratio=0.0,
        slope=slope,
        rate_share=max(0.02, min(0.1, 40.0 * n_arms / n_epsilon)),
        propensity=rates or "constant",
        cap=max(CAP, 2.0 / min(rates, default=equal_share)),
    )


def _declared_rates(study: DeclaredEffect) -> tuple[float, ...]:
    """The public rates of the arms in the order of the levels; empty where none is declared."""
    codebook = study.universe.domain.codebook
    assert codebook is not None
    return tuple(codebook.treatment.rates)


def _shapes(study: DeclaredEffect, epsilon: float, rule: EffectSettings) -> list[EffectSettings]:
    """Rows, propensities and shares that are tried, as settings without clips."""
    share_left = 1.0 - (rule.spread_share or 0.0)
    if not _declared_rates(study):
        share_left -= rule.rate_share
    share_left -= rule.mean_share or 0.0
    shapes = []
    for rows in (Rows.COMMON, Rows.ARMS):
        for center_share in _CENTER_SHARES:
            for propensity, propensity_share in _propensities(study, epsilon, rule):
                taken = center_share
                if propensity == "multinomial":
                    taken += propensity_share
                if taken < _MOST_FOR_REGRESSIONS * share_left:
                    shape = replace(
                        rule,
                        rows=rows,
                        center_share=center_share,
                        propensity=propensity,
                        propensity_share=propensity_share,
                    )
                    shapes.append(shape)
    return shapes


def _propensities(
    study: DeclaredEffect, epsilon: float, rule: EffectSettings
) -> list[tuple[Any, float]]:
    """Kinds of propensity that are tried, each with its share of the budget."""
    multinomial: list[tuple[Any, float]] = [("multinomial", s) for s in _MULTINOMIAL_SHARES]
    if study.declared.get("propensity") == "multinomial":
        return multinomial
    kinds: list[tuple[Any, float]] = [(rule.propensity, rule.propensity_share)]
    if _declared_rates(study) or "propensity" in study.declared:
        return kinds
    universe = study.universe
    n_epsilon = universe.mass * universe.n_samples * epsilon
    few = FEW * len(universe.domain.arms) * universe.n_features
    if n_epsilon >= few:
        kinds += multinomial
    return kinds


def _clips(study: DeclaredEffect) -> tuple[float, ...]:
    """Clips M_r that are tried, in standard deviations of residuals; one where none is chosen."""
    if study.two_values is not None:
        return CLIPS[:1]
    if not study.declares_scale:
        return (UNKNOWN,)
    return CLIPS


def _clipped(
    study: DeclaredEffect, settings: EffectSettings, epsilon: float, clip: float
) -> EffectSettings:
    """These settings with M_r and B that leave room for what noise and ridge do to intercepts.

    B is M_r at equal shares of the arms, twice that where probabilities vary.
    """
    domain = study.universe.domain
    if study.two_values is None:
        fit, rates = _planned_fit(study, settings, epsilon)
        deviation, shrunk = _room(study, fit, rates)
        residual_bound = min(clip * deviation + shrunk, 2.0 * domain.outcome_bound)
        settings = replace(settings, residual_bound=residual_bound)
        longest = residual_bound
    else:
        longest = study.two_values.width
    times = 2.0 if settings.propensity == "multinomial" else 1.0
    return replace(settings, score_bound=times * len(domain.arms) * longest)


def _room(study: DeclaredEffect, fit: RidgeFit, rates: tuple[float, ...]) -> tuple[float, float]:
    """Deviation of residuals with the noise of an intercept, and what the ridge takes off it."""
    curvature = float(np.min(fit.curvature(study.scale, rates))) + fit.gamma
    half = 0.5 * study.universe.domain.outcome_bound
    noise = fit.noise / (fit.n_samples * curvature)
    return math.hypot(study.scale, noise), half * fit.gamma / curvature


def _planned_fit(
    study: DeclaredEffect, settings: EffectSettings, epsilon: float
) -> tuple[RidgeFit, tuple[float, ...]]:
    """The outcome regression as planned, and the rates of the arms, the smallest first.

    Where no rates are declared, they are taken to be equal.
    """
    universe = study.universe
    n_arms = len(universe.domain.arms)
    least_rate = 1.0 / n_arms
    if isinstance(settings.propensity, tuple):
        least_rate = min(settings.propensity)
    # in common, one intercept by arm and one row of slopes; by arm, an intercept and slopes of it
    intercepts = 1 if settings.rows is Rows.ARMS else n_arms
    fit = planned_fit(
        universe.mass * universe.n_samples,
        universe.n_features + intercepts,
        settings.center_share * epsilon,
        settings.slope,
        settings.norm_bound,
        settings.rows,
    )
    other_rates = ((1.0 - least_rate) / (n_arms - 1),) * (n_arms - 1)
    return fit, (least_rate, *other_rates)


def arms_error(study: DeclaredEffect, settings: EffectSettings, epsilon: float) -> float:
    """The predicted mean squared error of a contrast of the smallest arm.

    Parameters
    ----------
    study
        What is declared.
    settings
        The settings that are tried.
    epsilon
        The budget that their shares are shares of.

    Returns
    -------
    float
        In squared units of the outcome.
    """
    sigma = study.scale
    p = study.universe.n_features
    fit, rates = _planned_fit(study, settings, epsilon)
    n = fit.n_samples
    rate = rates[0]
    confounding = Confounding(0.0) if isinstance(settings.propensity, tuple) else study.assumed
    spread = _covariate_spread(study, settings.norm_bound)
    errors = fit.stretched_errors(np.array([spread]), sigma, rates, confounding.within(rates))
    shrunk, noise, missing = (float(error[0, 0]) for error in errors)
    distance = confounding.distance
    if settings.propensity == "multinomial":
        distance = _distance_left(study, settings, n, rates, spread, epsilon)

    # by arm, both have errors of their own; in common, what effects vary by stays as well
    by_arm = settings.rows is Rows.ARMS
    varying = 0.0 if by_arm else confounding.typical * sigma
    times = math.sqrt(2.0) * (1.0 - rate) if by_arm else 1.0
    residuals = sigma**2 + p * noise**2 + (missing * sigma) ** 2 + 0.5 * varying**2
    largest_score = settings.score_bound / len(rates) / rate
    budget_of_score = n * (1.0 - AVERAGE_SHARE) * (1.0 - settings.spent) * epsilon
    # Theorem 26: the noise of the mean score of an arm
    score_noise = ArmScores.price * 2.0 * largest_score / budget_of_score
    margin = 4.0 * MARGIN * largest_score * score_noise
    sampling = (2.0 * residuals / rate + distance**2 * sigma**2 + margin) / n
    noise_of_slopes = (times * noise * distance) ** 2
    wrong_slopes = times * max(LEFT * shrunk, missing) * sigma
    bias = distance * (wrong_slopes + (1.0 - rate) * varying)
    return sampling + 4.0 * score_noise**2 + noise_of_slopes + bias**2


def _covariate_spread(study: DeclaredEffect, norm: float) -> float:
    """Root mean square of one scaled covariate under the norm bound."""
    p = study.universe.n_features
    law = CovariateLaw.of(study.universe.domain, p)
    return norm * math.sqrt(law.mean_square(1.0, norm) / p)


def _distance_left(
    study: DeclaredEffect,
    settings: EffectSettings,
    n: float,
    rates: tuple[float, ...],
    spread: float,
    epsilon: float,
) -> float:
    """Distance of the smallest arm that a multinomial propensity is predicted to leave.

    It is to first order, multiplied by ``OPTIMISM``: what ridge takes of the distance, and noise.

    Parameters
    ----------
    study
        What is declared, the distance of the arms among it.
    settings
        The settings that are tried.
    n
        What all records count together.
    rates
        The rates of the arms, the smallest first.
    spread
        Root mean square of one scaled covariate.
    epsilon
        The budget that the shares of the settings are shares of.
    """
    assumed = study.assumed
    n_features = study.universe.n_features
    budget = settings.propensity_share * epsilon
    # Theorem 27 at V = 2, with M^2 the largest mean square of a record's row
    square = 1.0 + settings.norm_bound**2
    gamma = 8.0 * square / (n * budget)
    scale = 2.0 * math.sqrt(2.0 * square) / budget
    curvature = rates[0] * assumed.within(rates) * spread**2 + gamma
    columns = (len(rates) - 1) * (n_features + 1)
    noise = scale * math.sqrt(columns + 1.0) * spread / (n * curvature)
    shrunk = gamma / curvature * assumed.distance
    predicted = OPTIMISM * math.hypot(shrunk, math.sqrt(n_features) * noise)
    return min(predicted, assumed.distance)


def check_arms(study: DeclaredEffect) -> None:
    """Raise DeclarationError where what is declared of more than two arms is for two alone."""
    domain = study.universe.domain
    settings = study.settings
    other_estimand = f"estimand = {brief(study.estimand)}: take 'ate'"
    other_noise = f"noise = {str(study.noise)!r}: take 'gamma'"
    for is_declared, what_to_do in (
        (study.estimand != AverageScore.estimand, other_estimand),
        (domain.groups, "by: leave it out, or declare where"),
        (domain.sampling is not None, "sampling_weights: leave them out"),
        (domain.treatment_cost, "treatment_cost: leave it out, or subtract it from the outcome"),
        (domain.arm_floor, "arm_floor: leave it out"),
        (study.noise is not Noise.GAMMA, other_noise),
        (study.effect_center is not None, "effect_center: leave it out"),
        (settings.rows not in (Rows.COMMON, Rows.ARMS), "rows: take 'common' or 'arms'"),
        (settings.arms is not Arms.ALIKE, "arms: take 'alike'"),
        (isinstance(settings.propensity, float), "propensity: declare rates in [treatment]"),
        (settings.propensity == "logistic", "propensity = 'logistic': take 'multinomial'"),
    ):
        if is_declared:
            raise DeclarationError(
                f"{what_to_do}; it is not known for a treatment of {len(domain.arms)} levels"
            )
    rates = _declared_rates(study)
    are_other_rates = settings.propensity != rates
    if not rates:
        are_other_rates = isinstance(settings.propensity, tuple)
    if are_other_rates:
        raise DeclarationError("propensity: rates of the levels are declared in [treatment]")
