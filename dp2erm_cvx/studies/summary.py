"""Means over replicates with 95 % intervals, and how good rules are: accuracy and value."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


_PLACE = ["data", "n", "epsilon", "method"]
#: Normal quantile of a two-sided 95 % interval.
Z = 1.959964


def means(table: pd.DataFrame, by: list[str], values: list[str], unit: str = "replicate") -> pd.DataFrame:
    """Mean of ``values`` for every group, with ``NAME_half`` the half width of its 95 % interval.

    The unit of which the groups have many is first averaged within itself. A group of one has no interval.
    """
    done = table[table["status"] == "done"]
    within = done.groupby([*by, unit], sort=False, dropna=False)[values].mean().reset_index()
    grouped = within.groupby(by, sort=False, dropna=False)[values]
    found = grouped.mean()
    spread, count = grouped.std(), grouped.count()
    for name in values:
        found[f"{name}_half"] = Z * spread[name] / count[name].map(math.sqrt)
    return found.reset_index()


def with_interval(mean: float, half: float) -> str:
    """``0.836±.004``."""
    return f"{mean:.3f}" if math.isnan(half) else f"{mean:.3f}±{f'{half:.3f}'.removeprefix('0')}"


def rows_with(table: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Which rows have such a number: an "estimate" those of effects, an "accuracy" those of rules."""
    return table.get(name, table["n"] * np.nan).notna()


def rule_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Mean ``accuracy`` and ``value`` of every rule, with half widths of their intervals of 95 %."""
    rules = table[rows_with(table, "accuracy")]
    timed = ["seconds"] if "seconds" in rules else []
    return means(rules, _PLACE, ["accuracy", "value", *timed])


def rule_table(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The same as text."""
    lines = []
    for line in rule_errors(table).to_dict("records"):
        place = [line["data"], f"{line['n']:,}", f"{line['epsilon']:g}", line["method"]]
        shown = [with_interval(line[name], line[f"{name}_half"]) for name in ("accuracy", "value")]
        lines.append([*place, *shown])
    return [*_PLACE, "accuracy", "value"], lines
