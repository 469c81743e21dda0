"""Story of a release for its readers, once: screen, notebook and page show the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.display import digits_of, grid, heading, pairs, plural
from dp2erm_cvx.hooks import register
from dp2erm_cvx.plan.predict import NoiseRange
from dp2erm_cvx.release.caveats import has_step, known_propensity
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.interval import EffectInterval
from dp2erm_cvx.release.ranges import RangesRelease
from dp2erm_cvx.release.record import BaseRelease
from dp2erm_cvx.release.rule import RuleGain, RuleRelease
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
    """An interval to draw.

    Parameters
    ----------
    name
        What stands beside it.
    at
        The estimate.
    low, high
        Its ends; None where it is unbounded.
    wide
        Whether it is drawn thick, with a dot at the estimate. Thin are parts of an interval, and in
        the picture of several effects intervals that are no confidence interval.
    """

    name: str
    at: float
    low: float | None
    high: float | None
    wide: bool = True


@dataclass(frozen=True)
class Story:
    """Everything that is said of one release, in the order of the screen.

    Parameters
    ----------
    title
        What kind of release it is.
    headline
        The result in one line.
    precision
        How sure the result is.
    doubt
        What would make the result wrong.
    parts
        For noise, sampling and bias: how far they are counted.
    details
        Sentences and tables about the result.
    population
        Whom it is about, what it is adjusted for, and how many records count.
    alerts
        Caveats that warn.
    caveats
        All other caveats, of which a page folds those ``noted``.
    noted
        Caveats that a page folds.
    spent
        What every step released, and what it cost.
    guarantee
        Lines on what is promised, and on what that rests.
    others
        Further results of the same kind, in one line.
    use
        How coefficients are used.
    robust
        How wrong the assumptions may be.
    declared
        What was fixed before the data were read, beside what every release declares.
    rows
        Rows of the data frame, where the result has coefficients.
    scaled
        Whether coefficients are of scaled covariates.
    spans
        Intervals to draw.
    caption
        What stands below the drawing.
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
    shown = [_first_sentence(one) for one in story.alerts[:_WARNINGS]]
    yield from _first_screen(release, story, shown)
    yield ""
    yield heading("Details")
    yield from _details(story, shown)
    yield pairs(story.guarantee[1:])
    if not release.private:
        yield heading(f"{standing}: do not publish this release")


def _first_screen(release: BaseRelease, story: Story, warnings: Sequence[str]) -> Iterator[Block]:
    """What a reader sees first: the result, its doubts, its guarantee and the warnings."""
    title = story.title
    if not release.private:
        title = f"{title}: {release.guarantee.standing.upper()}"
    yield heading(title)
    yield story.headline
    if story.others:
        yield story.others
    yield story.precision
    yield story.population[0]
    yield story.doubt
    _, promise = story.guarantee[0]
    yield f"Guarantee: {promise}"
    for warning in warnings:
        yield heading(f"Warning: {warning}")
    left = len(story.alerts) - _WARNINGS
    if left > 0:
        yield heading(f"{left} more warnings are among the details.")


def _details(story: Story, shown: Sequence[str]) -> Iterator[Block]:
    """What follows the first screen, on which these warnings were shown in full."""
    longer = [one for one in story.alerts if one not in shown]
    if longer:
        yield heading("\n".join(longer), frame=True)
    if story.rows:
        yield coefficients(story.rows)
    parts: tuple[tuple[Block, ...], ...] = (
        (*story.use, *story.details),
        story.population[1:],
        story.declared,
        (*story.caveats, *story.robust),
        story.spent,
    )
    for part in parts:
        yield from part
        if part:
            yield ""


def _first_sentence(text: str) -> str:
    """The first of some sentences."""
    first, dot, _ = text.partition(". ")
    if not dot:
        return first
    return f"{first}."


