"""``dp2erm check`` and ``design``: from a raw table to a study file and its settings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
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
    from dp2erm_cvx.study import Question, StudyFile

#: Relative rounding of the norm of a row, within which it is not shrunk.
_ROUNDING = 1e-9


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
    """Report every column of DATA: its type, missing cells, text, and what is out of range.

    The report is NOT private, and nothing is spent. Use it to find mistakes in the file and in its
    declaration: a wrong separator, a label that is spelled otherwise. Ranges and levels come from
    elsewhere.
    """
    _check_draft(data, draft, program, options)
    question = _drafted_question(program, draft)
    text = ""
    with screen.progress("reading the data") as bar:
        from dp2erm_cvx.study import filled

        declared = _declared_of_table(data, draft, options)
        read = _read_by_parts(data, declared, screen.stages(bar))
        records: list[str] = []
        if declared.public is not None:
            records += _records(read.sums, declared.public)
        records += _looked_at(read.seen, declared.asked)
        if draft is not None:
            text = filled(_drafted(read.cells, declared, question), options["changes"])
    screen.show((*_column_blocks(read.cells.report()), *read.cells.notes(), *records))
    if draft is not None:
        screen.write_text(draft, text)
        rests = "what kind a column is of (numbers, levels, other text) and [csv] rest on the data"
        click.echo(
            f"{draft}: written; {rests}: read it, and fill its gaps, before it is made public"
        )


def _check_draft(
    data: str, draft: str | None, program: str | None, options: Mapping[str, Any]
) -> None:
    """Raise DeclarationError where a draft could not be written, or is asked for with a study."""
    if program is not None and draft is None:
        raise DeclarationError("--program is for the question of a --draft: name the draft as well")
    if draft is None:
        return
    screen.writable(draft, data, options["study"])
    if os.path.lexists(draft) or options["study"] is not None:
        raise DeclarationError(f"--draft {draft}: must be a new file, and --study left out")


@dataclass(frozen=True)
class _Declared:
    """What is declared of a table that is checked.

    Parameters
    ----------
    treatment, outcome
        Their columns; None where one is not declared.
    ranges
        Declared ranges.
    outcomes
        Outcomes of their own that the questions of the study have.
    covariates
        Covariates that are named apart from ranges and levels, if any.
    layout
        How its file is written.
    public
        The domain, or what is known of it; None where the command is about columns alone.
    asked
        What the questions ask about the records.
    """

    treatment: str | None
    outcome: str | None
    ranges: Mapping[str, Any]
    outcomes: Sequence[str]
    covariates: Sequence[str] | None
    layout: CsvLayout
    public: library.Domain | library.OpenDomain | None
    asked: Sequence[AskedAbout]

    def cells(self, table: Table) -> TableCells:
        """The cells of a part of the table, beside what is declared of them."""
        from dp2erm_cvx.diagnostics.columns import TableCells

        if self.public is None:
            book = library.Codebook(library.Treatment(self.treatment), self.outcome)
            return TableCells.of(table, book)
        return TableCells.of(table, self.public.codebook, self.public.ranges, self.outcomes)


def _declared_of_table(data: str, draft: str | None, options: Mapping[str, Any]) -> _Declared:
    """What the options declare of the table; of a draft nothing but columns and how it is written.

    Raises DeclarationError.
    """
    from dp2erm_cvx.data.domain_file import covariates_of
    from dp2erm_cvx.study import is_about_records, records_declared

    study = options["study"]
    changes = options["changes"]
    if draft is not None:  # the others are about what the draft will ask and spend
        changes = [text for text in changes if is_about_records(text)]
    declared = _with_columns(records_declared(study, changes), options)
    csv = declared.pop("csv", None)
    if not isinstance(csv, Mapping | None):
        raise DeclarationError(f"{study}: csv = {brief(csv)}: must be a table [csv]")
    bounded = any(name in declared for name in ("ranges", "levels", "covariate_bound"))
    public = None
    if draft is None and (bounded or study is not None):
        with placed(study or "--set"):
            public = _public(declared)
    layout = _layout(data, csv, study)
    outcomes: list[str] = []
    covariates: Sequence[str] | None = None
    asked: list[AskedAbout] = []
    if public is not None:
        outcomes = _outcomes(study)
        covariates = covariates_of(declared)
        if public.codebook is not None:
            asked = _asked(study, changes, public)
    treatment, outcome = _columns(declared)
    return _Declared(
        treatment=treatment,
        outcome=outcome,
        ranges=declared.get("ranges", {}),
        outcomes=outcomes,
        covariates=covariates,
        layout=layout,
        public=public,
        asked=asked,
    )


def _layout(data: str, csv: Mapping[str, Any] | None, study: str | None) -> CsvLayout:
    """How a file is written: as it is declared, and guessed where neither it nor a study is."""
    from dp2erm_cvx.data.files import PLAIN, CsvLayout, guessed_layout

    layout = PLAIN
    if csv is None and study is None:
        layout = guessed_layout(data)
    return declared_by_name(CsvLayout, "csv", {**vars(layout), **(csv or {})})


@dataclass(frozen=True)
class _Read:
    """What is read of a table, or of some of its rows: add those of its parts.

    Parameters
    ----------
    cells
        Its cells.
    sums
        What becomes of its records, with the sums of their weights and of those that are shrunk;
        None where the command is about columns alone.
    seen
        What a look reads, for every question.
    n_rows
        Its rows; 0 where the command is about columns alone.
    """

    cells: TableCells
    sums: tuple[RecordCounts, Array] | None
    seen: tuple[Seen, ...]
    n_rows: int

    def __add__(self, other: _Read) -> _Read:
        """What is read of both."""
        sums = None
        if self.sums is not None and other.sums is not None:
            counts, numbers = self.sums
            more_counts, more_numbers = other.sums
            sums = counts + more_counts, numbers + more_numbers
        return _Read(
            cells=self.cells + other.cells,
            sums=sums,
            seen=tuple(own + more for own, more in zip(self.seen, other.seen, strict=True)),
            n_rows=self.n_rows + other.n_rows,
        )


def _read_by_parts(
    data: str, declared: _Declared, update: Callable[[str, int, int], object]
) -> _Read:
    """What is read of a table, of which one part alone is in memory at a time."""
    from dp2erm_cvx.data.files import table_parts

    parts = table_parts(data, declared.layout)
    read: _Read | None = None
    update("parts of the table", 0, len(parts))
    for number, part in enumerate(parts, 1):
        first = 0 if read is None else read.n_rows
        read_here = _read_part(part(), declared, first)
        read = read_here if read is None else read + read_here
        update("parts of the table", number, len(parts))
    assert read is not None  # a table has a part
    return read


def _read_part(table: Table, declared: _Declared, first: int) -> _Read:
    """What is read of a part of a table, whose first row has this number."""
    for name in filter(None, (declared.treatment, declared.outcome)):
        table.cells(name)
    cells = declared.cells(table)
    public = declared.public
    if public is None or public.codebook is None:
        return _Read(cells, None, (), 0)
    sums = _record_sums(table, public, declared.covariates)
    seen = [_seen(table, asked, declared.covariates, first) for asked in declared.asked]
    return _Read(cells, sums, tuple(seen), len(table.cells(str(declared.treatment))))


def _with_columns(declared: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Declarations with the columns of ``--treatment`` and ``--outcome`` put over them."""
    changed = dict(declared)
    if options["treatment"]:
        table = declared.get("treatment")
        treatment = dict(table) if isinstance(table, dict) else {}
        treatment["column"] = options["treatment"]
        changed["treatment"] = treatment
    if options["outcome"]:
        changed["outcome_column"] = options["outcome"]
    return changed


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
    """The stage of the program that a draft asks about, and what the draft calls the program.

    None where it asks about an effect. Raises ProgramError where there is no such program.
    """
    if program is None:
        return None
    from dp2erm_cvx.cli.programs import known_name
    from dp2erm_cvx.program import registry
    from dp2erm_cvx.program.files import file_of, stage_of

    name = known_name(program)
    registered = registry.available()
    if name not in registered:
        raise DeclarationError(f"--program {program!r}: {known_names(name, registered)}")
    stage = f"{stage_of(registered[name])}_stage"
    place = file_of(program)
    if place is None:
        return stage, name
    path, name_in_file = place
    from_draft = os.path.relpath(path, os.path.dirname(draft or "") or ".")
    text = Path(from_draft).as_posix()
    if name_in_file is not None:
        text += f":{name_in_file}"
    return stage, text


