"""Whether the declared scale of residuals fits, from what was released (page "Private effects").

Residuals of the declared scale s are clipped at a bound M of three or four times s, so that their
mean square is at most about M^2 / 9. A mean square near M^2 says that most residuals reach the
bound: then their mean is no estimate of the mean of whole residuals, and the interval of the effect
holds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from dp2erm_cvx.calibration import GridSums
from dp2erm_cvx.calibration.base import sum_quantile
from dp2erm_cvx.inference.nuisances import EffectFacts, Residuals, clipped_square
from dp2erm_cvx.inference.overlap import NODES, WEIGHTS
from dp2erm_cvx.steps.nuisances import LinearNuisances
from dp2erm_cvx.steps.record_map import Rows
from dp2erm_cvx.steps.score import (
    ArmScores,
    EffectScore,
    GroupScore,
    OverlapScore,
    Released,
    RiskScores,
    TreatedScore,
)
from dp2erm_cvx.steps.weighted_residuals import ResidualSquares

#: Probability that the noise of a sum alone makes a mean square look larger than it is.
_FALSE = 0.0005
#: A declared scale is said to be too small where residuals of this many times that scale would be
#: clipped as those that were released were (measured: page "Private effects").
TOO_LARGE = 2.0


def clipped_residuals(facts: EffectFacts, released: Released) -> float:
    """Mean square of clipped residuals as a share of their squared bound, from below.

    The released second moment of the scores, less the margins of its noise, is divided by the mean
    square of what scores multiply residuals by: the mean of ``1 / (e (1 - e))`` for an average
    effect.

    Parameters
    ----------
    facts
        What is public of an effect before anything is released.
    released
        Numbers by the names of the steps.

    Returns
    -------
    float
        From 0 to 1. But for a probability of a thousandth the noise makes it no larger than it is.
        It is 0 where no sum tells: for risks, for regressions by arm of two arms, and for an event.
    """
    score = facts.score.at(facts.score.universe, released)
    if facts.two_values is not None or isinstance(score, RiskScores):
        return 0.0
    sums = [int(one) for one in released[facts.score.name]]
    if isinstance(score, ArmScores):
        square = _square_of_arms(score, sums)
    elif score.nuisances.term.rows is Rows.ARMS:
        return 0.0
    elif isinstance(score, GroupScore):
        square = _square_of_groups(score, sums)
    else:
        square = _score_variance(score, sums) / _mean_factor(facts, score, released)
    return min(max(square / facts.residuals.bound**2, 0.0), 1.0)


def clipped_weighted(squares: ResidualSquares, released: Released) -> float:
    """The same share of an effect by the weights of a scheme.

    Parameters
    ----------
    squares
        The planned step that releases the sum of squared residuals.
    released
        Numbers by the names of the steps.
    """
    noise = squares.calibration
    quantile = sum_quantile(noise.noise, _FALSE, 0.0, noise.unit * noise.scale)
    margin = quantile + noise.unit * noise.coupling
    return squares.mean_square(released, -margin) / squares.lines.bound**2


def too_large(share: float, residuals: Residuals, nuisances: LinearNuisances) -> float:
    """The share of clipped residuals where the declared scale is too small; else 0.

    The scale is said to be too small where the share is at least that of normal residuals, clipped
    at the same bound, of :data:`TOO_LARGE` times what is expected: the scale, and twice the
    predicted noise of the regression. Where no residual reaches the bound there is nothing to say.

    Parameters
    ----------
    share
        Mean square of clipped residuals as a share of their squared bound.
    residuals
        What is public of the residuals: their bound, and the scale in units of the outcome.
    nuisances
        The outcome regression at what was released.
    """
    if residuals.bound >= 2.0 * residuals.outcome_bound:
        return 0.0
    noise = nuisances.stretch * nuisances.shrinkage(nuisances.deviation)[1]
    by_noise = float(np.max(np.linalg.norm(noise, axis=1)))
    expected = math.hypot(residuals.scale, 2.0 * by_noise)
    limit = clipped_square(TOO_LARGE * expected, residuals.bound) / residuals.bound**2
    return share if share >= limit else 0.0


def _counted(noise: GridSums, sums: Sequence[int]) -> float:
    """Share of all n that the records count, from above.

    Records add half of what they count to their sum.
    """
    most = 2.0 * (noise.means(sums)[1] + noise.margin(_FALSE, 1))
    return min(max(most, 1.0 / noise.n_samples), 1.0)


def _variance(noise: GridSums, sums: Sequence[int], counted: float = 1.0) -> float:
    """Variance of what records add to the first sum, from below.

    It is over the share of the records that is ``counted``.
    """
    place = noise.law.degrees.index(2)
    means = noise.means(sums)
    second = means[place] - noise.margin(_FALSE, place)
    mean = abs(means[0]) + noise.margin(_FALSE, 0)
    return second / counted - (mean / counted) ** 2


def _score_variance(score: EffectScore, sums: Sequence[int]) -> float:
    """Variance of the score over the records that count, from below, in squared outcomes."""
    noise = score.calibration
    if not noise.law.has_shares:
        return score.widening**2 * _variance(noise, sums)
    # the counts of these two estimands are of a part of the records that have a score
    counts_a_part = isinstance(score, OverlapScore | TreatedScore)
    counted = 1.0 if counts_a_part else _counted(noise, sums)
    return (score.widening / score.part) ** 2 * _variance(noise, sums, counted)


def _mean_factor(facts: EffectFacts, score: EffectScore, released: Released) -> float:
    """Mean square of what scores multiply residuals by, from above.

    Fitted log odds are taken to be normal.
    """
    nuisances = score.nuisances
    rate = float(nuisances.rate)
    if isinstance(score, OverlapScore):  # h / max(e, 1 - e), at most 2 h
        return _counted(score.calibration, [int(one) for one in released[score.name]])
    treated_alone = isinstance(score, TreatedScore)
    constant = rate / (1.0 - rate) if treated_alone else 1.0 / (rate * (1.0 - rate))
    if nuisances.log_odds is None:
        return constant
    law = facts.law if facts.mean is None else facts.mean.around(released)
    middle, *slopes = np.asarray(released[str(nuisances.log_odds.source)]).tolist()
    by_covariate = np.array(nuisances.spreads) * slopes
    variance = float(by_covariate @ law.correlations @ by_covariate)
    deviation = math.sqrt(max(variance, 0.0))
    propensity = special.expit(middle + deviation * NODES)
    capped = score.capped(propensity)
    if treated_alone:
        odds = capped / (1.0 - capped)
        factors = propensity + (1.0 - propensity) * odds**2
    else:
        factors = propensity / capped**2 + (1.0 - propensity) / (1.0 - capped) ** 2
    return max(constant, float(WEIGHTS @ factors))


def _square_of_groups(score: GroupScore, sums: Sequence[int]) -> float:
    """Mean square of clipped residuals over the records of all groups, from below."""
    noise = score.calibration
    total = 0.0
    counted = 0.0
    for member, own in zip(score.members, np.reshape(sums, (-1, 3)).tolist(), strict=True):
        share = _counted(noise, own)
        rate = float(member.nuisances.rate)
        total += share * _score_variance(member, own) * rate * (1.0 - rate)
        counted += share
    return total / counted


def _square_of_arms(score: ArmScores, sums: Sequence[int]) -> float:
    """Mean square of clipped residuals over the arms, each of them counted alike, from below."""
    noise = score.calibration
    *pairs, number = sums
    most = noise.means((0, 0, number))[2] + noise.margin(_FALSE, 2)
    counted = min(max(most, 1.0 / noise.n_samples), 1.0)
    margin = noise.margin(_FALSE, 1)
    each = []
    rows = np.reshape(pairs, (-1, 2)).tolist()
    for pair, widening, share in zip(rows, score.widenings, score.nuisances.shares, strict=True):
        second = noise.means((*pair, number))[1] - margin
        each.append(second * widening**2 * share / counted)
    return float(np.mean(each))
