"""Contents of the columns of a raw table, and their fit to what is declared: for the data
holder.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.data.cells import folded
from dp2erm_cvx.data.codebook import OTHER, Codebook
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

#: Different texts of one column that are listed as levels; a column with more of them is no
#: category.
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
    silent
        Records of an arm that are not eligible, or outside of the declared groups: they are in no
        arm.
    absent
        Records of any arm that have no outcome.
    values
        The first three of the outcomes that count.
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
    silent: int
    absent: int
    values: tuple[float, ...]
    outside: Mapping[str, int]
    blank: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[str, NDArray[np.int64]] = field(default_factory=dict, compare=False)
    signs: Mapping[str, Counter[str]] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def __add__(self, other: RecordCounts) -> RecordCounts:
        """Counts of the records of both."""

        def added(own: Any, more: Any) -> Any:
            if isinstance(own, Mapping):
                both = {name: count + more[name] for name, count in own.items() if name in more}
                return {**own, **more, **both}
            if isinstance(own, tuple):
                return tuple(sorted({*own, *more})[:3])
            return own if isinstance(own, str) else own + more

        names = [one.name for one in fields(self)]
        return RecordCounts(*(added(getattr(self, name), getattr(other, name)) for name in names))

    @property
    def total(self) -> int:
        """All records."""
        return sum(self.arms.values()) + self.missing + self.silent

    @property
    def line(self) -> str:
        """The records by arm."""
        lost, silent = self.missing, self.silent
        arms = ", ".join(f"{count:,} {arm}" for arm, count in self.arms.items())
        text = f"{self.total:,} records: {arms}" + (
            f", {lost:,} without a treatment" if lost else ""
        )
        return f"{text}, {silent:,} not eligible." if silent else f"{text}."

    def __str__(self) -> str:
        lines = [f"NOT PRIVATE, for the data holder only: {self.line}"]
        if cells := [f"{name} {count:,}" for name, count in self.unreadable.items() if count]:
            lines.append(f"Cells that hold nothing declared: {', '.join(cells)}.")
        if self.clipped:
            lines.append(f"Values of {self.outcome} that are clipped: {self.clipped:,}.")
        return " ".join(lines)


def record_counts(table: Table, *, public: Public, columns: Sequence[str]) -> RecordCounts:
    """Record counts of a table, or of a block of one, with these covariates.

    ``public`` is a domain, or private ranges, with a codebook that names the treatment and the
    outcome.
    """
    book = public.codebook
    assert book is not None
    treatment = book.treatment.column or "a"
    outcome = book.outcome or "y"
    raw = table
    table = replace(table, column=book.read(table))
    texts = _by_label(*distinct_labels(table.cells(treatment), treatment))
    arms = book.treatment.arms(table.cells(treatment))
    counted = np.ones(len(arms), dtype=np.bool_)
    if book.silences:
        counted = (
            np.sum(book.counts(table.cells, np.ones(len(arms))).reshape(len(arms), -1), axis=1)
            != 0.0
        )
    near = _spelled(treatment, texts, book.treatment.labels)
    cells = _Cells(raw, table, book, np.where(counted, arms, -1), len(book.treatment.labels))
    numbers = cells.read_numbers(outcome)
    cells.unreadable[treatment] = int(np.sum(arms < 0))
    levels: dict[str, int] = {}
    outside: dict[str, int] = {}
    for name in book.columns(columns):
        if name in book.levels:
            known = [str(level) for level in book.levels[name]]
            seen = cells.read_levels(name, known)
            near |= _spelled(name, seen, known)
            levels |= {
                f"{name}={level or 'missing'}": seen[level] for level in known if level != OTHER
            }
        else:
            own = cells.read_numbers(name)
            if name not in book.bins:
                number = book.numbers(name, own[counted])
                outside |= _outside(public, columns, next(iter(book.covariates_of(name))), number)
    for name in dict.fromkeys(book.origin(one)[0] for one in columns):
        if name in book.bins or name in book.crosses:
            sets = book.covariate_levels[name]
            members = np.bincount(book.places(table.cells, name), minlength=len(sets))
            levels |= {
                f"{name}={level or 'missing'}": int(members[k]) for k, level in enumerate(sets)
            }
    unreadable = {treatment: cells.unreadable[treatment], **cells.unreadable}
    if book.unit is not None:
        persons, place = book.unit.labels(table.cells(book.unit.column, written=True))
        unreadable[book.unit.column] = int(np.sum(persons[place] == ""))
    return RecordCounts(
        outcome,
        arms={
            name: int(np.sum((arms == arm) & counted)) for name, arm in _numbered_arms(book).items()
        },
        missing=int(np.sum(arms < 0)),
        clipped=_clipped(public, arms[counted], numbers[counted]),
        unreadable=unreadable,
        spelled=near,
        levels=levels,
        silent=int(np.sum((arms >= 0) & ~counted)),
        absent=int(np.sum(np.isnan(numbers) & (arms >= 0))),
        values=tuple(np.unique(numbers[(arms >= 0) & counted & np.isfinite(numbers)])[:3].tolist()),
        outside=outside,
        blank=cells.blank,
        gaps={name: gaps for name, gaps in cells.gaps.items() if name != outcome},
        signs=cells.signs,
        words=tuple(sorted(cells.words)[:3]),
    )


def _numbered_arms(book: Codebook) -> dict[str, int]:
    """The number of every arm, by what a line calls those who are in it."""
    if not book.treatment.levels:
        return {"treated": 1, "controls": 0}
    return {label: number for number, label in enumerate(book.treatment.labels)}


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
    unreadable, blank, gaps, signs, words
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

    def _gaps(self, name: str, gap: NDArray[np.bool_]) -> None:
        inside = gap & (self.arms >= 0)
        self.gaps[name] = np.bincount(self.arms[inside], minlength=self.n_arms)

    def read_levels(self, name: str, known: Sequence[str]) -> Counter[str]:
        """Count the cells of a column with these levels; returns them by label."""
        texts, place = distinct_labels(self.table.cells(name), name)
        seen = _by_label(texts, place)
        odd = {text: count for text, count in seen.items() if text not in known}
        self.unreadable[name] = 0 if OTHER in known else sum(odd.values())
        self.blank[name] = (
            0 if OTHER in known else sum(odd[text] for text in odd if says_missing(text))
        )
        gap = np.array(
            [says_missing(text) or (text in odd and OTHER not in known) for text in texts]
        )
        self._gaps(name, gap[place] if len(texts) else np.zeros(0, dtype=np.bool_))
        return seen

    def read_numbers(self, name: str) -> NDArray[np.float64]:
        """Count the cells of a column of numbers; returns them (n,), nan where a cell is none."""
        cells = as_column(self.table.cells(name), name)
        numbers = numbers_or_nan(cells, name)
        absent = np.isnan(numbers)
        self._gaps(name, absent)
        odd = unread_texts(self.book, self.raw, name, cells, absent)
        empty = sum(count for text, count in odd.items() if says_missing(text))
        lost = odd.total() - empty
        self._texts(name, odd, cells)
        declared = name in self.book.missing
        self.unreadable[name] = lost + (0 if declared else empty)
        self.blank[name] = 0 if declared else empty
        return numbers

    def _texts(self, name: str, odd: Counter[str], cells: NDArray[Any]) -> None:
        """Count the kinds of texts in a column of numbers, of which the labels ``odd`` are none."""
        signs = signs_of(odd)
        self.words |= {f"{name}: {brief(text)}" for text in odd if sign_of(text) == "words"}
        if not self.book.reads_texts(name):
            if self.table.written is not None:
                cells = as_column(self.table.cells(name, written=True), name)
            if cells.dtype.kind not in "buif":  # numbers are no texts
                texts = Counter(cell.strip() for cell in cells if isinstance(cell, str))
                signs += signs_of_read(
                    {text: count for text, count in texts.items() if text not in odd}
                )
        self.signs[name] = signs


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
    """Record counts in memory: what does not count is ``missing``, and ``unreadable`` if all should
    count.
    """
    silent = np.zeros(len(data.a), dtype=np.bool_)
    if data.sampling is not None:
        silent = data.sampling.reshape(len(data.a), -1).sum(axis=1) == 0.0
    X, a, y = (values[~silent] if silent.any() else values for values in (data.X, data.a, data.y))
    arms = {f"{data.treatment} = {arm}": int(np.sum(a == arm)) for arm in range(data.n_arms)}
    ends = {float(y.min()), float(y.max())} if len(y) else set()
    values = tuple(ends if np.all(np.isin(y, [*ends])) else (*ends, np.nan))
    outside: dict[str, int] = {}
    for name, column in zip(data.columns, X.T, strict=True):
        outside |= _outside(public, data.columns, name, column)
    lost, clipped, book = int(silent.sum()), _clipped(public, a, y), public.codebook
    unreadable = (
        {} if book is not None and book.silences else {f"{data.treatment} or {data.outcome}": lost}
    )
    return RecordCounts(
        data.outcome, arms, lost, clipped, unreadable, {}, {}, 0, 0, values, outside
    )


def _clipped(public: Public, arms: NDArray[Any], numbers: NDArray[Any]) -> int:
    """Outcomes of records in an arm that are beyond the declared bound, or beyond wide bounds, if
    any.
    """
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
    """How many of these values of a covariate are beyond its declared range or wide bounds, by its
    name.

    Nothing is counted of a covariate of which nothing is declared.
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
    """Labels of a column that are declared ones but for case and blanks: a note for each, and its
    cells.
    """
    notes = _near(name, seen, known)
    return {f"{name}: {note}": seen[text] for text, note in notes.items()}


