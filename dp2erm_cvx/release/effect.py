"""The release of an average effect: an estimate, its interval, and what both rest on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from dp2erm_cvx.calibration import SumLaw
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.plan import EffectPlan, EffectSettings
from dp2erm_cvx.plan.effect import SCORES
from dp2erm_cvx.plan.effect_error import NO_ERROR, NuisanceError, nuisance_error, risk_errors
from dp2erm_cvx.public import public_number
from dp2erm_cvx.release.arms import ArmRisks
from dp2erm_cvx.release.effect_caveats import capped_share
from dp2erm_cvx.release.effect_text import effect_blocks
from dp2erm_cvx.release.groups import GroupEffect, group_average, group_means, group_rows, state_groups
from dp2erm_cvx.release.interval import (
    STRICT,
    EffectInterval,
    ScoreInterval,
    effect_interval,
    score_interval,
)
from dp2erm_cvx.release.nuisances import Nuisance, state_cuts, state_nuisances
from dp2erm_cvx.release.ranges import ColumnRange, check_ranges, state_ranges
from dp2erm_cvx.release.reading import check_guarantee, check_spent, read_published
from dp2erm_cvx.release.record import SCHEMA_VERSION, BaseRelease, Guarantee, StepStatement
from dp2erm_cvx.release.statement import state_steps
from dp2erm_cvx.release.treated import overlap_interval, treated_interval
from dp2erm_cvx.steps import GroupScore, Planned, Rows, score_of

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: What an interval may be for: the effect, or what the score averages to at the released nuisances.
TARGETS = ("effect", "score")
#: What is declared of the population, and all public guesses among the settings of a release.
ASSUMED = ("confounding", "collinearity", "heterogeneity")
_GUESSES = ("residual_scale", *ASSUMED, "effect_center")


@dataclass(frozen=True)
class Ratio:
    """A ratio that both released risks make, by its ``name``, with its interval."""

    __pydantic_config__: ClassVar = STRICT

    name: str
    estimate: float
    interval: EffectInterval


@dataclass(frozen=True)
class EffectRelease(BaseRelease):
    """What may be published about an average effect.

    ``target`` says what the ``interval`` is for. "effect": it allows for what noise and shrinkage of the
    released ``nuisances`` may leave of the confounding, under what the release states. "score": it covers
    the population mean of the score at these nuisances, whatever they are. ``capped`` is the share of
    propensities that the cap cuts off, as far as released and public numbers tell. ``released`` are the
    integers that noise was added to, ``standard_deviation`` bounds that of the score; ``risks`` (treated,
    untreated) and ``ratios`` are there where both risks were released.
    ``settings`` hold the public clips, shares and guesses, ``domain`` the declared universe.
    ``declared_center`` says whether the ``effect_center`` of the settings was declared, or else follows from
    the nuisances; None in files that do not state it. ``counted`` is the released number of records that
    count, with its noise; None where it is not released.

    Where an effect was estimated in every level of a column, ``groups`` hold them in the order of the levels,
    ``released`` three integers for each, and the ``estimate`` is of all their records together.

    Where ``ranges`` were released, settings, nuisances and domain are those of normalized records, and
    ``outcome_unit`` is what one unit of their outcome is.
    """

    __pydantic_config__: ClassVar = STRICT
    spelled: ClassVar[tuple[str, ...]] = ("private", "standing")

    estimand: str
    estimate: float
    interval: EffectInterval
    standard_deviation: float
    released: tuple[int, ...]
    risks: tuple[float, ...]
    ratios: tuple[Ratio, ...]
    columns: tuple[str, ...]
    n_samples: int
    guarantee: Guarantee
    steps: tuple[StepStatement, ...]
    nuisances: tuple[Nuisance, ...]
    settings: dict[str, Any]
    domain: dict[str, Any]
    ranges: tuple[ColumnRange, ...] = ()
    outcome_unit: float = 1.0
    capped: float = 0.0
    target: str = TARGETS[1]
    declared_center: bool | None = None
    counted: float | None = None
    groups: tuple[GroupEffect, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)

    @property
    def by(self) -> str | None:
        """The column in whose levels an effect was estimated, if any."""
        return Domain.from_dict(self.domain).codebook.group if self.groups else None  # type: ignore[union-attr]

    @property
    def normalized(self) -> bool:
        """Whether settings and nuisances are in units of a released range of the outcome."""
        return bool(self.ranges) and self.ranges[-1].released

    def blocks(self) -> Iterator[Block]:
        """What it says, from what was released and public numbers alone."""
        return effect_blocks(self)

    def rows(self) -> list[Mapping[str, Any]]:
        """The estimate with its interval; then one for every group, with its contrast to the first."""
        told = {"estimand": self.estimand, "estimate": self.estimate, **asdict(self.interval)}
        more = {"target": self.target, **self.cost()}
        if not self.groups:
            return [{**told, **more}]
        return [
            {"group": None, **told, **more},
            *({**told, **row, **more} for row in group_rows(self.groups)),
        ]

    @classmethod
    def from_json(cls, text: str | bytes) -> EffectRelease:
        """Read a release back. Raises DeclarationError, in one line, if it does not fit the schema."""
        return read_published(text, cls, _check)


def make_effect(
    plan: EffectPlan,
    released: Mapping[str, Array],
    names: tuple[str, ...],
    guarantee: Guarantee,
    level: float,
    target: str,
) -> EffectRelease:
    """State what a run of a plan ``released``, by step, with an interval at ``level``.

    ``names`` are those of the covariates, then of the outcome; ``target`` says what the interval is for,
    where what nuisances leave of the confounding is predicted: an effect by regressions.
    """
    study, score, columns = plan.study, plan.score, names[:-1]
    sums = tuple(int(number) for number in released[score.name])
    own = score_of(score).at(score.universe, released)
    center = own.center
    assert center is not None
    risks: tuple[float, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    predicted = target == TARGETS[0] and study.predicts_bias
    groups = group_means(plan, released, predicted=predicted) if isinstance(own, GroupScore) else []
    if groups:
        found = group_average(groups, level)
    else:
        found, risks, ratios = estimated(score, sums, center, level, own.widening)
        by_arm = target == TARGETS[0] and risks and study.settings.rows is Rows.ARMS
        if predicted:
            share = score.calibration.means(sums)[1]
            error = nuisance_error(plan, released, found.standard_deviation, share)
            found = estimated(score, sums, center + error.shift, level, own.widening, (error, error))[0]
        elif by_arm:
            errors = risk_errors(plan, released, (risks[0], risks[1]))
            found, risks, ratios = estimated(score, sums, center, level, own.widening, errors)
        predicted = predicted or bool(by_arm)
    ranges, unit = state_ranges(plan, released, names)
    nuisances, universe = tuple(state_nuisances(plan, released, columns)), study.universe
    capped = capped_share(
        study.estimand, own.cap, universe.domain.features_bound, nuisances, universe.n_samples
    )
    return EffectRelease(
        estimand=score_of(score).estimand,
        estimate=found.estimate * unit,
        interval=EffectInterval.of(found).times(unit),
        standard_deviation=found.standard_deviation * unit,
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
            "cells": state_cuts(plan, columns),
            "residual_scale": study.scale,
            **{name: getattr(study, name) for name in ASSUMED},
            "effect_center": center,
        },
        domain=universe.domain.to_dict(),
        ranges=ranges,
        outcome_unit=unit,
        capped=capped,
        declared_center=study.effect_center is not None,
        target=TARGETS[0 if predicted else 1],
        counted=counted_records(score, sums),
        groups=tuple(state_groups(groups, level, unit)),
    )


def estimated(
    step: Planned,
    sums: tuple[int, ...],
    center: float,
    level: float,
    widening: float = 1.0,
    errors: tuple[NuisanceError, NuisanceError] = (NO_ERROR, NO_ERROR),
) -> tuple[ScoreInterval, tuple[float, ...], tuple[Ratio, ...]]:
    """The estimate with its interval, and what else follows from the same sums.

    ``errors`` are those of both risks, the treated first, or twice that of an effect.
    """
    noise = step.calibration
    if noise.law is SumLaw.TREATED:
        return treated_interval(noise, sums, center, level, widening, errors[0]), (), ()
    if noise.law.counts:
        found = overlap_interval(noise, sums, center, level, widening, errors[0])
        # that of a whole score, of which a part was summed
        return replace(found, standard_deviation=found.standard_deviation / score_of(step).part), (), ()
    if noise.law is SumLaw.ARMS:
        middle = step.universe.domain.outcome_center
        # shifts are those of the difference
        centers = middle + errors[0].shift, middle - errors[1].shift
        means = ArmRisks(noise, sums, centers, errors, widening)
        both = {"risk ratio": means.ratio(level), "odds ratio": means.odds_ratio(level)}
        ratios = tuple(
            Ratio(name, one.estimate, EffectInterval.of(one)) for name, one in both.items() if one is not None
        )
        return means.difference(level), means.risks, ratios
    assert noise.law is SumLaw.SCORE
    mean = score_interval(noise, sums, center, level, widening)
    return effect_interval(noise, mean, errors[0], widening), (), ()


def counted_records(step: Planned, sums: tuple[int, ...]) -> float | None:
    """How many records count, from the same sums; None where that is not among them."""
    whole = step.calibration.law.whole
    return step.universe.n_samples * counted_share(step, sums) if whole else None


def counted_share(step: Planned, sums: tuple[int, ...]) -> float:
    """What records count on average, from the sums of an average effect; 1 where all count alike."""
    if not step.calibration.law.counts:
        return 1.0
    share = float(sum(2.0 * step.calibration.means(sums[at : at + 3])[1] for at in range(0, len(sums), 3)))
    return min(max(share, 1.0 / step.universe.n_samples), 1.0)


def _check(release: EffectRelease) -> None:
    check_guarantee(release)
    check_spent(release)
    check_ranges(release)
    if release.estimand not in SCORES or len(release.risks) != 2 * (release.estimand == "risks"):
        raise DeclarationError("release JSON: estimand: is none, or does not agree with risks")
    if not 0.0 <= release.capped <= 1.0 + 1e-9:
        raise DeclarationError("release JSON: capped: is no share")
    if release.target not in TARGETS:
        raise DeclarationError(f"release JSON: target: must be one of {', '.join(TARGETS)}")
    ratios = [(ratio.estimate, ratio.interval) for ratio in release.ratios]
    for group in release.groups:
        ratios += [(group.estimate, one) for one in (group.interval, group.joint)]
        if (apart := group.contrast) is not None:
            ratios += [(apart.estimate, one) for one in (apart.interval, apart.joint)]
    for estimate, interval in ((release.estimate, release.interval), *ratios):
        low = -math.inf if interval.low is None else interval.low
        high = math.inf if interval.high is None else interval.high
        if not low <= estimate <= high or not 0.0 < interval.level < 1.0:
            raise DeclarationError("release JSON: interval: does not hold the estimate at a level")
    _check_steps(release)
    if release.n_samples < 2 or not release.columns:
        raise DeclarationError("release JSON: n_samples and columns: at least 2 records and 1 covariate")
    _check_settings(release)


def _check_settings(release: EffectRelease) -> None:
    unstated = sorted(set(_GUESSES) - release.settings.keys())
    if unstated:
        raise DeclarationError(f"release JSON: settings: no {unstated[0]}: the file is of another version")
    numbers = {name: value for name, value in release.settings.items() if name not in _GUESSES}
    try:
        Domain.from_dict(release.domain)
        EffectSettings(**numbers)
        judged = {"rows", "arms", "propensity", "cells"}
        absent = {name for name, value in numbers.items() if value is None}
        for name in release.settings.keys() - judged - absent | set(_GUESSES):
            if isinstance(release.settings[name], str):
                raise TypeError(f"{name} is text")
            public_number(name, release.settings[name])
    except (Dp2ermError, TypeError, KeyError, AttributeError) as error:
        raise DeclarationError(f"release JSON: domain or settings: {error}") from None


def _check_steps(release: EffectRelease) -> None:
    """Refuse numbers that no step has paid for."""
    names = [step.step for step in release.steps]
    if names[-1:] != ["score"] or len(set(names)) < len(names):
        raise DeclarationError(
            "release JSON: steps: the last of them releases the score, and none stands twice"
        )
    cells = [part.step for part in release.nuisances if part.step == "cells"]
    paid = [part.step for part in release.nuisances if part.step not in ("public center", "cells")]
    # one step of cells releases several things
    if cells[:1] + paid != [name for name in names[:-1] if name != "ranges"]:
        raise DeclarationError("release JSON: nuisances: one for every step before the score")
    named = [part for part in release.nuisances if part.step != "cells" or part.parameters]
    if any(len(part.parameters) != len(part.coefficient) for part in named):
        raise DeclarationError("release JSON: nuisances: a name for every coefficient")
    domain = Domain.from_dict(release.domain)
    sums = len(SCORES[release.estimand].law_in(domain).degrees) * max(len(domain.groups), 1)
    if tuple(one.group for one in release.groups) != domain.groups:
        raise DeclarationError("release JSON: groups: not the declared ones")
    if len(release.released) != sums or bool(release.ratios) > bool(release.risks):
        raise DeclarationError("release JSON: released: not what this estimand releases")
