"""Raw tables in blocks of rows, which are read again in every pass."""

from __future__ import annotations

import abc
import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import blocks
from dp2erm_cvx.tables import Table, boxed

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


def joined_cells(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    """Cells of one column: of several types as they are, where none may be written as another one."""
    if len({array.dtype for array in arrays}) > 1:
        arrays = [boxed(array) for array in arrays]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
