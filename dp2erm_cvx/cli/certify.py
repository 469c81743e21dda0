"""``dp2erm certify``: solvers against programs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import REQUIRED, Number, data_options, json_option, setting_options
from dp2erm_cvx.cli.own_program import known_name, known_solver
from dp2erm_cvx.cli.screen import NOT_PRIVATE, advance, console, print_json, progress
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.public import whole_number

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.compare import CertificateRow


@click.command("certify", short_help="Solvers against programs: what is proved about each solution.")
@click.argument("data", metavar="[DATA.csv|.parquet]", required=False)
@data_options
@click.option("--n", "n_samples", type=Number(), help="Simulated records, without DATA [400].")
@click.option(
    "--program",
    "programs",
    multiple=True,
    help="Only this program, or FILE.py[:NAME]; repeatable [all registered].",
)
@setting_options
@click.option(
    "--solver",
    "solvers",
    multiple=True,
    help="Only this solver; repeatable [all]. Any of CVXPY's, or FILE.py:NAME.",
)
@json_option
def certify_command(
    data: str | None, programs: Sequence[str], solvers: Sequence[str], as_json: bool, **options: Any
) -> None:
    """Solve every program with every solver and print what is proved about each solution.

    Without DATA the records are simulated (seeded). With DATA the numbers depend on private records: they
    are for the data holder only. Settings apply where exactly one --program is named. What could not be
    solved is a result and no error: the lines below the table say why.
    """
    with progress("building the programs") as bar:
        from dp2erm_cvx.compare import DEFAULT_SOLVERS, certificates, instances

        chosen = tuple(known_solver(text) for text in solvers) or DEFAULT_SOLVERS
        dataset, domain, built = _prepare(data, programs, options)
        (task,) = bar.task_ids
        bar.update(task, total=len(built))
        rows: list[CertificateRow] = []
        for name, instance in instances(built, dataset, domain):
            bar.update(task, description=name)
            rows += certificates(name, instance, chosen)
            advance(bar)
    if data is not None:
        click.echo(f"{NOT_PRIVATE}: these numbers depend on the records of {data}", err=True)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    screen = console()
    n = dataset.n_samples
    source = f"the {n} records of {data} ({NOT_PRIVATE})" if data else f"{n} simulated records"
    screen.print(f"Certificates on {source}", style="bold")
    screen.print(certificate_table(rows))
    # one line for every reason why a program was not solved: solvers mostly share it
    unsolved = [row for row in rows if row.note and row.status != "does not apply"]
    for line in dict.fromkeys(f"{row.program}: {row.note}" for row in unsolved):
        screen.print(line)
    screen.print(
        "raw, final: bound on the relative distance of the weights (l1 over n) or of theta to the exact "
        "minimizer, before and after Newton polishing; apart: distance to the best certified solution; "
        "gap: Fenchel duality gap. The objective is that of the form that is certified (the dual, for "
        "closed-form weights and entropy balancing); n/a: the solver does not apply."
    )


def certificate_table(rows: Sequence[CertificateRow]) -> Table:
    """One line per solver under the name of its program; fits 80 columns."""
    headers = ("program, solver", "status", "objective", "gap", "raw", "final", "apart", "time")
    table = grid(*headers, left=2, wrap=False)
    previous = None
    for row in rows:
        if row.program != previous:
            table.add_row(row.program, style="bold")
        shown = "n/a" if row.status == "does not apply" else row.status
        table.add_row(
            f"  {row.solver}",
            shown if row.certified or math.isnan(row.radius) else "UNPROVED",
            _number(row.objective, ".5g"),
            *(_number(value, ".0e") for value in (row.duality_gap, row.raw_radius, row.radius, row.distance)),
            _number(row.seconds, ".2f"),
        )
        previous = row.program
    return table


def _prepare(data: str | None, programs: Sequence[str], options: dict[str, Any]) -> Any:
    from dp2erm_cvx import registry
    from dp2erm_cvx.cli.reading import coded_data, raw_table, read_domain
    from dp2erm_cvx.cli.stages import MOST, read_settings
    from dp2erm_cvx.compare import default_programs, simulated

    if data is None:
        for name in ("treatment", "outcome", "covariates", "domain", *REQUIRED, "ranges"):
            if options[name]:
                flag = "--" + name.replace("_", "-")
                raise DeclarationError(f"{flag} describes data: name the data file as well")
        n = options["n_samples"]
        n = 400 if n is None else whole_number("n_samples", n, at_least=2)
        if n > MOST:
            raise DeclarationError(f"n_samples = {shown(options['n_samples'])}: must be at most {MOST:,}")
        dataset, domain = simulated(n)
    elif options["n_samples"] is not None:
        raise DeclarationError("--n is the number of simulated records: leave it out beside a data file")
    else:
        domain = read_domain(options)
        dataset = coded_data(raw_table(data, options, domain), domain, options)
    settings = read_settings(options)
    if settings and len(programs) != 1:
        raise DeclarationError("settings belong to one program: name exactly one --program")
    built = default_programs(len(dataset.columns) + (1 if domain.intercept else 0))
    if programs:
        programs = [known_name(text) for text in programs]
        by_name = {} if settings else {program.name: program for program in built}
        known = registry.available()
        built = [by_name.get(name) or registry.build(known, name, **settings) for name in programs]  # type: ignore[misc]
    return dataset, domain, built


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)
