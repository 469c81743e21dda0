"""The interval of an effect by the weights of a declared scheme, from released or expected numbers.

The formulas are in ``docs/theory/scheme_effects.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import sum_quantile
from dp2erm_cvx.checks import Stated
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.inference.effect_error import nuisance_error
from dp2erm_cvx.inference.interval import ScoreInterval, biased_quantile, misses
from dp2erm_cvx.inference.nuisances import LEAST_CURVATURE, EffectFacts, clipped_square
from dp2erm_cvx.inference.rehearsal import Public, rehearsed
from dp2erm_cvx.steps.weighted_residuals import ReleasedLines, ResidualSquares, WeightedSum

#: The rehearsal is within this factor of what weights leave of a distance.
_MORE = 1.1
#: Share of residuals beyond their bound, which the errors of the intercepts stay in: at two
#: deviations .046.
_BEYOND = 0.1
#: The least distance that is rehearsed, in standard deviations.
_LEAST = 0.01


@dataclass(frozen=True)
class Weighting(Stated):
    """What is public of the weights that answered, at the released rate of treatment.

    Parameters
    ----------
    program
        Name of the scheme.
    treated
        The released share of the treated, which bases and caps rest on.
    stability
        V', how far the weights move at most when one record is replaced, as they are computed.
    largest
        Bound on one weight.
    left
        The part of a distance between the arms that the weights are predicted to leave, at most 1.
    inflation
        Predicted sum of squared weights over that of the base weights.
    mass
        Predicted difference of the masses of both arms, over n, by the noise of the released share.
    """

    program: str
    treated: float
    stability: float
    largest: float
    left: float
    inflation: float
    mass: float


@dataclass(frozen=True)
class WeightedFacts:
    """What is public of an effect by the weights of a scheme before anything is released.

    Parameters
    ----------
    effect
        As of every effect. Its score is the planned sum of weighted residuals, in units of the
        outcome once it is multiplied by what a released rate makes of it.
    squares
        The planned sum of squared residuals.
    """

    effect: EffectFacts
    squares: ResidualSquares

    @property
    def score(self) -> WeightedSum:
        """The planned sum of weighted residuals."""
        score = self.effect.score
        assert isinstance(score, WeightedSum)
        return score


def weighted_interval(
    facts: WeightedFacts, released: Mapping[str, Array], level: float
) -> tuple[ScoreInterval, Weighting]:
    """The estimate with its interval, and what is public of the weights (Theorem 28).

    Its half width is the q with ``P(N + L > q - B) + P(N + L > q + B) = 2 tail``: L the noise of
    the weighted sum, N normal with the deviations of sampling and of the regression, and B the
    allowed bias, of which the rehearsed share is left. The same whether numbers were released or
    are expected to be.

    Parameters
    ----------
    facts
        What is public before the release.
    released
        Numbers by the names of the steps.
    level
        Coverage of the interval.

    Returns
    -------
    tuple
        The interval, in units of the outcome, and the weights.

    Raises
    ------
    DeclarationError
        Unless ``1/2 <= level < 1``.
    """
    effect = facts.effect
    score = facts.score
    n = effect.universe.n_samples
    lines = score.at(score.universe, released).lines
    rate = lines.rate
    known = score.at_rate(rate)
    trial = rehearsed(score.program, _public(effect, lines))
    left = min(_MORE * trial.left, 1.0)
    moments, tail = misses(level)
    square = _largest_square(facts.squares, released, moments)
    bases = 1.0 / (rate * (1.0 - rate))
    sampling = math.sqrt(trial.inflation * square * bases / n)
    error = nuisance_error(effect, released, math.sqrt(square * bases))
    beyond = _BEYOND if effect.two_values is None else 0.0
    intercepts = (beyond + trial.mass) * _intercept_error(lines, released, math.sqrt(square))
    of_regression = math.hypot(left * error.noise, left * error.sampling, intercepts)
    deviation = math.hypot(sampling, of_regression)
    unit = score.value(known)
    b_0, b_1 = lines.intercepts(released)
    center = b_1 - b_0 + left * error.shift
    estimate = center + unit * float(released[score.name][0])
    weighting = Weighting(
        program=score.program.name,
        treated=rate,
        stability=known.movement,
        largest=known.stability.w_max,
        left=left,
        inflation=trial.inflation,
        mass=trial.mass,
    )
    if unit == 0.0:  # the released rate leaves no room for a residual
        return ScoreInterval(center, -math.inf, math.inf, float(level)), weighting
    noise = score.calibration.noise
    scale = unit * score.calibration.scale
    rounding = lines.bound / score.parts(known) + score.calibration.coupling * unit
    by_noise = math.hypot(left * error.noise, intercepts)
    half = biased_quantile(noise, tail, left * error.bias, deviation, scale) + rounding
    result = ScoreInterval(
        estimate=estimate,
        low=estimate - half,
        high=estimate + half,
        level=float(level),
        standard_deviation=sampling * math.sqrt(n),
        noise_half_width=sum_quantile(noise, tail, by_noise, scale) + rounding,
        sampling_half_width=sum_quantile(noise, tail, math.hypot(sampling, left * error.sampling)),
        bias=left * error.bias,
    )
    return result, weighting


def _largest_square(
    squares: ResidualSquares, released: Mapping[str, Array], missed: float
) -> float:
    """At least the mean square of residuals, but with the probability ``missed``."""
    law = squares.calibration
    margin = sum_quantile(law.noise, missed, 0.0, law.unit * law.scale) + law.unit * law.coupling
    return squares.mean_square(released, margin)


def expected_release(facts: WeightedFacts, records: Records) -> dict[str, Array]:
    """What an effect by weights is expected to release, from public records.

    It is every step without its noise. The rate, the mean and the spread are those of the records,
    times n over their number. The regression has intercepts of 0, and slopes by which outcomes
    spread as far as their residuals do, less what its ridge takes, and the root mean square of
    their noise beside. Squares are those of normal residuals, and the weighted sum is 0.

    Parameters
    ----------
    facts
        What is public of an effect by the weights of a scheme.
    records
        Public records of the universe that the first step finds its records in. Their outcomes are
        not used.

    Returns
    -------
    dict
        Numbers by the names of the steps.
    """
    effect = facts.effect
    score = facts.score
    squares = facts.squares
    residuals = effect.residuals
    n = effect.universe.n_samples
    times = n / records.n_samples
    released: dict[str, Array] = {}
    here = records
    for step in (effect.rate, effect.mean, effect.spread):
        if step is not None:
            released[step.name] = times * np.array(
                step.exact_sums(here, released), dtype=np.float64
            )
            here = step.mapped(here, released)
    constants = score.nuisances.term.rows.constants(effect.universe.n_features)
    center = str(score.nuisances.term.source)
    theta = np.zeros(len(constants))
    released[center] = theta
    nuisances = score.lines.at(released, n).nuisances
    spreads = np.array(nuisances.spreads)
    shrunk, noise = nuisances.shrinkage(nuisances.deviation)
    # per standard deviation of a covariate they are together as large as residuals; then come what
    # the ridge takes, and their noise
    slopes = np.full(len(spreads), residuals.scale / math.sqrt(len(spreads)))
    slopes = np.hypot(slopes * (1.0 - shrunk[0]), noise[0])
    theta[~constants] = np.divide(slopes, spreads, where=spreads > 0.0, out=np.zeros(len(spreads)))
    by_noise = float(np.linalg.norm(nuisances.stretch * noise))
    square = clipped_square(math.hypot(residuals.scale, by_noise), residuals.bound)
    released[squares.name] = squares.expected(square, nuisances.rate)
    released[score.name] = np.zeros(1)
    return released


def expected_interval(
    facts: WeightedFacts, records: Records, level: float
) -> tuple[ScoreInterval, Weighting]:
    """The interval, and the weights, at what is expected to be released: :func:`expected_release`.

    Parameters
    ----------
    facts
        What is public before the release.
    records
        Public records of the universe that the first step finds its records in.
    level
        Coverage of the interval.

    Raises
    ------
    DeclarationError
        Unless ``1/2 <= level < 1``.
    """
    return weighted_interval(facts, expected_release(facts, records), level)


def _public(effect: EffectFacts, lines: ReleasedLines) -> Public:
    """What the public records of the rehearsal are made of."""
    rate = effect.rate
    assert rate is not None
    noise = rate.calibration.unit * rate.calibration.scale / effect.universe.n_samples
    spreads = tuple(float(one) for one in lines.nuisances.spreads)
    distance = max(effect.assumed.distance, _LEAST)
    return Public(effect.score.universe.space, lines.rate, noise, spreads, distance)


def _intercept_error(
    lines: ReleasedLines, released: Mapping[str, Array], deviation: float
) -> float:
    """Root mean square of the errors of both intercepts together, by noise and ridge."""
    nuisances = lines.nuisances
    fit = nuisances.fit
    curvature = np.maximum(fit.curvature(deviation, lines.rate), LEAST_CURVATURE)
    constants, _ = nuisances.coefficients(released)
    noise = fit.noise / (fit.n_samples * (curvature + fit.gamma))
    shrunk = np.abs(constants) * fit.gamma / curvature
    return float(np.linalg.norm(np.array(lines.steepness(released)) * np.hypot(noise, shrunk)))