def _story(release: BaseRelease, counted: str, **own: Any) -> Story:
    """A story with what every release says.

    Parameters
    ----------
    release
        What it is about.
    counted
        Clause on how its people count.
    own
        Fields of the story that are of this release alone.
    """
    interval = isinstance(release, EffectRelease)
    robust = list(sentences(release, "details"))
    if isinstance(release, EffectRelease):
        robust += sensitivity(release)
    shared: dict[str, Any] = {
        "doubt": _doubt(release),
        "population": (
            f"It is about {population(release)}{counted}.{_taken(release)}",
            _adjusted_for(release.columns),
            *sampled(release, interval=interval),
        ),
        "alerts": tuple(sentences(release, "warns")),
        "caveats": tuple(sentences(release, "notes", "assumes", "excludes")),
        "noted": tuple(sentences(release, "notes")),
        "robust": tuple(robust),
        "guarantee": tuple(guaranteed(release)),
    }
    return Story(**(shared | own))


def _adjusted_for(columns: Sequence[str]) -> str:
    """Sentence that names all covariates."""
    noun = plural("covariate", len(columns))
    return f"Adjusted for {len(columns)} {noun}: {', '.join(columns)}."


def _doubt(release: Any) -> str:
    """Sentence on what would make an effect or a rule wrong, whatever is counted."""
    treatment, outcome = compared(release)
    missing = f"anything beside {adjusted(release)} moves both {treatment} and {outcome}"
    if release.goal == "effect" and known_propensity(release):
        missing = _assigned_otherwise(treatment, release.settings["propensity"])
    if release.goal == "weighted":
        missing = f"the weights leave the arms apart, if {missing}"
    subject = "It is"
    if release.goal == "rule":
        subject = "Its decisions are"
    return f"{subject} wrong if {missing}, or if many records lie beyond what was declared."


def _assigned_otherwise(treatment: str, public: float | Sequence[float]) -> str:
    """Clause that the treatment was not assigned as it is declared."""
    shares = list(public) if isinstance(public, Sequence) else [public]
    word = "probability" if len(shares) == 1 else "probabilities"
    numbers = ", ".join(f"{share:g}" for share in shares)
    return f"{treatment} was not assigned with the public {word} {numbers}"


def _taken(release: BaseRelease) -> str:
    """Sentence on who is protected where records are."""
    if units_of(release) == "records":
        return " One record is taken to be one person."
    return ""


def _subject(release: BaseRelease) -> str:
    """What the effect is of."""
    treatment, outcome = compared(release)
    return f"Effect of {treatment} on {outcome}"


def _net(release: BaseRelease) -> str:
    """Clause on the cost that was taken off; nothing where none is declared."""
    cost = release.domain.get("treatment_cost")
    if not cost:
        return ""
    return f", net of the treatment cost of {cost:g}"


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
    """Story of an average effect, of risks, or of the contrasts of several arms."""
    title, people, _ = ESTIMANDS[release.estimand]
    if release.arms is not None:
        title = "Private effects of several arms"
        people = "all arms alike"
    if release.by:
        title = f"{title} by {release.by}"
    withdrawn_because = withdrawn(release)
    use = (_OF_GROUPS,) if release.groups else ()
    return _story(
        release,
        f", {people}",
        title=title,
        headline=_effect_headline(release, withdrawn_because),
        others=_other_contrasts(release),
        precision=_precision(release, withdrawn_because),
        parts=tuple(_counted_of_effect(release)),
        use=use,
        details=(*_risks(release), *_arms(release), *_groups(release)),
        spent=(spent_by_step(release), *taken_over(release)),
        declared=(clips(release), _fixed(release)),
        spans=tuple(_effect_spans(release, withdrawn_because)),
        caption=f"In {unit_of(release) or 'risk'}.{_effect_caption(release, withdrawn_because)}",
    )


def _level(release: EffectRelease) -> str:
    """The level of the interval, in percent."""
    return f"{100 * release.interval.level:g} %"


