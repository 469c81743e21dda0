"""``dp2erm demo``: the whole method on embedded real data, as a short text with tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dp2erm_cvx.cli.options import Number
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import public_number

if TYPE_CHECKING:
    from dp2erm_cvx.audit.stability import StabilityAudit
    from dp2erm_cvx.cli.audit_show import Output
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.demo.comparison import Comparison
    from dp2erm_cvx.demo.settings import Scheme


@click.command(short_help="Private effects and rules from real data, and an audit, in a minute.")
@click.option(
    "--output-dir",
    default="output",
    show_default=True,
    metavar="FOLDER",
    help="For the figure and the release.",
)
@click.option("--solver", "solvers", multiple=True, help="Solver of the certificate table; repeatable.")
@click.option(
    "--audit-seconds",
    type=Number(),
    default=30,
    show_default=True,
    help="For the audit at the end, about; 0 leaves it out.",
)
@click.option("--seed", type=Number(), help="For tests only: nothing released is then private.")
def demo(output_dir: str, solvers: Sequence[str], audit_seconds: float, seed: int | None) -> None:
    """Private effects and treatment rules from NHEFS, beside non-private comparisons.

    NHEFS: 1,566 smokers, 403 of whom gave up; the outcome is their change of weight in about ten years.
    """  # fmt: skip
    from pathlib import Path

    from dp2erm_cvx.cli import demo_text as text
    from dp2erm_cvx.cli.audit_show import Output
    from dp2erm_cvx.cli.certify import certificate_table
    from dp2erm_cvx.cli.report import show_balance
    from dp2erm_cvx.cli.screen import advance, console, progress, write_text
    from dp2erm_cvx.report import missing

    if seed is not None and not isinstance(seed, int):
        raise DeclarationError(f"seed = {seed!r}: must be a whole number")
    audit_seconds = public_number("--audit-seconds", audit_seconds, at_least=0.0)
    folder = Path(output_dir)
    report = Output(output_dir, "audit_nhefs", page=audit_seconds > 0 and not missing())
    with progress("loading", total=16) as bar:
        from dp2erm_cvx.datasets import load_nhefs
        from dp2erm_cvx.demo import comparison, composition, settings
        from dp2erm_cvx.plotting import love_plot
        from dp2erm_cvx.solve import solver_by_name

        chosen = tuple(solvers) or ("newton", "clarabel", "scs")
        for name in chosen:
            solver_by_name(name)
        data, seeds = load_nhefs(), comparison.Seeds(seed)
        rows, effects, rules = [], [], []
        for group in comparison.certificate_rows(data, chosen):
            rows += group
            advance(bar, "certifying")
        for effect in comparison.effects(data, seeds):
            effects.append(effect)
            advance(bar, "releasing effects")
        composed, plugged = composition.composed(data, seeds)
        budgets = [one.budget for one in settings.COMPOSED_SPENDING]
        first_noise = [composition.propensity_noise(data, budget) for budget in budgets]
        by_paper = [composition.paper_noise(data.n_samples, len(data.columns), budget) for budget in budgets]
        advance(bar, "comparing calibrations")
        for rule in comparison.rules(data, seeds):
            rules.append(rule)
            advance(bar, "releasing rules")
        naive, textbook = comparison.naive_effect(data), comparison.textbook_effect(data)
        advance(bar, "drawing")
        best = _best_balance(effects)
        try:
            love_plot(best.balance, folder / "love_nhefs.png")
            drawn = f"Love plot (not private): {folder / 'love_nhefs.png'}"
        except DeclarationError as error:
            drawn = f"No love plot: {error}"
        # the rule that can be read: entropy balancing at the larger budget
        kept = rules[1].published[-1].release
        write_text(folder / "release_nhefs.json", kept.to_json() + "\n")
        advance(bar)

    screen = console()
    if seed is not None:
        screen.print("NOT PRIVATE: the noise is seeded, for tests only.", style="bold")
    for block in text.data_section(data):
        screen.print(block)
    for block in text.certificate_section(certificate_table(rows)):
        screen.print(block)
    for block in text.effect_section(effects, naive, textbook):
        screen.print(block)
    for block in text.calibration_section(effects, composed, plugged, first_noise, by_paper):
        screen.print(block)
    for block in text.rule_section(rules):
        screen.print(block)
    screen.print(text.heading("6. Balance, for the data holder only"))
    screen.print(f"First stage: {best.scheme.label} ({best.scheme.reason}).")
    show_balance(best.balance, stderr=False)
    screen.print(drawn)
    for block in text.guarantee_section(
        [*effects, composed, plugged, *rules], kept, str(folder / "release_nhefs.json")
    ):
        screen.print(block)
    if audit_seconds > 0:
        for block in text.audit_section(*_audited(data, audit_seconds, report)):
            screen.print(block)


def _audited(
    data: Dataset, seconds: float, report: Output
) -> tuple[list[tuple[Scheme, StabilityAudit]], str]:
    """The audits, and where their report is."""
    from joblib import effective_n_jobs

    from dp2erm_cvx.audit.search import Search
    from dp2erm_cvx.cli.screen import advance, progress
    from dp2erm_cvx.demo.audit import audited, audits
    from dp2erm_cvx.report import AuditSection, missing

    schemes = audited()
    # the certified solves at the end of each take the rest
    together = min(effective_n_jobs(-1), len(schemes))
    each = Search(seconds=0.75 * seconds * together / len(schemes), workers=-1)
    found = []
    with progress("auditing", total=len(schemes)) as bar:
        for scheme, audit in audits(data, each):
            found.append((scheme, audit))
            advance(bar)
    sections = [AuditSection(scheme.label, audit) for scheme, audit in found]
    written = report.write(sections, "dp2erm demo", "Stability audit around NHEFS")
    if missing():
        written += f" (no page: pip install {' '.join(missing())})"
    return found, written


def _best_balance(effects: list[Comparison]) -> Comparison:
    import numpy as np

    return min(effects, key=lambda one: float(np.mean(np.abs(one.balance.smd_after))))
