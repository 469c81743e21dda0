"""``dp2erm check``: what a raw table holds beside what is declared, for the data holder alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from importlib import resources
from operator import add
from string import Template
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import data_options, names, sentence
from dp2erm_cvx.cli.reading import NO_RANGES, data_columns, read_domain, read_layout, read_ranges
from dp2erm_cvx.cli.screen import NOT_PRIVATE, progress, show, stages, writable, write_text
from dp2erm_cvx.display import grid, heading
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.text import described

if TYPE_CHECKING:
    from dp2erm_cvx.diagnostics.columns import RecordCounts, TableCells
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.domain import Array, Domain
    from dp2erm_cvx.files import CsvLayout
    from dp2erm_cvx.private_ranges import PrivateRanges
    from dp2erm_cvx.tables import Table


@click.command("check", short_help="What a raw table holds: for the data holder.")
@click.argument("data", metavar="DATA.csv|.parquet")
@data_options
@click.option("--draft", metavar="FILE.toml", help="Write a study file with gaps for what is declared.")
def check_command(data: str, draft: str | None, **options: Any) -> None:
    """Report every column of DATA: its type, missing cells, text, and what is out of the declared ranges.

    The report is NOT private, and nothing is spent. Use it to find mistakes in the file and in its
    declaration: a wrong separator, a label that is spelled otherwise. Ranges and levels come from elsewhere.
    """
    if draft is not None:
        writable(draft, data, options["domain"])
        if os.path.lexists(draft) or options["domain"] is not None:
            raise DeclarationError(f"--draft {draft}: must be a new file, and --domain left out")
    with progress("reading the data") as bar:
        from dp2erm_cvx.codebook import Codebook
        from dp2erm_cvx.diagnostics.columns import TableCells
        from dp2erm_cvx.files import guessed_layout, table_parts
        from dp2erm_cvx.treatment import Treatment

        declared = options["domain"] is not None or bool(options["ranges"])
        public = _read_public(options) if declared else None
        layout = read_layout(options, None if declared else guessed_layout(data))
        book = Codebook(Treatment(options["treatment"] or None), options["outcome"] or None)
        units = (book, None) if public is None else (public.codebook, public.ranges)
        update, parts = stages(bar), table_parts(data, layout)
        cells, sums = list[TableCells](), list[Any]()
        update("parts of the table", 0, len(parts))
        for number, read in enumerate(parts, 1):  # of which one alone is in memory
            table = read()
            for name in filter(None, (options["treatment"], options["outcome"])):
                table.cells(name)
            cells.append(TableCells.of(table, *units))
            if public is not None and public.codebook is not None:
                own = _record_sums(table, public, options)
                sums = [a + b for a, b in zip(sums, own, strict=True)] if sums else list(own)
            cells = [reduce(add, cells)]
            update("parts of the table", number, len(parts))
        records = [] if public is None else list(_records(sums, public))
    show((*column_blocks(cells[0].report()), *cells[0].notes(), *records))
    if draft is not None:
        write_text(draft, drafted(cells[0], layout, options["treatment"], options["outcome"]))
        rests = "what kind a column is of (numbers, levels, other text) and [csv] rest on the data"
        click.echo(f"{draft}: written; {rests}: read it, and fill its gaps, before it is made public")


def _record_sums(
    table: Table, public: Domain | PrivateRanges, options: dict[str, Any]
) -> tuple[RecordCounts, Array]:
    """Sums of what becomes of the records of a table, or of a part of it.

    Beside their counts what their weights and the squares of these add up to, and how many are shrunk.
    """
    import numpy as np

    from dp2erm_cvx.data import DatasetBlock
    from dp2erm_cvx.diagnostics.columns import record_counts
    from dp2erm_cvx.domain import Domain

    a, y = (table.cells(name) for name in data_columns(public))
    data = DatasetBlock.coded(public, table, a, y, public.columns or names(options["covariates"]))
    shrunk = 0
    if isinstance(public, Domain):
        inside = replace(public.of_records, covariate_bound=1e30, outcome_bound=1e30, intercept=0.0)
        length = np.linalg.norm(inside.records(data.X, data.a, data.y).X, axis=1)
        shrunk = int(np.sum(length > public.features_bound * (1.0 + 1e-9)))
    counts = record_counts(table, public=public, columns=data.columns)
    weights = np.zeros(1) if data.sampling is None else data.sampling
    return counts, np.array([weights.sum(), (weights**2).sum(), shrunk])


def _records(sums: Sequence[Any], public: Domain | PrivateRanges) -> Iterator[str]:
    """Lines on what becomes of the records under the public rule."""
    from dp2erm_cvx.domain import Domain

    book = public.codebook
    if not sums or book is None:
        yield "The treatment and the outcome are not declared: see [treatment] and outcome_column."
        return
    counts, (total, squares, shrunk) = sums
    yield counts.line + ("" if book.unit else " One record is taken to be one person: see [unit].")
    n = counts.total
    if (weights := book.sampling_weights) is not None:
        mean = max(total / n, 1e-300)
        yield (
            f"Sampling weights average {mean:.4g} after clipping ({weights.mean:g} is declared), from 0 to "
            f"{weights.largest:g}. For sampling error the records are worth "
            f"{mean**2 / max(squares / n, 1e-300) * n:,.0f} of equal weight (Kish 1965); noise is "
            f"{weights.largest / mean:.3g} times as large."
        )
    gone = {"treatment": counts.missing, "outcome": counts.absent}
    if counts.absent and book.outcome in book.missing:
        less = f"makes an effect smaller by about {gone.pop('outcome') / n:.1%} of it"
        yield f"{counts.absent:,} without outcome: each counts as one public outcome, which {less}."
    if texts := [f"{count:,} records without {what}" for what, count in gone.items() if count]:
        yield f"{' and '.join(texts)} do not count in an effect or a rule."
    if isinstance(public, Domain) and public.ranges is None:
        yield f"Warning: {NO_RANGES}."
    if shrunk:
        yield f"{shrunk:,.0f} shrunk to the covariate bound."
    if counts.clipped:
        yield f"{counts.clipped:,} with an outcome that is clipped."


#: How columns are called that are outcomes rather than covariates.
_LATER = re.compile(
    r"outcome|died|death|mortal|surviv|readmi|discharge|follow|result|change|event|endpoint|response"
    r"|(^|_)(after|post|los|days|score)($|_|\d)",
    re.I,
)


def drafted(cells: TableCells, layout: CsvLayout, treatment: str | None, outcome: str | None) -> str:
    """The text of a study file for this table, with a gap for every declaration.

    It rests on the data: on the names of columns, on whether one holds numbers, at most 20 or more texts, or
    dates, on whether identifiers repeat, and on how the file is written. One cell may decide that: a person
    has to read it before it is made public.
    """
    from dp2erm_cvx.codebook import Codebook
    from dp2erm_cvx.diagnostics.columns import MOST_LEVELS, key
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.domain_file import EDIT
    from dp2erm_cvx.estimators import PrivateEffect
    from dp2erm_cvx.privacy import Budget
    from dp2erm_cvx.sampling import SamplingWeights, Unit
    from dp2erm_cvx.treatment import Treatment

    said = {
        f"{kind.__name__}_{name}": fill(sentence(text), 110, initial_indent="# ", subsequent_indent="# ")
        for kind in (Budget, Codebook, Domain, PrivateEffect, SamplingWeights, Treatment, Unit)
        for name, text in described(kind.__doc__).items()
    }
    text = resources.files("dp2erm_cvx.cli").joinpath("templates/draft.toml.txt").read_text(encoding="utf-8")
    parts = dict(part.split("\n", 1) for part in text.split("=== ")[1:])
    ranges, levels, notes, unit = [], [], [], ""
    for name, seen in cells.seen.items():
        if name in (treatment, outcome):
            continue
        kind = cells.holds(name)
        two = "    # an event that treatment may change? then an outcome: delete" if len(seen) == 2 else ""
        if not unit and cells.repeats_persons(name):
            column = json.dumps(name, ensure_ascii=False)
            unit = "\n" + Template(parts["unit"]).substitute(said, column=column)
        elif _LATER.search(name):
            advice = "an outcome? ask for it in a question of its own; else declare its range or levels"
            notes.append(f"# {key(name)}: {advice}")
        elif kind.startswith(("numbers", "0")):
            ranges.append(f'{key(name)} = ["{EDIT}", "{EDIT}"]{two}')
        elif kind == "dates" or len(seen) > MOST_LEVELS:
            kind = "dates" if kind == "dates" else "texts"
            notes.append(f"# {key(name)}: {kind}, no covariate as it stands")
        else:
            levels.append(f'{key(name)} = ["{EDIT}"]{two}')
    named = [EDIT if name is None else name for name in (treatment, outcome)]
    quoted = [json.dumps(name, ensure_ascii=False) for name in named]
    csv = [f"{name} = {json.dumps(getattr(layout, name))}" for name in ("separator", "encoding", "decimal")]
    breaks = ["line_breaks = true"] if layout.line_breaks else []
    tables = {"ranges": ranges, "levels": levels, "others": notes, "csv": [*csv, *breaks]}
    labels = "several" if len(cells.seen.get(treatment or "", ())) > 2 else "two"
    return Template(parts["study"]).substitute(
        said,
        **{name: "".join(f"\n{line}" for line in lines) for name, lines in tables.items()},
        most=MOST_LEVELS,
        treatment=quoted[0],
        outcome=quoted[1],
        labels=Template(parts[labels]).substitute(said).rstrip("\n"),
        unit=unit,
    )


def column_blocks(report: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """Contents of the columns of a raw table, and what to declare, marked as not private."""
    yield heading(f"Columns of the table: {NOT_PRIVATE}, for the data holder only")
    headers = ("column", "declared as", "holds", "missing", "not as declared", "out of range")
    names = ("missing", "odd", "outside")
    counts = (tuple(f"{one[name]:,}" if one[name] else "" for name in names) for one in report)
    rows = [
        (one["name"], one["declared"], one["holds"], *own) for one, own in zip(report, counts, strict=True)
    ]
    yield grid(*headers, left=3, rows=rows)
    yield from (f"{one['name']}: {note}" for one in report for note in one["notes"])


def _read_public(options: dict[str, Any]) -> Domain | PrivateRanges:
    """The domain, or the ranges where the file leaves some of them to be released."""
    from dp2erm_cvx.domain_file import read_declared

    declared = {} if options["domain"] is None else read_declared(options["domain"])
    ranges = declared.get("ranges")
    released = isinstance(ranges, dict) and any(not isinstance(one, list) for one in ranges.values())
    if "outcome" in declared or released:
        return read_ranges(options | {"private_ranges": 0.1})
    return read_domain(options)
