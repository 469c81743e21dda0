"""Records in blocks of rows: what sums over records are computed from, wherever the records are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

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


@dataclass(frozen=True, eq=False, repr=False)
class Blocks(Generic[T]):
    """A table of records in blocks, each made whenever a pass reaches it. Private.

    ``passes`` calls a function on every block and on its rows of arrays. If records are ``here``, that is in
    the memory of the caller, whose arrays it may write to.
    """

    n_samples: int
    passes: Callable[[Callable[..., Any], tuple[Beside, ...]], list[Any]]
    here: bool = True

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        """``function(block, *rows)`` of every block, in their order: one pass over the records.

        ``beside`` are arrays (n, ...), of which the function gets the rows of its block, and ``range(n)``
        tells it their numbers. Where blocks are in other processes it has to be picklable, and what it
        returns should be small.
        """
        return self.passes(function, beside)

    def each(self) -> list[T]:
        """All blocks at once, in their order."""
        return self.map(itself)

    def then(self, function: Callable[..., S], *beside: Beside) -> Blocks[S]:
        """``function`` of every block and of its rows of arrays, computed again in every pass."""

        def passes(last: Callable[..., Any], own: tuple[Beside, ...]) -> list[Any]:
            return self.map(partial(_composed, function, len(beside), last), *beside, *own)

        return Blocks(self.n_samples, passes, self.here)


def _composed(first: Callable[..., Any], own: int, last: Callable[..., R], block: Any, *beside: Any) -> R:
    return last(first(block, *beside[:own]), *beside[own:])


def views(n_samples: int, make: Callable[[slice], T]) -> Blocks[T]:
    """Blocks in memory that ``make`` makes of the rows of views; no rows are one of them."""

    def passes(function: Callable[..., Any], beside: tuple[Beside, ...]) -> list[Any]:
        places = (slice(begin, begin + VIEW) for begin in range(0, max(n_samples, 1), VIEW))
        return [function(make(rows), *(own[rows] for own in beside)) for rows in places]

    return Blocks(n_samples, passes)


def constant(array: NDArray[Any]) -> NDArray[Any]:
    """The array, read-only; its maker has no other view of it."""
    array.flags.writeable = False
    return array


def whole(rows: T, n_samples: int) -> Blocks[T]:
    """``rows`` of no more than one block, which stay in memory."""
    return Blocks(n_samples, lambda function, beside: [function(rows, *beside)])


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
