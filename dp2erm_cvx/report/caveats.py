"""The sentence of every caveat by its code: what a reader has to know beside the numbers.

When each code holds for a release is in ``dp2erm_cvx.release.caveats``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.display import READ_DIGITS, digits_of
from dp2erm_cvx.inference.interval import e_value
from dp2erm_cvx.inference.levels import FEW_RECORDS
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


def _counted(release: Any) -> str:
    """Sentence on what is estimated where a person counts at most as so many records."""
    most = release.domain["codebook"]["unit"]["count"]
    if most == 1:
        return (
            "Every person counts once, by the mean over the records that count: the estimate is of "
            "the mean over persons of their mean effects."
        )
    return (
        f"Every record counts alike, but those of a person together at most as {most}: the "
        "estimate is of the mean effect over records so counted."
    )


def _slopes(release: Any) -> str:
    """Clause on what slopes ask of covariates.

    Common slopes ask that covariates vary alike in all arms, slopes of every arm that no values
    are rare in one.
    """
    if release.settings["rows"] == "common":
        arms = "both" if release.arms is None else "all"
        return f"on covariates that vary alike in {arms} arms, "
    if release.settings["rows"] == "arms" and not release.risks and release.arms is None:
        return "on values of covariates that are rare in neither arm, "
    return ""


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
    """Advice on what leaves less of the confounding than a regression; none for a rule's value."""
    if release.goal == "rule":
        return ""
    kind = "multinomial" if release.arms else "logistic"
    where = ", for each group alone (where)," if release.groups else ""
    return f" A {kind} propensity (settings){where} leaves less of it."


def _linear(release: Any) -> str:
    """Clause on the models that have to be right for an interval of the effect."""
    event = release.risks or release.domain.get("binary_outcome")
    if release.estimand == "att" and event:
        return "outcomes of the untreated that are nearly linear in the covariates"
    if release.estimand == "att":
        return f"outcomes of the untreated that are linear in the covariates{_SYMMETRIC}"
    if release.settings["propensity"] == "logistic" and release.estimand == "overlap":
        return "log odds of treatment that are linear in the covariates, or outcomes that are"
    if event:
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
        return _assigned(release)
    regression = "the outcome regression"
    if release.estimand == "att":
        regression = "the outcome regression of the untreated"
    right = f"{regression} or the propensity is right"
    if known == "constant":
        right = f"{regression} is right, or treatment does not depend on the covariates"
    return f"{right}, and no confounder is unmeasured."


def _assigned(release: Any) -> str:
    """Sentences on an assignment with public probabilities."""
    known = release.settings["propensity"]
    who = "everybody was treated with the public probability"
    numbers = f"{known:g}" if release.arms is None else ""
    if release.arms is not None:
        who = "the arms were assigned with the public probabilities"
        numbers = ", ".join(f"{one:g}" for one in known)
    return (
        f"{who} {numbers}, whatever the covariates. The outcome regression may be wrong."
        f"{_skewed(release)}"
    )


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
    least = "4 over the rarer arm's share"
    if release.estimand == "risks":
        least = "1 over the rarer arm's share"
    elif release.estimand == "att":
        least = "2 over the share of the untreated"
    return (
        f"({float(release.settings['cap']):g}, or {least} where that is more; {100 * CAPPED:g} % "
        "is the limit)"
    )


def _overlap(release: Any) -> str:
    """Sentences on arms of which a part hardly overlaps."""
    return (
        f"Overlap may be poor: {_beyond(release)} {_cap(release)}. Errors of the outcome "
        "regression count in full there. A cap larger than both widens the interval by what they "
        "add, where log odds are linear."
    )


def _no_overlap(release: Any) -> str:
    """Sentences on arms that overlap in so few records that the interval is none."""
    return (
        f"The arms hardly overlap: {_beyond(release)} {_cap(release)}. The effect is what the "
        f"outcome regression of one arm says of the other one there. From {100 * APART:g} % on its "
        "interval is no confidence interval."
    )