def _effect_headline(release: EffectRelease, withdrawn_because: str) -> str:
    """The effect in one line, with its interval or the reason that there is none."""
    half = release.interval.half_width
    subject = f"{_subject(release)}{ESTIMANDS[release.estimand][2]}"
    if release.estimand != "risks" and release.is_risk:
        subject += ESTIMANDS["risks"][2]
    if release.arms is not None:
        first = release.arms.contrasts[0]
        subject += f", {first.level} less {first.against}"
    unit = f" {unit_of(release)}".rstrip()
    if unit and half is None:
        unit = f", in{unit}"
    interval = f" ({_level(release)} CI {interval_text(release.interval)})"
    if withdrawn_because:
        interval = f", no confidence interval: {withdrawn_because}"
    return f"{subject}: {signed(release.estimate, half)}{unit}{_net(release)}{interval}"


def _parts_of_half_width(release: EffectRelease) -> list[tuple[str, float | None]]:
    """What noise alone, and sampling alone, would leave of the half width."""
    return [
        ("privacy noise", release.interval.noise_half_width),
        ("sampling", release.interval.sampling_half_width),
    ]


def _counted_of_effect(release: EffectRelease) -> Iterator[tuple[str, str]]:
    """How far the interval of an effect counts noise, sampling and bias."""
    for name, width in _parts_of_half_width(release):
        counted = "counted"
        if width is not None:
            counted = f"counted: alone, ±{_unsigned(width, release.interval.half_width)}"
        yield name, counted
    bias = "NOT counted"
    if release.target != "score":
        bias = f"counted: at most {_allowed(release)}"
    yield "bias: confounding that noise and shrinkage leave of the adjustment", bias
    yield "bias: confounders that are missing, wrong models, clipped records", "NOT counted"


def _effect_spans(release: EffectRelease, withdrawn_because: str) -> Iterator[Span]:
    """The intervals that are drawn of an effect: of all contrasts, or of all groups."""
    if release.arms is not None:
        for contrast in release.arms.contrasts:
            name = f"{contrast.level} less {contrast.against}"
            interval = contrast.interval
            yield Span(name, contrast.estimate, interval.low, interval.high)
    else:
        name = f"{_level(release)} interval"
        if withdrawn_because:
            name = "interval of what is counted"
        yield Span(name, release.estimate, release.interval.low, release.interval.high)
        if not release.groups:
            yield from _spans_of_parts(release)
    for group in release.groups:
        low = group.interval.low
        high = group.interval.high
        if low is not None and high is not None:
            name = f"{release.by}: {group.group or 'missing'}"
            yield Span(name, group.estimate, low, high)


def _spans_of_parts(release: EffectRelease) -> Iterator[Span]:
    """Thin bars: what noise or sampling alone would leave of the interval."""
    estimate = release.estimate
    for name, width in _parts_of_half_width(release):
        if width:
            yield Span(f"{name} alone", estimate, estimate - width, estimate + width, wide=False)


def _effect_caption(release: EffectRelease, withdrawn_because: str) -> str:
    """What a drawing of an effect says below it, after the unit."""
    if withdrawn_because:
        return f" No confidence interval: {withdrawn_because}."
    if release.groups:
        return ""
    if release.arms is not None:
        return f" Intervals at {_level(release)}, each by itself."
    return " The thin bars are what noise or sampling alone would leave: they do not add up."


#: Contrasts of several arms that stand below the first one, before the details.
_OTHERS = 2


def _other_contrasts(release: EffectRelease) -> str:
    """The next contrasts of more than two arms, and where the rest of them is."""
    if release.arms is None or len(release.arms.contrasts) == 1:
        return ""
    others = release.arms.contrasts[1:]
    named = []
    for contrast in others[:_OTHERS]:
        effect = signed(contrast.estimate, contrast.interval.half_width)
        ends = interval_text(contrast.interval)
        named.append(f"{contrast.level} less {contrast.against} {effect} ({ends})")
    rest = ""
    if len(others) > _OTHERS:
        rest = f", and {len(others) - _OTHERS} more among the details"
    return f"Also {'; '.join(named)}{rest}."


