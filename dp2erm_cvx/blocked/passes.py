"""Passes over the blocks of a raw table by the workers of an engine, which keep some of what they read."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from dp2erm_cvx.blocked.engine import Engine
from dp2erm_cvx.blocked.kept import KeptBlocks, forget, kept_blocks
from dp2erm_cvx.blocked.table_blocks import TableBlocks
from dp2erm_cvx.blocks import Beside, Blocks, cut
from dp2erm_cvx.tables import Table

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, eq=False, repr=False)
class Passes(Blocks[T]):
    """What ``make`` makes of every block of a raw table, by the workers of an engine.

    The workers keep the first blocks that fit into their memory under a ``token``, and the others in their
    scratch files, or else read those again in every pass; without a token they keep nothing. ``columns`` are
    those that are read; None for all.
    """

    tables: TableBlocks
    columns: tuple[str, ...] | None
    make: Callable[[Table], T]
    engine: Engine
    token: str | None = None

    @property
    def n_samples(self) -> int:  # type: ignore[override]
        """Number of records."""
        return self.tables.n_samples

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of every block."""
        return cut(self.n_samples, self.tables.length)

    def made(self, function: Callable[[T], R], *, kept: bool = False) -> Passes[R]:
        """What ``function`` makes of every block, which workers keep if they are told to."""
        token = uuid.uuid4().hex if kept else None
        return Passes(self.tables, self.columns, partial(_both, self.make, function), self.engine, token)

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        """One pass over the records. Raises DataError where they cannot be read, WorkerError."""
        shares = self.tables.shares(self.engine.number)
        length, count = self.tables.length, self.tables.count
        work = _Work(self.columns, self.make, self.token, self.engine.share, self.engine.scratch, function)
        tasks = [
            (
                *(self.tables.only(share), share, work),
                *(array[share.start * length : share.stop * length] for array in beside),
            )
            for share in shares
        ]
        done = (0, *itertools.accumulate(len(share) for share in shares))

        def told(tasks: int) -> None:
            self.engine.progress("blocks of records", done[tasks], count)

        told(0)
        return list(itertools.chain.from_iterable(self.engine.run(_pass, tasks, told)))

    def __del__(self) -> None:
        if self.token is not None:
            forget(self.token)


@dataclass(frozen=True)
class _Work:
    columns: tuple[str, ...] | None
    make: Callable[[Table], Any]
    token: str | None
    keep: int
    scratch: str | None
    function: Callable[..., Any]


def _pass(tables: TableBlocks, share: range, work: _Work, *beside: Beside) -> list[Any]:
    known = KeptBlocks(0) if work.token is None else kept_blocks(work.token, work.keep, work.scratch)
    held = known.numbers  # another task of this process may keep more of them meanwhile
    fresh = tables.tables([k for k in share if k not in held], work.columns)
    found = []
    for k in share:
        if k in held:
            block = known.find(k)
        else:
            block = work.make(next(fresh))
            known.offer(k, block)
        row = (k - share.start) * tables.length
        found.append(work.function(block, *(array[row : row + tables.length] for array in beside)))
    return found


def _both(first: Callable[[Any], Any], second: Callable[[Any], R], block: Any) -> R:
    return second(first(block))
