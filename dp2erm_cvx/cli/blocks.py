"""Data files larger than memory: when they are read in blocks."""

from __future__ import annotations

import glob
import importlib
import os
from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import apply, names
from dp2erm_cvx.cli.screen import advance, stages
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from rich.progress import Progress

    from dp2erm_cvx.blocked import BlockedDataset
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.private_ranges import PrivateRanges
    from dp2erm_cvx.tables import Table

#: GB of all columns of a Parquet file as numbers, above which it is read in blocks.
LARGE = 1.0

block_options = apply(
    click.option(
        "--blocks",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="Read Parquet in blocks that are never in memory together; auto: more than 1 GB of numbers, a "
        "folder, or a pattern such as 'records/*.parquet'.",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Dask cluster for blocks, in place of threads."),
)


def read_records(
    path: str,
    options: dict[str, Any],
    domain: Domain | PrivateRanges,
    bar: Progress | None,
    count: Callable[[RecordCounts], None] | None = None,
) -> Dataset | BlockedDataset:
    """The data file by its codebook, in memory or in blocks; the bar, if any, tells of passes over them.

    ``count`` gets the counts of the records, of blocks by one pass more. Raises DeclarationError where blocks
    are asked for, and the file is no Parquet file.
    """
    return coded_records(read_cells(path, options, domain, bar), options, domain, count)


def read_cells(
    path: str, options: dict[str, Any], domain: Domain | PrivateRanges, bar: Progress | None
) -> Table | BlockedDataset:
    """The data file as it stands. Raises as :func:`read_records` does."""
    from dp2erm_cvx.cli import reading

    if not _in_blocks(path, options["blocks"]):
        table = reading.raw_table(path, options, domain)
        if bar is not None:
            advance(bar, "solving")
        return table
    from dp2erm_cvx.blocked import BlockedDataset

    _connect(options["scheduler"])
    if bar is not None:
        _shown(bar)
    treatment, outcome = reading.data_columns(domain)
    return BlockedDataset.from_parquet(
        path, treatment=treatment, outcome=outcome, covariates=names(options["covariates"])
    )


def coded_records(
    cells: Table | BlockedDataset,
    options: dict[str, Any],
    domain: Domain | PrivateRanges,
    count: Callable[[RecordCounts], None] | None = None,
) -> Dataset | BlockedDataset:
    """The records that the codebook of a domain makes of cells; ``count`` gets their counts."""
    from dp2erm_cvx.cli import reading
    from dp2erm_cvx.diagnostics.columns import record_counts
    from dp2erm_cvx.tables import Table

    if isinstance(cells, Table):
        found = reading.coded_data(cells, domain, options)
        if count is not None:
            count(record_counts(cells, public=domain, columns=found.columns))
        return found
    coded = cells.coded(domain)
    if count is not None:
        count(reduce(add, coded.tables.map(partial(record_counts, public=domain, columns=coded.columns))))
    return coded


def _in_blocks(path: str, asked: str) -> bool:
    files = path.lower().endswith((".parquet", ".pq")) or os.path.isdir(path)
    if not files:
        if asked == "always":
            raise DeclarationError("--blocks always: only Parquet files are read in blocks")
        return False
    if asked != "auto":
        return asked == "always"
    if os.path.isdir(path) or glob.has_magic(path):
        return True
    from dp2erm_cvx.tables import parquet_names

    columns, groups = parquet_names(path)
    return 8e-9 * sum(groups) * len(columns) > LARGE


def _connect(scheduler: str | None) -> None:
    """Put a cluster in force, if one is named."""
    if scheduler is None:
        return
    try:
        from distributed import Client
    except ImportError:
        raise DeclarationError(
            "--scheduler needs distributed: pip install 'dp2erm-cvx[distributed]'"
        ) from None
    try:
        client = Client(scheduler)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError):
        raise DeclarationError(f"--scheduler {scheduler}: no Dask scheduler answers there") from None
    click.get_current_context().call_on_close(client.close)


def _shown(bar: Progress) -> None:
    """Show the passes of local threads on the bar until the command ends."""
    try:
        callbacks: Any = importlib.import_module("dask.callbacks")
    except ImportError:
        return  # whoever reads says what is missing
    told = stages(bar)

    def start(graph: Any, state: Any) -> None:
        told("blocks of records", 0, len(graph))

    def posttask(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        told("blocks of records", len(state["finished"]), len(graph))

    shown = callbacks.Callback(start_state=start, posttask=posttask)
    shown.register()
    click.get_current_context().call_on_close(shown.unregister)
