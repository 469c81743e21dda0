"""The sections of the demonstration: words and tables, no computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.datasets import NHEFS_RANGES
from dp2erm_cvx.demo import settings
from dp2erm_cvx.display import grid

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from dp2erm_cvx.audit.stability import StabilityAudit
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.demo.comparison import DemoComparison, Published
    from dp2erm_cvx.demo.composition import Calibrations
    from dp2erm_cvx.demo.settings import DemoScheme, Spending
    from dp2erm_cvx.release import Release


def section(title: str) -> Text:
    """A section title."""
    from rich.text import Text

    return Text(f"\n{title}", style="bold")


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
        f"{settings.COVARIATES_BOUND:g}, and a constant 1, so M^2 = {domain.covariate_bound**2:g}. Values "
        "outside are clipped, never refused."
    )


def certificate_section(table: Table) -> Iterator[Any]:
    """Solvers against first stages."""
    yield section("2. Every solution is certified (not private: for the data holder)")
    yield (
        "The theorems speak of exact minimizers, so every point is judged by a bound on its relative "
        "distance to the exact one, whichever solver found it. raw: the solver's own point; polished: "
        "after Newton steps; apart: distance between solvers once polished."
    )
    yield table


def effect_section(effects: Sequence[DemoComparison], naive: float, textbook: float) -> Iterator[Any]:
    """Average effects."""
    yield section("3. The average effect of giving up smoking on weight, in kg")
    yield (
        f"Not private: naive difference of means {naive:.2f} kg; textbook {textbook:.2f} kg (IPW with "
        "squares, no ridge, no trim, no clipping). Below, for each first stage, the non-private fit at the "
        "same ridge beside its private releases: from the textbook to that fit is the bias of ridge and "
        "trim, from the fit to a release the noise."
    )
    columns = [f"{_budget(spending)}\n{spending.noise}" for spending in settings.EFFECT_SPENDING]
    table = grid("first stage", "|SMD|*", "fit*", "V", *columns, wrap=False)
    for one in effects:
        table.add_row(
            one.scheme.label,
            f"{one.imbalance:.3f}",
            f"{one.effect:.2f}",
            f"{one.stability:.3g}",
            *map(_effect, one.published),
        )
    yield table
    yield (
        "* not private: mean imbalance left (0.1 counts as good), and the fit without noise. V bounds how "
        "far one record moves the weights. ± is the 2.5-97.5 % range of the noise, predicted from public "
        "quantities with half of the weight in each arm; an arm with a quarter of it has twice the noise."
    )
    for one in effects[1:]:
        yield f"  {one.scheme.label}: {one.scheme.reason}."
    yield (
        f"  Arm means stay within {settings.ARM_MEAN_BOUND:g} kg of the center: the average of an arm moves "
        "less than the weight of one person."
    )
    yield from _dominated(effects)
    yield "Better balance costs stability: V grows, and the noise with it."


def calibration_section(effects: Sequence[DemoComparison], others: Calibrations) -> Iterator[Any]:
    """What the choice of calibration buys for one and the same weighting."""
    mild, strong = effects[-2], effects[-1]
    yield section("4. What the choice of calibration buys")
    yield (
        f"The weights of {strong.scheme.label}, calibrated three ways. By the paper: its proposition covers "
        "no trim, which leaves its corollary for any weights. Directly: the sharp bound for weights whose "
        "propensity is not private (the releases of section 3). By composition (Theorem 9): 30 % of epsilon "
        "buys a private propensity; given it, a record moves the weights by its own weight only. The plug-in "
        "releases one weighted mean with Laplace noise (Theorem 8), not two arm means: less noise, but it is "
        "the effect only where each arm has half of the weight."
    )
    table = grid("calibration", "V", *map(_budget, settings.COMPOSED_SPENDING), wrap=False)
    pulled = [f"±{_width(moved.effect)} (pulled {moved.shrinkage:.0%})" for _, moved in others.by_paper]
    table.add_row("paper, not released", f"{others.by_paper[0][0]:,.4g}", *pulled)
    released = {
        "direct, sharp": strong,
        "composition": others.composed,
        "composition, plug-in": others.plug_in,
    }
    for label, one in released.items():
        told = map(_effect, one.published[: len(settings.COMPOSED_SPENDING)])
        table.add_row(label, f"{one.stability:.3g}", *told)
    noisy = [f"{one.effect:+.2f} ±{_width(1.96 * one.deviation)}" for one in others.first_noise]
    table.add_row("  with no noise but its first*", "", *noisy)
    table.add_row("  |SMD| with that noise*", "", *(f"{one.imbalance:.3f}" for one in others.first_noise))
    yield table
    left = {one.scheme.label: f"{one.imbalance:.3f}" for one in (mild, strong)}
    yield (
        "* not private: 40 simulated, seeded noises of the propensity, and none after them; ± of the "
        "composition does not count the first noise. It also costs balance: without it |SMD| is "
        f"{left[strong.scheme.label]}, and {left[mild.scheme.label]} for {mild.scheme.label} with "
        f"V = {mild.stability:.3g}. So at epsilon 1 composition buys the balance of that milder scheme at "
        "about its noise; at epsilon 2 better balance at the same noise."
    )


def rule_section(rules: Sequence[DemoComparison]) -> Iterator[Any]:
    """Treatment rules."""
    domain = settings.rule_domain()
    yield section(f"5. A rule: for whom does giving up add more than {settings.TREATMENT_COST:g} kg?")
    yield (
        f"With a public cost of {settings.TREATMENT_COST:g} kg the best rule is not the same for everybody "
        f"(the net outcome is centered at {domain.outcome_center:g} kg). The rule flags x'theta > 0 over "
        f"(1, {', '.join(settings.FEATURES)}), scaled to [-1, 1], |theta| <= {settings.RULE_BOUND:g} kg: "
        "few features, because noise grows with their number."
    )
    parameters = rules[0].published[0].release.parameters
    table = grid("weights", "epsilon", "flags*", "fit*", "agree*", *parameters, wrap=False)
    for one in rules:
        for k, published in enumerate(one.published):
            table.add_row(
                one.scheme.label if k == 0 else "",
                f"{published.spending.budget.epsilon:g}{_mark(published)}",
                f"{published.recommended.mean():.0%}",
                f"{one.recommended.mean():.0%}",
                f"{np.mean(published.recommended == one.recommended):.0%}",
                *(
                    f"{value:+.2f} ±{_width(width)}"
                    for value, width in zip(published.release.theta, published.noise.half_width, strict=True)
                ),
            )
    yield table
    yield (
        "* not private: shares of the records that the release and the non-private fit at the same ridge "
        "flag, and on which they agree. theta is released, ± its noise, predicted for ranges 6 standard "
        "deviations wide with the mean one off the middle: no bound."
    )
    yield from _dominated(rules)


def guarantee_section(comparisons: Sequence[DemoComparison], kept: Release, path: str) -> Iterator[Any]:
    """What was promised."""
    published = [one for comparison in comparisons for one in comparison.published]
    epsilon = sum(one.release.guarantee.epsilon for one in published)
    delta = sum(one.release.guarantee.delta for one in published)
    yield section("7. What the guarantee says, and what it does not")
    yield f"The last rule by entropy balancing, {path}: {kept.guarantee}."
    yield (
        "It says: even who knows every other record and all that is declared learns from theta at most "
        "epsilon about one person. It does not say: that the answer is right (ridge and trim bias it), "
        "that the effect is causal (unmeasured confounding), or that balance tables, certificates and "
        "non-private columns above may be published."
    )
    yield (
        f"Every release above is a separate one from the same people. Publishing all {len(published)} would "
        f"cost epsilon = {epsilon:g}, delta = {delta:g} by basic composition: choose one in advance."
    )
    yield "Assumed: " + "; ".join(kept.guarantee.assumptions) + "."
    yield f"Next: dp2erm predict {path} YOUR.csv    dp2erm fit --help    dp2erm programs"


def audit_section(found: Sequence[tuple[DemoScheme, StabilityAudit]], written: str) -> Iterator[Any]:
    """How far the weights moved between neighbors, beside the bound that every release above rests on."""
    yield section("8. Do the bounds hold? A short audit, for the data holder only")
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


def _budget(spending: Spending) -> str:
    budget = spending.budget
    return f"({budget.epsilon:g}, {budget.delta:g})" if budget.delta else f"epsilon {budget.epsilon:g}"


def _dominated(comparisons: Sequence[DemoComparison]) -> Iterator[str]:
    found = {
        one.scheme.label: [_budget(each.spending) for each in one.published if _dominates(each)]
        for one in comparisons
    }
    named = [f"{label} at {', '.join(budgets)}" for label, budgets in found.items() if budgets]
    if named:
        yield (
            f"! Noise dominates (beyond {settings.TREATMENT_COST:g} kg, an effect that would matter): "
            f"{'; '.join(named)}. These say little about the data."
        )
