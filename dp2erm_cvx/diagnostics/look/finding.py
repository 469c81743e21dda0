"""What a look finds: sentences that stop a release, and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.dataset import Dataset, Public
from dp2erm_cvx.data.tables import Table
from dp2erm_cvx.diagnostics.look.records import AskedAbout, Seen, seen_in
from dp2erm_cvx.diagnostics.look.rules import RULES, View
from dp2erm_cvx.errors import LONGEST, DataError


@dataclass(frozen=True)
class Findings:
    """What a look has found.

    Parameters
    ----------
    gross
        Sentences on what stops a release.
    lines
        Other sentences.
    """

    gross: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def __add__(self, other: Findings) -> Findings:
        """Both, each sentence once."""
        gross = dict.fromkeys([*self.gross, *other.gross])
        lines = dict.fromkeys([*self.lines, *other.lines])
        return Findings(tuple(gross), tuple(lines))

    def refuse(self, consent: str) -> None:
        """Raise DataError where something stops a release.

        The message holds as many sentences as there is room for.

        Parameters
        ----------
        consent
            Says how it is released anyway.
        """
        if not self.gross:
            return
        end = f"nothing was charged; {consent} releases all the same"
        told = list(self.gross)
        while len(self._stop(told, end)) > LONGEST and len(told) > 1:
            told.pop()
        n_too_many = len(self._stop(told, end)) - LONGEST
        if n_too_many > 0:
            told[0] = f"{told[0][: -n_too_many - 4]} ..."
        raise DataError(self._stop(told, end))

    def _stop(self, told: Sequence[str], end: str) -> str:
        """The message of a stop that tells some of what is gross."""
        n_untold = len(self.gross) - len(told)
        parts = list(told)
        if n_untold:
            parts.append(f"and {n_untold} more, which dp2erm check lists")
        return "; ".join([*parts, end])


def look(seen: Seen, asked: AskedAbout) -> Findings:
    """What the rules find in records, as a question asks about them.

    This is the one look that all commands share.
    """
    view = View.of(seen, asked)
    gross: dict[str, None] = {}
    lines: dict[str, None] = {}
    for rule in RULES:
        sentences = gross if rule.stops else lines
        sentences |= dict.fromkeys(rule.found(view))
    return Findings(tuple(gross), tuple(lines))


def seen_of(
    data: Dataset | BlockedDataset, public: Public, table: Table | None = None, most: int = 0
) -> Seen:
    """What a look reads of records, in memory or in one pass over blocks.

    Parameters
    ----------
    data, public
        The records, made by what is declared.
    table
        Their cells, where records in memory have been made of cells.
    most
        The number of rows whose cells are read, drawn at random; 0 for all.
    """
    if isinstance(data, Dataset):
        return seen_in(data, public, table, most=most)
    book = None if data.coded_by is None else data.coded_by.codebook
    names: dict[str, str] = {}
    if book is not None:
        names = {book.treatment.column or "a": data.treatment, book.outcome or "y": data.outcome}

    def part(table: Table, block: Dataset, rows: range) -> Seen:
        return seen_in(block, public, _as_declared(table, names) if names else None, rows.start)

    return data.total_with_tables(part, _added, range(sum(data.pieces.rows)))


def _added(parts: Sequence[Seen]) -> Seen:
    """What is read of several parts."""
    return reduce(add, parts)


def _as_declared(table: Table, names: Mapping[str, str]) -> Table:
    """The table, in which columns are found by their declared names as well.

    Parameters
    ----------
    table
        The cells.
    names
        For each declared name what the dataset calls the column.
    """
    renamed = {name: held for name, held in names.items() if name not in table.names}
    if not renamed:
        return table

    def column(name: str) -> Any:
        return table.cells(renamed.get(name, name))

    def written(name: str) -> Any:
        return table.cells(renamed.get(name, name), written=True)

    return replace(table, names=(*table.names, *renamed), column=column, written=written)


def rows_that_do_not_match(X: Any, a: Any, y: Any) -> Findings:
    """Whether rows that are given together belong together, by the index of their frames."""
    labels: list[Any] = [getattr(part, "index", None) for part in (X, a, y)]
    indexes = [index for index in labels if hasattr(index, "equals")]
    gross: list[str] = []
    lines: list[str] = []
    if len({len(index) for index in indexes}) > 1:  # which is refused elsewhere
        return Findings()
    for index in indexes[1:]:
        if index.equals(indexes[0]):
            continue
        advice = (
            "rows count by their place, not by the index: give .to_numpy() of both where that is "
            "right"
        )
        if index.sort_values().equals(indexes[0].sort_values()):
            gross.append(f"X, a and y have the same index in another order: {advice}")
        else:
            lines.append(f"X, a and y have other indexes: {advice}")
    return Findings(tuple(dict.fromkeys(gross)), tuple(dict.fromkeys(lines)))
