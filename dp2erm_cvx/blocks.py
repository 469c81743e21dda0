"""Records in blocks of rows: what sums over records are computed from, wherever the records are."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Records of a block. Sums are added in a tree that these alone decide, not who computed which of them.
BLOCK = 2**16
#: Records of a view of arrays in memory, few enough for what is made of them to stay in a cache. As both are
#: powers of 2, sums over views are those over blocks.
VIEW = 2**13

#: What stands beside records, a row of each: an array (n, ...), or the numbers of all records.
Beside = NDArray[Any] | range

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")


class Blocks(abc.ABC, Generic[T]):
    """A table of records in blocks of ``BLOCK`` rows, each made whenever a pass reaches it. Private."""

    #: Number of records.
    n_samples: int
    #: Whether functions of a pass surely run in the memory of the caller, and may write to its arrays.
    here: ClassVar[bool] = False

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of every block."""
        return cut(self.n_samples, BLOCK)

    @abc.abstractmethod
    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        """``function(block, *slices)`` of every block, in their order: one pass over the records.

        ``beside`` are arrays (n, ...), of which the function gets the rows of its block, and ``range(n)``
        tells it their numbers. Where blocks are in other processes it has to be picklable, and what it
        returns should be small.
        """

    def each(self) -> list[T]:
        """All blocks at once, in their order."""
        return self.map(itself)

    def then(self, function: Callable[..., S], *beside: Beside) -> Blocks[S]:
        """``function`` of every block and of its rows of arrays, computed again in every pass."""
        return _Made(self, function, beside)

    def slices(self, arrays: Sequence[Beside]) -> Iterator[tuple[Beside, ...]]:
        """The rows of ``arrays`` (n, ...) that stand beside every block."""
        begin = 0
        for length in self.lengths:
            yield tuple(array[begin : begin + length] for array in arrays)
            begin += length


@dataclass(frozen=True, eq=False, repr=False)
class ArrayBlocks(Blocks[tuple[NDArray[Any], ...]]):
    """Views of ``arrays`` (n, ...) in memory."""

    arrays: tuple[NDArray[Any], ...]
    here: ClassVar[bool] = True

    @property
    def n_samples(self) -> int:  # type: ignore[override]
        """Number of records."""
        return len(self.arrays[0])

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of every view."""
        return cut(self.n_samples, VIEW)

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        """In this process, view after view."""
        own = len(self.arrays)
        return [function(rows[:own], *rows[own:]) for rows in self.slices((*self.arrays, *beside))]


def constant(array: NDArray[Any]) -> NDArray[Any]:
    """The array, read-only; its maker has no other view of it."""
    array.flags.writeable = False
    return array


def cut(n_samples: int, length: int) -> tuple[int, ...]:
    """Lengths of blocks of ``length`` rows, the last perhaps fewer."""
    full, rest = divmod(n_samples, length)
    return (length,) * full + ((rest,) if rest else ())


def whole(rows: T, n_samples: int) -> Blocks[T]:
    """``rows`` of no more than one block, which stay in memory."""
    return _Whole(rows, n_samples)


@dataclass(frozen=True, eq=False, repr=False)
class _Whole(Blocks[T]):
    rows: T
    n_samples: int
    here: ClassVar[bool] = True

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        return [function(self.rows, *beside)]


@dataclass(frozen=True, eq=False, repr=False)
class _Made(Blocks[S]):
    source: Blocks[Any]
    function: Callable[..., S]
    beside: tuple[Beside, ...]

    @property
    def n_samples(self) -> int:  # type: ignore[override]
        return self.source.n_samples

    @property
    def here(self) -> bool:  # type: ignore[override]
        return self.source.here

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        composed = functools.partial(_composed, self.function, len(self.beside), function)
        return self.source.map(composed, *self.beside, *beside)


def _composed(first: Callable[..., Any], own: int, second: Callable[..., R], block: Any, *beside: Any) -> R:
    return second(first(block, *beside[:own]), *beside[own:])


def itself(block: T) -> T:
    """The block."""
    return block


def tree_sum(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The sum of arrays of one shape, neighbors first: each is added at most ``ceil(log2(len))`` times."""
    rows = list(parts)
    while len(rows) > 1:
        paired = [rows[k] + rows[k + 1] for k in range(0, len(rows) - 1, 2)]
        rows = paired + rows[len(rows) - len(rows) % 2 :]
    return rows[0]
