"""``dp2erm run``: the private releases of a study file from a data file, and their plans."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

import dp2erm_cvx as library
from dp2erm_cvx.cli import options as opt
from dp2erm_cvx.cli import reading, screen
from dp2erm_cvx.cli.programs import known_solver
from dp2erm_cvx.display import digits_of, grid
from dp2erm_cvx.errors import DeclarationError, LedgerError

if TYPE_CHECKING:
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.diagnostics.look import Findings
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.estimators.fitting import PlanRun
    from dp2erm_cvx.ledger import Receipt
    from dp2erm_cvx.plan import Plan
    from dp2erm_cvx.release.record import BaseRelease
    from dp2erm_cvx.study import StudyFile
    from dp2erm_cvx.study.records import StudyRecords

_SEEDED = "note: seeded, hence not private: nothing is charged to the ledger"
#: What the data holder may look at beside the release.
holder_options = opt.apply(
    click.option("--balance", is_flag=True, help="Show covariate balance on stderr: not private."),
    click.option("--love-plot", metavar="FILE.png", help="Draw covariate balance: not private."),
    click.option(
        "--overlap-plot", metavar="FILE.png", help="Draw propensities by arm: not private."
    ),
)


@dataclass(frozen=True)
class Places:
    """The files that a run writes, by question.

    Parameters
    ----------
    releases
        The JSON file of each release.
    figures
        The files of plots, by the option that asks for them.
    """

    releases: Mapping[str, str]
    figures: Mapping[str, Mapping[str, str]]


@click.command(
    "run",
    cls=opt.Command,
    first=("planned", "changes", "output_dir", "yes", "conditional"),
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
@click.option("--output", metavar="FILE", help="Of a single question, in place of --output-dir.")
@click.option(
    "--output-dir", default="releases", metavar="FOLDER", help="For one JSON file per question."
)
@holder_options
@opt.printing_options
def run_command(study: str, data: str | None, **options: Any) -> None:
    """Answer the questions of STUDY.toml from DATA: all are charged, or none.

    The file declares all that is public: see dp2erm settings, and dp2erm check --draft, which
    writes one.
    """
    _check_words(data, study, options)
    with screen.progress("reading the data", total=2) as bar:
        from dp2erm_cvx.program.registry import known_meanwhile
        from dp2erm_cvx.study import read_study

        declared = read_study(study, options["changes"])
        for program in declared.programs:
            click.get_current_context().with_resource(known_meanwhile(program))
        models = declared.models(seed=options["seed"], solver=known_solver(options["solver"]))
        if options["planned"] is not None:
            plans = declared.plans(models, opt.number_of_records(options["planned"]))
            _show_plans(declared, plans, as_json=options["as_json"])
            _show_shares(declared, plans, stderr=options["as_json"])
            return
        declared.check(models)
        files = _files(declared, data, options)
        places = Places(files, _figures(declared, data, files, options))
        declared.check_account(models)
        records = _records(declared, data, options, bar)
        if options["balance"] or places.figures:
            _refuse_blocks(records)
        counts, findings = declared.looked_at(models, records)
        plans = declared.plans_for(models, records)
        _refuse_weaker(plans, conditional=options["conditional"])
        _announce(counts, findings, yes=options["yes"])
        answered = _answered(declared, models, plans, records, places, options, bar)
    releases = {name: one.release for name, one in answered.items()}
    _tell_notes(declared, releases)
    _show_releases(declared, answered, files, as_json=options["as_json"])


def _files(study: StudyFile, data: str | None, options: dict[str, Any]) -> dict[str, str]:
    """The file of the release of every question.

    Raises DeclarationError where one should not be written.
    """
    names = [question.name for question in study.questions]
    book = _account_file(study)
    if options["output"] is not None:
        if len(names) > 1:
            raise DeclarationError(
                f"--output: {study.source} asks {len(names)} questions: give --output-dir"
            )
        screen.check_new(options["output"], options["force"], data, study.source, book)
        return {names[0]: options["output"]}
    folder = Path(options["output_dir"])
    files = {name: str(folder / f"{name}.json") for name in names}
    if not os.path.lexists(folder):
        screen.writable(str(folder))
        return files
    for file in files.values():
        screen.check_new(file, options["force"], data, study.source, book)
    return files


#: Plots for the data holder, by the option that names their file.
_PLOTS = ("love_plot", "overlap_plot")


def _figures(
    study: StudyFile, data: str | None, files: Mapping[str, str], options: dict[str, Any]
) -> dict[str, dict[str, str]]:
    """The files of the plots, by option and question.

    Raises DeclarationError where one cannot be drawn.
    """
    from dp2erm_cvx.data.counts import refuse
    from dp2erm_cvx.report.figures import check_figure

    asked = [option for option in _PLOTS if options[option] is not None]
    if options["balance"] or asked:
        for question in study.questions:
            refuse(question.known.codebook, "a table or a plot of balance", "arms")
    figures: dict[str, dict[str, str]] = {}
    taken = [data, study.source, *files.values(), _account_file(study)]
    drawn = [question.name for question in study.questions if question.kind != "ranges"]
    for option in asked:
        path = Path(options[option])
        check_figure(str(path))
        figures[option] = {}
        for name in drawn:
            file = path
            if len(drawn) > 1:
                file = path.with_stem(f"{path.stem}-{name}")
            screen.check_new(str(file), options["force"], *taken)
            taken.append(str(file))
            figures[option][name] = str(file)
    return figures


def _account_file(study: StudyFile) -> str | None:
    """The file of the ledger that a study is charged to; None where there is none."""
    if study.account is None:
        return None
    return str(study.account[0])


def _records(study: StudyFile, data: str | None, options: dict[str, Any], bar: Any) -> StudyRecords:
    """The cells of the data file."""
    named = {question.named for question in study.questions}
    chosen = named.pop() if len(named) == 1 else None
    return reading.read_records(str(data), study.layout, options, study.domain, chosen, bar)


def _refuse_blocks(records: StudyRecords) -> None:
    """Raise DeclarationError where balance is asked for of records that are read in blocks."""
    from dp2erm_cvx.data.blocked import BlockedDataset

    if isinstance(records.cells, BlockedDataset):
        raise DeclarationError("--balance and plots need all records in memory: add --blocks never")


def _answered(
    study: StudyFile,
    models: Mapping[str, Any],
    plans: Mapping[str, Plan[Any]],
    records: StudyRecords,
    places: Places,
    options: dict[str, Any],
    bar: Any,
) -> dict[str, PlanRun]:
    """Charge all questions, answer each, and write its release."""
    is_seeded = options["seed"] is not None
    account_file = _account_file(study)
    if is_seeded and account_file is not None:
        click.echo(_SEEDED, err=True)
    tell = screen.stages(bar)
    answered: dict[str, PlanRun] = {}

    def answers() -> Iterator[tuple[str, BaseRelease]]:
        tell("questions answered", 0, len(models))
        for number, (name, run) in enumerate(study.answered(models, plans, records), 1):
            answered[name] = run
            yield name, run.release
            tell("questions answered", number, len(models))

    def charge() -> Receipt | None:
        if is_seeded:
            return None
        return study.charge(plans)

    def after() -> None:
        for name, run in answered.items():
            if isinstance(run.release, library.RangesRelease):  # which adjusts for nothing
                continue
            title = name if len(models) > 1 else ""
            figures = {option: by_name[name] for option, by_name in places.figures.items()}
            _tell_holder(run, figures, balance=options["balance"], title=title)

    if options["output"] is None:
        screen.made_folder(Path(options["output_dir"]))
    options = {**options, "ledger": account_file}
    _write_releases(answers(), places.releases, options, charge=charge, after=after)
    return answered


def _by_name(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is told of questions by their names; that of a single one by no name."""
    if len(facts) > 1:
        return facts
    (fact,) = facts.values()
    return {"": fact}


