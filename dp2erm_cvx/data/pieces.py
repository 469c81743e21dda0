"""Tables of raw cells in blocks, which Dask reads, schedules, keeps and sends.

A pass is computed by local threads, or by a cluster where a ``distributed.Client`` is in force.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.data import blocks
from dp2erm_cvx.data.blocks import GROUP, Beside, Blocks, KeptColumn, beside_it, in_groups
from dp2erm_cvx.data.cluster import Cluster, Task, Work, results_of
from dp2erm_cvx.data.files import CsvLayout, csv_spans, is_text, parquet_parts
from dp2erm_cvx.data.listing import part_files, stands_for_many
from dp2erm_cvx.data.opening import FileMark
from dp2erm_cvx.data.tables import Table, as_cells, boxed, cell_of, cells_digest, listed, read_frame
from dp2erm_cvx.errors import DataError, DeclarationError, brief
from dp2erm_cvx.parallel import Progress, one_thread

T = TypeVar("T")
R = TypeVar("R")

#: Bytes of records that local threads keep from one pass to the next. A cluster keeps all of them.
KEEP = 2**31

#: The cells of some rows of every column.
Cells = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class DaskBlocks(Blocks[T]):
    """Blocks that are the results of Dask tasks, one for each block of ``length`` records."""

    n_samples: int
    length: int
    tasks: Sequence[Any]
    here: bool = False

    def then(self, function: Callable[..., R], *beside: Beside) -> DaskBlocks[R]:
        """Results of ``function`` on every block, and on its rows of arrays."""
        tasks = []
        title = title_of(function)
        kept = tuple(isinstance(own, KeptColumn) for own in beside)
        work = Work(partial(_in_order, function, kept) if any(kept) else function)
        for number, task in enumerate(self.tasks):
            begin = number * self.length
            parts = []
            rows = []
            for own in beside:
                if isinstance(own, KeptColumn):
                    parts.append(own.parts[number])
                else:
                    rows.append(own[begin : begin + self.length])
            tasks.append(_delayed(title, work, task, *parts, beside=rows))
        return replace(self, tasks=tasks)  # type: ignore[return-value]

    def column(self, function: Callable[..., NDArray[Any]], *beside: Beside) -> KeptColumn:
        """Arrays that ``function`` makes of every block and its rows of arrays.

        They are kept beside the blocks.
        """
        return KeptColumn(_run("persist", self.then(function, *beside).tasks))

    def placed(self, beside: Beside) -> Beside:
        """The same, sent to where the blocks are once and not in every pass."""
        if not isinstance(beside, np.ndarray):
            return beside
        # Dask warns of a graph that carries arrays: this one has to
        with _dask().config.set({"distributed.admin.large-graph-warning-threshold": "1 GB"}):
            return self.column(beside_it, beside)

    def persisted(self, nbytes: int, beside: int = 0) -> DaskBlocks[T]:
        """Blocks that are kept as far as there is room, the others are made anew in every pass.

        Parameters
        ----------
        nbytes
            Bytes of all blocks.
        beside
            Bytes of others that are kept, and share ``KEEP`` with these where local threads make
            the passes.
        """
        tasks = self.tasks
        room = len(tasks)
        if cluster_in_force() is None:
            room = len(tasks) * max(KEEP - beside, 0) // max(nbytes, 1)
        return replace(self, tasks=(*_run("persist", tasks[:room]), *tasks[room:]))

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        """One pass over the records. Raises DataError where they cannot be read, WorkerError."""
        return results_of(_run("compute", self.then(function, *beside).tasks))

    def total(
        self, function: Callable[..., R], add: Callable[[Sequence[R]], R], *beside: Beside
    ) -> R:
        """As of all blocks; results are added up where they are, and one of them comes back."""
        parts = self.then(function, *beside).tasks
        work = Work(partial(_added, add))
        tasks = parts
        while len(tasks) > 1:
            tasks = [_delayed("add", work, *group) for group in in_groups(tasks, GROUP)]
        results: list[R] = results_of(_run("compute", tasks, parts))
        return results[0]


def _added(add: Callable[[Sequence[R]], R], *parts: R) -> R:
    return add(parts)


def _in_order(function: Callable[..., R], kept: Sequence[bool], block: Any, *beside: Any) -> R:
    """``function`` of a block and of what stands beside it, where what is kept comes first."""
    parts = iter(beside[: sum(kept)])
    rows = iter(beside[sum(kept) :])
    return function(block, *(next(parts) if own else next(rows) for own in kept))


def title_of(function: Any) -> str:
    """The name of what a function does with a block, of letters alone.

    Others may call the function in its place.
    """
    while isinstance(function, partial):
        called = [one for one in function.args if callable(one)]
        function = called[-1] if called else function.func
    name = str(getattr(function, "__name__", type(function).__name__))
    return "-".join(re.findall("[A-Za-z]+", name)) or "task"


def _delayed(title: str, work: Work, *inputs: Any, beside: Sequence[Any] = ()) -> Any:
    """A Dask task, whose key begins with a title that a dashboard shows.

    The key holds nothing of the rows.
    """
    key = f"{title}-{uuid.uuid4().hex}"
    return _dask().delayed(Task(work, beside), name=f"task-{key}", traverse=False)(
        *inputs, dask_key_name=key
    )


def _dask() -> Any:
    """The module, with a message of one line where it is not installed."""
    try:
        return importlib.import_module("dask")
    except ImportError:
        raise DeclarationError(
            "reading in blocks needs dask: pip install 'dp2erm-cvx[data]'"
        ) from None


def _scheduler() -> str | None:
    """Threads, unless something else is in force: Dask would import distributed to look for it."""
    chosen = _dask().config.get("scheduler", None) is not None or "distributed" in sys.modules
    return None if chosen else "threads"


def cluster_in_force() -> Cluster | None:
    """The cluster of a ``distributed.Client`` that is in force.

    It is None where this process makes the passes.
    """
    chosen = _dask().config.get("scheduler", None)
    if "distributed" not in sys.modules:
        return None
    distributed: Any = importlib.import_module("distributed")
    if isinstance(chosen, distributed.Client):
        return Cluster(chosen)
    if chosen not in (None, "dask.distributed", "distributed"):
        return None
    try:
        return Cluster(distributed.get_client())
    except ValueError:  # nobody has made one
        return None


@contextmanager
def passes_told(report: Progress) -> Iterator[None]:
    """Tell of every pass how many of its blocks are done, by local threads or by a cluster.

    Parameters
    ----------
    report
        Is told the number of the pass, of its tasks that are done, and of all of them.
    """
    callbacks: Any = importlib.import_module("dask.callbacks")
    told = _Told(report)

    def start(graph: Any, state: Any) -> None:
        told.begin(len(graph))  # whose time is its own

    def posttask(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        told.done(len(state["finished"]))

    _TOLD.append(told)
    try:
        with callbacks.Callback(start_state=start, posttask=posttask):
            yield
    finally:
        _TOLD.remove(told)


class _Told:
    """Somebody who is told of passes.

    Parameters
    ----------
    report
        As in :func:`passes_told`.
    """

    def __init__(self, report: Progress) -> None:
        self.report = report
        self.number = 0
        self.total = 0

    def begin(self, total: int) -> None:
        """A pass of so many tasks begins."""
        self.number += 1
        self.total = total
        self.done(0)

    def done(self, number: int) -> None:
        """So many of them are done."""
        self.report(f"blocks of records, pass {self.number}", number, self.total)


#: Those who are told of passes.
_TOLD: list[_Told] = []


def _run(how: str, tasks: Sequence[Any], parts: Sequence[Any] = ()) -> Sequence[Any]:
    """Results of tasks, or these as they are kept.

    The ``parts`` are tasks before them, whose number is told.
    """
    dask, cluster = _dask(), cluster_in_force()
    if cluster is None:
        with one_thread():
            results: tuple[Any, ...] = getattr(dask, how)(*tasks, scheduler=_scheduler())
        return results
    cluster.check()
    with one_thread():
        if how == "persist":
            return cluster.persisted(tasks)
        seen = parts or tasks
        for told in _TOLD:
            told.begin(len(seen))

        def done(number: int) -> None:
            for told in _TOLD:
                told.done(number)

        return cluster.gathered(tasks, seen, done)


@dataclass(frozen=True)
class Pieces:
    """A table of raw cells in pieces, such as row groups, cut anew into blocks of one length.

    Sums over blocks are then those of the same table in memory, however a file was written.

    Attributes
    ----------
    source : what messages call it
    names : of the columns
    rows : of every piece
    readers : of every piece what makes a table of the results of its Dask tasks, if it has any
    tasks : collections that stand beside each other, of every piece one task
    digests : by column, of the cells of every piece that tasks make, since these may make others
    each time
    """

    source: str
    names: tuple[str, ...]
    rows: Sequence[int]
    readers: Sequence[Callable[..., Table]]
    tasks: Sequence[Sequence[Any]] = ()
    digests: dict[str, Sequence[str]] = field(default_factory=dict)

    def tables(self, columns: Sequence[str], written: Collection[str] = ()) -> DaskBlocks[Table]:
        """The blocks of these columns, some as they are ``written``.

        Raises DataError where one is not there.
        """
        head = Table(self.source, self.names, list)
        wanted = tuple(dict.fromkeys(columns))
        for name in wanted:
            head.cells(name)
        known = self._digests_of(wanted)
        length = blocks.BLOCK
        pieces = []
        for k, (read, count) in enumerate(zip(self.readers, self.rows, strict=True)):
            digests = {name: every[k] for name, every in known.items()}
            work = Work(
                partial(_cells_of, self.source, read, count, wanted, frozenset(written), digests)
            )
            pieces.append(self._task("read", k, work))
        ends = np.cumsum(self.rows, dtype=np.int64)
        n = int(ends[-1]) if len(ends) else 0
        made = []
        for begin in range(0, n, length):
            end = min(begin + length, n)
            first, last = np.searchsorted(ends, (begin, end - 1), side="right").tolist()
            own = [k for k in range(first, last + 1) if self.rows[k]]
            starts = [int(ends[k]) - self.rows[k] for k in own]
            rows = [slice(max(begin - start, 0), end - start) for start in starts]
            work = Work(partial(_joined, self.source, self.names, rows, begin))
            made.append(_delayed("cut", work, *(pieces[k] for k in own)))
        if not n:  # two rows of nobody: no rows are a table of persons
            nobody = {name: np.full(2, None, dtype=object) for name in wanted}
            work = Work(partial(_joined, self.source, self.names, [slice(2)], 0))
            n, made = 2, [_delayed("cut", work, nobody)]
        return DaskBlocks(n, length, made)

    def opener(self) -> Callable[[], None] | None:
        """What raises FileError in a process that does not reach the files.

        It is None where there are no files.
        """
        if self.tasks or not self.readers:
            return None
        first, last = self.readers[0], self.readers[-1]
        return partial(_open, tuple(dict.fromkeys((first, last))))

    def _task(self, title: str, piece: int, work: Work) -> Any:
        return _delayed(title, work, *(own[piece] for own in self.tasks))

    def _digests_of(self, columns: Sequence[str]) -> dict[str, Sequence[str]]:
        """Digests of the cells of every piece that tasks make, by column.

        Those of new columns are made in one pass.
        """
        if not self.tasks:  # files are compared as files
            return {}
        new = [name for name in columns if name not in self.digests]
        if new:
            works = [Work(partial(_digests, read, new)) for read in self.readers]
            tasks = [self._task("digest", k, work) for k, work in enumerate(works)]
            every = results_of(_run("compute", tasks))
            self.digests.update({name: [one[name] for one in every] for name in new})
        return {name: self.digests[name] for name in columns}


def _open(readers: Sequence[Callable[[], Table]]) -> None:
    for read in readers:
        read()


def _digests(read: Callable[..., Table], columns: Sequence[str], *parts: Any) -> dict[str, str]:
    made = read(*parts)
    return {name: cells_digest(made.cells(name)) for name in columns}


def _joined(
    source: str, names: tuple[str, ...], rows: Sequence[slice], row: int, *pieces: Cells
) -> Table:
    """A block, of several types of cells as they are.

    No cell is written as another one. The first record is number ``row``.
    """
    cells: Cells = {}
    for name in pieces[0]:
        parts = [piece[name][own] for piece, own in zip(pieces, rows, strict=True)]
        if len({part.dtype for part in parts}) > 1:
            parts = [boxed(part) for part in parts]
        cells[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return Table(source, names, cells.__getitem__, partial(_place, row))


def _place(first: int, row: int) -> str:
    return f"row {first + row + 1}"


def _cells_of(
    source: str,
    read: Callable[..., Table],
    rows: int,
    columns: Sequence[str],
    written: Collection[str],
    digests: Mapping[str, str],
    *parts: Any,
) -> Cells:
    made = read(*parts)
    cells = {name: made.cells(name, written=name in written) for name in columns}
    if any(len(column) != rows for column in cells.values()):
        raise DataError(f"{source}: a partition has other rows than when it was counted")
    for name, digest in digests.items():
        if cells_digest(cells[name]) != digest:
            raise DataError(
                f"{source}: a partition has other cells in column {brief(name)} than in an earlier "
                "pass, or its rows in another order: persist() it, or write it to files"
            )
    return cells


def file_pieces(path: str | Path, layout: CsvLayout) -> Pieces:
    """The lines of CSV files, or the row groups of Parquet files, of all that the name stands for.

    These are the files in a folder and below it, or those that a pattern matches; they follow each
    other by their names. Lines are counted by a pass, and no records are read. Raises DataError
    where a file cannot be read, or has other columns than the first; for CSV as
    :func:`~dp2erm_cvx.data.files.csv_spans`.
    """
    source = str(path)
    files = part_files(source)
    is_one = not stands_for_many(source)
    names: tuple[str, ...] = ()
    counters: list[Callable[[], int]] = []
    rows: list[int] = []
    readers: list[Callable[[], Table]] = []
    cells: list[Mapping[str, str]] = []
    for file in files:
        if is_text(file.name) if is_one else file.is_text():
            if (
                len(files) > 1 and FileMark.of(file.name).size == 0
            ):  # as some programs write no records
                continue
            spans = csv_spans(file.name, layout)
            own, more = spans.names, spans.readers()
            counters += spans.counters()
        else:
            own, lengths, more = parquet_parts(file.name)
            rows += lengths
        twice = sorted(set(own) & set(file.cells))
        if twice:
            raise DataError(f"{file.name}: its folder and the file have a column {brief(twice[0])}")
        own += tuple(file.cells)
        names = names or own
        if set(own) != set(names):
            raise DataError(f"{file.name}: has other columns than {files[0].name}: {listed(own)}")
        readers += more
        cells += [file.cells] * len(more)
    if not names:
        raise DataError(f"{source}: all files are empty: a header line is needed")
    if counters:
        rows = _counted_lines(counters)
    for place, own_cells in enumerate(cells):
        if own_cells:
            readers[place] = partial(_with_cells, readers[place], own_cells, rows[place])
    return Pieces(source, names, rows, readers)


def _counted_lines(counters: Sequence[Callable[[], int]]) -> list[int]:
    """The records of parts of CSV files, counted by a pass."""
    return results_of(_run("compute", [_delayed("count", Work(count)) for count in counters]))


def _with_cells(read: Callable[[], Table], cells: Mapping[str, str], rows: int) -> Table:
    """A part of a table with columns of one cell each, read as the cells of a CSV file are."""
    table = read()

    def repeated(name: str, cell: Any) -> NDArray[Any]:
        return np.full(rows, cell, dtype=np.float64 if type(cell) is float else object)

    def column(name: str) -> Any:
        return repeated(name, cell_of(cells[name], ".")) if name in cells else table.column(name)

    def written(name: str) -> Any:
        return repeated(name, cells[name]) if name in cells else table.cells(name, written=True)

    return replace(table, names=(*table.names, *cells), column=column, written=written)


def frame_pieces(frame: Any) -> Pieces:
    """The partitions of a Dask data frame, which are counted first.

    Raises DeclarationError for others.
    """
    if not (hasattr(frame, "to_delayed") and hasattr(frame, "map_partitions")):
        raise DeclarationError(f"{brief(type(frame).__name__)} is not a Dask data frame")
    rows = tuple(int(number) for number in frame.map_partitions(len).compute())
    names = tuple(str(name) for name in frame.columns)
    return Pieces(
        "the Dask data frame", names, rows, [read_frame] * len(rows), [frame.to_delayed()]
    )


def array_pieces(X: Any, a: Any, y: Any, names: Callable[[int], Sequence[str]]) -> Pieces:
    """The chunks of Dask arrays (n, p), (n,) and (n,); those of unknown length are counted first.

    ``names`` of p are those of all p + 2 columns. Raises DeclarationError for what is no Dask
    array, DataError for other shapes.
    """
    arrays = dict(zip("Xay", (X, a, y), strict=True))
    for name, array in arrays.items():
        if not (hasattr(array, "to_delayed") and hasattr(array, "map_blocks")):
            raise DeclarationError(f"{name}: {brief(type(array).__name__)} is not a Dask array")
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
    return Pieces("the Dask arrays", columns, rows, [table] * len(rows), parts)


def _counted(array: Any) -> Any:
    """An array with chunks of known lengths, which are computed where they are not."""
    known = not any(math.isnan(length) for lengths in array.chunks for length in lengths)
    # a copy: the array of the caller stays what it is
    return array if known else array.copy().compute_chunk_sizes()


def _side_by_side(names: Sequence[str], X: Any, a: Any, y: Any) -> Table:
    # what a mask hides is no cell
    covariates, *rest = (
        as_cells(array, name) for array, name in zip((X, a, y), "Xay", strict=True)
    )
    if [array.shape[1:] for array in (covariates, *rest)] != [(len(names) - 2,), (), ()]:
        raise DataError("the Dask arrays: a chunk has another shape than its array says")
    columns = dict(zip(names, (*covariates.T, *rest), strict=True))
    return Table("the Dask arrays", tuple(names), columns.__getitem__)
