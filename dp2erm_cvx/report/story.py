"""Story of a release for its readers, once: screen, notebook and page show the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.display import digits_of, grid, heading, pairs
from dp2erm_cvx.hooks import register
from dp2erm_cvx.plan.predict import NoiseRange
from dp2erm_cvx.release.caveats import has_step, known_propensity
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.ranges import RangesRelease
from dp2erm_cvx.release.record import BaseRelease
from dp2erm_cvx.release.rule import RuleRelease
from dp2erm_cvx.release.two_stage import Release
from dp2erm_cvx.release.units import coefficients, decisions, share_treated
from dp2erm_cvx.report.caveats import NO_SAMPLING, sensitivity, sentences, withdrawn
from dp2erm_cvx.report.words import (
    ESTIMANDS,
    adjusted,
    calibrated,
    clips,
    compared,
    guaranteed,
    interval_text,
    population,
    sampled,
    signed,
    spent_by_step,
    taken_over,
    unit_of,
    units_of,
)

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: What records count by in a rule, e being their probability of treatment.
_WEIGHTS = {"matching": "min(e, 1 - e)", "overlap": "e (1 - e)"}
#: How to read the table of groups.
_OF_GROUPS = (
    "Counts and treated shares of groups include noise. Intervals are for the group alone, for all "
    "groups together (Bonferroni), and for its effect less that of the first. The estimate is of "
    "all groups."
)


@dataclass(frozen=True)
class Span:
    """An interval to draw: ``low`` and ``high`` are None where it is unbounded, ``at`` is its
    estimate.

    ``wide`` is for the interval itself, the others are parts of it.
    """

    name: str
    at: float
    low: float | None
    high: float | None
    wide: bool = True


@dataclass(frozen=True)
class Story:
    """Everything that is said of one release, in the order of the screen.

    ``headline`` is the result in one line, ``others`` names further results of the same kind,
    ``precision`` says how sure it is, and ``doubt`` what would make it wrong. ``parts`` say of
    noise, sampling and bias how far they are counted; ``details`` are sentences and tables about
    the result. ``rows`` are those of the data frame where the result has coefficients, ``use`` how
    they are used, ``scaled`` whether they are of scaled covariates. ``alerts`` and ``caveats`` are
    of the table of caveats, of which a page folds those ``noted``; ``robust`` says how wrong they
    may be. ``declared`` was fixed before the data were read, beside what every release declares;
    ``spent`` is the cost of every step. ``spans`` are drawn.
    """

    title: str
    headline: str
    precision: str
    doubt: str
    parts: tuple[tuple[str, str], ...]
    details: tuple[Block, ...]
    population: tuple[str, ...]
    alerts: tuple[str, ...]
    caveats: tuple[str, ...]
    noted: tuple[str, ...]
    spent: tuple[Block, ...]
    guarantee: tuple[tuple[str, str], ...]
    others: str = ""
    use: tuple[Block, ...] = ()
    robust: tuple[str, ...] = ()
    declared: tuple[Block, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    scaled: bool = True
    spans: tuple[Span, ...] = ()
    caption: str = ""


def story_of(release: BaseRelease) -> Story:
    """Story of a release of any kind, from released and public numbers alone."""
    return _STORIES[type(release)](release)


#: Warnings on the first screen; the others are among the details.
_WARNINGS = 4


def screen(release: BaseRelease) -> Iterator[Block]:
    """The story for a screen or a notebook.

    At the start there are the result, whom it is about, what would make it wrong, and what was
    spent: at most 15 lines. All else are details.
    """
    story = story_of(release)
    standing = release.guarantee.standing.upper()
    yield heading(story.title if release.private else f"{story.title}: {standing}")
    yield story.headline
    if story.others:
        yield story.others
    yield from (story.precision, story.population[0], story.doubt)
    (_, spent), *guarantee = story.guarantee
    yield f"Guarantee: {spent}"
    shown = [_first_sentence(one) for one in story.alerts[:_WARNINGS]]
    yield from (heading(f"Warning: {one}") for one in shown)
    if len(story.alerts) > _WARNINGS:
        yield heading(f"{len(story.alerts) - _WARNINGS} more warnings are among the details.")
    yield ""
    yield heading("Details")
    if longer := [one for one in story.alerts if one not in shown]:
        yield heading("\n".join(longer), frame=True)
    if story.rows:
        yield coefficients(story.rows)
    for part in (
        (*story.use, *story.details),
        story.population[1:],
        story.declared,
        (*story.caveats, *story.robust),
        story.spent,
    ):
        yield from part
        if part:
            yield ""
    yield pairs(guarantee)
    if not release.private:
        yield heading(f"{standing}: do not publish this release")


def _first_sentence(text: str) -> str:
    """The first of some sentences."""
    first, dot, _ = text.partition(". ")
    return f"{first}." if dot else first


def _story(release: BaseRelease, people: str, **own: Any) -> Story:
    """A story with what every release says: of ``people``."""
    names, interval = release.columns, isinstance(release, EffectRelease)
    return Story(
        population=(
            f"It is about {population(release)}{people}.{_taken(release)}",
            f"Adjusted for {len(names)} covariate{'s' if len(names) > 1 else ''}: "
            f"{', '.join(names)}.",
            *sampled(release, interval=interval),
        ),
        alerts=tuple(sentences(release, "warns")),
        caveats=tuple(sentences(release, "notes", "assumes", "excludes")),
        noted=tuple(sentences(release, "notes")),
        robust=(
            *sentences(release, "details"),
            *(sensitivity(release) if isinstance(release, EffectRelease) else ()),
        ),
        guarantee=tuple(guaranteed(release)),
        **{"doubt": _doubt(release), **own},
    )


def _doubt(release: Any) -> str:
    """Sentence on what would make an effect or a rule wrong, whatever is counted."""
    treatment, outcome = compared(release)
    missing = f"anything beside {adjusted(release)} moves both {treatment} and {outcome}"
    if release.goal == "effect" and known_propensity(release):
        public = release.settings["propensity"]
        shares = [public] if isinstance(public, float) else list(public)
        numbers = ", ".join(f"{one:g}" for one in shares)
        word = "probability" if len(shares) == 1 else "probabilities"
        missing = f"{treatment} was not assigned with the public {word} {numbers}"
    what = "Its decisions are" if release.goal == "rule" else "It is"
    if release.goal == "weighted":
        missing = f"the weights leave the arms apart, if {missing}"
    return f"{what} wrong if {missing}, or if many records lie beyond what was declared."


def _taken(release: BaseRelease) -> str:
    """Sentence on who is protected where records are."""
    return " One record is taken to be one person." * (units_of(release) == "records")


def _subject(release: BaseRelease, among: str = "") -> str:
    treatment, outcome = compared(release)
    return f"Effect of {treatment} on {outcome}{among}"


def _net(release: BaseRelease) -> str:
    cost = release.domain.get("treatment_cost")
    return f", net of the treatment cost of {cost:g}" if cost else ""


def _fixed(release: EffectRelease) -> str:
    """Sentences on what the bounds follow from that records are clipped to."""
    text = "Fixed before the data were read."
    if release.public.released is not None:
        text = "Fixed by released ranges."
    if has_step(release, "scale"):
        deviation = float(release.settings["residual_scale"])
        text += (
            " Residuals and estimates follow the scale of the outcome, which was released first: "
            f"{deviation:.3g}, its standard deviation or somewhat more."
        )
    text += " What lies beyond is clipped: much of that moves the estimate."
    if has_step(release, "rate"):
        text += (
            " For arms alike in number: those of estimates and propensities follow the released "
            "rate."
        )
    return text


def _effect(release: EffectRelease) -> Story:
    title, people, among = ESTIMANDS[release.estimand]
    interval = release.interval
    half = interval.half_width
    if release.estimand != "risks" and release.is_risk:
        among += ESTIMANDS["risks"][2]
    unit = f" {unit_of(release)}".rstrip()
    unit = f", in{unit}" if unit and half is None else unit
    level, reason = f"{100 * interval.level:g} %", withdrawn(release)
    parts = [
        ("privacy noise", interval.noise_half_width),
        ("sampling", interval.sampling_half_width),
    ]
    named = "interval of what is counted" if reason else f"{level} interval"
    spans = [Span(named, release.estimate, interval.low, interval.high)]
    if not release.groups and release.arms is None:
        at = release.estimate
        spans += [
            Span(f"{name} alone", at, at - half, at + half, wide=False)
            for name, half in parts
            if half
        ]
    if release.arms is not None:  # the forest of all contrasts
        spans = [
            Span(
                f"{one.level} less {one.against}", one.estimate, one.interval.low, one.interval.high
            )
            for one in release.arms.contrasts
        ]
    for group in release.groups:
        if None not in (group.interval.low, group.interval.high):
            name = f"{release.by}: {group.group or 'missing'}"
            spans.append(Span(name, group.estimate, group.interval.low, group.interval.high))
    bias = "NOT counted"
    if release.target != "score":
        bias = f"counted: at most {_allowed(release)}"
    fixed = _fixed(release)
    subject, about, caption = (
        _subject(release, among),
        "",
        " The thin bars are what noise or sampling alone would leave: they do not add up.",
    )
    if reason:
        caption = f" No confidence interval: {reason}."
    if release.arms is not None:
        first = release.arms.contrasts[0]
        about = f" of {first.level} less {first.against}"
        subject = f"{subject}, {first.level} less {first.against}"
        people, title = "all arms alike", "Private effects of several arms"
        if not reason:
            caption = f" Intervals at {level}, each by itself."
    sure = f" ({level} CI {interval_text(interval)})"
    if reason:
        sure = f", no confidence interval: {reason}"
    return _story(
        release,
        f", {people}",
        title=f"{title} by {release.by}" if release.by else title,
        headline=(f"{subject}: {signed(release.estimate, half)}{unit}{_net(release)}{sure}"),
        others=_other_contrasts(release),
        precision=_precision(release, about, reason),
        parts=(
            *(
                (name, "counted" if width is None else f"counted: alone, ±{_unsigned(width, half)}")
                for name, width in parts
            ),
            ("bias: confounding that noise and shrinkage leave of the adjustment", bias),
            ("bias: confounders that are missing, wrong models, clipped records", "NOT counted"),
        ),
        use=(_OF_GROUPS,) if release.groups else (),
        details=(*_risks(release), *_arms(release), *_groups(release)),
        spent=(spent_by_step(release), *taken_over(release)),
        declared=(clips(release), fixed),
        spans=tuple(spans),
        caption=(
            f"In {unit_of(release) or 'risk'}.{'' if release.groups and not reason else caption}"
        ),
    )


#: Contrasts of several arms that stand below the first one, before the details.
_OTHERS = 2


def _other_contrasts(release: EffectRelease) -> str:
    """The next contrasts of more than two arms, and where the rest of them is."""
    if release.arms is None or len(release.arms.contrasts) == 1:
        return ""
    others = release.arms.contrasts[1:]
    named = [
        f"{one.level} less {one.against} {signed(one.estimate, one.interval.half_width)} "
        f"({interval_text(one.interval)})"
        for one in others[:_OTHERS]
    ]
    rest = f", and {len(others) - _OTHERS} more among the details" if len(others) > _OTHERS else ""
    return f"Also {'; '.join(named)}{rest}."


def _precision(release: EffectRelease, about: str, reason: str) -> str:
    """Sentences on what the interval ``about`` an effect counts, and the ``reason`` that it is not
    one.
    """
    interval = release.interval
    half, noise, sampling = (
        interval.half_width,
        interval.noise_half_width,
        interval.sampling_half_width,
    )
    if not release.overlaps:
        return (
            "No interval is stated: what regressions leave of the confounding has no bound of "
            "first order."
        )
    if half is None or noise is None or sampling is None:
        return (
            "An end is unbounded: the size of that population, as it was released, is within its "
            "noise."
        )
    text = (
        f"The half width{about}, ±{_unsigned(half, half)}, is not the sum of its parts: privacy "
        f"noise alone would leave ±{_unsigned(noise, half)}, sampling alone "
        f"±{_unsigned(sampling, half)}."
    )
    if reason:
        text = f"The interval {interval_text(interval)} does not count that. {text}"
    if not interval.bias:
        return text
    return f"{text} It allows for a bias of at most {_allowed(release)}."


def _allowed(release: EffectRelease) -> str:
    """The bias that an interval allows for, and the model under which that is enough."""
    bias = digits_of(release.interval.bias or 0.0, 2)
    if not release.interval.bias:
        return bias
    names = adjusted(release)
    if release.risks or release.domain.get("binary_outcome"):
        return f"{bias}, if the probability of the outcome is nearly linear in {names}"
    if release.estimand == "att":
        return f"{bias}, if the outcome of the untreated is linear in {names}"
    if release.settings["propensity"] == "logistic" and release.estimand == "overlap":
        return f"{bias}, if the log odds of treatment, or the outcome, are linear in {names}"
    return f"{bias}, if the outcome is linear in {names}"


def _risks(release: EffectRelease) -> Iterator[str]:
    """Both risks and their ratios, where they were released."""
    if not release.risks:
        return
    known = release.interval.half_width is not None
    treated, untreated = (f"{risk:.3g}" if known else "unknown" for risk in release.risks)
    yield f"risks: {treated} treated, {untreated} untreated"
    if len(release.ratios) < 2:
        which = "odds ratio" if release.ratios else "ratio"
        yield f"No {which}: what it would divide by is within its own error of 0 at this level."
    for ratio in release.ratios:
        ends = " to ".join(
            "unbounded" if end is None else f"{end:.3g}"
            for end in (ratio.interval.low, ratio.interval.high)
        )
        yield (
            f"{ratio.name}: {ratio.estimate:.3g} ({100 * ratio.interval.level:g} % interval {ends})"
        )


def _arms(release: EffectRelease) -> Iterator[Block]:
    """The mean outcomes of more than two arms, and their contrasts."""
    if release.arms is None:
        return
    level, shares = f"{100 * release.interval.level:g} % interval", "share, with noise"
    if not isinstance(release.settings["propensity"], str):
        shares = "public share"
    table = grid("arm", shares, "risk" if release.is_risk else "mean outcome", level)
    for one in release.arms.means:
        mean = signed(one.estimate, one.interval.half_width).lstrip("+")
        table.add_row(one.level, f"{100.0 * one.share:.0f} %", mean, interval_text(one.interval))
    yield table
    table = grid("arm", "less", "effect", level, "all together", left=2)
    for each in release.arms.contrasts:
        effect = signed(each.estimate, each.interval.half_width)
        ends = interval_text(each.interval), interval_text(each.joint)
        table.add_row(each.level, each.against, effect, *ends)
    yield table


def _groups(release: EffectRelease) -> Iterator[Block]:
    """The effects in groups, if any, and their contrasts to the first."""
    if not release.groups:
        return
    first = f"less {release.groups[0].group or 'missing'}"
    table = grid(
        str(release.by), units_of(release), "treated", "effect", "interval", "all together", first
    )
    for group in release.groups:
        effect, apart = signed(group.estimate, group.interval.half_width), group.contrast
        treated = "public" if group.treated is None else f"{100.0 * group.treated:.0f} %"
        less = "" if apart is None else interval_text(apart.interval)
        ends = [interval_text(interval) for interval in (group.interval, group.joint)]
        if not release.overlaps:
            ends = ["none", "none"]
            less = "" if apart is None else "none"
        table.add_row(
            group.group or "missing",
            f"{max(group.counted, 0.0):,.0f}",
            treated,
            effect,
            *ends,
            less,
        )
    yield table


def _rule(release: RuleRelease) -> Story:
    domain, settings = release.public, release.settings
    scaled = (
        "mapped to [-1, 1] by their public ranges" if domain.ranges is not None else "as they are"
    )
    if release.covariate_mean:
        scaled += ", less their released mean"
    least, most = min(release.covariate_scale), max(release.covariate_scale)
    if most != 1.0:
        scaled += f", each multiplied by its covariate_scale ({least:.4g} to {most:.4g})"
    guessed = f"an outcome of standard deviation {float(settings['outcome_scale']):.4g}"
    if float(settings["mass"]) < 1.0:
        guessed += f" and weights that add up to {float(settings['mass']):g} n"
    use: list[Block] = [
        "Treat where intercept + <theta, x> > 0, the estimated effect of treatment in units of the "
        f"outcome{_net(release)}. Covariates x are {scaled}, and shrunk to a norm of at most "
        f"{release.covariate_norm:.4g}."
    ]
    earlier = "" if len(release.steps) == 1 else ", and leaves out that of what was released before"
    at = "at their released mean" if release.covariate_mean else "in the middle of their ranges"
    use.append(
        "The ± of a coefficient is the noise of the rule itself, predicted from public guesses: "
        f"of slopes mostly too wide{earlier}; the intercept is the effect where covariates are "
        f"{at}."
    )
    if release.own_units is not None:
        use.append(release.own_units.in_words())
    if (strata := decisions(release)) is not None:
        about = (
            "Whom it treats, of people spread evenly over the declared ranges and levels; no data "
            "were read:"
        )
        use += [about, grid(*strata[0], rows=strata[1])]
    details: list[Block] = []
    gains, share = "", share_treated(release)
    if release.gains:
        ends = [(one, one.interval.low, one.interval.high) for one in release.gains]
        rows = [
            (one.over, f"{one.estimate:+.3g}", f"{low:+.3g} to {high:+.3g}")
            for one, low, high in ends
        ]
        unit, reason = unit_of(release), withdrawn(release)
        itself = ""
        if share == 1.0:
            itself = "treating everybody"
        elif share == 0.0:
            itself = "treating nobody"
        told = [
            row for row in rows if row[0] != itself
        ]  # over what it does itself it gains nothing
        if reason:
            texts = [f"{gain} {unit} over {over}" for over, gain, _ in told]
        else:
            texts = [
                f"{gain} {unit} over {over} (95 % CI {interval})" for over, gain, interval in told
            ]
        gains = f"; the rule gains {' and '.join(texts)}"
        if reason:
            gains += f", no confidence interval: {reason}"
        details.append(grid("value of the rule over", "gain", "95 % interval", rows=rows))
    how = _WEIGHTS.get(str(settings["balance"]))
    alike = (
        settings["propensity"] is None or how is None or settings.get("response_bound") is not None
    )
    likely = f", each counted by {how}, e its probability of treatment: where either is likely"
    sampling = "counted in what the rule gains, NOT in the rule itself" if release.gains else None
    treatment, outcome = compared(release)
    cost = " less its cost" if domain.treatment_cost else ""
    return _story(
        release,
        ", each counted alike" if alike else likely,
        title="Private treatment rule",
        headline=f"{_whom(share, f'{treatment} on {outcome}{cost}')}{gains}",
        precision=(
            f"Noise moves the effect of one record by {release.noise_effect:.3g} (root mean "
            f"square) and flips {release.flipped_share:.0%} of the decisions, as predicted from "
            f"public guesses: {guessed}, at a public covariate spread. No bounds: they leave out "
            "sampling."
        ),
        parts=(
            ("privacy noise", "predicted, no bound"),
            ("sampling", sampling or "NOT counted for the rule itself"),
            ("bias: confounders that are missing, effects that are not linear", "NOT counted"),
        ),
        use=tuple(use),
        details=tuple(details),
        spent=(spent_by_step(release),),
        spans=tuple(
            Span(f"over {gain.over}", gain.estimate, gain.interval.low, gain.interval.high)
            for gain in release.gains
        ),
        caption=(
            f"Gain in the mean net outcome, in {unit_of(release)}; 95 % intervals for noise and "
            "sampling."
        ),
        rows=tuple(release.rows()),
    )


def _whom(share: float | None, effect: str) -> str:
    """Clause on whom a rule treats, this ``share`` of public people: where the ``effect`` is
    positive.
    """
    if share == 1.0:
        return (
            f"Treat everybody: the released effect of {effect} is positive all over the declared "
            "ranges"
        )
    if share == 0.0:
        return (
            f"Treat nobody: the released effect of {effect} is positive nowhere in the declared "
            "ranges"
        )
    return f"Treat where the released effect of {effect} is positive"


def _weighted(release: Release) -> Story:
    moved, (treatment, outcome) = release.moved, compared(release)
    spans, headline = [], f"Treat where the released effect of {treatment} on {outcome} is positive"
    common = moved is not None and moved.coefficients is not None
    value = release.effect
    if moved is not None and moved.effect is not None and value is not None:
        width = moved.effect
        spans = [Span("noise alone, 95 % of it", value, value - width, value + width)]
        headline = (
            f"{_subject(release)}: {signed(value, width)} {unit_of(release)}{_net(release)}, no "
            f"confidence interval: {NO_SAMPLING} (95 % of the noise: ±{width:.3g})"
        )
    elif moved is None or release.second_stage["name"] == "regression":
        headline = f"Released coefficients for {treatment} and {outcome}"
    first, second = (
        str(stage.get("name")) for stage in (release.first_stage, release.second_stage)
    )
    use = [f"Weights by {first}, then {second}."]
    if moved is not None and not common:
        regression = "it predicts the outcome less its public midpoint"
        how = regression if second == "regression" else "treat where x'theta > 0"
        use.append(f"theta is in units of the outcome per unit of the scaled covariates; {how}.")
    if release.own_units is not None:
        use.append(release.own_units.in_words())
    center = release.domain.get("outcome_center")
    if center and second == "arm_means":
        use.append(f"The arm means are relative to the public midpoint {center:g} of the outcome.")
    return _story(
        release,
        "",
        title="Private effect by weighting" if common else "Private two-stage estimate",
        headline=headline,
        precision="The noise is not predicted for this loss." if moved is None else _noise(moved),
        parts=(
            ("privacy noise", "not predicted" if moved is None else "counted, as predicted"),
            ("sampling", "NOT counted"),
            (
                "bias: confounders that are missing, weights that do not balance, shrinkage",
                "NOT counted",
            ),
        ),
        use=tuple(use),
        details=(),
        spent=(spent_by_step(release), calibrated(release)),
        spans=tuple(spans),
        caption=f"In {unit_of(release)}. No confidence interval: sampling is not counted.",
        rows=tuple(release.rows()),
        scaled=release.own_units is not None,
    )


def _noise(moved: NoiseRange) -> str:
    """Sentence on what the predicted range of the noise means."""
    common = moved.coefficients is not None
    assumed = (
        "half of the weight in each arm (an arm with a quarter of it has twice the noise)"
        if common
        else "ranges 6 standard deviations wide, with the mean one off the middle"
    )
    what, width = (
        ("the effect", moved.effect) if common else ("a coefficient", max(moved.half_width))
    )
    return (
        f"95 % of the noise in {what} is predicted to be within ±{width:.3g}, from public "
        f"quantities, for {assumed}: no bound, as the true curvature is private, and sampling is "
        f"not counted. gamma also pulls theta toward 0, by about {moved.shrinkage:.0%}."
    )


def _unsigned(number: float, half: float | None) -> str:
    return signed(number, number if half is None else half).lstrip("+")


def _ranges(release: RangesRelease) -> Story:
    rows = [
        (
            one.column,
            f"{one.low:.4g}",
            f"{one.high:.4g}",
            "public" if one.chosen is None else "released",
        )
        for one in release.ranges
    ]
    released = [one.column for one in release.ranges if one.chosen is not None]
    return Story(
        title="Private ranges",
        headline=f"Ranges of {', '.join(released)}, released before all that rests on them",
        precision=(
            "Two quantiles of each column by private choices, widened by a public rule: no bounds "
            "of the records. What lies beyond is clipped in the releases that rest on these ranges."
        ),
        doubt="The ends of a range are no bounds of the records: some may lie beyond them.",
        parts=(("what lies beyond a range", "clipped in what rests on it, and NOT counted there"),),
        details=(
            grid("range", "from", "to", "", rows=rows),
            f"SHA-256 of this release: {release.digest}",
        ),
        population=(
            f"It is about {population(release)}.{_taken(release)}",
            "Ranges alone are released here: no effect is estimated.",
        ),
        alerts=tuple(sentences(release, "warns")),
        caveats=(),
        noted=(),
        spent=(spent_by_step(release),),
        guarantee=tuple(guaranteed(release)),
        declared=(
            "Fixed before the data were read: which columns, their candidates and ranks, and the "
            "rule.",
        ),
    )


_STORIES: dict[type[BaseRelease], Callable[[Any], Story]] = {
    EffectRelease: _effect,
    RuleRelease: _rule,
    Release: _weighted,
    RangesRelease: _ranges,
}

register(BaseRelease, screen)
