"""Tables of raw cells in blocks, which Dask reads, schedules, keeps and sends.

A pass is computed by local threads, or by a cluster where a ``distributed.Client`` is in force.
"""

from __future__ import annotations

import importlib
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
from dp2erm_cvx.data.listing import PartFile, part_files, refuse_both_kinds, stands_for_many
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
    """Blocks that are the results of Dask tasks.

    Parameters
    ----------
    n_samples
        Number of records.
    length
        Records of every block but the last.
    tasks
        One for each block.
    here
        Whether records are in the memory of the caller; those of tasks never are.
    """

    n_samples: int
    length: int
    tasks: Sequence[Any]
    here: bool = False

    def then(self, function: Callable[..., R], *beside: Beside) -> DaskBlocks[R]:
        """Results of ``function`` on every block, and on its rows of arrays."""
        title = title_of(function)
        is_kept = tuple(isinstance(values, KeptColumn) for values in beside)
        work = Work(function)
        if any(is_kept):
            work = Work(partial(_in_order, function, is_kept))
        tasks = []
        for number, task in enumerate(self.tasks):
            begin = number * self.length
            parts = []
            rows = []
            for values in beside:
                if isinstance(values, KeptColumn):
                    parts.append(values.parts[number])
                else:
                    rows.append(values[begin : begin + self.length])
            tasks.append(_delayed(title, work, task, *parts, beside=rows))
        return replace(self, tasks=tasks)  # type: ignore[return-value]

    def column(self, function: Callable[..., NDArray[Any]], *beside: Beside) -> KeptColumn:
        """Arrays that ``function`` makes of every block, kept beside the blocks.

        The function gets the rows of ``beside`` as well.
        """
        return KeptColumn(_run("persist", self.then(function, *beside).tasks))

    def placed(self, beside: Beside) -> Beside:
        """The same values, sent to where the blocks are once and not in every pass."""
        if not isinstance(beside, np.ndarray):
            return beside
        # Dask warns of a graph that carries arrays: this one has to
        with _dask().config.set({"distributed.admin.large-graph-warning-threshold": "1 GB"}):
            return self.column(beside_it, beside)

    def persisted(self, nbytes: int, beside: int = 0) -> DaskBlocks[T]:
        """Blocks that are kept as far as there is room; every pass makes the others anew.

        Parameters
        ----------
        nbytes
            Bytes of all blocks.
        beside
            Bytes of others that are kept, and share ``KEEP`` with these where local threads make
            the passes.
        """
        tasks = self.tasks
        n_kept = len(tasks)
        if cluster_in_force() is None:
            n_kept = len(tasks) * max(KEEP - beside, 0) // max(nbytes, 1)
        return replace(self, tasks=(*_run("persist", tasks[:n_kept]), *tasks[n_kept:]))

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


def _in_order(function: Callable[..., R], is_kept: Sequence[bool], block: Any, *beside: Any) -> R:
    """``function`` of a block and of what stands beside it, in the order that it asks for.

    Parameters
    ----------
    function
        Called on the block.
    is_kept
        Of everything beside the block whether it is kept where the blocks are.
    block
        The block.
    beside
        The same in the order of a task: what is kept comes first, then the rows of arrays.
    """
    n_kept = sum(is_kept)
    parts = iter(beside[:n_kept])
    rows = iter(beside[n_kept:])
    ordered = [next(parts) if kept else next(rows) for kept in is_kept]
    return function(block, *ordered)


def title_of(function: Any) -> str:
    """The name of what a function does with a block, of letters alone.

    A ``partial`` is called by the last function that it is given, or else by its own.
    """
    while isinstance(function, partial):
        functions = [argument for argument in function.args if callable(argument)]
        function = functions[-1] if functions else function.func
    name = str(getattr(function, "__name__", type(function).__name__))
    return "-".join(re.findall("[A-Za-z]+", name)) or "task"


def _delayed(title: str, work: Work, *inputs: Any, beside: Sequence[Any] = ()) -> Any:
    """A Dask task, whose key begins with a title that a dashboard shows.

    The key holds nothing of the rows.
    """
    key = f"{title}-{uuid.uuid4().hex}"
    task = _dask().delayed(Task(work, beside), name=f"task-{key}", traverse=False)
    return task(*inputs, dask_key_name=key)


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
    if _dask().config.get("scheduler", None) is not None or "distributed" in sys.modules:
        return None
    return "threads"


