"""What the columns of a raw table hold, and how that fits what is declared: for the data holder."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.tables import Table, labels, numbers_or_nan, quoted

#: Different texts of one column that are listed as levels; a column with more of them is no category.
MOST_LEVELS = 20

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


def column_report(table: Table, book: Codebook | None = None, ranges: object = None) -> list[ColumnReport]:
    """Every column of the table, beside what the codebook and the ranges declare of it."""
    named = ranges if isinstance(ranges, Mapping) else {}
    return [_column(table, name, book or Codebook(), named) for name in table.names]


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


def _column(table: Table, name: str, book: Codebook, ranges: Mapping[str, Any]) -> ColumnReport:
    told = labels(cells := table.cells(name), name)
    kind, odd, outside = holds(told), Counter[str](), 0
    if name == book.treatment.column or name in book.levels:
        arms = (str(book.treatment.treated), str(book.treatment.control))
        declared, known, note = "levels", book.levels.get(name, arms), "no declared level"
        if name not in book.levels:
            declared, note = "treatment", f"neither {' nor '.join(arms)}; declare both under [treatment]"
        odd.update(one for one in told if one and one not in known)
    elif name in ranges or name in book.no_covariates:
        note, pair = "no number: counts as missing", ranges.get(name)
        declared = "outcome" if name == book.outcome else "number"
        if (weights := book.sampling_weights) is not None and name == weights.column:
            declared, note = "sampling weight", f"no number: counts as {weights.missing:g}"
            pair = 0.0, weights.largest
        numbers = numbers_or_nan(cells, name)
        odd.update(one for one, number in zip(told, numbers, strict=True) if one and np.isnan(number))
        low, high = pair if isinstance(pair, tuple | list) else (-np.inf, np.inf)
        outside = int(np.sum((numbers < low) | (numbers > high)))
    else:
        line = levels_line(name, told) if "text" in kind else None
        hint = () if line is None else (f"if a codebook lists its levels, declare under [levels]: {line}",)
        return ColumnReport(name, "-", kind, told.count(""), notes=hint)
    most = ", ".join(f"{quoted(one)} ({times:,})" for one, times in odd.most_common(4))
    notes = (f"{most}{', ...' if len(odd) > 4 else ''}: {note}",) if odd else ()
    return ColumnReport(name, declared, kind, told.count(""), odd.total(), outside, notes)
