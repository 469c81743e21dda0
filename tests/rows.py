"""Rows of parametrized tests: those that the default tests run, and the others, which are slow."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def slow(row: Any) -> ParameterSet:
    """The row, run among the slow tests alone."""
    if isinstance(row, ParameterSet):
        return row._replace(marks=[*row.marks, pytest.mark.slow])
    values = row if isinstance(row, tuple) else (row,)
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_rows(names: Iterable[str], *slower: str) -> list[Any]:
    """Names of rows, of which those that are named once more are slow: others show what they do."""
    rows = list(names)
    unknown = set(slower) - set(rows)
    assert not unknown, f"no rows are called {unknown}"
    return [slow(row) if row in slower else row for row in rows]


def default_rows(names: Iterable[str], *default: str) -> list[Any]:
    """Names of rows, of which those that are named once more run by default."""
    rows = list(names)
    return slow_rows(rows, *(row for row in rows if row not in default))


def one_of(rows: Iterable[Any], number: int) -> list[Any]:
    """Rows, of which the first of every ``number`` runs by default."""
    return [row if place % number == 0 else slow(row) for place, row in enumerate(rows)]