def _outcomes(study: str | None) -> list[str]:
    """Outcomes of their own that the questions of a study have."""
    from dp2erm_cvx.data.domain_file import STUDY, read_tables

    if study is None:
        return []
    tables = read_tables(study)
    outcomes = []
    for kind in STUDY:
        questions = tables.get(kind)
        if not isinstance(questions, list):
            questions = [questions]
        for question in questions:
            if isinstance(question, dict) and "outcome_column" in question:
                outcomes.append(str(question["outcome_column"]))
    return outcomes


def _record_sums(
    table: Table, public: library.Domain | library.OpenDomain, covariates: Sequence[str] | None
) -> tuple[RecordCounts, Array]:
    """What becomes of the records of a table, or of a part of it.

    Parameters
    ----------
    table
        The cells.
    public
        What is declared of them, with a codebook.
    covariates
        Names of the covariates where the declaration names none.

    Returns
    -------
    counts
        Records by what becomes of them.
    sums
        (2,): the sum of their weights, and how many are shrunk.
    """
    import numpy as np

    from dp2erm_cvx.data.space import LARGEST
    from dp2erm_cvx.diagnostics.columns import record_counts

    data = _coded(table, public, covariates)
    n_shrunk = 0
    if isinstance(public, library.Domain):
        unbounded = replace(
            public.of_records, covariate_bound=LARGEST, outcome_bound=LARGEST, intercept=0.0
        )
        scaled = unbounded.records(data.X, data.a, data.y).X
        norms = np.linalg.norm(scaled, axis=1)
        n_shrunk = int(np.sum(norms > public.features_bound * (1.0 + _ROUNDING)))
    counts = record_counts(table, public=public, columns=data.columns)
    total = 0.0 if data.sampling is None else data.sampling.sum()
    return counts, np.array([total, n_shrunk])


