"""Text that every release has on its guarantee, on whom it is about and on what was declared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.calibration import EXACT_ARITHMETIC, Perturbed
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.display import READ_DIGITS, digits_of, grid, law_text, pairs
from dp2erm_cvx.privacy import Neighboring, Standing
from dp2erm_cvx.release.declaration import together
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.interval import EffectInterval
from dp2erm_cvx.release.record import BaseRelease, Guarantee, StepStatement
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
#: Labels of the treated, and of controls, that say no more than the name of the column.
_YES, _NO = ("1", "yes", "y", "true", "treated"), ("0", "no", "n", "false", "control", "untreated")
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
#: How an assumption starts, or reads, that says how rounding is covered, or nothing.
_ROUNDED, _NOTHING = (
    "arithmetic is counted: ",
    ("every weight is 1", "weights are 1", EXACT_ARITHMETIC),
)


def compared(release: BaseRelease) -> tuple[str, str]:
    """Treatment and outcome, by the names of the table where they are declared."""
    book = release.public.codebook or Codebook()
    outcome, column = book.outcome or "the outcome", book.treatment.column
    if column is None or book.treatment.levels:
        return column or "treatment", outcome
    treated, control = str(book.treatment.treated), str(book.treatment.control)
    bare, number = control.lower() in _NO, control not in _NO and control.replace(".", "").isdigit()
    against = "" if bare else f" against {control}"
    if treated.lower() in _YES and not number:
        return f"{column}{against}", outcome
    if (
        treated.lower() in (*_YES, *_NO) or treated.replace(".", "").isdigit()
    ):  # says nothing by itself
        return f"{column} {treated} against {control}", outcome
    return f"{treated}{against}", outcome


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
    book = release.domain.get("codebook")
    fixed = release.goal in _FIXED
    cells = [] if book is None else [("cells", Codebook.from_dict(book).in_words(fixed=fixed))]
    rests = together(release.public, guarantee.epsilon, guarantee.delta)
    assumed = [text for text in guarantee.assumptions if text not in (*_NOTHING, rests)]
    if release.declared.get("arithmetic") == "counted":
        assumed = [text for text in assumed if not text.startswith(_ROUNDED)]
        rounding = [("rounding", "Rounding errors are covered by the guarantee.")]
    else:
        rounding = [("rounding", "Rounding errors are NOT covered: exact arithmetic is assumed.")]
    theorems = f"{guarantee.theorem}; {guarantee.stability_theorem}"
    return [
        ("guarantee", meaning(release)),
        *([("ranges", f"{rests[0].upper()}{rests[1:]}.")] if rests else []),
        # what proofs call a factor is a weight of a record to readers
        ("theorems", theorems.replace("factor", "weight")),
        *([("assuming", "; ".join(assumed).replace("factor", "weight"))] if assumed else []),
        *rounding,
        *cells,
    ]


def _condition(release: BaseRelease) -> str:
    """Condition of the promise beside its theorems, or that there is none; empty where it simply
    holds.
    """
    guarantee = release.guarantee
    exact = "this release is the exact solution of the declared problem, up to a proven distance"
    known = [exact] if guarantee.standing is Standing.CONDITIONAL else []
    known += [guarantee.fitted_before] if guarantee.fitted_before else []
    text = (
        f"CONDITIONAL: what follows holds if {', and if '.join(known)}. Nothing establishes that."
    )
    return _NONE.get(guarantee.standing, text if known else "")


def meaning(release: BaseRelease) -> str:
    """The guarantee in one sentence, after its condition. Numbers are rounded up."""
    guarantee, unit = release.whole_guarantee, units_of(release)
    if guarantee.standing in _NONE:
        law = law_text(guarantee, digits=READ_DIGITS)
        return f"{_condition(release)} Its plan: {law}, {guarantee.relation}."
    rests = ", the released ranges that it rests on included," if release.public.released else ""
    whom = f"{unit} by any other{' with the same treatment' if _keeps(release) else ''}"
    if unit == "persons":
        whom = "persons, with all of their records, by any other, of any number of records"
    return (
        f"{_condition(release)} Replacing any one of the {release.n_samples:,} {whom} changes the "
        f"probability of any result{rests} by a factor of at most {largest_factor(guarantee)} "
        f"({law_text(guarantee, digits=READ_DIGITS)})."
    ).lstrip()


def _keeps(release: BaseRelease) -> bool:
    return release.guarantee.relation is Neighboring.REPLACE_ONE_KEEP_TREATMENT


def noise_of(step: StepStatement) -> str:
    """The law of the noise of a step in a word: on numbers, gamma noise is Laplace noise."""
    laplace = step.noise.value == "gamma" and not step.gamma
    return "exponential" if step.step == "ranges" else "Laplace" if laplace else step.noise.value


def spent_by_step(release: BaseRelease) -> Table:
    """Lines on what every step released, and what it cost."""
    rows = [
        (_releases_of(one), noise_of(one), digits_of(one.epsilon, 4), digits_of(one.delta, 2))
        for one in release.steps
    ]
    return grid("released", "noise", "epsilon", "delta", left=2, rows=rows)


def taken_over(release: BaseRelease) -> Iterator[str]:
    """Lines on the steps of an earlier question of the same study, and what of epsilon they are."""
    owners: dict[str, list[StepStatement]] = {}
    for step in release.steps:
        if step.step in release.before:
            owners.setdefault(release.before[step.step]["of"], []).append(step)
    for of, steps in owners.items():
        epsilon = math.fsum(step.epsilon for step in steps)
        yield (
            f"Released once, by the question {of} of the same study: "
            f"{', '.join(map(_releases_of, steps))}. Of this epsilon "
            f"{digits_of(epsilon, 4, left=True)} is spent there: an account is charged once for "
            "both."
        )


def _releases_of(step: StepStatement) -> str:
    """Lines on what a step releases."""
    return RELEASED.get(step.step, step.theorem)


def units_of(release: BaseRelease) -> str:
    """Who or what is protected, in the plural: records, or persons with all of theirs."""
    return "records" if release.public.units is None else "persons"


def promised(release: BaseRelease) -> tuple[list[str], list[str]]:
    """Sentences on what one record can change; and on what a reader can learn, where anything is
    promised.
    """
    if release.guarantee.standing in _NONE:
        return [_condition(release)], []
    units, changes = units_of(release), [meaning(release)]
    if _keeps(release):
        changes.append(
            "The treatment of a record is NOT protected; its covariates and its outcome are."
        )
    if rests := together(release.public, release.guarantee.epsilon, release.guarantee.delta):
        changes.append(f"{rests[0].upper()}{rests[1:]}.")
    if floor := release.domain.get("arm_floor"):
        changes.append(
            f"It is promised for data with at least {floor:g} records in each arm, as was declared."
        )
    alone = "A person with several records is protected less. " if units == "records" else ""
    return changes, [
        f"Who knows all other {units}, and that this one is one of two, guesses which with "
        f"probability at most {largest_guess(release.whole_guarantee)}, instead of one half.",
        f"{alone}Not hidden: the number of {units}, and what holds for the population. Every "
        "other release from these data weakens the promise.",
    ]


def largest_factor(guarantee: Guarantee) -> str:
    """``e^epsilon``, and delta on top, rounded up."""
    digits = guarantee.epsilon / math.log(10.0)
    factor = (
        f"10^{math.ceil(digits)}" if digits > 6.0 else digits_of(math.exp(guarantee.epsilon), 3)
    )
    factor = f"{float(factor):,.0f}" if "e+" in factor else factor
    return (
        f"{factor}, plus {digits_of(guarantee.delta, READ_DIGITS)}" if guarantee.delta else factor
    )


def largest_guess(guarantee: Guarantee) -> str:
    """The best probability to tell two neighbors apart, ``(e^epsilon + delta) / (e^epsilon + 1)``.

    No test of two neighbors has a higher sum of power and specificity than ``1 + (e^epsilon - 1 + 2
    delta) / (e^epsilon + 1)``, as both pairs of errors obey ``P(S) <= e^epsilon Q(S) + delta``.
    """
    missed = (1.0 - guarantee.delta) / (1.0 + math.exp(min(guarantee.epsilon, 700.0)))
    # to two digits of what is missing to 1, rounded down
    least = float(digits_of(missed, 2, left=True))
    return "1" if least < 1e-6 else f"{1.0 - least:.7f}".rstrip("0")


def gaps(release: Any) -> str:
    """Cells without which a record does not count, in words; nothing where every record counts."""
    if (book := release.public.codebook) is None or release.goal in _FIXED:
        return ""
    return "treatment" if book.outcome in book.missing else "treatment or outcome"


def population(release: Any) -> str:
    """Whom a release is about, as far as eligibility, missing cells and sampling weights say."""
    domain = release.public
    weights, book = domain.sampling, domain.codebook or Codebook()
    all_of_them = f"the {release.n_samples:,} {units_of(release)}"
    levels = (f"{column} is {level or 'missing'}" for column, level in book.where.items())
    named = " and ".join([*book.eligible, *levels])
    which = []
    if lost := gaps(release):
        which.append(f"that have {lost.replace(' or ', ' and ')}")
    if named:
        which.append(f"where {named}")
    whom = f"those of {all_of_them} {' '.join(which)}" if which else all_of_them
    if weights is None:
        return whom
    return f"whom {whom} stand for by the weights in {weights.column}"


def sampled(release: Any, *, interval: bool = False) -> Iterator[str]:
    """How many records count; what sampling weights cost, and what of a survey's design is not
    counted.
    """
    domain = release.public
    weights, book = domain.sampling, domain.codebook
    if (counted := getattr(release, "counted", None)) is not None and book is not None:
        silent = [
            f"those without {gaps(release)}",
            *(["those not eligible"] if book.eligible or book.where else []),
        ]
        silent += [] if book.group is None else [f"those of no declared {book.group}"]
        whose = f"of the {release.n_samples:,} {units_of(release)} count"
        if book.unit is not None and book.unit.count > 1:
            whose = (
                f"persons with {book.unit.count} records each count as much as the "
                f"{release.n_samples:,} do"
            )
        yield (
            f"About {max(counted, 0.0):,.0f} {whose}, noise included; {' and '.join(silent)} do "
            "not."
        )
    if weights is None:
        return
    # an average effect has a denominator now, of which its noise is 17/16 times what it was
    times = (17 / 16 if getattr(release, "estimand", "") == "ate" else 1.0) / weights.mass
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


def calibrated(release: Release) -> Table:
    """The noise of theta, and what it is scaled to."""
    step = release.mechanism
    output = step.perturbed is Perturbed.OUTPUT
    # the paper multiplies by its own, uncentered gradient bound, and Theorem 7 by another radius
    direct = math.isclose(step.sensitivity or 0.0, (step.gradient_radius or 0.0) * step.stability)
    spent = release.step("propensity")
    of = "what is left" if spent else "epsilon"
    share = "" if step.split is None or output else f", {step.split:.0%} of {of}"
    product = (
        f" = {step.gradient_radius:.6g} x V" if step.gradient_radius is not None and direct else ""
    )
    rows = [("calibration", step.reason or "")]
    if spent is not None:
        noise = f"{spent.noise} noise of scale {spent.scale:.4g}, gamma {spent.gamma:.4g}"
        rows.append(("propensity", f"{noise} ({spent.theorem})"))
    rows += [
        ("noise", f"{'Laplace' if output else step.noise}, scale {step.scale:.6g}{share}"),
        ("perturbed", str(step.perturbed)),
        ("gamma", f"{step.gamma:.6g}"),
        ("stability V", f"{step.stability:.6g} (largest weight {step.weight_bound:.4g})"),
        ("sensitivity", f"{step.sensitivity:.6g}{product}"),
    ]
    if (numerical := step.numerical) is not None and not output:
        hidden = (
            f"on multiples of 2^{numerical.grid_exponent}, 2 x {digits_of(numerical.epsilon, 3)} "
            "of epsilon"
        )
        rows += [("arithmetic", f"discrete Laplace noise of scale {numerical.scale:.2g} {hidden}")]
    return pairs(rows)


def clips(release: EffectRelease) -> Table:
    """Every bound that a record was clipped to."""
    domain, settings = release.public, release.settings
    net = "net outcome" if domain.treatment_cost else "outcome"
    sides = [
        (net, domain.outcome_center, domain.outcome_bound),
        ("residual of the outcome regression", 0.0, float(settings["residual_bound"])),
        ("estimate of one record, less the middle", 0.0, float(settings["score_bound"])),
    ]
    if release.weighting is not None:
        del sides[2]
    if release.arms is not None:
        sides[2] = ("weighted residual, of an arm that all arms are as large as", *sides[2][1:])
    ends = [(name, middle - bound, middle + bound) for name, middle, bound in sides]
    least = 1.0 / float(settings["cap"])
    if release.arms is not None:
        ends.append(("probability of an arm", least, 1.0))
    elif release.weighting is None and release.estimand != "overlap":  # whose weights need no cap
        ends.append(
            ("propensity of treatment", 0.0 if release.estimand == "att" else least, 1.0 - least)
        )
    ends.append(("norm of the scaled covariates", 0.0, domain.features_bound))
    rows = [(name, f"{low:.4g}", f"{high:.4g}") for name, low, high in ends]
    return grid("clipped by public rule", "from", "to", rows=rows)


def declared_tables(release: BaseRelease) -> Iterator[Table]:
    """The range or the levels of every covariate, then all other declarations."""
    domain = release.public
    if domain.ranges is not None:
        yield _covariates(domain, release.columns)
    yield pairs(list(declared_facts(release)))


def declared_facts(release: BaseRelease) -> Iterator[tuple[str, str]]:
    """Lines on what is declared beside the covariates, and how it reads."""
    domain = release.public
    unit = None if domain.codebook is None else domain.codebook.unit
    yield "records" if unit is None else "persons", f"{release.n_samples:,}, a public number"
    if unit is not None:
        yield (
            "unit",
            f"a person, with all records of the same {unit.column}; their number is private",
        )
    if release.goal != "effect":  # which has a table of all that it clips
        low, high = (domain.outcome_center + sign * domain.outcome_bound for sign in (-1.0, 1.0))
        net, book = (
            "net outcome" if domain.treatment_cost else "outcome",
            domain.codebook or Codebook(),
        )
        measured = book.units.get(book.outcome or "", "")
        yield net, f"clipped to {low:.4g} to {high:.4g} {measured}".rstrip()
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
    settings: Any = getattr(release, "settings", None)
    for which in ("first", "second"):
        if which in release.declared:
            stage = release.declared[which]
            yield (
                f"{which} stage",
                f"{stage.get('name')}{_settings_text(stage.get('settings'), ': ')}",
            )
    if isinstance(settings, Mapping):
        # where no center of the effect is declared, it is one that was released
        yield (
            "settings",
            _settings_text(
                {name: value for name, value in settings.items() if name != "effect_center"}
            ),
        )


def _covariates(domain: Domain, columns: tuple[str, ...]) -> Table:
    table = grid("covariate", "from", "to", "unit")
    book = domain.codebook or Codebook()
    for column, (low, high) in zip(columns, domain.range_pairs, strict=True):
        if book.origin(column)[1] is None:
            table.add_row(column, f"{low:.4g}", f"{high:.4g}", book.units.get(column, ""))
        else:
            table.add_row(column, "0", "1", "yes or no")
    return table


def _settings_text(settings: Any, before: str = "") -> str:
    if not isinstance(settings, Mapping) or not settings:
        return ""
    items = {
        " ".join(_CALLED.get(one, one) for one in name.split("_")): value
        for name, value in settings.items()
        if value not in (None, [], {})
    }
    return before + ", ".join(
        f"{k} = {v:.6g}" if type(v) is float else f"{k} = {v}" for k, v in items.items()
    )


def signed(number: float, half: float | None) -> str:
    """A number with a sign, to two digits of the half width; unknown where that is unbounded."""
    if half is None:
        return "unknown"
    places = 1 - math.floor(math.log10(half)) if half > 0.0 else -1
    return f"{number:+.{places}f}" if 0 <= places <= 9 and abs(number) < 1e9 else f"{number:+.4g}"


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
    ends, half = (interval.low, interval.high), interval.half_width
    if ends == (None, None):
        return "unbounded"
    if half is None:
        return " to ".join("unbounded" if end is None else f"{end:+.4g}" for end in ends)
    return " to ".join(signed(end, half) for end in ends if end is not None)
