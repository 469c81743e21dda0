"""The page of a release, for readers who know causal inference and no differential privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.display import pairs
from dp2erm_cvx.plan.predict import HARDLY
from dp2erm_cvx.release import Release
from dp2erm_cvx.release.declared import declared_tables
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.effect_caveats import CAPPED, caveats, clips
from dp2erm_cvx.release.effect_text import ESTIMANDS, estimate_lines, group_blocks, outcome_unit_name, signed
from dp2erm_cvx.release.guarantee_text import confounding, guaranteed, sampled, spent_by_step, stood_for
from dp2erm_cvx.release.promise import promised
from dp2erm_cvx.release.ranges import range_blocks
from dp2erm_cvx.release.record import BaseRelease
from dp2erm_cvx.release.released_range import released_range
from dp2erm_cvx.release.rule_release import RuleRelease
from dp2erm_cvx.release.rule_text import (
    DECIDES,
    LITTLE,
    gain_blocks,
    reliability,
    rule_assumption,
    rule_population,
)
from dp2erm_cvx.release.sensitivity import sensitivity
from dp2erm_cvx.release.summary import balance_sentences, centered, noise_sentences, release_guarantee
from dp2erm_cvx.report.page import check_installed, rendered
from dp2erm_cvx.report.picture import Picture, Span, bars, picture

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: What has to be read before the result is used.
_DOMINATES = "The noise dominates: this release says little about the data."
_UNBALANCED = "The weights hardly balance: confounding stays in the estimate."
_CONFOUNDED = "The correction hardly works: expect confounding in what is released."
_OVERLAP = "Overlap may be poor: for many records one treatment is so unlikely that a cap cuts in."
_NORMALIZED = (
    "Bounds of the outcome, of residuals and of scores were declared in units of the released range."
)
#: What no release covers.
_NOT_COVERED = (
    "Not covered: unmeasured confounding, what clipping to the declared ranges removes, and models that are "
    "wrong.",
)
#: Rows of a table from which on it is folded.
_LONG = 16


@dataclass(frozen=True)
class Story:
    """What is told of one kind of release, in the order of the page.

    ``headline`` is the result in one line, ``counted`` says of noise, sampling and bias what the interval
    holds of them, ``told`` are sentences and tables about the result, ``population`` and ``assumed`` what it
    is of and what it rests on. ``widths`` are half widths of the noise of every coefficient, ``alerts`` what
    has to be read first; ``scaled`` coefficients are those of scaled covariates.
    """

    title: str
    headline: str
    counted: tuple[tuple[str, str], ...]
    told: tuple[Block, ...]
    population: tuple[Block, ...]
    assumed: tuple[Block, ...]
    cost: tuple[Block, ...]
    picture: Picture | None = None
    widths: tuple[float | None, ...] | None = None
    declared: tuple[Block, ...] = ()
    alerts: tuple[str, ...] = ()
    scaled: bool = True


def release_page(release: BaseRelease, *, source: str = "release.json") -> str:
    """One page of HTML about a release, from what it states alone: no other file, no script, no network.

    It tells the estimate, what its interval counts, the guarantee in words, what was declared, for whom the
    result holds and what it rests on. ``source`` is the name of the file, for who wants to check it. Where
    the programs of the release are not known here, the page says that nothing was computed again.
    Raises DeclarationError where jinja2 is missing.
    """
    check_installed(("jinja2",))
    story = _STORIES[type(release)](release)
    weak = tuple(f"A weak guarantee: {told}." for told in release.caveats or ())
    story = replace(story, alerts=(*weak, *story.alerts))
    guarantee = release.guarantee
    return rendered(
        "release.html.j2",
        title=story.title,
        story=story,
        private=release.private,
        standing=guarantee.standing.value.upper(),
        promised=list(promised(release)),
        parameters=_parameters(release, story.widths),
        declared=[*story.declared, *declared_tables(release)],
        long=_LONG,
        at_hand=release.at_hand,
        source=source,
    )


def _parameters(release: BaseRelease, widths: tuple[float | None, ...] | None) -> list[dict[str, Any]]:
    """A row for each coefficient of a rule: name, number, bar, and own units where it has them."""
    if widths is None or not isinstance(release, Release | RuleRelease):
        return []
    known = release.own_units
    numbers: list[Any] = [(None, "")] * len(release.theta)
    if known is not None:
        numbers = [*known.numbers()][-len(release.theta) :]
    drawn = zip(release.parameters, release.theta, widths, bars(release.theta, widths), numbers, strict=True)
    named = ("name", "value", "width", "bar", "own")
    rows = [dict(zip(named, one, strict=True)) for one in drawn]
    if known is not None and len(known.numbers()) > len(rows) and known.constant:
        rows.append(dict(zip(named, ("constant", None, None, None, (known.constant, "")), strict=True)))
    return rows


def _effect(release: EffectRelease) -> Story:
    title, people = ESTIMANDS[release.estimand]
    interval = release.interval
    low, high = interval.low, interval.high
    half = None if low is None or high is None else 0.5 * (high - low)
    estimate, *rest = estimate_lines(release)
    title = f"{title} by {release.by}" if release.by else title
    level = f"{100 * interval.level:g} % interval"
    parts = [("noise added for privacy", interval.noise_half_width)]
    parts.append(("sampling of the records", interval.sampling_half_width))
    spans = [Span(level, release.estimate, low, high)]
    named = [f"{release.by}: {one.group or 'missing'}" for one in release.groups]
    each = [(one.estimate, one.interval.low, one.interval.high) for one in release.groups]
    spans += [Span.around(f"{name} alone", release.estimate, width) for name, width in parts if width]
    spans += [Span(name, *ends) for name, ends in zip(named, each, strict=True) if None not in ends]
    counted = [
        (name, "counted" if width is None else f"counted: alone, ±{signed(width, half).lstrip('+')}")
        for name, width in parts
    ]
    alerts = {
        _OVERLAP: release.capped > CAPPED,
    }
    adjusted = "NOT counted" if release.target == "score" else f"counted: at most {interval.bias or 0.0:.2g}"
    counted += [
        ("bias: confounding that noise and ridge leave of the adjustment", adjusted),
        ("bias: confounders that are missing, wrong models, clipped records", "NOT counted"),
    ]
    return Story(
        title,
        f"{estimate[:1].upper()}{estimate[1:]}; {rest[0]}",
        tuple(counted),
        (*rest[1 if half is None else 2 :], *group_blocks(release), *range_blocks(release)),
        (
            f"Population: {stood_for(release)}, {people}.",
            _adjusted(release.columns),
            *sampled(release, interval=True),
        ),
        (*caveats(release), *sensitivity(release)),
        (spent_by_step(release), pairs(guaranteed(release))),
        picture(spans, f"In {outcome_unit_name(release)}. The bars below are parts of the interval."),
        declared=(clips(release), *([_NORMALIZED] if release.normalized else [])),
        alerts=tuple(line for line, said in alerts.items() if said),
    )


def _rule(release: RuleRelease) -> Story:
    spans = [
        Span(f"over {gain.over}", gain.estimate, gain.interval.low, gain.interval.high)
        for gain in release.gains
    ]
    counted = [
        ("noise in the rule", f"predicted: flips about {release.flipped_share:.0%} of its decisions"),
        ("sampling of the records", "NOT counted for the rule itself"),
        ("bias: confounders that are missing, effects that are not linear", "NOT counted"),
    ]
    if release.gains:
        counted[1] = (counted[1][0], "counted in what the rule gains, NOT in the rule itself")
    alerts = {_DOMINATES: release.flipped_share >= LITTLE, _CONFOUNDED: _hardly(release.kept_confounding)}
    unit = outcome_unit_name(release)
    caption = f"Gain in the mean net outcome, in {unit}; 95 % intervals for noise and sampling."
    gain = "".join(f"; it gains {one.estimate:+.3g} over {one.over}" for one in release.gains)
    return Story(
        "Private treatment rule",
        f"Treat where the released score is positive{gain}",
        tuple(counted),
        (*reliability(release), *gain_blocks(release)),
        (rule_population(release), _adjusted(release.columns), *sampled(release)),
        (rule_assumption(release), *confounding(release.kept_confounding, DECIDES), *_NOT_COVERED),
        (spent_by_step(release), pairs(guaranteed(release))),
        picture(spans, caption),
        widths=(None,) * len(release.theta),
        alerts=tuple(line for line, said in alerts.items() if said),
    )


def _stages(release: Release) -> Story:
    moved = released_range(release)
    spans, headline = [], "Treat where the released score is positive"
    common = moved is not None and moved.coefficients is not None
    if moved is not None and moved.coefficients is not None and moved.effect is not None:
        value, width = float(np.dot(moved.coefficients, release.theta)), moved.effect
        spans = [Span("noise alone, 95 % of it", value, value - width, value + width)]
        headline = f"Estimate: {signed(value, width)}; noise alone moves it by up to ±{width:.3g} (95 %)"
    elif moved is None or release.second_stage["name"] == "regression":
        headline = "Released coefficients"
    told: list[Block] = [*balance_sentences(release), *centered(release)]
    told += [] if moved is None else noise_sentences(moved)
    if release.value is not None:
        told += release.value.blocks()
    if release.own_units is not None:
        told.append(release.own_units.told())
    names = [str(stage.get("name")) for stage in (release.first_stage, release.second_stage)]
    alerts = {
        _DOMINATES: moved is not None and moved.dominates,
        _UNBALANCED: _hardly(release.kept_imbalance),
    }
    range_of_noise = "not predicted" if moved is None else "counted, as predicted from public quantities"
    return Story(
        "Private effect by weighting" if common else "Private two-stage estimate",
        headline,
        (
            ("noise added for privacy", range_of_noise),
            ("sampling of the records", "NOT counted"),
            ("bias: confounders that are missing, weights that do not balance, shrinkage", "NOT counted"),
        ),
        tuple(told),
        (f"Population: {stood_for(release)}.", _adjusted(release.columns), *sampled(release)),
        (
            f"Weights by {names[0]}, then {names[1]}. That this is what treatment does is an assumption: "
            "after weighting, the arms agree in all that moves the outcome.",
            *_NOT_COVERED,
        ),
        (release_guarantee(release),),
        picture(spans, f"In {outcome_unit_name(release)}. No interval: sampling is not in it."),
        widths=(None,) * len(release.theta) if moved is None else tuple(map(float, moved.half_width)),
        alerts=tuple(line for line, said in alerts.items() if said),
        scaled=release.own_units is not None,
    )


def _hardly(share: float | None) -> bool:
    """Whether most of a difference between the arms is predicted to stay."""
    return share is not None and share > HARDLY


def _adjusted(columns: tuple[str, ...]) -> str:
    return f"Adjusted for {len(columns)} covariate{'s' if len(columns) > 1 else ''}: {', '.join(columns)}."


_STORIES: dict[type[BaseRelease], Callable[[Any], Story]] = {
    EffectRelease: _effect,
    RuleRelease: _rule,
    Release: _stages,
}
