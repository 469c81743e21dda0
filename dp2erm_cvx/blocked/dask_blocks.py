"""Dask data frames and arrays in blocks of rows, whatever their partitions and chunks are."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from dp2erm_cvx.blocked.table_blocks import TableBlocks, joined_cells
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.tables import Table, as_cells, quoted, read_frame

#: The cells of some rows of every column.
Cells = Mapping[str, NDArray[Any]]
#: A piece of every collection: a Dask graph of its own, and their keys in it.
Part = tuple[dict[Any, Any], tuple[Any, ...]]


@dataclass(frozen=True, eq=False, repr=False)
class DaskBlocks(TableBlocks):
    """Pieces of Dask collections that stand beside each other, made where they are needed.

    ``table`` makes a table of what the keys of a part stand for.
    """

    parts: tuple[Part | None, ...] = ()
    table: Callable[..., Table] = read_frame

    def only(self, wanted: range) -> DaskBlocks:
        """With the pieces that these blocks are made of."""
        begin, end = wanted.start * self.length, min(wanted.stop * self.length, self.n_samples)
        first, last = bisect.bisect_right(self._ends, begin), bisect.bisect_left(self._ends, end)
        parts = [part if first <= k <= last else None for k, part in enumerate(self.parts)]
        return replace(self, parts=tuple(parts))

    def _read(self, piece: int, columns: Sequence[str] | None) -> Iterable[Cells]:
        from dask.local import get_sync

        part = self.parts[piece]
        assert part is not None
        graph, keys = part
        table = self.table(*get_sync(graph, list(keys)))
        cells = {name: table.cells(name) for name in columns or self.names}
        if any(len(column) != self.pieces[piece] for column in cells.values()):
            raise DataError(f"{self.source}: a partition has other rows than when it was counted")
        yield cells

    @staticmethod
    def _rows(chunk: Cells) -> int:
        return len(next(iter(chunk.values())))

    @staticmethod
    def _slice(chunk: Cells, begin: int, end: int) -> Cells:
        return {name: cells[begin:end] for name, cells in chunk.items()}

    def _table(self, parts: list[Any], row: int) -> Table:
        return self._named(lambda name: joined_cells([part[name] for part in parts]), row)


def frame_blocks(frame: Any) -> DaskBlocks:
    """The blocks of a Dask data frame, whose partitions are counted first.

    Raises DeclarationError for anything else.
    """
    if not (hasattr(frame, "to_delayed") and hasattr(frame, "map_partitions")):
        raise DeclarationError(f"{quoted(type(frame).__name__)} is not a Dask data frame")
    rows = [int(number) for number in frame.map_partitions(len).compute()]
    names = tuple(str(name) for name in frame.columns)
    return DaskBlocks("the Dask data frame", names, tuple(rows), parts=_parts(frame))


def array_blocks(X: Any, a: Any, y: Any, names: Callable[[int], Sequence[str]]) -> DaskBlocks:
    """The blocks of Dask arrays (n, p), (n,) and (n,), where chunks of unknown length are counted first.

    ``names`` of p are those of all p + 2 columns. Pieces are the chunks of the rows of X. Raises
    DeclarationError for what is no Dask array, DataError for other shapes.
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
    told = tuple(names(X.shape[1]))
    if len(told) != X.shape[1] + 2:
        raise DataError(f"columns: {len(told) - 2} names for the {X.shape[1]} columns of X")
    X = X.rechunk({1: -1})
    rows = tuple(int(length) for length in X.chunks[0])
    parts = _parts(X, a.rechunk((rows,)), y.rechunk((rows,)))
    return DaskBlocks("the Dask arrays", told, rows, parts=parts, table=partial(_side_by_side, told))


def _counted(array: Any) -> Any:
    """The same array with chunks of known lengths, which are computed where they are not."""
    known = not any(math.isnan(length) for lengths in array.chunks for length in lengths)
    # a copy: the array that was given stays what it is
    return array if known else array.copy().compute_chunk_sizes()


def _side_by_side(names: Sequence[str], X: Any, a: Any, y: Any) -> Table:
    # what a mask hides is no cell
    covariates, *others = (as_cells(one, name) for one, name in zip((X, a, y), "Xay", strict=True))
    if [one.shape[1:] for one in (covariates, *others)] != [(len(names) - 2,), (), ()]:
        raise DataError("the Dask arrays: a chunk has another shape than its array says")
    columns = dict(zip(names, (*covariates.T, *others), strict=True))
    return Table("the Dask arrays", tuple(names), columns.__getitem__)


def _parts(*collections: Any) -> tuple[Part, ...]:
    """The pieces of collections, each with no more of their graphs than it needs: they travel."""
    from dask.base import optimize
    from dask.core import flatten
    from dask.optimization import cull
    from dask.utils import ensure_dict

    optimized = optimize(*collections)  # type: ignore[no-untyped-call]
    graph: dict[Any, Any] = {}
    for one in optimized:
        graph.update(ensure_dict(one.__dask_graph__()))
    keys = (flatten(one.__dask_keys__()) for one in optimized)  # type: ignore[no-untyped-call]
    return tuple(
        (cull(graph, list(own))[0], own)  # type: ignore[no-untyped-call]
        for own in zip(*keys, strict=True)
    )
