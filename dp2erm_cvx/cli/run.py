"""``dp2erm run``: all questions of a study file, from one data file, charged together."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.blocks import block_options, coded_records, read_cells
from dp2erm_cvx.cli.options import Number
from dp2erm_cvx.cli.planned import data_argument, show_plan
from dp2erm_cvx.cli.releasing import announce, check_files, solver_option
from dp2erm_cvx.cli.screen import check_new, console, print_json, progress, reserved, unwritable, writable
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.blocked import BlockedDataset
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.ledger import Receipt
    from dp2erm_cvx.release.record import BaseRelease
    from dp2erm_cvx.study_file import StudyFile
    from dp2erm_cvx.tables import Table

# \b keeps click from filling the lines
_EXAMPLE = """\b
Example:
dp2erm run study.toml --plan 6000
dp2erm run study.toml trial.csv --output-dir releases
"""


@click.command("run", short_help="All questions of a study file, charged together.", epilog=_EXAMPLE)
@click.argument("study", metavar="STUDY.toml")
@data_argument
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="TABLE.NAME=VALUE",
    help="In place of what the file says, such as budget.epsilon=2; it is part of the digest; repeatable.",
)
@block_options
@solver_option
@click.option("--output-dir", default="releases", metavar="FOLDER", help="For one JSON file per question.")
@click.option("--json", "as_json", is_flag=True, help="Print the releases as JSON and nothing else.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option(
    "--yes", is_flag=True, help="Release where an arm is empty or most cells of a column are unreadable."
)
@click.option("--seed", type=Number(), help="For tests only: the releases are then NOT PRIVATE.")
def run_command(study: str, data: str | None, **options: Any) -> None:
    """Answer the questions of STUDY.toml from DATA: effects, rules and weighted means.

    The file holds all that is public: domain, budget, account and questions, each with its share of the
    budget. They are planned before anything is spent, and charged together or not at all.
    """
    check_files(data, {**options, **dict.fromkeys(("ledger", "dataset", "output")), "domain": study})
    with progress("reading the data", total=2) as bar:
        from dp2erm_cvx.cli.own_program import known_solver
        from dp2erm_cvx.public import whole_number
        from dp2erm_cvx.study_file import read_study

        declared = read_study(study, options["changes"])
        models = declared.models(seed=options["seed"], solver=known_solver(options["solver"]))
        if options["planned"] is not None:
            n, columns = whole_number("--plan", options["planned"], at_least=2), declared.domain.columns
            if columns is None:
                raise DeclarationError(f"{study}: the covariates are not declared: give [ranges]")
            for name, plan in declared.plans(models, n, len(columns)).items():
                show_plan(plan, n, as_json=options["as_json"], name=name)
            click.echo(f"study {declared.digest}", err=options["as_json"])
            return
        assert data is not None
        folder, book = Path(options["output_dir"]), str(declared.account[0]) if declared.account else None
        files = {name: str(folder / f"{name}.json") for name in models}
        if not os.path.lexists(folder):
            writable(str(folder))
        else:
            for file in files.values():
                check_new(file, options["force"], data, study, book)
        counts: list[RecordCounts] = []
        reading = {**options, "domain": study, "covariates": None}
        cells = read_cells(data, reading, declared.domain, bar)
        records = coded_records(cells, reading, declared.domain, counts.append)
        plans = declared.plans(models, records.n_samples, len(records.columns))
        announce(counts, yes=options["yes"])
        releases = _released(declared, models, plans, cells, files, options)
    if options["as_json"]:
        print_json({name: release.to_dict() for name, release in releases.items()})
        return
    screen = console()
    for name, release in releases.items():
        screen.rule(name)
        for block in release.blocks():
            screen.print(block)
    screen.print(f"study {declared.digest}\nwritten: {', '.join(files.values())}")


def _released(
    study: StudyFile,
    models: dict[str, Any],
    plans: dict[str, Any],
    cells: Table | BlockedDataset,
    files: dict[str, str],
    options: dict[str, Any],
) -> dict[str, BaseRelease]:
    """The releases, each in its file. Files are opened before the charge, which no failure takes back."""
    from dp2erm_cvx.cli.reading import data_columns
    from dp2erm_cvx.tables import Table

    treatment, outcome = data_columns(study.domain)
    releases: dict[str, BaseRelease] = {}
    receipt: Receipt | None = None
    try:
        Path(options["output_dir"]).mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(options["output_dir"], error) from None
    with ExitStack() as every:
        own = {name: every.enter_context(ExitStack()) for name in files}
        opened = {
            name: own[name].enter_context(reserved(file, force=options["force"]))
            for name, file in files.items()
        }
        if options["seed"] is None:
            receipt = study.charge(plans, f"{treatment} on {outcome}")
        elif study.account is not None:
            click.echo("note: seeded, hence not private: nothing is charged to the ledger", err=True)
        try:
            for name, model in models.items():
                # every question makes records of its own: whom they count follows from its where and by
                if isinstance(cells, Table):
                    model.fit(cells, cells.cells(treatment), cells.cells(outcome))
                else:
                    model.fit(cells)
                releases[name] = replace(model.release_, study=study.digest)
                file = opened[name]
                assert file is not None
                file.write(releases[name].to_json() + "\n")
                own[name].close()  # it has its name before the next question is answered
        except BaseException:
            for release in releases.values():  # what was paid for is never lost
                click.echo(release.to_json())
            raise
        finally:
            if receipt is not None:
                click.echo(f"charged to {receipt.dataset!r}: {receipt}", err=True)
    return releases