def _coded(
    table: Table, public: library.Domain | library.OpenDomain, covariates: Sequence[str] | None
) -> library.Dataset:
    """The records of a table, or of a part of it, by the codebook that is declared."""
    from dp2erm_cvx.data.dataset import DatasetBlock
    from dp2erm_cvx.study.records import data_columns

    book = public.codebook
    assert book is not None
    treatment, outcome = data_columns(public)
    a = book.raw_cells(table, treatment)
    y = book.raw_cells(table, outcome)
    return DatasetBlock.coded(public, table, a, y, public.columns or covariates)


def _asked(
    path: str | None, changes: Sequence[str], public: library.Domain | library.OpenDomain
) -> list[AskedAbout]:
    """What the questions of a file ask about its records: one that adjusts for all without any."""
    from dp2erm_cvx.diagnostics.look import AskedAbout
    from dp2erm_cvx.study import read_study

    if path is None:
        return [AskedAbout(public)]
    try:
        study = read_study(path, changes)
        return study.asked_about(study.models()) or [AskedAbout(public)]
    except Dp2ermError:  # a study that is not complete, or a domain alone
        return [AskedAbout(public)]


def _seen(table: Table, asked: AskedAbout, covariates: Sequence[str] | None, first: int) -> Seen:
    """What a look reads of a part of a table."""
    from dp2erm_cvx.diagnostics.look import seen_in

    data = _coded(table, asked.public, covariates)
    return seen_in(data, asked.public, table, first)


def _looked_at(seen: Sequence[Seen], asked: Sequence[AskedAbout]) -> Iterator[str]:
    """What a look finds, for all questions together."""
    from dp2erm_cvx.diagnostics.look import Findings, look

    if not seen:
        return
    findings = sum(map(look, seen, asked), Findings())
    yield from (f"Stops dp2erm run, unless --yes: {line}." for line in findings.gross)
    yield from (f"Look: {line}." for line in findings.lines)


def _records(
    sums: tuple[RecordCounts, Array] | None, public: library.Domain | library.OpenDomain
) -> Iterator[str]:
    """Lines on what becomes of the records under the public rule."""
    book = public.codebook
    if sums is None or book is None:
        yield "The treatment and the outcome are not declared: see [treatment] and outcome_column."
        return
    counts, (total, shrunk) = sums
    n = counts.total
    line = counts.line
    if not book.unit:
        line += " One record is taken to be one person: see [unit]."
    yield line
    weights = book.sampling_weights
    if weights is not None:
        yield (
            f"Sampling weights average {total / n:.4g} after clipping ({weights.mean:g} is "
            f"declared), from 0 to {weights.largest:g}."
        )
    gone = {"treatment": counts.missing, "outcome": counts.absent}
    if counts.absent and book.outcome in book.missing:
        del gone["outcome"]
        less = f"makes an effect smaller by about {counts.absent / n:.1%} of it"
        yield f"{counts.absent:,} without outcome: each counts as one public outcome, which {less}."
    texts = [f"{count:,} records without {what}" for what, count in gone.items() if count]
    if texts:
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
    for column in report:
        counts = [_count(column[kind]) for kind in ("missing", "odd", "outside")]
        table.add_row(column["name"], column["declared"], column["holds"], *counts)
    yield table
    for column in report:
        for note in column["notes"]:
            yield f"{column['name']}: {note}"


