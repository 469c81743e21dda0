"""Records in blocks of rows: what sums over records are computed from, wherever the records are."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Records of a block. Sums are added in a tree that these alone decide, not who computed which of
#: them.
BLOCK = 2**16
#: Records of a view of arrays in memory, few enough for what is made of them to stay in a cache. As
#: both are powers of 2, sums over views are those over blocks.
VIEW = 2**13
#: Results of blocks that are added up together, and then what came of them: a power of 2 as well,
#: so that a sum in a tree is the same however its parts are grouped.
GROUP = 8

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")


@dataclass(frozen=True, eq=False, repr=False)
class KeptColumn:
    """An array (n, ...) with a row of every record, kept in parts where the blocks are. Private.

    Parameters
    ----------
    parts
        For every block what stands for the rows of its records.
    """

    parts: Sequence[Any]


#: What stands beside records, a row of each: an array (n, ...), one that is kept where the blocks
#: are, or the numbers of all records.
Beside = NDArray[Any] | KeptColumn | range


class Blocks(abc.ABC, Generic[T]):
    """A table of records in blocks, each made whenever a pass reaches it. Private.

    Attributes
    ----------
    n_samples
        Number of records.
    here
        True if records are in the memory of the caller, whose arrays it may write to.
    """

    n_samples: int
    here: bool = True

    @abc.abstractmethod
    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        """``function(block, *rows)`` of every block, in their order: one pass over the records.

        Parameters
        ----------
        function
            Called on every block. Where blocks are in other processes it has to be picklable, and
            what it returns should be small.
        beside
            Arrays (n, ...), of which the function gets the rows of its block; ``range(n)`` tells it
            their numbers.
        """

    def total(
        self, function: Callable[..., R], add: Callable[[Sequence[R]], R], *beside: Beside
    ) -> R:
        """What is added up of ``function(block, *rows)`` of all blocks: one pass over the records.

        Parameters
        ----------
        function
            As in :meth:`map`.
        add
            Adds some results that follow each other. It is called on groups of neighbors, then on
            groups of what it made of these: the number of records alone decides of which.
        beside
            As in :meth:`map`.
        """
        groups = in_groups(self.map(function, *beside), max(BLOCK // VIEW, 1))
        return added_up([add(group) for group in groups], add)

    def column(self, function: Callable[..., NDArray[Any]], *beside: Beside) -> Beside:
        """An array (n, ...) for later passes, of the rows that ``function`` makes of every block.

        It stays where the blocks are, in memory as a read-only array.
        """
        return constant(np.concatenate(self.map(function, *beside)))

    def placed(self, beside: Beside) -> Beside:
        """The same values, sent to where the blocks are once and not in every pass."""
        return beside

    def each(self) -> list[T]:
        """All blocks at once, in their order."""
        return self.map(itself)

    def then(self, function: Callable[..., S], *beside: Beside) -> Blocks[S]:
        """``function`` of every block and of its rows of arrays, computed again in every pass."""
        return _Then(self, function, beside)


class _Then(Blocks[S]):
    """What a function makes of blocks, in every pass."""

    def __init__(
        self, blocks: Blocks[Any], function: Callable[..., S], beside: tuple[Beside, ...]
    ) -> None:
        self.n_samples = blocks.n_samples
        self.here = blocks.here
        self._blocks = blocks
        self._function = function
        self._beside = beside

    def _and(self, last: Callable[..., R]) -> Callable[..., R]:
        return partial(_composed, self._function, len(self._beside), last)

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        return self._blocks.map(self._and(function), *self._beside, *beside)

    def total(
        self, function: Callable[..., R], add: Callable[[Sequence[R]], R], *beside: Beside
    ) -> R:
        return self._blocks.total(self._and(function), add, *self._beside, *beside)

    def column(self, function: Callable[..., NDArray[Any]], *beside: Beside) -> Beside:
        return self._blocks.column(self._and(function), *self._beside, *beside)

    def placed(self, beside: Beside) -> Beside:
        return self._blocks.placed(beside)


def _composed(
    first: Callable[..., Any], n_first: int, last: Callable[..., R], block: Any, *beside: Any
) -> R:
    """``last`` of what ``first`` makes of a block and of the first ``n_first`` rows beside it."""
    return last(first(block, *beside[:n_first]), *beside[n_first:])


class _Views(Blocks[T]):
    """Views of arrays in memory."""

    def __init__(self, n_samples: int, make: Callable[[slice], T]) -> None:
        self.n_samples = n_samples
        self._make = make

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        results = []
        for begin in range(0, max(self.n_samples, 1), VIEW):
            rows = slice(begin, begin + VIEW)
            rows_beside = [_rows_of(values, rows) for values in beside]
            results.append(function(self._make(rows), *rows_beside))
        return results


class _Whole(Blocks[T]):
    """Rows that are one block."""

    def __init__(self, n_samples: int, rows: T) -> None:
        self.n_samples = n_samples
        self._rows = rows

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        return [function(self._rows, *beside)]


def _rows_of(beside: Beside, rows: slice) -> NDArray[Any] | range:
    if isinstance(beside, KeptColumn):
        raise TypeError("a column stays beside the blocks that it was made of")
    return beside[rows]


def views(n_samples: int, make: Callable[[slice], T]) -> Blocks[T]:
    """Blocks in memory that ``make`` makes of the rows of views; no rows are one of them."""
    return _Views(n_samples, make)


def beside_it(block: Any, rows: NDArray[Any]) -> NDArray[Any]:
    """The rows beside a block, without the block."""
    return rows


def in_groups(parts: Sequence[R], size: int) -> list[Sequence[R]]:
    """Parts that follow each other, ``size`` in a group and the remaining ones in the last."""
    return [parts[begin : begin + size] for begin in range(0, len(parts), size)]


def added_up(parts: Sequence[R], add: Callable[[Sequence[R]], R]) -> R:
    """All parts added up: ``GROUP`` neighbors at a time, then what came of these."""
    while len(parts) > 1:
        parts = [add(group) for group in in_groups(parts, GROUP)]
    return parts[0]


def constant(array: NDArray[Any]) -> NDArray[Any]:
    """The array, read-only; its maker has no other view of it."""
    array.flags.writeable = False
    return array


def whole(rows: T, n_samples: int) -> Blocks[T]:
    """``rows`` of no more than one block, which stay in memory."""
    return _Whole(n_samples, rows)


def itself(block: T) -> T:
    """The block."""
    return block


def tree_sum(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The sum of arrays of one shape, neighbors first: ``ceil(log2(len))`` additions to each."""
    rows = list(parts)
    while len(rows) > 1:
        sums = [rows[k] + rows[k + 1] for k in range(0, len(rows) - 1, 2)]
        if len(rows) % 2:
            sums.append(rows[-1])
        rows = sums
    return rows[0]
