"""``dp2erm effect``, ``rule``, ``fit`` and ``run``: private releases from a data file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import (
    ESTIMATOR,
    Command,
    Number,
    field_option,
    names,
    program_option,
    second_stage_options,
    setting_options,
)
from dp2erm_cvx.cli.programs import first_stage, known_solver, second_stage_of
from dp2erm_cvx.cli.reading import Coded, block_options, data_columns, read_cells, read_domain, read_ranges
from dp2erm_cvx.cli.releasing import (
    Ordered,
    announce,
    check_files,
    data_argument,
    fit_to,
    planned,
    printing_options,
    record_options,
    release_options,
    show_plan,
)
from dp2erm_cvx.cli.screen import (
    check_new,
    console,
    print_json,
    progress,
    reserved,
    show,
    stages,
    unwritable,
    writable,
)
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.ledger import Receipt
    from dp2erm_cvx.plan import Plan
    from dp2erm_cvx.private_ranges import PrivateRanges
    from dp2erm_cvx.release.record import BaseRelease
    from dp2erm_cvx.study_file import StudyFile


def _release(
    kind: str,
    data: str | None,
    options: dict[str, Any],
    staged: Callable[[Any, tuple[str, ...]], dict[str, Any]] = lambda *_: {},
) -> None:
    """Release what the estimator of this name makes of the data, or show its plan.

    Everything that is declared is judged before the data are read. ``staged`` are further arguments for a
    domain and the covariates that are declared.
    """
    figures = [options[name] for name in ("love_plot", "overlap_plot") if options[name]]
    check_files(data, options, *figures)
    for figure in figures:
        from dp2erm_cvx.plotting.figure import check_figure

        check_figure(figure)
    with progress("reading the data", total=2) as bar:
        from dp2erm_cvx import estimators
        from dp2erm_cvx.data import Dataset
        from dp2erm_cvx.privacy import Budget
        from dp2erm_cvx.sampling import refuse_arms

        ordered = Ordered(Budget(options["epsilon"], options["delta"]), options)
        made = getattr(estimators, kind)
        domain: Domain | PrivateRanges
        domain = read_domain(options) if options.get("private_ranges") is None else read_ranges(options)
        columns, dataset = domain.columns or names(options["covariates"]), None
        featured = any(one.startswith("features=") for one in options.get("second_settings", ()))
        if columns is None and featured and data and options["planned"] is None:
            # names of the data themselves, where features are chosen from them
            dataset = Coded(read_cells(data, options, domain, bar), options).by(domain, ordered.counts.append)
            columns = dataset.columns
        arguments = ordered.arguments(made) | staged(domain, columns or ())
        model = made(domain, ordered.budget, **arguments)
        model.check(columns)
        if planned(model, options) or data is None:
            return
        if dataset is None:
            public = model.public()
            dataset = Coded(read_cells(data, options, public, bar), options).by(public, ordered.counts.append)
        seen: list[Any] = []
        if options["balance"] or figures:
            refuse_arms(model.public().codebook, "a table or a plot of balance")
            if not isinstance(dataset, Dataset):
                raise DeclarationError("--balance and plots need all records in memory: add --blocks never")
            model.look = lambda *run: seen.extend(run)
        ordered.fit(model, dataset, lambda: _for_the_data_holder(model, seen, options))
    ordered.show(model, model.release_)


@click.command(
    "effect",
    cls=Command,
    declared="dp2erm_cvx.estimators:PrivateEffect",
    short_help="A private average effect with an interval.",
)
@record_options
@field_option(
    "plan.settings:EffectSettings.cells", multiple=True, metavar="NAME=CUT,...|NAME:N", beside=" Repeatable."
)
@field_option(
    "private_ranges:PrivateRanges.share",
    "--private-ranges",
    type=Number(),
    metavar="SHARE",
    show_default="all are declared",
)
@release_options
def effect_command(data: str | None, **options: Any) -> None:
    """Release the average effect of the treatment in DATA, doubly robust, with an interval.

    An outcome regression and a propensity are released first; then the mean of one estimate per record. What
    is declared is public, stated without looking at the data. Records outside the domain are clipped.
    """
    _release("PrivateEffect", data, options)


@click.command(
    "rule",
    cls=Command,
    declared="dp2erm_cvx.estimators:PrivateRule",
    short_help="A private treatment rule.",
)
@record_options
@release_options
def rule_command(data: str | None, **options: Any) -> None:
    """Release a linear rule that says whom to treat, fitted to DATA.

    Where the budget leaves room, a regression of the outcome and a propensity are released first, and
    corrected for; before them the mean and the mean square of the covariates, by which records are placed.
    What is declared is public, and must be stated without looking at the data. Records outside the domain are
    clipped.
    """
    _release("PrivateRule", data, options)


@click.command(
    "fit",
    cls=Command,
    declared="dp2erm_cvx.estimators:PrivateTwoStageERM",
    short_help="One private release from a data file.",
)
@record_options
@program_option(default="entropy_balancing")
@setting_options
@second_stage_options
@release_options
def fit_command(data: str | None, **options: Any) -> None:
    """Release a private treatment rule or effect from DATA.

    Everything about the domain, the programs and the budget is public and must be declared without
    looking at the data. Covariates are scaled by their public ranges and clipped to the covariate bound; the
    outcome is centered and clipped to the outcome bound.
    """

    def staged(domain: Domain, columns: tuple[str, ...]) -> dict[str, Any]:
        second = second_stage_of(options["second_stage"], options, columns, domain)
        return {"first_stage": first_stage(options["program"], options), "second_stage": second}

    _release("PrivateTwoStageERM", data, options, staged)


def _for_the_data_holder(model: Any, seen: list[Any], options: dict[str, Any]) -> None:
    """What a run says of the records: its plan and what it found; and of solutions without a certificate."""
    if (workings := getattr(model, "private_workings_", None)) is not None:
        for solution in (workings.weights, workings.theta):
            told = solution is workings.weights and solution.substituted  # by the fit itself
            if not solution.certified and not told:
                click.echo(f"warning: {solution.advice()}", err=True)
    if not seen:
        return
    from dp2erm_cvx.diagnostics import adjusted
    from dp2erm_cvx.plotting import love_plot, overlap_plot

    table, propensity, arms = adjusted(*seen)
    if options["balance"]:
        show(table.blocks(), stderr=True)
    if options["love_plot"]:
        love_plot(table, options["love_plot"])
        click.echo(f"NOT PRIVATE: love plot written to {options['love_plot']}", err=True)
    if options["overlap_plot"]:
        overlap_plot(propensity, arms, options["overlap_plot"])
        click.echo(f"NOT PRIVATE: overlap plot written to {options['overlap_plot']}", err=True)


@click.command(
    "run",
    cls=Command,
    short_help="All questions of a study file, charged together.",
)
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
        from dp2erm_cvx.public import whole_number
        from dp2erm_cvx.study_file import read_study

        declared = read_study(study, options["changes"])
        models = declared.models(seed=options["seed"], solver=known_solver(options["solver"]))
        if options["planned"] is not None:
            n, columns = whole_number("--plan", options["planned"], at_least=2), declared.domain.columns
            if columns is None:
                raise DeclarationError(f"{study}: the covariates are not declared: give [ranges]")
            plans = declared.plans(models, n, len(columns))
            for name, plan in plans.items():
                show_plan(plan, as_json=options["as_json"], name=name)
            _shares(declared, plans, err=options["as_json"])
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
        coded = Coded(cells, reading)
        records = [coded.by(model.domain, counts.append) for model in models.values()]
        plans = declared.plans(models, records[0].n_samples, len(records[0].columns))
        announce(counts, models.values(), yes=options["yes"])
        releases = _released(declared, models, plans, coded, files, options, stages(bar))
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
    screen.print(f"study {declared.digest}\nwritten: {', '.join(files.values())}")


def _shares(study: StudyFile, plans: Mapping[str, Plan[Any]], *, err: bool = False) -> None:
    """What of the budget every question was declared, and spends by itself; what all guarantee together."""
    from dp2erm_cvx.release.caveats import weak

    rows = [
        (
            one.name,
            f"{one.share:.3g}",
            f"{plans[one.name].guarantee.epsilon:.4g}",
            f"{plans[one.name].own.epsilon:.4g}",
        )
        for one in study.questions
    ]
    spent = math.fsum(plan.own.epsilon for plan in plans.values())
    screen = console(stderr=err)
    if len(rows) > 1:
        screen.print(grid("question", "share", "guarantees epsilon", "spends itself", rows=rows))
        screen.print(f"All questions together: epsilon = {spent:.6g}.")
    if told := weak(spent):
        screen.print(told)


def _released(
    study: StudyFile,
    models: dict[str, Any],
    plans: dict[str, Any],
    coded: Coded,
    files: dict[str, str],
    options: dict[str, Any],
    told: Callable[[str, int, int], None],
) -> dict[str, BaseRelease]:
    """The releases, each in its file. Files are opened before the charge, which no failure takes back."""
    treatment, *outcomes = dict.fromkeys(name for one in models.values() for name in data_columns(one.domain))
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
            receipt = study.charge(plans, f"{treatment} on {', '.join(outcomes)}")
        elif study.account is not None:
            click.echo("note: seeded, hence not private: nothing is charged to the ledger", err=True)
        try:
            for done, (name, model) in enumerate(models.items()):
                told("questions answered", done, len(models))
                # whom records count, and their outcome, follows from the question
                fit_to(model, coded.by(model.public()))
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
