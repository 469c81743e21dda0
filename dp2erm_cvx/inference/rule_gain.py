"""What the interval of a rule's gain allows for its released nuisances.

Equations (A34) to (A37) of the page "Allowances of an interval", ``docs/theory/allowances.md``.
"""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.inference.nuisances import (
    HEAVIER,
    LEAST_CURVATURE,
    NO_ERROR,
    NuisanceError,
    Residuals,
    remaining,
    slope_sizes,
)
from dp2erm_cvx.steps.covariates import MeanSquare
from dp2erm_cvx.steps.score import EffectScore, Released

#: Part of the confounding that unbent regressions of two values may leave on one side of a rule.
BENT_SIDE = 0.25
#: How far the mean of covariates lies off 0 on one side of a rule, in standard deviations: of a
#: standard normal number the half above 0 has the mean sqrt(2 / pi).
SIDE = 0.8


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

    The arms are taken to lie as far apart there as is declared. Nothing is counted where the
    propensity is public.

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
    n = step.universe.n_samples
    fit = nuisances.fit
    rate = nuisances.rate
    side_rate = nuisances.by_side[treats]
    rates = np.array([1.0 - rate, rate])
    side_rates = np.array([1.0 - side_rate, side_rate])
    # a gain rests on (1 - p) beta_1 + p beta_0, at the rate of its side
    weights = 1.0 - side_rates
    part = float(nuisances.counts.shares(released)[int(treats)].sum())
    distance = nuisances.declared.distance
    within = nuisances.declared.within(rate)
    half = 0.5 * residuals.outcome_bound
    residual = residuals.deviation(deviation * math.sqrt(rate * (1.0 - rate)))

    constants, slopes = nuisances.coefficients(released)
    shrunk, left, slope_noise = remaining(spread, nuisances, released, residual)
    sizes = slope_sizes(nuisances, slopes, shrunk, half)
    if nuisances.two_values is not None:
        levels = nuisances.levels(released)
        values = nuisances.two_values
        steepness = np.array([[values.steepness(float(level[0]))] for level in levels])
        left = left + BENT_SIDE
        sizes = sizes * steepness
        slope_noise = slope_noise * steepness
    slope_bias = np.linalg.norm(left * sizes, axis=1)
    slope_noise = np.sqrt(np.mean(slope_noise**2, axis=1))

    curvature = np.maximum(fit.curvature(residual, rate), LEAST_CURVATURE)
    intercept_bias = np.minimum(np.abs(constants) * fit.gamma / curvature, half)
    intercept_noise = fit.noise / (n * (curvature + fit.gamma))
    # the ridge on an intercept leaks into slopes along the mean of the arm
    leak = intercept_bias / within * distance * rates[::-1]
    bias = part * distance * float(weights @ (slope_bias + leak))

    by_slopes = distance * float(np.linalg.norm(weights * slope_noise))
    off_slopes = SIDE**2 * (slope_noise**2 + slope_bias**2)
    off_intercepts = intercept_noise**2 + intercept_bias**2
    wrong = float(np.sum((off_intercepts + off_slopes) / side_rates**2))
    counted = nuisances.counts.predicted_error / (max(part, 1.0 / n) * n) ** 2
    rate_noise = counted * float(np.sum(side_rates**2))
    by_rate = math.sqrt(rate_noise * min(wrong, (2.0 * half) ** 2))

    records = np.maximum(fit.mass * rates, 1e-12)
    squared = HEAVIER * float(np.sum(weights**2 / records)) / (within * n)
    return NuisanceError(
        bias=bias,
        noise=part * math.hypot(by_slopes, by_rate),
        sampling=part * math.sqrt(squared) * residual * distance,
    )
