"""``dp2erm check`` and ``design``: from a raw table to a study file, and to the settings of a
question.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from importlib import resources
from operator import add
from pathlib import Path
from string import Template
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

import dp2erm_cvx as library
from dp2erm_cvx.checks import declared_by_name
from dp2erm_cvx.cli import options as opt
from dp2erm_cvx.cli import reading, screen
from dp2erm_cvx.display import described, grid, heading
from dp2erm_cvx.errors import DeclarationError, Dp2ermError, brief, known_names, placed

if TYPE_CHECKING:
    from dp2erm_cvx.arrays import Array
    from dp2erm_cvx.data.files import CsvLayout
    from dp2erm_cvx.data.tables import Table
    from dp2erm_cvx.design import DesignRequest
    from dp2erm_cvx.diagnostics.columns import RecordCounts, TableCells
    from dp2erm_cvx.diagnostics.look import AskedAbout, Seen
    from dp2erm_cvx.display import Block


@click.command(
    "check", short_help="What a raw table holds: for the data holder; the draft of a study."
)
@click.argument("data", metavar="DATA.csv|.parquet")
@opt.study_option
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="In place of what the study declares, or in a gap of the draft, such as csv.separator=; "
    "or outcome_bound=8. Repeatable.",
)
@opt.field_option("data.cells:Treatment.column", "--treatment", metavar="COLUMN")
@opt.field_option("data.codebook:Codebook.outcome", metavar="COLUMN")
@click.option(
    "--draft", metavar="FILE.toml", help="Write a study file with gaps for what is declared."
)
@click.option(
    "--program",
    metavar="FILE.py|NAME",
    help=(
        "Of the draft: it asks a [[two_stage]] question with this program, in place of an "
        "[[effect]]."
    ),
)
def check_command(data: str, draft: str | None, program: str | None, **options: Any) -> None:
    """Report every column of DATA: its type, missing cells, text, and what is out of the declared
    ranges.

    The report is NOT private, and nothing is spent. Use it to find mistakes in the file and in its
    declaration: a wrong separator, a label that is spelled otherwise. Ranges and levels come from
    elsewhere.
    """
    if program is not None and draft is None:
        raise DeclarationError("--program is for the question of a --draft: name the draft as well")
    if draft is not None:
        screen.writable(draft, data, options["study"])
        if os.path.lexists(draft) or options["study"] is not None:
            raise DeclarationError(f"--draft {draft}: must be a new file, and --study left out")
    question = _drafted_question(program, draft)
    with screen.progress("reading the data") as bar:
        from dp2erm_cvx.data.domain_file import covariates_of
        from dp2erm_cvx.data.files import PLAIN, CsvLayout, guessed_layout, table_parts
        from dp2erm_cvx.diagnostics.columns import TableCells
        from dp2erm_cvx.study import filled, is_about_records, records_declared

        changes = options["changes"]
        if draft is not None:  # the others are about what the draft will ask and spend
            changes = [text for text in changes if is_about_records(text)]
        declared = _with_columns(records_declared(options["study"], changes), options)
        csv = declared.pop("csv", None)
        if not isinstance(csv, Mapping | None):
            raise DeclarationError(f"{options['study']}: csv = {brief(csv)}: must be a table [csv]")
        bounded = any(name in declared for name in ("ranges", "levels", "covariate_bound"))
        about_records = draft is None and (bounded or options["study"] is not None)
        with placed(options["study"] or "--set"):
            public = _public(declared) if about_records else None
        layout = guessed_layout(data) if csv is None and options["study"] is None else PLAIN
        layout = declared_by_name(CsvLayout, "csv", {**vars(layout), **(csv or {})})
        treatment, outcome = _columns(declared)
        book = library.Codebook(library.Treatment(treatment), outcome)
        units = (
            (book, None) if public is None else (public.codebook, public.ranges, _outcomes(options))
        )
        update, parts = screen.stages(bar), table_parts(data, layout)
        cells, sums = list[TableCells](), list[Any]()
        asked = (
            []
            if public is None or public.codebook is None
            else _asked(options["study"], changes, public)
        )
        seen: list[Seen] = []
        first = 0
        update("parts of the table", 0, len(parts))
        for number, read in enumerate(parts, 1):  # of which one alone is in memory
            table = read()
            for name in filter(None, (treatment, outcome)):
                table.cells(name)
            cells = [reduce(add, [*cells, TableCells.of(table, *units)])]
            if public is not None and public.codebook is not None:
                own = _record_sums(table, public, covariates_of(declared))
                sums = [a + b for a, b in zip(sums, own, strict=True)] if sums else list(own)
                read_now = [_seen(table, one, covariates_of(declared), first) for one in asked]
                seen = [a + b for a, b in zip(seen, read_now, strict=True)] if seen else read_now
                first += len(table.cells(str(treatment)))
            update("parts of the table", number, len(parts))
        records = [] if public is None else list(_records(sums, public))
        records += _looked_at(seen, asked)
        text = ""
        if draft is not None:
            drafted = _drafted(
                cells[0], layout, (treatment, outcome), question, declared.get("ranges", {})
            )
            text = filled(drafted, options["changes"])
    screen.show((*_column_blocks(cells[0].report()), *cells[0].notes(), *records))
    if draft is not None:
        screen.write_text(draft, text)
        rests = "what kind a column is of (numbers, levels, other text) and [csv] rest on the data"
        click.echo(
            f"{draft}: written; {rests}: read it, and fill its gaps, before it is made public"
        )


def _with_columns(declared: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Declarations with the columns of ``--treatment`` and ``--outcome`` put over them."""
    whole = dict(declared)
    if options["treatment"]:
        known = whole.get("treatment")
        whole["treatment"] = (known if isinstance(known, dict) else {}) | {
            "column": options["treatment"]
        }
    if options["outcome"]:
        whole["outcome_column"] = options["outcome"]
    return whole


