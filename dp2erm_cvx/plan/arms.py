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

#: The step that releases the mean of the covariates which regressions by arm are averaged at, and
#: its share of what center and propensity leave.
AVERAGE, AVERAGE_SHARE = "average", 0.15
#: M_r over standard deviations of residuals, but for what the ridge does: of least predicted error,
#: with what M_r cuts off an exponential tail.
REACHES = (2.0, 2.5, 3.0, 3.5)
#: n epsilon per covariate and arm from which on a multinomial regression is tried: intervals are as
#: long there as without it where outcomes are linear, and it saves bias where they are not
#: (measured).
FEW = 1600.0


def arms_rule(
    study: DeclaredEffect, epsilon: float, planned: EffectSettings | None = None
) -> EffectSettings:
    """The settings of several arms where nothing is declared.

    They have the least predicted error of a contrast.

    Shares, rows and the kind of propensity are those of ``planned`` settings, if any.
    """
    book, universe, values = study.universe.domain.codebook, study.universe, study.two_values
    assert book is not None
    shares, n_arms = tuple(book.treatment.rates), len(book.treatment.labels)
    rule = effect_rule(study, epsilon, 1.0 / n_arms, known=bool(shares), planned=planned)
    total = universe.mass * universe.n_samples * epsilon
    rate = max(0.02, min(0.1, 40.0 * n_arms / total))
    # lines of outcomes of two values are not unbent, so that they can be averaged: their loss
    # hardly bends
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
    reaches = REACHES if values is None else REACHES[:1]
    if values is None and not study.declares_scale:
        reaches = (UNKNOWN,)
    if study.declared.get("propensity") == "multinomial":
        kinds = multinomial
    elif not shares and "propensity" not in study.declared and total >= few:
        kinds += multinomial
    shapes = [
        replace(rule, rows=rows, center_share=center, propensity=kind, propensity_share=share)
        for rows in (Rows.COMMON, Rows.ARMS)
        for center in np.arange(0.1, 0.9, 0.05).tolist()
        for kind, share in kinds
        if center + (share if kind == "multinomial" else 0.0) < 0.9 * left
    ]
    if planned is not None:
        names = ("rows", "center_share", "propensity", "propensity_share")
        shapes = [replace(rule, **{name: getattr(planned, name) for name in names})]
    tried = [
        (
            _clipped(study, shape, epsilon, reach),
            study.scale * math.exp(-1.0 - reach) if len(reaches) > 1 else 0.0,
        )
        for shape in shapes
        for reach in reaches
    ]
    return min(tried, key=lambda pair: arms_error(study, pair[0], epsilon) + pair[1] ** 2)[0]


def _clipped(
    study: DeclaredEffect, settings: EffectSettings, total: float, reach: float
) -> EffectSettings:
    """These settings with M_r and B that leave room for what noise and ridge do to intercepts.

    B is M_r at equal shares of the arms, twice that where probabilities vary.
    """
    values, bound = study.two_values, study.universe.domain.outcome_bound
    if values is None:
        deviation, shrunk = _room(study, *_planned_fit(study, settings, total))
        settings = replace(settings, residual_bound=min(reach * deviation + shrunk, 2.0 * bound))
    longest = settings.residual_bound if values is None else values.width
    times = 2.0 if settings.propensity == "multinomial" else 1.0
    return replace(settings, score_bound=times * len(study.universe.domain.arms) * longest)


def _room(study: DeclaredEffect, fit: RidgeFit, shares: tuple[float, ...]) -> tuple[float, float]:
    """Deviation of residuals with the noise of an intercept, and what the ridge takes off it."""
    curvature = float(np.min(fit.curvature(study.scale, shares))) + fit.gamma
    half = 0.5 * study.universe.domain.outcome_bound
    noise = fit.noise / (fit.n_samples * curvature)
    return math.hypot(study.scale, noise), half * fit.gamma / curvature


def _planned_fit(
    study: DeclaredEffect, settings: EffectSettings, total: float
) -> tuple[RidgeFit, tuple[float, ...]]:
    """The outcome regression as planned, and the shares of the arms that it is planned for."""
    shares, n_arms = settings.propensity, len(study.universe.domain.arms)
    rate = min(shares) if isinstance(shares, tuple) else 1.0 / n_arms
    n, p = study.universe.mass * study.universe.n_samples, study.universe.n_features
    columns, rows = p + (1 if settings.rows is Rows.ARMS else n_arms), settings.rows
    epsilon = settings.center_share * total
    fit = planned_fit(n, columns, epsilon, settings.slope, settings.norm_bound, rows)
    return fit, (rate,) + ((1.0 - rate) / (n_arms - 1),) * (n_arms - 1)