def cluster_in_force() -> Cluster | None:
    """The cluster of a ``distributed.Client`` that is in force, if this process has one."""
    scheduler = _dask().config.get("scheduler", None)
    if "distributed" not in sys.modules:
        return None
    distributed: Any = importlib.import_module("distributed")
    if isinstance(scheduler, distributed.Client):
        return Cluster(scheduler)
    if scheduler not in (None, "dask.distributed", "distributed"):
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
    listener = _Listener(report)

    def start(graph: Any, state: Any) -> None:
        listener.begin(len(graph))  # whose time is its own

    def posttask(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        listener.done(len(state["finished"]))

    _LISTENERS.append(listener)
    try:
        with callbacks.Callback(start_state=start, posttask=posttask):
            yield
    finally:
        _LISTENERS.remove(listener)


class _Listener:
    """Somebody who is told how far passes are.

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
_LISTENERS: list[_Listener] = []


def _run(how: str, tasks: Sequence[Any], parts: Sequence[Any] = ()) -> Sequence[Any]:
    """Results of tasks, or the tasks as they are kept.

    Parameters
    ----------
    how
        ``"compute"`` for results, ``"persist"`` for tasks whose results are kept.
    tasks
        What is computed.
    parts
        Tasks before these, by which progress is told; none: by the tasks themselves.
    """
    dask = _dask()
    cluster = cluster_in_force()
    if cluster is None:
        with one_thread():
            results: tuple[Any, ...] = getattr(dask, how)(*tasks, scheduler=_scheduler())
        return results
    cluster.check()
    with one_thread():
        if how == "persist":
            return cluster.persisted(tasks)
        counted = parts or tasks
        for listener in _LISTENERS:
            listener.begin(len(counted))

        def done(number: int) -> None:
            for listener in _LISTENERS:
                listener.done(number)

        return cluster.gathered(tasks, counted, done)


@dataclass(frozen=True)
class Pieces:
    """A table of raw cells in pieces, such as row groups, cut anew into blocks of one length.

    Sums over blocks are then those of the same table in memory, however a file was written.

    Parameters
    ----------
    source
        What messages call the table.
    names
        Names of its columns.
    rows
        Number of rows of every piece.
    readers
        Of every piece what makes its table, of the results of its Dask tasks if it has any.
    tasks
        Dask collections that stand beside each other, each with one task for every piece.
    digests
        Digests of the cells of every piece, by column, where tasks make the cells: they may make
        others each time.
    """

    source: str
    names: tuple[str, ...]
    rows: Sequence[int]
    readers: Sequence[Callable[..., Table]]
    tasks: Sequence[Sequence[Any]] = ()
    digests: dict[str, Sequence[str]] = field(default_factory=dict)

    def tables(self, columns: Sequence[str], written: Collection[str] = ()) -> DaskBlocks[Table]:
        """The blocks of these columns.

        Parameters
        ----------
        columns
            Their names.
        written
            Names of those that are read as they are written in a file.

        Raises
        ------
        DataError
            Where a column is not there.
        """
        head = Table(self.source, self.names, list)
        names = tuple(dict.fromkeys(columns))
        for name in names:
            head.cells(name)
        pieces = self._piece_tasks(names, frozenset(written))
        ends = np.cumsum(self.rows, dtype=np.int64)
        n_rows = sum(self.rows)
        if n_rows == 0:  # two rows of nobody: no rows are a table of persons
            nobody = {name: np.full(2, None, dtype=object) for name in names}
            return DaskBlocks(2, blocks.BLOCK, [self._block(0, [slice(2)], [nobody])])
        tasks = []
        for begin in range(0, n_rows, blocks.BLOCK):
            end = min(begin + blocks.BLOCK, n_rows)
            rows_of_pieces = self._rows_between(begin, end, ends)
            parts = [pieces[number] for number in rows_of_pieces]
            tasks.append(self._block(begin, list(rows_of_pieces.values()), parts))
        return DaskBlocks(n_rows, blocks.BLOCK, tasks)

    def _rows_between(self, begin: int, end: int, ends: NDArray[np.int64]) -> dict[int, slice]:
        """Rows of pieces that rows of the table consist of, by the numbers of the pieces.

        Parameters
        ----------
        begin, end
            The first row of the table, and that behind the last one.
        ends
            Of every piece the number of rows up to its end.
        """
        first, last = np.searchsorted(ends, (begin, end - 1), side="right").tolist()
        rows_of_pieces = {}
        for number in range(first, last + 1):
            if self.rows[number] == 0:
                continue
            start = int(ends[number]) - self.rows[number]
            rows_of_pieces[number] = slice(max(begin - start, 0), end - start)
        return rows_of_pieces

    def opener(self) -> Callable[[], None] | None:
        """What raises FileError in a process that does not reach the files; None without files."""
        if self.tasks or not self.readers:
            return None
        first = self.readers[0]
        last = self.readers[-1]
        return partial(_open, tuple(dict.fromkeys((first, last))))

    def _piece_tasks(self, columns: tuple[str, ...], written: frozenset[str]) -> list[Any]:
        """Tasks that read the cells of these columns, of every piece one."""
        digests_by_column = self._digests_of(columns)
        tasks = []
        for number, (read, n_rows) in enumerate(zip(self.readers, self.rows, strict=True)):
            digests = {name: of_pieces[number] for name, of_pieces in digests_by_column.items()}
            cells = partial(_cells_of, self.source, read, n_rows, columns, written, digests)
            tasks.append(self._task("read", number, Work(cells)))
        return tasks

    def _block(self, begin: int, rows: Sequence[slice], pieces: Sequence[Any]) -> Any:
        """The task that joins these ``rows`` of pieces to the block from row ``begin`` on."""
        work = Work(partial(_joined, self.source, self.names, rows, begin))
        return _delayed("cut", work, *pieces)

    def _task(self, title: str, piece: int, work: Work) -> Any:
        return _delayed(title, work, *(collection[piece] for collection in self.tasks))

    def _digests_of(self, columns: Sequence[str]) -> dict[str, Sequence[str]]:
        """Digests of the cells of every piece that tasks make, by column.

        Those of new columns are made in one pass.
        """
        if not self.tasks:  # files are compared as files
            return {}
        new = [name for name in columns if name not in self.digests]
        if new:
            works = [Work(partial(_digests, read, new)) for read in self.readers]
            tasks = [self._task("digest", number, work) for number, work in enumerate(works)]
            of_pieces = results_of(_run("compute", tasks))
            for name in new:
                self.digests[name] = [digests[name] for digests in of_pieces]
        return {name: self.digests[name] for name in columns}


def _open(readers: Sequence[Callable[[], Table]]) -> None:
    """Make tables of pieces, which raises FileError where their files cannot be reached."""
    for read in readers:
        read()


def _digests(read: Callable[..., Table], columns: Sequence[str], *parts: Any) -> dict[str, str]:
    """Digests of the cells of a piece, by column."""
    table = read(*parts)
    return {name: cells_digest(table.cells(name)) for name in columns}


def _joined(
    source: str, names: tuple[str, ...], rows: Sequence[slice], first_row: int, *pieces: Cells
) -> Table:
    """A block of rows of several pieces.

    Cells of several types stay as they are: none is written as one of another type.

    Parameters
    ----------
    source, names
        Of the whole table.
    rows
        Which rows of every piece the block has.
    first_row
        The number of its first row in the table, from 0 on.
    pieces
        The cells of the pieces by column.
    """
    cells: Cells = {}
    for name in pieces[0]:
        parts = [piece[name][of_piece] for piece, of_piece in zip(pieces, rows, strict=True)]
        if len({part.dtype for part in parts}) > 1:
            parts = [boxed(part) for part in parts]
        cells[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return Table(source, names, cells.__getitem__, partial(_place, first_row))


def _place(first_row: int, row: int) -> str:
    """What messages call a row of a block that begins at a row of the table."""
    return f"row {first_row + row + 1}"


def _cells_of(
    source: str,
    read: Callable[..., Table],
    n_rows: int,
    columns: Sequence[str],
    written: Collection[str],
    digests: Mapping[str, str],
    *parts: Any,
) -> Cells:
    """The cells of one piece by column, checked against what an earlier pass has seen.

    Parameters
    ----------
    source
        What messages call the table.
    read
        Makes the table of the piece of its ``parts``.
    n_rows
        Rows that the piece had when it was counted.
    columns
        Names of the columns.
    written
        Names of those that are read as they are written.
    digests
        Digests of an earlier pass by column, where tasks make the cells.
    parts
        Results of the tasks of the piece.

    Raises
    ------
    DataError
        Where rows or cells are others than before.
    """
    table = read(*parts)
    cells = {name: table.cells(name, written=name in written) for name in columns}
    if any(len(column) != n_rows for column in cells.values()):
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
    other by their names. Lines are counted by a pass, and no records are read.

    Parameters
    ----------
    path
        A file, a folder or a pattern.
    layout
        How CSV files are written.

    Raises
    ------
    DataError
        Where a file cannot be read, or has other columns than the first, and where some are of
        Parquet and others are not; for CSV as
        :func:`~dp2erm_cvx.data.files.csv_spans`.
    """
    source = str(path)
    files = part_files(source)
    has_one_file = not stands_for_many(source)
    names: tuple[str, ...] = ()
    are_parquet: list[bool] = []
    counters: list[Callable[[], int]] = []
    rows: list[int] = []
    readers: list[Callable[[], Table]] = []
    folder_cells: list[Mapping[str, str]] = []
    for file in files:
        is_csv = is_text(file.name) if has_one_file else file.is_text()
        # some programs write a file without any bytes where there are no records
        if is_csv and len(files) > 1 and FileMark.of(file.name).size == 0:
            continue
        # files without an ending are told apart by how they begin
        are_parquet.append(not is_csv)
        refuse_both_kinds(source, are_parquet)
        parts = _csv_parts(file.name, layout) if is_csv else _parquet_parts(file.name)
        file_names = _with_folder_columns(parts.names, file)
        names = names or file_names
        if set(file_names) != set(names):
            raise DataError(
                f"{file.name}: has other columns than {files[0].name}: {listed(file_names)}"
            )
        counters += parts.counters
        rows += parts.rows
        readers += parts.readers
        folder_cells += [file.cells] * len(parts.readers)
    if not names:
        raise DataError(f"{source}: all files are empty: a header line is needed")
    if counters:
        rows = _counted_lines(counters)
    for place, cells in enumerate(folder_cells):
        if cells:
            readers[place] = partial(_with_cells, readers[place], cells, rows[place])
    return Pieces(source, names, rows, readers)


@dataclass(frozen=True)
class _FileParts:
    """The parts of one file of a table.

    Parameters
    ----------
    names
        Names of its columns.
    readers
        Makes the table of every part.
    rows
        Number of rows of every part, where the file states it; empty elsewhere.
    counters
        Counts the rows of every part, where the file does not state them; empty elsewhere.
    """

    names: tuple[str, ...]
    readers: Sequence[Callable[[], Table]]
    rows: Sequence[int] = ()
    counters: Sequence[Callable[[], int]] = ()


def _csv_parts(name: str, layout: CsvLayout) -> _FileParts:
    """The lines of a CSV file in parts, which are not counted yet."""
    spans = csv_spans(name, layout)
    return _FileParts(spans.names, spans.readers(), counters=spans.counters())


def _parquet_parts(name: str) -> _FileParts:
    """The row groups of a Parquet file."""
    names, rows, readers = parquet_parts(name)
    return _FileParts(names, readers, rows=rows)


def _with_folder_columns(names: tuple[str, ...], file: PartFile) -> tuple[str, ...]:
    """The columns of a file, then those that the names of its folders state."""
    twice = sorted(set(names) & set(file.cells))
    if twice:
        raise DataError(f"{file.name}: its folder and the file have a column {brief(twice[0])}")
    return (*names, *file.cells)


def _counted_lines(counters: Sequence[Callable[[], int]]) -> list[int]:
    """Numbers of records of parts of CSV files, counted by a pass."""
    tasks = [_delayed("count", Work(count)) for count in counters]
    return results_of(_run("compute", tasks))


def _with_cells(read: Callable[[], Table], cells: Mapping[str, str], rows: int) -> Table:
    """A part of a table with columns of one cell each, read as the cells of a CSV file are.

    Parameters
    ----------
    read
        Makes the table of the part.
    cells
        The cell of every such column as it is written, by the name of the column.
    rows
        Number of rows of the part.
    """
    table = read()

    def repeated(cell: Any) -> NDArray[Any]:
        return np.full(rows, cell, dtype=np.float64 if type(cell) is float else object)

    def column(name: str) -> Any:
        if name in cells:
            return repeated(cell_of(cells[name], "."))
        return table.column(name)

    def written(name: str) -> Any:
        if name in cells:
            return repeated(cells[name])
        return table.cells(name, written=True)

    return replace(table, names=(*table.names, *cells), column=column, written=written)


def frame_pieces(frame: Any) -> Pieces:
    """The partitions of a Dask data frame, which are counted first.

    Raises
    ------
    DeclarationError
        For what is none.
    """
    if not (hasattr(frame, "to_delayed") and hasattr(frame, "map_partitions")):
        raise DeclarationError(f"{brief(type(frame).__name__)} is not a Dask data frame")
    rows = tuple(int(number) for number in frame.map_partitions(len).compute())
    names = tuple(str(name) for name in frame.columns)
    readers = [read_frame] * len(rows)
    return Pieces("the Dask data frame", names, rows, readers, [frame.to_delayed()])


def array_pieces(X: Any, a: Any, y: Any, names: Callable[[int], Sequence[str]]) -> Pieces:
    """The chunks of Dask arrays; those of unknown length are counted first.

    Parameters
    ----------
    X, a, y
        Dask arrays (n, p), (n,) and (n,).
    names
        Names all p + 2 columns, by p.

    Raises
    ------
    DeclarationError
        For what is no Dask array.
    DataError
        For other shapes.
    """
    for name, array in (("X", X), ("a", a), ("y", y)):
        _refuse_other_array(name, array)
    X = _counted(X)
    a = _counted(a)
    y = _counted(y)
    n_covariates = X.shape[1]
    for name, array in (("a", a), ("y", y)):
        if len(array) != len(X):
            raise DataError(f"{name} has {len(array)} values for the {len(X)} rows of X")
    columns = tuple(names(n_covariates))
    if len(columns) != n_covariates + 2:
        raise DataError(f"columns: {len(columns) - 2} names for the {n_covariates} columns of X")
    X = X.rechunk({1: -1})
    rows = tuple(int(length) for length in X.chunks[0])
    chunks = [
        X.to_delayed().ravel(),
        a.rechunk((rows,)).to_delayed().ravel(),
        y.rechunk((rows,)).to_delayed().ravel(),
    ]
    readers = [partial(_side_by_side, columns)] * len(rows)
    return Pieces("the Dask arrays", columns, rows, readers, chunks)


def _refuse_other_array(name: str, array: Any) -> None:
    """Raise DeclarationError for what is no Dask array, DataError for another dimension."""
    if not (hasattr(array, "to_delayed") and hasattr(array, "map_blocks")):
        raise DeclarationError(f"{name}: {brief(type(array).__name__)} is not a Dask array")
    shape = "(n, p)" if name == "X" else "(n,)"
    ndim = 2 if name == "X" else 1
    if array.ndim != ndim:
        raise DataError(f"{name} has {array.ndim} dimension(s): must be {shape}")


def _counted(array: Any) -> Any:
    """An array with chunks of known lengths, which are computed where they are not."""
    if not np.isnan(np.concatenate(array.chunks)).any():
        return array
    # a copy: the array of the caller stays what it is
    return array.copy().compute_chunk_sizes()


def _side_by_side(names: Sequence[str], X: Any, a: Any, y: Any) -> Table:
    """The table of one chunk of every array."""
    # what a mask hides is no cell
    covariates = as_cells(X, "X")
    treatments = as_cells(a, "a")
    outcomes = as_cells(y, "y")
    shapes = [array.shape[1:] for array in (covariates, treatments, outcomes)]
    if shapes != [(len(names) - 2,), (), ()]:
        raise DataError("the Dask arrays: a chunk has another shape than its array says")
    columns = dict(zip(names, (*covariates.T, treatments, outcomes), strict=True))
    return Table("the Dask arrays", tuple(names), columns.__getitem__)