def _arms_apart(release: Any) -> str:
    """Sentence on arms so far apart that no interval is stated."""
    if release.apart:
        return _some_arms_apart(release)
    return (
        "The arms hardly overlap: the released means of the covariates lie about "
        f"{release.distance.estimate:.2g} standard deviations apart, at least "
        f"{release.distance.least:.2g}. The covariates nearly decide the treatment, and no "
        "interval is stated. Leave out a column that the treatment decides. Else the weights of a "
        "scheme (weights) may answer in a new release: dp2erm design compares them."
    )


def _some_arms_apart(release: Any) -> str:
    """Sentences on arms of several that hardly overlap with the others."""
    named = []
    for one in release.apart:
        about, least = one.distance.estimate, one.distance.least
        named.append(f"{one.level} (about {about:.2g} standard deviations, at least {least:.2g})")
    return (
        "In one covariate these arms lie so far from all others that they hardly overlap: "
        f"{named_few(named)}. No interval is stated of their means and contrasts. Leave out a "
        "column that the treatment decides, or the records of such an arm."
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
    bound = float(release.settings["residual_bound"])
    which = "declared residual scale"
    remedy = "larger residual_scale, or none"
    if has_step(release, "scale"):
        which = "scale of the outcome that was released first"
        remedy = "declared residual_scale"
    return (
        f"The {which} is too small: the released sums show that most residuals reach ±{bound:.3g} "
        f"{unit_of(release)}, where they are clipped. The estimate may be far off. A new release "
        f"needs a {remedy}."
    )


def _beyond_scale(release: Any) -> str:
    """Why the interval is none where most residuals lie beyond their scale."""
    origin = "released" if has_step(release, "scale") else "declared"
    scale = float(release.settings["residual_scale"])
    return f"most residuals lie beyond the {origin} scale of {scale:.3g} {unit_of(release)}"


def _narrow(release: Any) -> str:
    """Sentences on ranges that may be far too wide."""
    names = named_few(narrow_numbers(release))
    return (
        f"The range may be far too wide for {names}: what that confounds may stay in the "
        f"{release.goal}. A narrower range removes more of it, as does the logarithm of a skewed "
        "column."
    )


def _too_wide(release: Any) -> str:
    """Why the interval is none where a declared range may be far too wide."""
    return f"the declared range may be far too wide for {named_few(narrow_numbers(release))}"


def _rare(release: Any) -> str:
    """Sentence on levels that almost no record may have, or almost every one."""
    book = release.public.codebook or Codebook()
    named = []
    for name in rare_levels(release):
        column, level = book.origin(name)
        named.append(f"{column or 'missing'} {level or 'missing'}")
    return (
        f"Almost no record, or almost every one, may have {named_few(named, 'or')}: what that "
        f"confounds may stay in the {release.goal}."
    )


def _few_records(release: Any) -> str:
    """Sentence on levels of which an arm may have too few records."""
    book = release.public.codebook or Codebook()
    named = []
    for one in release.few:
        level = " ".join(str(part or "missing") for part in book.origin(one.level))
        preposition = "with" if one.having else "without"
        arm = "treated" if one.treated else "untreated"
        counted = max(one.counted, 0.0)
        named.append(f"{arm} {preposition} {level} (counted: {counted:,.0f} ± {one.noise:,.0f})")
    return (
        f"There may be fewer than {FEW_RECORDS:g} {named_few(named, 'or')}. The interval allows "
        "for what noise and shrinkage do to so few. It is shorter where such a level is "
        "put together with another one."
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
    """Sentences on the intervals of what a rule gains."""
    text = _gains_of_trial(release) if known_propensity(release) else _gains_adjusted(release)
    if cuts_residuals(release):
        text += " Residuals are clipped: they are to be about as long on either side."
    return (
        f"{text} Fitted to the same records, the rule looks better than it is: half of what that "
        "may add is taken off the estimates, and the intervals allow for the other half."
    )


def _gains_adjusted(release: Any) -> str:
    """Sentences on what intervals of gains count where the propensity is not public."""
    linear = "outcomes are linear"
    if release.domain.get("binary_outcome"):
        linear = "probabilities are nearly linear"
    return (
        f"The intervals are for the mean gain of all {units_of(release)}. They count sampling, "
        f"noise, and what noise and shrinkage leave of the confounding: where {linear} in the "
        "covariates in either arm, these vary alike in both, and the arms on a side lie at most "
        "one standard deviation apart."
    )


#: Records times epsilon of a value below which its clips cut much, as measured.
_FEW = 3000.0


def _gains_of_trial(release: Any) -> str:
    """Sentence on what intervals of gains count where the propensity is public."""
    spent = release.n_samples * release.guarantee.epsilon * release.settings["value_share"]
    cut = ""
    if spent < _FEW and not release.domain.get("binary_outcome"):
        cut = ", but not what bounds cut of so few records"
    return (
        f"The intervals are for the mean gain of all {units_of(release)} at the public probability "
        f"of treatment, and count sampling and noise{cut}."
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
    decided_gaps = "gaps that the outcome decides, " if gaps(release) else ""
    wrong = "effects that are not linear" if release.goal == "rule" else "models that are wrong"
    return (
        f"Not covered: unmeasured confounding, {decided_gaps}{wrong}, and what clipping removes. "
        "Every other release from these data adds to epsilon."
    )


def _weak_epsilon(release: Any) -> str:
    """Sentence on an epsilon, of all that a release rests on, that promises little."""
    return weak(release.whole_guarantee.epsilon)


def _weak_delta(release: Any) -> str:
    """Sentence on a delta that would allow to publish a record."""
    delta = digits_of(release.guarantee.delta, READ_DIGITS)
    return (
        f"The guarantee is weak: delta = {delta}, above 1/n = {1 / release.n_samples:.2g}, would "
        "allow to publish a whole record."
    )


def _far_apart(release: Any) -> str:
    """Sentence on arms that are declared to lie far apart."""
    return FAR_APART.format(release.settings["confounding"])


def _skewed_residuals(release: Any) -> str:
    """Sentences on released sums that show skewed outcomes."""
    return (
        "The released sums show skewed outcomes of the untreated, or bent ones: a bias of up to "
        f"{release.skewed:.2g} is not counted. A logistic propensity (settings) leaves hardly any."
    )


def _skewed_means(release: Any) -> str:
    """Sentences on outcomes that are mostly skewed."""
    return (
        "Counts, costs and durations are mostly skewed: what the outcome regression then leaves "
        f"of the confounding is not counted.{_less(release)}"
    )


def _score_is_effect(release: Any) -> str:
    """Sentence on what makes a mean of scores the effect."""
    return f"That this is the effect is an assumption: {_assumed(release)}"


def _trial(release: Any) -> str:
    """Sentences on the interval of a trial."""
    assumed = _assumed(release)
    return f"The interval is for the effect. {assumed[:1].upper()}{assumed[1:]}"


def _allows_for(release: Any) -> str:
    """Sentences on all that the interval of an effect allows for."""
    bias = digits_of(release.interval.bias or 0.0, 2)
    return (
        f"The interval is for the effect{ESTIMANDS[release.estimand][2]}. It allows for sampling, "
        f"for privacy noise, and for a bias of up to {bias}: what noise and shrinkage of the "
        "released regressions may leave of the confounding."
    )


def _rests_on(release: Any) -> str:
    """Sentence on the models that the interval of an effect rests on."""
    return (
        f"To first order it rests on {_linear(release)}, {_slopes(release)}and on no unmeasured "
        "confounder."
    )


def _scheme(release: Any) -> str:
    """Sentences on the weights of a scheme: how they move, and what they leave."""
    weighting = release.weighting
    return (
        f"Residuals are weighted by {weighting.program}. Its weights move by at most V = "
        f"{weighting.stability:.4g} when one record is replaced, and are predicted to leave at "
        f"most {weighting.left:.0%} of a difference between the arms."
    )


def _scheme_models(release: Any) -> str:
    """Sentence on what the prediction of the weights of a scheme assumes."""
    return (
        f"Arms are taken to lie at most {release.settings['confounding']:g} standard deviations "
        "apart (confounding), and covariates to be near normal along their difference, as on "
        "the public records of that prediction."
    )


def _heterogeneity(release: Any) -> str:
    """Sentence on how far effects are taken to vary."""
    return (
        "Effects are taken to vary with covariates by a standard deviation of at most "
        f"{release.settings['heterogeneity']:.3g} of that of residuals (heterogeneity)."
    )


def _several_arms(release: Any) -> str:
    """Sentence on intervals of single contrasts and of all together."""
    return (
        "Intervals of single contrasts hold by themselves; those of all together hold at the "
        f"same time ({len(release.arms.contrasts)} contrasts, Bonferroni)."
    )


def _larger(release: Any) -> str:
    """Sentence on which outcomes count as better."""
    gains = ""
    if getattr(release, "gains", ()):
        gains = "; the two gains then change places"
    return (
        "A larger outcome counts as better: where a smaller one is, treat whom the rule leaves "
        f"out{gains}."
    )


def _rule_sign(release: Any) -> str:
    """Sentence on when a rule has the sign of the effect."""
    return f"That the rule has the sign of the effect is an assumption: {_sign(release)}"


def _remaining_bias(release: Any) -> str:
    """Sentence on the share of the confounding that stays."""
    return remains(release.residual_bias, "confounding")


def _remaining_imbalance(release: Any) -> str:
    """Sentence on the share of the difference between the arms that stays."""
    return remains(release.residual_imbalance, "difference between the arms")


def _group_confounds(release: Any) -> str:
    """Sentence on groups that the regression does not adjust for."""
    return (
        f"Not covered: what {release.by} itself confounds, as the regression does not adjust for "
        "it."
    )


def _missing(release: Any) -> str:
    """Sentence on covariates that may be missing where records count."""
    names = named_few(may_be_missing(release), "or")
    return f"Not covered: what {names} confounds where it is missing."


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
            f"{sentence} This release does not show how far apart they lie: only a look at the "
            "data (dp2erm check) finds arms that hardly overlap."
        )
    return f"{sentence} By the released means they lie at least {release.distance.least:.2g} apart."


#: The sentence of every code, or what says it of a release.
SENTENCES: dict[str, str | Callable[[Any], str]] = {
    "weak-epsilon": _weak_epsilon,
    "weak-delta": _weak_delta,
    "noise-dominates": _dominates,
    "confounded": "The correction hardly works: expect confounding in what is released.",
    "unbalanced": "The weights hardly balance: confounding stays in the estimate.",
    "arms-apart": _arms_apart,
    "some-arms-apart": _some_arms_apart,
    "scale": _scale,
    "no-overlap": _no_overlap,
    "overlap": _overlap,
    "widened": _widened,
    "far-apart": _far_apart,
    "events-far-apart": _events_apart,
    "narrow": _narrow,
    "rare-level": _rare,
    "few-records": _few_records,
    "skewed-residuals": _skewed_residuals,
    "skewed-means": _skewed_means,
    "clipped-tail": _clipped_tail,
    "score": (
        "The interval is for the population mean of the estimate, at the regressions and the "
        "propensity released here. In large samples that holds whatever those are."
    ),
    "score-is-effect": _score_is_effect,
    "trial": _trial,
    "effect": _allows_for,
    "weights-population": (
        "That population follows the propensity that was released here, with its noise: "
        "another release describes another one, and none of them is that of the true "
        "propensity."
    ),
    "linear": _rests_on,
    "scheme": _scheme,
    "scheme-models": _scheme_models,
    "scheme-complete": "All records are taken to have a treatment and an outcome.",
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
    "confounding": _distances,
    "heterogeneity": _heterogeneity,
    "declared": "All of these are declared, or at their defaults.",
    "persons": _counted,
    "independent-persons": "The interval takes persons to be independent, not records.",
    "groups": (
        "All groups share the regression: its slopes are to hold in each, arms to lie no "
        "farther apart there, and mean outcomes of a group within half a standard deviation of "
        "residuals of what it predicts."
    ),
    "arms": _several_arms,
    "arms-means": "Mean outcomes of all arms are taken to lie within half of the outcome bound.",
    "arms-events": (
        "Regressions of an event are lines of which a fifth of the confounding is allowed for."
    ),
    "larger": _larger,
    "gains": _gains,
    "sign": _rule_sign,
    "remaining-bias": _remaining_bias,
    "skewed": (
        "Not covered: an outcome that is skewed in opposite directions with and without "
        "treatment, which turns some signs (a larger slope helps)."
    ),
    "balanced": (
        "That this is what treatment does is an assumption: after weighting, the arms agree "
        "in all that moves the outcome."
    ),
    "remaining-imbalance": _remaining_imbalance,
    "private-weights": (
        "The noise of the private propensity comes on top: its effect on theta depends on the "
        "records."
    ),
    "group-confounds": _group_confounds,
    "event": (
        "Not covered: an outcome that is 0 or 1 and nothing between, as the domain does not "
        "declare one (binary_outcome)."
    ),
    "released-ranges": (
        "Not covered: what records beyond the released ranges, to which they are clipped, change "
        "or confound."
    ),
    "missing": _missing,
    "not-covered": _not_covered,
}


def _hardly_overlapping(release: Any) -> str:
    """Why the interval is none where arms hardly overlap."""
    if release.apart:
        levels = named_few([one.level for one in release.apart])
        return f"the arms hardly overlap with the others: {levels}"
    return (
        f"the arms hardly overlap: their covariates lie at least {release.distance.least:.2g} "
        "standard deviations apart"
    )


def _skewed_outcomes(release: Any) -> str:
    """Why the interval is none where outcomes are skewed."""
    return f"outcomes are skewed, and a bias of up to {release.skewed:.2g} is not counted"


#: Why an effect by the weights of two stages has no interval.
NO_SAMPLING = "sampling is not counted"
#: Why an interval is no confidence interval: one clause of a headline for each caveat of
#: ``dp2erm_cvx.release.caveats`` with ``confident=False``. "confounded" is of what a rule gains,
#: "narrow" of that or of an effect, and all others are of effects.
WITHDRAWN: dict[str, str | Callable[[Any], str]] = {
    "confounded": "the correction of confounding hardly works",
    "arms-apart": _hardly_overlapping,
    "scale": _beyond_scale,
    "no-overlap": _beyond,
    "events-far-apart": _events_found,
    "narrow": _too_wide,
    "skewed-residuals": _skewed_outcomes,
    "score": "the interval is for the mean of the estimate at the released regressions",
}


def withdrawn(release: Any) -> str:
    """Why the interval of a release is no confidence interval; empty where it is one."""
    for caveat in caveats_of(release):
        if not caveat.confident:
            return _said(WITHDRAWN[caveat.code], release).rstrip()
    return ""


def sentence_of(caveat: Caveat, release: Any) -> str:
    """The sentence of a caveat that holds for a release."""
    return _said(SENTENCES[caveat.code], release)


def _said(text: str | Callable[[Any], str], release: Any) -> str:
    """A text of a table, or what its function says of a release."""
    if isinstance(text, str):
        return text
    return text(release)


def sentences(release: Any, *levels: Level) -> list[str]:
    """Sentences of these levels, for a reader."""
    held = caveats_of(release)
    return [sentence_of(caveat, release) for caveat in held if caveat.level in levels]


#: Of a difference of means in standard deviations, as a log risk ratio (VanderWeele and Ding 2017).
_LOG_RATIO = 0.91
#: Exponents of a risk ratio that doubles hold.
_EXPONENT = 300.0


def sensitivity(release: EffectRelease) -> Iterator[str]:
    """Sentences on what follows from an average effect or from risks."""
    if release.estimand not in ("ate", "risks") or release.arms is not None:
        return
    yield from _e_values(release)
    if release.is_risk:
        yield _number_needed(release)
    tipping = tipping_point(release)
    # what weights leave of a distance is no fixed part of it
    if release.weighting is None and tipping is not None:
        apart = f"{tipping:.3g}" if tipping < _FAR else f"more than {_FAR:g}"
        yield (
            f"Tipping point: the interval reaches 0 where the arms lie {apart} standard deviations "
            f"apart (confounding; {float(release.settings['confounding']):g} is declared or the "
            "default)."
        )


def tipping_point(release: EffectRelease) -> float | None:
    """The ``confounding`` D at which the interval reaches 0.

    It solves ``b = |T| - q`` for D, where T is the estimate, b the allowed bias, in proportion to
    D, and q what is left of the half width without it. This is approximate: q is taken as it is
    now, though it changes a little with b.

    Returns
    -------
    D in standard deviations; None where no bias is allowed for, and where the interval holds 0.
    """
    low = release.interval.low
    high = release.interval.high
    bias = release.interval.bias
    if low is None or high is None or not bias or low <= 0.0 <= high:
        return None
    estimate = 0.5 * (low + high)
    rest = 0.5 * (high - low) - bias
    return farthest(release) * (abs(estimate) - rest) / bias


@dataclass(frozen=True)
class _RiskRatio:
    """A risk ratio with its interval.

    Parameters
    ----------
    estimate
        The ratio.
    low, high
        Ends of its interval.
    of
        What it is a ratio of, in words.
    """

    estimate: float
    low: float
    high: float
    of: str = "risk ratio"


def _e_values(release: EffectRelease) -> Iterator[str]:
    """Sentences on the E-values of a risk ratio and of its nearer limit (VanderWeele and Ding)."""
    ratio = _released_ratio(release) or _approximate_ratio(release)
    if ratio is None:
        return
    limit = e_value(ratio.low, max(ratio.high, 1e-300))
    yield (
        f"E-value of the {ratio.of}: {e_value(ratio.estimate):.3g}, of the nearer limit "
        f"{limit:.3g}. A confounder that was not measured needs risk ratios of that size with "
        "treatment and outcome both to explain it away."
    )


def _released_ratio(release: EffectRelease) -> _RiskRatio | None:
    """The risk ratio that was released; None where there is none with both ends."""
    for ratio in release.ratios:
        low = ratio.interval.low
        high = ratio.interval.high
        if ratio.name == "risk ratio" and low is not None and high is not None:
            return _RiskRatio(ratio.estimate, low, high)
    return None


def _approximate_ratio(release: EffectRelease) -> _RiskRatio | None:
    """The risk ratio ``e^(.91 T/s)`` of a difference of means T at a standard deviation s.

    None for an event, where s is a mere guess, and where an end is unbounded.
    """
    released = has_step(release, "scale")
    guessed = release.declared["residual_scale"] is None and not released
    if release.risks or release.domain.get("binary_outcome", False) or guessed:
        return None
    low = release.interval.low
    high = release.interval.high
    if low is None or high is None or not math.isfinite(low + high):
        return None
    scale = float(release.settings["residual_scale"])
    whose = "the outcome" if released else "residuals"
    return _RiskRatio(
        _risk_ratio(release.estimate, scale),
        _risk_ratio(low, scale),
        _risk_ratio(high, scale),
        f"effect in standard deviations of {whose}, as an approximate risk ratio",
    )


def _risk_ratio(difference: float, scale: float) -> float:
    """The risk ratio that a difference of means in standard deviations stands for."""
    exponent = _LOG_RATIO * difference / scale
    return math.exp(min(max(exponent, -_EXPONENT), _EXPONENT))


def _number_needed(release: EffectRelease) -> str:
    """How many have to be treated for one event more or less, with its interval."""
    ends = release.interval.needed_to_treat
    if ends is None:
        return (
            "Number needed to treat: no finite one, as the interval of the risk difference holds 0."
        )
    direction = "more" if release.estimate > 0.0 else "less"
    low, high = ends
    return (
        f"Number needed to treat for one event {direction}: {1.0 / abs(release.estimate):.3g}, "
        f"{100 * release.interval.level:g} % interval {low:.3g} to {high:.3g}."
    )