def _near(name: str, texts: Collection[str], known: Collection[str]) -> dict[str, str]:
    """A note on every label of a column that is a declared one but for case and blanks."""
    declared = {folded(own): own for own in known if own}
    notes = {}
    for text in sorted(set(texts) - set(known)):
        own = declared.get(folded(text))
        if own is not None:
            line = read_as_one(name, [own, text])
            notes[text] = f"{brief(own)} is declared: did you mean {brief(text)}? {line} reads both"
    return notes


def alike(labels: Collection[str]) -> list[list[str]]:
    """Labels that differ by case and blanks alone, those that are one together."""
    by_folded: dict[str, list[str]] = {}
    for label in sorted(labels):
        by_folded.setdefault(folded(label), []).append(label)
    return [own for own in by_folded.values() if len(own) > 1]


def read_as_one(name: str, labels: Sequence[str]) -> str:
    """What to declare so that labels of a column that differ by case and blanks alone are one."""
    first, *others = labels
    told = ", ".join(map(brief_text, others))
    return f"[cells] {key(name)} = {{ synonyms = {{ {key(first)} = [{told}] }} }}"


def brief_text(text: str) -> str:
    """A short text as TOML writes it."""
    return json.dumps(text if len(text) <= 40 else f"{text[:37]}...", ensure_ascii=False)


