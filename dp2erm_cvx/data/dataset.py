"""Validated arrays (X, a, y) and their readers. Nothing is clipped or scaled here.

Messages of :class:`~dp2erm_cvx.errors.DataError` name rows, columns and values of the private data.
They are for the data holder, outside the privacy guarantee: do not publish them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.counts import total_counts
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.files import PLAIN, CsvLayout, read_table
from dp2erm_cvx.data.private_ranges import OpenDomain
from dp2erm_cvx.data.tables import (
    Table,
    as_array,
    as_cells,
    as_column,
    column_names,
    numbers_or_nan,
    read_frame,
    repeated,
    to_numbers,
)
from dp2erm_cvx.data.universe import Curves
from dp2erm_cvx.errors import DataError, DeclarationError, brief

R = TypeVar("R")
#: What is declared about records.
Public = Domain | OpenDomain


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Raw records: covariates, a treatment and a real outcome.

    Parameters
    ----------
    X
        (n, p) covariates in their own units, n >= 2, p >= 1; stored as read-only float64. An array
        of finite float64 in C order is not copied: leave it as it is until the last fit to it.
    a
        (n,) treatments in {0, 1}; booleans are accepted; stored as read-only int64. Of ``n_arms``
        arms their numbers, from 0 on.
    y
        (n,) outcomes; stored as read-only float64.
    columns
        The p distinct covariate names.
    treatment, outcome
        The names of ``a`` and ``y``.
    sampling
        (n,) what records count where a codebook is declared: their sampling weights, else 1, and 0
        without treatment or outcome; (n, K) in K groups, all 0 but one. None: all the same. Stored
        as read-only float64.
    person, persons
        Where persons with several records are units: that (n,) of every row, from 0 to ``persons``
        - 1 or -1 for none, and their public number N. The number n of rows is private then.
    repeats
        (n,): how many rows of the person of every row count, where these are not all of them.

    An arm without records is not an error. Raises :class:`~dp2erm_cvx.errors.DataError` naming the
    row (the first record is row 1) and the column of the first value that is missing, not finite or
    not a number.
    """

    #: Records that there are at least.
    least: ClassVar[int] = 2

    X: NDArray[np.float64]
    a: NDArray[np.int64]
    y: NDArray[np.float64]
    columns: tuple[str, ...]
    treatment: str = "a"
    outcome: str = "y"
    sampling: NDArray[np.float64] | None = None
    person: NDArray[np.int64] | None = None
    persons: int | None = None
    n_arms: int = 2
    repeats: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        X = _cells(self.X, "X", 2)
        n_records, n_covariates = X.shape
        a = _cells(self.a, "a", rows=n_records)
        y = _cells(self.y, "y", rows=n_records)
        columns = tuple(str(name) for name in self.columns)
        treatment = str(self.treatment)
        outcome = str(self.outcome)
        _refuse_wrong_names(columns, treatment, outcome, n_covariates)
        if n_records < self.least:
            raise DataError(f"{n_records} record(s): at least {self.least} are needed")
        arms = _treatments(to_numbers(a, treatment), treatment, self.n_arms)
        arrays: dict[str, Any] = {
            "X": _to_table(X, columns),
            "a": arms,
            "y": to_numbers(y, outcome),
        }
        if self.sampling is not None:
            arrays["sampling"] = _record_counts(self.sampling, n_records)
        if self.person is not None:
            arrays["person"] = _persons(self.person, self.persons, n_records)
        for array in arrays.values():
            array.setflags(write=False)
        names = {"columns": columns, "treatment": treatment, "outcome": outcome}
        for field, value in (arrays | names).items():
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        # no values: a repr ends up in logs
        return f"Dataset(n_samples={self.n_samples}, columns={self.columns})"

    @property
    def n_samples(self) -> int:
        """n: the number of records, or of persons where they are units."""
        if self.person is None or self.persons is None:
            return len(self.a)
        return self.persons

    @property
    def weighted(self) -> bool:
        """True if records come with what they count."""
        return self.sampling is not None

    def by_units(self, function: Callable[[Dataset], R]) -> list[R]:
        """One result of ``function``, as all rows here are one block.

        A dataset in blocks has one for each of them, with all rows of a person that count in one.
        """
        return [function(self)]

    def records(self, make: Callable[[Dataset], R], domain: object) -> R:
        """Result of ``make`` on all records, in the ``domain`` that this is in."""
        return make(self)

    def restricted(self, columns: Sequence[int], curves: Curves | None = None) -> Self:
        """A dataset of these covariates alone, by number and in order; then their ``curves``."""
        if curves is None and list(columns) == list(range(len(self.columns))):
            return self
        X = self.X[:, columns]
        names = tuple(self.columns[k] for k in columns)
        if curves is not None:
            X = np.column_stack([X, curves.terms(X)])
            names = (*names, *curves.names(names))
        return replace(self, X=X, columns=names)

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        a: ArrayLike,
        y: ArrayLike,
        columns: Sequence[str] | None = None,
        n_arms: int = 2,
    ) -> Dataset:
        """Build a dataset from (n, p), (n,) and (n,) arrays.

        Parameters
        ----------
        X, a, y
            Covariates, treatments and outcomes, as of :class:`Dataset`.
        columns
            Names of the covariates; default: those of ``X`` where it is a data frame, else x1, ...,
            xp.
        n_arms
            Number of arms of the treatment.

        Raises
        ------
        DataError
            As of :class:`Dataset`.
        """
        table = as_array(X, "X")
        if columns is None:
            columns = column_names(X)
        n_covariates = table.shape[1] if table.ndim == 2 else 0
        *covariates, treatment, outcome = all_names(n_covariates, columns)
        arms = as_array(a, "a")
        outcomes = as_array(y, "y")
        return cls(table, arms, outcomes, tuple(covariates), treatment, outcome, n_arms=n_arms)

    @classmethod
    def coded(
        cls,
        public: Public,
        X: Any,
        a: ArrayLike,
        y: ArrayLike,
        columns: Sequence[str] | None = None,
        person: NDArray[np.int64] | None = None,
    ) -> Dataset:
        """Records by the codebook of a domain: whatever a cell holds, none is refused.

        Every record depends on its own cells alone (Theorem 10). A record without treatment becomes
        one fixed record: the first arm, and every covariate and the outcome in the middle of its
        range. Where persons are units, rows of nobody fill a table up to ``least``.

        Parameters
        ----------
        public
            A :class:`~dp2erm_cvx.data.domain.Domain` with a codebook, or an
            :class:`~dp2erm_cvx.data.private_ranges.OpenDomain` with one.
        X
            A data frame, in which columns are found by name, or an array with them in their order;
            sampling weights are found by name alone.
        a, y
            (n,) cells of the treatment and of the outcome.
        columns
            Names of the covariates; default: those of ``public``, or all columns of ``X``.
        person
            The person (n,) of every row, where persons are units and these rows are not all.

        Raises
        ------
        DataError
            For a column that is not there, or another number of rows.
        DeclarationError
            For undeclared levels.
        """
        book = public.codebook
        assert book is not None
        table, names = _raw(X, columns or public.columns, book)
        middles = public.middles(len(names))
        outcome_if_missing = book.missing.get(book.outcome or "", public.outcome_middle)
        records = _RecordsOfCells.read(book, table, names, middles, a, y)
        records = records.completed(book, middles, outcome_if_missing)
        persons = None
        if book.unit is None:
            person = None
        else:
            persons = book.unit.number
            if person is None:
                cells = table.cells(book.unit.column, written=True)
                person = book.unit.of([book.unit.labels(cells)])
            n_of_nobody = max(cls.least - len(records.arms), 0)
            records = records.with_rows_of_nobody(n_of_nobody, middles, outcome_if_missing)
            person = _padded(person, n_of_nobody, -1)
        return cls(
            records.covariates,
            records.arms,
            records.outcomes,
            tuple(names),
            book.treatment.column or "a",
            book.outcome or "y",
            records.counts,
            person,
            persons,
            n_arms=len(book.treatment.labels),
        )

    @classmethod
    def declared(cls, public: Public, X: Any, a: Any = None, y: Any = None) -> Dataset:
        """Raw data as a dataset that is checked against what is declared.

        Parameters
        ----------
        public
            What is declared. Its codebook, if there is one, makes records of whatever the cells
            hold; its names are those of the columns, if there are any.
        X, a, y
            Raw data (n, k), (n,) and (n,), or a :class:`Dataset` alone, which such a codebook has
            made.

        Raises
        ------
        DataError
            For what is no data of the declared universe.
        DeclarationError
            Where the columns are others.
        """
        book = public.codebook
        if isinstance(a, str) and isinstance(y, str):
            covariates = f"X.drop(columns=[{a!r}, {y!r}])"
            if book is not None:
                covariates = "X"
            raise DataError(
                f"a and y are names: give their cells, by fit({covariates}, X[{a!r}], X[{y!r}])"
            )
        n_arms = 2
        if book is not None:
            n_arms = len(book.treatment.labels)
        if isinstance(X, Dataset):
            dataset = replace(X, repeats=None)  # these are all rows of everybody
        elif book is not None:
            dataset = cls.coded(public, X, a, y)
        else:
            names = column_names(X)
            columns = public.columns if names is None else tuple(names)
            dataset = cls.from_arrays(X, a, y, columns, n_arms)
        if book is not None:
            _refuse_uncoded(book, dataset)
        refuse_undeclared(public, dataset, dataset.arm_sizes)
        return dataset

    def at(self, rows: NDArray[np.int64]) -> DatasetBlock:
        """The records of these rows."""
        beside: dict[str, Any] = {}
        for name in ("sampling", "person", "repeats"):
            values = getattr(self, name)
            beside[name] = None if values is None else values[rows]
        for name in ("treatment", "outcome", "persons", "n_arms"):
            beside[name] = getattr(self, name)
        return DatasetBlock(self.X[rows], self.a[rows], self.y[rows], self.columns, **beside)

    def arm_sizes(self) -> tuple[int, int]:
        """Treated and untreated records."""
        return int(np.sum(self.a)), int(np.sum(1 - self.a))

    @staticmethod
    def chosen(
        source: str,
        names: Sequence[str],
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None,
    ) -> tuple[str, ...]:
        """Names of the covariates: those asked for, or all other columns.

        Parameters
        ----------
        source
            What messages call the table.
        names
            Names of all its columns.
        treatment, outcome
            Names of these two columns.
        covariates
            Names asked for; None: every other column.

        Raises
        ------
        DataError
            Where there is no covariate, or a text stands in place of a list.
        """
        if isinstance(covariates, str):
            raise DataError(f"covariates = {covariates!r}: must be a list of column names")
        if covariates is None:
            covariates = [name for name in names if name not in (treatment, outcome)]
        chosen = tuple(covariates)
        if not chosen:
            raise DataError(
                f"{source}: no column besides the treatment and the outcome is a covariate"
            )
        return chosen

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None = None,
        layout: CsvLayout = PLAIN,
    ) -> Dataset:
        """Read a file, a data frame or a table.

        Parameters
        ----------
        source
            A path, as :func:`~dp2erm_cvx.data.files.read_table` reads it, or a data frame.
        treatment, outcome
            Names of these two columns.
        covariates
            Names of the covariates; default: every other column.
        layout
            How a CSV file is written.

        Raises
        ------
        DataError
            Where a column is not there, or a cell is no finite number.
        """
        if isinstance(source, str | Path):
            table = read_table(str(source), layout)
        else:
            table = read_frame(source)
        names = cls.chosen(table.source, table.names, treatment, outcome, covariates)
        a: Any = table.numbers(treatment)
        y = table.numbers(outcome)
        X = np.empty((len(a), len(names)))
        for k, name in enumerate(names):
            X[:, k] = table.numbers(name)
        return cls(X, a, y, names, treatment, outcome)


