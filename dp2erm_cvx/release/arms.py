"""Mean outcomes of the arms of a treatment that has more than two, and how far they lie apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan import EffectStudy, Plan
from dp2erm_cvx.plan.arms import AVERAGE, arm_errors
from dp2erm_cvx.plan.effect_error import NO_ERROR, NuisanceError, residual_deviation
from dp2erm_cvx.release.interval import EffectInterval, ScoreInterval, linear_interval, misses
from dp2erm_cvx.release.record import STRICT
from dp2erm_cvx.steps.estimands import ArmScores
from dp2erm_cvx.steps.nuisances import ArmNuisances, rare
from dp2erm_cvx.steps.record_map import UNIT


@dataclass(frozen=True)
class ArmMean:
    """The mean outcome if everybody were in the arm of this ``level``; a risk where that is of an event.

    ``share`` is that of its records, as it was released with noise, or public. The ``interval`` holds by
    itself.
    """

    __pydantic_config__: ClassVar = STRICT

    level: str
    share: float
    estimate: float
    interval: EffectInterval


@dataclass(frozen=True)
class ArmContrast:
    """The mean outcome in one arm less that in another one, the one ``against`` which it is.

    Its ``interval`` holds by itself, the ``joint`` ones of all contrasts together (Bonferroni).
    """

    __pydantic_config__: ClassVar = STRICT

    level: str
    against: str
    estimate: float
    interval: EffectInterval
    joint: EffectInterval


@dataclass(frozen=True)
class ArmEffects:
    """All arms in the order of their levels, and all contrasts that were declared."""

    __pydantic_config__: ClassVar = STRICT

    means: tuple[ArmMean, ...]
    contrasts: tuple[ArmContrast, ...]

    def times(self, unit: float, middle: float) -> ArmEffects:
        """An answer in other units of the outcome, of which the ``middle`` is 0 here."""
        means = (
            replace(one, estimate=unit * one.estimate + middle, interval=one.interval.times(unit, middle))
            for one in self.means
        )
        contrasts = (
            ArmContrast(
                *(one.level, one.against, unit * one.estimate),
                *(ends.times(unit) for ends in (one.interval, one.joint)),
            )
            for one in self.contrasts
        )
        return ArmEffects(tuple(means), tuple(contrasts))

    def rows(self) -> Iterator[dict[str, Any]]:
        """One for every contrast."""
        for one in self.contrasts:
            yield {
                "arm": one.level,
                "against": one.against,
                "estimate": one.estimate,
                **asdict(one.interval),
                "joint_low": one.joint.low,
                "joint_high": one.joint.high,
            }


@dataclass(frozen=True)
class _Arms:
    """Released sums of all arms, as shares of the records that count, a share ``size`` of n.

    ``lines`` (K, 1 + k) are intercepts and slopes, ``average`` (k,) is the mean covariate, of Laplace noise
    of scale ``blur``; ``sums`` (K,) are those of weighted residuals, ``squares`` (K,) bound their second
    moments. ``scales`` (K,) are of the noise of the sums, and ``count`` of that of the size.
    """

    plan: Plan[EffectStudy]
    lines: Array
    average: Array
    blur: float
    sums: Array
    squares: Array
    scales: Array
    size: float
    count: float
    rounding: Array
    spread: float
    errors: Sequence[NuisanceError]
    common: float

    def combined(self, weights: Array, level: float) -> ScoreInterval:
        """Interval of the sum of ``weights`` (K,) times the mean outcomes.

        Sums of arms are of different records: their errors are uncorrelated; of persons, who may be in
        several arms, they may not be, nor with what the mean covariate varies by. All that is divided by the
        released size has its noise; where persons count by their numbers of records, the size varies as well.
        """
        study, (_, tail) = self.plan.study, misses(level)
        domain = study.universe.domain
        line, n = weights @ self.lines, study.universe.n_samples
        total = float(weights @ self.sums + line[1:] @ self.average)
        varied = self.spread * math.hypot(*line[1:])
        parts_of = np.abs(weights) * np.sqrt(self.squares)
        deviation = varied + float(np.linalg.norm(parts_of, None if domain.units is None else 1))
        if domain.uneven:
            deviation += abs(float(weights @ self.sums)) / math.sqrt(self.size)
        scales = (*np.abs(weights * self.scales), *np.abs(line[1:] * self.blur), abs(total) * self.count)
        moved = math.hypot(self.common, *(weights * [one.noise for one in self.errors]))
        sampling = math.hypot(deviation, *(weights * [one.sampling for one in self.errors]) * math.sqrt(n))
        bias = float(np.abs(weights) @ [one.bias for one in self.errors])
        rounding = float(np.abs(weights) @ self.rounding)
        middle = domain.outcome_center * float(np.sum(weights))
        public = middle + float(line[0]) + total, level, tail
        parts = deviation / math.sqrt(n), tuple(float(one) for one in scales if one > 0.0), rounding
        errors = moved, sampling / math.sqrt(n), bias
        return linear_interval(self.plan.main.calibration, public, parts, errors)


def arm_effects(
    plan: Plan[EffectStudy], released: Mapping[str, Array], level: float, *, predicted: bool
) -> tuple[ArmEffects, ScoreInterval]:
    """The means of all arms with their contrasts, from what a run ``released``; then the first contrast.

    Where ``predicted``, intervals allow for what the nuisances leave of the confounding. Raises
    DeclarationError unless ``1/2 <= level < 1``.
    """
    book = plan.study.universe.domain.codebook
    assert book is not None
    pairs, labels = book.treatment.pairs, book.treatment.labels
    all_level = 1.0 - (1.0 - level) / len(pairs)
    arms, shares = _read(plan, released, 1.0 - all_level, predicted=predicted)
    unit, contrasts = np.eye(len(labels)), list[ArmContrast]()
    first: ScoreInterval | None = None
    for arm, other in pairs:
        own, joint = (arms.combined(unit[arm] - unit[other], each) for each in (level, all_level))
        first = first or own
        ends = EffectInterval.of(own), EffectInterval.of(joint)
        contrasts.append(ArmContrast(labels[arm], labels[other], own.estimate, *ends))
    means = []
    for label, share, weights in zip(labels, shares, unit, strict=True):
        one = arms.combined(weights, level)
        means.append(ArmMean(label, share, one.estimate, EffectInterval.of(one)))
    assert first is not None
    return ArmEffects(tuple(means), tuple(contrasts)), first


def _read(
    plan: Plan[EffectStudy], released: Mapping[str, Array], missed: float, *, predicted: bool
) -> tuple[_Arms, tuple[float, ...]]:
    """Released sums of all arms, bounds of moments but with a tenth of the probability ``missed``."""
    step, study = plan.main, plan.study
    score, noise = step.score.at(step.universe, released), step.calibration
    assert isinstance(score, ArmScores)
    nuisances, average = score.nuisances, plan.step(AVERAGE)
    assert isinstance(nuisances, ArmNuisances)
    assert average is not None
    n, widenings = study.universe.n_samples, np.array(score.widenings)
    n_arms, k = len(widenings), study.universe.n_features
    *sums, number = (int(one) for one in released[step.name])
    table = np.array([noise.means((*pair, number)) for pair in np.reshape(sums, (n_arms, 2)).tolist()])
    margin = noise.margin(0.1 * missed / (2 * n_arms), 1)
    squares = np.clip(table[:, 1] + margin, 0.0, noise.bound**2) * widenings**2
    size = min(max(float(table[0, 2]), 1.0 / n), 1.0)
    lines = _lines(nuisances, released, n_arms, k)
    # no direction varies by more than all variances together, and their sum alone was released
    spread = float(np.linalg.norm(nuisances.spreads))
    sums_of = np.asarray(released[AVERAGE], dtype=np.float64) / (UNIT * n * size)
    blur = float(average.calibration.scale) * average.calibration.unit / (n * size)
    residuals = table[:, 0] * widenings / size
    errors, common = [NO_ERROR] * n_arms, 0.0
    if predicted:
        half = 0.5 * study.universe.domain.outcome_bound
        shares = np.array(nuisances.shares)
        deviation = math.sqrt(float(np.mean(squares * shares)) / size)
        residual = residual_deviation(deviation, study.settings.residual_bound, half)
        # that of a record: a person's mean may vary by any part of it
        least = 1e-9 * half if study.universe.domain.units is None else study.scale
        errors, common = arm_errors(plan, released, max(residual, least))
        means = np.abs(lines[:, 0] + lines[:, 1:] @ sums_of + residuals)
        for arm in np.flatnonzero(_rare(plan, released)):
            errors[arm] = replace(errors[arm], bias=float(means[arm]) + 2.0 * half)
    return (
        _Arms(
            plan=plan,
            lines=lines,
            average=sums_of,
            blur=blur,
            sums=residuals,
            squares=squares / size**2,
            scales=noise.scales[0] * widenings / size,
            size=size,
            count=noise.scales[2] / size,
            rounding=widenings * (0.5 * noise.step + noise.coupling * noise.units[0]) / size,
            spread=spread / math.sqrt(size),
            errors=errors,
            common=common,
        ),
        nuisances.shares,
    )


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
