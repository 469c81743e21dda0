"""``dp2erm check``: what a raw table holds beside what is declared, for the data holder alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.balance import column_blocks, record_line, sampling_lines
from dp2erm_cvx.cli.options import data_options
from dp2erm_cvx.cli.screen import console, progress, writable, write_text
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.private_ranges import PrivateRanges
    from dp2erm_cvx.tables import Table

_EXAMPLE = """\b
Example:
dp2erm check trial.csv --treatment arm --outcome score --draft study.toml
dp2erm check trial.csv --domain study.toml
"""


@click.command("check", short_help="What a raw table holds: for the data holder.", epilog=_EXAMPLE)
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
    with progress("reading the data"):
        from dp2erm_cvx.cli.draft import drafted
        from dp2erm_cvx.cli.reading import read_layout, read_public
        from dp2erm_cvx.codebook import Codebook, Treatment
        from dp2erm_cvx.csv_layout import PLAIN, guessed_layout
        from dp2erm_cvx.diagnostics.columns import column_report
        from dp2erm_cvx.tables import read_table

        declared = options["domain"] is not None or bool(options["ranges"])
        public = read_public(options) if declared else None
        layout = read_layout(options, PLAIN if declared else guessed_layout(data))
        table = read_table(data, layout, ragged=True)
        for name in filter(None, (options["treatment"], options["outcome"])):
            table.cells(name)
        book = Codebook(Treatment(options["treatment"] or None), options["outcome"] or None)
        report = column_report(table, *((book, None) if public is None else (public.codebook, public.ranges)))
        records = [] if public is None else list(_records(table, public, options))
    screen = console()
    for block in (*column_blocks(report), *table.notes, *records):
        screen.print(block)
    if draft is not None:
        write_text(draft, drafted(table, layout, options["treatment"], options["outcome"]))
        rests = "what kind a column is of (numbers, levels, other text) and [csv] rest on the data"
        click.echo(f"{draft}: written; {rests}: read it, and fill its gaps, before it is made public")


def _records(table: Table, public: Domain | PrivateRanges, options: dict[str, Any]) -> Iterator[str]:
    """What becomes of the records under the public rule."""
    import numpy as np

    from dp2erm_cvx.cli.reading import NO_RANGES, coded_data
    from dp2erm_cvx.diagnostics.columns import record_counts
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.tables import numbers_or_nan

    if public.codebook is None:
        yield "The treatment and the outcome are not declared: see [treatment] and outcome_column."
        return
    data, book = coded_data(table, public, options), public.codebook
    cells = book.read(table.cells)
    known = book.treatment.arms(cells(str(book.treatment.column))) >= 0
    absent = np.isnan(numbers_or_nan(cells(str(book.outcome)), str(book.outcome)))
    yield record_line(record_counts(table, public=public, columns=data.columns))
    yield from sampling_lines(data.sampling, book.sampling_weights)
    lost, silent = int(np.sum(~known)), int(np.sum(absent & known))
    gone = [f"{lost:,} records without treatment"] if lost else []
    found = {}
    if book.outcome in book.missing:
        less = f"makes an effect smaller by about {np.mean(absent & known):.1%} of it"
        found[f"without outcome: each counts as one public outcome, which {less}"] = absent & known
    elif silent:
        gone.append(f"{silent:,} without outcome" if gone else f"{silent:,} records without outcome")
    if gone:
        yield f"{' and '.join(gone)} do not count in an effect or a rule."
    if isinstance(public, Domain):
        if public.ranges is None:
            yield f"Warning: {NO_RANGES}."
        inside = replace(public, covariate_bound=1e30, outcome_bound=1e30, intercept=0.0)
        records = inside.records(data.X, data.a, data.y)
        length = np.linalg.norm(records.X, axis=1)
        found["shrunk to the covariate bound"] = length > public.features_bound * (1.0 + 1e-9)
        found["with an outcome that is clipped"] = np.abs(records.y) > public.outcome_bound
    for what, which in found.items():
        if np.any(which):
            yield f"{int(np.sum(which)):,} {what}."
