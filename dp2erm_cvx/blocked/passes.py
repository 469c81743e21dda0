"""Passes over the blocks of a raw table by the workers of an engine, which keep some of what they read."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.blocked.engine import Engine, Threads
from dp2erm_cvx.blocked.table_blocks import TableBlocks
from dp2erm_cvx.blocks import Blocks
from dp2erm_cvx.parallel import Progress, untold
from dp2erm_cvx.tables import Table

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, eq=False, repr=False)
class Passes(Blocks[T]):
    """What ``make`` makes of every block of a raw table, by the workers of an engine.

    The first blocks that fit into ``keep`` bytes are kept by the workers, and the others read again in every
    pass. ``columns`` are those that are read; None for all.
    """

    tables: TableBlocks
    columns: tuple[str, ...] | None
    make: Callable[[Table], T]
    engine: Engine
    keep: int = 0
    progress: Progress = untold
    #: Of what is kept.
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def n_samples(self) -> int:  # type: ignore[override]
        """Number of records."""
        return self.tables.n_samples

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of every block."""
        whole, rest = divmod(self.n_samples, self.tables.length)
        return (self.tables.length,) * whole + ((rest,) if rest else ())

    def kept(self, function: Callable[[T], R], keep: int) -> Passes[R]:
        """What ``function`` makes of every block, of which workers keep so many bytes."""
        made = partial(_both, self.make, function)
        return Passes(self.tables, self.columns, made, self.engine, keep, self.progress)

    def map(self, function: Callable[..., R], *beside: NDArray[Any]) -> list[R]:
        """One pass over the records. Raises DataError where they cannot be read, WorkerError."""
        shares = self.tables.shares(self.engine.number)
        keep = self.keep if isinstance(self.engine, Threads) else self.keep // self.engine.number
        kept, length, count = (self.token, keep), self.tables.length, self.tables.count
        tasks = [
            (
                *(self.tables.only(share), share, self.columns, self.make, kept, function),
                *(array[share.start * length : share.stop * length] for array in beside),
            )
            for share in shares
        ]
        done = (0, *itertools.accumulate(len(share) for share in shares))
        told = partial(self._told, done, count)
        told(0)
        return list(itertools.chain.from_iterable(self.engine.run(_pass, tasks, told)))

    def _told(self, done: Sequence[int], count: int, tasks: int) -> None:
        self.progress("blocks of records", done[tasks], count)

    def __del__(self) -> None:
        _KEPT.pop(self.token, None)


@dataclass
class _Kept:
    """Blocks that a worker keeps, by their number, and their bytes."""

    most: int
    blocks: dict[int, Any] = field(default_factory=dict)
    nbytes: int = 0

    def offer(self, k: int, block: Any) -> None:
        """Keep the block where there is room: whoever dropped the oldest would never find the next one."""
        size = sum(one.nbytes for one in vars(block).values() if isinstance(one, np.ndarray))
        if self.nbytes + size <= self.most:
            self.nbytes += size
            self.blocks[k] = block


#: Of the table that this worker read last.
_KEPT: dict[str, _Kept] = {}


def _pass(
    tables: TableBlocks,
    share: range,
    columns: Sequence[str] | None,
    make: Callable[[Table], Any],
    kept: tuple[str, int],
    function: Callable[..., R],
    *beside: NDArray[Any],
) -> list[R]:
    token, most = kept
    if most and token not in _KEPT:
        _KEPT.clear()
    known = _KEPT.setdefault(token, _Kept(most)) if most else _Kept(0)
    fresh = tables.tables([k for k in share if k not in known.blocks], columns)
    found = []
    for k in share:
        block = known.blocks.get(k)
        if block is None:
            block = make(next(fresh))
            known.offer(k, block)
        row = (k - share.start) * tables.length
        found.append(function(block, *(array[row : row + tables.length] for array in beside)))
    return found


def _both(first: Callable[[Any], Any], second: Callable[[Any], R], block: Any) -> R:
    return second(first(block))
