"""The release of an average effect: an estimate, its interval, and what both rest on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from dp2erm_cvx.calibration import ArmNoise, OverlapNoise, ScoreNoise, TreatedNoise
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.plan import EffectPlan, EffectSettings, PlanResult
from dp2erm_cvx.plan.effect import SCORES
from dp2erm_cvx.plan.kept_confounding import kept_confounding
from dp2erm_cvx.public import public_number
from dp2erm_cvx.release.arms import ArmRisks
from dp2erm_cvx.release.effect_caveats import CAPPED, capped_share
from dp2erm_cvx.release.effect_text import effect_blocks
from dp2erm_cvx.release.interval import ScoreInterval, score_interval
from dp2erm_cvx.release.nuisances import Nuisance, state_cuts, state_nuisances
from dp2erm_cvx.release.ranges import ColumnRange, check_ranges, state_ranges
from dp2erm_cvx.release.ratio import RatioInterval
from dp2erm_cvx.release.reading import check_guarantee, check_spent, read_published
from dp2erm_cvx.release.record import SCHEMA_VERSION, BaseRelease, Guarantee, StepStatement
from dp2erm_cvx.release.statement import state_guarantee, state_steps
from dp2erm_cvx.release.treated import overlap_interval, treated_interval
from dp2erm_cvx.steps import Execution, MeanScorePlan, Term

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

_STRICT = {"extra": "forbid", "allow_inf_nan": False}

#: What may be said of the noise of the nuisances.
_NOISE = ("negligible", "not negligible")
#: The public guesses among the settings of a release.
_GUESSES = ("residual_scale", "effect_center")


@dataclass(frozen=True)
class EffectInterval:
    """``low`` to ``high`` at ``level``, None for an end that is infinite.

    The half widths are those that noise alone and sampling alone would leave, where they are known.
    """

    __pydantic_config__: ClassVar = _STRICT

    low: float | None
    high: float | None
    level: float
    noise_half_width: float | None = None
    sampling_half_width: float | None = None

    @classmethod
    def of(cls, found: ScoreInterval | RatioInterval) -> EffectInterval:
        """Of an interval that may have infinite ends."""
        widths = ("noise_half_width", "sampling_half_width")
        low, high = _finite(found.low), _finite(found.high)
        return cls(low, high, found.level, *(_finite(getattr(found, name, math.inf)) for name in widths))

    def times(self, unit: float) -> EffectInterval:
        """The same in other units of the outcome."""
        ends = (self.low, self.high, self.noise_half_width, self.sampling_half_width)
        low, high, *widths = (None if end is None else end * unit for end in ends)
        return EffectInterval(low, high, self.level, *widths)


@dataclass(frozen=True)
class Ratio:
    """A ratio that both released risks make, by its ``name``, with its interval."""

    __pydantic_config__: ClassVar = _STRICT

    name: str
    estimate: float
    interval: EffectInterval


@dataclass(frozen=True)
class EffectRelease(BaseRelease):
    """What may be published about an average effect.

    ``interval`` covers the population mean of the score at the released ``nuisances``. That this is the
    effect is an assumption on them: either regression right, and no unmeasured confounding.
    ``nuisance_noise`` says whether their noise is negligible against the interval, by the public
    ``nuisance_ratio`` and by ``capped``, the share of propensities that the cap cuts off, as far as released
    and public numbers tell. ``released`` are the integers that noise was added to, ``standard_deviation``
    bounds that of the score; ``risks`` (treated, untreated) and ``ratios`` are there where both risks were
    released.
    ``settings`` hold the public clips and shares, ``domain`` the declared universe. ``kept_confounding`` is
    the share of a bias that is predicted to stay, by
    :func:`~dp2erm_cvx.plan.kept_confounding.kept_confounding`; None where that is not known.

    Where ``ranges`` were released, settings, nuisances and domain are those of normalized records, and
    ``outcome_unit`` is what one unit of their outcome is.
    """

    __pydantic_config__: ClassVar = _STRICT
    spelled: ClassVar[tuple[str, ...]] = ("private", "standing")

    estimand: str
    estimate: float
    interval: EffectInterval
    nuisance_noise: str
    nuisance_ratio: float
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
    kept_confounding: float | None = None
    schema_version: int = field(default=SCHEMA_VERSION)

    @property
    def center(self) -> Term:
        """The outcome regression in force, public from now on: of the centered outcome in this domain.

        Raises DeclarationError where its parts have different rows, or are cells.
        """
        parts = [part for part in self.nuisances if part.step != "propensity"]
        rows = {part.regression for part in parts}
        if len(rows) != 1:
            raise DeclarationError("center: the released regressions have no common rows")
        total = (math.fsum(values) for values in zip(*(part.coefficient for part in parts), strict=True))
        return Term(rows.pop(), tuple(total))

    @property
    def negligible(self) -> bool:
        """Whether the noise of the nuisances is negligible against the interval."""
        return self.nuisance_noise == _NOISE[0]

    @property
    def normalized(self) -> bool:
        """Whether settings and nuisances are in units of a released range of the outcome."""
        return bool(self.ranges) and self.ranges[-1].released

    def blocks(self) -> Iterator[Block]:
        """What it says, from what was released and public numbers alone."""
        return effect_blocks(self)

    def rows(self) -> list[Mapping[str, Any]]:
        """The only one: the estimate and its interval."""
        told = {"estimand": self.estimand, "estimate": self.estimate, **asdict(self.interval)}
        return [{**told, "nuisance_noise": self.nuisance_noise, **self.cost()}]

    @classmethod
    def from_json(cls, text: str | bytes) -> EffectRelease:
        """Read a release back. Raises DeclarationError, in one line, if it does not fit the schema."""
        return read_published(text, cls, _check)


def make_effect(
    plan: EffectPlan, result: PlanResult, columns: tuple[str, ...], execution: Execution, level: float
) -> EffectRelease:
    """State what the run of a plan released, with an interval at ``level``."""
    study, score = plan.study, plan.score
    sums = tuple(int(number) for number in result.released[score.name])
    center = score.score.center_in(study.universe, result.released)
    found, risks, ratios = estimated(score, sums, center, level)
    ranges, unit = state_ranges(plan, result, columns)
    nuisances, universe = tuple(state_nuisances(plan, result, columns)), study.universe
    capped = capped_share(
        study.estimand, study.settings.cap, universe.domain.features_bound, nuisances, universe.n_samples
    )
    return EffectRelease(
        estimand=score.score.estimand,
        estimate=found.estimate * unit,
        interval=EffectInterval.of(found).times(unit),
        nuisance_noise=_NOISE[not (plan.negligible and capped <= CAPPED)],
        nuisance_ratio=plan.nuisance_ratio,
        standard_deviation=found.standard_deviation * unit,
        released=sums,
        risks=risks,
        ratios=ratios,
        columns=columns,
        n_samples=universe.n_samples,
        guarantee=state_guarantee(plan, result, execution),
        steps=state_steps(plan),
        nuisances=nuisances,
        settings={
            **asdict(study.settings),
            "cells": state_cuts(plan, columns),
            **dict(zip(_GUESSES, (study.scale, center), strict=True)),
        },
        domain=universe.domain.to_dict(),
        ranges=ranges,
        outcome_unit=unit,
        capped=capped,
        kept_confounding=kept_confounding(plan),
    )


def estimated(
    step: MeanScorePlan, sums: tuple[int, ...], center: float, level: float
) -> tuple[ScoreInterval, tuple[float, ...], tuple[Ratio, ...]]:
    """The estimate with its interval, and what else follows from the same sums."""
    noise = step.calibration
    if isinstance(noise, TreatedNoise):
        return treated_interval(noise, sums, center, level), (), ()
    if isinstance(noise, OverlapNoise):
        return overlap_interval(noise, sums, center, level), (), ()
    if isinstance(noise, ArmNoise):
        middle = step.universe.domain.outcome_center
        means = ArmRisks(noise, sums, (middle, middle))
        found = {"risk ratio": means.ratio(level), "odds ratio": means.odds_ratio(level)}
        ratios = tuple(Ratio(name, one.estimate, EffectInterval.of(one)) for name, one in found.items())
        return means.difference(level), means.risks, ratios
    assert isinstance(noise, ScoreNoise)
    return score_interval(noise, sums, center, level), (), ()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _check(release: EffectRelease) -> None:
    check_guarantee(release)
    check_spent(release)
    check_ranges(release)
    if release.estimand not in SCORES or len(release.risks) != 2 * (release.estimand == "risks"):
        raise DeclarationError("release JSON: estimand: is none, or does not agree with risks")
    if not 0.0 <= release.capped <= 1.0 + 1e-9:
        raise DeclarationError("release JSON: capped: is no share")
    if release.nuisance_noise not in _NOISE or (release.negligible and release.capped > CAPPED):
        raise DeclarationError("release JSON: nuisance_noise: is negligible, or not negligible")
    ratios = [(ratio.estimate, ratio.interval) for ratio in release.ratios]
    for estimate, interval in ((release.estimate, release.interval), *ratios):
        low = -math.inf if interval.low is None else interval.low
        high = math.inf if interval.high is None else interval.high
        if not low <= estimate <= high or not 0.0 < interval.level < 1.0:
            raise DeclarationError("release JSON: interval: does not hold the estimate at a level")
    _check_steps(release)
    if release.n_samples < 2 or not release.columns:
        raise DeclarationError("release JSON: n_samples and columns: at least 2 records and 1 covariate")
    numbers = {name: value for name, value in release.settings.items() if name not in _GUESSES}
    try:
        Domain.from_dict(release.domain)
        EffectSettings(**numbers)
        judged = {"rows", "propensity", "first_fit", "cells", "squared_radius"}
        for name in release.settings.keys() - judged | set(_GUESSES):
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
    sampled = Domain.from_dict(release.domain).sampling is not None
    law = OverlapNoise if sampled else SCORES[release.estimand].law
    sums = len(law.degrees)
    if len(release.released) != sums or bool(release.ratios) != bool(release.risks):
        raise DeclarationError("release JSON: released: not what this estimand releases")
