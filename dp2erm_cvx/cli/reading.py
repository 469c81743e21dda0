"""From the texts of options to domains and records: in memory, in blocks, or to be released."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

import dp2erm_cvx as library
from dp2erm_cvx.cli.options import apply
from dp2erm_cvx.cli.screen import stages
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from rich.progress import Progress

    from dp2erm_cvx.data.files import CsvLayout
    from dp2erm_cvx.data.tables import Table
    from dp2erm_cvx.study.records import StudyRecords

    Public = library.Domain | library.OpenDomain


#: What is told where a domain declares none.
NO_RANGES = (
    "no ranges are declared: raw columns are shrunk together to the covariate bound, so that the "
    "one with the largest numbers crowds out all others; declare [ranges], or scale by public "
    "constants"
)


def raw_table(path: str, layout: CsvLayout, domain: Public) -> Table:
    """The cells of the data file.

    What names no treatment or outcome is refused before it is read.
    """
    from dp2erm_cvx.data.files import read_table
    from dp2erm_cvx.study.records import data_columns

    data_columns(domain)
    return read_table(path, layout, ragged=True)


def coded_data(
    table: Table, public: Public, covariates: Sequence[str] | None = None
) -> library.Dataset:
    """The records of a table, by the codebook that is declared.

    ``covariates`` are those where it names none.
    """
    from dp2erm_cvx.study.records import StudyRecords

    data = StudyRecords(table).by(public, covariates)
    assert isinstance(data, library.Dataset)
    return data


#: GB of all columns of a Parquet file as numbers, above which it is read in blocks.
LARGE = 1.0

block_options = apply(
    click.option(
        "--blocks",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help=(
            "Read in blocks; auto: folder, pattern; without [unit] Parquet above 1 GB, CSV above "
            "100 MB."
        ),
    ),
    click.option(
        "--scheduler", metavar="ADDRESS", help="Dask cluster for blocks, in place of threads."
    ),
    click.option(
        "--wait",
        type=click.FloatRange(min=0.0),
        metavar="SECONDS",
        help="Until a cluster without workers ends the run; else 600, or dp2erm.wait of Dask.",
    ),
)


def read_records(
    path: str,
    layout: CsvLayout,
    options: Mapping[str, Any],
    domain: Public,
    covariates: Sequence[str] | None,
    bar: Progress,
) -> StudyRecords:
    """The cells of the data file, in memory or in blocks.

    Parameters
    ----------
    path, layout
        The data file, and how it is written.
    options
        Of the command: ``blocks``, ``scheduler`` and ``wait``.
    domain, covariates
        Declared of its records; None for all columns that are something else.
    bar
        Tells of passes over the file.

    Raises DeclarationError where blocks are asked for, and the file has none.
    """
    from dp2erm_cvx.data.blocked import BlockedDataset
    from dp2erm_cvx.study.records import StudyRecords, data_columns

    if not _in_blocks(path, options["blocks"], domain):
        table = raw_table(path, layout, domain)
        bar.update(bar.task_ids[0], advance=1, description="solving")
        return StudyRecords(table)
    _connect(options["scheduler"], options["wait"])
    _show_passes(bar)
    treatment, outcome = data_columns(domain)
    named: dict[str, Any] = {"treatment": treatment, "outcome": outcome, "covariates": covariates}
    return StudyRecords(BlockedDataset.read(path, **named, layout=layout))


def _in_blocks(path: str, choice: str, public: Public) -> bool:
    """Whether a data file is read in blocks, by what ``--blocks`` says or by its size."""
    from dp2erm_cvx.data.files import is_text, parquet_parts
    from dp2erm_cvx.data.listing import stands_for_many

    is_csv = is_text(path)
    is_large = stands_for_many(path)
    if not (is_csv or is_large or path.lower().endswith((".parquet", ".pq"))):
        if choice == "always":
            raise DeclarationError("--blocks always: only Parquet and CSV files are read in blocks")
        return False
    if choice != "auto" or is_large:
        return choice != "never"
    # the number of rows is private
    if public.codebook is not None and public.codebook.unit is not None:
        return False
    if is_csv:  # whose cells take 20 times as much room
        size = os.path.getsize(path) if os.path.exists(path) else 0
        return size > 1e8 * LARGE and importlib.util.find_spec("dask") is not None
    columns, rows, _ = parquet_parts(path)
    return 8e-9 * sum(rows) * len(columns) > LARGE


def _connect(scheduler: str | None, wait: float | None) -> None:
    """Put a cluster in force, if one is named, and how long it may be without workers."""
    if scheduler is None:
        return
    try:
        dask: Any = importlib.import_module("dask")
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        need = "--scheduler needs distributed: pip install 'dp2erm-cvx[distributed]'"
        raise DeclarationError(need) from None
    for name in ("distributed", "asyncio"):  # which write tracebacks of what is told in one line
        logging.getLogger(name).setLevel(logging.CRITICAL)
    context = click.get_current_context()
    if wait is not None:
        context.with_resource(dask.config.set({"dp2erm.wait": wait}))
    keys = distributed.Security().get_connection_args("client").get("ssl_context")
    if scheduler.startswith("tls://") and keys is None:
        raise DeclarationError(
            f"--scheduler {scheduler}: needs keys: set distributed.comm.tls of Dask's configuration"
        )
    try:
        connected = distributed.Client(scheduler)
    except (OSError, ValueError, TimeoutError):
        raise DeclarationError(
            f"--scheduler {scheduler}: no Dask scheduler answers there"
        ) from None
    context.call_on_close(connected.close)


def _show_passes(bar: Progress) -> None:
    """Show the passes of local threads or of a cluster on the bar until the command ends."""
    from dp2erm_cvx.data.pieces import passes_told

    if importlib.util.find_spec("dask") is None:
        return  # whoever reads says what is missing
    click.get_current_context().with_resource(passes_told(stages(bar)))
