"""Tables of raw cells in blocks, which Dask reads, schedules, keeps and sends.

A pass is computed by local threads, or by a cluster where a ``distributed.Client`` is in force.
"""

from __future__ import annotations

import glob
import importlib
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import blocks
from dp2erm_cvx.blocks import Beside, Blocks, cut, itself
from dp2erm_cvx.errors import DataError, DeclarationError, WorkerError
from dp2erm_cvx.files import CsvLayout, csv_parts, parquet_names
from dp2erm_cvx.parallel import one_thread
from dp2erm_cvx.tables import Table, arrow_cells, as_cells, boxed, is_nested, listed, quoted, read_frame

T = TypeVar("T")
R = TypeVar("R")

#: Bytes of records that local threads keep from one pass to the next. A cluster keeps all of them.
KEEP = 2**31

#: The cells of some rows of every column.
Cells = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class DaskBlocks(Blocks[T]):
    """Blocks that ``make`` makes of the results of Dask tasks, one for each block of ``length`` records."""

    tasks: tuple[Any, ...]
    n_samples: int
    length: int
    make: tuple[Callable[[Any], Any], ...] = ()

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of every block."""
        return cut(self.n_samples, self.length)

    def then(self, function: Callable[..., R], *beside: Beside) -> DaskBlocks[R]:
        """Results of ``function`` on every block, and on its rows of arrays."""
        if not beside:
            return DaskBlocks(self.tasks, self.n_samples, self.length, (*self.make, function))
        return DaskBlocks(self._each(function, beside), self.n_samples, self.length)

    def _each(self, function: Callable[..., R], beside: Sequence[Beside]) -> tuple[Any, ...]:
        return tuple(
            _dask().delayed(partial(_pass, self.make, function, rows))(task)
            for task, rows in zip(self.tasks, self.slices(beside), strict=True)
        )

    def persisted(self, nbytes: int) -> DaskBlocks[T]:
        """Blocks of ``nbytes`` in all, which a cluster keeps, and local threads up to ``KEEP``.

        The others are made anew in every pass.
        """
        dask = _dask()
        room = len(self.tasks) if _on_cluster() else len(self.tasks) * KEEP // max(nbytes, 1)
        tasks = self._each(itself, ())
        with one_thread(), _failures():
            first = dask.persist(*tasks[:room], scheduler=_scheduler())
        return DaskBlocks((*first, *tasks[room:]), self.n_samples, self.length)

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        """One pass over the records. Raises DataError where they cannot be read, WorkerError."""
        dask = _dask()
        tasks = self._each(function, beside)
        # tasks carry arrays of their rows, which is no mistake of the caller's
        quiet = {"distributed.admin.large-graph-warning-threshold": "1 GB"} if _on_cluster() else {}
        with dask.config.set(quiet), one_thread(), _failures():
            return list(dask.compute(*tasks, scheduler=_scheduler()))


def _pass(
    make: Sequence[Callable[[Any], Any]], function: Callable[..., R], beside: Sequence[Beside], block: Any
) -> R:
    with one_thread():
        for step in make:
            block = step(block)
        return function(block, *beside)


def _dask() -> Any:
    """The module, with a message of one line where it is not installed."""
    try:
        return importlib.import_module("dask")
    except ImportError:
        raise DeclarationError("reading in blocks needs dask: pip install 'dp2erm-cvx[data]'") from None


def _scheduler() -> str | None:
    """Threads, unless something else is in force: Dask would import distributed to look for it."""
    chosen = _dask().config.get("scheduler", None) is not None or "distributed" in sys.modules
    return None if chosen else "threads"


def _on_cluster() -> bool:
    scheduler = _dask().base.get_scheduler(scheduler=_scheduler())
    return hasattr(getattr(scheduler, "__self__", None), "scheduler_info")


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "KilledWorker":  # of distributed, which is optional
            raise
        raise WorkerError(
            "workers died again and again at the same records: they may need more memory"
        ) from None


@dataclass(frozen=True)
class Pieces:
    """A table of raw cells in pieces, such as row groups, cut anew into blocks of one length.

    Sums over blocks are then those of the same table in memory, however a file was written.

    Attributes
    ----------
    source : what messages call it
    names : of the columns
    rows : of every piece
    task : the Dask task whose result are the cells of one piece, by its number, the names of columns and that
        of identifiers among them, which stay as they are written
    """

    source: str
    names: tuple[str, ...]
    rows: tuple[int, ...]
    task: Callable[[int, tuple[str, ...], str | None], Any]

    def tables(self, columns: Sequence[str], unit: str | None = None) -> DaskBlocks[Table]:
        """The blocks of these columns, ``unit`` as it is written. Raises DataError where one is not there."""
        head = Table(self.source, self.names, list)
        wanted = tuple(dict.fromkeys(columns))
        for name in wanted:
            head.cells(name)
        length, n, dask = blocks.BLOCK, sum(self.rows), _dask()
        pieces = [self.task(piece, wanted, unit) for piece in range(len(self.rows))]
        ends = list(itertools.accumulate(self.rows))
        tasks, first = [], 0
        for begin in range(0, n, length):
            end = min(begin + length, n)
            while ends[first] <= begin:
                first += 1
            parts, piece = [], first
            while begin < end:
                offset, stop = ends[piece] - self.rows[piece], min(end, ends[piece])
                if stop > begin:
                    parts.append((piece, begin - offset, stop - offset))
                begin, piece = stop, piece + 1
            rows = [part[1:] for part in parts]
            tasks.append(
                dask.delayed(partial(_joined, rows, end - sum(stop - start for start, stop in rows)))(
                    *(pieces[part[0]] for part in parts)
                )
            )
        if not n:  # two rows of nobody: no rows are a table of persons
            n, tasks = 2, [dask.delayed((0, {name: np.full(2, None, dtype=object) for name in wanted}))]
        return DaskBlocks(tuple(tasks), n, length, (partial(_table, self.source, self.names),))


def _joined(rows: Sequence[tuple[int, int]], row: int, *pieces: Cells) -> tuple[int, Cells]:
    """The first row of a block, and its cells: of several types as they are, none written as another one."""
    whole: Cells = {}
    for name in pieces[0]:
        parts = [cells[name][start:stop] for cells, (start, stop) in zip(pieces, rows, strict=True)]
        if len({part.dtype for part in parts}) > 1:
            parts = [boxed(part) for part in parts]
        whole[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return row, whole


def _table(source: str, names: tuple[str, ...], block: tuple[int, Cells]) -> Table:
    row, cells = block
    return Table(source, names, cells.__getitem__, lambda local: f"row {row + local + 1}")


def parquet_pieces(path: str | Path) -> Pieces:
    """The row groups of a Parquet file, of all in a folder and below it, or of those that a pattern matches.

    Files follow each other by their names. Their numbers of rows are read, and no records. Raises DataError
    where a file cannot be read, or has other columns than the first.
    """
    paths = _parquet_files(path)
    groups: list[tuple[str, int]] = []
    rows: list[int] = []
    names: tuple[str, ...] | None = None
    for file in paths:
        own, lengths = parquet_names(file)
        if names is not None and set(own) != set(names):
            raise DataError(f"{file}: has other columns than {paths[0]}: {listed(own)}")
        names = names or own
        groups += [(file, k) for k in range(len(lengths))]
        rows += lengths
    delayed = _dask().delayed(_row_group)
    return Pieces(
        str(path), names or (), tuple(rows), lambda piece, columns, _: delayed(*groups[piece], columns)
    )


def _row_group(path: str, group: int, columns: Sequence[str]) -> Cells:
    import pyarrow as pa
    from pyarrow import parquet

    cells: Cells = {}
    try:
        with parquet.ParquetFile(path) as file:
            n, kinds = file.metadata.row_group(group).num_rows, file.schema_arrow
            for name in columns:  # one at a time: its Arrow column goes before the next comes
                if is_nested(kinds.field(name).type):
                    cells[name] = np.full(n, None, dtype=object)
                else:
                    table = file.read_row_group(group, columns=[name], use_threads=False)
                    cells[name] = arrow_cells(table.column(name))
    except (OSError, pa.ArrowException):
        raise DataError(f"{path}: row group {group + 1} cannot be read") from None
    return cells


def csv_pieces(path: str | Path, layout: CsvLayout) -> Pieces:
    """The lines of a CSV file, parsed anew in every pass. Raises as :func:`~dp2erm_cvx.files.csv_parts`."""
    names, parts = csv_parts(path, layout)
    rows, readers = tuple(part[0] for part in parts), [part[1] for part in parts]
    return _collected(str(path), names, rows, [], lambda piece: readers[piece])


def _parquet_files(path: str | Path) -> list[str]:
    """The Parquet files that a name stands for, sorted. Raises DataError where there are none."""
    if os.path.isdir(path):  # which no name is too long for
        files = sorted(str(f) for f in Path(path).rglob("*") if f.suffix.lower() in (".parquet", ".pq"))
    elif glob.has_magic(str(path)) and not os.path.exists(path):
        files = sorted(glob.glob(str(path), recursive=True))
    else:
        return [str(path)]
    if not files:
        raise DataError(f"{path}: holds no Parquet files")
    return files


def frame_pieces(frame: Any) -> Pieces:
    """The partitions of a Dask data frame, which are counted first. Raises DeclarationError for others."""
    if not (hasattr(frame, "to_delayed") and hasattr(frame, "map_partitions")):
        raise DeclarationError(f"{quoted(type(frame).__name__)} is not a Dask data frame")
    rows = tuple(int(number) for number in frame.map_partitions(len).compute())
    names = tuple(str(name) for name in frame.columns)
    return _collected("the Dask data frame", names, rows, [frame.to_delayed()], lambda piece: read_frame)


def array_pieces(X: Any, a: Any, y: Any, names: Callable[[int], Sequence[str]]) -> Pieces:
    """The chunks of Dask arrays (n, p), (n,) and (n,); those of unknown length are counted first.

    ``names`` of p are those of all p + 2 columns. Raises DeclarationError for what is no Dask array,
    DataError for other shapes.
    """
    arrays = dict(zip("Xay", (X, a, y), strict=True))
    for name, array in arrays.items():
        if not (hasattr(array, "to_delayed") and hasattr(array, "map_blocks")):
            raise DeclarationError(f"{name}: {quoted(type(array).__name__)} is not a Dask array")
        if array.ndim != (2 if name == "X" else 1):
            wanted = "(n, p)" if name == "X" else "(n,)"
            raise DataError(f"{name} has {array.ndim} dimension(s): must be {wanted}")
    X, a, y = (_counted(array) for array in arrays.values())
    for name, array in (("a", a), ("y", y)):
        if len(array) != len(X):
            raise DataError(f"{name} has {len(array)} values for the {len(X)} rows of X")
    columns = tuple(names(X.shape[1]))
    if len(columns) != X.shape[1] + 2:
        raise DataError(f"columns: {len(columns) - 2} names for the {X.shape[1]} columns of X")
    X = X.rechunk({1: -1})
    rows = tuple(int(length) for length in X.chunks[0])
    parts = [cells.to_delayed().ravel() for cells in (X, a.rechunk((rows,)), y.rechunk((rows,)))]
    table = partial(_side_by_side, columns)
    return _collected("the Dask arrays", columns, rows, parts, lambda piece: table)


def _counted(array: Any) -> Any:
    """An array with chunks of known lengths, which are computed where they are not."""
    known = not any(math.isnan(length) for lengths in array.chunks for length in lengths)
    # a copy: the array of the caller stays what it is
    return array if known else array.copy().compute_chunk_sizes()


def _side_by_side(names: Sequence[str], X: Any, a: Any, y: Any) -> Table:
    # what a mask hides is no cell
    covariates, *rest = (as_cells(array, name) for array, name in zip((X, a, y), "Xay", strict=True))
    if [array.shape[1:] for array in (covariates, *rest)] != [(len(names) - 2,), (), ()]:
        raise DataError("the Dask arrays: a chunk has another shape than its array says")
    columns = dict(zip(names, (*covariates.T, *rest), strict=True))
    return Table("the Dask arrays", tuple(names), columns.__getitem__)


def _collected(
    source: str,
    names: tuple[str, ...],
    rows: tuple[int, ...],
    parts: Sequence[Sequence[Any]],
    table: Callable[[int], Callable[..., Table]],
) -> Pieces:
    """Pieces of collections that stand beside each other; ``table`` of a piece makes one of its parts."""
    dask = _dask()

    def task(piece: int, columns: tuple[str, ...], unit: str | None) -> Any:
        read = dask.delayed(partial(_cells_of, source, table(piece), rows[piece], columns, unit))
        return read(*(part[piece] for part in parts))

    return Pieces(source, names, rows, task)


def _cells_of(
    source: str, table: Callable[..., Table], rows: int, columns: Sequence[str], unit: str | None, *parts: Any
) -> Cells:
    made = table(*parts)
    cells = {name: made.cells(name, written=name == unit) for name in columns}
    if any(len(column) != rows for column in cells.values()):
        raise DataError(f"{source}: a partition has other rows than when it was counted")
    return cells
