"""Errors of private effects over the number of records times epsilon, method by method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from dp2erm_cvx.plotting.figure import COLORS, WIDTH, legend_below, new_figure, plain
from dp2erm_cvx.studies.effect_summary import effect_errors

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_PLAIN = "AIPW"


def benchmark(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """A panel for all data: RMSE of every private method over n epsilon, both on logarithmic axes.

    Grey is the error of AIPW without privacy, and dotted the size of the effect: an answer that is off by as
    much says nothing about it.
    """
    from matplotlib.ticker import NullLocator

    found = effect_errors(table)
    private, plain_lines = found[np.isfinite(found["epsilon"])], found[found["method"] == _PLAIN]
    names, panels = list(private["method"].unique()), list(private["data"].unique())
    columns = 3
    figure = new_figure(WIDTH, 1.6 + 2.1 * -(-len(panels) // columns))
    axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False)
    for ax, panel in zip(axes.ravel(), panels, strict=False):
        here = private[private["data"] == panel]
        # records and epsilon matter by their product alone, nearly: one line holds both
        here = here.assign(place=here["records"] * here["epsilon"]).sort_values("place")
        for method, line in here.groupby("method", sort=False):
            number = names.index(str(method))
            ax.plot(
                line["place"],
                line["rmse"],
                marker="o" if number < len(COLORS) else "s",
                markersize=3,
                color=COLORS[number % len(COLORS)],
                linestyle="-" if number < len(COLORS) else "--",
                linewidth=2.0 if str(method).startswith("private") else 1.1,
                label=method,
            )
        known = plain_lines[plain_lines["data"] == panel]
        for n in here["n"].unique():
            own, at = here[here["n"] == n]["place"], known[known["n"] == n]["rmse"]
            if len(at) and at.iloc[0] > 1e-9:  # it may stand for the effect itself
                ends = [own.min() / 1.15, own.max() * 1.15]
                ax.plot(ends, [at.iloc[0]] * 2, color="0.65", linewidth=4, label="AIPW, no privacy", zorder=0)
        ax.axhline(abs(float(here["effect"].iloc[0])), color="0.3", linestyle=":", label="size of the effect")
        ax.set(xscale="log", yscale="log")
        ax.set_title(str(panel), loc="left", fontsize="medium")
        plain(ax)
        ends = sorted({float(here["place"].min()), float(here["place"].max())})
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(ends, [f"{end:,.0f}" for end in ends])
    for ax in axes.ravel()[len(panels) :]:
        ax.set_visible(False)
    for row in axes:
        row[0].set_ylabel("RMSE")
    for ax in axes.ravel()[: len(panels)][-columns:]:
        ax.set_xlabel("n epsilon")
    legend_below(figure, axes.ravel())
    yield "benchmark", figure
