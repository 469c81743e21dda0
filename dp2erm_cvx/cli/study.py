"""``dp2erm run`` and ``dp2erm ledger``: the questions of a study file, and their account."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import ESTIMATOR, Command, Number, field_option, json_option
from dp2erm_cvx.cli.programs import known_solver
from dp2erm_cvx.cli.reading import Coded, block_options, data_columns, read_cells
from dp2erm_cvx.cli.releasing import (
    SEEDED,
    announce,
    check_files,
    data_argument,
    planned_size,
    printing_options,
    released,
    show_plan,
)
from dp2erm_cvx.cli.screen import (
    check_new,
    console,
    made_folder,
    print_json,
    progress,
    show,
    stages,
    writable,
)
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.blocked import BlockedDataset
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.ledger import Account, Receipt
    from dp2erm_cvx.plan import Plan
    from dp2erm_cvx.study_file import StudyFile


@click.command("run", cls=Command, short_help="All questions of a study file, charged together.")
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
@field_option(f"{ESTIMATOR}.solver", default="first_certified", beside=" Or FILE.py:NAME of your own.")
@click.option("--output-dir", default="releases", metavar="FOLDER", help="For one JSON file per question.")
@printing_options
def run_command(study: str, data: str | None, **options: Any) -> None:
    """Answer the questions of STUDY.toml from DATA: effects, rules and weighted means.

    The file holds all that is public: domain, budget, account and questions, each with its share of the
    budget. They are planned before anything is spent, and charged together or not at all.
    """
    check_files(data, {**options, **dict.fromkeys(("ledger", "dataset", "output")), "domain": study})
    with progress("reading the data", total=2) as bar:
        from dp2erm_cvx.study_file import read_study

        declared = read_study(study, options["changes"])
        models = declared.models(seed=options["seed"], solver=known_solver(options["solver"]))
        if options["planned"] is not None:
            _show_plans(declared, models, options)
            return
        assert data is not None
        folder, book = Path(options["output_dir"]), str(declared.account[0]) if declared.account else None
        files: dict[str, str | None] = {name: str(folder / f"{name}.json") for name in models}
        if not os.path.lexists(folder):
            writable(str(folder))
        else:
            for file in files.values():
                check_new(file, options["force"], data, study, book)
        counts: list[RecordCounts] = []
        reading = {**options, "domain": study, "covariates": None}
        cells = read_cells(data, reading, declared.domain, bar)
        coded = Coded(cells, reading)
        records = [coded.by(model.domain, counts.append) for model in models.values()]
        plans = declared.plans(models, records[0].n_samples, len(records[0].columns))
        announce(counts, models.values(), yes=options["yes"])
        if options["seed"] is not None and declared.account is not None:
            click.echo(SEEDED, err=True)
        for model in models.values():
            model.earlier.digest = declared.digest
        tell, done = stages(bar), itertools.count()
        columns = dict.fromkeys(name for model in models.values() for name in data_columns(model.domain))

        def charge() -> Receipt | None:
            treatment, *outcomes = columns
            about = f"{treatment} on {', '.join(outcomes)}"
            return declared.charge(plans, about) if options["seed"] is None else None

        def records_of(model: Any) -> Dataset | BlockedDataset:
            tell("questions answered", next(done), len(models))
            return coded.by(model.public())  # who counts, and the outcome, follows from the question

        made_folder(folder)
        releases = released(models, records_of, files, {**options, "ledger": book}, charge=charge)
    if options["as_json"]:
        print_json({name: release.to_dict() for name, release in releases.items()})
        return
    from dp2erm_cvx.release.answers import answer_blocks, answers

    screen = console()
    for name, release in releases.items():
        screen.rule(name)
        show(release.blocks())
    if len(listed := answers(releases)) > 1:
        show(answer_blocks(listed))
    _shares(declared, plans)
    screen.print(f"study {declared.digest}\nwritten: {', '.join(map(str, files.values()))}")


def _show_plans(declared: StudyFile, models: dict[str, Any], options: dict[str, Any]) -> None:
    """Show the plan of every question."""
    plans = declared.plans(models, *planned_size(declared.domain, options))
    for name, plan in plans.items():
        show_plan(plan, as_json=options["as_json"], name=name)
    _shares(declared, plans, err=options["as_json"])
    click.echo(f"study {declared.digest}", err=options["as_json"])


def _shares(study: StudyFile, plans: Mapping[str, Plan[Any]], *, err: bool = False) -> None:
    """Shares of the budget that questions were declared and spend; what all guarantee together."""
    from dp2erm_cvx.release.caveats import weak

    rows = []
    for one in study.questions:
        plan = plans[one.name]
        rows.append(
            (one.name, f"{one.share:.3g}", f"{plan.guarantee.epsilon:.4g}", f"{plan.own.epsilon:.4g}")
        )
    spent = math.fsum(plan.own.epsilon for plan in plans.values())
    screen = console(stderr=err)
    if len(rows) > 1:
        screen.print(grid("question", "share", "guarantees epsilon", "spends itself", rows=rows))
        screen.print(f"All questions together: epsilon = {spent:.6g}.")
    if warning := weak(spent):
        screen.print(warning)


@click.command("ledger", short_help="Budget of data sets: total, spent and left.")
@click.argument("file", metavar="FILE")
@field_option("ledger.ledger:Account.dataset", metavar="NAME", beside=" This one only, with every charge.")
@click.option("--declare-epsilon", type=Number(), help="Open the account of --dataset with this total.")
@click.option("--declare-delta", type=Number(), help="Delta of that total [0].")
@field_option("ledger.ledger:Account.relation", show_default="replace-one")
@field_option("ledger.ledger:Account.composition", show_default="basic")
@json_option
def ledger_command(file: str, dataset: str | None, as_json: bool, **options: Any) -> None:
    """Show the budgets in the ledger FILE, or declare the total of a data set.

    A total is declared once and never changed. dp2erm fit --ledger charges a release before its noise is
    drawn, and refuses what does not fit.
    """
    from dp2erm_cvx.ledger import Ledger

    book = Ledger(file)
    declared = {name: value for name, value in options.items() if value is not None}
    if declared:
        from dp2erm_cvx.privacy import Budget

        if dataset is None or "declare_epsilon" not in declared:
            raise DeclarationError("a total needs both --dataset NAME and --declare-epsilon E")
        total = Budget(declared.pop("declare_epsilon"), declared.pop("declare_delta", 0.0))
        book.declare(dataset, total, **declared)
    accounts = book.accounts() if dataset is None else [book.account(dataset)]
    if as_json:
        print_json([account.to_dict() for account in accounts])
    else:
        _show(accounts, charges=dataset is not None)


def _show(accounts: Sequence[Account], *, charges: bool) -> None:
    screen = console()
    if not accounts:
        screen.print("no data set has been declared in this ledger")
        return
    for account in accounts:
        spent = account.spent
        protected = "" if account.unit is None else f", protected: {account.unit}"
        text = f"{account.dataset}: {_counted(account)}, neighbors: {account.relation}{protected}"
        screen.print(text, style="bold", markup=False)
        sums = (
            ("total", account.total.epsilon, account.total.delta),
            (f"spent ({spent.composition} composition)", spent.epsilon, spent.delta),
            ("left", spent.left_epsilon, spent.left_delta),
        )
        rows = [(name, f"{epsilon:.6g}", f"{delta:.3g}") for name, epsilon, delta in sums]
        screen.print(grid("", "epsilon", "delta", rows=rows))
        if account.composition is not spent.composition:
            screen.print(f"declared: {account.composition}; {spent.composition} is in force")
        if account.composition == "renyi":
            curves = sum(one.curve is not None for one in account.receipts)
            screen.print(f"Renyi curves: {curves} of {_counted(account)}; pure releases need none")
        if charges and account.receipts:
            each = (
                (one.charged_at, one.number, one.note, f"{one.budget.epsilon:g}", f"{one.budget.delta:g}")
                for one in account.receipts
            )
            listed = grid("charged at (UTC)", "receipt", "note", "epsilon", "delta", left=3, rows=each)
            listed.columns[1].no_wrap = True
            screen.print(listed)


def _counted(account: Account) -> str:
    count = len(account.receipts)
    return f"{count} release{'' if count == 1 else 's'}"
