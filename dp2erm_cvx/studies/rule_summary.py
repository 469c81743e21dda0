"""How good rules are: accuracy and value by method and budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.studies.summary import means, with_interval

if TYPE_CHECKING:
    import pandas as pd

_PLACE = ["data", "n", "epsilon", "method"]


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
