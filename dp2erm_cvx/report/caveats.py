"""Sentences on what a reader has to know beside the numbers, by their codes; and how far a result
holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.display import READ_DIGITS, digits_of
from dp2erm_cvx.inference.interval import e_value
from dp2erm_cvx.plan.predict import SHARE
from dp2erm_cvx.release.caveats import (
    APART,
    CAPPED,
    WEAK,
    Caveat,
    Level,
    caveats_of,
    cuts_residuals,
    farther_apart,
    farthest,
    has_step,
    known_propensity,
    may_be_missing,
    narrow_numbers,
    rare_levels,
)
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.report.words import (
    ESTIMANDS,
    EVENTS_FAR_APART,
    EVENTS_FOUND_APART,
    FAR_APART,
    gaps,
    named_few,
    remains,
    unit_of,
    units_of,
)


def _incomplete(release: Any) -> str:
    """Covariates that may be missing where records count, in words."""
    return named_few(may_be_missing(release), "or")


def _counted(unit: Any) -> str:
    """Sentence on what is estimated where a person counts at most as so many records."""
    once = (
        "Every person counts once, by the mean over the records that count: the estimate is of the "
        "mean"
    )
    if unit["count"] == 1:
        return f"{once} over persons of their mean effects."
    together = (
        f"Every record counts alike, but those of a person together at most as {unit['count']}"
    )
    return f"{together}: the estimate is of the mean effect over records so counted."


def _left(release: Any) -> str:
    """What the weights of a scheme are predicted to leave of a difference between the arms."""
    return (
        f"are predicted to leave at most {release.weighting.left:.0%} of a difference between the "
        "arms."
    )


def _slopes(release: Any) -> str:
    """Sentence on what slopes ask of covariates: in common where effects vary, of one arm with
    few.
    """
    own = release.settings["rows"] == "arms" and not release.risks and release.arms is None
    if release.settings["rows"] == "common":
        return (
            f"on covariates that vary alike in {'both' if release.arms is None else 'all'} arms, "
        )
    return "on values of covariates that are rare in neither arm, " * own


def weak(epsilon: float) -> str:
    """Sentence on an epsilon above ``WEAK``; nothing for a smaller one."""
    if epsilon <= WEAK:
        return ""
    return (
        f"The guarantee is weak: epsilon = {digits_of(epsilon, READ_DIGITS)}, above {WEAK:g}, "
        "hardly limits what is learned of a record."
    )


#: What clips of residuals leave unbiased.
_SYMMETRIC = ", up to residuals that are about as long on either side"


def _less(release: Any) -> str:
    """Advice on what leaves less of the confounding than a regression alone; none for the value of
    a rule.
    """
    if release.goal == "rule":
        return ""
    of = f" A {'multinomial' if release.arms else 'logistic'} propensity (settings)"
    return f"{of}{', for each group alone (where),' if release.groups else ''} leaves less of it."


def _linear(release: Any) -> str:
    """Sentence on the models that have to be right for an interval of the effect."""
    events = release.risks or release.domain.get("binary_outcome")
    if release.estimand == "att":
        return (
            f"outcomes of the untreated that are {'nearly ' if events else ''}linear in the "
            f"covariates{'' if events else _SYMMETRIC}"
        )
    if release.settings["propensity"] == "logistic" and release.estimand == "overlap":
        return "log odds of treatment that are linear in the covariates, or outcomes that are"
    if events:
        return "an outcome of two values, whose probabilities are nearly linear in the covariates"
    return f"outcomes that are linear in the covariates{_SYMMETRIC}"


#: How clips of residuals are made wide.
_CUTS_LESS = (
    "a residual_bound of up to two outcome bounds, with a larger score_bound (settings), cuts less"
)


def _skewed(release: Any) -> str:
    """Sentence on what clips of residuals ask of a trial, where they reach any."""
    if release.risks or not cuts_residuals(release):
        return ""
    text = " Its residuals are clipped: they are to be about as long on either side."
    if "residual_bound" in release.declared["declared"]:
        return text
    return f"{text} For counts, costs or durations {_CUTS_LESS}."


def _assumed(release: Any) -> str:
    """Sentence on the models that have to be right for a mean of scores to be the effect."""
    known = release.settings["propensity"]
    if not isinstance(known, str):
        who, numbers = "everybody was treated with the public probability", [known]
        if release.arms is not None:
            who, numbers = "the arms were assigned with the public probabilities", list(known)
        text = f"{who} {', '.join(f'{one:g}' for one in numbers)}, whatever the covariates."
        return f"{text} The outcome regression may be wrong.{_skewed(release)}"
    regression = "the outcome regression" + (
        " of the untreated" if release.estimand == "att" else ""
    )
    right = f"{regression} or the propensity is right"
    if known == "constant":
        right = f"{regression} is right, or treatment does not depend on the covariates"
    return f"{right}, and no confounder is unmeasured."


def _beyond(release: Any) -> str:
    """How many propensities lie beyond the cap, and of whom."""
    whom = "all records"
    if release.settings["propensity"] == "logistic":
        spread = "spread evenly over the public bounds"
        if has_step(release, "spread"):
            spread = "of the released spread"
        whom = f"covariates {spread}"
    return f"{100 * release.capped:.0f} % of {whom} have a released propensity beyond the cap"


def _cap(release: Any) -> str:
    """The cap that is in force, and from which share beyond it on a release says so."""
    own = f"{1 if release.estimand == 'risks' else 4} over the rarer arm's share"
    if release.estimand == "att":
        own = "2 over the share of the untreated"
    return (
        f"({float(release.settings['cap']):g}, or {own} where that is more; {100 * CAPPED:g} % is "
        "the limit)"
    )


def _overlap(release: Any) -> str:
    return (
        f"Overlap may be poor: {_beyond(release)} {_cap(release)}. Errors of the outcome "
        "regression count in full there. A cap larger than both widens the interval by what they "
        "add, where log odds are linear."
    )


def _no_overlap(release: Any) -> str:
    return (
        f"The arms hardly overlap: {_beyond(release)} {_cap(release)}. The effect is what the "
        f"outcome regression of one arm says of the other one there. From {100 * APART:g} % on its "
        "interval is no confidence interval."
    )


def _arms_apart(release: Any) -> str:
    """Sentence on arms so far apart that no interval is stated."""
    return (
        "The arms hardly overlap: the released means of the covariates lie about "
        f"{release.distance.estimate:.2g} standard deviations apart, at least "
        f"{release.distance.least:.2g}. The covariates nearly decide the treatment, and no "
        "interval is stated. Leave out a column that the treatment decides. Else the weights of a "
        "scheme (weights) may answer in a new release: dp2erm design compares them."
    )


def _widened(release: Any) -> str:
    """Sentence on arms that lie farther apart than is declared."""
    return (
        f"The released means of the covariates lie at least {release.distance.least:.2g} standard "
        f"deviations apart, more than the {float(release.settings['confounding']):g} that are "
        f"declared (confounding): the interval allows for the {release.distance.estimate:.2g} that "
        "were released."
    )


def _events_apart(release: Any) -> str:
    """Sentence on arms of an event that are declared, or found, far apart."""
    if farther_apart(release):
        return EVENTS_FOUND_APART.format(release.distance.least)
    return EVENTS_FAR_APART.format(release.settings["confounding"])


def _events_found(release: Any) -> str:
    """Why the interval of an event is none, in a clause."""
    if farther_apart(release):
        return (
            f"arms of an event lie at least {release.distance.least:.2g} standard deviations apart"
        )
    return (
        f"arms of an event are declared to lie {release.settings['confounding']:g} standard "
        "deviations apart"
    )


def _scale(release: Any) -> str:
    """Sentence on a scale of residuals, declared or released, that the released sums refute."""
    bound, unit = float(release.settings["residual_bound"]), unit_of(release)
    which = "declared residual scale"
    remedy = "larger residual_scale, or none"
    if has_step(release, "scale"):
        which = "scale of the outcome that was released first"
        remedy = "declared residual_scale"
    return (
        f"The {which} is too small: the released sums show that most residuals reach ±{bound:.3g} "
        f"{unit}, where they are clipped. The estimate may be far off. A new release needs a "
        f"{remedy}."
    )


def _narrow(release: Any) -> str:
    names = named_few(narrow_numbers(release))
    return (
        f"The range may be far too wide for {names}: what that confounds may stay in the "
        f"{release.goal}. A narrower range removes more of it, as does the logarithm of a skewed "
        "column."
    )


def _rare(release: Any) -> str:
    book = release.public.codebook or Codebook()
    named = [
        " ".join(str(one or "missing") for one in book.origin(name))
        for name in rare_levels(release)
    ]
    return (
        f"Almost no record, or almost every one, may have {named_few(named, 'or')}: what that "
        f"confounds may stay in the {release.goal}."
    )


def _sign(release: Any) -> str:
    """When a rule has the sign of the effect."""
    regressed = has_step(release, "center")
    known = release.settings["propensity"]
    if known == "logistic" and regressed:
        return "the released outcome regression, or the released propensity, is right."
    if known == "logistic":
        return "the released propensity is right."
    if known is not None:
        return "treatment was assigned with the public probability that is declared."
    if regressed:
        return (
            "the released regression of the outcome on covariates, without regard to treatment, is "
            "right. Even then a linear rule is drawn to where either treatment is likely."
        )
    return (
        "half of the records are treated whatever their covariates, or the outcome varies about "
        "its public midpoint by the effect alone."
    )


def _gains(release: Any) -> str:
    event, bounds = release.domain.get("binary_outcome"), release.settings
    text = " Residuals are clipped: they are to be about as long on either side." * cuts_residuals(
        release
    )
    if not known_propensity(release):
        return (
            f"The intervals are for the mean gain of all {units_of(release)}. They count sampling, "
            "noise, and what noise and shrinkage leave of the confounding: where "
            f"{'probabilities are nearly' if event else 'outcomes are'} linear in the covariates "
            "in either arm, these vary alike in both, and the arms on a side lie at most one "
            f"standard deviation apart.{text}"
        )
    few = (
        release.n_samples * release.guarantee.epsilon * bounds["value_share"] < 3000.0 and not event
    )
    return (  # clips cut much of so few (measured)
        f"The intervals are for the mean gain of all {units_of(release)} at the public probability "
        "of treatment, and count sampling and "
        f"noise{', but not what bounds cut of so few records' * few}.{text}"
    )


def _dominates(release: Any) -> str:
    """Sentence on a rule, or on coefficients by weights, that are noise above all."""
    if release.goal == "rule":
        return "The noise dominates: this release says little about the data."
    return (
        f"The noise dominates: it reaches beyond {SHARE:.0%} of the largest value that theta may "
        f"take ({release.moved.bound:.3g}); this release says little about the data."
    )


def _clipped_tail(release: Any) -> str:
    """Sentence on what is cut off residuals that are longer on one side."""
    text = (
        "Residuals of counts, costs or durations are mostly skewed: what is cut on one side is "
        "missing in "
    )
    if release.goal != "rule":
        return f"{text}the effect and not counted. {_CUTS_LESS.capitalize()}."
    text += "what the rule gains and not counted."
    if not known_propensity(release):
        return text
    return (
        f"{text} A residual_bound of two outcome bounds and a score_bound of four (settings) cut "
        "nothing."
    )


def _not_covered(release: Any) -> str:
    """Sentence on what no release covers."""
    silent = "gaps that the outcome decides, " if gaps(release) else ""
    wrong = "effects that are not linear" if release.goal == "rule" else "models that are wrong"
    return (
        f"Not covered: unmeasured confounding, {silent}{wrong}, and what clipping removes. Every "
        "other release from these data adds to epsilon."
    )


#: The sentence of every code, or what says it of a release.
SENTENCES: dict[str, str | Callable[[Any], str]] = {
    "weak-epsilon": lambda r: weak(r.whole_guarantee.epsilon),
    "weak-delta": lambda r: (
        f"The guarantee is weak: delta = {digits_of(r.guarantee.delta, READ_DIGITS)}, above 1/n = "
        f"{1 / r.n_samples:.2g}, would allow to publish a whole record."
    ),
    "noise-dominates": _dominates,
    "confounded": ("The correction hardly works: expect confounding in what is released."),
    "unbalanced": ("The weights hardly balance: confounding stays in the estimate."),
    "arms-apart": _arms_apart,
    "scale": _scale,
    "no-overlap": _no_overlap,
    "overlap": _overlap,
    "widened": _widened,
    "far-apart": lambda r: FAR_APART.format(r.settings["confounding"]),
    "events-far-apart": _events_apart,
    "narrow": _narrow,
    "rare-level": _rare,
    "skewed-residuals": lambda r: (
        "The released sums show skewed outcomes of the untreated, or bent ones: a bias of up to "
        f"{r.skewed:.2g} is not counted. A logistic propensity (settings) leaves hardly any."
    ),
    "skewed-means": lambda r: (
        "Counts, costs and durations are mostly skewed: what the outcome regression then leaves "
        f"of the confounding is not counted.{_less(r)}"
    ),
    "clipped-tail": _clipped_tail,
    "score": (
        "The interval is for the population mean of the estimate, at the regressions and the "
        "propensity released here. In large samples that holds whatever those are."
    ),
    "score-is-effect": lambda r: f"That this is the effect is an assumption: {_assumed(r)}",
    "trial": lambda r: (
        f"The interval is for the effect. {_assumed(r)[:1].upper()}{_assumed(r)[1:]}"
    ),
    "effect": lambda r: (
        f"The interval is for the effect{ESTIMANDS[r.estimand][2]}. It allows for sampling, for "
        f"privacy noise, and for a bias of up to {digits_of(r.interval.bias or 0.0, 2)}: what "
        "noise and shrinkage of the released regressions may leave of the confounding."
    ),
    "weights-population": (
        "That population follows the propensity that was released here, with its noise: "
        "another release describes another one, and none of them is that of the true "
        "propensity."
    ),
    "linear": lambda r: (
        f"To first order it rests on {_linear(r)}, {_slopes(r)}and on no unmeasured confounder."
    ),
    "scheme": lambda r: (
        f"Residuals are weighted by {r.weighting.program}. Its weights move by at most V = "
        f"{r.weighting.stability:.4g} when one record is replaced, and {_left(r)}"
    ),
    "scheme-models": lambda r: (
        f"Arms are taken to lie at most {r.settings['confounding']:g} standard deviations "
        "apart (confounding), and covariates to be near normal along their difference, as on "
        "the public records of that prediction."
    ),
    "scheme-complete": ("All records are taken to have a treatment and an outcome."),
    "means": (
        "Means of covariates are taken to lie within a quarter of a standard deviation of the "
        "middle of their ranges."
    ),
    "spreads": (
        "Standard deviations of covariates are taken to be a sixth of their ranges, within 1.5 "
        "times."
    ),
    "alike": (
        "Covariates are taken to spread over alike parts of their ranges: what one confounds "
        "whose range is several times too wide stays in the estimate."
    ),
    "confounding": lambda r: _distances(r),
    "heterogeneity": lambda r: (
        "Effects are taken to vary with covariates by a standard deviation of at most "
        f"{r.settings['heterogeneity']:.3g} of that of residuals (heterogeneity)."
    ),
    "declared": ("All of these are declared, or at their defaults."),
    "persons": lambda r: _counted(r.domain["codebook"]["unit"]),
    "independent-persons": ("The interval takes persons to be independent, not records."),
    "groups": (
        "All groups share the regression: its slopes are to hold in each, arms to lie no "
        "farther apart there, and mean outcomes of a group within half a standard deviation of "
        "residuals of what it predicts."
    ),
    "arms": lambda r: (
        "Intervals of single contrasts hold by themselves; those of all together hold at the "
        f"same time ({len(r.arms.contrasts)} contrasts, Bonferroni)."
    ),
    "arms-means": ("Mean outcomes of all arms are taken to lie within half of the outcome bound."),
    "arms-events": (
        "Regressions of an event are lines of which a fifth of the confounding is allowed for."
    ),
    "larger": lambda r: (
        "A larger outcome counts as better: where a smaller one is, treat whom the rule leaves "
        f"out{'; the two gains then change places' if getattr(r, 'gains', ()) else ''}."
    ),
    "gains": lambda r: (
        f"{_gains(r)} Fitted to the same records, the rule looks better than it is: half of what "
        "that may add is taken off the estimates, and the intervals allow for the other half."
    ),
    "sign": lambda r: f"That the rule has the sign of the effect is an assumption: {_sign(r)}",
    "remaining-bias": lambda r: remains(r.residual_bias, "confounding"),
    "skewed": (
        "Not covered: an outcome that is skewed in opposite directions with and without "
        "treatment, which turns some signs (a larger slope helps)."
    ),
    "balanced": (
        "That this is what treatment does is an assumption: after weighting, the arms agree "
        "in all that moves the outcome."
    ),
    "remaining-imbalance": lambda r: remains(r.residual_imbalance, "difference between the arms"),
    "private-weights": (
        "The noise of the private propensity comes on top: its effect on theta depends on the "
        "records."
    ),
    "group-confounds": lambda r: (
        f"Not covered: what {r.by} itself confounds, as the regression does not adjust for it."
    ),
    "event": (
        "Not covered: an outcome that is 0 or 1 and nothing between, as the domain does not "
        "declare one (binary_outcome)."
    ),
    "released-ranges": (
        "Not covered: what records beyond the released ranges, to which they are clipped, change "
        "or confound."
    ),
    "missing": lambda r: f"Not covered: what {_incomplete(r)} confounds where it is missing.",
    "not-covered": _not_covered,
}


#: Why an effect by the weights of two stages has no interval.
NO_SAMPLING = "sampling is not counted"
#: Why an interval is no confidence interval, by the codes of caveats that say so: clauses of
#: headlines.
WITHDRAWN: dict[str, Callable[[Any], str]] = {
    "confounded": lambda r: "the correction of confounding hardly works",
    "arms-apart": lambda r: (
        f"the arms hardly overlap: their covariates lie at least {r.distance.least:.2g} standard "
        "deviations apart"
    ),
    "scale": lambda r: (
        f"most residuals lie beyond the {'released' if has_step(r, 'scale') else 'declared'} scale "
        f"of {float(r.settings['residual_scale']):.3g} {unit_of(r)}"
    ),
    "no-overlap": _beyond,
    "events-far-apart": _events_found,
    "narrow": lambda r: (
        f"the declared range may be far too wide for {named_few(narrow_numbers(r))}"
    ),
    "skewed-residuals": lambda r: (
        f"outcomes are skewed, and a bias of up to {r.skewed:.2g} is not counted"
    ),
    "score": lambda r: "the interval is for the mean of the estimate at the released regressions",
}


def withdrawn(release: Any) -> str:
    """Why the interval of a release is no confidence interval, in a clause; empty where it is
    one.
    """
    for caveat in caveats_of(release):
        if not caveat.confident:
            return WITHDRAWN[caveat.code](release).rstrip()
    return ""


def sentence_of(caveat: Caveat, release: Any) -> str:
    """The sentence of a caveat that holds for a release."""
    said = SENTENCES[caveat.code]
    return said if isinstance(said, str) else said(release)


def sentences(release: Any, *levels: Level) -> list[str]:
    """Sentences of these levels, for a reader."""
    held = caveats_of(release)
    return [sentence_of(caveat, release) for caveat in held if caveat.level in levels]


#: Of a difference of means in standard deviations, as a log risk ratio (VanderWeele and Ding 2017).
_LOG_RATIO = 0.91
#: Standard deviations that no arms lie apart.
_FAR = 10.0


def _distances(release: EffectRelease) -> str:
    """How far the arms are taken to lie apart, or that it was released."""
    settings = release.settings
    collinear = (
        f"have less than {settings['collinearity']:.3g} times the variance of independent ones "
        "(collinearity)"
    )
    if release.arms is not None and has_step(release, "mean"):
        return (
            "How far every arm lies from all others was released, for covariates that are taken "
            f"to be independent; a guess of {settings['confounding']:g} standard deviations "
            "(confounding) counts where noise hides it. No combination of covariates is taken to "
            f"{collinear}."
        )
    sentence = (
        f"No combination of covariates is taken to lie more than {farthest(release):.3g} standard "
        f"deviations apart between the arms (confounding), or to {collinear}."
    )
    if release.distance is None:
        return (
            f"{sentence} No release shows how far apart they lie: only a look at the data (dp2erm "
            "check) finds arms that hardly overlap."
        )
    return f"{sentence} By the released means they lie at least {release.distance.least:.2g} apart."


def sensitivity(release: EffectRelease) -> Iterator[str]:
    """Sentences on what follows from an average effect or from risks."""
    if release.estimand not in ("ate", "risks") or release.arms is not None:
        return
    two_values = bool(release.domain.get("binary_outcome", False))
    yield from _e_values(release, two_values)
    if release.is_risk:
        yield _number_needed(release)
    # what weights leave of a distance is no fixed part of it
    if release.weighting is None and (tipping := tipping_point(release)) is not None:
        apart = f"{tipping:.3g}" if tipping < _FAR else f"more than {_FAR:g}"
        yield (
            f"Tipping point: the interval reaches 0 where the arms lie {apart} standard deviations "
            f"apart (confounding; {float(release.settings['confounding']):g} is declared or the "
            "default)."
        )


def tipping_point(release: EffectRelease) -> float | None:
    """The ``confounding`` D at which the interval reaches 0: ``b = |T| - q`` solved for D.

    T is the estimate, b the allowed bias, in proportion to D, and q what is left of the half width
    without it. None where no bias is allowed for, and where the interval holds 0 already.
    """
    interval = release.interval
    low, high, bias = interval.low, interval.high, interval.bias
    if low is None or high is None or not bias or low <= 0.0 <= high:
        return None
    rest = 0.5 * (high - low) - bias
    return farthest(release) * (abs(0.5 * (low + high)) - rest) / bias


def _e_values(release: EffectRelease, two_values: bool) -> Iterator[str]:
    """E-values of the risk ratio; of a difference of means where a standard deviation is known."""
    ratio = next((one for one in release.ratios if one.name == "risk ratio"), None)
    if ratio is not None and ratio.interval.low is not None and ratio.interval.high is not None:
        estimate, low, high, of = (
            ratio.estimate,
            ratio.interval.low,
            ratio.interval.high,
            "risk ratio",
        )
    else:
        scale = float(release.settings["residual_scale"])
        low, high = (
            math.nan if end is None else end
            for end in (release.interval.low, release.interval.high)
        )
        released = has_step(release, "scale")
        guessed = release.declared["residual_scale"] is None and not released
        if release.risks or two_values or guessed or not math.isfinite(low + high):
            return
        ends = (_LOG_RATIO * one / scale for one in (release.estimate, low, high))
        estimate, low, high = (math.exp(min(max(one, -300.0), 300.0)) for one in ends)
        whose = "the outcome" if released else "residuals"
        of = f"effect in standard deviations of {whose}, as an approximate risk ratio"
    limit = e_value(low, max(high, 1e-300))
    yield (
        f"E-value of the {of}: {e_value(estimate):.3g}, of the nearer limit {limit:.3g}. A "
        "confounder that was not measured needs risk ratios of that size with treatment and "
        "outcome both to explain it away."
    )


def _number_needed(release: EffectRelease) -> str:
    """How many have to be treated for one event more or less, with its interval."""
    ends = release.interval.needed_to_treat
    if ends is None:
        return (
            "Number needed to treat: no finite one, as the interval of the risk difference holds 0."
        )
    more = "more" if release.estimate > 0.0 else "less"
    low, high = ends
    return (
        f"Number needed to treat for one event {more}: {1.0 / abs(release.estimate):.3g}, "
        f"{100 * release.interval.level:g} % interval {low:.3g} to {high:.3g}."
    )
