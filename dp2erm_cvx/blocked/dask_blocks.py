"""Dask data frames in blocks of rows, whatever their partitions are."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dp2erm_cvx.blocked.table_blocks import TableBlocks, joined_cells
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.tables import Table, quoted, read_frame


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
        return self._named(lambda name: joined_cells([table.cells(name) for table in tables]), row)


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