def _by_label(texts: Sequence[str], place: NDArray[np.intp]) -> Counter[str]:
    """Cells by label, of labels that may stand there several times, and of the place (n,) of every
    cell.
    """
    times = np.bincount(place, minlength=len(texts))
    seen: Counter[str] = Counter()
    for text, count in zip(texts, times.tolist(), strict=True):
        seen[text] += count
    return seen


@dataclass(frozen=True)
class TableCells:
    """Cells of the columns of a table, or of some of its rows, counted beside what is declared of
    them.

    ``counts`` are cells by kind, ``seen`` the labels and ``odd`` those that nothing declares, by
    column: at most ``_KEPT`` different ones, so that no table is too long for them. ``outcomes``
    are those of all questions that are asked.
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
        """Cell counts of a table, by the codebook, the ranges, and further outcomes that are
        declared.
        """
        named, book = dict(ranges) if isinstance(ranges, Mapping) else {}, book or Codebook()
        logs = {name: named.get(next(iter(book.covariates_of(name)))) for name in book.log}
        named |= {name: tuple(np.exp(pair)) for name, pair in logs.items() if pair is not None}
        none: dict[str, Counter[str]] = {}
        made = cls(book, named, {book.outcome, *outcomes}, none, none, none, Counter(table.damage))
        damage = Counter(table.damage)
        if table.repeated:
            damage[
                "Columns of one name, which cannot be asked for: "
                f"{', '.join(map(brief, table.repeated))}."
            ] = 1
        made = replace(made, damage=damage)
        columns = {
            name: made._counted(table, name) for name in table.names if name not in table.repeated
        }
        counts, seen, odd = (
            {name: own[place] for name, own in columns.items()} for place in range(3)
        )
        return replace(made, counts=counts, seen=seen, odd=odd)

    def __add__(self, other: TableCells) -> TableCells:
        """Cell counts of the rows of both."""
        counts = {name: own + other.counts[name] for name, own in self.counts.items()}
        seen, odd = (
            {name: _first(own + more[name]) for name, own in first.items()}
            for first, more in ((self.seen, other.seen), (self.odd, other.odd))
        )
        return replace(self, counts=counts, seen=seen, odd=odd, damage=self.damage + other.damage)

    def _declared(self, name: str) -> tuple[str, tuple[str, ...], str]:
        """Declared kind of a column, the labels that it may hold, and what is said of any other
        cell.
        """
        book, weights = self.book, self.book.sampling_weights
        if name in book.levels:
            return "levels", tuple(str(level) for level in book.levels[name]), "no declared level"
        if name == book.treatment.column:
            arms = book.treatment.labels[::-1]
            known = (
                f"none of {', '.join(arms[::-1])}"
                if book.treatment.levels
                else f"neither {' nor '.join(arms)}"
            )
            which = "them" if book.treatment.levels else "both"
            return "treatment", arms, f"{known}; declare {which} under [treatment]"
        if weights is not None and name == weights.column:
            return "sampling weight", (), f"no number: counts as {weights.missing:g}"
        if name in self.ranges or name in self.book.bins or name in self.outcomes:
            kind = "outcome" if name in self.outcomes else "number"
            return kind, (), "no number: counts as missing"
        if book.unit is not None and name == book.unit.column:
            return "person", (), ""
        return "unit" if name in book.no_covariates else "-", (), ""

    def _counted(self, raw: Table, name: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
        """Cells of a column by kind, its labels, and those that nothing declares."""
        cells = as_column(self.book.read(raw)(name), name)
        texts = labels(cells, name)
        seen, odd = Counter(cell for cell in texts if cell), Counter[str]()
        of = _numbers(seen)
        counts = Counter(present=seen.total(), missing=len(texts) - seen.total())
        counts["numbers"] = sum(seen[cell] for cell, number in of.items() if not np.isnan(number))
        counts["dates"] = sum(seen[cell] for cell in seen if is_date(cell))
        declared, known, _ = self._declared(name)
        if known:
            odd.update({cell: times for cell, times in seen.items() if cell not in known})
        elif declared not in ("-", "unit", "person"):
            pair, weights = self.ranges.get(name), self.book.sampling_weights
            values = numbers_or_nan(cells, name)
            if declared == "sampling weight" and weights is not None:
                pair = 0.0, weights.largest
            odd = unread_texts(self.book, raw, name, cells, np.isnan(values))
            del odd[""]
            counts["missing"] = len(texts) - int(np.sum(~np.isnan(values))) - odd.total()
            low, high = pair if isinstance(pair, tuple | list) else (-np.inf, np.inf)
            counts["outside"] = int(np.sum((values < low) | (values > high)))
        counts["odd"] = odd.total()
        return counts, _first(seen), _first(odd)

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
        counts, seen = self.counts[name], self.seen[name]
        for kind in ("numbers", "dates"):
            if counts[kind] == counts["present"] > 0:
                return "0 and 1" if kind == "numbers" and set(seen) <= {"0", "1"} else kind
        if counts["numbers"]:
            return "numbers and text"
        if len(seen) == _KEPT:
            return f"{_KEPT:,} texts or more"
        return f"{len(seen):,} texts" if len(seen) > 1 else "one text" if seen else "nothing"

    def _column(self, name: str) -> dict[str, Any]:
        book, counts, odd = self.book, self.counts[name], self.odd[name]
        declared, known, note = self._declared(name)
        facts = {
            "name": name,
            "declared": declared,
            "holds": self.holds(name),
            "missing": counts["missing"],
        }
        facts |= {"odd": counts["odd"], "outside": counts["outside"]}
        if declared == "-":
            hint = []
            if "text" in str(facts["holds"]) and 1 < len(self.seen[name]) <= MOST_LEVELS:
                line = f"{key(name)} = {json.dumps(sorted(self.seen[name]), ensure_ascii=False)}"
                hint = [f"if a codebook lists its levels, declare under [levels]: {line}"]
                for own in alike(self.seen[name]):
                    told = " and ".join(map(brief, own))
                    hint.append(
                        f"{told} differ by case or blanks alone: {read_as_one(name, own)} makes "
                        "them one"
                    )
            if (sign := _other_decimal(self.seen[name])) and facts["holds"] != "numbers":
                hint = [sign]
            if self.repeats_persons(name):
                whole = "a guarantee covers one record, not all of a person"
                advice = f"[unit] column = {brief(name)}, number = N protects persons"
                hint = [f"looks like an identifier and repeats: {whole}; {advice}"]
            return facts | {"notes": hint}
        if declared in ("number", "outcome"):
            advice = advice_on(
                name, signs_of(odd), book.cells.get(name), is_outcome=declared == "outcome"
            )
            note = f"no number: counts as missing; {advice}"
        elif declared == "treatment" and len(self.seen[name]) > len(known):
            note += "; other spellings of an arm under [cells]"
        most = ", ".join(f"{brief(cell)} ({times:,})" for cell, times in odd.most_common(4))
        notes = [f"{most}{', ...' if len(odd) > 4 else ''}: {note}"] if odd else []
        if (
            name in book.missing
            and isinstance(self.ranges.get(name), tuple | list)
            and 20 * counts["missing"] > sum(counts[kind] for kind in ("missing", "present"))
        ):
            notes.append(
                "not adjusted for where it is missing; to count complete records alone, declare "
                f"eligible = ['{key(name)} >= {self.ranges[name][0]:.15g}']"
            )
        notes += _near(name, odd, known).values()
        if declared in ("number", "outcome") and (codes := self._codes(name)):
            cells = ", ".join(f"{code} ({self.seen[name][code]:,})" for code in codes)
            line = f"[cells] {key(name)} = {{ missing_codes = [{', '.join(codes)}] }}"
            notes.append(
                f"{cells}: far from the other numbers; if it stands for a missing one, {line}"
            )
        elif declared == "number" and name not in book.log and self._varies_by_factors(name):
            notes.append(
                f"skewed, and its logarithm is not: log = [{json.dumps(name)}] adjusts for that"
            )
        return facts | {"notes": notes}

    def _codes(self, name: str) -> list[str]:
        """Labels that look like codes of a missing number: below 0, or far above, and alone
        there.
        """
        numbers, seen = _numbers(self.seen[name]), self.seen[name]
        codes = [label for label in numbers if _CODE.fullmatch(label) and seen[label] >= 5]
        plain = [
            number for label, number in numbers.items() if label not in codes and number == number
        ]
        if len(plain) < 5:
            return []
        low, far = min(plain), max(plain) + (max(plain) - min(plain)) / 10
        return sorted(code for code in codes if numbers[code] > far or numbers[code] < 0 <= low)

    def _varies_by_factors(self, name: str) -> bool:
        """True if numbers above 0 have a long tail that their logarithms lack, by the moment of
        skewness.
        """
        seen = self.seen[name]
        numbers, times = (
            np.array([*one.values()], dtype=np.float64) for one in (_numbers(seen), seen)
        )
        inside = numbers > 0
        numbers, own = numbers[inside], times[inside]
        if len(seen) <= 20 or np.sum(own) < 0.95 * np.sum(times):
            return False

        def skewness(
            values: NDArray[np.float64],
        ) -> float:  # weighted: a table may be longer than memory
            apart = values - np.average(values, weights=own)
            return float(
                np.average(apart**3, weights=own) / np.average(apart**2, weights=own) ** 1.5
            )

        return skewness(numbers) > max(2.0, 2.0 * abs(skewness(np.log(numbers))))

    def repeats_persons(self, name: str) -> bool:
        """True if a column is named like an identifier, and some of more values than a category
        repeat.
        """
        seen = self.seen[name]
        return _IDENTIFIER.search(name) is not None and MOST_LEVELS < len(seen) < seen.total()


def _other_decimal(cells: Counter[str]) -> str:
    """Advice on cells of which most are numbers with a sign that is not read."""
    if 2 * sum(times for cell, times in cells.items() if is_other_decimal(cell)) <= cells.total():
        return ""
    sign = "numbers with a decimal sign, or a separator of thousands, that [csv] does not declare"
    return f"{sign}: declare it there for all columns, or under [cells] for this one"


def _numbers(labels: Collection[str]) -> dict[str, float]:
    return dict(zip(labels, numbers_or_nan(list(labels), "") if labels else (), strict=True))


def _first(counted: Counter[str]) -> Counter[str]:
    return Counter(dict(islice(counted.items(), _KEPT)))