def _count(number: int) -> str:
    """A count of a table; nothing for none."""
    if not number:
        return ""
    return f"{number:,}"


#: How columns are called that are outcomes rather than covariates.
_LATER = re.compile(
    r"outcome|died|death|mortal|surviv|readmi|discharge|follow|result|change|event|endpoint|response"
    r"|(^|_)(after|post|los|days|score)($|_|\d)",
    re.I,
)


def _drafted(cells: TableCells, declared: _Declared, question: tuple[str, str] | None) -> str:
    """The text of a study file for this table, with a gap for every declaration.

    It rests on the data: on the names of columns, on whether one holds numbers, at most 20 or more
    texts, or dates, on whether identifiers repeat, and on how the file is written. One cell may
    decide that: a person has to read it before it is made public.

    Parameters
    ----------
    cells
        What the columns of the table hold.
    declared
        The columns of treatment and outcome, how the file is written, and declared ranges: a
        question that releases them is proposed for all others.
    question
        The stage of a program and its name or file; None for an effect.
    """
    from dp2erm_cvx.data.domain_file import EDIT
    from dp2erm_cvx.diagnostics.columns import MOST_LEVELS

    said = _texts_of_settings()
    parts = _parts_of_draft()
    columns = _columns_of_draft(cells, declared)
    unit = ""
    if columns.person is not None:
        unit = "\n" + Template(parts["unit"]).substitute(said, column=_quoted(columns.person))
    labels = "several" if _number_of_arms(cells, declared.treatment) > 2 else "two"
    return Template(parts["study"]).substitute(
        said,
        ranges=_listed(columns.ranges),
        levels=_listed(columns.levels),
        others=_listed(columns.others),
        csv=_listed(_csv_lines(declared.layout)),
        treatment=_quoted(declared.treatment or EDIT),
        outcome=_quoted(declared.outcome or EDIT),
        most=MOST_LEVELS,
        labels=Template(parts[labels]).substitute(said).rstrip("\n"),
        unit=unit,
        released=_proposed(parts["ranges"], columns.released, declared.outcome),
        question=_question_text(parts, said, question),
    )


def _quoted(text: str) -> str:
    """A text as TOML quotes it."""
    return json.dumps(text, ensure_ascii=False)


def _listed(lines: Sequence[str]) -> str:
    """Lines, each behind a line break."""
    return "".join(f"\n{line}" for line in lines)


def _texts_of_settings() -> dict[str, str]:
    """What stands above a setting of a draft, from the docstring of its class, as remarks."""
    from dp2erm_cvx.data.counts import SamplingWeights, Unit

    kinds = (
        library.Budget,
        library.Codebook,
        library.Domain,
        library.PrivateEffect,
        library.PrivateTwoStageERM,
        library.Treatment,
        SamplingWeights,
        Unit,
    )
    said = {}
    for kind in kinds:
        for name, text in described(kind.__doc__).items():
            said[f"{kind.__name__}_{name}"] = fill(
                opt.sentence(text), 110, initial_indent="# ", subsequent_indent="# "
            )
    return said


def _parts_of_draft() -> dict[str, str]:
    """The parts of the template of a draft, by name."""
    file = resources.files("dp2erm_cvx.cli").joinpath("templates/draft.toml.txt")
    parts = {}
    for part in file.read_text(encoding="utf-8").split("=== ")[1:]:
        name, text = part.split("\n", 1)
        parts[name] = text
    return parts


@dataclass
class _DraftColumns:
    """Where the columns of a table stand in a draft.

    Parameters
    ----------
    ranges, levels, others
        Lines of covariates that are numbers, of those that are categories, and remarks on columns
        that may be neither.
    released
        Entries of covariates whose ranges may be released.
    person
        The column of identifiers that repeat, if any.
    """

    ranges: list[str] = field(default_factory=list)
    levels: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    person: str | None = None


