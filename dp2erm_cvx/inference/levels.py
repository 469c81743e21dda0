"""What rare levels add to the errors of both risks: from released counts of levels by arm.

The page "Private effects" derives it under "Outcomes of two values", *Rare levels*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.space import clip_norm
from dp2erm_cvx.inference.nuisances import EffectFacts, NuisanceError
from dp2erm_cvx.steps.covariates import ArmMeans, CovariateMean
from dp2erm_cvx.steps.score import Released

#: Levels of a smaller share of the records are rare: the variance of others is about alike in both
#: arms, which the errors of slopes take it to be.
RARE = 0.2
#: Below so many records of a level in an arm a release says so.
FEW_RECORDS = 30.0
#: Standard deviation of the log odds of an arm among the records of a level, around those that were
#: released: what is guessed of it beside the noisy count.
UNSURE_LOG_ODDS = 1.5
#: Log odds at which errors are averaged by what counts and released propensity say of them.
LOG_ODDS = np.linspace(-7.0, 7.0, 141)
#: What a prediction between 0 and 1 may be off at most, as a root mean square.
LARGEST_ERROR = 0.5


@dataclass(frozen=True)
class RareLevel:
    """A rare level of a covariate in one arm, by what was released.

    Parameters
    ----------
    covariate
        Its place among the covariates.
    arm
        1 for the treated, 0 for the untreated.
    counted
        The released number of records of both arms that have it, at least its noise.
    counted_in_arm
        The released number of those in this arm, which may be negative.
    noise
        Standard deviation of the noise of ``counted_in_arm``, in records.
    sign
        1 where few records have the level, -1 where few have it not: those are then meant.
    """

    covariate: int
    arm: int
    counted: float
    counted_in_arm: float
    noise: float
    sign: float


def rare_levels_by_arm(mean: ArmMeans, released: Released) -> list[RareLevel]:
    """The levels that are rare among all records, once for the untreated and once for the treated.

    Parameters
    ----------
    mean
        The planned step that released means by arm (Theorem 30).
    released
        Numbers by the names of the steps.

    Returns
    -------
    list of RareLevel
    """
    sums = mean.by_arm(released)
    records = max(float(np.sum(sums[:, 0])), 1.0)
    # a level is -1 or 1, so that half the sum of a count and of such an entry counts its records
    noise = math.sqrt(0.5 * mean.calibration.variance)
    levels = []
    for covariate in np.flatnonzero(mean.law.shares).tolist():
        entries = sums[:, 1 + covariate]
        # few have the level, or few have it not
        sign = 1.0 if float(np.sum(entries)) < 0.0 else -1.0
        in_arms = 0.5 * (sums[:, 0] + sign * entries)
        counted = max(float(np.sum(in_arms)), math.sqrt(2.0) * noise)
        if counted > RARE * records:
            continue
        for arm in (0, 1):
            level = RareLevel(covariate, arm, counted, float(in_arms[arm]), noise, sign)
            levels.append(level)
    return levels


def with_rare_levels(
    facts: EffectFacts, released: Released, errors: tuple[NuisanceError, NuisanceError]
) -> tuple[NuisanceError, NuisanceError]:
    """Errors of both risks with what rare levels add to them, the treated first.

    The risk of an arm is off by ``sum_j (s_j - w_j n_j / n) (m_j - mu_j)``. s_j is the share of all
    records that have the level j, n_j the number of them in this arm, w_j what their residuals
    count, and m_j predicts their risk mu_j. Formulas that take the variance of a level to be alike
    in both arms miss how far m_j may be off where n_j is small: by noise, by the ridge, and by the
    sampling of few records.

    The number n_j was released with noise. Squared errors are averaged over all shares of the arm
    among the records of the level, weighed by how well they agree with the released count and with
    the released propensity.

    Parameters
    ----------
    facts
        What is public of the effect.
    released
        Numbers by the names of the steps.
    errors
        What the regressions leave where levels vary alike in both arms.

    Returns
    -------
    tuple of NuisanceError
        The same ones where no means by arm were released, or the propensity is public.
    """
    mean = facts.mean
    if facts.known_propensity or not isinstance(mean, ArmMeans):
        return errors
    score = facts.score.at(facts.score.universe, released)
    squares = [0.0, 0.0]
    for level in rare_levels_by_arm(mean, released):
        squares[level.arm] += _mean_square(facts, score, released, level)
    untreated, treated = squares
    return _with_square(errors[0], treated), _with_square(errors[1], untreated)


def _with_square(error: NuisanceError, square: float) -> NuisanceError:
    return replace(error, noise=math.hypot(error.noise, math.sqrt(square)))


def few_records(mean: CovariateMean | None, released: Released) -> list[RareLevel]:
    """The rare levels of which an arm may have fewer than ``FEW_RECORDS`` records.

    They are those whose released count, less one standard deviation of its noise, is below that.

    Parameters
    ----------
    mean
        The planned step that released the mean of the covariates, if any.
    released
        Numbers by the names of the steps.

    Returns
    -------
    list of RareLevel
        Empty where no means by arm were released.
    """
    if not isinstance(mean, ArmMeans):
        return []
    levels = rare_levels_by_arm(mean, released)
    return [one for one in levels if one.counted_in_arm - one.noise < FEW_RECORDS]


def _mean_square(facts: EffectFacts, score: Any, released: Released, level: RareLevel) -> float:
    """Mean square of what a level adds to the risk of its arm, in squared units of the outcome."""
    nuisances = score.nuisances
    n = nuisances.fit.mass * facts.universe.n_samples
    points, size = _with_and_without(facts, released, level)
    predicted = nuisances.outcome(points, np.full(2, float(level.arm)), released)
    treated = float(score.capped(nuisances.propensity(points[:1], released))[0])
    propensity = treated if level.arm else 1.0 - treated

    odds = special.expit(LOG_ODDS)
    weights = _weights_of_log_odds(level, propensity)
    in_arm = odds * level.counted
    off, sampling = _prediction_error(nuisances, level, in_arm / n, n, predicted, size)

    # what residuals of the level stand for, and what of its share they leave to the prediction
    weighted = in_arm / (n * propensity)
    apart = level.counted / n - weighted
    # the regression follows residuals of the same records that are weighted beside it
    together = 2.0 * np.maximum(apart, 0.0) * weighted * sampling
    return float(weights @ (apart**2 * off + together))


def _weights_of_log_odds(level: RareLevel, propensity: float) -> Array:
    """How likely each of ``LOG_ODDS`` is, by a noisy count and the released ``propensity``.

    Returns
    -------
    Array
        Weights that add up to 1, one for each of ``LOG_ODDS``.
    """
    off_count = level.counted_in_arm - special.expit(LOG_ODDS) * level.counted
    off_guess = LOG_ODDS - special.logit(propensity)
    log_weights = -0.5 * (off_count / level.noise) ** 2 - 0.5 * (off_guess / UNSURE_LOG_ODDS) ** 2
    weights = np.exp(log_weights - np.max(log_weights))
    return np.asarray(weights / np.sum(weights))


def _prediction_error(
    nuisances: Any, level: RareLevel, share: Array, n: float, predicted: Array, size: float
) -> tuple[Array, Array]:
    """Mean square error of the predicted risk of a level in its arm.

    Parameters
    ----------
    nuisances
        The regressions by arm of an outcome of two values.
    level
        The level and the arm.
    share
        Shares (m,) of all records that are of the arm and have the level.
    n
        The number of records that count.
    predicted
        Predicted outcomes (2,) with the level and without it.
    size
        Length of the difference of both covariates, as the regression sees them.

    Returns
    -------
    tuple of Array
        The mean square error (m,), at most that of a prediction between both values; and the part
        by which the prediction follows the outcomes of these records, times their variance (m,).
    """
    fit, values = nuisances.fit, nuisances.two_values
    line = values.bent(float(predicted[0]))
    length = fit.scale * size
    curvature = fit.mass * share * values.curvature(line) * length**2 + fit.gamma
    stretch = float(nuisances.stretch[level.arm, level.covariate])
    noise = stretch * values.steepness(line) * fit.noise * length / (n * curvature)
    kept = stretch * (1.0 - fit.gamma / curvature)
    jump = np.maximum(abs(float(predicted[0] - predicted[1])), noise)

    # the variance of an outcome is largest in the middle of both values
    risk = (float(predicted[0]) - values.low) / values.width
    own_noise = noise / values.width
    toward_middle = np.clip(0.5, risk - own_noise, risk + own_noise)
    toward_middle = np.clip(toward_middle, 0.0, 1.0)
    variance = values.width**2 * toward_middle * (1.0 - toward_middle)
    of_mean = variance / np.maximum(share * n, 1.0)

    total = noise**2 + ((1.0 - kept) * jump) ** 2 + kept**2 * of_mean
    largest = (LARGEST_ERROR * values.width) ** 2
    return np.minimum(total, largest), kept * of_mean


def _with_and_without(
    facts: EffectFacts, released: Released, level: RareLevel
) -> tuple[Array, float]:
    """Typical covariates (2, k) with the level and without it, and the length between them."""
    assert facts.mean is not None
    place = level.covariate
    middle = facts.mean.mean(released)
    points = np.zeros((2, len(middle)))
    high = 1.0 - facts.mean.law.zeros[place] - middle[place]
    points[:, place] = (high, high - 1.0)
    if level.sign < 0.0:
        points = points[::-1]
    if facts.spread is not None:
        scales = facts.spread.size(released)[2]
        bound = facts.spread.hands(facts.spread.universe).space.features_bound
        points = clip_norm(points * scales, bound)
    return points, float(np.linalg.norm(points[0] - points[1]))
