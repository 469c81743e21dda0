"""The interval of an effect by the weights of a declared scheme, from released and public numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import sum_quantile
from dp2erm_cvx.checks import Stated
from dp2erm_cvx.inference.interval import ScoreInterval, biased_quantile, misses
from dp2erm_cvx.inference.nuisances import nuisance_error
from dp2erm_cvx.inference.rehearsal import Public, rehearsed
from dp2erm_cvx.plan import EffectStudy, Plan
from dp2erm_cvx.plan.effect import effect_facts
from dp2erm_cvx.steps.weighted_residuals import ReleasedLines, ResidualSquares, WeightedSum

#: The rehearsal is within this factor of what weights leave of a distance.
_MORE = 1.1
#: Share of residuals beyond their bound, which the errors of the intercepts stay in: at two deviations .046.
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


def weighted_interval(
    plan: Plan[EffectStudy], released: Mapping[str, Array], level: float
) -> tuple[ScoreInterval, Weighting]:
    """The estimate with its interval at a ``level``, and what is public of the weights (Theorem 28).

    Its half width is the q with ``P(N + L > q - B) + P(N + L > q + B) = 2 tail``: L the noise of the weighted
    sum, N normal with the deviations of sampling and of the regression, and B the allowed bias, of which the
    rehearsed share is left.

    Raises DeclarationError unless ``1/2 <= level < 1``.
    """
    score, squares, study = plan.main, plan.step("squares"), plan.study
    assert isinstance(score, WeightedSum)
    assert isinstance(squares, ResidualSquares)
    n = study.universe.n_samples
    lines = score.at(score.universe, released).lines
    rate = lines.rate
    known = score.at_rate(rate)
    trial = rehearsed(score.program, _public(plan, lines))
    left = min(_MORE * trial.left, 1.0)
    moments, tail = misses(level)
    law = squares.calibration
    margin = sum_quantile(law.noise, moments, 0.0, law.unit * law.scale) + law.unit * law.coupling
    square = squares.mean_square(released, margin)
    bases = 1.0 / (rate * (1.0 - rate))
    sampling = math.sqrt(trial.inflation * square * bases / n)
    error = nuisance_error(effect_facts(plan), released, math.sqrt(square * bases))
    beyond = _BEYOND if study.two_values is None else 0.0
    intercepts = (beyond + trial.mass) * _intercept_error(lines, released, math.sqrt(square))
    uncertain = math.hypot(left * error.noise, left * error.sampling, intercepts)
    deviation = math.hypot(sampling, uncertain)
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


def _public(plan: Plan[EffectStudy], lines: ReleasedLines) -> Public:
    """What the public records of the rehearsal are made of."""
    score, study = plan.main, plan.study
    rate = plan.step("rate")
    assert rate is not None
    noise = rate.calibration.unit * rate.calibration.scale / study.universe.n_samples
    spreads = tuple(float(one) for one in lines.nuisances.spreads)
    distance = max(study.confounding, _LEAST)
    return Public(score.universe.domain, lines.rate, noise, spreads, distance)


def _intercept_error(lines: ReleasedLines, released: Mapping[str, Array], deviation: float) -> float:
    """Root mean square of the errors of both intercepts together, by noise and ridge of the regression."""
    fit, nuisances = lines.nuisances.fit, lines.nuisances
    curvature = np.maximum(fit.curvature(deviation, lines.rate), 1e-12)
    theta = np.asarray(released[str(nuisances.term.source)], dtype=np.float64)
    constants = theta[nuisances.term.rows.constants(len(nuisances.spreads))]
    noise = fit.noise / (fit.n_samples * (curvature + fit.gamma))
    shrunk = np.abs(constants) * fit.gamma / curvature
    return float(np.linalg.norm(np.array(lines.steepness(released)) * np.hypot(noise, shrunk)))
