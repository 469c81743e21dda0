"""Data files larger than memory: when they are read in blocks, and by whom."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, apply, names
from dp2erm_cvx.cli.screen import advance, stages
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from rich.progress import Progress

    from dp2erm_cvx.blocked import BlockedDataset, Engine
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.private_ranges import PrivateRanges

#: Is told what is counted, how many of it are done, and their number.
Told = Callable[[str, int, int], None]

#: GB of all columns of a Parquet file as numbers, above which it is read in blocks.
LARGE = 1.0

_WORKERS = click.option(
    "--workers", type=Number(), default=1, help="Processes for blocks; -1: all processors."
)

#: What a command says of them that has processes of its own; they then make the passes.
reading_options = apply(
    click.option(
        "--blocks",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="Read Parquet in blocks that are never in memory together; auto: more than 1 GB of numbers, a "
        "folder, or a pattern such as 'records/*.parquet'.",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Dask cluster for blocks, in place of processes."),
    click.option("--keep", type=Number(), default=2.0, help="GB of records kept from one pass to the next."),
    click.option(
        "--scratch",
        metavar="FOLDER",
        help="Keep the other records there, in a file without a name that ends with the command; without it "
        "they are read anew in every pass.",
    ),
)
block_options = apply(reading_options, _WORKERS)


def read_records(
    path: str,
    options: dict[str, Any],
    domain: Domain | PrivateRanges,
    bar: Progress | None,
    count: Callable[[RecordCounts], None] | None = None,
) -> Dataset | BlockedDataset:
    """The data file, in memory or in blocks; the bar, if any, then tells of passes over them.

    ``count`` gets the counts of the records, of blocks by one pass more. Raises DeclarationError where blocks
    are asked for, and the file is no Parquet file, and for a number of the options that is none.
    """
    from dp2erm_cvx.cli import reading
    from dp2erm_cvx.diagnostics.columns import record_counts
    from dp2erm_cvx.parallel import untold, whole_workers
    from dp2erm_cvx.public import public_number

    keep = int(1e9 * public_number("--keep", options["keep"], at_least=0.0))
    workers = whole_workers(options["workers"])
    if not _in_blocks(path, options["blocks"]):
        table = reading.raw_table(path, options, domain)
        found = reading.coded_data(table, domain, options)
        if count is not None:
            count(record_counts(table, public=domain, columns=found.columns))
        if bar is not None:
            advance(bar, "solving")
        return found
    from dp2erm_cvx.blocked import BlockedDataset
    from dp2erm_cvx.blocked.passes import Passes

    treatment, outcome = reading.data_columns(domain)
    told = untold if bar is None else _passes(bar)
    data = BlockedDataset.from_parquet(
        path,
        treatment=treatment,
        outcome=outcome,
        covariates=names(options["covariates"]),
        engine=_engine(options["scheduler"], workers)(keep, told, scratch=options["scratch"]),
    )
    coded = data.coded(domain)
    if count is not None:
        counts = partial(record_counts, public=domain, columns=coded.columns)
        blocks = Passes(coded.blocks.tables, coded.blocks.columns, counts, coded.blocks.engine)
        count(reduce(add, blocks.each()))
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


def _engine(scheduler: str | None, workers: int) -> Callable[..., Engine]:
    from dp2erm_cvx.blocked import DaskCluster, Processes, Threads

    if scheduler is None:
        return partial(Threads, 1) if workers == 1 else partial(Processes, workers)
    try:
        from distributed import Client
    except ImportError:
        return DaskCluster  # says what is not installed
    try:
        return partial(DaskCluster, Client(scheduler))  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError):
        raise DeclarationError(f"--scheduler {scheduler}: no Dask scheduler answers there") from None


def _passes(bar: Progress) -> Told:
    told, number = stages(bar), 0

    def shown(what: str, done: int, total: int) -> None:
        nonlocal number
        number += done == 0
        told(f"{what}, pass {number}", done, total)

    return shown
