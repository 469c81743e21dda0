"""From the texts of options to domains and records: in memory, in blocks, or to be released."""

from __future__ import annotations

import glob
import importlib.util
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import DOMAIN_FIELDS, REQUIRED, apply, names
from dp2erm_cvx.cli.screen import advance, stages
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.text import number_or_text

if TYPE_CHECKING:
    from rich.progress import Progress

    from dp2erm_cvx.blocked import BlockedDataset
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.files import CsvLayout
    from dp2erm_cvx.private_ranges import PrivateRanges
    from dp2erm_cvx.tables import Table


#: What is told where a domain declares none.
NO_RANGES = (
    "no ranges are declared: raw columns are shrunk together to the covariate bound, so that the one with "
    "the largest numbers crowds out all others; declare [ranges], or scale by public constants"
)


def raw_table(path: str, options: Mapping[str, Any], domain: Domain | PrivateRanges) -> Table:
    """The cells of the data file; what names no treatment or outcome is refused before it is read."""
    from dp2erm_cvx.files import read_table

    data_columns(domain)
    return read_table(path, read_layout(options), ragged=True)


def coded_data(table: Table, public: Domain | PrivateRanges, options: Mapping[str, Any]) -> Dataset:
    """The records of a table, by the codebook that is declared."""
    from dp2erm_cvx.data import Dataset

    a, y = (table.cells(column) for column in data_columns(public))
    return Dataset.coded(public, table, a, y, public.columns or names(options["covariates"]))


def data_columns(public: Domain | PrivateRanges) -> tuple[str, str]:
    """The columns of the treatment and of the outcome. Raises DeclarationError where one is not named."""
    book = public.codebook
    treatment, outcome = (book.treatment.column, book.outcome) if book is not None else (None, None)
    if not treatment:
        raise DeclarationError("--treatment is missing: name the column of the treatment")
    if not outcome:
        raise DeclarationError("--outcome is missing: name the column of the outcome")
    return treatment, outcome


def read_layout(options: Mapping[str, Any], layout: CsvLayout | None = None) -> CsvLayout:
    """How CSV files are written: the flags, put over the table ``[csv]`` of the domain file."""
    from dp2erm_cvx.domain_file import declared_layout
    from dp2erm_cvx.files import PLAIN

    path = options.get("domain")
    layout = declared_layout(path) if path is not None else layout or PLAIN
    chosen = {name: options.get(name) for name in ("separator", "encoding", "decimal")}
    return replace(layout, **{name: value for name, value in chosen.items() if value is not None})


def read_domain(options: dict[str, Any], assumed: Mapping[str, float] | None = None) -> Domain:
    """The domain of ``--domain`` with every flag put over it; ``--covariates`` picks among its columns.

    ``assumed`` fills in what nothing declares.
    """
    from dp2erm_cvx.domain_file import domain_of

    flags = {name: options[name] for name in DOMAIN_FIELDS if options[name] is not None}
    declared: dict[str, Any] = dict(assumed or {})
    if options["domain"] is not None:
        declared |= _domain_file(options["domain"], declared | flags)
    declared |= flags
    for name in REQUIRED:
        within = name == "covariate_bound" and any(declared.get(one) for one in ("ranges", "levels"))
        if name not in declared and not (within or (name == "covariate_bound" and options["ranges"])):
            flag = "--" + name.replace("_", "-")
            raise DeclarationError(f"{name} is not declared: give {flag}, or --domain FILE.toml")
    if options["ranges"]:
        known = declared.get("ranges") or {}
        if not isinstance(known, dict):
            raise DeclarationError("--range names a column, but the ranges of the domain file have no names")
        declared["ranges"] = {**known, **dict(map(range_of, options["ranges"]))}
    return domain_of(_chosen(with_columns(declared, options), names(options.get("covariates"))))


