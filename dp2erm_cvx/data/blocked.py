"""Datasets larger than memory: blocks of Parquet and CSV files or of Dask collections."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data import pieces as pieces_of
from dp2erm_cvx.data.blocks import Beside, Blocks
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.counts import total_counts
from dp2erm_cvx.data.dataset import Dataset, DatasetBlock, Public, all_names, refuse_undeclared
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.files import PLAIN, CsvLayout
from dp2erm_cvx.data.pieces import (
    DaskBlocks,
    Pieces,
    array_pieces,
    cluster_in_force,
    file_pieces,
    frame_pieces,
)
from dp2erm_cvx.data.records import Make, NumbersOf, Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.data.tables import Table
from dp2erm_cvx.data.universe import Curves
from dp2erm_cvx.errors import DataError, DeclarationError, ProgramError

T = TypeVar("T")
R = TypeVar("R")


def _rows_of(block: Any, *, names: Sequence[str], part: int, parts: int) -> list[NDArray[Any]]:
    """The columns of the rows of a block that count, of the persons of one part.

    Parameters
    ----------
    block
        Holds the columns as attributes.
    names
        Names of the columns; the last two are what rows count and their persons.
    part, parts
        A person is in the part that its number leaves when divided by ``parts``.
    """
    columns = [getattr(block, name) for name in names]
    *_, counts, person = columns
    counted = total_counts(counts) > 0.0
    rows = np.flatnonzero((person >= 0) & (person % parts == part) & counted)
    return [column[rows] for column in columns]


def _of_persons(
    blocks: Blocks[Any], make: Callable[..., Any], width: int, *names: str
) -> Iterator[Any]:
    """Records in parts of as many persons as memory holds, all rows of a person in one.

    Each part takes a pass, and leaves rows in their order: sums of persons are those in memory, to
    the bit.

    Parameters
    ----------
    blocks
        Blocks of records.
    make
        Makes one part of its columns.
    width
        Numbers that a record takes.
    names
        Names of the columns; the last two are what rows count and their persons.
    """
    nbytes = 8 * blocks.n_samples * width
    # rounded up
    n_parts = max(-(-nbytes // pieces_of.KEEP), 1)
    for part in range(n_parts):
        rows = blocks.map(partial(_rows_of, names=names, part=part, parts=n_parts))
        columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
        yield make(**dict(zip(names, columns, strict=True)))


@dataclass(frozen=True, eq=False, repr=False)
class BlockedDataset:
    """Raw records in blocks, read again in every pass: never are all of them in memory.

    Made by :meth:`read`, :meth:`from_dask` or :meth:`from_dask_arrays`, and given to an estimator
    in place of X, a and y::

        data = BlockedDataset.read("records/", treatment="a", outcome="y")
        PrivateEffect(domain, Budget(1.0)).fit(data)

    What is released is what a fit in memory releases, whatever the blocks and the workers: each
    record depends on itself alone, and sums over blocks are added in one order. The number of
    records is public.

    Attributes
    ----------
    pieces
        The raw table.
    tables
        Its blocks, with the columns that are used.
    blocks
        The :class:`~dp2erm_cvx.data.dataset.Dataset` of every block.
    columns
        Names of the covariates.
    treatment, outcome
        Names of these two columns.
    coded_by
        The declaration whose codebook has made the records, if one has.
    """

    pieces: Pieces
    tables: DaskBlocks[Table]
    blocks: DaskBlocks[Dataset]
    columns: tuple[str, ...]
    treatment: str
    outcome: str
    coded_by: Public | None = None
    _made: Callable[..., Dataset] | None = field(default=None, repr=False)
    _beside: tuple[Beside, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"BlockedDataset(n_samples={self.n_samples}, columns={self.columns})"

    @property
    def persons(self) -> int | None:
        """Public number of persons, where these are units."""
        book = self._book
        if book is None or book.unit is None:
            return None
        return book.unit.number

    @property
    def _book(self) -> Codebook | None:
        """The codebook that has made the records, if one has."""
        return None if self.coded_by is None else self.coded_by.codebook

    @property
    def n_samples(self) -> int:
        """Number of records, or of persons where they are units."""
        return self.persons or sum(self.pieces.rows)

    def by_units(self, function: Callable[[Dataset], R]) -> list[R]:
        """One result of ``function`` for every block.

        Where persons are units, all rows of a person that count are in one block. Rows that do not
        count are in none.
        """
        if self.persons is None:
            return self.blocks.map(function)
        assert self._book is not None
        make = partial(
            DatasetBlock,
            n_arms=len(self._book.treatment.labels),
            columns=self.columns,
            treatment=self.treatment,
            outcome=self.outcome,
            persons=self.persons,
        )
        names = ("X", "a", "y", "sampling", "person")
        # the covariates, and one number of each of the others
        width = len(self.columns) + len(names) - 1
        return [function(part) for part in _of_persons(self.blocks, make, width, *names)]

    @property
    def weighted(self) -> bool:
        """True if records come with what they count: where a codebook has made them."""
        return self.coded_by is not None

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None = None,
        layout: CsvLayout = PLAIN,
    ) -> BlockedDataset:
        """Blocks of a CSV or Parquet file, or of all files in a folder or of ``folder/*.csv``.

        Parameters
        ----------
        path
            Files follow each other by their names, by which workers of a cluster have to reach
            them; names of folders such as ``year=2020`` below it are columns. ``s3://...`` and
            others are read where the package of fsspec for them is installed. A row group has to
            fit into the memory of a worker. Every pass parses CSV anew: Parquet is faster.
        treatment, outcome
            Names of their columns.
        covariates
            Names of the others; None for all of them.
        layout
            How a CSV file is written. Each line is one record, and one that is none has empty
            cells.

        Raises
        ------
        DataError
            Where a file cannot be read.
        DeclarationError
            Where pyarrow or dask is not installed, and for CSV that is packed or in UTF-16, or
            whose cells go on in the next line.
        """
        return cls._of(file_pieces(path, layout), treatment, outcome, covariates)

    @classmethod
    def from_dask(
        cls, frame: Any, *, treatment: str, outcome: str, covariates: Sequence[str] | None = None
    ) -> BlockedDataset:
        """Blocks of a Dask data frame.

        Its partitions are counted and then made anew in every pass.

        Parameters
        ----------
        frame
            The data frame.
        treatment, outcome, covariates
            As of :meth:`read`.

        Raises
        ------
        DeclarationError
            For what is no Dask data frame.
        """
        return cls._of(frame_pieces(frame), treatment, outcome, covariates)

    @classmethod
    def from_dask_arrays(
        cls, X: Any, a: Any, y: Any, columns: Sequence[str] | None = None
    ) -> BlockedDataset:
        """Blocks of Dask arrays, whose chunks are made anew in every pass.

        Chunks of unknown length are counted first.

        Parameters
        ----------
        X
            (n, p) covariates. A chunk of rows has to fit into the memory of a worker, with all
            columns.
        a, y
            (n,) treatments and outcomes. Their chunks may be others than those of X.
        columns
            Names of the columns of X, by which a codebook finds them; None: x1, ..., xp.

        Raises
        ------
        DataError
            For other shapes or names.
        DeclarationError
            For what is no Dask array.
        """
        pieces = array_pieces(X, a, y, lambda width: all_names(width, columns))
        treatment, outcome = pieces.names[-2:]
        return cls._of(pieces, treatment, outcome, None)

    @classmethod
    def _of(
        cls, pieces: Pieces, treatment: str, outcome: str, covariates: Sequence[str] | None
    ) -> BlockedDataset:
        """The records of a table in pieces; parameters as of :meth:`read`."""
        chosen = Dataset.chosen(pieces.source, pieces.names, treatment, outcome, covariates)
        tables = pieces.tables((treatment, outcome, *chosen))
        made = partial(DatasetBlock.read, treatment=treatment, outcome=outcome, covariates=chosen)
        return cls(pieces, tables, tables.then(made), chosen, treatment, outcome, _made=made)

    def coded(self, public: Public) -> BlockedDataset:
        """The records that the codebook of a domain makes of the cells, block by block.

        They are those of :meth:`~dp2erm_cvx.data.dataset.Dataset.coded`. Treatments and outcomes
        stay the columns that they are here, whatever the codebook calls them.

        Parameters
        ----------
        public
            A declaration with a codebook.

        Raises
        ------
        DataError
            For a column that is not there.
        DeclarationError
            Where the covariates of levels are not declared.
        """
        book = public.codebook
        assert book is not None
        if public.columns is None and book.renames:
            raise DeclarationError(
                "levels and missing values need named ranges: those of Codebook.ranges"
            )
        names = public.columns
        if not names:
            names = tuple(column for column in self.columns if column not in book.no_covariates)
        treatment = self.treatment
        outcome = self.outcome
        unit = book.unit
        columns = (treatment, outcome, *book.columns(names), *book.beside)
        tables = self.pieces.tables(columns, self._written_columns(book, columns))
        persons: Any = ()
        if unit is not None:
            labels = tables.map(lambda table: unit.labels(table.cells(unit.column)))
            persons = (tables.placed(unit.of(labels)),)

        def made(table: Table, *person: NDArray[np.int64]) -> Dataset:
            return DatasetBlock.coded(
                public, table, table.cells(treatment), table.cells(outcome), names, *person
            )

        return replace(
            self,
            tables=tables,
            blocks=tables.then(made, *persons),
            columns=names,
            coded_by=public,
            _made=made,
            _beside=persons,
        )

    def _written_columns(self, book: Codebook, columns: Sequence[str]) -> set[str]:
        """Those of the columns that the codebook reads as they are written in a file."""
        written = {name for name in columns if book.reads_texts(name)}
        if book.reads_texts(book.treatment.column):
            written.add(self.treatment)
        if book.reads_texts(book.outcome):
            written.add(self.outcome)
        if book.unit is not None:
            written.add(book.unit.column)
        return written

    def total_with_tables(
        self, function: Callable[..., R], add: Callable[[Sequence[R]], R], *beside: Beside
    ) -> R:
        """What is made of the cells of every block and of its records, added up in one pass.

        The records are those of all covariates: a dataset that :meth:`restricted` made has no
        tables.

        Parameters
        ----------
        function
            ``function(table, block, *rows)`` is called on every block.
        add
            Adds results of neighbors, as ``Blocks.total`` does.
        beside
            Arrays (n, ...) and ``range(n)``, of which the function gets the rows of its block.
        """
        assert self._made is not None
        both = partial(_with_records, self._made, len(self._beside), function)
        return self.tables.total(both, add, *self._beside, *beside)

    def declared(self, public: Public) -> BlockedDataset:
        """Raw data as a dataset that is checked against what is declared.

        Where no codebook is declared, a pass over all records finds what is no record.

        Parameters
        ----------
        public
            What is declared.

        Raises
        ------
        DataError, DeclarationError
            As of :meth:`~dp2erm_cvx.data.dataset.Dataset.declared`.
        """
        has_codebook = public.codebook is not None
        data = self
        if has_codebook and self.coded_by != public:
            data = self.coded(public)
        if data.n_samples < 2:
            raise DataError(f"{data.n_samples} record(s): at least 2 are needed")
        if has_codebook and getattr(public, "arm_floor", None) is None:
            refuse_undeclared(public, data)
        else:
            # a pass, before anything is spent; a codebook makes records of whatever cells hold
            refuse_undeclared(public, data, data._arm_sizes)
        return data

    def _arm_sizes(self) -> Sequence[int]:
        """Treated and untreated records, which a pass counts."""
        sizes: Sequence[int] = np.sum(self.blocks.map(Dataset.arm_sizes), axis=0)
        return sizes

    def check_workers(self) -> None:
        """Compare the workers of a cluster with this process before a charge.

        Each worker opens the files. Without a cluster nothing is done.

        Raises
        ------
        WorkerError
            Where a worker differs from this process.
        FileError
            For a file that a worker cannot reach.
        """
        cluster = cluster_in_force()
        if cluster is not None:
            cluster.check(self.pieces.opener())

    def restricted(self, columns: Sequence[int], curves: Curves | None = None) -> BlockedDataset:
        """A dataset of these covariates alone, by number and in order; then their ``curves``."""
        blocks = self.blocks.then(methodcaller("restricted", list(columns), curves))
        names = tuple(self.columns[index] for index in columns)
        if curves is not None:
            names = (*names, *curves.names(names))
        return replace(self, blocks=blocks, columns=names)

    def records(self, make: Callable[[Dataset], Records], domain: Domain) -> RecordBlocks:
        """The records that ``make`` makes of every block, kept as far as there is memory.

        Parameters
        ----------
        make
            Maps a block into the space of the domain.
        domain
            What is declared.
        """
        n_columns = len(self.columns)
        if domain.intercept:
            n_columns += 1
        width = n_columns + 2  # treatment and outcome
        if domain.units is not None:
            width += 1
        if self.weighted:
            width += max(len(domain.groups), 1)
        blocks = self._with_repeats(domain)
        held = blocks.then(partial(_arrays_of, make)).persisted(8 * blocks.n_samples * width)
        records = held.then(partial(_aligned, domain.space))
        return RecordBlocks(records, domain.space, n_columns, width)

    def _with_repeats(self, domain: Domain) -> DaskBlocks[Dataset]:
        """Blocks whose rows know how many rows of their person count, where persons are units."""
        book = domain.codebook
        if book is None or book.unit is None:
            return self.blocks

        def factors_and_persons(block: Dataset) -> tuple[Any, Any]:
            return domain.factors(block.sampling, len(block.a)), block.person

        def with_repeats(block: Dataset, repeats: NDArray[np.int64]) -> Dataset:
            return replace(block, repeats=repeats)

        parts = self.blocks.map(factors_and_persons)
        factors = np.concatenate([factor for factor, _ in parts])
        persons = np.concatenate([person for _, person in parts])
        return self.blocks.then(with_repeats, book.unit.repeats(factors, persons))


def _with_records(
    made: Callable[..., Dataset],
    n_own: int,
    function: Callable[..., R],
    table: Table,
    *beside: Beside,
) -> R:
    """``function`` of a table, of the records made of it and of the rows beside it.

    The first ``n_own`` arrays beside the table are those that its records are made with.
    """
    block = made(table, *beside[:n_own])
    return function(table, block, *beside[n_own:])


def _arrays_of(make: Callable[[Dataset], Records], block: Dataset) -> tuple[NDArray[Any], ...]:
    return make(block).arrays


def _arrays_mapped(
    make: Make, outcomes: NumbersOf, space: Space, n_columns: int, block: Records
) -> tuple[NDArray[Any], ...]:
    return block.mapped(make, outcomes, space, n_columns).arrays


class _ViewsOfBlocks(Blocks[Records]):
    """Views of the records of blocks, so that sums have the order of those in memory.

    Parameters
    ----------
    blocks
        The blocks of records.
    """

    here = False

    def __init__(self, blocks: DaskBlocks[Records]) -> None:
        self.n_samples = blocks.n_samples
        self._blocks = blocks

    def map(self, function: Callable[..., R], *beside: Beside) -> list[R]:
        results = self._blocks.map(partial(_of_views, function), *beside)
        return list(itertools.chain.from_iterable(results))

    def total(
        self, function: Callable[..., R], add: Callable[[Sequence[R]], R], *beside: Beside
    ) -> R:
        return self._blocks.total(partial(_total_of_views, function, add), add, *beside)

    def column(self, function: Callable[..., NDArray[Any]], *beside: Beside) -> Beside:
        return self._blocks.column(partial(_column_of_views, function), *beside)

    def placed(self, beside: Beside) -> Beside:
        return self._blocks.placed(beside)


def _of_views(function: Callable[..., R], block: Records, *beside: Beside) -> list[R]:
    return block.blocks.map(function, *beside)


def _total_of_views(
    function: Callable[..., R], add: Callable[[Sequence[R]], R], block: Records, *beside: Beside
) -> R:
    return add(block.blocks.map(function, *beside))


def _column_of_views(
    function: Callable[..., NDArray[Any]], block: Records, *beside: Beside
) -> NDArray[Any]:
    return np.concatenate(block.blocks.map(function, *beside))


def _aligned(space: Space, arrays: Sequence[NDArray[Any]]) -> Records:
    """The records of a block, aligned in memory.

    Products of arrays that came back misaligned from a disk round differently.
    """
    aligned = []
    for array in arrays:
        is_aligned = array.ctypes.data % _ALIGNMENT == 0
        aligned.append(array if is_aligned else array.copy("K"))
    return Records.of(space, aligned)


def _replaced(index: int, X: Array, a: int, block: Records, numbers: range) -> Records:
    return block.replaced(index, X, a, numbers)


#: Bytes that the address of an aligned array is a multiple of: those of a vector register.
_ALIGNMENT = 16
#: What the arrays hold that no block hands out for all records.
_HELD = {"X": "covariates", "a": "treatments", "y": "outcomes"}


class RecordBlocks(Records):
    """Records inside a space, in blocks that are not in memory together.

    Whoever asks for all covariates, treatments or outcomes at once is refused by a ProgramError.

    Parameters
    ----------
    blocks
        The records in blocks as Dask makes them.
    space
        Their space.
    n_columns
        Number of columns of their covariates, an intercept among them.
    width
        Numbers that a record takes in all its arrays.
    made_bytes
        Bytes of the records that were made of others, from which these are made.
    """

    _blocks: DaskBlocks[Records]
    n_columns: int

    def __init__(
        self,
        blocks: DaskBlocks[Records],
        space: Space,
        n_columns: int,
        width: int,
        made_bytes: int = 0,
    ) -> None:
        # past the frozen dataclass of records in memory
        self.__dict__.update(
            _blocks=blocks,
            space=space,
            n_columns=n_columns,
            _width=width,
            _made_bytes=made_bytes,
        )

    @property
    def blocks(self) -> Blocks[Records]:
        """Views of the records of every block."""
        return _ViewsOfBlocks(self._blocks)

    def column(self, function: Callable[[Records], Array]) -> Beside:
        """Numbers (n,) that ``function`` makes of every record, kept where the records are."""
        return self.blocks.column(function)

    def by_units(self, function: Callable[[Records], T]) -> list[T]:
        """One result of ``function`` for every block.

        Where persons are units, all rows of a person that count are in one block. Rows that do not
        count are in none.
        """
        if self.space.units is None:
            return self.blocks.map(function)
        make = partial(Records, space=self.space)
        names = ("X", "a", "y", "sampling", "unit")
        width = self.n_columns + 4
        return [function(part) for part in _of_persons(self.blocks, make, width, *names)]

    @property
    def n_features(self) -> int:
        """Number of covariates without the intercept."""
        return self.n_columns - (1 if self.space.intercept else 0)

    @property
    def counts(self) -> Array:
        """Counts of the records (n,): one number of each is held in memory."""
        return self.each(attrgetter("counts"))

    def mapped(self, make: Make, outcomes: NumbersOf, space: Space, n_columns: int) -> RecordBlocks:
        """The mapped records, kept as far as there is memory; as ``Records.mapped`` makes them.

        Parameters
        ----------
        make, outcomes
            Make covariates and outcomes of the records of a block.
        space
            The space that they lead into.
        n_columns
            Number of columns of the new covariates.
        """
        width = self._width + n_columns - self.n_columns
        made = self._blocks.then(partial(_arrays_mapped, make, outcomes, space, n_columns))
        nbytes = 8 * made.n_samples * width
        kept = made.persisted(nbytes, beside=self._made_bytes)
        records = kept.then(partial(_aligned, space))
        return RecordBlocks(records, space, n_columns, width, self._made_bytes + nbytes)

    def replaced(self, index: int, X: Array, a: int, numbers: range | None = None) -> RecordBlocks:
        """The neighbor in which one record is another one, replaced in every pass."""
        self._refuse_units()
        made = self._blocks.then(partial(_replaced, index, X, a), range(self.n_samples))
        return RecordBlocks(made, self.space, self.n_columns, self._width, self._made_bytes)

    def rows(self, function: Callable[[Records], T]) -> Blocks[T]:
        """Rows that ``function`` makes of every record by itself, made anew in every pass."""
        return self.blocks.then(function)

    @property
    def sampling(self) -> Array | None:
        """None where all records count alike; what they count is not in memory together."""
        return self._refuse("weights") if self.space.weighted else None

    def __getattr__(self, name: str) -> NoReturn:
        """Raise ProgramError for an array of all records, AttributeError for any other name."""
        if name not in _HELD:
            raise AttributeError(name)
        self._refuse(_HELD[name])

    def _refuse(self, what: str) -> NoReturn:
        size = size_text(8 * self.n_samples * (self.n_columns + 2))
        raise ProgramError(
            f"the {what} of all records are asked for at once, and this dataset is read in blocks: "
            f"choose a program of sums over records, or read the {size} of {self.n_samples:,} "
            "records into memory"
        )


def size_text(nbytes: float) -> str:
    """A number of bytes in words."""
    if nbytes < 1e9:
        return f"{nbytes / 1e6:.3g} MB"
    return f"{nbytes / 1e9:.3g} GB"
