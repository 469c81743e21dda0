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
    steepness_by_arm,
)
from dp2erm_cvx.steps.covariates import MeanSquare
from dp2erm_cvx.steps.score import EffectScore, Released

#: Part of the confounding that unbent regressions of two values may leave on one side of a rule.
BENT_SIDE = 0.25
#: How far the mean of covariates lies off 0 on one side of a rule, in standard deviations: of a
#: standard normal number the half above 0 has the mean sqrt(2 / pi).
SIDE = 0.8
#: The least share of all records that an arm is taken to have.
LEAST_RECORDS = 1e-12


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
    shares = np.array([1.0 - rate, rate])
    side_shares = np.array([1.0 - side_rate, side_rate])
    side_share = float(nuisances.counts.shares(released)[int(treats)].sum())
    # pi: a gain rests on (1 - p_d) beta_1 + p_d beta_0, at the rate of its side
    weights = 1.0 - side_shares
    distance = nuisances.declared.distance
    within = nuisances.declared.within(rate)
    half_bound = 0.5 * residuals.outcome_bound
    residual = residuals.deviation(deviation * math.sqrt(rate * (1.0 - rate)))

    # (A21) and (A25) of either arm: b_a = |k' beta|, v_a^2 = mean of v'^2
    intercepts, slopes = nuisances.coefficients(released)
    errors = remaining(spread, nuisances, released, residual)
    sizes = slope_sizes(nuisances, slopes, errors.shrunk, half_bound)
    wrong_parts = errors.wrong
    noises = errors.noise
    if nuisances.two_values is not None:
        steepness = steepness_by_arm(nuisances, released)[:, None]
        wrong_parts = wrong_parts + BENT_SIDE
        sizes = sizes * steepness
        noises = noises * steepness
    slope_bias = np.linalg.norm(wrong_parts * sizes, axis=1)
    slope_noise = np.sqrt(np.mean(noises**2, axis=1))

    # (A34): r_a = min(|theta_a| gamma / H_a, M' / 2) and s_b / (n (H_a + gamma))
    curvatures = np.maximum(fit.curvature(residual, rate), LEAST_CURVATURE)
    intercept_bias = np.minimum(np.abs(intercepts) * fit.gamma / curvatures, half_bound)
    intercept_noise = fit.noise / (n * (curvatures + fit.gamma))

    # (A35): b = P_d D sum_a pi_a (b_a + r_a (1 - P_a) D / l)
    leaks = intercept_bias / within * distance * shares[::-1]
    bias = side_share * distance * float(weights @ (slope_bias + leaks))

    # (A36): the noise of slopes, and that of the counts where mean residuals are off 0
    by_slopes = distance * float(np.linalg.norm(weights * slope_noise))
    squares_of_slopes = SIDE**2 * (slope_noise**2 + slope_bias**2)
    squares_of_intercepts = intercept_noise**2 + intercept_bias**2
    all_squares = (squares_of_intercepts + squares_of_slopes) / side_shares**2
    largest_square = (2.0 * half_bound) ** 2
    mean_residuals = min(float(np.sum(all_squares)), largest_square)
    count_variance = nuisances.counts.predicted_error / (max(side_share, 1.0 / n) * n) ** 2
    rate_variance = count_variance * float(np.sum(side_shares**2))
    by_rate = math.sqrt(rate_variance * mean_residuals)

    # (A37): s = P_d D sigma (1.15 / (l n) sum_a pi_a^2 / (c P_a))^(1/2)
    records = np.maximum(fit.mass * shares, LEAST_RECORDS)
    sampling_variance = HEAVIER * float(np.sum(weights**2 / records)) / (within * n)
    return NuisanceError(
        bias=bias,
        noise=side_share * math.hypot(by_slopes, by_rate),
        sampling=side_share * math.sqrt(sampling_variance) * residual * distance,
    )
