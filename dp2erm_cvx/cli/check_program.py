"""``dp2erm check-program``: everything that the theorems assume of a program, searched for violations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from dp2erm_cvx.cli.options import Number
from dp2erm_cvx.public import whole_number

if TYPE_CHECKING:
    from dp2erm_cvx.conformance import ConformanceReport

_STYLES = {"passed": "green", "failed": "bold red", "noted": "yellow"}


@click.command("check-program", short_help="Run the conformance suite on a program's file.")
@click.argument("program", metavar="FILE.py|NAME")
@click.option(
    "--solves", type=Number(), default=20_000, show_default=True, help="Neighbors of the audit, per settings."
)
@click.option("--seconds", type=Number(), help="End each audit after so long at the latest.")
@click.option("--seed", type=Number(), default=0, show_default=True, help="Seed of the searches.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_program_command(program: str, solves: int, seconds: float | None, seed: int, as_json: bool) -> int:
    """Check the programs of a file, or a registered one: exit code 1 where a check fails.

    Statement, DPP, agreement of all solvers within their certificates, feasibility on adversarial data,
    strong convexity, fixed feasible set, declared constants and bound against searches for violations. A
    search refutes and never proves.
    """
    from dp2erm_cvx import conformance
    from dp2erm_cvx.audit.search import SearchPlan
    from dp2erm_cvx.cli.screen import progress

    search = SearchPlan(whole_number("--solves", solves, at_least=1), seconds, seed)
    classes = conformance.load_program(program)
    reports: list[ConformanceReport] = []
    with progress("checking") as bar:
        task = bar.add_task("checking", total=None)
        for cls in classes:

            def show(done: str, name: str = getattr(cls, "name", cls.__name__)) -> None:
                bar.update(task, description=f"{name}: {done}")

            reports += conformance.check_program(cls, search=search, done=show)
    if as_json:
        click.echo(json.dumps([report.to_dict() for report in reports], indent=2))
    else:
        for report in reports:
            _print(report)
    return 0 if all(report.passed for report in reports) else 1


def _print(report: ConformanceReport) -> None:
    from rich.table import Table
    from rich.text import Text

    from dp2erm_cvx.cli.screen import console

    screen = console()
    settings = ", ".join(f"{name}={value}" for name, value in report.settings.items()) or "no settings"
    screen.print(f"{report.program} ({settings})", style="bold")
    screen.print(f"  {report.kind}: {report.proved}")
    table = Table.grid(padding=(0, 2))
    for outcome in report.outcomes:
        word = Text(f"  {outcome.status.value}", style=_STYLES[outcome.status.value])
        table.add_row(word, outcome.check, outcome.detail)
    screen.print(table)
    screen.print(f"  {report.conclusion}")
    screen.print()
