"""Effects at rows of a table, with what could not be read of them: post-processing of a release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.tables import Table, as_column, numbers_or_nan
from dp2erm_cvx.release.rule import RuleRelease, effects
from dp2erm_cvx.release.two_stage import Release


@dataclass(frozen=True)
class Predictions:
    """Estimated effects at the rows of a table.

    Parameters
    ----------
    effects
        (m,) in units of the outcome and net of the treatment cost; nan where a row tells too
        little: without a codebook where a number is missing, with one where none of its cells is
        read.
    notes
        Sentences on what was not read, or lies beyond the declared ranges, for whoever holds the
        table.
    """

    effects: Array
    notes: tuple[str, ...]


def predictions(release: Release | RuleRelease, table: Table) -> Predictions:
    """Estimated net effects at the rows of a table, each by its own cells.

    Raises DataError for a column that is not there, DeclarationError for a release that is no rule.
    """
    book = release.public.codebook
    if book is None:
        return _of_numbers(release, table)
    return _of_coded(release, table, book)


def _of_numbers(release: Release | RuleRelease, table: Table) -> Predictions:
    """Effects at the rows of a table without a codebook; nan where a number is missing."""
    names = release.columns
    X = np.column_stack([numbers_or_nan(table.cells(name), name) for name in names])
    absent = np.isnan(X)
    complete = ~np.any(absent, axis=1)
    values = np.full(len(X), np.nan)
    if np.any(complete):
        values[complete] = effects(release, X[complete])
    notes = [
        *_absent_numbers(names, absent),
        *_beyond(release.public, X, names),
        *_left_empty(~complete),
    ]
    return Predictions(values, tuple(notes))


def _of_coded(release: Release | RuleRelease, table: Table, book: Codebook) -> Predictions:
    """Effects at the rows of a table with a codebook; nan where none of the cells is read."""
    values = np.array(effects(release, table))
    notes: list[str] = []
    nothing = np.ones(len(values), dtype=np.bool_)
    for column in book.columns(release.columns):
        unread, note = _unread(book, table, column)
        nothing &= unread
        if note:
            notes.append(note)
        if column not in book.level_sets:
            notes += _beyond_range(release.public, book, table, column)
    values[nothing] = np.nan
    return Predictions(values, (*notes, *_left_empty(nothing)))


def _rows(count: int) -> str:
    """A number of rows, with separators."""
    if count == 1:
        return "1 row"
    return f"{count:,} rows"


def _left_empty(nothing: NDArray[np.bool_]) -> Iterator[str]:
    """A note on the rows of which no effect is predicted."""
    count = int(nothing.sum())
    if count:
        yield f"{_rows(count)} left empty: too little is read of them to predict an effect"


def _absent_numbers(names: Sequence[str], absent: NDArray[np.bool_]) -> Iterator[str]:
    """Notes on the numbers (m, k) that are missing, where nothing stands for them."""
    for name, count in zip(names, absent.sum(axis=0).tolist(), strict=True):
        if count:
            yield f"{name}: {_rows(count)} without a number"


def _beyond(domain: Domain, X: Array, names: Sequence[str]) -> Iterator[str]:
    """Notes on the numbers (m, k) beyond their declared ranges."""
    for place, (low, high) in enumerate(domain.range_pairs):
        yield from _outside(names[place], X[:, place], low, high)


def _outside(name: str, values: Array, low: float, high: float) -> Iterator[str]:
    """A note on the values (m,) of a column that lie beyond a range."""
    count = int(np.sum((values < low) | (values > high)))
    if count:
        yield (
            f"{name}: {_rows(count)} beyond the declared range {low:g} to {high:g}, counted as its "
            "ends"
        )


def _beyond_range(domain: Domain, book: Codebook, table: Table, column: str) -> Iterator[str]:
    """A note on the numbers of a raw column beyond the declared range of its covariate."""
    covariate = next(iter(book.covariates_of(column)))
    columns = domain.columns or ()
    if covariate not in columns:
        return
    low, high = domain.range_pairs[columns.index(covariate)]
    own = numbers_or_nan(book.read(table)(column), column)
    if column in book.log:
        low, high = float(np.exp(low)), float(np.exp(high))
    yield from _outside(column, own, low, high)


def _unread(book: Codebook, table: Table, column: str) -> tuple[NDArray[np.bool_], str]:
    """Rows (m,) of which a raw column tells nothing, and a note on them; "" for no such row."""
    cells = as_column(book.read(table)(column), column)
    if column in book.levels:
        levels = book.level_sets[column]
        places = book.places(book.read(table), column)
        unread = places == len(levels)
        what = f"without one of its levels, {_taken_levels(book, column)}"
    else:
        unread = np.isnan(numbers_or_nan(cells, column))
        what = f"without a number, {_taken_number(book, column)}"
    count = int(unread.sum())
    if count == 0:
        return unread, ""
    return unread, f"{column}: {_rows(count)} {what}"


def _taken_levels(book: Codebook, column: str) -> str:
    """What stands for none of the levels of a raw column."""
    made = [name for name, pair in book.crosses.items() if column in pair] or [column]
    if all(len(book.covariate_levels[name]) > 1 for name in made):
        return "counted as their mean"
    return "counted as none"


def _taken_number(book: Codebook, column: str) -> str:
    """What stands for a missing number of a raw column."""
    if column in book.missing:
        return "counted as declared under [missing]"
    return "counted as the middle of its range"
