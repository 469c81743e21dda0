"""NHEFS: the released effect over budgets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dp2erm_cvx.experiment_plots.common import COLORS, new_figure, plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_LINES = {"no privacy, same bounds": "-", "textbook, no bounds": "--", "difference of means": ":"}


def nhefs(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """Median and 90 % range of the released effect over epsilon, a panel for each first stage."""
    private = table[(table["status"] == "done") & table["epsilon"].notna()]
    schemes = list(private["scheme"].unique())
    figure = new_figure(12.0, 6.2)
    axes = figure.subplots(2, -(-len(schemes) // 2), squeeze=False, sharex=True, sharey=True)
    for ax, scheme in zip(axes.ravel(), schemes, strict=False):
        for number, (name, line) in enumerate(
            private[private["scheme"] == scheme].groupby("noise", sort=False)
        ):
            color = COLORS[1 + 2 * number]
            shift = 0.94 + 0.06 * number
            bars = [line["median"] - line["low"], line["high"] - line["median"]]
            label = f"{line['statistic'].iloc[0]}, {name}"
            ax.errorbar(shift * line["epsilon"], line["median"], bars, fmt="o", color=color, label=label)
        known = table[(table["scheme"] == scheme) & table["epsilon"].isna()]
        for name, row in known.groupby("statistic", sort=False):
            ax.axhline(row["median"].iloc[0], color="0.4", linestyle=_LINES[name], label=name)
        ax.set(xscale="log", ylim=(-6, 12))
        ax.set_title(scheme, loc="left", fontsize="medium")
        plain(ax)
    for ax in axes[-1]:
        ax.set_xlabel("epsilon")
    for row in axes:
        row[0].set_ylabel("effect on weight, kg")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    yield "nhefs", figure