def _tell_notes(study: StudyFile, releases: Mapping[str, BaseRelease]) -> None:
    """Notes on stderr about what was declared in vain, and on what is not to be published."""
    several = len(releases) > 1
    for question in study.questions:
        release = releases[question.name]
        title = f"{question.name}: " if several else ""
        if study.budget.delta and not release.guarantee.delta:
            click.echo(
                f"note: {title}{release.guarantee.theorem} is pure; delta is not used", err=True
            )
        if question.known.ranges is None:
            click.echo(f"warning: {title}{reading.NO_RANGES}", err=True)
        if not release.private:
            standing = release.guarantee.standing.upper()
            click.echo(f"{title}{standing}: do not publish this release", err=True)


def _show_releases(
    study: StudyFile, answered: Mapping[str, PlanRun], files: Mapping[str, str], *, as_json: bool
) -> None:
    """The releases as JSON or in words, then all answers, what was spent and the digest."""
    releases = {name: run.release for name, run in answered.items()}
    plans = {name: run.plan for name, run in answered.items()}
    # behind stdout a disk may be full: what was charged has been told
    with screen.writing("stdout"):
        if as_json:
            facts = _by_name({name: release.to_dict() for name, release in releases.items()})
            screen.print_json(facts.get("", facts))
            return
        from dp2erm_cvx.report.answers import answer_blocks, answers

        for name, release in releases.items():
            if len(releases) > 1:
                screen.console().rule(name)
            screen.show(release.blocks())
        listed = answers(releases, plans)
        if len(listed) > 1:
            screen.show(answer_blocks(listed))
        _show_shares(study, plans)
        click.echo(f"written: {', '.join(files.values())}")


