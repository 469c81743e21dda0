"""Views of blocks of records: small enough for what is made of one to stay in a cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from dp2erm_cvx.blocks import VIEW, Beside, Blocks, cut
from dp2erm_cvx.domain import Records

R = TypeVar("R")


@dataclass(frozen=True, eq=False, repr=False)
class Views(Blocks[Records]):
    """The views of every block of ``source``.

    The same views as those of records in memory, so that the same sums are added in the same order.
    """

    source: Blocks[Records]

    @property
    def n_samples(self) -> int:  # type: ignore[override]
        """Number of records."""
        return self.source.n_samples

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of every view."""
        return tuple(itertools.chain.from_iterable(cut(rows, VIEW) for rows in self.source.lengths))

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        """One pass over the records, block after block."""
        return list(itertools.chain.from_iterable(self.source.map(partial(_viewed, function), *beside)))


def _viewed(function: Callable[..., R], block: Records, *beside: Beside) -> list[R]:
    return block.blocks.map(function, *beside)
