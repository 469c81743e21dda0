"""The release of an average effect: an estimate, its interval, and what both rest on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from dp2erm_cvx.inference.interval import ScoreInterval, score_interval
from dp2erm_cvx.inference.levels import few_records, with_rare_levels
from dp2erm_cvx.inference.nuisances import NO_ERROR, EffectFacts, NuisanceError
from dp2erm_cvx.inference.ratio import ArmRisks, part_interval
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
    arms_apart,
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
    """Coefficients (p,) that a step ``released``: a regression of the outcome, or the propensity.

    The labels of the arms of a ``domain`` name their coefficients where there are more than two.
    """
    if isinstance(step, TreatmentRate):
        return Nuisance(step.name, *step.stated(released, domain))
    rows, names = "log odds of treatment", Rows.POOLED.names(columns)
    if step.regression is not None:
        own = (columns, domain.arms) if len(domain.arms) > 2 else (columns,)
        rows, names = step.regression.rows.value, step.regression.rows.names(*own)
    elif isinstance(step, ArmPropensity):
        rows, names = "log odds of arms, by contrasts", step.names(columns)
    elif isinstance(step, SideCounts):
        rows, names = "records", SIDES
    elif isinstance(step, MeanSquare) and step.numbers:
        rows, names = (
            "sum of squares over nine guessed ones",
            tuple(columns[k] for k in step.numbers),
        )
    elif isinstance(step, MeanSquare):
        rows, names = "sum of squared norms over their bound", ("square",)
    elif isinstance(step, OutcomeScale):
        rows, names = "pairs of outcomes, by how far they lie apart", class_names(step.edges)
    elif isinstance(step, ResidualSquares):
        rows, names = "sum of squared residuals, of arms alike, over their bound", ("squares",)
    elif isinstance(step, DifferenceSquare):
        rows, names = "sum of squares along the difference of the arms", ("square",)
    elif isinstance(step, ArmMeans):
        rows, names = (
            "records and sums of scaled covariates by arm",
            step.names(columns, domain.arms),
        )
    elif step.integers is not None:
        rows, names = "sum of scaled covariates", columns
    unit = 1.0 if step.integers is None else step.integers.unit
    return Nuisance(step.name, rows, names, tuple(unit * float(value) for value in released))


def capped_share(
    estimand: str,
    cap: float,
    features_bound: float,
    nuisances: Sequence[Nuisance],
    n_samples: int,
    law: CovariateLaw | None = None,
) -> float:
    """How many propensities the cap cuts off, from what was released and public numbers alone.

    Of a logistic one the share beyond the cap of covariates of a ``law`` with released spreads,
    else of those spread evenly over the ball of radius ``features_bound``, whoever the records are.
    No factor of the overlap population needs a cap, and small odds need none among the treated.
    """
    if estimand == "overlap":
        return 0.0
    known = {f"{one.step}, {one.rows}": np.array(one.coefficient) for one in nuisances}
    high = math.log(cap - 1.0)
    low = -math.inf if estimand == "att" else -high
    if "propensity, log odds of treatment" in known:
        constant, *slopes = known["propensity, log odds of treatment"]
        if law is not None:
            return law.beyond(np.array(slopes), low - constant, high - constant)
        reach = features_bound * float(np.linalg.norm(slopes))
        # the projection of an even ball onto a line is a scaled beta variable
        half = 0.5 * (len(slopes) + 1)
        ends = (np.array([low, high]) - constant) / max(reach, 1e-300)
        below, above = np.clip(0.5 * (1.0 + ends), 0.0, 1.0)
        return float(betainc(half, half, below) + betainc(half, half, 1.0 - above))
    rates = [values for name, values in known.items() if name.startswith("rate, ")]
    if not rates:
        return 0.0
    sums = np.reshape(rates[0], (min(len(rates[0]), 2), -1))
    share = np.array([treated_share(column, n_samples) for column in sums.T])
    count = np.maximum(sums.sum(axis=0), 0.0)
    beyond = (share < expit(low)) | (share > expit(high))
    return float(np.sum(count[beyond]) / max(float(np.sum(count)), 1.0))


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
        named: list[tuple[dict[str, Any], Any]] = [({}, self)]
        if self.arms is not None:
            means = {one.level: one.estimate for one in self.arms.means}
            named = []
            for one in self.arms.contrasts:
                names = {"arm": one.level, "against": one.against}
                both = {"arm_mean": means[one.level], "against_mean": means[one.against]}
                named.append((names | both, one))
        elif self.groups:
            named = [({"group": None}, self), *(({"group": one.group}, one) for one in self.groups)]
        rows = list[Mapping[str, Any]]()
        for names, one in named:
            row = {**names, "estimand": self.estimand, "estimate": one.estimate}
            row |= {"std_error": one.interval.std_error, **asdict(one.interval)}
            if self.risks:
                row |= {"mean_treated": self.risks[0], "mean_untreated": self.risks[1]}
            if one is not self:
                row |= {"joint_low": one.joint.low, "joint_high": one.joint.high}
            if isinstance(one, GroupEffect):
                row |= {"counted": one.counted, "treated": one.treated}
            if (apart := getattr(one, "contrast", None)) is not None:
                ends = {"contrast_low": apart.interval.low, "contrast_high": apart.interval.high}
                row |= {"contrast": apart.estimate, **ends}
            rows.append({**row, "target": self.target, **self.cost()})
        return rows


def make_effect(
    plan: Plan[EffectStudy],
    released: Mapping[str, Array],
    columns: tuple[str, ...],
    guarantee: Guarantee,
    level: float,
    target: str,
) -> EffectRelease:
    """State what a run of a plan ``released``, by step, with an interval at ``level``.

    ``columns`` are the covariates; ``target`` says what the interval is for, where what nuisances
    leave of the confounding is predicted: an effect by regressions.
    """
    study, score = plan.study, plan.main
    sums, universe = tuple(int(number) for number in released[score.name]), study.universe
    if isinstance(score, WeightedSum):
        return _by_weights(plan, released, columns, guarantee, level)
    middle = universe.domain.outcome_center
    facts = effect_facts(plan)
    own = score.at(score.universe, released)
    assert own.center is not None
    predicted = target == TARGETS[0] and study.predicts_bias
    distance = released_distance(facts, released)
    facts = at_released_distance(facts, distance)
    arms, groups, risks, ratios = None, list[GroupMean](), tuple[float, ...](), tuple[Ratio, ...]()
    few = tuple[FewRecords, ...]()
    if isinstance(own, ArmScores):
        arms, result = arm_effects(facts, released, level, predicted=predicted)
    elif isinstance(own, GroupScore):
        groups = group_means(facts, released, predicted=predicted)
        result = group_average(groups, level)
    else:
        result, risks, ratios = estimated(score, sums, own.center, middle, level, own.widening)
        if predicted:
            share = score.calibration.means(sums)[1]
            error = nuisance_error(facts, released, result.standard_deviation, share)
            center = own.center + error.shift
            result = estimated(score, sums, center, middle, level, own.widening, (error, error))[0]
        elif target == TARGETS[0] and risks and study.settings.rows is Rows.ARMS:
            predicted = True
            errors = risk_errors(facts, released, (risks[0], risks[1]))
            errors = with_rare_levels(facts, released, errors)
            few = tuple(state_few(facts, released, columns))
            result, risks, ratios = estimated(
                score, sums, own.center, middle, level, own.widening, errors
            )
    nuisances = tuple(state_nuisances(plan, released, columns))
    square = plan.step("spread")
    capped, law = 0.0, None
    if arms is None:
        if isinstance(square, MeanSquare):
            law = replace(square.size(released)[0], spreads=own.nuisances.spreads)
        bounds = own.cap, universe.domain.features_bound
        capped = capped_share(study.estimand, *bounds, nuisances, universe.n_samples, law)
    off = 0.0  # told from a quarter of the half width on
    if predicted:
        off = skewed(facts, released, result.standard_deviation, 0.125 * (result.high - result.low))
    clipped = 0.0
    if study.residual_scale is not None or study.released_scale is not None:
        clipped = too_large(clipped_residuals(facts, released), study.residuals, own.nuisances)
    stated = EffectRelease(
        estimand=score.estimand,
        estimate=result.estimate,
        interval=EffectInterval.of(result),
        standard_deviation=result.standard_deviation,
        released=sums,
        risks=risks,
        ratios=ratios,
        columns=columns,
        n_samples=universe.n_samples,
        guarantee=guarantee,
        steps=state_steps(plan),
        nuisances=nuisances,
        settings={
            **asdict(study.settings),
            "residual_scale": study.scale,
            **{name: getattr(study, name) for name in ASSUMED},
            "effect_center": own.center,
        },
        domain=universe.domain.to_dict(),
        declared=declaration_of(plan),
        capped=capped,
        target=TARGETS[0 if predicted else 1],
        counted=counted_records(score, sums),
        groups=tuple(state_groups(groups, level)),
        arms=arms,
        narrow=narrow_columns(square, columns, released) if study.settings.known is None else (),
        skewed=off,
        clipped_residuals=clipped,
        distance=distance,
        few=few,
    )
    if predicted and arms is not None:
        return _without_intervals_of(stated, arms_apart(facts, released, arms))
    if predicted and hardly_overlap(study.confounding, distance, float(own.nuisances.rate)):
        return _without_intervals(stated)
    return stated


def state_few(
    facts: EffectFacts, released: Mapping[str, Array], columns: Sequence[str]
) -> Iterator[FewRecords]:
    """Rare levels of which either arm may have too few records; none at a public propensity."""
    if facts.known_propensity:
        return
    for one in few_records(facts.mean, released):
        having, treated = one.sign > 0.0, one.arm == 1
        yield FewRecords(columns[one.covariate], having, treated, one.counted_in_arm, one.noise)


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
    """A release of arms that hardly overlap: it states no interval, nor what an interval
    decides.
    """
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
    study, score = plan.study, plan.main
    facts = weighted_facts(plan)
    result, weighting = weighted_interval(facts, released, level)
    clipped = 0.0
    if study.residual_scale is not None or study.released_scale is not None:
        lines = score.at(score.universe, released).lines
        clipped = too_large(
            clipped_weighted(facts.squares, released), study.residuals, lines.nuisances
        )
    square = plan.step("spread")
    return EffectRelease(
        estimand=study.estimand,
        estimate=result.estimate,
        interval=EffectInterval.of(result),
        standard_deviation=result.standard_deviation,
        released=tuple(int(number) for number in released[score.name]),
        risks=(),
        ratios=(),
        columns=columns,
        n_samples=study.universe.n_samples,
        guarantee=guarantee,
        steps=state_steps(plan),
        nuisances=tuple(state_nuisances(plan, released, columns)),
        settings={
            **asdict(study.settings),
            "residual_scale": study.scale,
            **{name: getattr(study, name) for name in ASSUMED},
        },
        domain=study.universe.domain.to_dict(),
        declared=declaration_of(plan),
        target=TARGETS[0],
        narrow=narrow_columns(square, columns, released),
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

    ``middle`` is the outcome of a control whose net outcome is 0. ``errors`` are those of both
    risks, the treated first, or twice that of an effect.
    """
    noise, law = step.calibration, step.calibration.law
    if law is SumLaw.TREATED or law.counts:
        interval = part_interval(noise, sums, center, level, widening, errors[0])
        # that of a whole score, of which a part was summed
        part = step.part if law.counts else 1.0
        return replace(interval, standard_deviation=interval.standard_deviation / part), (), ()
    if not law.of_arms:
        assert law is SumLaw.SCORE
        return score_interval(noise, sums, center, level, widening, errors[0]), (), ()
    # shifts are those of the difference
    means = ArmRisks(
        noise, sums, (middle + errors[0].shift, middle - errors[1].shift), errors, widening
    )
    both = {"risk ratio": means.ratio(level), "odds ratio": means.odds_ratio(level)}
    known = ((name, one) for name, one in both.items() if one is not None)
    ratios = tuple(Ratio(name, one.estimate, EffectInterval.of(one)) for name, one in known)
    return means.difference(level), means.risks, ratios


def counted_records(step: EffectScore, sums: tuple[int, ...]) -> float | None:
    """How many records count, from the same sums; None where that is not among them."""
    noise, n = step.calibration, step.universe.n_samples
    law: SumLaw = noise.law
    if law is SumLaw.COUNTED_ARMS:
        return float(n * noise.means(sums)[5])
    if law is SumLaw.DISJOINT:
        return float(n * noise.means((0, 0, sums[-1]))[2])
    if not law.whole:
        return None
    share = float(sum(2.0 * noise.means(sums[at : at + 3])[1] for at in range(0, len(sums), 3)))
    return n * min(max(share, 1.0 / n), 1.0)
