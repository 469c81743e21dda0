"""What the columns of a raw table hold, and how that fits what is declared: for the data holder."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.cells import folded
from dp2erm_cvx.codebook import OTHER, Codebook
from dp2erm_cvx.tables import Table, as_cells, labels, numbers_or_nan, quoted

#: Different texts of one column that are listed as levels; a column with more of them is no category.
MOST_LEVELS = 20

_IDENTIFIER = re.compile(
    r"(^|[_\W])(id|mrn|person|patient|subject|participant|case)(no|nr|id)?($|[_\W])", re.I
)
_DATE = re.compile(r"(\d{4}-\d\d?-\d\d?([ T].*)?|\d\d?[./]\d\d?[./]\d{2,4})")


@dataclass(frozen=True)
class ColumnReport:
    """One column: what it is declared as and what it holds, with counts of cells.

    ``missing`` cells are empty, ``odd`` ones are no number where one is declared, or no declared level or
    label, and ``outside`` ones are beyond the declared range. ``notes`` say what to declare.
    """

    name: str
    declared: str
    holds: str
    missing: int
    odd: int = 0
    outside: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordCounts:
    """What becomes of records by what is declared, in counts: for the data holder alone.

    ``missing`` have no treatment, and ``absent`` of both arms no outcome. ``unreadable`` are the cells by
    column that hold nothing declared: no label of the treatment, no level, no number. ``clipped`` values of
    the ``outcome`` are beyond their bound. ``spelled`` are labels of the table by the declared ones that they
    are but for case and blanks, and ``levels`` the cells by declared level. ``silent`` are of an arm, but not
    eligible, or outside of the declared groups: the arms are counted without them. ``values`` are
    the first three of the outcomes that count.
    """

    outcome: str
    treated: int
    controls: int
    missing: int
    clipped: int
    unreadable: Mapping[str, int]
    spelled: Mapping[str, str]
    levels: Mapping[str, int]
    silent: int
    absent: int
    values: tuple[float, ...]

    def __add__(self, other: RecordCounts) -> RecordCounts:
        """Those of the records of both."""
        found = {}
        for one in fields(self):
            own, more = getattr(self, one.name), getattr(other, one.name)
            if isinstance(own, int):
                found[one.name] = own + more
            elif isinstance(own, tuple):
                found[one.name] = tuple(sorted({*own, *more})[:3])
            elif one.name in ("unreadable", "levels"):
                found[one.name] = {name: count + more[name] for name, count in own.items()}
            else:
                found[one.name] = own if isinstance(own, str) else {**own, **more}
        return RecordCounts(**found)

    @property
    def line(self) -> str:
        """The records by arm."""
        lost, silent = self.missing, self.silent
        told = f"{self.treated + self.controls + lost + silent:,} records: {self.treated:,} treated, "
        told += f"{self.controls:,} controls" + (f", {lost:,} without a treatment" if lost else "")
        return f"{told}, {silent:,} not eligible." if silent else f"{told}."

    def __str__(self) -> str:
        told = [f"NOT PRIVATE, for the data holder only: {self.line}"]
        if cells := [f"{name} {count:,}" for name, count in self.unreadable.items() if count]:
            told.append(f"Cells that hold nothing declared: {', '.join(cells)}.")
        if unseen := [level for level, count in self.levels.items() if not count]:
            told.append(f"Declared levels that no record has: {', '.join(unseen)}.")
        if self.clipped:
            told.append(f"Values of {self.outcome} that are clipped: {self.clipped:,}.")
        return " ".join(told)

    @property
    def wrong(self) -> list[str]:
        """What a release of these records should not be paid for, each in a few words."""
        eligible = self.treated + self.controls
        total = eligible + self.missing + self.silent
        arms = {"treated": self.treated, "a control": self.controls}
        found = [f"no record is {arm}" for arm, count in arms.items() if not count]
        found += [
            f"{name}: {count:,} of {total:,} cells hold nothing declared"
            for name, count in self.unreadable.items()
            if 2 * count > total
        ]
        if 10 * self.clipped > eligible > 0:
            clipped = f"{self.clipped:,} of {eligible:,} values of {self.outcome} are clipped"
            found.append(f"{clipped}: declare a wider bound")
        return found + [_misspelled(*pair) for pair in self.spelled.items()]


def record_counts(table: Table, *, public: Any, columns: Sequence[str]) -> RecordCounts:
    """Those of a table, or of a block of one, with these covariates.

    ``public`` is a domain, or private ranges, with a codebook that names the treatment and the outcome.
    """
    book: Codebook = public.codebook
    treatment, outcome = str(book.treatment.column), str(book.outcome)
    table = replace(table, column=book.read(table.cells))
    told = labels(table.cells(treatment), treatment)
    arms = book.treatment.arms(told)
    numbers = numbers_or_nan(table.cells(outcome), outcome)
    outside = np.zeros(len(arms), dtype=np.bool_)
    if book.silences:
        outside = np.sum(book.counts(table.cells, np.ones(len(arms))).reshape(len(arms), -1), axis=1) == 0.0
    unreadable = {treatment: int(np.sum(arms < 0)), outcome: _unreadable(table, outcome, numbers, book)}
    spelled = _spelled(told, (str(book.treatment.treated), str(book.treatment.control)))
    levels: dict[str, int] = {}
    for name in book.columns(columns):
        if name in book.levels:
            told, known = labels(table.cells(name), name), [str(level) for level in book.levels[name]]
            unreadable[name] = 0 if OTHER in known else sum(one not in known for one in told)
            spelled |= _spelled(told, known)
            seen = Counter(told)
            levels |= {f"{name}={level or 'missing'}": seen[level] for level in known if level != OTHER}
        else:
            unreadable[name] = _unreadable(table, name, numbers_or_nan(table.cells(name), name), book)
    clipped = 0
    if (bound := getattr(public, "outcome_bound", None)) is not None:  # else its range is released
        net = numbers - getattr(public, "treatment_cost", 0.0) * arms - public.outcome_middle
        clipped = int(np.sum((np.abs(net) > bound) & (arms >= 0) & ~outside))
    treated, controls = (int(np.sum((arms == arm) & ~outside)) for arm in (1, 0))
    lost, silent = int(np.sum(arms < 0)), int(np.sum((arms >= 0) & outside))
    absent = int(np.sum(np.isnan(numbers) & (arms >= 0)))
    values = tuple(np.unique(numbers[(arms >= 0) & ~outside & np.isfinite(numbers)])[:3].tolist())
    return RecordCounts(
        outcome, treated, controls, lost, clipped, unreadable, spelled, levels, silent, absent, values
    )


def _unreadable(table: Table, name: str, numbers: NDArray[np.float64], book: Codebook) -> int:
    """Cells of a column that are no number; an empty one is fine where a constant is declared for it."""
    absent = np.isnan(numbers)
    if name not in book.missing or not absent.any():
        return int(absent.sum())
    return sum(one != "" for one in labels(as_cells(table.cells(name), name)[absent], name))


def _spelled(told: Collection[str], known: Collection[str]) -> dict[str, str]:
    """What a table holds by the declared label that it is but for case and blanks, where it is not that."""
    declared = {folded(one): one for one in known if one}
    labels = {one: declared.get(folded(one), one) for one in sorted(set(told) - set(known))}
    return {label: one for one, label in labels.items() if label != one}


def column_report(table: Table, book: Codebook | None = None, ranges: object = None) -> list[ColumnReport]:
    """Every column of the table, beside what the codebook and the ranges declare of it."""
    named, book = ranges if isinstance(ranges, Mapping) else {}, book or Codebook()
    table = replace(table, column=book.read(table.cells))
    return [_column(table, name, book, named) for name in table.names]


def holds(told: list[str]) -> str:
    """What kind of cells these labels are of."""
    present = Counter(one for one in told if one)
    numbers = sum(not np.isnan(one) for one in numbers_or_nan(list(present), "")) if present else 0
    if not present:
        return "nothing"
    if numbers == len(present):
        return "0 and 1" if set(present) <= {"0", "1"} else "numbers"
    if all(_DATE.fullmatch(one) for one in present):
        return "dates"
    if numbers:
        return "numbers and text"
    return f"{len(present):,} texts" if len(present) > 1 else "one text"


def levels_line(name: str, told: list[str]) -> str | None:
    """The line of ``[levels]`` that lists the texts of a column, where they are few enough for levels."""
    present = sorted({one for one in told if one})
    if not 1 < len(present) <= MOST_LEVELS:
        return None
    return f"{key(name)} = {json.dumps(present, ensure_ascii=False)}"


def key(name: str) -> str:
    """A name as TOML spells it."""
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name, ensure_ascii=False)


def _misspelled(declared: str, found: str) -> str:
    """That a table spells a declared label otherwise."""
    return f"{quoted(declared)} is declared: did you mean {quoted(found)}?"


def _repeats_persons(name: str, told: list[str]) -> bool:
    """Whether a column is named like an identifier, holds more values than a category, and some repeat."""
    present = [one for one in told if one]
    return _IDENTIFIER.search(name) is not None and MOST_LEVELS < len(set(present)) < len(present)


def _column(table: Table, name: str, book: Codebook, ranges: Mapping[str, Any]) -> ColumnReport:
    told = labels(cells := table.cells(name), name)
    kind, odd, outside = holds(told), Counter[str](), 0
    if name == book.treatment.column or name in book.levels:
        arms = (str(book.treatment.treated), str(book.treatment.control))
        declared, known, note = "levels", book.levels.get(name, arms), "no declared level"
        if name not in book.levels:
            declared, note = "treatment", f"neither {' nor '.join(arms)}; declare both under [treatment]"
        odd.update(one for one in told if one and one not in known)
    elif name in ranges or name in (book.outcome, getattr(book.sampling_weights, "column", None)):
        note, pair = "no number: counts as missing", ranges.get(name)
        declared = "outcome" if name == book.outcome else "number"
        if (weights := book.sampling_weights) is not None and name == weights.column:
            declared, note = "sampling weight", f"no number: counts as {weights.missing:g}"
            pair = 0.0, weights.largest
        numbers = numbers_or_nan(cells, name)
        odd.update(one for one, number in zip(told, numbers, strict=True) if one and np.isnan(number))
        low, high = pair if isinstance(pair, tuple | list) else (-np.inf, np.inf)
        outside = int(np.sum((numbers < low) | (numbers > high)))
    elif name in book.no_covariates:
        unit = book.unit is not None and name == book.unit.column
        return ColumnReport(name, "person" if unit else "unit", kind, told.count(""))
    else:
        line = levels_line(name, told) if "text" in kind else None
        hint = () if line is None else (f"if a codebook lists its levels, declare under [levels]: {line}",)
        if _repeats_persons(name, told):
            hint = (
                "looks like an identifier and repeats: a guarantee covers one record, not all of a person; "
                f"[unit] column = {quoted(name)}, number = N protects persons",
            )
        return ColumnReport(name, "-", kind, told.count(""), notes=hint)
    most = ", ".join(f"{quoted(one)} ({times:,})" for one, times in odd.most_common(4))
    notes = [f"{most}{', ...' if len(odd) > 4 else ''}: {note}"] if odd else []
    if name in book.missing and name in ranges and 20 * told.count("") > len(told):
        notes.append(
            "not adjusted for where it is missing; to count complete records alone, declare "
            f"eligible = ['{key(name)} >= {ranges[name][0]:g}']"
        )
    near = _spelled(odd, [str(one) for one in known]) if declared in ("levels", "treatment") else {}
    notes += [_misspelled(label, text) for label, text in near.items()]
    return ColumnReport(name, declared, kind, told.count(""), odd.total(), outside, tuple(notes))