def refuse_undeclared(
    public: Public, data: Any, arm_sizes: Callable[[], Sequence[int]] = tuple
) -> None:
    """Refuse a dataset, in memory or in blocks, that is none of the declared ones.

    Parameters
    ----------
    public
        What is declared.
    data
        A :class:`Dataset`, or one in blocks.
    arm_sizes
        Counts the records of every arm, where a declared smallest number is compared with them.

    Raises
    ------
    DeclarationError
        Where the dataset has other columns.
    DataError
        Where it has other persons, no sampling weights though they are declared, or too small an
        arm.
    """
    book = public.codebook
    declared_persons = None
    if book is not None and book.unit is not None:
        declared_persons = book.unit.number
    if data.persons != declared_persons:
        raise DataError("unit: the persons of the dataset are not those of the domain")
    if book is not None and book.sampling_weights is not None and not data.weighted:
        raise DataError("the domain declares sampling weights: the dataset has none")
    if public.columns is not None and data.columns != public.columns:
        raise DeclarationError(
            f"the domain declares the columns {', '.join(public.columns)}; "
            f"the data have {', '.join(data.columns)}"
        )
    arm_floor = getattr(public, "arm_floor", None)
    sizes = arm_sizes()
    if arm_floor is not None and min(sizes, default=arm_floor) < arm_floor:
        # outside the guarantee, like every message about invalid data: no theorem covers such a
        # dataset
        raise DataError(
            f"an arm has fewer than the declared arm_floor = {arm_floor} records: these data are "
            "outside the declared universe"
        )


