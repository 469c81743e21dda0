"""Datasets that are read block by block: a Parquet file or a Dask data frame larger than memory."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.blocks import Blocks
from dp2erm_cvx.data import Dataset, Public
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.engine import Engine, Threads
from dp2erm_cvx.errors import DataError, DeclarationError, ProgramError
from dp2erm_cvx.parallel import Progress, untold
from dp2erm_cvx.public import whole_number
from dp2erm_cvx.table_blocks import TableBlocks, dask_blocks, parquet_blocks
from dp2erm_cvx.tables import Table

T = TypeVar("T")
R = TypeVar("R")

#: Bytes of records that all workers together keep from one pass to the next.
KEEP = 2**31


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

    def mapped(self, function: Callable[[Records], Records], domain: Domain, n_columns: int) -> RecordBlocks:
        """What ``function`` makes of every record by itself, in the domain of what it makes."""
        return RecordBlocks(self.blocks.then(function), domain, n_columns)

    def rows(self, function: Callable[[Records], T]) -> Blocks[T]:
        """What ``function`` makes of every record by itself, made in every pass."""
        return self.blocks.then(function)

    @property
    def sampling(self) -> Array | None:
        """None without sampling weights; those of all records are not in memory together."""
        return None if self.domain.sampling is None else self._refuse("sampling weights")

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
        whole = 8 * self.n_samples * (self.__dict__["n_columns"] + 2) / 1e6
        size = f"{whole:.3g} MB" if whole < 1e3 else f"{whole / 1e3:.3g} GB"
        raise ProgramError(
            f"the {what} of all records are asked for at once, and this dataset is read in blocks: choose a "
            f"program of sums over records, or read the {size} of {self.n_samples:,} records "
            "into memory"
        )


class DatasetBlock(Dataset):
    """Some consecutive records of a dataset: the last block may hold a single one."""

    least: ClassVar[int] = 1


@dataclass(frozen=True, eq=False, repr=False)
class BlockedDataset:
    """Raw records in blocks, read again in every pass: never are all of them in memory.

    Made by :meth:`from_parquet` or :meth:`from_dask`, and given to an estimator in place of X, a and y::

        data = BlockedDataset.from_parquet("records/", treatment="a", outcome="y")
        PrivateEffect(domain, Budget(1.0)).fit(data)

    What is released is what a fit in memory releases, whatever the blocks and the workers: each record
    depends on itself alone, and sums over blocks are added in one order. The number of records is public.

    Attributes
    ----------
    blocks : the :class:`~dp2erm_cvx.data.Dataset` of every block
    columns : names of the covariates
    treatment, outcome : names of the columns
    """

    blocks: Passes[Dataset]
    columns: tuple[str, ...]
    treatment: str
    outcome: str
    keep: int = KEEP
    coded_by: Public | None = None

    def __repr__(self) -> str:
        return f"BlockedDataset(n_samples={self.n_samples}, columns={self.columns})"

    @property
    def n_samples(self) -> int:
        """Number of records."""
        return self.blocks.n_samples

    @classmethod
    def from_parquet(
        cls,
        path: str | Path,
        *,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None = None,
        engine: Engine | None = None,
        keep: int = KEEP,
        progress: Progress = untold,
    ) -> BlockedDataset:
        """Blocks of a Parquet file, of all in a folder, or of those that ``folder/*.parquet`` names.

        Parameters
        ----------
        path
            Files follow each other by their names.
        treatment, outcome
            Names of their columns.
        covariates
            Names of the others; None for all of them.
        engine
            Who makes the passes over the records; None: one thread.
        keep
            Bytes of records that the workers together keep from one pass to the next.
        progress
            Is told of blocks in every pass.

        Raises DataError where a file cannot be read, DeclarationError where pyarrow is not installed.
        """
        return cls._of(parquet_blocks(path), treatment, outcome, covariates, (engine, keep, progress))

    @classmethod
    def from_dask(
        cls,
        frame: Any,
        *,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None = None,
        engine: Engine | None = None,
        keep: int = KEEP,
        progress: Progress = untold,
    ) -> BlockedDataset:
        """Blocks of a Dask data frame, whose partitions are counted and then made anew in every pass.

        Its graph should begin with files: what was persisted on a cluster stays there. Arguments are those
        of :meth:`from_parquet`. Raises DeclarationError for what is no Dask data frame.
        """
        return cls._of(dask_blocks(frame), treatment, outcome, covariates, (engine, keep, progress))

    @classmethod
    def _of(
        cls,
        tables: TableBlocks,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None,
        passes: tuple[Engine | None, int, Progress],
    ) -> BlockedDataset:
        if isinstance(covariates, str):
            raise DataError(f"covariates = {covariates!r}: must be a list of column names")
        head = Table(tables.source, tables.names, list)
        chosen = tuple(covariates or (one for one in tables.names if one not in (treatment, outcome)))
        for name in (treatment, outcome, *chosen):
            head.cells(name)
        if tables.n_samples < 2:
            raise DataError(f"{tables.n_samples} record(s): at least 2 are needed")
        engine, keep, progress = passes
        made = partial(_plain, treatment=treatment, outcome=outcome, covariates=chosen)
        wanted = (treatment, outcome, *chosen)
        blocks = Passes(tables, wanted, made, engine or Threads(), 0, progress)
        return cls(blocks, chosen, treatment, outcome, whole_number("keep", keep, at_least=0))

    def coded(self, public: Public) -> BlockedDataset:
        """The same records by the codebook of a domain, as :meth:`~dp2erm_cvx.data.Dataset.coded` makes them.

        Raises DataError for a column that is not there, DeclarationError where the covariates of levels are
        not declared.
        """
        book, raw = public.codebook, self.blocks.tables
        assert book is not None
        if public.columns is None and (book.levels or book.missing):
            raise DeclarationError("levels and missing values need named ranges: those of Codebook.ranges")
        names = public.columns or tuple(one for one in self.columns if one not in book.no_covariates)
        treatment, outcome = book.treatment.column or self.treatment, book.outcome or self.outcome
        weights = () if book.sampling_weights is None else (book.sampling_weights.column,)
        wanted = tuple(dict.fromkeys((treatment, outcome, *book.columns(names), *weights)))
        head = Table(raw.source, raw.names, list)
        for name in wanted:
            head.cells(name)
        made = partial(_coded, public=public, treatment=treatment, outcome=outcome, columns=names)
        blocks = Passes(raw, wanted, made, self.blocks.engine, 0, self.blocks.progress)
        return replace(
            self, blocks=blocks, columns=names, treatment=treatment, outcome=outcome, coded_by=public
        )

    def restricted(self, columns: Sequence[int]) -> BlockedDataset:
        """The same with these covariates alone, by number and in this order."""
        names = tuple(self.columns[index] for index in columns)
        return replace(self, blocks=self.blocks.kept(partial(_restricted, list(columns)), 0), columns=names)

    def records(self, make: Callable[[Dataset], Records], domain: Domain) -> RecordBlocks:
        """The records that ``make`` makes of every block, which workers keep as far as memory is allowed."""
        n_columns = len(self.columns) + (1 if domain.intercept else 0)
        return RecordBlocks(self.blocks.kept(make, self.keep), domain, n_columns)


def _plain(table: Table, *, treatment: str, outcome: str, covariates: tuple[str, ...]) -> Dataset:
    return DatasetBlock.from_table(table, treatment, outcome, covariates)


def _coded(
    table: Table, *, public: Public, treatment: str, outcome: str, columns: tuple[str, ...]
) -> Dataset:
    return DatasetBlock.coded(public, table, table.cells(treatment), table.cells(outcome), columns)


def _restricted(columns: list[int], data: Dataset) -> Dataset:
    names = tuple(data.columns[index] for index in columns)
    return replace(data, X=data.X[:, columns], columns=names)