def _columns_of_draft(cells: TableCells, declared: _Declared) -> _DraftColumns:
    """Where the columns of a table stand in a draft, by their names and by what they hold."""
    from dp2erm_cvx.data.domain_file import EDIT
    from dp2erm_cvx.diagnostics.columns import MOST_LEVELS
    from dp2erm_cvx.diagnostics.unread import key

    columns = _DraftColumns()
    for name, seen in cells.seen.items():
        if name in (declared.treatment, declared.outcome):
            continue
        holds = cells.holds(name)
        remark = ""
        if len(seen) == 2:
            remark = "    # an event that treatment may change? then an outcome: delete"
        if columns.person is None and cells.repeats_persons(name):
            columns.person = name
        elif _LATER.search(name):
            advice = (
                "an outcome? ask for it in a question of its own; else declare its range or levels"
            )
            columns.others.append(f"# {key(name)}: {advice}")
        elif holds.startswith(("numbers", "0")):
            columns.ranges.append(f'{key(name)} = ["{EDIT}", "{EDIT}"]{remark}')
            if name not in declared.ranges:
                columns.released.append(f'{key(name)} = "release"')
        elif holds == "dates" or len(seen) > MOST_LEVELS:
            kind = "dates" if holds == "dates" else "texts"
            columns.others.append(f"# {key(name)}: {kind}, no covariate as it stands")
        else:
            columns.levels.append(f'{key(name)} = ["{EDIT}"]{remark}')
    return columns


def _csv_lines(layout: CsvLayout) -> list[str]:
    """How the file is written, as a draft declares it."""
    lines = []
    for name in ("separator", "encoding", "decimal"):
        lines.append(f"{name} = {json.dumps(getattr(layout, name))}")
    if layout.line_breaks:
        lines.append("line_breaks = true")
    return lines


def _number_of_arms(cells: TableCells, treatment: str | None) -> int:
    """Different labels of the treatment, but for case and blanks."""
    from dp2erm_cvx.data.cells import folded
    from dp2erm_cvx.diagnostics.unread import says_missing

    labels = cells.seen.get(treatment or "", ())
    return len({folded(label) for label in labels if not says_missing(label)})


def _proposed(part: str, columns: Sequence[str], outcome: str | None) -> str:
    """A question that releases the ranges of these columns, as a remark; nothing without any."""
    from dp2erm_cvx.diagnostics.unread import key

    if not columns:
        return ""
    return Template(part).substitute(columns=", ".join(columns), outcome=key(outcome or "OUTCOME"))


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
    """Rank pipelines on data simulated from STUDY and a stated guess of the population.

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
    """What is simulated, with the name of its question; None of a file without questions."""
    from dp2erm_cvx.data.domain_file import read_tables
    from dp2erm_cvx.design import DesignRequest, DesignScenario
    from dp2erm_cvx.design.request import GOALS
    from dp2erm_cvx.study import taken_questions

    name = options["question"]
    goal = options["goal"]
    budget = None
    declared: dict[str, Any] = {}
    if taken_questions(read_tables(path)):
        study, question = _question_of_study(path, name, goal)
        name = question.name
        goal = question.kind
        declared = dict(question.settings)
        domain = question.domain
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
    n_features = options["n_features"]
    if domain.ranges is not None:
        n_features = len(domain.ranges)
    if n_features is None:
        raise DeclarationError("covariates are not declared: give their --n-features, or ranges")
    request = DesignRequest(
        domain,
        options["n_samples"],
        n_features,
        budget,
        goal=goal or GOALS[0],
        scenario=DesignScenario(**opt.declared_settings(DesignScenario, options)),
        estimand=declared.pop("estimand", "ate"),
        replicates=options["replicates"],
        seed=options["seed"],
        declared=declared,
        public=public,
    )
    return name, request


def _question_of_study(path: str, name: str | None, goal: str | None) -> tuple[StudyFile, Question]:
    """A study and its question of this name: the first effect or rule where none is named."""
    from dp2erm_cvx.design.request import GOALS
    from dp2erm_cvx.study import read_study

    study = read_study(path)
    questions = {question.name: question for question in study.questions if question.kind in GOALS}
    name = name or next(iter(questions), None)
    if goal is not None:
        raise DeclarationError(f"--goal: {path} asks questions: choose one by --question")
    if name not in questions:
        raise DeclarationError(f"--question {name}: {known_names(str(name), sorted(questions))}")
    if study.resting is not None:
        raise DeclarationError(f"{path}: {name}: a design needs declared ranges")
    return study, questions[name]


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