def _precision(release: EffectRelease, withdrawn_because: str) -> str:
    """Sentences on what an interval counts, and the reason that it is no confidence interval.

    Of more than two arms they are on the interval of the first contrast.
    """
    interval = release.interval
    half = interval.half_width
    noise = interval.noise_half_width
    sampling = interval.sampling_half_width
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
    about = ""
    if release.arms is not None:
        first = release.arms.contrasts[0]
        about = f" of {first.level} less {first.against}"
    text = (
        f"The half width{about}, ±{_unsigned(half, half)}, is not the sum of its parts: privacy "
        f"noise alone would leave ±{_unsigned(noise, half)}, sampling alone "
        f"±{_unsigned(sampling, half)}."
    )
    if withdrawn_because:
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
    treated, untreated = (f"{risk:.3g}" for risk in release.risks)
    if release.interval.half_width is None:
        treated = "unknown"
        untreated = "unknown"
    yield f"risks: {treated} treated, {untreated} untreated"
    if len(release.ratios) < 2:
        which = "odds ratio" if release.ratios else "ratio"
        yield f"No {which}: what it would divide by is within its own error of 0 at this level."
    for ratio in release.ratios:
        ends = f"{_end(ratio.interval.low)} to {_end(ratio.interval.high)}"
        level = f"{100 * ratio.interval.level:g} %"
        yield f"{ratio.name}: {ratio.estimate:.3g} ({level} interval {ends})"


def _end(number: float | None) -> str:
    """An end of the interval of a ratio."""
    if number is None:
        return "unbounded"
    return f"{number:.3g}"


def _arms(release: EffectRelease) -> Iterator[Block]:
    """The mean outcomes of more than two arms, and their contrasts."""
    if release.arms is None:
        return
    level = f"{_level(release)} interval"
    shares = "share, with noise"
    if not isinstance(release.settings["propensity"], str):
        shares = "public share"
    measured = "risk" if release.is_risk else "mean outcome"
    table = grid("arm", shares, measured, level)
    for arm in release.arms.means:
        mean = signed(arm.estimate, arm.interval.half_width).lstrip("+")
        table.add_row(arm.level, f"{100.0 * arm.share:.0f} %", mean, interval_text(arm.interval))
    yield table
    table = grid("arm", "less", "effect", level, "all together", left=2)
    for contrast in release.arms.contrasts:
        effect = signed(contrast.estimate, contrast.interval.half_width)
        alone = interval_text(contrast.interval)
        together = interval_text(contrast.joint)
        table.add_row(contrast.level, contrast.against, effect, alone, together)
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
        treated = "public"
        if group.treated is not None:
            treated = f"{100.0 * group.treated:.0f} %"
        less = ""
        if group.contrast is not None:
            less = _stated(release, group.contrast.interval)
        table.add_row(
            group.group or "missing",
            f"{max(group.counted, 0.0):,.0f}",
            treated,
            signed(group.estimate, group.interval.half_width),
            _stated(release, group.interval),
            _stated(release, group.joint),
            less,
        )
    yield table


def _stated(release: EffectRelease, interval: EffectInterval) -> str:
    """An interval of a group; none where arms do not overlap."""
    if not release.overlaps:
        return "none"
    return interval_text(interval)


