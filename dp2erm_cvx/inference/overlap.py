"""What a cap, clips and a ridge leave of the distance of two arms that hardly overlap.

Equations (A15) to (A20) of the page "Allowances of an interval", ``docs/theory/allowances.md``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import bracketed
from dp2erm_cvx.inference.nuisances import EffectFacts, confounded, propensity_error
from dp2erm_cvx.steps.nuisances import STRETCH, LinearNuisances
from dp2erm_cvx.steps.score import EffectScore, Released
from dp2erm_cvx.steps.step import Step

#: Values of a standard normal variable, and their probabilities.
NODES = np.linspace(-8.0, 8.0, 401)
WEIGHTS = np.exp(-0.5 * NODES**2) / np.sum(np.exp(-0.5 * NODES**2))


class OverlapError(NamedTuple):
    """What is left of the distance of two arms by a released propensity.

    Parameters
    ----------
    distance
        How far the arms stay apart along the log odds, in standard deviations of the covariates.
    reach
        The distance at which errors of slopes alone would add what those of both intercepts and of
        the slopes along the log odds do.
    log_odds_noise
        Standard deviation of the noise of a log odds, per standard deviation of a covariate.
    intercepts
        What the ridge on either intercept adds to the effect (2,), in units of the outcome.
    """

    distance: float
    reach: float
    log_odds_noise: float
    intercepts: Array


def overlap_error(facts: EffectFacts, released: Released, residual: float) -> OverlapError:
    """Error that a released propensity, its cap and the clips leave of slopes in common.

    Log odds are taken to be normal, and residuals too.

    Parameters
    ----------
    facts
        What is public of the effect, whose propensity is released.
    released
        Numbers by the names of the steps.
    residual
        Standard deviation of residuals, in units of the outcome.
    """
    pair = confounded(facts, released)
    step = facts.propensity
    assert pair is not None
    assert step is not None
    score, nuisances = pair
    fit = nuisances.fit
    within = facts.assumed.within(nuisances.rate)
    variance = nuisances.rate * (1.0 - nuisances.rate) * within
    covariance = _covariance(facts, released, nuisances)
    squares = np.maximum(np.linalg.eigvalsh(covariance), 0.0)

    middle, slope, lost = _log_odds(nuisances, released, step, covariance, squares, variance)
    fitted = special.expit(middle + slope * NODES)
    propensity = special.expit(middle + _true_slope(middle, slope, lost) * NODES)
    noise = _log_odds_noise(step, squares, propensity, variance)

    size = fit.scale * math.sqrt(float(np.mean(np.array(nuisances.spreads) ** 2)))
    curvature = fit.curvature(residual, nuisances.rate)
    capped = score.capped(fitted)
    untreated = _Arm(0, 1.0 - propensity, 1.0 - capped)
    treated = _Arm(1, propensity, capped)
    effect = np.zeros(3)
    hessian = fit.gamma * np.eye(3)
    for arm in (untreated, treated):
        effect += arm.effect(score, residual, size)
        hessian += arm.hessian(float(curvature[arm.number]), size)

    # equation (A20)
    errors = np.linalg.solve(hessian, effect)
    along_slopes = float(np.sum(curvature)) * within * size**2 + fit.gamma
    constants, _ = nuisances.coefficients(released)
    return OverlapError(
        distance=abs(float(effect[2])) / size,
        reach=float(np.linalg.norm(errors)) * along_slopes / size,
        log_odds_noise=noise,
        intercepts=fit.gamma * errors[:2] * constants,
    )


def _covariance(facts: EffectFacts, released: Released, nuisances: LinearNuisances) -> Array:
    """C, the covariance (k, k) of the covariates that were released."""
    law = facts.law if facts.mean is None else facts.mean.around(released)
    spreads = np.array(nuisances.spreads)
    return np.asarray(spreads[:, None] * law.correlations * spreads)


def _log_odds(
    nuisances: LinearNuisances,
    released: Released,
    step: Step,
    covariance: Array,
    squares: Array,
    variance: float,
) -> tuple[float, float, float]:
    """Mean and standard deviation of the fitted log odds, and what the ridge took off: (A15, A16).

    Parameters
    ----------
    nuisances
        The regressions at what was released.
    released
        Numbers by the names of the steps.
    step
        The planned step that releases the log odds.
    covariance
        C, of the covariates (k, k).
    squares
        Its eigenvalues (k,).
    variance
        Variance of the treatment that determines the log odds.

    Returns
    -------
    tuple
        Mean and standard deviation; then the product of the ridge and the slope, by which the
        covariance of fitted propensities and their log odds falls short of that of the true ones.
    """
    assert nuisances.log_odds is not None
    ridge, noise = propensity_error(step, squares, variance)
    middle, *slopes = np.asarray(released[str(nuisances.log_odds.source)]).tolist()
    # noise alone adds as much to the variance of fitted log odds
    by_noise = len(slopes) * noise**2
    slope = math.sqrt(max(float(slopes @ covariance @ slopes) - by_noise, 0.0))
    return middle, slope, variance * ridge / (1.0 - ridge) * slope


def _true_slope(middle: float, slope: float, lost: float) -> float:
    """Standard deviation of the log odds before they were shrunk: equation (A16)."""
    fitted = special.expit(middle + slope * NODES)

    def reaches(true: float) -> bool:
        propensity = special.expit(middle + true * NODES)
        return bool(WEIGHTS @ (NODES * (propensity - fitted)) >= lost)

    return bracketed(reaches, STRETCH * slope, slope)


def _log_odds_noise(step: Step, squares: Array, propensity: Array, variance: float) -> float:
    """Noise of a log odds at these propensities (nodes,): equation (A17).

    Parameters
    ----------
    step
        The planned step that releases the log odds.
    squares
        Eigenvalues (k,) of the covariance of the covariates.
    propensity
        Probabilities of treatment at ``NODES``.
    variance
        The variance of the treatment is at most this.
    """
    treatment_variance = propensity * (1.0 - propensity)
    curvature_along = min(variance, float(WEIGHTS @ (NODES**2 * propensity * (1.0 - propensity))))
    curvature_across = min(variance, float(WEIGHTS @ treatment_variance))
    along = propensity_error(step, squares, curvature_along)[1]
    across = propensity_error(step, squares, curvature_across)[1]
    k = len(squares)
    return math.sqrt((along**2 + (k - 1) * across**2) / k)


class _Arm(NamedTuple):
    """One arm along the log odds.

    Parameters
    ----------
    number
        0 for the untreated, 1 for the treated.
    own
        Probabilities (nodes,) to be in this arm.
    inverse
        Fitted probabilities (nodes,), capped, by which a score divides residuals.
    """

    number: int
    own: Array
    inverse: Array

    def rows(self, size: float) -> Array:
        """Rows (3, nodes) of the regression: an intercept by arm, and where the log odds lie."""
        untreated = np.full_like(NODES, 1.0 - self.number)
        treated = np.full_like(NODES, float(self.number))
        return np.stack([untreated, treated, size * NODES])

    def effect(self, score: EffectScore, residual: float, size: float) -> Array:
        """What an error of the regression (3,) adds to the effect by this arm: equation (A18)."""
        clip = np.minimum(score.residual_bound, score.widening * score.score_bound * self.inverse)
        not_clipped = special.erf(clip / (math.sqrt(2.0) * residual))
        weighted = self.own / self.inverse * not_clipped
        sign = 2 * self.number - 1
        return np.asarray(sign * self.rows(size) @ (WEIGHTS * (weighted - 1.0)))

    def hessian(self, curvature: float, size: float) -> Array:
        """What the arm adds to the Hessian (3, 3) of the mean loss: equation (A19)."""
        rows = self.rows(size)
        weighted = curvature * (rows * (WEIGHTS * self.own))
        return np.asarray(weighted @ rows.T / float(WEIGHTS @ self.own))
