"""Whether the residuals of the untreated are skewed, by the released sums of an effect.

A loss that saturates estimates no mean of skewed residuals. Equations (A30) to (A33) of the page
"Allowances of an interval", ``docs/theory/allowances.md``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dp2erm_cvx.calibration import GridSums, SumLaw
from dp2erm_cvx.inference.nuisances import LEAST_CURVATURE, EffectFacts, confounded
from dp2erm_cvx.steps.score import Released

#: Standard deviations of its errors that a mean residual has to exceed before it is counted.
SURE = 3.0
#: Part of a mean residual that may vary with the covariates.
VARYING = 0.5


class _MeanResidual(NamedTuple):
    """The mean residual of the untreated by the released sums.

    Parameters
    ----------
    value
        The mean, in units of the outcome.
    noise
        Standard deviation of the noise of both sums in it, in units of the outcome.
    share_treated
        A, the released share of the treated, at least one record's.
    """

    value: float
    noise: float
    share_treated: float


def skewed(facts: EffectFacts, released: Released, deviation: float, least: float) -> float:
    """How far skewed residuals may move an effect among the treated, beside its interval.

    The released sums say how far the mean residual of the untreated lies off 0. What ridge, noise
    and sampling do to it is taken off; half of the rest may vary with the covariates.

    Parameters
    ----------
    facts
        What is public of the effect.
    released
        Numbers by the names of the steps.
    deviation
        Bound on the standard deviation of the score, in units of the outcome.
    least
        What is less counts as nothing, in units of the outcome.

    Returns
    -------
    float
        In units of the outcome. 0 for other effects, for events, for a fitted propensity, and
        where no sum is of the untreated alone.
    """
    noise = facts.score.calibration
    if noise.law is not SumLaw.TREATED:
        return 0.0
    pair = confounded(facts, released)
    if pair is None or facts.two_values is not None or pair[1].log_odds is not None:
        return 0.0
    score, nuisances = pair
    fit = nuisances.fit
    sums = [int(one) for one in released[facts.score.name]]
    mean = _mean_residual(noise, sums, score.widening)

    # (A32): what the ridge on the intercept explains, min(|theta_0| gamma / H_0, M')
    intercepts, _ = nuisances.coefficients(released)
    residual = facts.residuals.deviation(deviation)
    curvature = max(float(fit.curvature(residual, nuisances.rate)[0]), LEAST_CURVATURE)
    by_ridge = abs(float(intercepts[0])) * fit.gamma / curvature
    explained = min(by_ridge, facts.residuals.outcome_bound)

    # (A31): the noise of both sums, 2 (s_b / (n (H_0 + gamma)))^2, and sigma^2 / n_0 with the
    # number n_0 = n A (1 - p) / p of the untreated that count
    intercept_noise = fit.noise / (fit.n_samples * (curvature + fit.gamma))
    odds = nuisances.rate / (1.0 - nuisances.rate)
    sampling = residual / math.sqrt(noise.n_samples * mean.share_treated / odds)
    error = math.hypot(mean.noise, math.sqrt(2.0) * intercept_noise, sampling)

    # (A33): D / 2 times what is left of the mean residual
    unexplained = abs(mean.value) - explained - SURE * error
    moved = float(VARYING * facts.assumed.distance * unexplained)
    return moved if moved > least else 0.0


def _mean_residual(noise: GridSums, sums: list[int], widening: float) -> _MeanResidual:
    """The mean residual of the untreated: equation (A30).

    Parameters
    ----------
    noise
        That of the sums.
    sums
        The released integers.
    widening
        omega, what scores were divided by.
    """
    total, treated, _, signed = noise.means(sums)
    share_treated = max(treated, 1.0 / noise.n_samples)
    half = 0.5 * widening
    # A discrete Laplace law has twice the variance that its squared scale says.
    deviations_of_scale = math.sqrt(2.0) if noise.noise.pure else 1.0
    noise_of_sums = half * math.hypot(noise.scales[0], noise.scales[3]) * deviations_of_scale
    return _MeanResidual(
        # (A30): omega / 2 (S - T) / A
        value=half * (signed - total) / share_treated,
        noise=noise_of_sums / share_treated,
        share_treated=share_treated,
    )
