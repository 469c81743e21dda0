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
        table = _cells(self.X, "X", 2)
        n_samples, width = table.shape
        a, y = (_cells(getattr(self, name), name, rows=n_samples) for name in "ay")
        names = *columns, treatment, outcome = (
            *map(str, (*self.columns, self.treatment, self.outcome)),
        )
        if len(columns) != width:
            raise DataError(f"columns: {len(columns)} names for the {width} columns of X")
        if width == 0:
            raise DataError("X has no columns: at least one covariate is needed")
        if (twice := repeated(names)) is not None:
            raise DataError(f"column name {brief(twice)} is used twice: names must differ")
        if n_samples < self.least:
            raise DataError(f"{n_samples} record(s): at least {self.least} are needed")
        put, arms = (
            object.__setattr__,
            _treatments(to_numbers(a, treatment), treatment, self.n_arms),
        )
        arrays: dict[str, Any] = {
            "X": _to_table(table, columns),
            "a": arms,
            "y": to_numbers(y, outcome),
        }
        if self.sampling is not None:  # (n,) or (n, K)
            counts = _cells(
                self.sampling, "sampling", 2 if np.ndim(self.sampling) == 2 else 1, n_samples
            )
            arrays["sampling"] = to_numbers(counts.ravel(), "sampling").reshape(counts.shape)
        if self.person is not None:
            arrays["person"] = _persons(self.person, self.persons, n_samples)
        for field, value in arrays.items():
            value.setflags(write=False)
            put(self, field, value)
        for field, value in (
            ("columns", tuple(columns)),
            ("treatment", treatment),
            ("outcome", outcome),
        ):
            put(self, field, value)

    def __repr__(self) -> str:
        # no values: a repr ends up in logs
        return f"Dataset(n_samples={self.n_samples}, columns={self.columns})"

    @property
    def n_samples(self) -> int:
        """n: the number of records, or of persons where they are units."""
        return len(self.a) if self.person is None or self.persons is None else self.persons

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
        X, names = self.X[:, columns], tuple(self.columns[k] for k in columns)
        if curves is not None:
            X, names = np.column_stack([X, curves.terms(X)]), (*names, *curves.names(names))
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

        Without ``columns``, the names are those of ``X`` if it is a data frame, and x1, ..., xp if
        not.
        """
        table = as_array(X, "X")
        if columns is None:
            columns = column_names(X)
        *named, treatment, outcome = all_names(table.shape[1] if table.ndim == 2 else 0, columns)
        vectors = as_array(a, "a"), as_array(y, "y")
        return cls(table, *vectors, tuple(named), treatment, outcome, n_arms=n_arms)

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

        Every record depends on its own cells alone (Theorem 10). Where persons are units, rows of
        nobody fill a table up to ``least``.

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
        column = book.read(table)
        treatment_cells = _cells(a, "a", read=as_column)
        outcome_cells = _cells(y, "y", read=as_column)
        treatments = book.read_as(book.treatment.column, treatment_cells, table)
        arms = book.treatment.arms(treatments)
        read_outcomes = book.read_as(book.outcome, outcome_cells, table)
        outcomes = numbers_or_nan(read_outcomes, book.outcome or "y")
        covariates = book.covariates(column, names, middles)
        counts = np.ones(len(arms))
        if book.sampling_weights is not None:
            counts = book.sampling_weights.of(column(book.sampling_weights.column))
        if not len(covariates) == len(arms) == len(outcomes):
            sizes = f"{len(covariates)}, {len(arms)} and {len(outcomes)}"
            raise DataError(f"X, a and y have {sizes} rows: must be as many")
        counts = book.counts(column, counts)
        # a lost record has no arm or does not count at all: it becomes one fixed record
        lost = arms < 0
        if book.may_exclude:
            lost = lost | (total_counts(counts) == 0.0)
        absent = np.isnan(outcomes)
        outcome_middle = book.missing.get(book.outcome or "", public.outcome_middle)
        covariates[lost] = middles
        arms = np.where(lost, 0, arms)
        outcomes = np.where(lost | absent, outcome_middle, outcomes)
        # a record without an outcome counts only where a value is declared for that
        uncounted = lost if book.outcome in book.missing else lost | absent
        counts = np.where(uncounted, 0.0, counts.T).T
        persons = None
        if book.unit is not None:
            persons = book.unit.number
            if person is None:
                cells = table.cells(book.unit.column, written=True)
                person = book.unit.of([book.unit.labels(cells)])
            # rows of nobody, whose arm is the first and whose outcome the middle
            more = max(cls.least - len(arms), 0)
            covariates = np.vstack([covariates.reshape(-1, len(names)), *[middles] * more])
            arms = _padded(arms, more, 0)
            outcomes = _padded(outcomes, more, outcome_middle)
            counts = _padded(counts, more, 0.0)
            person = _padded(person, more, -1)
        return cls(
            covariates,
            arms,
            outcomes,
            tuple(names),
            book.treatment.column or "a",
            book.outcome or "y",
            counts,
            person if book.unit is not None else None,
            persons,
            n_arms=len(book.treatment.labels),
        )

    @classmethod
    def declared(cls, public: Public, X: Any, a: Any = None, y: Any = None) -> Dataset:
        """Checked raw data (n, k), (n,), (n,).

        They have the declared names of their columns, if there are any.

        Where a codebook is declared, it makes records of whatever their cells hold; a dataset alone
        has been made by it. Raises DataError for what is no data of the declared universe,
        DeclarationError where the columns are others.
        """
        book = public.codebook
        if isinstance(a, str) and isinstance(y, str):
            covariates = "X" if book is not None else f"X.drop(columns=[{a!r}, {y!r}])"
            raise DataError(
                f"a and y are names: give their cells, by fit({covariates}, X[{a!r}], X[{y!r}])"
            )
        made, n_arms = isinstance(X, Dataset), 2 if book is None else len(book.treatment.labels)
        if book is not None and not made:
            dataset = cls.coded(public, X, a, y)
        elif not made:
            named = column_names(X)
            columns = public.columns if named is None else tuple(named)
            dataset = cls.from_arrays(X, a, y, columns, n_arms)
        else:
            dataset = replace(X, repeats=None)  # these are all rows of everybody
        if (
            book is not None
            and book.groups
            and (dataset.sampling is None or dataset.sampling.ndim == 1)
        ):
            raise DataError("groups are declared, and these records come without any")
        if book is not None and dataset.n_arms != n_arms:
            raise DataError("arms are declared, and these records come without any")
        refuse_undeclared(public, dataset, dataset.arm_sizes)
        return dataset

    def at(self, rows: NDArray[np.int64]) -> DatasetBlock:
        """The records of these rows."""
        how: dict[str, Any] = {
            name: getattr(self, name) for name in ("sampling", "person", "repeats")
        }
        how = {name: None if one is None else one[rows] for name, one in how.items()}
        how |= {name: getattr(self, name) for name in ("treatment", "outcome", "persons", "n_arms")}
        return DatasetBlock(self.X[rows], self.a[rows], self.y[rows], self.columns, **how)

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

        Raises DataError where there is none.
        """
        if isinstance(covariates, str):
            raise DataError(f"covariates = {covariates!r}: must be a list of column names")
        rest = [name for name in names if name not in (treatment, outcome)]
        if not (chosen := tuple(rest if covariates is None else covariates)):
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
        """Read a file, see :func:`~dp2erm_cvx.data.files.read_table`, or a data frame, or a table.

        Without ``covariates``, every other column is one.
        """
        file = isinstance(source, str | Path)
        table = read_table(str(source), layout) if file else read_frame(source)
        chosen = cls.chosen(table.source, table.names, treatment, outcome, covariates)
        a: Any = table.numbers(treatment)
        y = table.numbers(outcome)
        X = np.empty((len(a), len(chosen)))
        for k, name in enumerate(chosen):
            X[:, k] = table.numbers(name)
        return cls(X, a, y, chosen, treatment, outcome)


