"""Caveats that a reader has to know beside the numbers: their codes, and when each of them holds.

Where one of them says that an interval is no confidence interval, no headline calls it one. The
sentence of each code stands in ``dp2erm_cvx.report.caveats``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from dp2erm_cvx.data.cells import Eligible
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.counts import KINDS, declares
from dp2erm_cvx.inference.limits import FAR, surely_more

#: Largest epsilon of a release without a caveat.
WEAK = 10.0
#: Share of propensities beyond the cap from which errors of the outcome regression are not
#: negligible.
CAPPED = 0.05
#: Share of propensities beyond the cap from which an effect is mostly what the regression of one
#: arm says of the other one.
APART = 5.0 * CAPPED
#: Predicted share of flipped decisions from which a rule says little.
LITTLE = 0.25
#: Predicted share of confounding, or of a difference between the arms, that may stay without a
#: warning.
HARDLY = 0.5
#: Read before the result; what the result rests on; what it is; what it is not; how far all that
#: goes.
Level = Literal["warns", "assumes", "notes", "excludes", "details"]


@dataclass(frozen=True)
class Caveat:
    """What a reader has to know of some releases.

    Parameters
    ----------
    code
        Its name in the JSON of a release.
    level
        Where its sentence is read.
    goals
        Kinds of releases that it is about.
    when
        True for a release of these kinds for which it holds.
    confident
        False where it says that an interval is no confidence interval of what was asked for:
        something that was released, or the question itself, says that a part of the error is not
        counted. What holds of every release of such a declaration is an assumption, and leaves the
        name.
    """

    code: str
    level: Level
    goals: tuple[str, ...]
    when: Callable[[Any], object]
    confident: bool = True


def known_propensity(release: Any) -> bool:
    """True if the probability of treatment was declared."""
    return not isinstance(release.settings["propensity"], str | None)


def by_regressions(release: Any) -> bool:
    """True if an interval for the effect rests on regressions."""
    return release.target == "effect" and not known_propensity(release)


def may_be_missing(release: Any) -> list[str]:
    """Covariates that may be missing where records count; then they are a constant, or a level, of
    all.
    """
    book = release.domain.get("codebook") or {}
    single = [
        Eligible(text)
        for text in book.get("eligible", ())
        if " or " not in text and '""' not in text
    ]
    known = {name for one in single for name in one.columns} | set(book.get("where", {}))
    names = release.columns if book else ()
    terms = {f"{one}^2" for one in names} | {f"{one} x {other}" for one in names for other in names}
    of = {
        f"{one}={lv or 'missing'}": one for one, own in book.get("levels", {}).items() for lv in own
    }
    of |= {f"{one}=missing": one for one in book.get("missing", {})}
    return [
        one
        for one in dict.fromkeys(of.get(name, name) for name in names)
        if one not in known | terms
    ]


def has_step(release: Any, name: str) -> bool:
    """True if a step of this name was released."""
    return any(step.step == name for step in release.steps)


def cuts_residuals(release: Any) -> bool:
    """True if residuals are clipped, of an outcome that is no event."""
    settings, whole = release.settings, 2.0 * float(release.domain["outcome_bound"])
    arms = getattr(release, "arms", None)  # whose weighted residuals have a bound of their own
    cut = arms is not None and float(settings["score_bound"]) < len(arms.means) * whole
    # of a rule's sides, on which an arm may be rarer than in all
    cut = cut or (release.goal == "rule" and not known_propensity(release))
    return not release.domain.get("binary_outcome") and (
        cut or float(settings["residual_bound"]) < whole
    )


def rare_levels(release: Any) -> list[str]:
    """Levels whose released mean square may be noise alone: hardly a record has them, or all
    have.
    """
    book = release.public.codebook or Codebook()
    return [name for name in release.narrow if book.origin(name)[1] is not None]


def narrow_numbers(release: Any) -> list[str]:
    """Numbers whose released mean square may be noise alone: their range is far too wide."""
    levels = rare_levels(release)
    return [name for name in release.narrow if name not in levels]


def _of_persons(release: Any) -> bool:
    """True if persons are units, who may have several records."""
    return (release.domain.get("codebook") or {}).get("unit") is not None


def _varies(release: Any) -> bool:
    """True if common slopes count records so that effects which vary bias them."""
    exact = "controls" if release.estimand == "att" else "matched"
    common = by_regressions(release) and release.settings["rows"] == "common"
    return common and release.settings["arms"] != exact


def _alike(release: Any) -> bool:
    """True if numbers are scaled by one factor, or none, where a regression removes confounding."""
    if release.goal == "rule":
        removes = bool(release.gains) and not known_propensity(release)
    else:
        removes = by_regressions(release)
    one = all(part.parameters == ("square",) for part in release.nuisances if part.step == "spread")
    return removes and one and len(release.columns) > 1


def farther_apart(release: Any) -> bool:
    """True if arms lie farther apart than is declared, by what was released of them."""
    distance, declared = release.distance, float(release.settings["confounding"])
    return (
        by_regressions(release) and distance is not None and surely_more(distance.least, declared)
    )


def farthest(release: Any) -> float:
    """How far apart the arms are taken to lie: as is declared, or as was released where that is
    more.
    """
    if farther_apart(release):
        return float(release.distance.estimate)
    return float(release.settings["confounding"])


def _far_apart(release: Any) -> bool:
    """True if arms are declared so far apart that another pipeline errs less than what answered."""
    settings, book = release.settings, release.public.codebook
    asked = release.estimand, settings["propensity"], settings["confounding"], book
    return not release.domain.get("binary_outcome") and others_err_less(*asked)


def _events_far_apart(release: Any) -> bool:
    """True if arms are declared, or found, so far apart that intervals of two values hold too
    rarely.
    """
    settings = release.settings
    two_values = bool(release.domain.get("binary_outcome"))
    return misses_events(release.estimand, settings["propensity"], farthest(release), two_values)


def _perhaps_event(release: Any) -> bool:
    """True if outcomes lie between 0 and 1, and may be those of an event that is not declared."""
    domain = release.domain
    middle = domain.get("outcome_center", 0.0) == 0.5 == domain["outcome_bound"]
    return middle and not release.risks and not domain.get("binary_outcome", False)


def _one_sided(release: Any) -> bool:
    """True if the outcome of an effect or a gain is no event, and its declared range begins at
    0.
    """
    domain, of_rule = release.domain, release.goal == "rule"
    zero = domain.get("outcome_center", 0.0) == float(domain["outcome_bound"])
    known = bool(release.gains) if of_rule else not release.risks
    return zero and known and not domain.get("binary_outcome")


def _skewed_means(release: Any) -> bool:
    """True if a regression alone adjusts a one-sided outcome, and no sums show its skew."""
    if release.goal == "rule":
        return _one_sided(release) and not known_propensity(release)
    alone = by_regressions(release) and release.settings["propensity"] == "constant"
    return alone and _one_sided(release) and (release.estimand != "att" or release.public.uneven)


def _larger_is_better(release: Any) -> bool:
    """True if what was released is a rule of treatment."""
    return release.goal == "rule" or str(release.second_stage["name"]).startswith("itr")


def _group_confounds(release: Any) -> bool:
    """True if an effect by group was not adjusted for the levels of the group."""
    return release.by is not None and not any(
        name.startswith(f"{release.by}=") for name in release.columns
    )


def _arms_of_events(release: Any) -> bool:
    """True if mean outcomes of several arms are risks by regressions."""
    return release.arms is not None and release.is_risk and by_regressions(release)


def others_err_less(
    estimand: str, propensity: object, distance: float, book: Codebook | None
) -> bool:
    """Whether a regression alone, or a scheme, could answer with less error than inverse
    propensities.

    Parameters
    ----------
    estimand
        What is estimated: a scheme answers for the average effect alone.
    propensity
        The kind of propensity in force.
    distance
        How far apart the arms are declared to lie, in standard deviations. One that is looked up in
        the data may not decide.
    book
        What is declared of a table. A scheme takes one record of every person, two arms and no
        groups.
    """
    if estimand != "ate" or propensity != "logistic" or distance < FAR:
        return False
    left_out = book is not None and bool(book.where or book.eligible)
    return not left_out and not declares(book, *KINDS)


def misses_events(estimand: str, propensity: object, distance: float, two_values: bool) -> bool:
    """Whether the interval of an average effect on two values holds less often than it says
    (measured).

    Parameters
    ----------
    estimand
        What is estimated.
    propensity
        The kind of propensity in force, or a public number: then nothing confounds.
    distance
        How far apart the arms are declared, or found, to lie, in standard deviations.
    two_values
        Whether the outcome is declared to have two values.
    """
    confounded = propensity in ("logistic", "constant")
    return two_values and confounded and estimand == "ate" and distance >= FAR


_EFFECT, _RULE, _WEIGHTED = ("effect",), ("rule",), ("weighted",)
_LEARNED = (*_EFFECT, *_RULE)
_ALL = ("effect", "rule", "weighted")
_EVERY = (*_ALL, "ranges")

#: In the order in which they are read.
CAVEATS = (
    Caveat("weak-epsilon", "warns", _EVERY, lambda r: r.whole_guarantee.epsilon > WEAK),
    Caveat("weak-delta", "warns", _ALL, lambda r: r.guarantee.delta * r.n_samples > 1.0),
    Caveat("noise-dominates", "warns", _RULE, lambda r: r.flipped_share >= LITTLE),
    Caveat("noise-dominates", "warns", _WEIGHTED, lambda r: getattr(r.moved, "dominates", False)),
    Caveat("confounded", "warns", _RULE, lambda r: (r.residual_bias or 0.0) > HARDLY, False),
    Caveat("unbalanced", "warns", _WEIGHTED, lambda r: (r.residual_imbalance or 0.0) > HARDLY),
    Caveat("arms-apart", "warns", _EFFECT, lambda r: not r.overlaps, False),
    Caveat("some-arms-apart", "warns", _EFFECT, lambda r: r.overlaps and r.apart),
    Caveat("scale", "warns", _EFFECT, lambda r: r.clipped_residuals, False),
    Caveat("no-overlap", "warns", _EFFECT, lambda r: r.capped > APART, False),
    Caveat("overlap", "warns", _EFFECT, lambda r: CAPPED < r.capped <= APART),
    Caveat("widened", "warns", _EFFECT, lambda r: r.overlaps and farther_apart(r)),
    Caveat("far-apart", "warns", _EFFECT, _far_apart),
    Caveat("events-far-apart", "warns", _EFFECT, _events_far_apart, False),
    Caveat("narrow", "warns", _LEARNED, narrow_numbers, False),
    Caveat("rare-level", "warns", _LEARNED, rare_levels),
    Caveat("few-records", "warns", _EFFECT, lambda r: r.few),
    Caveat("skewed-residuals", "warns", _EFFECT, lambda r: r.skewed, False),
    Caveat("skewed-means", "warns", _LEARNED, _skewed_means),
    Caveat("clipped-tail", "warns", _LEARNED, lambda r: _one_sided(r) and cuts_residuals(r)),
    Caveat("score", "notes", _EFFECT, lambda r: r.target != "effect", False),
    Caveat("score-is-effect", "assumes", _EFFECT, lambda r: r.target != "effect"),
    Caveat("trial", "assumes", _EFFECT, lambda r: r.target == "effect" and known_propensity(r)),
    Caveat("effect", "notes", _EFFECT, by_regressions),
    Caveat(
        "weights-population",
        "notes",
        _EFFECT,
        lambda r: by_regressions(r) and r.estimand == "overlap",
    ),
    Caveat("linear", "assumes", _EFFECT, by_regressions),
    Caveat("scheme", "notes", _EFFECT, lambda r: r.weighting),
    Caveat("scheme-models", "assumes", _EFFECT, lambda r: r.weighting),
    Caveat("scheme-complete", "assumes", _EFFECT, lambda r: r.weighting and r.public.weighted),
    Caveat("means", "details", _EFFECT, lambda r: by_regressions(r) and not has_step(r, "mean")),
    Caveat(
        "spreads", "details", _EFFECT, lambda r: by_regressions(r) and not has_step(r, "spread")
    ),
    Caveat("alike", "assumes", _LEARNED, _alike),
    Caveat("confounding", "details", _EFFECT, by_regressions),
    Caveat("heterogeneity", "details", _EFFECT, _varies),
    Caveat("declared", "details", _EFFECT, by_regressions),
    Caveat("persons", "notes", _EFFECT, _of_persons),
    Caveat("independent-persons", "assumes", _EFFECT, _of_persons),
    Caveat("groups", "assumes", _EFFECT, lambda r: by_regressions(r) and r.groups),
    Caveat("arms", "notes", _EFFECT, lambda r: r.arms is not None),
    Caveat("arms-means", "assumes", _EFFECT, lambda r: r.arms is not None and not r.is_risk),
    Caveat("arms-events", "assumes", _EFFECT, _arms_of_events),
    Caveat("larger", "notes", (*_RULE, *_WEIGHTED), _larger_is_better),
    Caveat("gains", "notes", _RULE, lambda r: r.gains),
    Caveat("sign", "assumes", _RULE, lambda r: True),
    Caveat("remaining-bias", "notes", _RULE, lambda r: r.residual_bias is not None),
    Caveat("skewed", "excludes", _RULE, lambda r: r.settings.get("response_bound") is None),
    Caveat("balanced", "assumes", _WEIGHTED, lambda r: True),
    Caveat("remaining-imbalance", "notes", _WEIGHTED, lambda r: r.residual_imbalance is not None),
    Caveat("private-weights", "excludes", _WEIGHTED, lambda r: has_step(r, "propensity")),
    Caveat("group-confounds", "excludes", _EFFECT, _group_confounds),
    Caveat("event", "excludes", _EFFECT, _perhaps_event),
    Caveat("released-ranges", "excludes", _ALL, lambda r: r.public.released),
    Caveat("missing", "excludes", _ALL, may_be_missing),
    Caveat("not-covered", "excludes", _ALL, lambda r: True),
)


def caveats_of(release: Any) -> Iterator[Caveat]:
    """Caveats that hold for a release, in the order of the table."""
    return (caveat for caveat in CAVEATS if release.goal in caveat.goals and caveat.when(release))
