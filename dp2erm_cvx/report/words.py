"""Text that every release has on its guarantee, on whom it is about and on what was declared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.calibration import EXACT_ARITHMETIC, Perturbed
from dp2erm_cvx.data.cells import Treatment
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.display import READ_DIGITS, digits_of, grid, law_text, pairs
from dp2erm_cvx.privacy import Neighboring, Standing
from dp2erm_cvx.release.declaration import together
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.interval import EffectInterval
from dp2erm_cvx.release.record import FITTED_BEFORE, BaseRelease, Guarantee, StepStatement
from dp2erm_cvx.release.two_stage import Release
from dp2erm_cvx.steps.step import RELEASED

if TYPE_CHECKING:
    from rich.table import Table

#: What stands for the promise where there is none.
_NONE = {
    Standing.NOT_PRIVATE: (
        "NONE. The noise came from a seed: anybody can draw it again and subtract it. Seeded "
        "releases are for tests; do not publish this one."
    ),
    Standing.UNPROVEN: (
        "NONE that is proven. The noise was calibrated by a rule that no theorem here certifies. "
        "Do not publish this as differentially private."
    ),
}
#: What readers call the objects that settings are named for.
_CALLED = {"center": "outcome regression", "score": "estimate of one record"}
#: Labels of the treated that say no more than the name of the column.
_YES = ("1", "yes", "y", "true", "treated")
#: Labels of controls that say no more than the name of the column.
_NO = ("0", "no", "n", "false", "control", "untreated")
#: What is estimated, for whom, and what a headline adds.
ESTIMANDS = {
    "ate": ("Private average effect", "treated and untreated alike", ""),
    "att": ("Private effect among the treated", "the treated alone", " among the treated"),
    "overlap": (
        "Private effect where either treatment is likely",
        "each counted by min(e, 1 - e) of the released propensity e",
        " where either treatment is likely",
    ),
    "risks": (
        "Private risks under both treatments",
        "treated and untreated alike",
        ", as a risk difference",
    ),
}
#: What is released of all records: those without treatment have a fixed one in their place.
_FIXED = ("weighted", "ranges")
#: How an assumption starts that says how rounding is covered.
_ROUNDED = "arithmetic is counted: "
#: Assumptions that tell readers nothing.
_NOTHING = ("every weight is 1", "weights are 1", EXACT_ARITHMETIC)


def compared(release: BaseRelease) -> tuple[str, str]:
    """Treatment and outcome, by the names of the table where they are declared."""
    book = release.public.codebook or Codebook()
    return _treatment_name(book.treatment), book.outcome or "the outcome"


def _treatment_name(treatment: Treatment) -> str:
    """The treatment by its column, its labels, or both where a label alone says nothing."""
    column = treatment.column
    if column is None or treatment.levels:
        return column or "treatment"
    treated = str(treatment.treated)
    control = str(treatment.control)
    against = f" against {control}"
    if control.lower() in _NO:
        against = ""
    other_number = control not in _NO and _is_number(control)
    if treated.lower() in _YES and not other_number:
        return f"{column}{against}"
    if treated.lower() in (*_YES, *_NO) or _is_number(treated):
        return f"{column} {treated} against {control}"
    return f"{treated}{against}"


def _is_number(label: str) -> bool:
    """Whether a label is a number without a sign."""
    return label.replace(".", "").isdigit()


def unit_of(release: BaseRelease) -> str:
    """Unit in which the outcome is measured, as it was declared; none for a difference of risks."""
    book = release.domain.get("codebook") or {}
    if isinstance(release, EffectRelease) and release.is_risk:
        return ""
    return str(book.get("units", {}).get(book.get("outcome"), "units of the outcome"))


#: How many names a sentence lists.
_LISTED = 3


def named_few(names: Sequence[str], last: str = "and") -> str:
    """Names in a sentence: all of them, or the first ones and how many others there are."""
    shown = list(names)
    if len(shown) > _LISTED:
        shown = [*shown[: _LISTED - 1], f"{len(shown) - _LISTED + 1} others"]
    *first, end = shown
    if not first:
        return end
    return f"{', '.join(first)} {last} {end}"


def adjusted(release: BaseRelease) -> str:
    """What is adjusted for, in a sentence: columns of the table, not their levels."""
    book = release.public.codebook or Codebook()
    columns = dict.fromkeys(book.origin(name)[0] for name in release.columns)
    return named_few(list(columns))


def guaranteed(release: BaseRelease) -> list[tuple[str, str]]:
    """Lines on what holds, by which theorems, and what that rests on."""
    guarantee = release.guarantee
    rests = together(release.public, guarantee.epsilon, guarantee.delta)
    assumed = [text for text in guarantee.assumptions if text not in (*_NOTHING, rests)]
    rounding = "Rounding errors are NOT covered: exact arithmetic is assumed."
    if release.declared.get("arithmetic") == "counted":
        assumed = [text for text in assumed if not text.startswith(_ROUNDED)]
        rounding = "Rounding errors are covered by the guarantee."
    lines = [("guarantee", meaning(release))]
    if rests:
        lines.append(("ranges", f"{rests[0].upper()}{rests[1:]}."))
    theorems = f"{guarantee.theorem}; {guarantee.stability_theorem}"
    lines.append(("theorems", _for_readers(theorems)))
    if assumed:
        lines.append(("assuming", _for_readers("; ".join(assumed))))
    lines.append(("rounding", rounding))
    book = release.domain.get("codebook")
    if book is not None:
        fixed = release.goal in _FIXED
        lines.append(("cells", Codebook.from_dict(book).in_words(fixed=fixed)))
    return lines


def _for_readers(text: str) -> str:
    """A text of proofs, in which a weight of a record is called a factor."""
    return text.replace("factor", "weight")


def _condition(release: BaseRelease) -> str:
    """Condition of the promise beside its theorems, or that nothing is promised.

    It is empty where the promise simply holds.
    """
    guarantee = release.guarantee
    if guarantee.standing in _NONE:
        return _NONE[guarantee.standing]
    conditions = []
    if guarantee.standing is Standing.CONDITIONAL:
        conditions.append(
            "this release is the exact solution of the declared problem, up to a proven distance"
        )
    # of several releases together each may have a Pipeline of its own
    conditions += [one for one in guarantee.assumptions if one.endswith(FITTED_BEFORE)]
    if not conditions:
        return ""
    holds = ", and if ".join(conditions)
    return f"CONDITIONAL: what follows holds if {holds}. Nothing establishes that."


def meaning(release: BaseRelease) -> str:
    """The guarantee in one sentence, after its condition. Numbers are rounded up."""
    guarantee = release.whole_guarantee
    law = law_text(guarantee, digits=READ_DIGITS)
    condition = _condition(release)
    if guarantee.standing in _NONE:
        return f"{condition} Its plan: {law}, {guarantee.relation}."
    rests = ""
    if release.public.released:
        rests = ", the released ranges that it rests on included,"
    sentence = (
        f"Replacing any one of the {release.n_samples:,} {_replaced(release)} changes the "
        f"probability of any result{rests} by a factor of at most {largest_factor(guarantee)} "
        f"({law})."
    )
    return f"{condition} {sentence}".lstrip()


def _replaced(release: BaseRelease) -> str:
    """Clause on what is replaced, and by what."""
    if units_of(release) == "persons":
        return "persons, with all of their records, by any other, of any number of records"
    if _keeps_treatment(release):
        return "records by any other with the same treatment"
    return "records by any other"


def _keeps_treatment(release: BaseRelease) -> bool:
    """Whether neighbors agree in the treatment of the record that is replaced."""
    return release.guarantee.relation is Neighboring.REPLACE_ONE_KEEP_TREATMENT


def noise_of(step: StepStatement) -> str:
    """The law of the noise of a step in a word: on numbers, gamma noise is Laplace noise."""
    if step.step == "ranges":
        return "exponential"
    if step.noise.value == "gamma" and not step.gamma:
        return "Laplace"
    return step.noise.value


def spent_by_step(release: BaseRelease) -> Table:
    """Table of what every step released, and what it cost."""
    rows = []
    for step in release.steps:
        epsilon = digits_of(step.epsilon, 4)
        delta = digits_of(step.delta, 2)
        rows.append((_releases_of(step), noise_of(step), epsilon, delta))
    return grid("released", "noise", "epsilon", "delta", left=2, rows=rows)


def taken_over(release: BaseRelease) -> Iterator[str]:
    """Lines on the steps of an earlier question of the same study, and what of epsilon they are."""
    owners: dict[str, list[StepStatement]] = {}
    for step in release.steps:
        if step.step in release.before:
            owner = release.before[step.step]["of"]
            owners.setdefault(owner, []).append(step)
    for owner, steps in owners.items():
        epsilon = digits_of(math.fsum(step.epsilon for step in steps), 4, left=True)
        released = ", ".join(_releases_of(step) for step in steps)
        yield (
            f"Released once, by the question {owner} of the same study: {released}. Of this "
            f"epsilon {epsilon} is spent there: an account is charged once for both."
        )


def _releases_of(step: StepStatement) -> str:
    """What a step releases, in words."""
    return RELEASED.get(step.step, step.theorem)


def units_of(release: BaseRelease) -> str:
    """Who or what is protected, in the plural: records, or persons with all of theirs."""
    return "records" if release.public.units is None else "persons"


def promised(release: BaseRelease) -> tuple[list[str], list[str]]:
    """Sentences on a promise, for readers.

    Returns
    -------
    What one record can change, and what a reader can learn; the latter is empty where nothing is
    promised.
    """
    if release.guarantee.standing in _NONE:
        return [_condition(release)], []
    return list(_changes(release)), list(_learned(release))


def _changes(release: BaseRelease) -> Iterator[str]:
    """Sentences on what one record can change."""
    yield meaning(release)
    if _keeps_treatment(release):
        yield "The treatment of a record is NOT protected; its covariates and its outcome are."
    rests = together(release.public, release.guarantee.epsilon, release.guarantee.delta)
    if rests:
        yield f"{rests[0].upper()}{rests[1:]}."
    floor = release.domain.get("arm_floor")
    if floor:
        yield (
            f"It is promised for data with at least {floor:g} records in each arm, as was declared."
        )


def _learned(release: BaseRelease) -> Iterator[str]:
    """Sentences on what a reader can learn."""
    units = units_of(release)
    yield (
        f"Who knows all other {units}, and that this one is one of two, guesses which with "
        f"probability at most {largest_guess(release.whole_guarantee)}, instead of one half."
    )
    alone = "A person with several records is protected less. " if units == "records" else ""
    yield (
        f"{alone}Not hidden: the number of {units}, and what holds for the population. Every "
        "other release from these data weakens the promise."
    )


#: Powers of ten from which on a factor is told as one.
_POWERS = 6.0


def largest_factor(guarantee: Guarantee) -> str:
    """``e^epsilon``, and delta on top, rounded up."""
    power = guarantee.epsilon / math.log(10.0)
    if power > _POWERS:
        factor = f"10^{math.ceil(power)}"
    else:
        factor = digits_of(math.exp(guarantee.epsilon), 3)
    if "e+" in factor:
        factor = f"{float(factor):,.0f}"
    if not guarantee.delta:
        return factor
    return f"{factor}, plus {digits_of(guarantee.delta, READ_DIGITS)}"


def largest_guess(guarantee: Guarantee) -> str:
    """The best probability to tell two neighbors apart, ``(e^epsilon + delta) / (e^epsilon + 1)``.

    No test of two neighbors has a higher sum of power and specificity than
    ``1 + (e^epsilon - 1 + 2 delta) / (e^epsilon + 1)``, as both pairs of errors obey
    ``P(S) <= e^epsilon Q(S) + delta``.
    """
    missed = (1.0 - guarantee.delta) / (1.0 + math.exp(min(guarantee.epsilon, 700.0)))
    # to two digits of what is missing to 1, rounded down
    least = float(digits_of(missed, 2, left=True))
    return "1" if least < 1e-6 else f"{1.0 - least:.7f}".rstrip("0")


def gaps(release: Any) -> str:
    """Cells without which a record does not count, in words; nothing where every record counts."""
    book = release.public.codebook
    if book is None or release.goal in _FIXED:
        return ""
    if book.outcome in book.missing:
        return "treatment"
    return "treatment or outcome"


def population(release: Any) -> str:
    """Whom a release is about, as far as eligibility, missing cells and sampling weights say."""
    weights = release.public.sampling
    book = release.public.codebook or Codebook()
    whom = f"the {release.n_samples:,} {units_of(release)}"
    conditions = list(book.eligible)
    conditions += [f"{column} is {level or 'missing'}" for column, level in book.where.items()]
    which = []
    needed = gaps(release).replace(" or ", " and ")
    if needed:
        which.append(f"that have {needed}")
    if conditions:
        which.append(f"where {' and '.join(conditions)}")
    if which:
        whom = f"those of {whom} {' '.join(which)}"
    if weights is None:
        return whom
    return f"whom {whom} stand for by the weights in {weights.column}"


#: What the noise of an average effect was multiplied with when it got a denominator of its own.
_OF_DENOMINATOR = 17 / 16


def sampled(release: Any, *, interval: bool = False) -> Iterator[str]:
    """How many records count, and what sampling weights cost.

    Parameters
    ----------
    release
        Of any kind.
    interval
        Whether it has intervals: these do not count the design of a survey.
    """
    counted = getattr(release, "counted", None)
    if counted is not None and release.public.codebook is not None:
        yield _records_that_count(release, release.public.codebook, counted)
    weights = release.public.sampling
    if weights is None:
        return
    times = 1.0 / weights.mass
    if getattr(release, "estimand", "") == "ate":
        times = _OF_DENOMINATOR / weights.mass
    yield (
        f"Sampling weights count from 0 to the public bound {weights.largest:g}. Larger ones are "
        f"clipped: who stands for many counts too little. Where they average {weights.mean:g}, "
        f"which is a guess, noise is up to {times:.3g} times that of equal weights."
    )
    if interval:
        yield (
            "The interval takes records to be drawn independently. Strata, which mostly allow a "
            "shorter one, and clusters, which need a longer one, are not counted."
        )


def _records_that_count(release: Any, book: Codebook, counted: float) -> str:
    """Sentence on how many records count, and which do not."""
    uncounted = [f"those without {gaps(release)}"]
    if book.eligible or book.where:
        uncounted.append("those not eligible")
    if book.group is not None:
        uncounted.append(f"those of no declared {book.group}")
    whose = f"of the {release.n_samples:,} {units_of(release)} count"
    if book.unit is not None and book.unit.count > 1:
        whose = (
            f"persons with {book.unit.count} records each count as much as the "
            f"{release.n_samples:,} do"
        )
    return (
        f"About {max(counted, 0.0):,.0f} {whose}, noise included; {' and '.join(uncounted)} do not."
    )


def calibrated(release: Release) -> Table:
    """The noise of theta, and what it is scaled to."""
    step = release.mechanism
    propensity = release.step("propensity")
    output = step.perturbed is Perturbed.OUTPUT
    rows = [("calibration", step.reason or "")]
    if propensity is not None:
        noise = (
            f"{propensity.noise} noise of scale {propensity.scale:.4g}, gamma "
            f"{propensity.gamma:.4g}"
        )
        rows.append(("propensity", f"{noise} ({propensity.theorem})"))
    law = "Laplace" if output else step.noise
    share = ""
    if step.split is not None and not output:
        of = "epsilon" if propensity is None else "what is left"
        share = f", {step.split:.0%} of {of}"
    rows += [
        ("noise", f"{law}, scale {step.scale:.6g}{share}"),
        ("perturbed", str(step.perturbed)),
        ("gamma", f"{step.gamma:.6g}"),
        ("stability V", f"{step.stability:.6g} (largest weight {step.weight_bound:.4g})"),
        ("sensitivity", f"{step.sensitivity:.6g}{_as_product(step)}"),
    ]
    numerical = step.numerical
    if numerical is not None and not output:
        hidden = (
            f"on multiples of 2^{numerical.grid_exponent}, 2 x {digits_of(numerical.epsilon, 3)} "
            "of epsilon"
        )
        rows.append(
            ("arithmetic", f"discrete Laplace noise of scale {numerical.scale:.2g} {hidden}")
        )
    return pairs(rows)


def _as_product(step: StepStatement) -> str:
    """The sensitivity as a gradient radius times V; nothing where it is none.

    The paper multiplies by its own, uncentered gradient bound, and Theorem 7 by another radius.
    """
    radius = step.gradient_radius
    if radius is None or not math.isclose(step.sensitivity or 0.0, radius * step.stability):
        return ""
    return f" = {radius:.6g} x V"


def clips(release: EffectRelease) -> Table:
    """Every bound that a record was clipped to."""
    rows = [(name, f"{low:.4g}", f"{high:.4g}") for name, low, high in _clip_ends(release)]
    return grid("clipped by public rule", "from", "to", rows=rows)


def _clip_ends(release: EffectRelease) -> Iterator[tuple[str, float, float]]:
    """What is clipped, and both ends."""
    domain = release.public
    yield (
        _outcome_name(domain),
        domain.outcome_center - domain.outcome_bound,
        domain.outcome_center + domain.outcome_bound,
    )
    residual_bound = float(release.settings["residual_bound"])
    yield "residual of the outcome regression", -residual_bound, residual_bound
    score_bound = float(release.settings["score_bound"])
    if release.arms is not None:
        of = "weighted residual, of an arm that all arms are as large as"
        yield of, -score_bound, score_bound
    elif release.weighting is None:
        yield "estimate of one record, less the middle", -score_bound, score_bound
    least = 1.0 / float(release.settings["cap"])
    if release.arms is not None:
        yield "probability of an arm", least, 1.0
    elif release.weighting is None and release.estimand == "att":
        yield "propensity of treatment", 0.0, 1.0 - least
    elif release.weighting is None and release.estimand != "overlap":
        # the weights of overlap need no cap
        yield "propensity of treatment", least, 1.0 - least
    yield "norm of the scaled covariates", 0.0, domain.features_bound


def _outcome_name(domain: Domain) -> str:
    """What is clipped of the outcome: a declared cost of treatment is taken off before."""
    if domain.treatment_cost:
        return "net outcome"
    return "outcome"


def declared_tables(release: BaseRelease) -> Iterator[Table]:
    """The range or the levels of every covariate, then all other declarations."""
    domain = release.public
    if domain.ranges is not None:
        yield _covariates(domain, release.columns)
    yield pairs(list(declared_facts(release)))


def declared_facts(release: BaseRelease) -> Iterator[tuple[str, str]]:
    """Lines on what is declared beside the covariates, and how it reads."""
    domain = release.public
    yield from _declared_units(release)
    if release.goal != "effect":  # which has a table of all that it clips
        yield _declared_outcome(domain)
    if domain.treatment_cost:
        yield (
            "treatment cost",
            f"{domain.treatment_cost:g} in units of the outcome, for every treated record",
        )
    yield "norm", f"scaled covariates are shrunk to at most {domain.features_bound:.4g}"
    if domain.sampling is not None:
        yield "sampling weights", domain.sampling.in_words()
    if domain.arm_floor:
        yield "arms", f"at least {domain.arm_floor:,} records in each"
    yield "neighbors", str(domain.relation)
    for which in ("first", "second"):
        if which in release.declared:
            stage = release.declared[which]
            settings_of_stage = _settings_text(stage.get("settings"), ": ")
            yield f"{which} stage", f"{stage.get('name')}{settings_of_stage}"
    settings: Any = getattr(release, "settings", None)
    if isinstance(settings, Mapping):
        # where no center of the effect is declared, it is one that was released
        declared = {name: value for name, value in settings.items() if name != "effect_center"}
        yield "settings", _settings_text(declared)


def _declared_units(release: BaseRelease) -> Iterator[tuple[str, str]]:
    """Lines on who or what is protected, and on their public number."""
    book = release.public.codebook
    number = f"{release.n_samples:,}, a public number"
    if book is None or book.unit is None:
        yield "records", number
        return
    yield "persons", number
    yield (
        "unit",
        f"a person, with all records of the same {book.unit.column}; their number is private",
    )


def _declared_outcome(domain: Domain) -> tuple[str, str]:
    """Line on the bounds that the outcome is clipped to."""
    low = domain.outcome_center - domain.outcome_bound
    high = domain.outcome_center + domain.outcome_bound
    book = domain.codebook or Codebook()
    unit = book.units.get(book.outcome or "", "")
    return _outcome_name(domain), f"clipped to {low:.4g} to {high:.4g} {unit}".rstrip()


def _covariates(domain: Domain, columns: tuple[str, ...]) -> Table:
    """Table of the ranges of all covariates; a level is there or not."""
    table = grid("covariate", "from", "to", "unit")
    book = domain.codebook or Codebook()
    for column, (low, high) in zip(columns, domain.range_pairs, strict=True):
        _, level = book.origin(column)
        if level is None:
            table.add_row(column, f"{low:.4g}", f"{high:.4g}", book.units.get(column, ""))
        else:
            table.add_row(column, "0", "1", "yes or no")
    return table


def _settings_text(settings: Any, before: str = "") -> str:
    """All settings that are set, in words, after a text; nothing where there are none."""
    if not isinstance(settings, Mapping) or not settings:
        return ""
    texts = []
    for name, value in settings.items():
        if value in (None, [], {}):
            continue
        words = " ".join(_CALLED.get(word, word) for word in name.split("_"))
        shown = f"{value:.6g}" if type(value) is float else f"{value}"
        texts.append(f"{words} = {shown}")
    return before + ", ".join(texts)


def signed(number: float, half: float | None) -> str:
    """A number with a sign, to two digits of the half width; unknown where that is unbounded."""
    if half is None:
        return "unknown"
    if not half > 0.0:  # 0, or nan
        return f"{number:+.4g}"
    places = 1 - math.floor(math.log10(half))
    if 0 <= places <= 9 and abs(number) < 1e9:
        return f"{number:+.{places}f}"
    return f"{number:+.4g}"


#: What a plan by inverse propensities and its release say where arms are declared to lie far apart.
FAR_APART = (
    "Arms are declared to lie {:g} standard deviations apart (confounding): there inverse "
    "propensities err more than a regression alone (propensity = 'constant') or the weights of a "
    "scheme, one of which a new question may declare; dp2erm design compares them."
)


#: What a plan of an average effect on two values and its release say there.
EVENTS_FAR_APART = (
    "Arms are declared to lie {:g} standard deviations apart (confounding): there intervals of an "
    "outcome of two values hold the effect less often than they say, as probabilities are no lines."
)


#: What its release says where they are found to lie there.
EVENTS_FOUND_APART = (
    "By the released means arms lie at least {:.2g} standard deviations apart: there intervals of "
    "an outcome of two values hold the effect less often than they say, as probabilities are no "
    "lines."
)


def remains(share: float, what: str) -> str:
    """Share that the adjustment is predicted to leave."""
    return f"About {100 * min(share, 1.0):.0f} % of the {what} is expected to remain (simulated)."


def interval_text(interval: EffectInterval) -> str:
    """Both ends, to two digits of the half width."""
    if interval.low is None and interval.high is None:
        return "unbounded"
    low = _end_text(interval.low, interval.half_width)
    high = _end_text(interval.high, interval.half_width)
    return f"{low} to {high}"


def _end_text(end: float | None, half: float | None) -> str:
    """One end of an interval; of an interval with one end, to four digits."""
    if end is None:
        return "unbounded"
    if half is None:
        return f"{end:+.4g}"
    return signed(end, half)
