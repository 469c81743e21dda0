"""Contents of the columns of a raw table, and their fit to what is declared. For data holders."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.data.cells import folded
from dp2erm_cvx.data.codebook import OTHER, Codebook
from dp2erm_cvx.data.counts import Unit
from dp2erm_cvx.data.dataset import Dataset, Public
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.tables import Table, as_column, distinct_labels, labels, numbers_or_nan
from dp2erm_cvx.diagnostics.unread import (
    advice_on,
    is_date,
    is_other_decimal,
    key,
    says_missing,
    sign_of,
    signs_of,
    signs_of_read,
)
from dp2erm_cvx.errors import brief

#: Different texts of one column that are listed as levels; with more of them it is no category.
MOST_LEVELS = 20
#: Different labels of a column that are counted: what comes later is counted by its kind alone.
_KEPT = 10_000

_IDENTIFIER = re.compile(
    r"(^|[_\W])(p?id|mrn|person|patient|subject|participant|case)(no|nr|id)?($|[_\W])", re.I
)
#: Numbers that files write where there is none: -1, -9, -88, 999.
_CODE = re.compile(r"-[1789]|-?([789])\1+")


@dataclass(frozen=True)
class RecordCounts:
    """Counts of what becomes of records by what is declared: for the data holder alone.

    Parameters
    ----------
    outcome
        The column of the outcome.
    arms
        Records that count, by arm.
    missing
        Records without a treatment.
    clipped
        Values of the outcome that are beyond their bound.
    unreadable
        Cells by column that hold nothing declared: no label of the treatment, no level, no number.
    spelled
        Cells by a note on a label which a declared one is but for case and blanks.
    levels
        Cells by declared level.
    excluded
        Records of an arm that are not eligible, or outside of the declared groups: they are in no
        arm.
    absent
        Records of any arm that have no outcome.
    values
        Witnesses of whether the outcome is an event: the three smallest distinct values of those
        that count, or, from a dataset in memory, both ends, and nan where others lie between.
    outside
        Numbers by covariate that are beyond their declared range.
    blank
        Those of the unreadable cells, by column, that are empty or say that they are, such as NA.
    gaps
        Cells by covariate column that are empty or hold nothing declared, of the records that
        count, by arm (K,). One that is declared for an empty cell is a gap too.
    signs
        Texts in columns of numbers, by column: how many of them are of which kind, see
        :mod:`~dp2erm_cvx.diagnostics.unread`.
    words
        Three of the words that stand in columns of numbers, each behind its column.
    """

    outcome: str
    arms: Mapping[str, int]
    missing: int
    clipped: int
    unreadable: Mapping[str, int]
    spelled: Mapping[str, int]
    levels: Mapping[str, int]
    excluded: int
    absent: int
    values: tuple[float, ...]
    outside: Mapping[str, int]
    blank: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[str, NDArray[np.int64]] = field(default_factory=dict, compare=False)
    signs: Mapping[str, Counter[str]] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def __add__(self, other: RecordCounts) -> RecordCounts:
        """Counts of the records of both."""
        both: dict[str, Any] = {}
        for counted in fields(self):
            name = counted.name
            both[name] = _added(getattr(self, name), getattr(other, name))
        return RecordCounts(**both)

    @property
    def total(self) -> int:
        """All records."""
        return sum(self.arms.values()) + self.missing + self.excluded

    @property
    def line(self) -> str:
        """The records by arm."""
        parts = [f"{count:,} {arm}" for arm, count in self.arms.items()]
        if self.missing:
            parts.append(f"{self.missing:,} without a treatment")
        if self.excluded:
            parts.append(f"{self.excluded:,} not eligible")
        return f"{self.total:,} records: {', '.join(parts)}."

    def __str__(self) -> str:
        lines = [f"NOT PRIVATE, for the data holder only: {self.line}"]
        cells = [f"{name} {count:,}" for name, count in self.unreadable.items() if count]
        if cells:
            lines.append(f"Cells that hold nothing declared: {', '.join(cells)}.")
        if self.clipped:
            lines.append(f"Values of {self.outcome} that are clipped: {self.clipped:,}.")
        return " ".join(lines)


def _added(own: Any, more: Any) -> Any:
    """A field of the counts of two parts: counts add up, of values the first three stay."""
    if isinstance(own, str):
        return own
    if isinstance(own, tuple):
        return tuple(sorted({*own, *more})[:3])
    if not isinstance(own, Mapping):
        return own + more
    both = {**own, **more}
    for name, count in own.items():
        if name in more:
            both[name] = count + more[name]
    return both


def record_counts(table: Table, *, public: Public, columns: Sequence[str]) -> RecordCounts:
    """Record counts of a table, or of a block of one.

    Parameters
    ----------
    table
        The cells as they stand.
    public
        A domain, or private ranges, with a codebook that names the treatment and the outcome.
    columns
        The covariates.
    """
    book = public.codebook
    assert book is not None
    treatment = book.treatment.column or "a"
    outcome = book.outcome or "y"
    read = replace(table, column=book.read(table))
    texts, place = distinct_labels(read.cells(treatment), treatment)
    arms = book.treatment.arms(read.cells(treatment))
    in_arm = arms >= 0
    eligible = _eligible(book, read, len(arms))
    cells = _Cells(table, read, book, np.where(eligible, arms, -1), len(book.treatment.labels))
    cells.spelled |= _spelled(treatment, _by_label(texts, place), book.treatment.labels)
    numbers = cells.read_numbers(outcome)
    without_arm = int(np.sum(~in_arm))
    cells.unreadable[treatment] = without_arm
    outside = cells.read_covariates(public, columns, eligible)
    unreadable = {treatment: cells.unreadable[treatment], **cells.unreadable}
    if book.unit is not None:
        unreadable[book.unit.column] = _rows_of_nobody(book.unit, read)
    values = np.unique(numbers[in_arm & eligible & np.isfinite(numbers)])
    return RecordCounts(
        outcome,
        arms=_by_arm(book, arms[eligible]),
        missing=without_arm,
        clipped=_clipped(public, arms[eligible], numbers[eligible]),
        unreadable=unreadable,
        spelled=cells.spelled,
        levels=cells.levels | _cut_levels(book, read, columns),
        excluded=int(np.sum(in_arm & ~eligible)),
        absent=int(np.sum(np.isnan(numbers) & in_arm)),
        values=tuple(values[:3].tolist()),
        outside=outside,
        blank=cells.blank,
        gaps={name: gaps for name, gaps in cells.gaps.items() if name != outcome},
        signs=cells.signs,
        words=tuple(sorted(cells.words)[:3]),
    )


def _rows_of_nobody(unit: Unit, table: Table) -> int:
    """How many rows name no person."""
    persons, place = unit.labels(table.cells(unit.column, written=True))
    return int(np.sum(persons[place] == ""))


def _eligible(book: Codebook, table: Table, n_rows: int) -> NDArray[np.bool_]:
    """Which records (n,) are eligible and in a declared group, whatever their arm."""
    if not book.may_exclude:
        return np.ones(n_rows, dtype=np.bool_)
    weights = book.counts(table.cells, np.ones(n_rows)).reshape(n_rows, -1)
    return np.asarray(np.sum(weights, axis=1) != 0.0)


def _by_arm(book: Codebook, arms: NDArray[np.int64]) -> dict[str, int]:
    """Records by arm, by what a line calls those who are in it."""
    if book.treatment.levels:
        numbers = {label: number for number, label in enumerate(book.treatment.labels)}
    else:
        numbers = {"treated": 1, "controls": 0}
    return {name: int(np.sum(arms == number)) for name, number in numbers.items()}


def _level_name(column: str, level: str | None) -> str:
    """How a level is called among the counts."""
    return f"{column}={level or 'missing'}"


def _cut_levels(book: Codebook, table: Table, columns: Sequence[str]) -> dict[str, int]:
    """Cells by level, of columns that are cut at numbers or crossed."""
    counts: dict[str, int] = {}
    for name in dict.fromkeys(book.origin(column)[0] for column in columns):
        if name in book.bins or name in book.crosses:
            levels = book.covariate_levels[name]
            members = np.bincount(book.places(table.cells, name), minlength=len(levels))
            for place, level in enumerate(levels):
                counts[_level_name(name, level)] = int(members[place])
    return counts


@dataclass
class _Cells:
    """Counts of the cells of the covariates and of the outcome of one table, column by column.

    Parameters
    ----------
    raw
        The cells as they stand.
    table, book
        The cells as they are declared to be read.
    arms
        The arm (n,) of every record that counts, -1 of all others.
    n_arms
        The number of arms.
    unreadable, blank, gaps, signs, words, spelled, levels
        As in :class:`RecordCounts`.
    """

    raw: Table
    table: Table
    book: Codebook
    arms: NDArray[np.int64]
    n_arms: int
    unreadable: dict[str, int] = field(default_factory=dict)
    blank: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    signs: dict[str, Counter[str]] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    spelled: dict[str, int] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)

    def read_covariates(
        self, public: Public, columns: Sequence[str], eligible: NDArray[np.bool_]
    ) -> dict[str, int]:
        """Count the cells of all covariates.

        Returns
        -------
        Numbers by covariate that are beyond their declared range, of the eligible records.
        """
        outside: dict[str, int] = {}
        for name in self.book.columns(columns):
            if name in self.book.levels:
                known = [str(level) for level in self.book.levels[name]]
                seen = self.read_levels(name, known)
                self.spelled |= _spelled(name, seen, known)
                for level in known:
                    if level != OTHER:
                        self.levels[_level_name(name, level)] = seen[level]
                continue
            numbers = self.read_numbers(name)
            if name not in self.book.bins:
                covariate = next(iter(self.book.covariates_of(name)))
                values = self.book.numbers(name, numbers[eligible])
                outside |= _outside(public, columns, covariate, values)
        return outside

    def _count_gaps(self, name: str, is_gap: NDArray[np.bool_]) -> None:
        """Count the gaps (n,) of a column by arm."""
        arms = self.arms[is_gap & (self.arms >= 0)]
        self.gaps[name] = np.bincount(arms, minlength=self.n_arms)

    def read_levels(self, name: str, known: Sequence[str]) -> Counter[str]:
        """Count the cells of a column with these levels; returns them by label."""
        texts, place = distinct_labels(self.table.cells(name), name)
        seen = _by_label(texts, place)
        odd = Counter({text: count for text, count in seen.items() if text not in known})
        if OTHER in known:  # which takes every label
            odd.clear()
        empty = {text for text in texts if says_missing(text)}
        self.unreadable[name] = odd.total()
        self.blank[name] = sum(count for text, count in odd.items() if text in empty)
        is_gap = np.array([text in empty or text in odd for text in texts], dtype=np.bool_)
        self._count_gaps(name, is_gap[place])
        return seen

    def read_numbers(self, name: str) -> NDArray[np.float64]:
        """Count the cells of a column of numbers; returns them (n,), nan where a cell is none."""
        cells = as_column(self.table.cells(name), name)
        numbers = numbers_or_nan(cells, name)
        absent = np.isnan(numbers)
        self._count_gaps(name, absent)
        odd = unread_texts(self.book, self.raw, name, cells, absent)
        self._count_texts(name, odd, cells)
        blank = sum(count for text, count in odd.items() if says_missing(text))
        lost = odd.total() - blank
        if name in self.book.missing:  # a number is declared for empty cells
            blank = 0
        self.unreadable[name] = lost + blank
        self.blank[name] = blank
        return numbers

    def _count_texts(self, name: str, odd: Counter[str], cells: NDArray[Any]) -> None:
        """Count the kinds of texts in a column of numbers, of which the labels ``odd`` are none."""
        self.words |= {f"{name}: {brief(text)}" for text in odd if sign_of(text) == "words"}
        self.signs[name] = signs_of(odd)
        if self.book.reads_texts(name):
            return
        if self.table.written is not None:
            cells = as_column(self.table.cells(name, written=True), name)
        if cells.dtype.kind in "buif":  # numbers are no texts
            return
        texts = Counter(cell.strip() for cell in cells if isinstance(cell, str))
        read = {text: count for text, count in texts.items() if text not in odd}
        self.signs[name] += signs_of_read(read)


def unread_texts(
    book: Codebook, raw: Table, name: str, cells: NDArray[Any], absent: NDArray[np.bool_]
) -> Counter[str]:
    """What the cells of a column of numbers hold that are none, by label; "" where a cell is empty.

    Parameters
    ----------
    book, raw
        How cells are declared to be read, and the cells as they stand.
    name
        The column.
    cells, absent
        Its cells (n,) as they are read, and which of them are no numbers.
    """
    rule = book.cells.get(name)
    if rule is not None and cells.dtype.kind == "f":  # which has made numbers of texts
        cells = as_column(book.raw_cells(raw, name), name)
    if cells.dtype.kind in "buif":
        endless = int(np.sum(np.isinf(cells[absent])))
        return +Counter({"infinite": endless, "": int(absent.sum()) - endless})
    odd: Counter[str] = Counter()
    for text, count in Counter(labels(cells[absent], name)).items():
        missing = rule is not None and rule.is_code(text)
        odd["" if missing else text] += count
    return odd


def dataset_counts(data: Dataset, public: Public) -> RecordCounts:
    """Record counts of records in memory, whose cells are not there.

    Parameters
    ----------
    data
        The records. One that does not count is ``missing``, and ``unreadable`` too where every
        record should count.
    public
        What is declared of them.
    """
    counted = np.ones(len(data.a), dtype=np.bool_)
    if data.sampling is not None:
        counted = data.sampling.reshape(len(data.a), -1).sum(axis=1) != 0.0
    # a slice takes no copy of the records
    rows = slice(None) if counted.all() else counted
    X = data.X[rows]
    a = data.a[rows]
    y = data.y[rows]
    lost = int(np.sum(~counted))
    unreadable = {f"{data.treatment} or {data.outcome}": lost}
    if public.codebook is not None and public.codebook.may_exclude:
        unreadable = {}
    outside: dict[str, int] = {}
    for name, column in zip(data.columns, X.T, strict=True):
        outside |= _outside(public, data.columns, name, column)
    return RecordCounts(
        data.outcome,
        arms={f"{data.treatment} = {arm}": int(np.sum(a == arm)) for arm in range(data.n_arms)},
        missing=lost,
        clipped=_clipped(public, a, y),
        unreadable=unreadable,
        spelled={},
        levels={},
        excluded=0,
        absent=0,
        values=_few_values(y),
        outside=outside,
    )


def _few_values(y: NDArray[np.float64]) -> tuple[float, ...]:
    """Both ends of the outcomes, and nan where there are others between."""
    if not len(y):
        return ()
    ends = {float(y.min()), float(y.max())}
    if np.all(np.isin(y, [*ends])):
        return tuple(ends)
    return (*ends, np.nan)


def _clipped(public: Public, arms: NDArray[Any], numbers: NDArray[Any]) -> int:
    """Outcomes of records in an arm that are beyond the declared bound, or beyond wide bounds."""
    if isinstance(public, Domain):
        net = numbers - public.treatment_cost * arms - public.outcome_center
        beyond = np.abs(net) > public.outcome_bound
    else:
        ends = public.declared_ends[-1]
        if ends is None:
            return 0
        beyond = (numbers < ends[0]) | (numbers > ends[1])
    return int(np.sum(beyond & (arms >= 0)))


def _outside(
    public: Public, columns: Sequence[str], name: str, values: NDArray[np.float64]
) -> dict[str, int]:
    """How many values of a covariate are beyond its range or wide bounds, by its name.

    Nothing is counted where no range is declared.
    """
    if name not in columns:
        return {}
    place = columns.index(name)
    if isinstance(public, Domain):
        if public.ranges is None:
            return {}
        low, high = public.range_pairs[place]
    else:
        ends = public.declared_ends[place]
        if ends is None:
            return {}
        low, high = ends
    return {name: int(np.sum((values < low) | (values > high)))}


def _spelled(name: str, seen: Mapping[str, int], known: Collection[str]) -> dict[str, int]:
    """Cells by a note on each label that is a declared one but for case and blanks."""
    notes = _near(name, seen, known)
    return {f"{name}: {note}": seen[text] for text, note in notes.items()}


def _near(name: str, texts: Collection[str], known: Collection[str]) -> dict[str, str]:
    """A note on every label of a column that is a declared one but for case and blanks."""
    declared = {folded(label): label for label in known if label}
    notes = {}
    for text in sorted(set(texts) - set(known)):
        label = declared.get(folded(text))
        if label is not None:
            line = read_as_one(name, [label, text])
            notes[text] = (
                f"{brief(label)} is declared: did you mean {brief(text)}? {line} reads both"
            )
    return notes


def alike(labels: Collection[str]) -> list[list[str]]:
    """Labels that differ by case and blanks alone, those that are one together."""
    by_folded: dict[str, list[str]] = {}
    for label in sorted(labels):
        by_folded.setdefault(folded(label), []).append(label)
    return [spellings for spellings in by_folded.values() if len(spellings) > 1]


def read_as_one(name: str, labels: Sequence[str]) -> str:
    """What to declare so that labels of a column that differ by case and blanks alone are one."""
    first, *others = labels
    told = ", ".join(map(brief_text, others))
    return f"[cells] {key(name)} = {{ synonyms = {{ {key(first)} = [{told}] }} }}"


def brief_text(text: str) -> str:
    """A short text as TOML writes it."""
    return json.dumps(text if len(text) <= 40 else f"{text[:37]}...", ensure_ascii=False)


def _by_label(texts: Sequence[str], place: NDArray[np.intp]) -> Counter[str]:
    """Cells by label.

    Parameters
    ----------
    texts
        The labels, of which one may stand there several times.
    place
        (n,) the number of the label of every cell.
    """
    times = np.bincount(place, minlength=len(texts))
    seen: Counter[str] = Counter()
    for text, count in zip(texts, times.tolist(), strict=True):
        seen[text] += count
    return seen


class _Counted(NamedTuple):
    """The cells of one column.

    Parameters
    ----------
    counts
        Cells by kind.
    seen
        Cells by label.
    odd
        Cells by label, of labels that nothing declares.
    """

    counts: Counter[str]
    seen: Counter[str]
    odd: Counter[str]


@dataclass(frozen=True)
class TableCells:
    """Cells of a table, or of some of its rows, counted beside what is declared of them.

    Parameters
    ----------
    book
        The codebook.
    ranges
        Declared ranges by raw column.
    outcomes
        Outcomes of all questions that are asked.
    counts
        Cells by kind, by column.
    seen
        Cells by label, by column: at most ``_KEPT`` different ones, so that no table is too long.
    odd
        Those of the labels that nothing declares, by column.
    damage
        Notes on what could not be read of the file, and how often each holds.
    """

    book: Codebook
    ranges: Mapping[str, Any]
    outcomes: Collection[str | None]
    counts: Mapping[str, Counter[str]]
    seen: Mapping[str, Counter[str]]
    odd: Mapping[str, Counter[str]]
    damage: Counter[str]

    @classmethod
    def of(
        cls,
        table: Table,
        book: Codebook | None = None,
        ranges: object = None,
        outcomes: Collection[str] = (),
    ) -> TableCells:
        """Cell counts of a table.

        Parameters
        ----------
        table
            The cells as they stand.
        book, ranges
            What is declared of them.
        outcomes
            Further outcomes that are declared.
        """
        book = book or Codebook()
        damage = Counter(table.damage)
        if table.repeated:
            names = ", ".join(map(brief, table.repeated))
            damage[f"Columns of one name, which cannot be asked for: {names}."] = 1
        made = cls(book, _raw_ranges(book, ranges), {book.outcome, *outcomes}, {}, {}, {}, damage)
        columns = {}
        for name in table.names:
            if name not in table.repeated:
                columns[name] = made._counted(table, name)
        return replace(
            made,
            counts={name: own.counts for name, own in columns.items()},
            seen={name: own.seen for name, own in columns.items()},
            odd={name: own.odd for name, own in columns.items()},
        )

    def __add__(self, other: TableCells) -> TableCells:
        """Cell counts of the rows of both."""
        return replace(
            self,
            counts={name: own + other.counts[name] for name, own in self.counts.items()},
            seen={name: _first(own + other.seen[name]) for name, own in self.seen.items()},
            odd={name: _first(own + other.odd[name]) for name, own in self.odd.items()},
            damage=self.damage + other.damage,
        )

    def _declared(self, name: str) -> tuple[str, tuple[str, ...], str]:
        """Declared kind of a column, the labels that it may hold, and a note on other cells."""
        book = self.book
        weights = book.sampling_weights
        if name in book.levels:
            return "levels", tuple(str(level) for level in book.levels[name]), "no declared level"
        if name == book.treatment.column:
            return "treatment", book.treatment.labels[::-1], _no_arm(book)
        if weights is not None and name == weights.column:
            return "sampling weight", (), f"no number: counts as {weights.missing:g}"
        if name in self.outcomes:
            return "outcome", (), "no number: counts as missing"
        if name in self.ranges or name in book.bins:
            return "number", (), "no number: counts as missing"
        if book.unit is not None and name == book.unit.column:
            return "person", (), ""
        if name in book.no_covariates:
            return "unit", (), ""
        return "-", (), ""

    def _counted(self, raw: Table, name: str) -> _Counted:
        """Cells of a column by kind, its labels, and those that nothing declares."""
        cells = as_column(self.book.read(raw)(name), name)
        texts = labels(cells, name)
        seen = Counter(text for text in texts if text)
        counts = Counter(present=seen.total(), missing=len(texts) - seen.total())
        number_of = _numbers(seen)
        for text, count in seen.items():
            if not np.isnan(number_of[text]):
                counts["numbers"] += count
            if is_date(text):
                counts["dates"] += count
        declared, known, _ = self._declared(name)
        odd: Counter[str] = Counter()
        if known:
            odd.update({text: count for text, count in seen.items() if text not in known})
        elif declared not in ("-", "unit", "person"):
            numbers = numbers_or_nan(cells, name)
            absent = np.isnan(numbers)
            odd = unread_texts(self.book, raw, name, cells, absent)
            del odd[""]
            low, high = self._range(name, declared)
            counts["missing"] = int(np.sum(absent)) - odd.total()
            counts["outside"] = int(np.sum((numbers < low) | (numbers > high)))
        counts["odd"] = odd.total()
        return _Counted(counts, _first(seen), _first(odd))

    def _range(self, name: str, declared: str) -> tuple[float, float]:
        """The declared range of a column of numbers; without ends where none is declared."""
        weights = self.book.sampling_weights
        if declared == "sampling weight" and weights is not None:
            return 0.0, weights.largest
        pair = self.ranges.get(name)
        if isinstance(pair, tuple | list):
            low, high = pair
            return low, high
        return -np.inf, np.inf

    def notes(self) -> list[str]:
        """Notes on what could not be read of the file."""
        return [note.format(count) for note, count in self.damage.items() if count]

    def report(self) -> list[dict[str, Any]]:
        """Every column: what it is ``declared`` as and ``holds``, with counts of cells.

        ``missing`` cells are empty, ``odd`` ones are no number where one is declared, or no
        declared level or label, and ``outside`` ones are beyond the declared range. ``notes`` say
        what to declare.
        """
        return [self._column(name) for name in self.counts]

    def holds(self, name: str) -> str:
        """Kind of cells in a column."""
        counts = self.counts[name]
        seen = self.seen[name]
        if counts["numbers"] == counts["present"] > 0:
            return "0 and 1" if set(seen) <= {"0", "1"} else "numbers"
        if counts["dates"] == counts["present"] > 0:
            return "dates"
        if counts["numbers"]:
            return "numbers and text"
        if len(seen) == _KEPT:
            return f"{_KEPT:,} texts or more"
        if len(seen) > 1:
            return f"{len(seen):,} texts"
        return "one text" if seen else "nothing"

    def _column(self, name: str) -> dict[str, Any]:
        """One column of the report."""
        counts = self.counts[name]
        declared, _, _ = self._declared(name)
        notes = self._hints(name) if declared == "-" else self._notes(name)
        return {
            "name": name,
            "declared": declared,
            "holds": self.holds(name),
            "missing": counts["missing"],
            "odd": counts["odd"],
            "outside": counts["outside"],
            "notes": notes,
        }

    def _hints(self, name: str) -> list[str]:
        """How a column that is not declared may be."""
        seen = self.seen[name]
        holds = self.holds(name)
        if self.repeats_persons(name):
            return [
                "looks like an identifier and repeats: a guarantee covers one record, not all of a "
                f"person; [unit] column = {brief(name)}, number = N protects persons"
            ]
        sign = _other_decimal(seen)
        if sign and holds != "numbers":
            return [sign]
        if "text" not in holds or not 1 < len(seen) <= MOST_LEVELS:
            return []
        line = f"{key(name)} = {json.dumps(sorted(seen), ensure_ascii=False)}"
        hints = [f"if a codebook lists its levels, declare under [levels]: {line}"]
        for spellings in alike(seen):
            quoted = " and ".join(map(brief, spellings))
            line = read_as_one(name, spellings)
            hints.append(f"{quoted} differ by case or blanks alone: {line} makes them one")
        return hints

    def _notes(self, name: str) -> list[str]:
        """What cells of a declared column do not fit what is declared, and what to declare."""
        declared, known, _ = self._declared(name)
        odd = self.odd[name]
        notes = []
        if odd:
            most = ", ".join(f"{brief(text)} ({count:,})" for text, count in odd.most_common(4))
            more = ", ..." if len(odd) > 4 else ""
            notes.append(f"{most}{more}: {self._note_on_odd(name)}")
        if self._often_missing(name):
            notes.append(
                "not adjusted for where it is missing; to count complete records alone, declare "
                f"eligible = ['{key(name)} >= {self.ranges[name][0]:.15g}']"
            )
        notes += _near(name, odd, known).values()
        if declared in ("number", "outcome"):
            codes = self._codes(name)
            if codes:
                notes.append(self._note_on_codes(name, codes))
            elif declared == "number" and self._varies_by_factors(name):
                notes.append(
                    f"skewed, and its logarithm is not: log = [{json.dumps(name)}] adjusts for that"
                )
        return notes

    def _note_on_odd(self, name: str) -> str:
        """What becomes of cells that nothing declares, and what to declare."""
        declared, known, note = self._declared(name)
        if declared in ("number", "outcome"):
            is_outcome = declared == "outcome"
            signs = signs_of(self.odd[name])
            advice = advice_on(name, signs, self.book.cells.get(name), is_outcome=is_outcome)
            return f"no number: counts as missing; {advice}"
        if declared == "treatment" and len(self.seen[name]) > len(known):
            return f"{note}; other spellings of an arm under [cells]"
        return note

    def _often_missing(self, name: str) -> bool:
        """Whether a number is declared for missing cells, and more than 5 % of cells are."""
        counts = self.counts[name]
        if name not in self.book.missing or not isinstance(self.ranges.get(name), tuple | list):
            return False
        return 20 * counts["missing"] > counts["missing"] + counts["present"]

    def _note_on_codes(self, name: str, codes: Sequence[str]) -> str:
        """What to declare where these numbers stand for missing ones."""
        cells = ", ".join(f"{code} ({self.seen[name][code]:,})" for code in codes)
        line = f"[cells] {key(name)} = {{ missing_codes = [{', '.join(codes)}] }}"
        return f"{cells}: far from the other numbers; if it stands for a missing one, {line}"

    def _codes(self, name: str) -> list[str]:
        """Labels that look like codes of a missing number: below 0, or far above, and alone."""
        seen = self.seen[name]
        numbers = _numbers(seen)
        codes = [label for label in numbers if _CODE.fullmatch(label) and seen[label] >= 5]
        plain = []
        for label, number in numbers.items():
            if label not in codes and not np.isnan(number):
                plain.append(number)
        if len(plain) < 5:
            return []
        low = min(plain)
        far = max(plain) + (max(plain) - low) / 10
        return sorted(code for code in codes if numbers[code] > far or numbers[code] < 0 <= low)

    def _varies_by_factors(self, name: str) -> bool:
        """Whether numbers above 0 have a long tail that their logarithms lack.

        By the moment of skewness, of a column whose logarithm is not declared already.
        """
        seen = self.seen[name]
        if name in self.book.log or len(seen) <= 20:
            return False
        numbers = np.array([*_numbers(seen).values()], dtype=np.float64)
        times = np.array([*seen.values()], dtype=np.float64)
        positive = numbers > 0
        values = numbers[positive]
        weights = times[positive]
        if np.sum(weights) < 0.95 * np.sum(times):
            return False
        of_logarithms = _skewness(np.log(values), weights)
        return _skewness(values, weights) > max(2.0, 2.0 * abs(of_logarithms))

    def repeats_persons(self, name: str) -> bool:
        """Whether a column is named like an identifier, and some of its many values repeat."""
        seen = self.seen[name]
        return _IDENTIFIER.search(name) is not None and MOST_LEVELS < len(seen) < seen.total()


def _raw_ranges(book: Codebook, ranges: object) -> dict[str, Any]:
    """Declared ranges, with those of logarithms by their raw column, in its own unit."""
    named = dict(ranges) if isinstance(ranges, Mapping) else {}
    raw = {}
    for name in book.log:
        of_logarithm = named.get(next(iter(book.covariates_of(name))))
        if of_logarithm is not None:
            raw[name] = tuple(np.exp(of_logarithm))
    return named | raw


def _no_arm(book: Codebook) -> str:
    """What is said of a cell of the treatment that is no arm."""
    labels = book.treatment.labels
    if book.treatment.levels:
        return f"none of {', '.join(labels)}; declare them under [treatment]"
    return f"neither {' nor '.join(labels[::-1])}; declare both under [treatment]"


def _skewness(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The moment of skewness of (k,) values that stand there so many times."""
    apart = values - np.average(values, weights=weights)
    third = np.average(apart**3, weights=weights)
    return float(third / np.average(apart**2, weights=weights) ** 1.5)


def _other_decimal(cells: Counter[str]) -> str:
    """Advice on cells of which most are numbers with a sign that is not read."""
    other = sum(count for text, count in cells.items() if is_other_decimal(text))
    if 2 * other <= cells.total():
        return ""
    sign = "numbers with a decimal sign, or a separator of thousands, that [csv] does not declare"
    return f"{sign}: declare it there for all columns, or under [cells] for this one"


def _numbers(labels: Collection[str]) -> dict[str, float]:
    """The number of every label; nan where it is none."""
    if not labels:
        return {}
    return dict(zip(labels, numbers_or_nan(list(labels), ""), strict=True))


def _first(counted: Counter[str]) -> Counter[str]:
    """The labels that came first, as many as are kept."""
    return Counter(dict(islice(counted.items(), _KEPT)))