class DatasetBlock(Dataset):
    """Some records of a dataset, of any number."""

    least: ClassVar[int] = 0


def all_names(width: int, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Names of covariates, and of the treatment and the outcome.

    Parameters
    ----------
    width
        Number of covariates.
    columns
        Their names; None: x1, ..., x``width``.

    Returns
    -------
    tuple of str
        Names of the covariates, then of the treatment and of the outcome: a and y, with as many
        underscores behind as set them apart from covariates.
    """
    if columns is None:
        columns = _numbered_names(width)
    covariates = [str(name) for name in columns]
    return (*covariates, _unused_name("a", covariates), _unused_name("y", covariates))


def _numbered_names(width: int) -> list[str]:
    return [f"x{k + 1}" for k in range(width)]


def _unused_name(name: str, taken: Sequence[str]) -> str:
    """The name, with underscores behind it until no covariate is called so."""
    while name in taken:
        name += "_"
    return name


def rows_to_predict(public: Public, X: Any, columns: Sequence[str]) -> NDArray[np.float64]:
    """Covariates (m, k) at which predictions are made, as :func:`covariate_table` reads them.

    A record that has none of the levels of a column counts as their mean.
    """
    rows = covariate_table(public, X, columns)
    if public.codebook is None:
        return rows
    return public.codebook.with_mean_levels(rows, columns)


def covariate_table(public: Public, X: Any, columns: Sequence[str]) -> NDArray[np.float64]:
    """Raw covariates (m, k) of these columns, in their order.

    Parameters
    ----------
    public
        What is declared. Its codebook, if there is one, makes covariates of cells as in
        :meth:`Dataset.coded`.
    X
        A data frame, whose columns are found by name, an array (m, k), or a :class:`Dataset`.
    columns
        Names of the k covariates.

    Raises
    ------
    DataError
        For a column that is not there, a wrong shape, nan, inf or text.
    """
    if isinstance(X, Dataset):  # the codebook, if there is one, has made it
        places = {name: place for place, name in enumerate(X.columns)}
        values = X.X
        X = Table("X", X.columns, lambda name: values[:, places[name]])
    elif public.codebook is not None:
        table, names = _raw(X, columns, public.codebook)
        column = public.codebook.read(table)
        return public.codebook.covariates(column, names, public.middles(len(names)))
    if column_names(X) is not None:
        table = read_frame(X)
        return np.column_stack([table.numbers(name) for name in columns])
    values = np.asarray(X)
    if values.ndim != 2 or values.shape[1] != len(columns):
        raise DataError(f"X has shape {values.shape}: must have the columns {', '.join(columns)}")
    return _to_table(values, columns)


def cells_of(public: Public, X: Any, a: Any, y: Any) -> Table | None:
    """The table of raw cells that a codebook makes records of.

    Parameters
    ----------
    public
        What is declared.
    X, a, y
        As of :meth:`Dataset.declared`. The cells of the treatment and of the outcome stand beside
        ``X``, and take the place of columns of their names.

    Returns
    -------
    cells
        The table of cells; None where there are no cells but the numbers of the records: without
        a codebook, and of a :class:`Dataset`.
    """
    book = public.codebook
    if book is None or isinstance(X, Dataset) or a is None or y is None:
        return None
    table, _ = _raw(X, public.columns, book)
    beside = {str(book.treatment.column or "a"): a, str(book.outcome or "y"): y}
    names = [name for name in table.names if name not in beside]

    def column(name: str) -> Any:
        if name in beside:
            return as_column(beside[name], name)
        return table.column(name)

    return Table(table.source, (*names, *beside), column, table.place)


def _raw(X: Any, names: Sequence[str] | None, book: Codebook) -> tuple[Table, Sequence[str]]:
    """Raw columns by name, and the names of the covariates that they become.

    Parameters
    ----------
    X
        A data frame, or an array with the raw columns in their order.
    names
        Names of the covariates, where they are declared.
    book
        Makes covariates of raw columns.

    Raises
    ------
    DeclarationError
        Where the codebook names covariates after levels, and no names are declared.
    DataError
        Where an array has another number of columns.
    """
    if column_names(X) is not None:
        table = read_frame(X)
        if names is None and book.renames:
            raise DeclarationError(
                "levels and missing values need named ranges: those of Codebook.ranges"
            )
        return table, names or [name for name in table.names if name not in book.no_covariates]
    array = as_cells(X, "X")
    n_columns = array.shape[1] if array.ndim == 2 else -1
    raw = _numbered_names(n_columns) if names is None else list(book.columns(names))
    if n_columns != len(raw) or not raw:
        raise DataError(
            f"X has shape {array.shape}: must have the columns {', '.join(raw) or 'of covariates'}"
        )
    places = {name: place for place, name in enumerate(raw)}
    return Table("X", tuple(raw), lambda name: array[:, places[name]]), names or raw


@dataclass(frozen=True)
class _RecordsOfCells:
    """Records while a codebook makes them of cells, in n rows.

    Parameters
    ----------
    covariates
        (n, p), in their own units.
    arms
        (n,) numbers of arms; -1 of a record without one, until it is completed.
    outcomes
        (n,); nan of a record without one, until it is completed.
    counts
        What the records count: (n,), or (n, K) in K groups.
    """

    covariates: NDArray[np.float64]
    arms: NDArray[np.int64]
    outcomes: NDArray[np.float64]
    counts: NDArray[np.float64]

    @classmethod
    def read(
        cls,
        book: Codebook,
        table: Table,
        names: Sequence[str],
        middles: Sequence[float],
        a: Any,
        y: Any,
    ) -> Self:
        """What the cells say, each record by its own.

        Parameters
        ----------
        book
            Says how cells are read.
        table
            The cells of the covariates, and of what the codebook names beside them.
        names
            Names of the p covariates.
        middles
            (p,) middles of their ranges, for cells that say nothing.
        a, y
            (n,) cells of the treatment and of the outcome.

        Raises
        ------
        DataError
            Where the numbers of rows differ.
        """
        column = book.read(table)
        arms, outcomes = _arms_and_outcomes(book, table, a, y)
        covariates = book.covariates(column, names, middles)
        sampling_weights = np.ones(len(arms))
        if book.sampling_weights is not None:
            sampling_weights = book.sampling_weights.of(column(book.sampling_weights.column))
        if not len(covariates) == len(arms) == len(outcomes):
            sizes = f"{len(covariates)}, {len(arms)} and {len(outcomes)}"
            raise DataError(f"X, a and y have {sizes} rows: must be as many")
        counts = book.counts(column, sampling_weights)
        return cls(covariates, arms, outcomes, counts)

    def completed(
        self, book: Codebook, middles: Sequence[float], outcome_if_missing: float
    ) -> Self:
        """The records with an arm and an outcome each; those that had none may count nothing.

        A record is lost where it has no arm or does not count at all: it becomes one fixed record.

        Parameters
        ----------
        book
            Says whether records may be excluded, and whether one without an outcome counts.
        middles
            (p,) covariates of a lost record.
        outcome_if_missing
            Outcome of a lost record, and of one without an outcome.
        """
        is_lost = self.arms < 0
        if book.may_exclude:
            is_lost = is_lost | (total_counts(self.counts) == 0.0)
        outcome_is_missing = np.isnan(self.outcomes)
        covariates = self.covariates
        covariates[is_lost] = middles
        arms = np.where(is_lost, 0, self.arms)
        outcomes = np.where(is_lost | outcome_is_missing, outcome_if_missing, self.outcomes)
        # a record without an outcome counts only where a value is declared for that
        is_uncounted = is_lost
        if book.outcome not in book.missing:
            is_uncounted = is_lost | outcome_is_missing
        counts = np.where(is_uncounted, 0.0, self.counts.T).T
        return type(self)(covariates, arms, outcomes, counts)

    def with_rows_of_nobody(self, n_rows: int, middles: Sequence[float], outcome: float) -> Self:
        """The records, and behind them as many rows that are nobody's and count nothing."""
        covariates = self.covariates.reshape(-1, len(middles))
        return type(self)(
            np.vstack([covariates, *[middles] * n_rows]),
            _padded(self.arms, n_rows, 0),
            _padded(self.outcomes, n_rows, outcome),
            _padded(self.counts, n_rows, 0.0),
        )


def _refuse_wrong_names(
    columns: Sequence[str], treatment: str, outcome: str, n_covariates: int
) -> None:
    """Raise DataError unless there is one name for every covariate, and all names differ."""
    if len(columns) != n_covariates:
        raise DataError(f"columns: {len(columns)} names for the {n_covariates} columns of X")
    if n_covariates == 0:
        raise DataError("X has no columns: at least one covariate is needed")
    twice = repeated((*columns, treatment, outcome))
    if twice is not None:
        raise DataError(f"column name {brief(twice)} is used twice: names must differ")


def _refuse_uncoded(book: Codebook, dataset: Dataset) -> None:
    """Raise DataError for a dataset without the groups or the arms that a codebook declares."""
    if book.groups and (dataset.sampling is None or dataset.sampling.ndim == 1):
        raise DataError("groups are declared, and these records come without any")
    if dataset.n_arms != len(book.treatment.labels):
        raise DataError("arms are declared, and these records come without any")


def _arms_and_outcomes(
    book: Codebook, table: Table, a: Any, y: Any
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The arm (n,) of every record, or -1 without one, and its outcome (n,), or nan without one.

    Parameters
    ----------
    book
        Says how cells are read.
    table
        Holds the cells of units that numbers are in.
    a, y
        (n,) cells of the treatment and of the outcome.
    """
    treatment_cells = _cells(a, "a", read=as_column)
    outcome_cells = _cells(y, "y", read=as_column)
    treatments = book.read_as(book.treatment.column, treatment_cells, table)
    arms = book.treatment.arms(treatments)
    outcomes = book.read_as(book.outcome, outcome_cells, table)
    return arms, numbers_or_nan(outcomes, book.outcome or "y")


def _padded(values: NDArray[Any], n_rows: int, value: float) -> NDArray[Any]:
    """An array (n,) or (n, K) with ``n_rows`` rows of one value behind its own."""
    behind = ((0, n_rows), (0, 0))
    return np.pad(values, behind[: values.ndim], constant_values=value)


def _cells(
    values: Any,
    name: str,
    ndim: int = 1,
    rows: int | None = None,
    read: Callable[[Any, str], NDArray[Any]] = as_array,
) -> NDArray[Any]:
    """Cells of a shape (n,) or (n, p).

    Raises
    ------
    DataError
        For another shape, and for another number of rows.
    """
    array = read(values, name)
    if array.ndim != ndim:
        wanted = "(n, p)" if ndim == 2 else "(n,)"
        if array.ndim == 2 and array.shape[1] == 1:
            wanted += ", such as its only column"
        raise DataError(f"{name} has shape {array.shape}: must be {wanted}")
    if rows is not None and len(array) != rows:
        raise DataError(f"{name} has {len(array)} values for the {rows} rows of X")
    return array


def _record_counts(sampling: Any, n_records: int) -> NDArray[np.float64]:
    """What records count, (n,) or by group (n, K). Raises DataError for no finite number."""
    ndim = 2 if np.ndim(sampling) == 2 else 1
    cells = _cells(sampling, "sampling", ndim, n_records)
    return to_numbers(cells.ravel(), "sampling").reshape(cells.shape)


def _persons(person: Any, persons: int | None, n_rows: int) -> NDArray[np.int64]:
    """The person (n,) of every row, a whole number below their number."""
    numbers = np.array(person)
    if persons is None:
        raise DataError("person: goes with persons, their public number")
    if numbers.shape != (n_rows,) or numbers.dtype.kind not in "iu":
        raise DataError(f"person has shape {numbers.shape}: must be {n_rows} whole numbers")
    if np.any((numbers < -1) | (numbers >= persons)):
        raise DataError(f"person: must be from -1 to {persons - 1}")
    return numbers.astype(np.int64)


def _treatments(values: NDArray[np.float64], name: str, n_arms: int) -> NDArray[np.int64]:
    """The number (n,) of the arm of every record. Raises DataError for any other number."""
    wrong = np.flatnonzero(~np.isin(values, np.arange(n_arms)))
    if wrong.size:
        first_row = wrong[0]
        allowed = "0 or 1" if n_arms == 2 else f"a whole number from 0 to {n_arms - 1}"
        raise DataError(
            f"row {first_row + 1}, column {brief(name)}: {values[first_row]:g} is not a treatment: "
            f"must be {allowed}"
        )
    return values.astype(np.int64)


def _to_table(values: NDArray[Any], names: Sequence[str]) -> NDArray[np.float64]:
    """Columns (n, k) as finite float64 in C order, read-only.

    Returns
    -------
    Array
        A view of ``values`` where they are that already, and one copy of them where they are not.

    Raises
    ------
    DataError
        Names the first column that holds no finite numbers.
    """
    are_numbers = values.dtype.kind in "buif"
    if values.dtype == np.float64 and values.flags.c_contiguous and values.flags.aligned:
        table = values.view()
    elif are_numbers:
        # extended precision may hold more than a double: judged below
        with np.errstate(over="ignore"):
            table = values.astype(np.float64, order="C")
    if not are_numbers or not np.isfinite(table).all():
        table = np.empty(values.shape)
        for k, name in enumerate(names):
            table[:, k] = to_numbers(values[:, k], name)
    table.flags.writeable = False
    return table
