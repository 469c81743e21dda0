"""Parquet files in blocks of rows, whatever their row groups are."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.blocked.table_blocks import TableBlocks, joined_cells
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.tables import Table, arrow_cells, is_nested, listed, parquet_names


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
                plain = [one.name for one in file.schema_arrow if not is_nested(one.type)]
                # some column at least, so that there are rows
                own = [name for name in plain if columns is None or name in columns] or plain[:1] or None
                yield from file.iter_batches(self.length, row_groups=[group], columns=own, use_threads=False)
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
        own = [parts] if all(part.schema == parts[0].schema for part in parts) else [[part] for part in parts]
        tables = [pa.Table.from_batches(one) for one in own]
        return self._named(lambda name: joined_cells([_cells(table, name) for table in tables]), row)


def _cells(table: Any, name: str) -> NDArray[Any]:
    if name not in table.column_names:  # nested
        return np.full(table.num_rows, None, dtype=object)
    return arrow_cells(table.column(name))


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
    if os.path.isdir(path):  # which no name is too long for
        found = sorted(str(one) for one in Path(path).rglob("*") if one.suffix.lower() in (".parquet", ".pq"))
    elif glob.has_magic(str(path)) and not os.path.exists(path):
        found = sorted(glob.glob(str(path), recursive=True))
    else:
        return [str(path)]
    if not found:
        raise DataError(f"{path}: holds no Parquet files")
    return found