def _tell_holder(
    answered: PlanRun, figures: Mapping[str, str], *, balance: bool, title: str = ""
) -> None:
    """Tell the data holder of solutions without a certificate, and of balance if it is asked for.

    Parameters
    ----------
    answered
        The plan and what its run found.
    figures
        Files of plots by their option, ``love_plot`` or ``overlap_plot``.
    balance
        Whether the table is shown.
    title
        The question, where there are several.
    """
    _warn_of_uncertified(answered.result, title)
    if not balance and not figures:
        return
    from dp2erm_cvx.estimators.balance import adjusted_balance
    from dp2erm_cvx.report.figures import love_plot, overlap_plot

    table, propensity, arms = adjusted_balance(answered.plan, answered.result)
    if balance:
        if title:
            click.echo(title, err=True)
        screen.show(table.blocks(), stderr=True)
    if "love_plot" in figures:
        love_plot(table, figures["love_plot"])
        click.echo(f"NOT PRIVATE: love plot written to {figures['love_plot']}", err=True)
    if "overlap_plot" in figures:
        overlap_plot(propensity, arms, figures["overlap_plot"])
        click.echo(f"NOT PRIVATE: overlap plot written to {figures['overlap_plot']}", err=True)


def _warn_of_uncertified(result: Any, title: str) -> None:
    """Warn of solutions of a question that have no certificate."""
    theta = result.steps.get("theta")
    if theta is None:
        return
    solutions = [theta.solution]
    if not result.weights.substituted:  # of which the run has warned
        solutions = [result.weights, theta.solution]
    place = f"{title}: " if title else ""
    for solution in solutions:
        if solution is not None and not solution.certified:
            click.echo(f"warning: {place}{solution.advice()}", err=True)


def _show_shares(study: StudyFile, plans: Mapping[str, Plan[Any]], *, stderr: bool = False) -> None:
    """Shares of the budget that questions were declared and spend; what all guarantee together."""
    from dp2erm_cvx.report.caveats import weak

    rows = []
    for question, plan in zip(study.questions, plans.values(), strict=True):
        guaranteed = digits_of(plan.guarantee.epsilon, 4)
        spent_itself = digits_of(plan.own.epsilon, 4)
        rows.append((question.name, f"{question.share:.3g}", guaranteed, spent_itself))
    spent = math.fsum(plan.own.epsilon for plan in plans.values())
    blocks: list[Block] = []
    if len(rows) > 1:
        blocks.append(grid("question", "share", "guarantees epsilon", "spends itself", rows=rows))
        blocks.append(f"All questions together: epsilon = {digits_of(spent)}.")
    told = weak(spent)
    if told:
        blocks.append(told)
    screen.show(blocks, stderr=stderr)
    click.echo(f"study {study.digest}", err=stderr)


def _check_words(data: str | None, study: str, options: dict[str, Any]) -> None:
    """Refuse what cannot be run or written before anything is imported or read."""
    if data is None and options["planned"] is None:
        raise DeclarationError(
            "no data: name a CSV or Parquet file, or plan a release with --plan N"
        )
    screen.check_new(options["output"], options["force"], data, study)
    seed = options["seed"]
    if seed is not None and not isinstance(seed, int):
        raise DeclarationError(f"seed = {seed!r}: must be a whole number")


def _refuse_weaker(plans: Mapping[str, Plan[Any]], *, conditional: bool) -> None:
    """Raise DeclarationError where a release will not be private, unless ``--conditional``."""
    from dp2erm_cvx.estimators.fitting import weaker_standings

    weaker = weaker_standings(plans)
    if weaker and not conditional:
        raise DeclarationError(
            f"{'; '.join(weaker)}. Nothing was charged; --conditional releases all the same"
        )


def _announce(counted: Sequence[RecordCounts], findings: Findings, *, yes: bool) -> None:
    """Tell the data holder what becomes of the records, and what a look finds, before any charge.

    Parameters
    ----------
    counted
        What becomes of the records, by what is declared.
    findings
        What the look has found.
    yes
        True where nothing that it finds stops the release.

    Raises
    ------
    DataError
        Where it finds what stops a release, unless ``yes``.
    """
    if not yes:
        findings.refuse("--yes")
    for counts in counted:
        click.echo(str(counts), err=True)
    for line in (*findings.gross, *findings.lines):
        click.echo(f"look: {line}", err=True)