def refuse_undeclared(public: Public, data: Any, arms: Callable[[], Sequence[int]] = tuple) -> None:
    """Raise DeclarationError where a dataset has other columns than are declared.

    The dataset is in memory or in blocks.

    DataError where it has other persons, no sampling weights though they are declared, or too small
    an arm.
    """
    book = public.codebook
    if data.persons != (None if book is None or book.unit is None else book.unit.number):
        raise DataError("unit: the persons of the dataset are not those of the domain")
    if book is not None and book.sampling_weights is not None and not data.weighted:
        raise DataError("the domain declares sampling weights: the dataset has none")
    if public.columns is not None and data.columns != public.columns:
        declared, held = (", ".join(columns) for columns in (public.columns, data.columns))
        raise DeclarationError(f"the domain declares the columns {declared}; the data have {held}")
    floor, sizes = getattr(public, "arm_floor", None), arms()
    if floor is not None and min(sizes, default=floor) < floor:
        # outside the guarantee, like every message about invalid data: no theorem covers such a
        # dataset
        raise DataError(
            f"an arm has fewer than the declared arm_floor = {floor} records: these data are "
            "outside the declared universe"
        )


class DatasetBlock(Dataset):
    """Some records of a dataset, of any number."""

    least: ClassVar[int] = 0


