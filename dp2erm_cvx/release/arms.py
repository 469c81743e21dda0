"""Mean outcomes of the arms of a treatment that has more than two, and how far they lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan import EffectStudy, Plan
from dp2erm_cvx.plan.arms import AVERAGE, arm_errors
from dp2erm_cvx.plan.effect_error import NO_ERROR, NuisanceError, residual_deviation
from dp2erm_cvx.release.interval import EffectInterval, ScoreInterval, linear_interval
from dp2erm_cvx.release.record import Stated
from dp2erm_cvx.steps.nuisances import ArmNuisances, rare
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.score import ArmScores


@dataclass(frozen=True)
class ArmMean(Stated):
    """The mean outcome if everybody were in the arm of this ``level``; a risk where that is of an event.

    ``share`` is that of its records, as it was released with noise, or public. The ``interval`` holds by
    itself.
    """

    level: str
    share: float
    estimate: float
    interval: EffectInterval


@dataclass(frozen=True)
class ArmContrast(Stated):
    """The mean outcome in one arm less that in another one, the one ``against`` which it is.

    Its ``interval`` holds by itself, the ``joint`` ones of all contrasts together (Bonferroni).
    """

    level: str
    against: str
    estimate: float
    interval: EffectInterval
    joint: EffectInterval


@dataclass(frozen=True)
class ArmEffects(Stated):
    """All arms in the order of their levels, and all contrasts that were declared."""

    means: tuple[ArmMean, ...]
    contrasts: tuple[ArmContrast, ...]


def arm_effects(
    plan: Plan[EffectStudy],
    released: Mapping[str, Array],
    level: float,
    *,
    predicted: bool,
    unit: float = 1.0,
    middle: float = 0.0,
) -> tuple[ArmEffects, ScoreInterval]:
    """The means of all arms with their contrasts, from what a run ``released``; then the first contrast.

    Where ``predicted``, intervals allow for what the nuisances leave of the confounding. Arms are stated in
    units of the outcome of which one is ``unit`` here, and 0 the ``middle``. Raises DeclarationError unless
    ``1/2 <= level < 1``.
    """
    book = plan.study.universe.domain.codebook
    assert book is not None
    pairs, labels = book.treatment.pairs, book.treatment.labels
    all_level = 1.0 - (1.0 - level) / len(pairs)
    interval, shares = _combinations(plan, released, 1.0 - all_level, predicted=predicted)
    alone, own, contrasts = np.eye(len(labels)), list[ScoreInterval](), list[ArmContrast]()
    for arm, other in pairs:
        own.append(interval(alone[arm] - alone[other], level))
        joint = interval(alone[arm] - alone[other], all_level)
        ends = EffectInterval.of(own[-1], unit), EffectInterval.of(joint, unit)
        contrasts.append(ArmContrast(labels[arm], labels[other], unit * own[-1].estimate, *ends))
    means = []
    for label, share, weights in zip(labels, shares, alone, strict=True):
        one = interval(weights, level)
        ends_of = EffectInterval.of(one, unit, middle)
        means.append(ArmMean(label, share, unit * one.estimate + middle, ends_of))
    return ArmEffects(tuple(means), tuple(contrasts)), own[0]


def _combinations(
    plan: Plan[EffectStudy], released: Mapping[str, Array], missed: float, *, predicted: bool
) -> tuple[Callable[[Array, float], ScoreInterval], tuple[float, ...]]:
    """Intervals of sums of weights (K,) times the mean outcomes, at a level; then the shares of the arms.

    Bounds of moments miss with a tenth of the probability ``missed``. Sums of arms are of different records:
    their errors are uncorrelated; of persons, who may be in several arms, they may not be, nor with what the
    mean covariate varies by. All that is divided by the released size has its noise; where persons count by
    their numbers of records, the size varies as well.
    """
    step, study, domain = plan.main, plan.study, plan.study.universe.domain
    score, noise, average = step.at(step.universe, released), step.calibration, plan.step(AVERAGE)
    assert isinstance(score, ArmScores)
    nuisances = score.nuisances
    assert isinstance(nuisances, ArmNuisances)
    assert average is not None
    n, widenings = study.universe.n_samples, np.array(score.widenings)
    n_arms, k = len(widenings), study.universe.n_features
    *sums, number = (int(one) for one in released[step.name])
    table = np.array([noise.means((*pair, number)) for pair in np.reshape(sums, (n_arms, 2)).tolist()])
    margin = noise.margin(0.1 * missed / (2 * n_arms), 1)
    squares = np.clip(table[:, 1] + margin, 0.0, noise.bound**2) * widenings**2
    # as shares of the records that count, a share of n
    size = min(max(float(table[0, 2]), 1.0 / n), 1.0)
    lines = _lines(nuisances, released, n_arms, k)
    # no direction varies by more than all variances together, and their sum alone was released
    spread = float(np.linalg.norm(nuisances.spreads)) / math.sqrt(size)
    means = np.asarray(released[AVERAGE], dtype=np.float64) / (UNIT * n * size)
    blur = float(average.calibration.scale) * average.calibration.unit / (n * size)
    residuals, deviations = table[:, 0] * widenings / size, np.sqrt(squares / size**2)
    scales, count = noise.scales[0] * widenings / size, noise.scales[2] / size
    roundings = widenings * (0.5 * noise.step + noise.coupling * noise.units[0]) / size
    errors, common = [NO_ERROR] * n_arms, 0.0
    if predicted:
        half = 0.5 * domain.outcome_bound
        residual = residual_deviation(
            math.sqrt(float(np.mean(squares * nuisances.shares)) / size), study.settings.residual_bound, half
        )
        # that of a record: a person's mean may vary by any part of it
        least = 1e-9 * half if domain.units is None else study.scale
        errors, common = arm_errors(plan, released, max(residual, least))
        outcomes = np.abs(lines[:, 0] + lines[:, 1:] @ means + residuals)
        for arm in np.flatnonzero(_rare(plan, released)):
            errors[arm] = replace(errors[arm], bias=float(outcomes[arm]) + 2.0 * half)

    def interval(weights: Array, level: float) -> ScoreInterval:
        line, sizes = weights @ lines, np.abs(weights)
        total = float(weights @ residuals + line[1:] @ means)
        deviation = spread * math.hypot(*line[1:])
        deviation += float(np.linalg.norm(sizes * deviations, None if domain.units is None else 1))
        if domain.uneven:
            deviation += abs(float(weights @ residuals)) / math.sqrt(size)
        noises = (*(sizes * scales), *np.abs(line[1:] * blur), abs(total) * count)
        parts = [float(one) for one in noises if one > 0.0]
        error = NuisanceError(
            float(sizes @ [one.bias for one in errors]),
            math.hypot(common, *(weights * [one.noise for one in errors])),
            math.hypot(*(weights * [one.sampling for one in errors])),
        )
        middle = domain.outcome_center * float(np.sum(weights))
        added = deviation / math.sqrt(n), parts, float(sizes @ roundings)
        return linear_interval(noise, level, middle + float(line[0]) + total, added, error)

    return interval, nuisances.shares


def _rare(plan: Plan[EffectStudy], released: Mapping[str, Array]) -> NDArray[np.bool_]:
    """The arms (K,) that may be too rare; of many of them the noise of a share is counted up to half."""
    step = plan.step("rate")
    if step is None:
        return np.zeros(len(plan.study.universe.domain.arms), dtype=bool)
    counts = np.asarray(released[step.name], dtype=np.float64)
    total = max(float(np.sum(np.maximum(counts, 0.0))), 1.0)
    deviation = math.sqrt(step.calibration.variance) * step.calibration.unit * UNIT / total
    return rare(counts / total, deviation)


def _lines(nuisances: ArmNuisances, released: Mapping[str, Array], n_arms: int, k: int) -> Array:
    """Intercepts and slopes (K, 1 + k) of the regressions of all arms, as scores subtract them."""
    points = np.vstack([np.zeros((1, k)), np.eye(k)])
    at = [nuisances.outcome(points, np.full(1 + k, float(arm)), released) for arm in range(n_arms)]
    lines = np.array(at)
    lines[:, 1:] -= lines[:, :1]
    return lines
