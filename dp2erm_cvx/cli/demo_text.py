"""The sections of the demonstration: words and tables, no computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.datasets import NHEFS_RANGES
from dp2erm_cvx.demo import settings
from dp2erm_cvx.display import grid, heading
from dp2erm_cvx.plan.predict import DIFFERENCE
from dp2erm_cvx.release.caveats import LITTLE, sentences

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from dp2erm_cvx.audit import StabilityAudit
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.demo.comparison import DemoComparison, Published
    from dp2erm_cvx.demo.settings import DemoScheme
    from dp2erm_cvx.privacy import Budget
    from dp2erm_cvx.release.effect import EffectRelease
    from dp2erm_cvx.release.record import BaseRelease
    from dp2erm_cvx.release.rule_release import RuleRelease


def section(title: str) -> Text:
    """A section title."""
    return heading(f"\n{title}")


def data_section(data: Dataset) -> Iterator[Any]:
    """The data and the public domain."""
    domain = settings.effect_domain()
    yield section("1. What is protected, and what is declared in public")
    yield (
        f"NHEFS: {data.n_samples:,} smokers seen in 1971-75 and again in 1982-84. Treatment: gave up "
        "smoking. Outcome: change of weight in kg. Protected: all that is known of one person (covariates, "
        "treatment, outcome); a neighbor is a dataset with one record replaced. Public: n, and the domain "
        "below, declared without the data."
    )
    table = grid("covariate", "low", "high", "unit", "reason")
    for name, known in NHEFS_RANGES.items():
        table.add_row(name, f"{known.low:g}", f"{known.high:g}", known.unit, known.reason)
    for column in table.columns[3:]:
        column.justify = "left"
    yield table
    center, bound = domain.outcome_center, domain.outcome_bound
    yield (
        f"Outcome: within {bound:g} kg of {center:g} kg. Scaled covariates: norm at most "
        f"{settings.COVARIATES_BOUND:g}. Values outside are clipped, never refused."
    )


def effect_section(found: Sequence[EffectRelease], naive: float, robust: float, path: str) -> Iterator[Any]:
    """Private effects beside estimates without privacy; the first is in the file."""
    yield section("2. The average effect of giving up smoking on weight, in kg")
    yield (
        "A regression of the outcome and a propensity are released first. Given them every record has one "
        "number of its own, a doubly robust score; the mean of it is released, with an interval that counts "
        "sampling, noise, and the confounding that the noise of the regressions may leave."
    )
    headers = ("adjusted for", "epsilon", "estimate", "95 % interval", "noise", "sampling", "bias")
    table = grid(*headers, wrap=False)
    for release in found:
        interval = release.interval
        columns = release.columns
        table.add_row(
            ", ".join(columns) if len(columns) <= 3 else f"all {len(columns)} covariates",
            f"{release.guarantee.epsilon:g}",
            f"{release.estimate:+.2f}",
            f"{interval.low:+.2f} to {interval.high:+.2f}",
            f"±{interval.noise_half_width:.2f}",
            f"±{interval.sampling_half_width:.2f}",
            f"{interval.bias or 0.0:.2f}",
        )
    yield table
    yield (
        f"Not private: doubly robust {robust:.2f} kg, from the same clipped records; the plain difference of "
        f"means {naive:.2f} kg, but those who gave up were also older. Age and weight at the start were "
        "named in public as what drives a change of weight: fewer covariates, less noise."
    )
    yield "Of the first:"
    yield from sentences(found[0], "notes", "assumes", "excludes")
    yield f"All that the first says: dp2erm show {path}"


def weight_section(found: Sequence[DemoComparison], textbook: float) -> Iterator[Any]:
    """Direct weights."""
    (budget,) = settings.WEIGHT_BUDGETS
    yield section("3. Beside it: direct weights, what they leave and what noise has to hide")
    yield (
        "One changed record moves every weight, by at most V in all. Better balance needs weights that move "
        "further, and all that movement is hidden by noise. At ridges whose noise can be borne, weights "
        f"hardly weigh: 'stays' is what they leave of a difference of {DIFFERENCE:g} SD between the arms in "
        "one covariate, predicted from public quantities."
    )
    table = grid("weights", "stays", "|SMD|*", "fit*", "V", _budget(budget), wrap=False)
    for one in found:
        kept = one.published[0].release.kept_imbalance
        stays = "" if kept is None else f"{kept:.0%}"
        numbers = f"{one.imbalance:.3f}", f"{one.effect:.2f}", f"{one.stability:.3g}"
        table.add_row(one.scheme.label, stays, *numbers, *map(_effect, one.published))
    yield table
    yield (
        "* not private: mean imbalance left (0.1 counts as good), and the difference of arm means without "
        f"noise; weights without ridge and trim give {textbook:.2f} kg. ± is the 2.5-97.5 % range of the "
        "noise alone, predicted for half of the weight in each arm."
    )
    yield from _dominated(found)


def rule_section(rules: Sequence[tuple[RuleRelease, NDArray[np.int64]]]) -> Iterator[Any]:
    """Treatment rules, and whom they flag."""
    yield section(f"4. A rule: for whom does giving up add more than {settings.TREATMENT_COST:g} kg?")
    yield (
        f"With a public cost of {settings.TREATMENT_COST:g} kg the best rule is not the same for everybody. "
        "A regression of the outcome and a propensity are released first, and corrected for. The rule flags "
        f"x'theta > 0 over (1, {', '.join(settings.FEATURES)}), scaled to [-1, 1]: few features, because "
        "noise grows with their number."
    )
    table = grid("epsilon", "flags*", "flipped", "stays", *rules[0][0].parameters, wrap=False)
    for release, flagged in rules:
        kept = release.kept_confounding
        table.add_row(
            f"{release.guarantee.epsilon:g}{'!' if release.flipped_share >= LITTLE else ' '}",
            f"{flagged.mean():.0%}",
            f"{release.flipped_share:.0%}",
            "" if kept is None else f"{min(kept, 1.0):.0%}",
            *(f"{value:+.2f}" for value in release.theta),
        )
    yield table
    yield (
        "* not private: the share of the records that the rule flags. flipped: decisions that noise is "
        "predicted to turn, from theta and public guesses; stays: of the bias by a declared confounder, "
        "from public quantities."
    )
    if any(release.flipped_share >= LITTLE for release, _ in rules):
        yield "! Noise dominates: that rule says little about the data."


def certificate_section(table: Table, drawn: str) -> Iterator[Any]:
    """Solvers against first stages, and where balance was drawn."""
    yield section("5. Every solution is certified (not private: for the data holder)")
    yield (
        "The theorems speak of exact minimizers, so every point is judged by a bound on its relative "
        "distance to the exact one, whichever solver found it. raw: the solver's own point; final: "
        "after Newton steps; apart: distance between solvers once polished."
    )
    yield table
    yield drawn


def guarantee_section(published: Sequence[BaseRelease], files: Sequence[str]) -> Iterator[Any]:
    """What was promised; the first release is the lead."""
    epsilon = sum(one.guarantee.epsilon for one in published)
    lead = published[0].guarantee
    yield section("6. What the guarantee says, and what it does not")
    yield f"The first effect: {lead}."
    yield (
        "It says: even who knows every other record and all that is declared learns from the release at most "
        "epsilon about one person. It does not say: that the answer is right, that the effect is causal "
        "(unmeasured confounding), or that certificates and non-private columns above may be published."
    )
    yield (
        f"Every release above is a separate one from the same people. Publishing all {len(published)} would "
        f"cost epsilon = {epsilon:g} by basic composition: choose one in advance."
    )
    yield "Assumed: " + "; ".join(lead.assumptions) + "."
    yield f"Next: dp2erm show {files[0]}    dp2erm predict {files[1]} YOUR.csv    dp2erm effect --help"


def audit_section(found: Sequence[tuple[DemoScheme, StabilityAudit]], written: str) -> Iterator[Any]:
    """How far the weights moved between neighbors, beside the bound that every release above rests on."""
    yield section("7. Do the bounds hold? A short audit, for the data holder only")
    table = grid("first stage", "neighbors tried", "V met *", "bound on V", "share", "verdict")
    for scheme, audit in found:
        verdict = audit.verdict("sharp")
        table.add_row(
            scheme.label,
            f"{audit.scouted + audit.resolved:,}",
            f"{verdict.movement.low:.3g}",
            f"{verdict.claim.bound:.3g}",
            f"{verdict.ratio:.0%}",
            "VIOLATED" if verdict.violated else "not violated",
        )
    yield table
    yield (
        "* V = sum of |change| over the other records' weights, plus both weights of the record that is "
        "replaced: what the noise was calibrated to. The search went over neighbors of NHEFS and over worst "
        "cases of its domain; every number is certified, and it is a search, not a proof."
    )
    yield written + " (not private)"


def _width(value: float | None) -> str:
    return "" if value is None else format(value, ".2f" if value < 10 else ".1f")


def _dominates(published: Published) -> bool:
    # judged by a public size of interest, which is stricter here than a share of what Theta allows
    return published.noise.exceeds(settings.TREATMENT_COST)


def _mark(published: Published) -> str:
    return "!" if _dominates(published) else " "


def _effect(published: Published) -> str:
    return f"{published.effect:+.2f} ±{_width(published.noise.effect)}{_mark(published)}"


def _budget(budget: Budget) -> str:
    return f"epsilon {budget.epsilon:g}"


def _dominated(comparisons: Sequence[DemoComparison]) -> Iterator[str]:
    found = {
        one.scheme.label: [_budget(each.budget) for each in one.published if _dominates(each)]
        for one in comparisons
    }
    named = [f"{label} at {', '.join(budgets)}" for label, budgets in found.items() if budgets]
    if named:
        yield (
            f"! Noise dominates (beyond {settings.TREATMENT_COST:g} kg, an effect that would matter): "
            f"{'; '.join(named)}. These say little about the data."
        )