def all_names(width: int, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Names of covariates, and of the treatment and the outcome.

    Without ``columns`` the covariates are x1, ..., x``width``.
    """
    names = (
        [f"x{k + 1}" for k in range(width)] if columns is None else [str(name) for name in columns]
    )
    # a covariate may be called a or y
    optional = (
        next(name for k in range(len(names) + 1) if (name := c + k * "_") not in names)
        for c in "ay"
    )
    return (*names, *optional)


def rows_to_predict(public: Public, X: Any, columns: Sequence[str]) -> NDArray[np.float64]:
    """Rows that are predicted, as :func:`covariate_table` reads them.

    Where a column has none of its levels they count by their mean.
    """
    rows = covariate_table(public, X, columns)
    return rows if public.codebook is None else public.codebook.with_mean_levels(rows, columns)


def covariate_table(public: Public, X: Any, columns: Sequence[str]) -> NDArray[np.float64]:
    """Raw covariates (m, k) of these columns in their order, by name where X is a frame.

    Those that a codebook makes of cells are made as in :meth:`Dataset.coded`. Raises DataError on a
    missing column, a wrong shape, nan, inf or text.
    """
    if isinstance(X, Dataset):  # made by the codebook, if there is one
        values, own = X.X, X.columns
        X = Table("X", own, lambda name: values[:, own.index(name)])
    elif public.codebook is not None:
        table, names = _raw(X, columns, public.codebook)
        return public.codebook.covariates(
            public.codebook.read(table), names, public.middles(len(names))
        )
    if column_names(X) is not None:
        table = read_frame(X)
        return np.column_stack([table.numbers(name) for name in columns])
    values = np.asarray(X)
    if values.ndim != 2 or values.shape[1] != len(columns):
        raise DataError(f"X has shape {values.shape}: must have the columns {', '.join(columns)}")
    return _to_table(values, columns)


def cells_of(public: Public, X: Any, a: Any, y: Any) -> Table | None:
    """The cells that records are made of.

    Those of the treatment and of the outcome are beside ``X``.

    Parameters
    ----------
    public
        What is declared; without a codebook cells are numbers.
    X, a, y
        As of :meth:`Dataset.declared`.

    None where there are no cells but the records.
    """
    book = public.codebook
    if book is None or isinstance(X, Dataset) or a is None or y is None:
        return None
    table, _ = _raw(X, public.columns, book)
    own = {str(book.treatment.column or "a"): a, str(book.outcome or "y"): y}
    names = (*(name for name in table.names if name not in own), *own)

    def column(name: str) -> Any:
        return as_column(own[name], name) if name in own else table.column(name)

    return Table(table.source, names, column, table.place)


def _raw(X: Any, names: Sequence[str] | None, book: Codebook) -> tuple[Table, Sequence[str]]:
    """Raw columns by name, and the covariates that they become."""
    if column_names(X) is not None:
        table = read_frame(X)
        if names is None and book.renames:
            raise DeclarationError(
                "levels and missing values need named ranges: those of Codebook.ranges"
            )
        return table, names or [name for name in table.names if name not in book.no_covariates]
    array = as_cells(X, "X")
    width = array.shape[1] if array.ndim == 2 else -1
    raw = [f"x{k + 1}" for k in range(width)] if names is None else list(book.columns(names))
    if width != len(raw) or not raw:
        raise DataError(
            f"X has shape {array.shape}: must have the columns {', '.join(raw) or 'of covariates'}"
        )
    places = {name: k for k, name in enumerate(raw)}
    return Table("X", tuple(raw), lambda name: array[:, places[name]]), names or raw


def _padded(values: NDArray[Any], more: int, value: float) -> NDArray[Any]:
    """An array (n,) or (n, K) with ``more`` rows of one value behind its own."""
    behind = ((0, more), (0, 0))
    return np.pad(values, behind[: values.ndim], constant_values=value)


def _cells(
    values: Any,
    name: str,
    ndim: int = 1,
    rows: int | None = None,
    read: Callable[[Any, str], NDArray[Any]] = as_array,
) -> NDArray[Any]:
    """Cells of a shape (n,) or (n, p).

    Raises DataError for another shape, and for another number of rows.
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
    wrong = np.flatnonzero(~np.isin(values, np.arange(n_arms)))
    if wrong.size:
        row, value = wrong[0] + 1, values[wrong[0]]
        must = "0 or 1" if n_arms == 2 else f"a whole number from 0 to {n_arms - 1}"
        raise DataError(
            f"row {row}, column {brief(name)}: {value:g} is not a treatment: must be {must}"
        )
    return values.astype(np.int64)


def _to_table(values: NDArray[Any], names: Sequence[str]) -> NDArray[np.float64]:
    """Columns (n, k) as finite float64 in C order.

    Raises DataError naming the first column that is not.

    A read-only view of ``values`` where they are that already, and one copy of them where they are
    not.
    """
    sound = values.dtype.kind in "buif"
    if values.dtype == np.float64 and values.flags.c_contiguous and values.flags.aligned:
        table = values.view()
    elif sound:
        with np.errstate(
            over="ignore"
        ):  # extended precision may hold more than a double: judged below
            table = values.astype(np.float64, order="C")
    if not sound or not np.isfinite(table).all():
        table = np.empty(values.shape)
        for k, name in enumerate(names):
            table[:, k] = to_numbers(values[:, k], name)
    table.flags.writeable = False
    return table
