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
    equal_distance
        The distance at which errors of slopes alone would add what those of both intercepts and of
        the slopes along the log odds do.
    log_odds_noise
        Standard deviation of the noise of a log odds, per standard deviation of a covariate.
    intercepts
        What the ridge on either intercept adds to the effect (2,), in units of the outcome.
    """

    distance: float
    equal_distance: float
    log_odds_noise: float
    intercepts: Array


class _LogOdds(NamedTuple):
    """The law of the fitted log odds, m + s Z.

    Parameters
    ----------
    mean
        m, the released intercept.
    deviation
        s, less what noise adds to it.
    lost_covariance
        What the covariance of fitted propensities and Z falls short of that of the true ones, as
        the ridge shrinks slopes: the right-hand side of (A16).
    """

    mean: float
    deviation: float
    lost_covariance: float


class _Arm(NamedTuple):
    """One arm along the log odds.

    Parameters
    ----------
    number
        a: 0 for the untreated, 1 for the treated.
    probability
        e_a (nodes,), the probabilities to be in this arm.
    divisor
        The fitted probabilities (nodes,), capped, by which a score divides residuals.
    """

    number: int
    probability: Array
    divisor: Array

    def rows(self, size: float) -> Array:
        """Rows r_a (3, nodes) of the regression: an intercept by arm, then ``size`` times Z."""
        untreated = np.full_like(NODES, 1.0 - self.number)
        treated = np.full_like(NODES, float(self.number))
        return np.stack([untreated, treated, size * NODES])

    def gradient(self, score: EffectScore, residual: float, size: float) -> Array:
        """What the arm adds to g (3,), by which an error of the regression moves the effect: (A18).

        Parameters
        ----------
        score
            The score at what was released, with its clips.
        residual
            sigma, in units of the outcome.
        size
            h times the root mean square of a covariate.
        """
        # P_a = erf(min(M_r, omega B e_a) / (2^(1/2) sigma))
        clip = np.minimum(score.residual_bound, score.widening * score.score_bound * self.divisor)
        not_clipped = special.erf(clip / (math.sqrt(2.0) * residual))
        # (A18): (2a - 1) E r_a (e_a P_a / fitted e_a - 1)
        weighted = self.probability / self.divisor * not_clipped
        sign = 2 * self.number - 1
        return np.asarray(sign * self.rows(size) @ (WEIGHTS * (weighted - 1.0)))

    def hessian(self, curvature: float, size: float) -> Array:
        """What the arm adds to the Hessian (3, 3) of the mean loss: H_a E[r_a r_a' | a], (A19)."""
        rows = self.rows(size)
        weighted = curvature * (rows * (WEIGHTS * self.probability))
        return np.asarray(weighted @ rows.T / float(WEIGHTS @ self.probability))


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
    rate = nuisances.rate
    within = facts.assumed.within(rate)
    treatment_variance = rate * (1.0 - rate) * within
    covariance = _covariance(facts, released, nuisances)
    squares = np.maximum(np.linalg.eigvalsh(covariance), 0.0)

    # (A15) and (A16): the fitted propensities, and the true ones before the ridge
    law = _log_odds(nuisances, released, step, covariance, squares, treatment_variance)
    fitted = special.expit(law.mean + law.deviation * NODES)
    propensity = special.expit(law.mean + _true_deviation(law) * NODES)
    log_odds_noise = _log_odds_noise(step, squares, propensity, treatment_variance)

    # (A18) and (A19): g and the Hessian, of which both arms have a part
    size = fit.scale * math.sqrt(float(np.mean(np.array(nuisances.spreads) ** 2)))
    curvatures = fit.curvature(residual, rate)
    capped = score.capped(fitted)
    untreated = _Arm(0, 1.0 - propensity, 1.0 - capped)
    treated = _Arm(1, propensity, capped)
    gradient = np.zeros(3)
    hessian = fit.gamma * np.eye(3)
    for arm in (untreated, treated):
        gradient += arm.gradient(score, residual, size)
        hessian += arm.hessian(float(curvatures[arm.number]), size)

    # (A20): D_b = |g_3| / (h u), D_e = |x| (l H h^2 u^2 + gamma) / (h u), l_a = gamma x_a theta_a
    x = np.linalg.solve(hessian, gradient)
    slope_curvature = float(np.sum(curvatures)) * within * size**2 + fit.gamma
    intercepts, _ = nuisances.coefficients(released)
    return OverlapError(
        distance=abs(float(gradient[2])) / size,
        equal_distance=float(np.linalg.norm(x)) * slope_curvature / size,
        log_odds_noise=log_odds_noise,
        intercepts=fit.gamma * x[:2] * intercepts,
    )


def _covariance(facts: EffectFacts, released: Released, nuisances: LinearNuisances) -> Array:
    """The covariance C (k, k) of the covariates that were released: equation (A15)."""
    law = facts.law if facts.mean is None else facts.mean.around(released)
    spreads = np.array(nuisances.spreads)
    return np.asarray(spreads[:, None] * law.correlations * spreads)


def _log_odds(
    nuisances: LinearNuisances,
    released: Released,
    step: Step,
    covariance: Array,
    squares: Array,
    treatment_variance: float,
) -> _LogOdds:
    """Law of the fitted log odds, and what the ridge took off: equations (A15) and (A16).

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
    treatment_variance
        tau, the variance of the treatment that determines the log odds.
    """
    assert nuisances.log_odds is not None
    ridge, noise = propensity_error(step, squares, treatment_variance)
    mean, *slopes = np.asarray(released[str(nuisances.log_odds.source)]).tolist()
    # (A15): s^2 = (beta' C beta - J v_e^2)_+, as noise alone adds as much to it
    by_noise = len(slopes) * noise**2
    deviation = math.sqrt(max(float(slopes @ covariance @ slopes) - by_noise, 0.0))
    # (A16): tau k_e / (1 - k_e) s
    return _LogOdds(mean, deviation, treatment_variance * ridge / (1.0 - ridge) * deviation)


def _true_deviation(law: _LogOdds) -> float:
    """s*, the standard deviation of the log odds before they were shrunk: equation (A16)."""
    fitted = special.expit(law.mean + law.deviation * NODES)

    def reaches(deviation: float) -> bool:
        propensity = special.expit(law.mean + deviation * NODES)
        return bool(WEIGHTS @ (NODES * (propensity - fitted)) >= law.lost_covariance)

    return bracketed(reaches, STRETCH * law.deviation, law.deviation)


def _log_odds_noise(
    step: Step, squares: Array, propensity: Array, treatment_variance: float
) -> float:
    """Noise of a log odds at these propensities (nodes,): equation (A17).

    Parameters
    ----------
    step
        The planned step that releases the log odds.
    squares
        Eigenvalues (k,) of the covariance of the covariates.
    propensity
        Probabilities of treatment at ``NODES``.
    treatment_variance
        tau, which the variance of the treatment does not exceed.
    """
    # (A17): tau along the log odds is at most E Z^2 e (1 - e), and across them E e (1 - e)
    along = float(WEIGHTS @ (NODES**2 * propensity * (1.0 - propensity)))
    across = float(WEIGHTS @ (propensity * (1.0 - propensity)))
    noise_along = propensity_error(step, squares, min(treatment_variance, along))[1]
    noise_across = propensity_error(step, squares, min(treatment_variance, across))[1]
    # (A17): v_e^2 = (v_along^2 + (J - 1) v_across^2) / J
    k = len(squares)
    return math.sqrt((noise_along**2 + (k - 1) * noise_across**2) / k)