def with_columns(declared: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Declarations with the columns of ``--treatment`` and ``--outcome`` put over them."""
    columns = dict(declared)
    if options.get("treatment"):
        known = columns.get("treatment")
        columns["treatment"] = (known if isinstance(known, dict) else {}) | {"column": options["treatment"]}
    if options.get("outcome"):
        columns["outcome_column"] = options["outcome"]
    return columns


def _chosen(declared: dict[str, Any], chosen: Sequence[str] | None) -> dict[str, Any]:
    """Declarations of the columns of ``--covariates`` alone, in their order."""
    ranges, levels = declared.get("ranges"), declared.get("levels") or {}
    if chosen is None or not (isinstance(ranges, dict) or levels):
        return declared
    ranges = ranges or {}
    for name in chosen:
        if name not in ranges and name not in levels:
            raise DeclarationError(f"covariate {name!r} has no public range: add --range {name}=LOW:HIGH")
    return coded_columns(declared, chosen) | {
        "ranges": {name: ranges[name] for name in chosen if name in ranges}
    }


def coded_columns(declared: Mapping[str, Any], chosen: Sequence[str]) -> dict[str, Any]:
    """Declarations with the levels, missing values and logarithms of these columns alone."""
    picked = dict(declared)
    for title in ("levels", "missing"):
        if isinstance(table := declared.get(title), dict):
            picked[title] = {name: table[name] for name in chosen if name in table}
    if isinstance(logs := declared.get("log"), list):
        picked["log"] = [name for name in logs if name in chosen]
    return picked


def _domain_file(path: str, beside: Mapping[str, Any]) -> dict[str, Any]:
    """Domain that the file declares, judged with the bounds that it leaves to ``beside``."""
    from dp2erm_cvx.domain_file import check_names, domain_of, read_declared

    declared = read_declared(path)
    whole = {name: beside[name] for name in REQUIRED if name in beside} | declared
    bounded = "covariate_bound" in whole or whole.get("ranges") or whole.get("levels")
    try:
        if bounded and "outcome_bound" in whole:
            domain_of(whole)
        else:
            check_names(declared)
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {error}") from None
    return declared


def range_of(text: str) -> tuple[str, tuple[float | str, float | str]]:
    """``COLUMN=LOW:HIGH``. Raises DeclarationError."""
    column, separator, ends = text.rpartition("=")
    low, colon, high = ends.partition(":")
    pair = number_or_text(low.strip()), number_or_text(high.strip())
    numeric = all(isinstance(end, int | float) and not math.isnan(end) for end in pair)
    if not (separator and colon and column.strip() and numeric):
        raise DeclarationError(f"--range {text!r}: must look like COLUMN=LOW:HIGH, for instance age=25:74")
    return column.strip(), pair


#: What stands for a range that is released.
_RELEASED = "private"
#: What a domain may declare beside ranges.
_KNOWN = ("covariate_bound", "outcome_bound", "outcome_center", "outcome", "relation", "ranges")


def read_ranges(options: dict[str, Any]) -> PrivateRanges:
    """The public ranges of ``--domain`` and of the flags; the other covariates of ``--covariates`` have none.

    In the file a range is ``[low, high]``, ``{within = [low, high]}`` for wide bounds, or ``"private"``, and
    ``outcome`` may be one. An outcome bound declares that of the outcome.
    """
    from dp2erm_cvx.domain_file import read_declared, split_codebook
    from dp2erm_cvx.private_ranges import PrivateRanges

    fields: dict[str, Any] = {} if options["domain"] is None else read_declared(options["domain"])
    chosen = names(options.get("covariates"))
    fields = with_columns(fields if chosen is None else coded_columns(fields, chosen), options)
    book, declared = split_codebook(fields)
    declared |= {name: options[name] for name in DOMAIN_FIELDS if options[name] is not None}
    for name in declared:
        if name not in _KNOWN:
            raise DeclarationError(f"--private-ranges: {name} cannot be declared; known: {', '.join(_KNOWN)}")
    ranges = declared.get("ranges") or {}
    if not isinstance(ranges, Mapping):
        raise DeclarationError("--private-ranges: ranges of the domain file must have names")
    known = {str(name): _entry(name, entry) for name, entry in ranges.items()}
    known |= dict(map(range_of, options["ranges"]))
    if chosen is not None:
        known = {name: known.get(name) for name in chosen if book is None or name not in book.levels}
    if book is not None:
        known = book.ranges(known)
    rest = {name: declared[name] for name in ("covariate_bound", "relation") if name in declared}
    outcome = _outcome(declared)
    return PrivateRanges(options["private_ranges"], known or None, outcome=outcome, codebook=book, **rest)


def _entry(name: str, entry: Any) -> Any:
    from dp2erm_cvx.private_ranges import Within

    if isinstance(entry, Mapping):
        if list(entry) != ["within"] or not isinstance(entry["within"], list) or len(entry["within"]) != 2:
            raise DeclarationError(f"{name} = {brief(entry)}: must be {{within = [low, high]}}")
        return Within(*entry["within"])
    return None if entry == _RELEASED else entry


def _outcome(declared: Mapping[str, Any]) -> Any:
    if "outcome_bound" not in declared:
        if "outcome_center" in declared:
            raise DeclarationError("--private-ranges: outcome_center needs an outcome_bound")
        return _entry("outcome", declared.get("outcome"))
    if "outcome" in declared:
        raise DeclarationError("--private-ranges: declare outcome or outcome_bound, not both")
    from dp2erm_cvx.public import public_number

    bound = public_number("outcome_bound", declared["outcome_bound"], above=0.0)
    center = public_number("outcome_center", declared.get("outcome_center", 0.0))
    return center - bound, center + bound


#: GB of all columns of a Parquet file as numbers, above which it is read in blocks.
LARGE = 1.0

block_options = apply(
    click.option(
        "--blocks",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="Read in blocks; auto: folder, pattern; without [unit] Parquet above 1 GB, CSV above 100 MB.",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Dask cluster for blocks, in place of threads."),
)


def read_cells(
    path: str, options: dict[str, Any], domain: Domain | PrivateRanges, bar: Progress | None
) -> Table | BlockedDataset:
    """The data file as it stands, in memory or in blocks; the bar, if any, tells of passes over them.

    Raises DeclarationError where blocks are asked for, and the file has none.
    """
    if not _in_blocks(path, options["blocks"], domain):
        table = raw_table(path, options, domain)
        if bar is not None:
            advance(bar, "solving")
        return table
    from dp2erm_cvx.blocked import BlockedDataset

    _connect(options["scheduler"])
    if bar is not None:
        _shown(bar)
    treatment, outcome = data_columns(domain)
    chosen, layout = names(options["covariates"]), read_layout(options)
    return BlockedDataset.read(path, treatment=treatment, outcome=outcome, covariates=chosen, layout=layout)


@dataclass(frozen=True)
class Coded:
    """Cells as they stand, and the records that codebooks have made of them, each of them once."""

    cells: Table | BlockedDataset
    options: Mapping[str, Any]
    made: list[tuple[Domain | PrivateRanges, Dataset | BlockedDataset]] = field(default_factory=list)

    def by(
        self, domain: Domain | PrivateRanges, count: Callable[[RecordCounts], None] | None = None
    ) -> Dataset | BlockedDataset:
        """The records by the codebook of a domain; ``count`` gets their counts when they are made."""
        from dp2erm_cvx.blocked import BlockedDataset
        from dp2erm_cvx.blocks import Blocks, whole
        from dp2erm_cvx.diagnostics.columns import record_counts

        for known, records in self.made:
            if known == domain:
                return records
        cells = self.cells
        if isinstance(cells, BlockedDataset):
            treatment, outcome = data_columns(domain)
            data: Any = replace(cells, treatment=treatment, outcome=outcome).coded(domain)
            tables: Blocks[Table] = data.tables
        else:
            data, tables = coded_data(cells, domain, self.options), whole(cells, 0)
        self.made.append((domain, data))
        if count is not None:
            count(reduce(add, tables.map(partial(record_counts, public=domain, columns=data.columns))))
        return self.made[-1][1]


def _in_blocks(path: str, choice: str, public: Domain | PrivateRanges) -> bool:
    from dp2erm_cvx.files import is_text, parquet_parts

    text = is_text(path)
    large = not text and (os.path.isdir(path) or glob.has_magic(path))
    if not (text or large or path.lower().endswith((".parquet", ".pq"))):
        if choice == "always":
            raise DeclarationError("--blocks always: only Parquet and CSV files are read in blocks")
        return False
    if choice != "auto" or large:
        return choice != "never"
    if public.codebook is not None and public.codebook.unit is not None:  # the number of rows is private
        return False
    if text:  # whose cells take 20 times as much room
        size = os.path.getsize(path) if os.path.exists(path) else 0
        return size > 1e8 * LARGE and importlib.util.find_spec("dask") is not None
    columns, rows, _ = parquet_parts(path)
    return 8e-9 * sum(rows) * len(columns) > LARGE


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
    report, passes = stages(bar), list[int]()

    def start(graph: Any, state: Any) -> None:
        passes.append(len(graph))
        report(f"blocks of records, pass {len(passes)}", 0, passes[-1])  # whose time is its own

    def posttask(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        report(f"blocks of records, pass {len(passes)}", len(state["finished"]), passes[-1])

    callback = callbacks.Callback(start_state=start, posttask=posttask)
    callback.register()
    click.get_current_context().call_on_close(callback.unregister)
