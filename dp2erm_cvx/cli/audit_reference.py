"""``dp2erm audit --reference``: audits whose outcome is known."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.audit_show import VIOLATED, Output, search_of
from dp2erm_cvx.cli.screen import advance, console, grid, progress

if TYPE_CHECKING:
    from dp2erm_cvx.compare.reference_audits import ReferenceAudit

#: Neighbors of each audit.
SOLVES = 80_000


def run_reference(options: dict[str, Any], output: Output, command: str) -> int:
    """Run all of them, show a table and write the report; the exit code."""
    from joblib import effective_n_jobs

    from dp2erm_cvx.compare import reference_audits as reference
    from dp2erm_cvx.report import AuditSection, audit_facts

    settings = [*reference.worst_cases(), *reference.wrong_bounds()]
    search = search_of(options, evaluations=SOLVES)
    if search.seconds is not None:
        together = effective_n_jobs(search.workers)
        search = dataclasses.replace(search, seconds=search.seconds * together / len(settings))
    outcomes = []
    with progress("searching", total=len(settings)) as bar:
        for outcome in reference.run_reference_audits(settings, search):
            outcomes.append(outcome)
            advance(bar, outcome.setting.name)
    sections = [
        AuditSection(one.setting.name, one.audit, (), one.expectation, one.as_expected) for one in outcomes
    ]
    written = output.write(sections, command, "Reference audits of stability bounds")
    if options["as_json"]:
        click.echo(json.dumps(audit_facts(sections, command), indent=2))
    else:
        _show(outcomes)
        click.echo(written)
    return 0 if all(outcome.as_expected for outcome in outcomes) else VIOLATED


def _show(outcomes: list[ReferenceAudit]) -> None:
    screen = console()
    table = grid("audit", "violated", "V met", "known", "sharp bound", left=2)
    for outcome in outcomes:
        wrong = ", ".join(dict.fromkeys(v.claim.name for v in outcome.audit.violations)) or "none"
        known = f"{outcome.setting.known:.4g}" if outcome.setting.known else ""
        name = outcome.setting.name + ("" if outcome.as_expected else " NOT AS EXPECTED")
        table.add_row(name, wrong, f"{outcome.met:.4g}", known, f"{outcome.bound:.4g}")
    screen.print(table)
    fine = sum(outcome.as_expected for outcome in outcomes)
    screen.print(f"{fine} of {len(outcomes)} as expected; a search, not a proof")
