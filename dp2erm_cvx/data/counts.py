"""What records count: by the sampling weights of a survey, or as one of several of a person."""

from __future__ import annotations

import decimal
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.checks import check_settings, one_line, public_size, setting, whole_number
from dp2erm_cvx.data.tables import distinct_labels, numbers_or_nan
from dp2erm_cvx.errors import DataError, DeclarationError

#: Blanks and NUL, which stand around an identifier for nothing.
_AROUND = "\0" + "".join(filter(str.isspace, map(chr, range(2**14))))
#: Decimal digits that a whole number has at most: int() would take for ever for a Decimal of
#: millions.
_MOST_DIGITS = 100
#: The first whole number of more digits.
_LEAST_TOO_LONG: int = 10**_MOST_DIGITS
#: What every release by sampling weights rests on: the guarantee is about records, weights
#: included.
OWN_RECORD = (
    "a sampling weight is part of its own record: nothing about the other records has entered it"
)


def total_counts(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """What every record counts in all groups together, (n,), by ``counts`` (n,) or (n, K)."""
    if counts.ndim == 1:
        return counts
    return np.asarray(np.sum(counts, axis=1))


@dataclass(frozen=True)
class SamplingWeights:
    """The column of the sampling weights, and their public bound.

    Estimates are then of the population in which a record counts by its weight s. It enters as the
    factor ``s / largest`` in [0, 1] on losses and scores (Theorem 13): only ``largest / mean``
    matters for the noise.

    Parameters
    ----------
    column
        Its name.
    largest
        S > 0: a weight beyond it counts as S, a negative one as 0.
    missing
        In [0, S]: what a cell counts as that is no finite number. The default 0 leaves that record
        out.
    mean
        In (0, S]: a public guess of what the weights average to, 1 for those that are normalized.
        It is for predictions and default settings; no guarantee rests on it.

    Raises
    ------
    DeclarationError
        For an invalid entry, which it names.
    """

    column: str = setting(check=one_line, title="sampling_weights: ")
    largest: float = setting(check=public_size, title="sampling_weights: ")
    missing: float = setting(0.0, at_least=0.0, title="sampling_weights: ")
    mean: float = setting(1.0, above=0.0, title="sampling_weights: ")

    def __post_init__(self) -> None:
        check_settings(self)
        for name in ("missing", "mean"):
            value = getattr(self, name)
            if value > self.largest:
                text = f"{name} = {value:g}: must be at most largest = {self.largest:g}"
                raise DeclarationError(f"sampling_weights: {text}")
        if not self.mass > 0.0:  # which noise is predicted to grow by
            raise DeclarationError(
                f"sampling_weights: mean = {self.mean:g}: is nothing beside largest"
            )

    @property
    def mass(self) -> float:
        """Mean factor, by the public guess of the mean weight."""
        return self.mean / self.largest

    def of(self, cells: Any) -> NDArray[np.float64]:
        """The weights (n,) in [0, S] of the cells of the column, each by itself."""
        return self._inside(numbers_or_nan(cells, self.column))

    def factors(self, weights: ArrayLike) -> NDArray[np.float64]:
        """Factors in [0, 1] of records with these ``weights`` (n,).

        What is no number counts as missing.
        """
        # of two numbers, one no larger: rounds to at most 1
        return np.asarray(self._inside(np.asarray(weights, dtype=np.float64)) / self.largest)

    def _inside(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights (n,) clipped to [0, S], with the declared one where one is missing."""
        present = np.where(np.isnan(weights), self.missing, weights)
        return np.clip(present, 0.0, self.largest)

    def in_words(self) -> str:
        """The public rule in words."""
        lost = "does not count"
        if self.missing:
            lost = f"counts as {self.missing:g}"
        return (
            f"{self.column} is a sampling weight from 0 to {self.largest:g}, and one that is "
            f"missing {lost}"
        )


@dataclass(frozen=True)
class Unit:
    """Persons with several records, each of whom is protected with all of them (Theorem 24).

    A neighbor replaces all records of one person by any others, of whatever number. Each of the k
    records of a person that count does so by 1/max(k, m), m the ``count``. The number of rows is as
    private as cells.

    Parameters
    ----------
    column
        That of the identifiers. Text is compared as it is written, blanks around it aside: "0012"
        and "12" are two persons. A whole number is its decimal text: 12, "12" and a float 12.0 are
        one person. A row of nobody does not count: its cell is empty, nan, a number that is not
        whole or so large that its type rounds it, true or false, a date, or text with bytes that
        could not be read.
    number
        N >= 2, the public number of persons. A table with more of them is outside of what is
        declared; where it has fewer, the others are persons without records.
    count
        m >= 1: a person counts as many times as it has records, but no more than m times. Estimates
        are then means over records, exactly so where nobody has more than m. The noise of sums is
        that of ``number`` records that count m each: up to m times as much, relative to what
        counts.

    Raises
    ------
    DeclarationError
        For an invalid entry, which it names.
    """

    column: str = setting(check=one_line, title="unit: ")
    number: int = setting(check=whole_number, at_least=2, title="unit: ")
    count: int = setting(1, whole_number, at_least=1, title="unit: ")

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def mass(self) -> float:
        """A public guess of what persons count on average, of at most 1.

        Every number of records up to m is guessed to be as likely.
        """
        return 0.5 + 0.5 / self.count

    def labels(self, cells: Any) -> tuple[NDArray[np.object_], NDArray[np.int64]]:
        """The distinct labels of cells (n,), sorted, and the place (n,) of that of every cell."""
        texts, place = distinct_labels(cells, self.column, _identifier)
        names, index = np.unique(np.array(texts, dtype=object), return_inverse=True)
        return names, index.reshape(-1)[place]

    def of(
        self, parts: Sequence[tuple[NDArray[np.object_], NDArray[np.int64]]]
    ) -> NDArray[np.int64]:
        """The person (n,) of every row.

        Parameters
        ----------
        parts
            Of every part of a table what :meth:`labels` makes of its cells.

        Returns
        -------
        Array
            Numbers from 0 to N - 1, and -1 for nobody.

        Raises
        ------
        DataError
            For the data holder alone, where there are more persons than are declared.
        """
        names = np.unique(np.concatenate([part_names for part_names, _ in parts]))
        # the empty label, which is nobody's, sorts first
        has_nobody = len(names) > 0 and not names[0]
        first = 1 if has_nobody else 0
        n_persons = len(names) - first
        if n_persons > self.number:
            raise DataError(
                f"column {self.column!r} has {n_persons} persons, and number = {self.number} is "
                "declared: these data are outside the declared universe"
            )
        persons = [np.searchsorted(names, part_names)[place] - first for part_names, place in parts]
        return np.concatenate(persons)

    def repeats(self, counts: NDArray[np.float64], person: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many rows of the person of every row count, (n,); 0 for a row that does not.

        Parameters
        ----------
        counts
            (n,) or (n, K): a row counts where these are above 0.
        person
            The person (n,) of every row, negative for nobody.
        """
        is_counted = (person >= 0) & (total_counts(counts) > 0.0)
        rows_of_person = np.bincount(person[is_counted], minlength=1)
        return np.where(is_counted, rows_of_person[np.where(is_counted, person, 0)], 0)

    def shared(
        self,
        counts: NDArray[np.float64],
        person: ArrayLike | None,
        repeats: ArrayLike | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """What rows count where the rows of a person share what it counts (Theorem 24).

        Each of the k rows of a person that count does so by 1/max(k, m). Shares are rounded down,
        so that they add up to at most 1.

        Parameters
        ----------
        counts
            (n,) or (n, K): what rows count by themselves.
        person
            The person (n,) of every row, negative for nobody.
        repeats
            The k (n,), where other rows of these persons are elsewhere.

        Returns
        -------
        counts, person
            The shared counts, and the persons again: the first for nobody, whose rows count 0.

        Raises
        ------
        DeclarationError
            Unless every row has a person below N.
        """
        unit = np.array(-1 if person is None else person, dtype=np.int64)
        if unit.shape != counts.shape[:1] or np.any(unit >= self.number):
            raise DeclarationError(
                f"person: must say which of {self.number} persons every record is of"
            )
        n_rows = self.repeats(counts, unit) if repeats is None else np.asarray(repeats)
        divisor = np.maximum(n_rows, float(self.count))
        share = np.where(divisor > 1.0, np.nextafter(1.0 / divisor, 0.0), 1.0)
        share = np.where(n_rows > 0, share, 0.0)
        return (counts.T * share).T, np.maximum(unit, 0)

    def in_words(self) -> str:
        """The public rule in words."""
        together = "as much as one"
        if self.count > 1:
            together = f"at most as much as {self.count}"
        return (
            f"a person is whoever has the same {self.column}, as it is written but for spaces "
            "around it, so that 0012 is not 12; a person's records that count do so alike, "
            f"together {together}; a row without it does not count"
        )


def _identifier(cell: Any) -> str:
    """The person that a cell names, empty for nobody: of the cell alone, and never through a float.

    Whole numbers are their decimal text, floats below what their type rounds at.
    """
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "replace")
    if isinstance(cell, str):
        text = str.strip(cell, _AROUND)
        return "" if "\ufffd" in text or text.lower() == "nan" else text
    if isinstance(cell, complex | np.complexfloating):  # as all numbers are beside such a cell
        return _identifier(cell.real) if cell.imag == 0 else ""
    if isinstance(cell, uuid.UUID):
        return str(cell)
    return str(int(cell)) if _is_exactly_whole(cell) else ""


def _is_exactly_whole(cell: Any) -> bool:
    """True if a cell is a whole number that its type has not rounded."""
    if isinstance(cell, float | np.floating):
        bits = 53 if isinstance(cell, float) else min(np.finfo(cell).nmant + 1, 53)
        largest: float = 2.0**bits
        return bool(-largest < cell < largest and cell % 1 == 0)
    if isinstance(cell, decimal.Decimal):
        is_short = cell.is_finite() and abs(cell.adjusted()) < _MOST_DIGITS
        return is_short and cell.as_integer_ratio()[1] == 1
    # numpy counts a duration among integers
    if isinstance(cell, bool | np.timedelta64) or not isinstance(cell, int | np.integer):
        return False
    return abs(int(cell)) < _LEAST_TOO_LONG


def _has_sampling_weights(book: Any) -> bool:
    return book.sampling_weights is not None


def _counts_persons_several_times(book: Any) -> bool:
    return book.unit is not None and book.unit.count > 1


def _has_several_arms(book: Any) -> bool:
    return bool(book.treatment.levels)


def _has_persons(book: Any) -> bool:
    return book.unit is not None


def _has_groups(book: Any) -> bool:
    return book.group is not None


#: What a codebook may declare that not everything can take, and how it is refused.
_UNKNOWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "sampling": (
        _has_sampling_weights,
        "sampling_weights: not for {what}; leave them out of the domain to estimate for the "
        "sample itself, or use PrivateEffect or PrivateRule ([[effect]] or [[rule]] of a study)",
    ),
    "counts": (
        _counts_persons_several_times,
        "unit: count = {book.unit.count}: not for {what}; with count = 1 every person counts once",
    ),
    "arms": (
        _has_several_arms,
        "treatment: levels: {what} knows two arms: declare treated and control, or use "
        "PrivateEffect ([[effect]] of a study)",
    ),
    "units": (
        _has_persons,
        "unit: {what} protects single records, not persons with several; use PrivateEffect or "
        "PrivateRule ([[effect]] or [[rule]] of a study), or make one record of every person",
    ),
    "groups": (
        _has_groups,
        "by: {what} has no groups: use PrivateEffect ([[effect]] of a study)",
    ),
}


KINDS = tuple(_UNKNOWN)


def declares(codebook: Any, *kinds: str) -> bool:
    """Whether a codebook, if any, declares any of these kinds: those of :func:`refuse`."""
    if codebook is None:
        return False
    return any(is_declared(codebook) for is_declared, _ in _rows_of(kinds))


def refuse(codebook: Any, what: str, *kinds: str) -> None:
    """Raise DeclarationError where a codebook declares what something cannot take.

    Parameters
    ----------
    codebook
        The codebook, if there is one.
    what
        What cannot take it, for the message.
    kinds
        Of sampling, counts (persons that count more than once), arms, units, groups.
    """
    if codebook is None:
        return
    for is_declared, text in _rows_of(kinds):
        if is_declared(codebook):
            raise DeclarationError(text.format(what=what, book=codebook))


def _rows_of(kinds: Sequence[str]) -> list[tuple[Callable[[Any], bool], str]]:
    return [_UNKNOWN[kind] for kind in kinds]
