"""Records that are never in memory together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.blocked.engine import told_bytes
from dp2erm_cvx.blocks import Blocks
from dp2erm_cvx.domain import Array, Domain, Make, NumbersOf, Records
from dp2erm_cvx.domain.records import replaced_record
from dp2erm_cvx.errors import ProgramError

T = TypeVar("T")


class RecordBlocks(Records):
    """Records inside a domain, in blocks that are not in memory together.

    Programs and steps ask for sums over their ``blocks``. Whoever asks for all covariates, treatments or
    outcomes at once is refused, by a ProgramError with the size that they would have.
    """

    def __init__(self, blocks: Blocks[Records], domain: Domain, n_columns: int) -> None:
        put = object.__setattr__
        put(self, "_blocks", blocks)
        put(self, "domain", domain)
        put(self, "n_columns", n_columns)

    @property
    def blocks(self) -> Blocks[Records]:
        """The records of every block."""
        found: Blocks[Records] = self.__dict__["_blocks"]
        return found

    @property
    def n_samples(self) -> int:
        """Number of records."""
        return self.blocks.n_samples

    @property
    def n_features(self) -> int:
        """Number of covariates without the intercept."""
        columns: int = self.__dict__["n_columns"]
        return columns - (1 if self.domain.intercept else 0)

    @property
    def counts(self) -> Array:
        """What every record counts (n,): one number of each is held in memory."""
        return self.each(attrgetter("counts"))

    def mapped(self, make: Make, outcomes: NumbersOf, domain: Domain, n_columns: int) -> RecordBlocks:
        """As records in memory do; rows are made in every pass, and ``outcomes`` (n,) are held."""
        return RecordBlocks(self.blocks.then(partial(_mapped, make), self.each(outcomes)), domain, n_columns)

    def replaced(self, index: int, X: Array, a: int) -> RecordBlocks:
        """The neighbor in which one record is another one, replaced in every pass."""
        changed = partial(replaced_record, index=index, X=X, a=a)
        made = self.blocks.then(changed, range(self.n_samples))
        return RecordBlocks(made, self.domain, self.__dict__["n_columns"])

    def rows(self, function: Callable[[Records], T]) -> Blocks[T]:
        """What ``function`` makes of every record by itself, made in every pass."""
        return self.blocks.then(function)

    @property
    def sampling(self) -> Array | None:
        """None where all records count alike; what they count is not in memory together."""
        return self._refuse("weights") if self.domain.weighted else None

    @property
    def X(self) -> Array:
        """Refused: see the class."""
        return self._refuse("covariates")

    @property
    def a(self) -> NDArray[np.int64]:
        """Refused: see the class."""
        return self._refuse("treatments")

    @property
    def y(self) -> Array:
        """Refused: see the class."""
        return self._refuse("outcomes")

    def _refuse(self, what: str) -> NoReturn:
        size = told_bytes(8 * self.n_samples * (self.__dict__["n_columns"] + 2))
        raise ProgramError(
            f"the {what} of all records are asked for at once, and this dataset is read in blocks: choose a "
            f"program of sums over records, or read the {size} of {self.n_samples:,} records "
            "into memory"
        )


def _mapped(make: Make, block: Records, outcomes: Array) -> Records:
    return make(Records(block.X, block.a, outcomes, block.domain, block.sampling))