def _rule(release: RuleRelease) -> Story:
    """Story of a treatment rule, and of what it gains where that was released."""
    share = share_treated(release)
    sampling = "NOT counted for the rule itself"
    details: tuple[Block, ...] = ()
    if release.gains:
        sampling = "counted in what the rule gains, NOT in the rule itself"
        rows = [(gain.over, _gain(gain), _gain_ends(gain)) for gain in release.gains]
        details = (grid("value of the rule over", "gain", "95 % interval", rows=rows),)
    treatment, outcome = compared(release)
    effect = f"{treatment} on {outcome}"
    if release.public.treatment_cost:
        effect += " less its cost"
    return _story(
        release,
        _counted_in_rule(release),
        title="Private treatment rule",
        headline=f"{_whom(share, effect)}{_gains(release, share)}",
        precision=_precision_of_rule(release),
        parts=(
            ("privacy noise", "predicted, no bound"),
            ("sampling", sampling),
            ("bias: confounders that are missing, effects that are not linear", "NOT counted"),
        ),
        use=tuple(_use_of_rule(release)),
        details=details,
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


def _counted_in_rule(release: RuleRelease) -> str:
    """Clause on how the records of a rule count."""
    settings = release.settings
    weight = _WEIGHTS.get(str(settings["balance"]))
    bounded = settings.get("response_bound") is not None
    if settings["propensity"] is None or weight is None or bounded:
        return ", each counted alike"
    return f", each counted by {weight}, e its probability of treatment: where either is likely"


def _precision_of_rule(release: RuleRelease) -> str:
    """Sentences on what noise is predicted to do to a rule."""
    mass = float(release.settings["mass"])
    guessed = f"an outcome of standard deviation {float(release.settings['outcome_scale']):.4g}"
    if mass < 1.0:
        guessed += f" and weights that add up to {mass:g} n"
    return (
        f"Noise moves the effect of one record by {release.noise_effect:.3g} (root mean "
        f"square) and flips {release.flipped_share:.0%} of the decisions, as predicted from "
        f"public guesses: {guessed}, at a public covariate spread. No bounds: they leave out "
        "sampling."
    )


def _scaled_for_rule(release: RuleRelease) -> str:
    """How covariates are scaled before a rule multiplies them."""
    scaled = "as they are"
    if release.public.ranges is not None:
        scaled = "mapped to [-1, 1] by their public ranges"
    if release.covariate_mean:
        scaled += ", less their released mean"
    least = min(release.covariate_scale)
    most = max(release.covariate_scale)
    if most != 1.0:
        scaled += f", each multiplied by its covariate_scale ({least:.4g} to {most:.4g})"
    return scaled


def _use_of_rule(release: RuleRelease) -> Iterator[Block]:
    """How to decide by a rule, what its coefficients mean, and whom it treats."""
    yield (
        "Treat where intercept + <theta, x> > 0, the estimated effect of treatment in units of the "
        f"outcome{_net(release)}. Covariates x are {_scaled_for_rule(release)}, and shrunk to a "
        f"norm of at most {release.covariate_norm:.4g}."
    )
    earlier = ""
    if len(release.steps) > 1:
        earlier = ", and leaves out that of what was released before"
    middle = "in the middle of their ranges"
    if release.covariate_mean:
        middle = "at their released mean"
    yield (
        "The ± of a coefficient is the noise of the rule itself, predicted from public guesses: "
        f"of slopes mostly too wide{earlier}; the intercept is the effect where covariates are "
        f"{middle}."
    )
    if release.own_units is not None:
        yield release.own_units.in_words()
    strata = decisions(release)
    if strata is not None:
        headers, rows = strata
        yield (
            "Whom it treats, of people spread evenly over the declared ranges and levels; no data "
            "were read:"
        )
        yield grid(*headers, rows=rows)


def _gain(gain: RuleGain) -> str:
    """What a rule gains."""
    return f"{gain.estimate:+.3g}"


def _gain_ends(gain: RuleGain) -> str:
    """Both ends of the interval of what a rule gains."""
    return f"{gain.interval.low:+.3g} to {gain.interval.high:+.3g}"


def _gains(release: RuleRelease, share: float | None) -> str:
    """Clause on what a rule gains, which treats this ``share`` of public people.

    Over what it does itself a rule gains nothing: that is left out.
    """
    if not release.gains:
        return ""
    itself = ""
    if share == 1.0:
        itself = "treating everybody"
    elif share == 0.0:
        itself = "treating nobody"
    unit = unit_of(release)
    withdrawn_because = withdrawn(release)
    texts = []
    for gain in release.gains:
        if gain.over == itself:
            continue
        text = f"{_gain(gain)} {unit} over {gain.over}"
        if not withdrawn_because:
            text += f" (95 % CI {_gain_ends(gain)})"
        texts.append(text)
    clause = f"; the rule gains {' and '.join(texts)}"
    if withdrawn_because:
        clause += f", no confidence interval: {withdrawn_because}"
    return clause


def _whom(share: float | None, effect: str) -> str:
    """Clause on whom a rule treats: this ``share`` of public people."""
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
    """Story of a two-stage release: of an effect by weights, or of coefficients."""
    moved = release.moved
    title = "Private two-stage estimate"
    precision = "The noise is not predicted for this loss."
    noise = "not predicted"
    if moved is not None:
        precision = _noise(moved)
        noise = "counted, as predicted"
    if _is_mean(moved):
        title = "Private effect by weighting"
    return _story(
        release,
        "",
        title=title,
        headline=_weighted_headline(release),
        precision=precision,
        parts=(
            ("privacy noise", noise),
            ("sampling", "NOT counted"),
            (
                "bias: confounders that are missing, weights that do not balance, shrinkage",
                "NOT counted",
            ),
        ),
        use=tuple(_use_of_theta(release)),
        details=(),
        spent=(spent_by_step(release), calibrated(release)),
        spans=tuple(_noise_span(release)),
        caption=f"In {unit_of(release)}. No confidence interval: sampling is not counted.",
        rows=tuple(release.rows()),
        scaled=release.own_units is not None,
    )


def _is_mean(moved: NoiseRange | None) -> bool:
    """Whether theta holds means of arms, or their difference, and no slopes."""
    return moved is not None and moved.coefficients is not None


def _weighted_headline(release: Release) -> str:
    """The effect, the rule, or what the released coefficients are of."""
    treatment, outcome = compared(release)
    moved = release.moved
    value = release.effect
    if moved is not None and moved.effect is not None and value is not None:
        width = moved.effect
        return (
            f"{_subject(release)}: {signed(value, width)} {unit_of(release)}{_net(release)}, no "
            f"confidence interval: {NO_SAMPLING} (95 % of the noise: ±{width:.3g})"
        )
    if moved is None or release.second_stage["name"] == "regression":
        return f"Released coefficients for {treatment} and {outcome}"
    return f"Treat where the released effect of {treatment} on {outcome} is positive"


def _noise_span(release: Release) -> Iterator[Span]:
    """The noise of an effect by weights, to be drawn; nothing where there is no effect."""
    moved = release.moved
    value = release.effect
    if moved is not None and moved.effect is not None and value is not None:
        width = moved.effect
        yield Span("noise alone, 95 % of it", value, value - width, value + width)


def _use_of_theta(release: Release) -> Iterator[str]:
    """How theta was estimated, and how it is used."""
    first = str(release.first_stage.get("name"))
    second = str(release.second_stage.get("name"))
    yield f"Weights by {first}, then {second}."
    if release.moved is not None and not _is_mean(release.moved):
        use = "treat where x'theta > 0"
        if second == "regression":
            use = "it predicts the outcome less its public midpoint"
        yield f"theta is in units of the outcome per unit of the scaled covariates; {use}."
    if release.own_units is not None:
        yield release.own_units.in_words()
    center = release.domain.get("outcome_center")
    if center and second == "arm_means":
        yield f"The arm means are relative to the public midpoint {center:g} of the outcome."


def _noise(moved: NoiseRange) -> str:
    """Sentences on what the predicted range of the noise means."""
    assumed = "ranges 6 standard deviations wide, with the mean one off the middle"
    what = "a coefficient"
    width: float | None = max(moved.half_width)
    if moved.coefficients is not None:
        assumed = "half of the weight in each arm (an arm with a quarter of it has twice the noise)"
        what = "the effect"
        width = moved.effect
    return (
        f"95 % of the noise in {what} is predicted to be within ±{width:.3g}, from public "
        f"quantities, for {assumed}: no bound, as the true curvature is private, and sampling is "
        f"not counted. gamma also pulls theta toward 0, by about {moved.shrinkage:.0%}."
    )


def _unsigned(number: float, half: float | None) -> str:
    """A number without a sign, to two digits of the half width."""
    if half is None:
        half = number
    return signed(number, half).lstrip("+")


def _ranges(release: RangesRelease) -> Story:
    """Story of released ranges, on which other releases rest."""
    rows = []
    released = []
    for one in release.ranges:
        origin = "public"
        if one.chosen is not None:
            origin = "released"
            released.append(one.column)
        rows.append((one.column, f"{one.low:.4g}", f"{one.high:.4g}", origin))
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