def _write_releases(
    answers: Iterator[tuple[str, BaseRelease]],
    files: Mapping[str, str | None],
    options: dict[str, Any],
    *,
    charge: Callable[[], Receipt | None],
    after: Callable[[], None] = lambda: None,
) -> dict[str, BaseRelease]:
    """Write each release to its file as soon as it is there: what is paid for is never lost.

    Whatever fails after the charge, in what comes ``after`` too, the releases go to stdout.

    Parameters
    ----------
    answers
        The releases by the names of their questions: each is drawn when it is asked for.
    files
        The file of every question; None where its release goes to stdout alone.
    options
        Of the command: ``force``, and the file of the ``ledger``.
    charge
        Pays, once all files are open; returns the receipt, None where nothing is charged.
    after
        What is told of the records afterwards.
    """
    releases: dict[str, BaseRelease] = {}
    receipt: Receipt | None = None
    try:
        with ExitStack() as every:
            stacks: dict[str, ExitStack] = {}
            opened: dict[str, TextIO | None] = {}
            for name in files:
                stacks[name] = every.enter_context(ExitStack())
            for name, path in files.items():
                reserved = screen.reserved(path, force=options["force"])
                opened[name] = stacks[name].enter_context(reserved)
            receipt = charge()
            for name, release in answers:
                releases[name] = release
                file = opened[name]
                if file is not None:
                    file.write(release.to_json() + "\n")
                stacks[name].close()  # it has its name before the next one is answered
        after()
    except BaseException as error:
        for release in releases.values():
            click.echo(release.to_json())
        if releases and isinstance(error, OSError):
            with screen.writing(", ".join(filter(None, files.values()))):
                raise
        raise
    finally:
        if receipt is not None:
            _tell_charge(receipt, options["ledger"])
            _tell_unreleased(list(releases), len(files))
    return releases


def _tell_unreleased(released: Sequence[str], n_questions: int) -> None:
    """Say on stderr which questions were charged and not answered, if any."""
    n_missing = n_questions - len(released)
    if not released:
        click.echo("nothing was released, and the charge stays", err=True)
    elif n_missing:
        click.echo(
            f"{', '.join(released)} released, {n_missing} of {n_questions} not; the charge stays",
            err=True,
        )


def _tell_charge(receipt: Receipt, ledger: str) -> None:
    """What was charged, and what is left, on stderr."""
    text = f"charged to {receipt.dataset!r}: {receipt}"
    with suppress(LedgerError):  # it has to be told whatever became of the ledger
        account = library.Ledger(ledger).account(receipt.dataset)
        left = digits_of(account.spent.left_epsilon, left=True)
        text += f"; charge {len(account.receipts)}, epsilon = {left} left"
    click.echo(text, err=True)


def _show_plans(study: StudyFile, plans: Mapping[str, Plan[Any]], *, as_json: bool) -> None:
    """Show what plans spend, step by step, and what is predicted of their releases."""
    from dp2erm_cvx.plan import Study
    from dp2erm_cvx.report.caveats import weak
    from dp2erm_cvx.report.plans import plan_blocks

    facts: dict[str, Any] = {}
    for question, (name, plan) in zip(study.questions, plans.items(), strict=True):
        if as_json:
            facts[name] = _facts_of_plan(plan, question.foreseen)
            continue
        blocks = [*plan_blocks(plan, name or None, question.unit), question.foreseen]
        if not name:  # of a study a weak guarantee is told once, of all questions
            blocks.append(weak(plan.guarantee.epsilon))
        screen.show([block for block in blocks if block != ""])
        if isinstance(plan.study, Study):
            cost = plan.study.first.cost(plan.study.universe)
            if cost:
                click.echo(f"note: {cost}", err=True)
    if as_json:
        listed = _by_name(facts)  # that of one alone has no name
        screen.print_json(listed.get("", listed))


def _facts_of_plan(plan: Plan[Any], foreseen: str) -> dict[str, Any]:
    """A plan in plain JSON types: its guarantee, its steps, and what is predicted."""
    from dp2erm_cvx.report.plans import predicted_of

    before = plan.study.before
    steps: list[dict[str, Any]] = []
    for step in plan.steps:
        facts = {"step": step.name, "theorem": step.theorem, **dataclasses.asdict(step.guarantee)}
        facts["scale"] = step.noise_law["scale"]
        if step.name in before:
            facts["of"] = before[step.name]["of"]
        steps.append(facts)
    facts = {
        "n_samples": plan.study.universe.n_samples,
        "guarantee": dataclasses.asdict(plan.guarantee),
        "standing": plan.standing.value,
        "steps": steps,
        "predicted": {name: value for name, (value, _) in predicted_of(plan).items()},
    }
    if foreseen:
        facts["foreseen"] = foreseen
    return facts
