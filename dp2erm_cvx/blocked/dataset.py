"""Datasets that are read block by block: Parquet files or Dask collections larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dp2erm_cvx.blocked.dask_blocks import array_blocks, frame_blocks
from dp2erm_cvx.blocked.dataset_block import coded_block, plain_block, restricted_block
from dp2erm_cvx.blocked.engine import Engine, Threads
from dp2erm_cvx.blocked.parquet_blocks import parquet_blocks
from dp2erm_cvx.blocked.passes import Passes
from dp2erm_cvx.blocked.record_blocks import RecordBlocks
from dp2erm_cvx.blocked.table_blocks import TableBlocks
from dp2erm_cvx.blocked.views import Views
from dp2erm_cvx.curves import Curves
from dp2erm_cvx.data import Dataset, Public, all_names
from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.tables import Table


@dataclass(frozen=True, eq=False, repr=False)
class BlockedDataset:
    """Raw records in blocks, read again in every pass: never are all of them in memory.

    Made by :meth:`from_parquet`, :meth:`from_dask` or :meth:`from_dask_arrays`, and given to an estimator in
    place of X, a and y::

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
    coded_by: Public | None = None

    def __repr__(self) -> str:
        return f"BlockedDataset(n_samples={self.n_samples}, columns={self.columns})"

    @property
    def n_samples(self) -> int:
        """Number of records."""
        return self.blocks.n_samples

    @property
    def weighted(self) -> bool:
        """Whether records come with what they count: where a codebook has made them."""
        return self.coded_by is not None

    @classmethod
    def from_parquet(
        cls,
        path: str | Path,
        *,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None = None,
        engine: Engine | None = None,
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
            Who makes the passes over the records, and what they keep from one to the next; None: one thread.

        Raises DataError where a file cannot be read, DeclarationError where pyarrow is not installed.
        """
        return cls._of(parquet_blocks(path), treatment, outcome, covariates, engine)

    @classmethod
    def from_dask(
        cls,
        frame: Any,
        *,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None = None,
        engine: Engine | None = None,
    ) -> BlockedDataset:
        """Blocks of a Dask data frame, whose partitions are counted and then made anew in every pass.

        Its graph should begin with files: what was persisted on a cluster stays there. Arguments are those
        of :meth:`from_parquet`. Raises DeclarationError for what is no Dask data frame.
        """
        return cls._of(frame_blocks(frame), treatment, outcome, covariates, engine)

    @classmethod
    def from_dask_arrays(
        cls, X: Any, a: Any, y: Any, columns: Sequence[str] | None = None, *, engine: Engine | None = None
    ) -> BlockedDataset:
        """Blocks of Dask arrays, whose chunks are made anew in every pass; as :meth:`from_dask`.

        Parameters
        ----------
        X
            (n, p) covariates, in chunks of any lengths. A chunk of rows has to fit into the memory of a
            worker, with all of its columns.
        a, y
            (n,) treatments and outcomes. Their chunks may be others than those of X.
        columns
            Names of the columns of X; None: x1, ..., xp. Where a codebook is declared, covariates and
            sampling weights are found by these names.
        engine
            As in :meth:`from_parquet`.

        Chunks of unknown length are counted first. Raises DataError for other shapes or names,
        DeclarationError for what is no Dask array.
        """
        tables = array_blocks(X, a, y, lambda width: all_names(width, columns))
        treatment, outcome = tables.names[-2:]
        return cls._of(tables, treatment, outcome, None, engine)

    @classmethod
    def _of(
        cls,
        tables: TableBlocks,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None,
        engine: Engine | None,
    ) -> BlockedDataset:
        if isinstance(covariates, str):
            raise DataError(f"covariates = {covariates!r}: must be a list of column names")
        head = Table(tables.source, tables.names, list)
        chosen = tuple(covariates or (one for one in tables.names if one not in (treatment, outcome)))
        for name in (treatment, outcome, *chosen):
            head.cells(name)
        if tables.n_samples < 2:
            raise DataError(f"{tables.n_samples} record(s): at least 2 are needed")
        made = partial(plain_block, treatment=treatment, outcome=outcome, covariates=chosen)
        wanted = (treatment, outcome, *chosen)
        blocks = Passes(tables, wanted, made, engine or Threads())
        return cls(blocks, chosen, treatment, outcome)

    def coded(self, public: Public) -> BlockedDataset:
        """The same records by the codebook of a domain, as :meth:`~dp2erm_cvx.data.Dataset.coded` makes them.

        Treatments and outcomes stay the columns that they are here, whatever the codebook calls them.
        Raises DataError for a column that is not there, DeclarationError where the covariates of levels are
        not declared.
        """
        book, raw = public.codebook, self.blocks.tables
        assert book is not None
        if public.columns is None and (book.levels or book.missing):
            raise DeclarationError("levels and missing values need named ranges: those of Codebook.ranges")
        names = public.columns or tuple(one for one in self.columns if one not in book.no_covariates)
        weights = () if book.sampling_weights is None else (book.sampling_weights.column,)
        chosen = (*weights, *book.where, *(() if book.group is None else (book.group,)))
        wanted = tuple(dict.fromkeys((self.treatment, self.outcome, *book.columns(names), *chosen)))
        head = Table(raw.source, raw.names, list)
        for name in wanted:
            head.cells(name)
        made = partial(
            coded_block, public=public, treatment=self.treatment, outcome=self.outcome, columns=names
        )
        blocks = Passes(raw, wanted, made, self.blocks.engine)
        return replace(self, blocks=blocks, columns=names, coded_by=public)

    def restricted(self, columns: Sequence[int], curves: Curves | None = None) -> BlockedDataset:
        """The same with these covariates alone, by number and in this order; then their ``curves``."""
        names = tuple(self.columns[index] for index in columns)
        made = partial(restricted_block, columns=list(columns), curves=curves)
        return replace(
            self,
            blocks=self.blocks.made(made),
            columns=names + (() if curves is None else curves.names(names)),
        )

    def records(self, make: Callable[[Dataset], Records], domain: Domain) -> RecordBlocks:
        """The records that ``make`` makes of every block, which workers keep as far as they are allowed to.

        Raises WorkerError where their scratch folder has no room for the rest.
        """
        n_columns = len(self.columns) + (1 if domain.intercept else 0)
        self.blocks.engine.reserve(
            8 * self.n_samples * (n_columns + 2 + self.weighted * max(len(domain.groups), 1))
        )
        return RecordBlocks(Views(self.blocks.made(make, kept=True)), domain, n_columns)
