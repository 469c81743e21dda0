"""Means over replicates with 95 % intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


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
