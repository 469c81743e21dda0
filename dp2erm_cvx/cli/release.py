"""``dp2erm effect``, ``rule``, ``fit`` and ``run``: private releases from a data file, and their plans."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import dp2erm_cvx as library
from dp2erm_cvx.cli import options as opt
from dp2erm_cvx.cli import reading, screen
from dp2erm_cvx.cli.programs import first_stage, known_solver, second_stage_of
from dp2erm_cvx.display import digits_of, grid
from dp2erm_cvx.errors import DataError, DeclarationError, LedgerError

if TYPE_CHECKING:
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.ledger import Receipt
    from dp2erm_cvx.plan import Plan
    from dp2erm_cvx.release.record import BaseRelease
    from dp2erm_cvx.study_file import StudyFile

_SEEDED = "note: seeded, hence not private: nothing is charged to the ledger"
#: The data file of one release, and how it is read.
_record_options = opt.apply(opt.data_argument, opt.data_options, reading.block_options)
#: What one release spends, where it goes, its account, and what the data holder may look at.
_release_options = opt.apply(
    opt.field_option("privacy:Budget.epsilon", type=opt.Number(), required=True),
    opt.delta_option,
    click.option("--output", metavar="FILE", help="Write the release as JSON."),
    opt.field_option(f"{opt.ESTIMATOR}.ledger", metavar="FILE", beside=" See dp2erm ledger."),
    opt.field_option("ledger.ledger:Account.dataset", metavar="NAME"),
    click.option("--balance", is_flag=True, help="Show covariate balance on stderr: not private."),
    click.option("--love-plot", metavar="FILE.png", help="Draw covariate balance: not private."),
    click.option("--overlap-plot", metavar="FILE.png", help="Draw propensities by arm: not private."),
    opt.printing_options,
)


@click.command(
    "effect",
    cls=opt.Command,
    declared="dp2erm_cvx.estimators:PrivateEffect",
    short_help="A private average effect with an interval.",
)
@_record_options
@opt.field_option(
    "plan.settings:EffectSettings.cells", multiple=True, metavar="NAME=CUT,...|NAME:N", beside=" Repeatable."
)
@opt.field_option(
    "private_ranges:PrivateRanges.share",
    "--private-ranges",
    type=opt.Number(),
    metavar="SHARE",
    show_default="all are declared",
)
@_release_options
def effect_command(data: str | None, **options: Any) -> None:
    """Release the average effect of the treatment in DATA, doubly robust, with an interval.

    An outcome regression and a propensity are released first; then the mean of one estimate per record. What
    is declared is public, stated without looking at the data. Records outside the domain are clipped.
    """
    _release("PrivateEffect", data, options)


@click.command(
    "rule",
    cls=opt.Command,
    declared="dp2erm_cvx.estimators:PrivateRule",
    short_help="A private treatment rule.",
)
@_record_options
@_release_options
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
    cls=opt.Command,
    declared="dp2erm_cvx.estimators:PrivateTwoStageERM",
    short_help="One private release from a data file.",
)
@_record_options
@opt.program_option(default="entropy_balancing")
@opt.setting_options
@opt.second_stage_options
@_release_options
def fit_command(data: str | None, **options: Any) -> None:
    """Release a private treatment rule or effect from DATA.

    Everything about the domain, the programs and the budget is public and must be declared without
    looking at the data. Covariates are scaled by their public ranges and clipped to the covariate bound; the
    outcome is centered and clipped to the outcome bound.
    """
    _release("PrivateTwoStageERM", data, options)


def _release(kind: str, data: str | None, options: dict[str, Any]) -> None:
    """Release what the estimator of this name makes of the data, or show its plan.

    Everything that is declared is judged before the data are read.
    """
    figures = [options[name] for name in ("love_plot", "overlap_plot") if options[name]]
    _check_files(data, options, *figures)
    for figure in figures:
        from dp2erm_cvx.plotting import check_figure

        check_figure(figure)
    with screen.progress("reading the data", total=2) as bar:
        from dp2erm_cvx.sampling import refuse

        budget = library.Budget(options["epsilon"], options["delta"])
        counts: list[RecordCounts] = []
        public: Any = reading.read_domain if options.get("private_ranges") is None else reading.read_ranges
        domain = public(options)

        def records(public: Any) -> Any:
            return reading.Coded.read(str(data), options, public, bar).by(public, counts.append)

        columns, dataset = domain.columns or opt.names(options["covariates"]), None
        featured = any(one.startswith("features=") for one in options.get("second_settings", ()))
        if columns is None and featured and options["planned"] is None:
            # names of the data themselves, where features are chosen from them
            dataset = records(domain)
            columns = dataset.columns
        model = _model(getattr(library, kind), domain, budget, options, columns)
        model.check(columns)
        if options["planned"] is not None:
            _show_plans({"": model.plan(*_planned_size(domain, options))}, as_json=options["as_json"])
            return
        dataset = records(model.public()) if dataset is None else dataset
        seen: list[Any] = []
        if options["balance"] or figures:
            refuse(model.public().codebook, "a table or a plot of balance", "arms")
            if not isinstance(dataset, library.Dataset):
                raise DeclarationError("--balance and plots need all records in memory: add --blocks never")
            model.look = lambda *run: seen.extend(run)
        model.before_charge = lambda: _announce(counts, [model], yes=options["yes"])
        model.output = options["output"]
        (release,) = _released(
            {kind: model},
            lambda _: dataset,
            {kind: options["output"]},
            options,
            after=lambda: _for_the_data_holder(model, seen, options),
        ).values()
    _show_release(release, budget.delta, options, domain)


def _model(kind: Any, domain: Any, budget: Any, options: dict[str, Any], columns: Any) -> Any:
    """The estimator of this kind with the settings of the options."""
    settings = opt.declared_settings(kind, options) | {"solver": known_solver(options["solver"])}
    if options["ledger"] is not None and options["seed"] is None:  # what is seeded costs nothing
        settings |= {"ledger": library.Ledger(options["ledger"]), "dataset": options["dataset"]}
    if "program" in options:
        second = second_stage_of(options["second_stage"], domain, options["second_settings"], columns)
        settings |= {"first_stage": first_stage(options["program"], options), "second_stage": second}
    return kind(domain, budget, **settings, seed=options["seed"])


def _show_release(release: BaseRelease, delta: float, options: dict[str, Any], domain: Any) -> None:
    """Notes on stderr, then the release as JSON or in words."""
    if options["ledger"] is not None and options["seed"] is not None:
        click.echo(_SEEDED, err=True)
    if delta and not release.guarantee.delta:
        click.echo(f"note: {release.guarantee.theorem} is pure; --delta is not used", err=True)
    if getattr(domain, "outcome_bound", None) is not None and domain.ranges is None:
        click.echo(f"warning: {reading.NO_RANGES}", err=True)
    if not release.private:
        click.echo(f"{release.guarantee.standing.upper()}: do not publish this release", err=True)
    text, blocks = release.to_json(), list(release.blocks())
    with screen.writing("stdout"):  # behind which a disk may be full: what was charged has been told
        click.echo(text) if options["as_json"] else screen.show(blocks)


def _for_the_data_holder(model: Any, seen: list[Any], options: dict[str, Any]) -> None:
    """Messages about the records: solutions without a certificate, and the balance that was asked for."""
    if (workings := getattr(model, "private_workings_", None)) is not None:
        for solution in (workings.weights, workings.theta):
            warned = solution is workings.weights and solution.substituted  # by the fit itself
            if not solution.certified and not warned:
                click.echo(f"warning: {solution.advice()}", err=True)
    if not seen:
        return
    from dp2erm_cvx.diagnostics import adjusted
    from dp2erm_cvx.plotting import love_plot, overlap_plot

    table, propensity, arms = adjusted(*seen)
    if options["balance"]:
        screen.show(table.blocks(), stderr=True)
    if options["love_plot"]:
        love_plot(table, options["love_plot"])
        click.echo(f"NOT PRIVATE: love plot written to {options['love_plot']}", err=True)
    if options["overlap_plot"]:
        overlap_plot(propensity, arms, options["overlap_plot"])
        click.echo(f"NOT PRIVATE: overlap plot written to {options['overlap_plot']}", err=True)


@click.command(
    "run",
    cls=opt.Command,
    first=("planned", "changes", "output_dir", "yes"),
    short_help="All questions of a study file, charged together.",
)
@click.argument("study", metavar="STUDY.toml")
@opt.data_argument
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="TABLE.NAME=VALUE",
    help="In place of what the file says, such as budget.epsilon=2. Repeatable.",
)
@reading.block_options
@opt.field_option(
    f"{opt.ESTIMATOR}.solver", default="first_certified", beside=" Or FILE.py:NAME of your own."
)
@click.option("--output-dir", default="releases", metavar="FOLDER", help="For one JSON file per question.")
@opt.printing_options
def run_command(study: str, data: str | None, **options: Any) -> None:
    """Answer the questions of STUDY.toml from DATA: all are charged, or none.

    The file declares all that is public: see dp2erm settings, and dp2erm check --draft, which writes one.
    """
    options |= {"domain": study, "covariates": None}
    _check_files(data, options)
    as_json, seeded = options["as_json"], options["seed"] is not None
    with screen.progress("reading the data", total=2) as bar:
        from dp2erm_cvx.study_file import read_study

        declared = read_study(study, options["changes"])
        models = declared.models(seed=options["seed"], solver=known_solver(options["solver"]))
        if options["planned"] is not None:
            plans = declared.plans(models, *_planned_size(declared.domain, options))
            _show_plans(plans, as_json=as_json)
            _show_shares(declared, plans, stderr=as_json)
            return
        folder, book = Path(options["output_dir"]), str(declared.account[0]) if declared.account else None
        files: dict[str, str | None] = {name: str(folder / f"{name}.json") for name in models}
        if not os.path.lexists(folder):
            screen.writable(str(folder))
        else:
            for file in files.values():
                screen.check_new(file, options["force"], data, study, book)
        counts: list[RecordCounts] = []
        coded = reading.Coded.read(str(data), options, declared.domain, bar)
        records = [coded.by(model.domain, counts.append) for model in models.values()]
        plans = declared.plans(models, records[0].n_samples, len(records[0].columns))
        _announce(counts, models.values(), yes=options["yes"])
        if seeded and book is not None:
            click.echo(_SEEDED, err=True)
        for model in models.values():
            model.earlier.digest = declared.digest
        tell, done = screen.stages(bar), itertools.count()
        pairs = [reading.data_columns(model.domain) for model in models.values()]
        about = f"{pairs[0][0]} on {', '.join(dict.fromkeys(outcome for _, outcome in pairs))}"

        def records_of(model: Any) -> Any:
            tell("questions answered", next(done), len(models))
            return coded.by(model.public())  # who counts, and the outcome, follows from the question

        screen.made_folder(folder)
        releases = _released(
            models,
            records_of,
            files,
            {**options, "ledger": book},
            charge=lambda: None if seeded else declared.charge(plans, about),
        )
    if as_json:
        screen.print_json({name: release.to_dict() for name, release in releases.items()})
        return
    from dp2erm_cvx.release.answers import answer_blocks, answers

    for name, release in releases.items():
        screen.console().rule(name)
        screen.show(release.blocks())
    if len(listed := answers(releases)) > 1:
        screen.show(answer_blocks(listed))
    _show_shares(declared, plans)
    click.echo(f"written: {', '.join(map(str, files.values()))}")


def _show_shares(study: StudyFile, plans: Mapping[str, Plan[Any]], *, stderr: bool = False) -> None:
    """Shares of the budget that questions were declared and spend; what all guarantee together."""
    from dp2erm_cvx.release.caveats import weak

    rows = [
        (one.name, f"{one.share:.3g}", digits_of(plan.guarantee.epsilon, 4), digits_of(plan.own.epsilon, 4))
        for one, plan in zip(study.questions, plans.values(), strict=True)
    ]
    spent = math.fsum(plan.own.epsilon for plan in plans.values())
    table = grid("question", "share", "guarantees epsilon", "spends itself", rows=rows)
    together: list[Any] = (
        [table, f"All questions together: epsilon = {digits_of(spent)}."] if len(rows) > 1 else []
    )
    screen.show([*together, *filter(None, [weak(spent)])], stderr=stderr)
    click.echo(f"study {study.digest}", err=stderr)


def _check_files(data: str | None, options: dict[str, Any], *files: str | None) -> None:
    """Refuse what could not be written or charged before anything is imported or read.

    ``files`` are those that the command writes besides.
    """
    if data is None and options["planned"] is None:
        raise DeclarationError("no data: name a CSV or Parquet file, or plan a release with --plan N")
    book, output = options.get("ledger"), options.get("output")
    if (book is None) != (options.get("dataset") is None):
        raise DeclarationError("--ledger and --dataset go together: give both or neither")
    screen.check_new(output, options["force"], data, options["domain"], book)
    for other in files:
        screen.check_new(other, options["force"], data, options["domain"], output, book)
    seed = options["seed"]
    if seed is not None and not isinstance(seed, int):
        raise DeclarationError(f"seed = {seed!r}: must be a whole number")


def _announce(counted: Sequence[RecordCounts], models: Collection[Any], *, yes: bool) -> None:
    """Tell the data holder what becomes of the records, before anything is charged.

    Raises DataError where these counts are ``wrong``, or one of the ``models`` advises so, unless ``yes``.
    """
    for counts in counted:
        judged = [model for model in models if str(model.public().codebook.outcome) == counts.outcome]
        wrong = [*counts.wrong, *filter(None, dict.fromkeys(model.advice(counts.values) for model in judged))]
        if wrong and not yes:
            text = "; ".join([*wrong, "nothing was charged; --yes releases all the same"])
            raise DataError(f"{text}. {counts}")
        click.echo(str(counts), err=True)


def _released(
    models: Mapping[str, Any],
    records: Callable[[Any], Any],
    files: Mapping[str, str | None],
    options: dict[str, Any],
    *,
    charge: Callable[[], Receipt | None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> dict[str, BaseRelease]:
    """Fit the models to their records, and write each release to its file: what is paid for is never lost.

    Files are opened before anything is spent: by ``charge`` for all models, or by each for itself. Whatever
    fails then, in what comes ``after`` too, the releases go to stdout.
    """
    releases: dict[str, BaseRelease] = {}
    paid: Receipt | None = None
    try:
        with ExitStack() as every:
            own = {name: every.enter_context(ExitStack()) for name in files}
            opened = {
                name: own[name].enter_context(screen.reserved(file, force=options["force"]))
                for name, file in files.items()
            }
            paid = charge()
            for name, model in models.items():
                model.fit_announced(records(model))
                releases[name] = model.release_
                if (file := opened[name]) is not None:
                    file.write(releases[name].to_json() + "\n")
                own[name].close()  # it has its name before the next one is fitted
        after()
    except BaseException as error:
        for release in releases.values():
            click.echo(release.to_json())
        if releases and isinstance(error, OSError):
            with screen.writing(", ".join(filter(None, files.values()))):
                raise
        raise
    finally:
        receipts = [paid, *(getattr(model, "receipt_", None) for model in models.values())]
        if (receipt := next(filter(None, receipts), None)) is not None:
            text = f"charged to {receipt.dataset!r}: {receipt}"
            with suppress(LedgerError):  # it has to be told whatever became of the ledger
                account = library.Ledger(options["ledger"]).account(receipt.dataset)
                left = digits_of(account.spent.left_epsilon, left=True)
                text += f"; charge {len(account.receipts)}, epsilon = {left} left"
            click.echo(text, err=True)
            if not releases:
                click.echo("nothing was released, and the charge stays", err=True)
    return releases


def _planned_size(public: library.Domain, options: dict[str, Any]) -> tuple[int, int]:
    """Records and covariates that ``--plan`` is for. Raises DeclarationError where these are not declared."""
    from dp2erm_cvx.public import whole_number

    n_samples = whole_number("--plan", options["planned"], at_least=2)
    columns = getattr(public, "columns", None) or opt.names(options.get("covariates"))
    if not columns:
        raise DeclarationError("--plan: the covariates are not declared: give ranges, or --covariates A,B")
    return n_samples, len(columns)


def _show_plans(plans: Mapping[str, Plan[Any]], *, as_json: bool) -> None:
    """Show what plans spend, step by step, and what is predicted of their releases; one alone has no name."""
    from dp2erm_cvx.plan import Study
    from dp2erm_cvx.plan.predict import plan_blocks, predicted_of
    from dp2erm_cvx.release.caveats import weak

    facts: dict[str, Any] = {}
    for name, plan in plans.items():
        spent, before, universe = plan.guarantee, plan.study.before, plan.study.universe
        if as_json:
            steps: list[dict[str, Any]] = [
                {"step": one.name, "theorem": one.theorem, **dataclasses.asdict(one.guarantee)}
                | {"scale": one.noise_law["scale"]}
                | ({"of": before[one.name]["of"]} if one.name in before else {})
                for one in plan.steps
            ]
            facts[name] = {"n_samples": universe.n_samples, "guarantee": dataclasses.asdict(spent)}
            facts[name] |= {"steps": steps}
            facts[name] |= {"predicted": {fact: one[0] for fact, one in predicted_of(plan).items()}}
            continue
        # of a study a weak guarantee is told once, of all questions
        alone = weak(spent.epsilon) if not name else ""
        screen.show([*plan_blocks(plan, name or None), *filter(None, [alone])])
        if isinstance(plan.study, Study) and (cost := plan.study.first.cost(universe)):
            click.echo(f"note: {cost}", err=True)
    if as_json:
        screen.print_json(facts.get("", facts))
