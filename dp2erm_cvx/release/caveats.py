"""Caveats that a reader has to know beside the numbers: their codes, and when each of them holds.

Where one of them says that an interval is no confidence interval, no headline calls it one. The
sentence of each code stands in ``dp2erm_cvx.report.caveats``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """Columns that may be missing where records count, and are then a constant, or a level."""
    book = release.domain.get("codebook")
    if not book:
        return []
    columns = _columns_by_covariate(book)
    named = dict.fromkeys(columns.get(name, name) for name in release.columns)
    left_out = _never_missing(book)
    made = _terms(release.columns)
    return [column for column in named if column not in left_out and column not in made]


def _columns_by_covariate(book: Mapping[str, Any]) -> dict[str, str]:
    """The column of every covariate that says whether a record has a level, or has a gap."""
    columns = {}
    for column, levels in book.get("levels", {}).items():
        for level in levels:
            columns[f"{column}={level or 'missing'}"] = column
    for column in book.get("missing", {}):
        columns[f"{column}=missing"] = column
    return columns


def _never_missing(book: Mapping[str, Any]) -> set[str]:
    """Columns that are known of every record that counts, by the conditions of a codebook."""
    known = set(book.get("where", {}))
    for text in book.get("eligible", ()):
        if " or " not in text and '""' not in text:
            known.update(Eligible(text).columns)
    return known


def _terms(names: Sequence[str]) -> set[str]:
    """Names of the squares and of the products of covariates."""
    squares = {f"{name}^2" for name in names}
    products = {f"{first} x {second}" for first, second in itertools.product(names, names)}
    return squares | products


def has_step(release: Any, name: str) -> bool:
    """True if a step of this name was released."""
    return any(step.step == name for step in release.steps)


def cuts_residuals(release: Any) -> bool:
    """True if residuals are clipped, of an outcome that is no event."""
    if release.domain.get("binary_outcome"):
        return False
    largest = 2.0 * float(release.domain["outcome_bound"])
    if float(release.settings["residual_bound"]) < largest:
        return True
    if release.goal == "rule":
        # On a side of the rule an arm may be rarer than in all.
        return not known_propensity(release)
    # Weighted residuals of several arms have a bound of their own.
    arms = getattr(release, "arms", None)
    if arms is None:
        return False
    return bool(float(release.settings["score_bound"]) < len(arms.means) * largest)


def rare_levels(release: Any) -> list[str]:
    """Levels whose released mean square may be noise alone: hardly any record has them, or all."""
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
    if not by_regressions(release) or release.settings["rows"] != "common":
        return False
    unbiased = "controls" if release.estimand == "att" else "matched"
    return bool(release.settings["arms"] != unbiased)


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
    if release.distance is None or not by_regressions(release):
        return False
    return surely_more(release.distance.least, float(release.settings["confounding"]))


def farthest(release: Any) -> float:
    """How far apart the arms are taken to lie: as declared, or as released where that is more."""
    if farther_apart(release):
        return float(release.distance.estimate)
    return float(release.settings["confounding"])


def _far_apart(release: Any) -> bool:
    """True if arms are declared so far apart that another pipeline errs less than what answered."""
    if release.domain.get("binary_outcome"):
        return False
    settings = release.settings
    return others_err_less(
        release.estimand,
        settings["propensity"],
        settings["confounding"],
        release.public.codebook,
    )


def _events_far_apart(release: Any) -> bool:
    """True if arms lie so far apart that intervals of two values hold too rarely."""
    two_values = bool(release.domain.get("binary_outcome"))
    propensity = release.settings["propensity"]
    return misses_events(release.estimand, propensity, farthest(release), two_values)


def _perhaps_event(release: Any) -> bool:
    """True if outcomes lie between 0 and 1, and may be those of an event that is not declared."""
    domain = release.domain
    middle = domain.get("outcome_center", 0.0) == 0.5 == domain["outcome_bound"]
    return middle and not release.risks and not domain.get("binary_outcome", False)


def _one_sided(release: Any) -> bool:
    """True if an effect or a gain is of an outcome from 0 on, by its range, and of no event."""
    domain = release.domain
    if domain.get("binary_outcome"):
        return False
    if domain.get("outcome_center", 0.0) != float(domain["outcome_bound"]):
        return False
    if release.goal == "rule":
        return bool(release.gains)
    return not release.risks


def _skewed_means(release: Any) -> bool:
    """True if a regression alone adjusts a one-sided outcome, and no sums show its skew."""
    if not _one_sided(release):
        return False
    if release.goal == "rule":
        return not known_propensity(release)
    if not by_regressions(release) or release.settings["propensity"] != "constant":
        return False
    return release.estimand != "att" or bool(release.public.uneven)


def _clipped_tail(release: Any) -> bool:
    """True if residuals of a one-sided outcome are clipped."""
    return _one_sided(release) and cuts_residuals(release)


def _larger_is_better(release: Any) -> bool:
    """True if what was released is a rule of treatment."""
    return release.goal == "rule" or str(release.second_stage["name"]).startswith("itr")


def _group_confounds(release: Any) -> bool:
    """True if an effect by group was not adjusted for the levels of the group."""
    if release.by is None:
        return False
    return not any(name.startswith(f"{release.by}=") for name in release.columns)


def _arms_of_events(release: Any) -> bool:
    """True if mean outcomes of several arms are risks by regressions."""
    return release.arms is not None and release.is_risk and by_regressions(release)


def others_err_less(
    estimand: str, propensity: object, distance: float, book: Codebook | None
) -> bool:
    """Whether a regression alone, or a scheme, could err less than inverse propensities.

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
    """Whether the interval of an effect on two values holds less often than it says (measured).

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


def _weak_epsilon(release: Any) -> bool:
    """True if epsilon, with that of released ranges, is larger than mostly advised."""
    return bool(release.whole_guarantee.epsilon > WEAK)


def _weak_delta(release: Any) -> bool:
    """True if delta allows that a record of the dataset is published."""
    return bool(release.guarantee.delta * release.n_samples > 1.0)


def _flips_many(release: Any) -> bool:
    """True if noise is predicted to flip many decisions of a rule."""
    return bool(release.flipped_share >= LITTLE)


def _noise_dominates(release: Any) -> bool:
    """True if noise is predicted to dominate theta."""
    return bool(getattr(release.moved, "dominates", False))


def _leaves_bias(release: Any) -> bool:
    """True if much of a bias is predicted to stay."""
    return bool((release.residual_bias or 0.0) > HARDLY)


def _leaves_imbalance(release: Any) -> bool:
    """True if much of a difference between the arms is predicted to stay."""
    return bool((release.residual_imbalance or 0.0) > HARDLY)


def _hardly_overlaps(release: Any) -> bool:
    """True if the arms lie so far apart that no interval is stated."""
    return not release.overlaps


def _some_hardly_overlap(release: Any) -> bool:
    """True if some of several arms, and not those of the first contrast, hardly overlap."""
    return bool(release.overlaps and release.apart)


def _clips_residuals(release: Any) -> bool:
    """True if the declared scale is too small, by the released squares of residuals."""
    return bool(release.clipped_residuals)


def _mostly_capped(release: Any) -> bool:
    """True if the cap cuts off so many propensities that one arm says little of the other."""
    return bool(release.capped > APART)


def _partly_capped(release: Any) -> bool:
    """True if the cap cuts off some propensities."""
    return bool(CAPPED < release.capped <= APART)


def _widened(release: Any) -> bool:
    """True if an interval allows for a released distance of the arms."""
    return release.overlaps and farther_apart(release)


def _has_few_records(release: Any) -> bool:
    """True if an arm may have too few records of a rare level."""
    return bool(release.few)


def _skewed(release: Any) -> bool:
    """True if the released sums show skewed residuals."""
    return bool(release.skewed)


def _for_the_score(release: Any) -> bool:
    """True if the interval is for the mean score, whatever that is."""
    return bool(release.target != "effect")


def _of_a_trial(release: Any) -> bool:
    """True if an interval for the effect rests on a public propensity."""
    return release.target == "effect" and known_propensity(release)


def _of_overlap(release: Any) -> bool:
    """True if regressions answer for the overlap population."""
    return by_regressions(release) and release.estimand == "overlap"


def _weighs_incomplete(release: Any) -> bool:
    """True if the weights of a scheme answered where records may not count."""
    return bool(release.weighting and release.public.weighted)


def _by_a_scheme(release: Any) -> bool:
    """True if the weights of a scheme answered."""
    return bool(release.weighting)


def _without_means(release: Any) -> bool:
    """True if no mean of covariates was released for an effect by regressions."""
    return by_regressions(release) and not has_step(release, "mean")


def _without_spreads(release: Any) -> bool:
    """True if no mean square of covariates was released for an effect by regressions."""
    return by_regressions(release) and not has_step(release, "spread")


def _groups_by_regressions(release: Any) -> bool:
    """True if effects in groups rest on regressions."""
    return by_regressions(release) and bool(release.groups)


def _arms_of_means(release: Any) -> bool:
    """True if mean outcomes of several arms are no risks."""
    return release.arms is not None and not release.is_risk


def _several_arms(release: Any) -> bool:
    """True if the treatment has more than two arms."""
    return release.arms is not None


def _says_gains(release: Any) -> bool:
    """True if a rule says what it is worth."""
    return bool(release.gains)


def _always(_release: Any) -> bool:
    """True of every release."""
    return True


def _predicts_bias(release: Any) -> bool:
    """True if it is predicted how much of a bias stays."""
    return release.residual_bias is not None


def _saturates(release: Any) -> bool:
    """True if the loss of a rule saturates."""
    return release.settings.get("response_bound") is None


def _predicts_imbalance(release: Any) -> bool:
    """True if it is predicted how much of a difference between the arms stays."""
    return release.residual_imbalance is not None


def _private_coefficient(release: Any) -> bool:
    """True if weights rest on a released propensity."""
    return has_step(release, "propensity")


def _on_released_ranges(release: Any) -> bool:
    """True if ranges of the domain were released."""
    return bool(release.public.released)


_EFFECT = ("effect",)
_RULE = ("rule",)
_WEIGHTED = ("weighted",)
_LEARNED = (*_EFFECT, *_RULE)
_ALL = ("effect", "rule", "weighted")
_EVERY = (*_ALL, "ranges")

#: In the order in which they are read.
CAVEATS = (
    Caveat("weak-epsilon", "warns", _EVERY, _weak_epsilon),
    Caveat("weak-delta", "warns", _ALL, _weak_delta),
    Caveat("noise-dominates", "warns", _RULE, _flips_many),
    Caveat("noise-dominates", "warns", _WEIGHTED, _noise_dominates),
    Caveat("confounded", "warns", _RULE, _leaves_bias, False),
    Caveat("unbalanced", "warns", _WEIGHTED, _leaves_imbalance),
    Caveat("arms-apart", "warns", _EFFECT, _hardly_overlaps, False),
    Caveat("some-arms-apart", "warns", _EFFECT, _some_hardly_overlap),
    Caveat("scale", "warns", _EFFECT, _clips_residuals, False),
    Caveat("no-overlap", "warns", _EFFECT, _mostly_capped, False),
    Caveat("overlap", "warns", _EFFECT, _partly_capped),
    Caveat("widened", "warns", _EFFECT, _widened),
    Caveat("far-apart", "warns", _EFFECT, _far_apart),
    Caveat("events-far-apart", "warns", _EFFECT, _events_far_apart, False),
    Caveat("narrow", "warns", _LEARNED, narrow_numbers, False),
    Caveat("rare-level", "warns", _LEARNED, rare_levels),
    Caveat("few-records", "warns", _EFFECT, _has_few_records),
    Caveat("skewed-residuals", "warns", _EFFECT, _skewed, False),
    Caveat("skewed-means", "warns", _LEARNED, _skewed_means),
    Caveat("clipped-tail", "warns", _LEARNED, _clipped_tail),
    Caveat("score", "notes", _EFFECT, _for_the_score, False),
    Caveat("score-is-effect", "assumes", _EFFECT, _for_the_score),
    Caveat("trial", "assumes", _EFFECT, _of_a_trial),
    Caveat("effect", "notes", _EFFECT, by_regressions),
    Caveat(
        "weights-population",
        "notes",
        _EFFECT,
        _of_overlap,
    ),
    Caveat("linear", "assumes", _EFFECT, by_regressions),
    Caveat("scheme", "notes", _EFFECT, _by_a_scheme),
    Caveat("scheme-models", "assumes", _EFFECT, _by_a_scheme),
    Caveat("scheme-complete", "assumes", _EFFECT, _weighs_incomplete),
    Caveat("means", "details", _EFFECT, _without_means),
    Caveat("spreads", "details", _EFFECT, _without_spreads),
    Caveat("alike", "assumes", _LEARNED, _alike),
    Caveat("confounding", "details", _EFFECT, by_regressions),
    Caveat("heterogeneity", "details", _EFFECT, _varies),
    Caveat("declared", "details", _EFFECT, by_regressions),
    Caveat("persons", "notes", _EFFECT, _of_persons),
    Caveat("independent-persons", "assumes", _EFFECT, _of_persons),
    Caveat("groups", "assumes", _EFFECT, _groups_by_regressions),
    Caveat("arms", "notes", _EFFECT, _several_arms),
    Caveat("arms-means", "assumes", _EFFECT, _arms_of_means),
    Caveat("arms-events", "assumes", _EFFECT, _arms_of_events),
    Caveat("larger", "notes", (*_RULE, *_WEIGHTED), _larger_is_better),
    Caveat("gains", "notes", _RULE, _says_gains),
    Caveat("sign", "assumes", _RULE, _always),
    Caveat("remaining-bias", "notes", _RULE, _predicts_bias),
    Caveat("skewed", "excludes", _RULE, _saturates),
    Caveat("balanced", "assumes", _WEIGHTED, _always),
    Caveat("remaining-imbalance", "notes", _WEIGHTED, _predicts_imbalance),
    Caveat("private-weights", "excludes", _WEIGHTED, _private_coefficient),
    Caveat("group-confounds", "excludes", _EFFECT, _group_confounds),
    Caveat("event", "excludes", _EFFECT, _perhaps_event),
    Caveat("released-ranges", "excludes", _ALL, _on_released_ranges),
    Caveat("missing", "excludes", _ALL, may_be_missing),
    Caveat("not-covered", "excludes", _ALL, _always),
)


def caveats_of(release: Any) -> Iterator[Caveat]:
    """Caveats that hold for a release, in the order of the table."""
    for caveat in CAVEATS:
        if release.goal in caveat.goals and caveat.when(release):
            yield caveat