def _columns(declared: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The columns of the treatment and of the outcome; None where one is not declared."""
    treatment = declared.get("treatment")
    column = treatment.get("column") if isinstance(treatment, Mapping) else treatment
    return column, declared.get("outcome_column")


def _public(declared: Mapping[str, Any]) -> library.Domain | library.OpenDomain:
    """The domain, or what is known of it where the file leaves ranges to be released."""
    from dp2erm_cvx.data.domain_file import asks_ranges, domain_of
    from dp2erm_cvx.study import open_records

    return open_records(declared) if asks_ranges(declared) else domain_of(declared)


def _drafted_question(program: str | None, draft: str | None) -> tuple[str, str] | None:
    """The stage of the program that a draft asks about, and how its file is called from there.

    None where it asks about an effect. Raises ProgramError where there is no such program.
    """
    if program is None:
        return None
    from dp2erm_cvx.cli.programs import known_name
    from dp2erm_cvx.program import registry
    from dp2erm_cvx.program.files import file_of, stage_of

    registered = known_name(program)
    known = registry.available()
    if registered not in known:
        raise DeclarationError(f"--program {program!r}: {known_names(registered, known)}")
    called = registered
    place = file_of(program)
    if place is not None:
        path, chosen = place
        beside = os.path.relpath(path, os.path.dirname(draft or "") or ".")
        called = Path(beside).as_posix() + ("" if chosen is None else f":{chosen}")
    return f"{stage_of(known[registered])}_stage", called


def _outcomes(options: dict[str, Any]) -> list[str]:
    """Outcomes of their own that the questions of a study have."""
    from dp2erm_cvx.data.domain_file import STUDY, read_tables

    tables = {} if options["study"] is None else read_tables(options["study"])
    several = [own if isinstance(own, list) else [own] for own in map(tables.get, STUDY)]
    questions = [one for own in several for one in own if isinstance(one, dict)]
    return [str(one["outcome_column"]) for one in questions if "outcome_column" in one]


def _record_sums(
    table: Table, public: library.Domain | library.OpenDomain, covariates: Sequence[str] | None
) -> tuple[RecordCounts, Array]:
    """Sums of what becomes of the records of a table, or of a part of it.

    Beside their counts what their weights add up to, and how many are shrunk.
    """
    import numpy as np

    from dp2erm_cvx.data.dataset import DatasetBlock
    from dp2erm_cvx.diagnostics.columns import record_counts
    from dp2erm_cvx.study.records import data_columns

    book = public.codebook
    assert book is not None
    a, y = (book.raw_cells(table, name) for name in data_columns(public))
    data, shrunk = DatasetBlock.coded(public, table, a, y, public.columns or covariates), 0
    if isinstance(public, library.Domain):
        inside = replace(public.of_records, covariate_bound=1e30, outcome_bound=1e30, intercept=0.0)
        length = np.linalg.norm(inside.records(data.X, data.a, data.y).X, axis=1)
        shrunk = int(np.sum(length > public.features_bound * (1.0 + 1e-9)))
    counts = record_counts(table, public=public, columns=data.columns)
    return counts, np.array([0.0 if data.sampling is None else data.sampling.sum(), shrunk])


def _asked(
    path: str | None, changes: Sequence[str], public: library.Domain | library.OpenDomain
) -> list[AskedAbout]:
    """What the questions of a file ask about its records; of one that asks none: all is adjusted
    for.
    """
    from dp2erm_cvx.diagnostics.look import AskedAbout
    from dp2erm_cvx.study import read_study

    if path is None:
        return [AskedAbout(public)]
    try:
        study = read_study(path, changes)
        return study.asked(study.models()) or [AskedAbout(public)]
    except Dp2ermError:  # a study that is not complete, or a domain alone
        return [AskedAbout(public)]


def _seen(table: Table, asked: AskedAbout, covariates: Sequence[str] | None, first: int) -> Seen:
    """What a look reads of a part of a table."""
    from dp2erm_cvx.data.dataset import DatasetBlock
    from dp2erm_cvx.diagnostics.look import seen_in
    from dp2erm_cvx.study.records import data_columns

    public = asked.public
    a, y = (asked.book.raw_cells(table, name) for name in data_columns(public))
    data = DatasetBlock.coded(public, table, a, y, public.columns or covariates)
    return seen_in(data, public, table, first)


def _looked_at(seen: Sequence[Seen], asked: Sequence[AskedAbout]) -> Iterator[str]:
    """What a look finds, for all questions together."""
    from dp2erm_cvx.diagnostics.look import Findings, look

    if not seen:
        return
    findings = sum(map(look, seen, asked), Findings())
    yield from (f"Stops dp2erm run, unless --yes: {line}." for line in findings.gross)
    yield from (f"Look: {line}." for line in findings.lines)


def _records(sums: Sequence[Any], public: library.Domain | library.OpenDomain) -> Iterator[str]:
    """Lines on what becomes of the records under the public rule."""
    book = public.codebook
    if not sums or book is None:
        yield "The treatment and the outcome are not declared: see [treatment] and outcome_column."
        return
    counts, (total, shrunk) = sums
    yield counts.line + ("" if book.unit else " One record is taken to be one person: see [unit].")
    n = counts.total
    if (weights := book.sampling_weights) is not None:
        yield (
            f"Sampling weights average {total / n:.4g} after clipping ({weights.mean:g} is "
            f"declared), from 0 to {weights.largest:g}."
        )
    gone = {"treatment": counts.missing, "outcome": counts.absent}
    if counts.absent and book.outcome in book.missing:
        less = f"makes an effect smaller by about {gone.pop('outcome') / n:.1%} of it"
        yield f"{counts.absent:,} without outcome: each counts as one public outcome, which {less}."
    if texts := [f"{count:,} records without {what}" for what, count in gone.items() if count]:
        yield f"{' and '.join(texts)} do not count in an effect or a rule."
    if isinstance(public, library.Domain) and public.ranges is None:
        yield f"Warning: {reading.NO_RANGES}."
    if shrunk:
        yield f"{shrunk:,.0f} shrunk to the covariate bound."
    if counts.clipped:
        yield f"{counts.clipped:,} with an outcome that is clipped."


def _column_blocks(report: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """Contents of the columns of a raw table, and what to declare, marked as not private."""
    yield heading(f"Columns of the table: {screen.NOT_PRIVATE}, for the data holder only")
    table = grid(
        "column", "declared as", "holds", "missing", "not as declared", "out of range", left=3
    )
    for one in report:
        counts = (f"{one[name]:,}" if one[name] else "" for name in ("missing", "odd", "outside"))
        table.add_row(one["name"], one["declared"], one["holds"], *counts)
    yield table
    yield from (f"{one['name']}: {note}" for one in report for note in one["notes"])


#: How columns are called that are outcomes rather than covariates.
_LATER = re.compile(
    r"outcome|died|death|mortal|surviv|readmi|discharge|follow|result|change|event|endpoint|response"
    r"|(^|_)(after|post|los|days|score)($|_|\d)",
    re.I,
)


def _drafted(
    cells: TableCells,
    layout: CsvLayout,
    columns: tuple[str | None, str | None],
    question: tuple[str, str] | None,
    ranges: Mapping[str, Any],
) -> str:
    """The text of a study file for this table, with a gap for every declaration.

    Parameters
    ----------
    cells, layout
        What the columns of the table hold, and how its file is written.
    columns
        Those of the treatment and of the outcome; None for a gap.
    question
        The stage of a program and its name or file; None for an effect.
    ranges
        Those that are declared; a question that releases them is proposed for all others.

    It rests on the data: on the names of columns, on whether one holds numbers, at most 20 or more
    texts, or dates, on whether identifiers repeat, and on how the file is written. One cell may
    decide that: a person has to read it before it is made public.
    """
    from dp2erm_cvx.data.cells import folded
    from dp2erm_cvx.data.counts import SamplingWeights, Unit
    from dp2erm_cvx.data.domain_file import EDIT
    from dp2erm_cvx.diagnostics.columns import MOST_LEVELS
    from dp2erm_cvx.diagnostics.unread import key, says_missing

    treatment, outcome = columns
    estimators = library.PrivateEffect, library.PrivateTwoStageERM
    kinds = library.Budget, library.Codebook, library.Domain, *estimators, library.Treatment
    said = {
        f"{kind.__name__}_{name}": fill(
            opt.sentence(text), 110, initial_indent="# ", subsequent_indent="# "
        )
        for kind in (*kinds, SamplingWeights, Unit)
        for name, text in described(kind.__doc__).items()
    }
    text = (
        resources.files("dp2erm_cvx.cli")
        .joinpath("templates/draft.toml.txt")
        .read_text(encoding="utf-8")
    )
    parts = dict(part.split("\n", 1) for part in text.split("=== ")[1:])
    lines: dict[str, list[str]] = {"ranges": [], "levels": [], "others": []}
    unit, left = "", list[str]()
    for name in (name for name in cells.seen if name not in (treatment, outcome)):
        kind, number = cells.holds(name), len(cells.seen[name])
        two = (
            "    # an event that treatment may change? then an outcome: delete"
            if number == 2
            else ""
        )
        if not unit and cells.repeats_persons(name):
            column = json.dumps(name, ensure_ascii=False)
            unit = "\n" + Template(parts["unit"]).substitute(said, column=column)
        elif _LATER.search(name):
            advice = (
                "an outcome? ask for it in a question of its own; else declare its range or levels"
            )
            lines["others"].append(f"# {key(name)}: {advice}")
        elif kind.startswith(("numbers", "0")):
            lines["ranges"].append(f'{key(name)} = ["{EDIT}", "{EDIT}"]{two}')
            left += [] if name in ranges else [f'{key(name)} = "release"']
        elif kind == "dates" or number > MOST_LEVELS:
            kind = "dates" if kind == "dates" else "texts"
            lines["others"].append(f"# {key(name)}: {kind}, no covariate as it stands")
        else:
            lines["levels"].append(f'{key(name)} = ["{EDIT}"]{two}')
    csv = (
        f"{name} = {json.dumps(getattr(layout, name))}"
        for name in ("separator", "encoding", "decimal")
    )
    lines["csv"] = [*csv, *(["line_breaks = true"] if layout.line_breaks else [])]
    arms = {
        folded(label) for label in cells.seen.get(treatment or "", ()) if not says_missing(label)
    }
    labels = "several" if len(arms) > 2 else "two"
    named = {"treatment": treatment, "outcome": outcome}
    return Template(parts["study"]).substitute(
        said,
        **{title: "".join(f"\n{line}" for line in listed) for title, listed in lines.items()},
        **{title: json.dumps(name or EDIT, ensure_ascii=False) for title, name in named.items()},
        most=MOST_LEVELS,
        labels=Template(parts[labels]).substitute(said).rstrip("\n"),
        unit=unit,
        released=_proposed(parts["ranges"], left, outcome),
        question=_question_text(parts, said, question),
    )


def _proposed(part: str, left: Sequence[str], outcome: str | None) -> str:
    """A question for the ranges that are ``left``, as a remark; nothing where all are declared."""
    from dp2erm_cvx.diagnostics.unread import key

    if not left:
        return ""
    return Template(part).substitute(columns=", ".join(left), outcome=key(outcome or "OUTCOME"))


def _question_text(
    parts: Mapping[str, str], said: Mapping[str, str], question: tuple[str, str] | None
) -> str:
    """The table of the question of a draft."""
    if question is None:
        return Template(parts["effect"]).substitute(said)
    stage, name = question
    return Template(parts[stage]).substitute(said, program=json.dumps(name, ensure_ascii=False))


@click.command(
    "design",
    cls=opt.Command,
    declared="dp2erm_cvx.design:DesignScenario",
    before="n_features",
    short_help="Which pipeline to take, by simulation from a guess.",
)
@click.argument("study", metavar="STUDY.toml")
@opt.field_option(
    "design.request:DesignRequest.n_samples", "--n", "n_samples", type=opt.Number(), required=True
)
@click.option("--question", metavar="NAME", help="Of the study: an effect or a rule [the first].")
@opt.field_option("design.request:DesignRequest.goal", beside=" Where STUDY asks no question.")
@opt.field_option("privacy:Budget.epsilon", type=opt.Number(), show_default="that of the study")
@opt.delta_option
@opt.field_option(
    "data.universe:Universe.n_features", type=opt.Number(), show_default="that of the ranges"
)
@opt.field_option("design.request:DesignRequest.replicates", type=opt.Number(), default=50)
@opt.field_option("design.request:DesignRequest.public", metavar="FILE")
@opt.field_option("design.samples:PublicData.source", metavar="TEXT")
@opt.field_option("design.samples:PublicData.holdout", type=opt.Number())
@opt.field_option("design.request:DesignRequest.seed", type=opt.Number(), default=0)
@opt.field_option("audit.search:SearchPlan.workers", type=opt.Number(), default=1)
@click.option(
    "--output", metavar="FILE.toml", help="For a copy of the study with the settings that won."
)
@opt.json_option
def design_command(study: str, output: str | None, as_json: bool, **options: Any) -> None:
    """Rank pipelines by what they do on data simulated from STUDY and a stated guess of the
    population.

    It reads no private data and spends nothing: what --public names has to be public. Whatever is
    not stated is guessed, and reported as such. What the question of the study declares holds for
    every pipeline. A file that declares a domain alone will do.
    """
    import tomlkit

    from dp2erm_cvx.design import design
    from dp2erm_cvx.parallel import whole_workers
    from dp2erm_cvx.study import study_with, written

    screen.writable(output, study)
    name, question = _question(study, options)
    workers = whole_workers(options["workers"])
    with screen.progress("simulating") as bar:
        result = design(question, workers=workers, progress=screen.stages(bar, in_lines=True))
    best = result.best
    copy = study_with(study, name, best.kind, best.settings, question.budget)
    if output is not None:
        screen.write_text(output, copy)
    if as_json:
        screen.print_json(result.to_dict() | {"question": name, "study": copy})
        return
    screen.show(result.blocks())
    if output is None:
        screen.console().print(f"Its settings, which --output writes into a copy of {study}:")
        click.echo(tomlkit.dumps({best.kind: [written(best.settings)]}).strip())
    else:
        click.echo("Run:" if result.answers else "If you run it all the same:")
        click.echo(f"dp2erm run {output} DATA.csv")


def _question(path: str, options: dict[str, Any]) -> tuple[str | None, DesignRequest]:
    """Question, with the name of its table in the file; None where that declares a domain alone."""
    from dp2erm_cvx.data.domain_file import read_tables
    from dp2erm_cvx.design import DesignRequest, DesignScenario
    from dp2erm_cvx.design.request import GOALS
    from dp2erm_cvx.study import read_study, taken_questions

    name, goal, budget, features = options["question"], options["goal"], None, options["n_features"]
    declared: dict[str, Any] = {}
    if taken_questions(read_tables(path)):
        study = read_study(path)
        known = {one.name: one for one in study.questions if one.kind in GOALS}
        name = name or next(iter(known), None)
        if goal is not None:
            raise DeclarationError(f"--goal: {path} asks questions: choose one by --question")
        if name not in known:
            raise DeclarationError(f"--question {name}: {known_names(str(name), sorted(known))}")
        if study.resting is not None:
            raise DeclarationError(f"{path}: {name}: a design needs declared ranges")
        goal, declared, domain = known[name].kind, dict(known[name].settings), known[name].domain
        budget = study.models()[name].budget
    elif name is not None:
        raise DeclarationError(f"--question: {path} asks none")
    else:
        domain = library.load_domain(path)
    if options["epsilon"] is not None:
        budget = library.Budget(options["epsilon"], options["delta"])
    if budget is None:
        raise DeclarationError(f"{path} declares no [budget]: give --epsilon")
    public = _public_data(path, options, domain)
    features = features if domain.ranges is None else len(domain.ranges)
    if features is None:
        raise DeclarationError("covariates are not declared: give their --n-features, or ranges")
    return name, DesignRequest(
        *(domain, options["n_samples"], features, budget, goal or GOALS[0]),
        DesignScenario(**opt.declared_settings(DesignScenario, options)),
        declared.pop("estimand", "ate"),
        *(options["replicates"], options["seed"], declared, public),
    )


def _public_data(
    path: str, options: dict[str, Any], domain: library.Domain
) -> library.PublicData | None:
    """The records that are declared public, read as the study reads its own."""
    if options["public"] is None:
        return None
    if options["source"] is None:
        raise DeclarationError("--source is missing: say where the public records come from")
    from dp2erm_cvx.data.domain_file import declared_layout

    table = reading.raw_table(options["public"], declared_layout(path), domain)
    return library.PublicData(
        reading.coded_data(table, domain), options["source"], options["holdout"]
    )
