"""The release of an average effect: an estimate, its interval, and what both rest on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc, expit

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import SumLaw
from dp2erm_cvx.checks import Stated
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.inference.distance import (
    Distance,
    at_released_distance,
    hardly_overlap,
    released_distance,
)
from dp2erm_cvx.inference.effect_error import nuisance_error, risk_errors
from dp2erm_cvx.inference.groups import GroupMean, group_average, group_means
from dp2erm_cvx.inference.interval import ScoreInterval, score_deviation, score_interval
from dp2erm_cvx.inference.levels import few_records, with_rare_levels
from dp2erm_cvx.inference.nuisances import NO_ERROR, EffectFacts, NuisanceError
from dp2erm_cvx.inference.ratio import ArmRisks, part_deviation, part_interval
from dp2erm_cvx.inference.scale import clipped_residuals, clipped_weighted, too_large
from dp2erm_cvx.inference.skewed import skewed
from dp2erm_cvx.inference.weighted import Weighting, weighted_interval
from dp2erm_cvx.plan import EffectStudy, Plan
from dp2erm_cvx.plan.effect import effect_facts, weighted_facts
from dp2erm_cvx.release.declaration import declaration_of, state_steps
from dp2erm_cvx.release.interval import EffectInterval
from dp2erm_cvx.release.parts import (
    ArmApart,
    ArmEffects,
    GroupEffect,
    arm_effects,
    arms_without_overlap,
    state_groups,
)
from dp2erm_cvx.release.record import BaseRelease, Guarantee
from dp2erm_cvx.steps.covariates import ArmMeans, CovariateLaw, DifferenceSquare, MeanSquare
from dp2erm_cvx.steps.fit import ArmPropensity
from dp2erm_cvx.steps.outcome_scale import OutcomeScale, class_names
from dp2erm_cvx.steps.record_map import Rows, treated_share
from dp2erm_cvx.steps.score import ArmScores, EffectScore, GroupScore
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import SIDES, SideCounts, TreatmentRate
from dp2erm_cvx.steps.weighted_residuals import ResidualSquares, WeightedSum


@dataclass(frozen=True)
class Nuisance(Stated):
    """What one step before the score released.

    Parameters
    ----------
    step
        Name of the step.
    rows
        What its numbers are of, such as the log odds of treatment.
    parameters
        One name (p,) for each number.
    coefficient
        The released numbers (p,): of the centered outcome, of the log odds on (1, x), or noisy
        sums.
    """

    step: str
    rows: str
    parameters: tuple[str, ...]
    coefficient: tuple[float, ...]


def state_nuisances(
    plan: Plan[EffectStudy], released: Mapping[str, Array], columns: tuple[str, ...]
) -> Iterator[Nuisance]:
    """Nuisances of a run, as a release states them."""
    domain = plan.study.universe.domain
    for step in plan.steps[:-1]:
        yield state_coefficient(step, released[step.name], columns, domain)


def state_coefficient(
    step: Step, released: Array, columns: tuple[str, ...], domain: Domain
) -> Nuisance:
    """What a step before the score or the rule ``released``, as a release states it.

    Parameters
    ----------
    step
        The step.
    released
        Its numbers (p,): coefficients, or integers in units of the step.
    columns
        Names of the covariates.
    domain
        What is declared; of more than two arms its labels name the coefficients.
    """
    if isinstance(step, TreatmentRate):
        return Nuisance(step.name, *step.stated(released, domain))
    if step.regression is not None:
        rows = step.regression.rows.value
        if len(domain.arms) > 2:
            names = step.regression.rows.names(columns, domain.arms)
        else:
            names = step.regression.rows.names(columns)
    elif isinstance(step, ArmPropensity):
        rows = "log odds of arms, by contrasts"
        names = step.names(columns)
    elif step.integers is not None:
        rows, names = _sums_in_words(step, columns, domain)
    else:
        rows = "log odds of treatment"
        names = Rows.POOLED.names(columns)
    unit = 1.0 if step.integers is None else step.integers.unit
    return Nuisance(step.name, rows, names, tuple(unit * float(value) for value in released))


#: What the sums of a step are of, and their names, where no columns enter.
_PLAIN_SUMS: dict[type[Step], tuple[str, tuple[str, ...]]] = {
    SideCounts: ("records", SIDES),
    ResidualSquares: ("sum of squared residuals, of arms alike, over their bound", ("squares",)),
    DifferenceSquare: ("sum of squares along the difference of the arms", ("square",)),
}


def _sums_in_words(
    step: Step, columns: tuple[str, ...], domain: Domain
) -> tuple[str, tuple[str, ...]]:
    """What the integers of a step are sums of, and the name of each of them."""
    if type(step) in _PLAIN_SUMS:
        return _PLAIN_SUMS[type(step)]
    if isinstance(step, MeanSquare) and step.numbers:
        own = tuple(columns[place] for place in step.numbers)
        return "sum of squares over nine guessed ones", own
    if isinstance(step, MeanSquare):
        return "sum of squared norms over their bound", ("square",)
    if isinstance(step, OutcomeScale):
        return "pairs of outcomes, by how far they lie apart", class_names(step.edges)
    if isinstance(step, ArmMeans):
        return "records and sums of scaled covariates by arm", step.names(columns, domain.arms)
    return "sum of scaled covariates", columns


def capped_share(
    estimand: str,
    cap: float,
    features_bound: float,
    nuisances: Sequence[Nuisance],
    n_samples: int,
    law: CovariateLaw | None = None,
) -> float:
    """Share of propensities that the cap cuts off, from released and public numbers alone.

    No factor of the overlap population needs a cap, and small odds need none among the treated.

    Parameters
    ----------
    estimand
        What is estimated.
    cap
        F: propensities are clipped to [1/F, 1 - 1/F].
    features_bound
        Radius of the ball that scaled covariates lie in.
    nuisances
        What the steps before the score released.
    n_samples
        Number of records.
    law
        Law of the covariates with released spreads. None: a logistic propensity is that of
        covariates spread evenly over the ball, whoever the records are.
    """
    if estimand == "overlap":
        return 0.0
    largest = math.log(cap - 1.0)
    low = -math.inf if estimand == "att" else -largest
    for one in nuisances:
        if one.step == "propensity" and one.rows == "log odds of treatment":
            constant, *slopes = np.array(one.coefficient)
            low_slope = low - constant
            high_slope = largest - constant
            if law is not None:
                return law.beyond(np.array(slopes), low_slope, high_slope)
            return _beyond_in_ball(slopes, low_slope, high_slope, features_bound)
    for one in nuisances:
        if one.step == "rate":
            return _rates_beyond(np.array(one.coefficient), n_samples, expit(low), expit(largest))
    return 0.0


def _beyond_in_ball(slopes: Sequence[float], low: float, high: float, radius: float) -> float:
    """Share of x, spread evenly over a ball, with ``<slopes, x>`` below ``low`` or above ``high``.

    The projection of an even ball onto a line is a scaled beta variable.
    """
    reach = radius * float(np.linalg.norm(slopes))
    shape = 0.5 * (len(slopes) + 1)
    ends = np.array([low, high]) / max(reach, 1e-300)
    below, above = np.clip(0.5 * (1.0 + ends), 0.0, 1.0)
    return float(betainc(shape, shape, below) + betainc(shape, shape, 1.0 - above))


def _rates_beyond(counts: Array, n_samples: int, low: float, high: float) -> float:
    """Share of the records in groups whose released rate of treatment is outside [low, high].

    ``counts`` are those of one or two sums in every group, as they were released.
    """
    sums = np.reshape(counts, (min(len(counts), 2), -1))
    rate = np.array([treated_share(column, n_samples) for column in sums.T])
    size = np.maximum(sums.sum(axis=0), 0.0)
    beyond = (rate < low) | (rate > high)
    return float(np.sum(size[beyond]) / max(float(np.sum(size)), 1.0))


@dataclass(frozen=True)
class FewRecords(Stated):
    """A rare level of which an arm may have too few records.

    Parameters
    ----------
    level
        The column of the level, such as "region=West".
    having
        True for records that have the level, False where those without it are few.
    treated
        True for the treated, False for the untreated.
    counted
        The released number of these records of the arm, which may be negative.
    noise
        Standard deviation of the noise of ``counted``, in records.
    """

    level: str
    having: bool
    treated: bool
    counted: float
    noise: float


#: What an interval may be for: the effect, or what the score averages to at the released nuisances.
TARGETS = ("effect", "score")
#: What is declared of the population among the settings of a release.
ASSUMED = ("confounding", "collinearity", "heterogeneity")


@dataclass(frozen=True)
class Ratio(Stated):
    """A ratio of both released risks.

    Parameters
    ----------
    name
        Risk ratio or odds ratio.
    estimate
        The ratio.
    interval
        Its interval.
    """

    name: str
    estimate: float
    interval: EffectInterval


@dataclass(frozen=True, kw_only=True)
class EffectRelease(BaseRelease):
    """Release of an average effect: all that may be published about it.

    Parameters
    ----------
    estimand
        The effect that was asked for, as it was declared.
    estimate
        The effect, in units of the outcome and net of the treatment cost. Of risks their
        difference, of several arms the first contrast, of groups the effect in all their records.
    interval
        The interval of the estimate.
    standard_deviation
        A bound on the standard deviation of the score, from what was released.
    released
        The whole numbers that noise was added to: three for each group where there are groups, two
        for each of several arms and one more.
    risks
        Risk of the treated and of the untreated; empty where they were not asked for.
    ratios
        Risk ratio and odds ratio, where the denominator is above its own error.
    nuisances
        What each step before the score released.
    settings
        Clips, shares and guesses in force: what was declared, and what the public rule adds from n
        and epsilon.
    capped
        Share of the propensities beyond the cap, as far as released and public numbers tell.
    narrow
        Covariates whose released mean square may be noise alone.
    target
        What the interval is for. "effect": it allows for what noise and shrinkage of the nuisances
        may leave of the confounding. "score": it is for the population mean of the score at the
        released nuisances, whatever they are.
    counted
        Noisy number of the records that count; None where it is not released.
    groups
        The effect in each level of a column, in the order of the levels; empty without groups.
    arms
        Mean outcomes of more than two arms, and their contrasts; None for two arms.
    skewed
        Bias by skewed residuals that the released sums show and the interval does not count.
    clipped_residuals
        Mean square of clipped residuals as a share of their squared bound, from below, where it
        says that the declared scale is too small; 0 elsewhere.
    weighting
        What is public of the weights of a scheme, where they answered; None elsewhere.
    distance
        How far the released means of both arms lie apart; None where they were not released.
    overlaps
        False where the arms lie so far apart that no interval is stated.
    few
        Rare levels of which either arm may have too few records, where risks rest on regressions.
    apart
        Arms of several that hardly overlap with the others: no interval rests on one of them.
    """

    goal: ClassVar[str] = "effect"
    spelled: ClassVar[tuple[str, ...]] = ("private", "standing")

    estimand: str
    estimate: float
    interval: EffectInterval
    standard_deviation: float
    released: tuple[int, ...]
    risks: tuple[float, ...]
    ratios: tuple[Ratio, ...]
    nuisances: tuple[Nuisance, ...]
    settings: dict[str, Any]
    capped: float = 0.0
    narrow: tuple[str, ...] = ()
    target: str = TARGETS[1]
    counted: float | None = None
    groups: tuple[GroupEffect, ...] = ()
    arms: ArmEffects | None = None
    skewed: float = 0.0
    clipped_residuals: float = 0.0
    weighting: Weighting | None = None
    distance: Distance | None = None
    overlaps: bool = True
    few: tuple[FewRecords, ...] = ()
    apart: tuple[ArmApart, ...] = ()

    @property
    def by(self) -> str | None:
        """The column in whose levels an effect was estimated, if any."""
        return self.public.codebook.group if self.groups else None  # type: ignore[union-attr]

    @property
    def is_risk(self) -> bool:
        """True for a difference of risks: the outcome is declared to be an event, 0 or 1."""
        domain = self.domain
        return bool(self.risks) or (
            bool(domain.get("binary_outcome")) and domain["outcome_bound"] == 0.5
        )

    def to_dict(self, *, derived: bool = True) -> dict[str, Any]:
        """Plain JSON types, as of every release."""
        plain = super().to_dict(derived=derived)
        if self.arms is None:  # files of two arms stay as they were before there were more
            del plain["arms"]
        if not self.skewed:
            del plain["skewed"]
        if not self.clipped_residuals:
            del plain["clipped_residuals"]
        if self.weighting is None:
            del plain["weighting"]
        if self.distance is None:
            del plain["distance"]
        if self.overlaps:
            del plain["overlaps"]
        if not self.few:
            del plain["few"]
        if not self.apart:
            del plain["apart"]
        return plain

    def rows(self) -> list[Mapping[str, Any]]:
        """The estimate with its interval; then one for every group, with its contrast to the first.

        Of more than two arms one for every contrast. Mean outcomes of arms stand beside, where the
        sums give them: both risks, and the means of several arms. ``std_error`` is that of a normal
        estimate whose interval is as wide.
        """
        if self.arms is not None:
            return self._rows_of_arms(self.arms)
        if self.groups:
            return [self._row({"group": None}, self), *map(self._row_of_group, self.groups)]
        return [self._row({}, self)]

    def _row(
        self, names: Mapping[str, Any], part: Any, more: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """One row: ``names`` of what is estimated, the estimate of a ``part``, and ``more`` of it.

        A part has an ``estimate`` and an ``interval``.
        """
        row = {**names, "estimand": self.estimand, "estimate": part.estimate}
        row |= {"std_error": part.interval.std_error, **asdict(part.interval)}
        if self.risks:
            treated, control = self.risks
            row |= {"mean_treated": treated, "mean_untreated": control}
        return {**row, **more, "target": self.target, **self.cost()}

    def _rows_of_arms(self, arms: ArmEffects) -> list[Mapping[str, Any]]:
        """One row for every contrast, with the mean outcomes of both arms."""
        means = {one.level: one.estimate for one in arms.means}
        rows: list[Mapping[str, Any]] = []
        for contrast in arms.contrasts:
            names = {
                "arm": contrast.level,
                "against": contrast.against,
                "arm_mean": means[contrast.level],
                "against_mean": means[contrast.against],
            }
            joint = {"joint_low": contrast.joint.low, "joint_high": contrast.joint.high}
            rows.append(self._row(names, contrast, joint))
        return rows

    def _row_of_group(self, group: GroupEffect) -> dict[str, Any]:
        """The row of one group, with its contrast to the first one."""
        more: dict[str, Any] = {
            "joint_low": group.joint.low,
            "joint_high": group.joint.high,
            "counted": group.counted,
            "treated": group.treated,
        }
        contrast = group.contrast
        if contrast is not None:
            more["contrast"] = contrast.estimate
            more["contrast_low"] = contrast.interval.low
            more["contrast_high"] = contrast.interval.high
        return self._row({"group": group.group}, group, more)


def make_effect(
    plan: Plan[EffectStudy],
    released: Mapping[str, Array],
    columns: tuple[str, ...],
    guarantee: Guarantee,
    level: float,
    target: str,
) -> EffectRelease:
    """State what a run of a plan ``released``, with the interval that follows from it.

    This is post-processing: it costs no budget. The interval of a mean is that of Theorem 12
    (``inference.interval``), those by weights are of ``inference.weighted``, the errors of two
    risks are combined by (A29), and the distance of the arms follows from their released means
    (``inference.distance``).

    Parameters
    ----------
    plan
        What was run.
    released
        Released numbers of every step, by its name.
    columns
        Names of the covariates.
    guarantee
        What the run guarantees.
    level
        Level of the interval.
    target
        What the interval is to be for, of ``TARGETS``. It is for the effect only where what
        nuisances leave of the confounding is predicted, else for the score.
    """
    study = plan.study
    if isinstance(plan.main, WeightedSum):
        return _by_weights(plan, released, columns, guarantee, level)
    score = plan.main.at(plan.main.universe, released)
    facts = effect_facts(plan)
    distance = released_distance(facts, released)
    facts = at_released_distance(facts, distance)
    answer = _answer(plan, score, facts, released, level=level, target=target)
    interval = answer.interval
    nuisances = tuple(state_nuisances(plan, released, columns))
    few: tuple[FewRecords, ...] = ()
    if answer.counts_rare_levels:
        few = tuple(state_few(facts, released, columns))
    bias_of_skewness = 0.0
    if answer.counts_errors:
        # It is told from a quarter of the half width on.
        told_from = 0.125 * (interval.high - interval.low)
        bias_of_skewness = skewed(facts, released, interval.standard_deviation, told_from)
    clipped = 0.0
    if _knows_scale(study):
        clipped = too_large(clipped_residuals(facts, released), study.residuals, score.nuisances)
    stated = EffectRelease(
        estimand=plan.main.estimand,
        estimate=interval.estimate,
        interval=EffectInterval.of(interval),
        standard_deviation=interval.standard_deviation,
        released=_integers(plan, released),
        risks=answer.risks,
        ratios=answer.ratios,
        columns=columns,
        n_samples=study.universe.n_samples,
        guarantee=guarantee,
        steps=state_steps(plan),
        nuisances=nuisances,
        settings={**_settings(study), "effect_center": score.center},
        domain=study.universe.domain.to_dict(),
        declared=declaration_of(plan),
        capped=_capped(plan, score, released, nuisances),
        target=TARGETS[0] if answer.counts_errors else TARGETS[1],
        counted=counted_records(plan.main, _integers(plan, released)),
        groups=tuple(state_groups(answer.groups, level)),
        arms=answer.arms,
        narrow=_narrow(plan, columns, released),
        skewed=bias_of_skewness,
        clipped_residuals=clipped,
        distance=distance,
        few=few,
    )
    if not answer.counts_errors:
        return stated
    if answer.arms is not None:
        return _without_intervals_of(stated, arms_without_overlap(facts, released, answer.arms))
    if hardly_overlap(study.confounding, distance, float(score.nuisances.rate)):
        return _without_intervals(stated)
    return stated


def state_few(
    facts: EffectFacts, released: Mapping[str, Array], columns: Sequence[str]
) -> Iterator[FewRecords]:
    """Rare levels of which either arm may have too few records; none at a public propensity."""
    if facts.known_propensity:
        return
    for one in few_records(facts.mean, released):
        yield FewRecords(
            level=columns[one.covariate],
            having=one.sign > 0.0,
            treated=one.arm == 1,
            counted=one.counted_in_arm,
            noise=one.noise,
        )


@dataclass(frozen=True)
class _Answer:
    """What the released sums say.

    Parameters
    ----------
    interval
        The estimate with its interval.
    counts_errors
        Whether the interval allows for what nuisances leave of the confounding.
    risks
        Risk of the treated and of the untreated, where they were asked for.
    ratios
        Ratios of both, where their denominators are above their own errors.
    groups
        The effect in every group.
    arms
        Mean outcomes of more than two arms, and their contrasts.
    counts_rare_levels
        Whether the interval allows for what levels add of which an arm has few records.
    """

    interval: ScoreInterval
    counts_errors: bool
    risks: tuple[float, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    groups: Sequence[GroupMean] = ()
    arms: ArmEffects | None = None
    counts_rare_levels: bool = False


def _answer(
    plan: Plan[EffectStudy],
    score: EffectScore,
    facts: EffectFacts,
    released: Mapping[str, Array],
    *,
    level: float,
    target: str,
) -> _Answer:
    """Estimate and interval from the sums of a ``score`` at what was released before it."""
    by_mean_error = target == TARGETS[0] and plan.study.allows_one_bias
    if isinstance(score, ArmScores):
        arms, interval = arm_effects(facts, released, level, predicted=by_mean_error)
        return _Answer(interval, by_mean_error, arms=arms)
    if isinstance(score, GroupScore):
        groups = group_means(facts, released, predicted=by_mean_error)
        return _Answer(group_average(groups, level), by_mean_error, groups=groups)
    sums = _integers(plan, released)
    center = score.center
    assert center is not None
    middle = plan.study.universe.domain.outcome_center
    step = plan.main
    if by_mean_error:
        # Risks never predict a bias by this error of a mean: they have errors of their own, below.
        deviation = _standard_deviation(step, sums, level, score.widening)
        share = step.calibration.means(sums)[1]
        error = nuisance_error(facts, released, deviation, share)
        center = center + error.shift
        interval, risks, ratios = estimated(
            step, sums, center, middle, level, score.widening, (error, error)
        )
        return _Answer(interval, True, risks, ratios)
    interval, risks, ratios = estimated(step, sums, center, middle, level, score.widening)
    if target == TARGETS[0] and risks and plan.study.settings.rows is Rows.ARMS:
        errors = risk_errors(facts, released, (risks[0], risks[1]))
        errors = with_rare_levels(facts, released, errors)
        interval, risks, ratios = estimated(
            step, sums, center, middle, level, score.widening, errors
        )
        return _Answer(interval, True, risks, ratios, counts_rare_levels=True)
    return _Answer(interval, False, risks, ratios)


def _integers(plan: Plan[EffectStudy], released: Mapping[str, Array]) -> tuple[int, ...]:
    """The released integers of the step that answers."""
    return tuple(int(number) for number in released[plan.main.name])


def _knows_scale(study: EffectStudy) -> bool:
    """True if the scale of the outcome is declared or released, so that it may be too small."""
    return study.residual_scale is not None or study.released_scale is not None


def _settings(study: EffectStudy) -> dict[str, Any]:
    """The settings in force, with what is declared of the population."""
    assumed = {name: getattr(study, name) for name in ASSUMED}
    return {**asdict(study.settings), "residual_scale": study.scale, **assumed}


def _capped(
    plan: Plan[EffectStudy],
    score: EffectScore,
    released: Mapping[str, Array],
    nuisances: Sequence[Nuisance],
) -> float:
    """Share of the propensities of two arms that the cap cuts off; 0 for more arms."""
    if isinstance(score, ArmScores):
        return 0.0
    law = None
    square = plan.step("spread")
    if isinstance(square, MeanSquare):
        law = replace(square.size(released)[0], spreads=score.nuisances.spreads)
    universe = plan.study.universe
    return capped_share(
        plan.study.estimand,
        score.cap,
        universe.domain.features_bound,
        nuisances,
        universe.n_samples,
        law,
    )


def _narrow(
    plan: Plan[EffectStudy], columns: Sequence[str], released: Mapping[str, Array]
) -> tuple[str, ...]:
    """Covariates whose released mean square may be noise alone; none where nothing confounds."""
    if plan.study.settings.known is not None:
        return ()
    return narrow_columns(plan.step("spread"), columns, released)


def _without_intervals_of(release: EffectRelease, apart: tuple[ArmApart, ...]) -> EffectRelease:
    """A release without intervals of the arms that hardly overlap with the others, if any."""
    if not apart or release.arms is None:
        return release
    arms = release.arms.without_intervals({one.level for one in apart})
    left = replace(release, arms=arms, apart=apart)
    first = arms.contrasts[0].interval
    if first.half_width is None:
        return replace(left, interval=first, overlaps=False)
    return left


def _without_intervals(release: EffectRelease) -> EffectRelease:
    """A release of arms that hardly overlap: it states no interval, nor what one decides."""
    groups = [one.without_intervals() for one in release.groups]
    none = release.interval.withheld()
    return replace(
        release, interval=none, ratios=(), groups=tuple(groups), skewed=0.0, overlaps=False
    )


def _by_weights(
    plan: Plan[EffectStudy],
    released: Mapping[str, Array],
    columns: tuple[str, ...],
    guarantee: Guarantee,
    level: float,
) -> EffectRelease:
    """State what a run by the weights of a scheme released."""
    study = plan.study
    facts = weighted_facts(plan)
    interval, weighting = weighted_interval(facts, released, level)
    clipped = 0.0
    if _knows_scale(study):
        nuisances = plan.main.at(plan.main.universe, released).lines.nuisances
        clipped = too_large(clipped_weighted(facts.squares, released), study.residuals, nuisances)
    return EffectRelease(
        estimand=study.estimand,
        estimate=interval.estimate,
        interval=EffectInterval.of(interval),
        standard_deviation=interval.standard_deviation,
        released=_integers(plan, released),
        risks=(),
        ratios=(),
        columns=columns,
        n_samples=study.universe.n_samples,
        guarantee=guarantee,
        steps=state_steps(plan),
        nuisances=tuple(state_nuisances(plan, released, columns)),
        settings=_settings(study),
        domain=study.universe.domain.to_dict(),
        declared=declaration_of(plan),
        target=TARGETS[0],
        narrow=narrow_columns(plan.step("spread"), columns, released),
        clipped_residuals=clipped,
        weighting=weighting,
    )


def narrow_columns(
    square: Step | None, columns: Sequence[str], released: Mapping[str, Array]
) -> tuple[str, ...]:
    """Covariates whose released mean square may be noise alone."""
    narrow = square.narrow(released) if isinstance(square, MeanSquare) else ()
    return tuple(columns[place] for place in narrow)


def estimated(
    step: EffectScore,
    sums: tuple[int, ...],
    center: float,
    middle: float,
    level: float,
    widening: float = 1.0,
    errors: tuple[NuisanceError, NuisanceError] = (NO_ERROR, NO_ERROR),
) -> tuple[ScoreInterval, tuple[float, ...], tuple[Ratio, ...]]:
    """The estimate with its interval, and what else follows from the same sums.

    Parameters
    ----------
    step
        The score as it was calibrated.
    sums
        Its released integers.
    center
        c_0 of the score, in units of the outcome.
    middle
        The outcome of a control whose net outcome is 0.
    level
        Level of the interval.
    widening
        What the clip B of the score was multiplied by at the released rate of treatment: the sums
        are of scores divided by it.
    errors
        Errors of the nuisances: (error of the treated risk, error of the untreated risk). For an
        effect both entries are the same error, and only the first is read.

    Returns
    -------
    interval
        Of the effect.
    risks
        Of the treated and of the untreated; empty where their sums were not released.
    ratios
        Risk ratio and odds ratio, where they have an interval.
    """
    noise = step.calibration
    law = noise.law
    if law is SumLaw.TREATED or law.has_shares:
        interval = part_interval(noise, sums, center, level, widening, errors[0])
        deviation = interval.standard_deviation / _part_summed(step)
        return replace(interval, standard_deviation=deviation), (), ()
    if not law.of_arms:
        assert law is SumLaw.SCORE
        return score_interval(noise, sums, center, level, widening, errors[0]), (), ()
    # A shift is the contribution of its arm to (treated - untreated), so it enters the untreated
    # mean with a minus.
    middles = (middle + errors[0].shift, middle - errors[1].shift)
    means = ArmRisks(noise, sums, middles, errors, widening)
    ratios = []
    for name, ratio in (
        ("risk ratio", means.ratio(level)),
        ("odds ratio", means.odds_ratio(level)),
    ):
        if ratio is not None:
            ratios.append(Ratio(name, ratio.estimate, EffectInterval.of(ratio)))
    return means.difference(level), means.risks, tuple(ratios)


def _standard_deviation(
    step: EffectScore, sums: tuple[int, ...], level: float, widening: float
) -> float:
    """Standard deviation of a score, as the interval by :func:`estimated` states it."""
    noise = step.calibration
    if noise.law is SumLaw.SCORE:
        return score_deviation(noise, sums, level, widening)
    return part_deviation(noise, sums, level, widening) / _part_summed(step)


def _part_summed(step: EffectScore) -> float:
    """What was summed of a whole score, whose deviation is stated."""
    return step.part if step.calibration.law.has_shares else 1.0


def counted_records(step: EffectScore, sums: tuple[int, ...]) -> float | None:
    """How many records count, from the same sums; None where that is not among them."""
    noise = step.calibration
    n = step.universe.n_samples
    law: SumLaw = noise.law
    if law is SumLaw.COUNTED_ARMS:
        return float(n * noise.means(sums)[5])
    if law is SumLaw.DISJOINT:
        return float(n * noise.means((0, 0, sums[-1]))[2])
    if not law.whole:
        return None
    # Every group has three sums, of which the second says how many records it has.
    shares = [2.0 * noise.means(sums[first : first + 3])[1] for first in range(0, len(sums), 3)]
    return n * min(max(float(sum(shares)), 1.0 / n), 1.0)
