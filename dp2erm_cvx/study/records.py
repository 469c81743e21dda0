"""One table of a study, and the records that the codebooks of its questions make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.dataset import Dataset, Public
from dp2erm_cvx.data.tables import Table, read_frame
from dp2erm_cvx.diagnostics.look import Seen, seen_of
from dp2erm_cvx.errors import DeclarationError

Records = Dataset | BlockedDataset


#: How a file declares the columns of the treatment and of the outcome.
_COLUMNS = {"treatment": 'treatment = "COLUMN"', "outcome": 'outcome_column = "COLUMN"'}


def data_columns(public: Public) -> tuple[str, str]:
    """The columns of the treatment and of the outcome.

    Raises
    ------
    DeclarationError
        Where one is not named.
    """
    book = public.codebook
    treatment = None if book is None else book.treatment.column
    outcome = None if book is None else book.outcome
    return _declared("treatment", treatment), _declared("outcome", outcome)


def _declared(name: str, column: str | None) -> str:
    """The column of the treatment or of the outcome; DeclarationError where there is none."""
    if not column:
        wanted = f"give {_COLUMNS[name]} in the file, or by --set"
        raise DeclarationError(f"the column of the {name} is not declared: {wanted}")
    return column


@dataclass(frozen=True)
class StudyRecords:
    """Cells as they stand, and the records that codebooks have made of them, each of them once.

    Parameters
    ----------
    cells
        A table in memory, or one that is read in blocks.
    made
        Records by the domain and the covariates that they were made by.
    looked
        What a look has read of them.
    """

    cells: Table | BlockedDataset
    made: list[tuple[Public, tuple[str, ...] | None, Records]] = field(default_factory=list)
    looked: list[tuple[Public, tuple[str, ...] | None, Seen]] = field(default_factory=list)

    @classmethod
    def of(cls, table: Any) -> StudyRecords:
        """The cells of a data frame, a table or a dataset in blocks.

        Raises
        ------
        DataError
            For anything else.
        """
        if isinstance(table, BlockedDataset):
            return cls(table)
        return cls(read_frame(table))

    def by(self, public: Public, covariates: Sequence[str] | None = None) -> Records:
        """The records by the codebook of a domain.

        Parameters
        ----------
        public
            What is declared; its codebook names the columns of the treatment and of the outcome.
        covariates
            The columns of covariates where ``public`` names none; None for all others.

        Raises
        ------
        DataError
            For a column that is not there.
        """
        chosen = None if covariates is None else tuple(covariates)
        for known, columns, records in self.made:
            if known == public and columns == chosen:
                return records
        data = self._coded(public, chosen)
        self.made.append((public, chosen, data))
        return data

    def _coded(self, public: Public, chosen: tuple[str, ...] | None) -> Records:
        """The records by the codebook of a domain, made anew."""
        treatment, outcome = data_columns(public)
        cells = self.cells
        if isinstance(cells, BlockedDataset):
            columns = cells.columns if chosen is None else chosen
            own = replace(cells, treatment=treatment, outcome=outcome, columns=columns)
            return own.coded(public)
        book = public.codebook
        assert book is not None
        a = book.raw_cells(cells, treatment)
        y = book.raw_cells(cells, outcome)
        return Dataset.coded(public, cells, a, y, public.columns or chosen)

    def seen(self, public: Public, covariates: Sequence[str] | None = None) -> Seen:
        """What a look reads of the records by a codebook: for the data holder only."""
        chosen = None if covariates is None else tuple(covariates)
        for known, columns, seen in self.looked:
            if known == public and columns == chosen:
                return seen
        data = self.by(public, chosen)
        table = None if isinstance(self.cells, BlockedDataset) else self.cells
        seen = seen_of(data, public, table)
        self.looked.append((public, chosen, seen))
        return seen
