"""Raw tables in blocks of rows: Parquet files and Dask collections, read again in every pass."""

from __future__ import annotations

import abc
import bisect
import glob
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import blocks
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.tables import Table, listed, parquet_names, quoted, read_frame

#: Blocks that one task reads at most: what is lost with a worker, and what has to be sent beside it.
_SHARE = 16


@dataclass(frozen=True, eq=False, repr=False)
class TableBlocks(abc.ABC):
    """A table of raw cells in pieces, such as row groups, which are cut anew into blocks of one length.

    So that sums over blocks are those of the same table in memory, however a file was written.

    Parameters
    ----------
    source
        What messages call it.
    names
        Of the columns.
    pieces
        Rows of every piece.
    length
        Rows of a block.
    """

    source: str
    names: tuple[str, ...]
    pieces: tuple[int, ...]
    length: int = field(default_factory=lambda: blocks.BLOCK)

    @property
    def n_samples(self) -> int:
        """Number of records, which is public."""
        return sum(self.pieces)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return -(-self.n_samples // self.length)

    @cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(self.pieces))

    def shares(self, workers: int) -> list[range]:
        """The blocks of every task: enough tasks for the workers, and no more than a few blocks in each."""
        size = min(max(-(-self.count // (4 * workers)), 1), _SHARE)
        return [range(k, min(k + size, self.count)) for k in range(0, self.count, size)]

    def only(self, wanted: range) -> TableBlocks:
        """The same, with what is needed to read these blocks: it may be sent to another process."""
        return self

    def tables(self, wanted: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[Table]:
        """The tables of these blocks, in increasing order; ``columns`` are read, all without them.

        No more than one block and one piece of it are in memory at once. Raises DataError where a file
        cannot be read.
        """
        chunks: Iterator[tuple[int, Any]] = iter(())
        at, chunk, reach = 0, None, 0  # the chunk holds rows from at to reach
        for k in wanted:
            begin, end = k * self.length, min((k + 1) * self.length, self.n_samples)
            if chunk is None or begin > reach:
                chunks, chunk, reach = self._from(begin, columns), None, -1
            parts = []
            while begin < end:
                while chunk is None or begin >= reach:
                    at, chunk = next(chunks)
                    reach = at + self._rows(chunk)
                last = min(reach, end)
                parts.append(self._slice(chunk, begin - at, last - at))
                begin = last
            yield self._table(parts, k * self.length)

    def _from(self, row: int, columns: Sequence[str] | None) -> Iterator[tuple[int, Any]]:
        """Chunks from the piece that holds a row, with the number of their first row."""
        first = bisect.bisect_right(self._ends, row)
        begin = self._ends[first - 1] if first else 0
        for piece in range(first, len(self.pieces)):
            at = begin
            for chunk in self._read(piece, columns):
                yield at, chunk
                at += self._rows(chunk)
            begin += self.pieces[piece]

    @abc.abstractmethod
    def _read(self, piece: int, columns: Sequence[str] | None) -> Iterable[Any]:
        """Chunks of a piece, in their order."""

    @staticmethod
    @abc.abstractmethod
    def _rows(chunk: Any) -> int:
        """Rows of a chunk."""

    @staticmethod
    @abc.abstractmethod
    def _slice(chunk: Any, begin: int, end: int) -> Any:
        """Some rows of a chunk."""

    @abc.abstractmethod
    def _table(self, parts: list[Any], row: int) -> Table:
        """The table of one block, which begins at a row."""

    def _named(self, column: Callable[[str], Any], row: int) -> Table:
        return Table(self.source, self.names, column, lambda local: f"row {row + local + 1}")


@dataclass(frozen=True, eq=False, repr=False)
class ParquetBlocks(TableBlocks):
    """Row groups of Parquet files with the same columns: ``groups`` are (file, number) of every piece."""

    groups: tuple[tuple[str, int], ...] = ()

    def _read(self, piece: int, columns: Sequence[str] | None) -> Iterable[Any]:
        import pyarrow as pa
        from pyarrow import parquet

        path, group = self.groups[piece]
        try:
            with parquet.ParquetFile(path) as file:
                yield from file.iter_batches(
                    self.length, row_groups=[group], columns=columns, use_threads=False
                )
        except (OSError, pa.ArrowException):
            raise DataError(f"{path}: row group {group + 1} cannot be read") from None

    @staticmethod
    def _rows(chunk: Any) -> int:
        return int(chunk.num_rows)

    @staticmethod
    def _slice(chunk: Any, begin: int, end: int) -> Any:
        return chunk.slice(begin, end - begin)

    def _table(self, parts: list[Any], row: int) -> Table:
        import pyarrow as pa

        # files may write one column in several types
        own = [parts] if len({part.schema for part in parts}) == 1 else [[part] for part in parts]
        tables = [pa.Table.from_batches(one) for one in own]
        return self._named(lambda name: _joined([table.column(name).to_numpy() for table in tables]), row)


@dataclass(frozen=True, eq=False, repr=False)
class DaskBlocks(TableBlocks):
    """Partitions of a Dask data frame: ``parts`` are delayed, and made where they are needed."""

    parts: tuple[Any, ...] = ()

    def only(self, wanted: range) -> DaskBlocks:
        """With the partitions that these blocks are made of."""
        begin, end = wanted.start * self.length, min(wanted.stop * self.length, self.n_samples)
        first, last = bisect.bisect_right(self._ends, begin), bisect.bisect_left(self._ends, end)
        parts = [part if first <= k <= last else None for k, part in enumerate(self.parts)]
        return replace(self, parts=tuple(parts))

    def _read(self, piece: int, columns: Sequence[str] | None) -> Iterable[Any]:
        frame = self.parts[piece].compute(scheduler="synchronous")
        if len(frame) != self.pieces[piece]:
            raise DataError(f"{self.source}: a partition has other rows than when it was counted")
        yield frame

    @staticmethod
    def _rows(chunk: Any) -> int:
        return len(chunk)

    @staticmethod
    def _slice(chunk: Any, begin: int, end: int) -> Any:
        return chunk.iloc[begin:end]

    def _table(self, parts: list[Any], row: int) -> Table:
        tables = [read_frame(part) for part in parts]
        return self._named(lambda name: _joined([table.cells(name) for table in tables]), row)


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    """Cells of one column: of several types as they are, where none may be written as another one."""
    if len({array.dtype for array in arrays}) > 1:
        arrays = [array.astype(object) for array in arrays]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def parquet_blocks(path: str | Path) -> ParquetBlocks:
    """The blocks of a Parquet file, of all in a folder and below it, or of those that a pattern matches.

    Files follow each other by their names. Their numbers of rows are read, and no records. Raises DataError
    where a file cannot be read, or has other columns than the first.
    """
    paths = parquet_files(path)
    groups: list[tuple[str, int]] = []
    pieces: list[int] = []
    names: tuple[str, ...] | None = None
    for one in paths:
        own, rows = parquet_names(one)
        if names is not None and set(own) != set(names):
            raise DataError(f"{one}: has other columns than {paths[0]}: {listed(own)}")
        names = names or own
        groups += [(one, k) for k in range(len(rows))]
        pieces += rows
    found = ParquetBlocks(str(path), names or (), tuple(pieces), groups=tuple(groups))
    if not found.n_samples:
        raise DataError(f"{path}: holds no records")
    return found


def parquet_files(path: str | Path) -> list[str]:
    """The Parquet files that a name stands for, sorted. Raises DataError where there are none."""
    place = Path(path)
    if place.is_dir():
        found = sorted(str(one) for one in place.rglob("*") if one.suffix.lower() in (".parquet", ".pq"))
    elif glob.has_magic(str(path)) and not place.exists():
        found = sorted(glob.glob(str(path), recursive=True))
    else:
        return [str(path)]
    if not found:
        raise DataError(f"{path}: holds no Parquet files")
    return found


def dask_blocks(frame: Any) -> DaskBlocks:
    """The blocks of a Dask data frame, whose partitions are counted first.

    Raises DeclarationError for anything else.
    """
    if not (hasattr(frame, "to_delayed") and hasattr(frame, "map_partitions")):
        raise DeclarationError(f"{quoted(type(frame).__name__)} is not a Dask data frame")
    rows = [int(number) for number in frame.map_partitions(len).compute()]
    names = tuple(str(name) for name in frame.columns)
    parts = tuple(frame.to_delayed())
    return DaskBlocks("the Dask data frame", names, tuple(rows), parts=parts)