def arms_error(study: DeclaredEffect, settings: EffectSettings, total: float) -> float:
    """The mean squared error of a contrast of the smallest arm, in squared units of the outcome.

    Parameters
    ----------
    study
        What is declared.
    settings
        The settings that are tried.
    total
        The epsilon that their shares are shares of.
    """
    sigma = study.scale
    n_arms = len(study.universe.domain.arms)
    norm = settings.norm_bound
    p = study.universe.n_features
    fit, shares = _planned_fit(study, settings, total)
    n = fit.n_samples
    rate = shares[0]
    declared = Confounding(0.0) if isinstance(settings.propensity, tuple) else study.assumed
    within = declared.within(shares)

    law = CovariateLaw.of(study.universe.domain, p)
    spread = norm * math.sqrt(law.mean_square(1.0, norm) / p)
    errors = fit.stretched_errors(np.array([spread]), sigma, shares, within)
    shrunk, noise, missing = (float(error[0, 0]) for error in errors)
    distance = declared.distance
    if settings.propensity == "multinomial":
        paid = settings.propensity_share * total
        distance = _distance_left(study.assumed, fit, shares, norm, spread, p, paid)

    # by arm, both have errors of their own; in common, what effects vary by stays as well
    by_arm = settings.rows is Rows.ARMS
    varying = 0.0 if by_arm else declared.typical * sigma
    times = math.sqrt(2.0) * (1.0 - rate) if by_arm else 1.0
    residuals = sigma**2 + p * noise**2 + (missing * sigma) ** 2 + 0.5 * varying**2
    largest_score = settings.score_bound / n_arms / rate
    budget_of_score = n * (1.0 - AVERAGE_SHARE) * (1.0 - settings.spent) * total
    scale = ArmScores.price * 2.0 * largest_score / budget_of_score
    margin = 4.0 * MARGIN * largest_score * scale
    sampling = (2.0 * residuals / rate + distance**2 * sigma**2 + margin) / n
    wrong_slopes = times * max(LEFT * shrunk, missing) * sigma
    bias = distance * (wrong_slopes + (1.0 - rate) * varying)
    return sampling + 4.0 * scale**2 + (times * noise * distance) ** 2 + bias**2


def _distance_left(
    assumed: Confounding,
    fit: RidgeFit,
    shares: tuple[float, ...],
    norm: float,
    spread: float,
    n_features: int,
    epsilon: float,
) -> float:
    """Distance of the smallest arm that a multinomial propensity is predicted to leave.

    It is to first order, multiplied by ``OPTIMISM``: what ridge takes of the distance, and noise.

    Parameters
    ----------
    assumed
        Distance of the arms as it is declared.
    fit
        The outcome regression as planned, for its number of records.
    shares
        The shares of the arms, the smallest first.
    norm
        Norm bound of the scaled covariates.
    spread
        Standard deviation of one of them.
    n_features
        Number p of the covariates.
    epsilon
        Budget of the propensity.
    """
    n = fit.n_samples
    square = 1.0 + norm**2
    gamma = 8.0 * square / (n * epsilon)
    scale = 2.0 * math.sqrt(2.0 * square) / epsilon
    curvature = shares[0] * assumed.within(shares) * spread**2 + gamma
    columns = (len(shares) - 1) * (n_features + 1)
    noise = scale * math.sqrt(columns + 1.0) * spread / (n * curvature)
    shrunk = gamma / curvature * assumed.distance
    left = OPTIMISM * math.hypot(shrunk, math.sqrt(n_features) * noise)
    return min(left, assumed.distance)


def check_arms(study: DeclaredEffect) -> None:
    """Raise DeclarationError where what is declared of more than two arms is for two alone."""
    domain, settings = study.universe.domain, study.settings
    assert domain.codebook is not None
    for declared, instead in (
        (
            study.estimand != AverageScore.estimand,
            f"estimand = {brief(study.estimand)}: take 'ate'",
        ),
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
            raise DeclarationError(
                f"{instead}; it is not known for a treatment of {len(domain.arms)} levels"
            )
    rates = domain.codebook.treatment.rates
    if (rates and settings.propensity != rates) or (
        not rates and isinstance(settings.propensity, tuple)
    ):
        raise DeclarationError("propensity: rates of the levels are declared in [treatment]")
