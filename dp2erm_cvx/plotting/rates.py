"""Rates: excess and error over n."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dp2erm_cvx.plotting.common import COLORS, legend_below, new_figure, plain
from dp2erm_cvx.studies.summary import means

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_VALUES = {"excess": "excess objective", "error": "distance to the sample minimizer"}


def rates(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """Excess and error over n, by curvature, a figure for each noise.

    Bands are 95 % intervals over replicates; dotted lines have the slopes of the theorem.
    """
    by = ["curvature", "scheme", "family", "noise", "n"]
    every = means(table, by, list(_VALUES))
    for noise in every["noise"].unique():
        found = every[every["noise"] == noise]
        curvatures = list(found["curvature"].unique())
        figure = new_figure(0.9 + 2.9 * len(curvatures))
        axes = figure.subplots(len(curvatures), len(_VALUES), squeeze=False, sharex=True)
        for row, curvature in zip(axes, curvatures, strict=True):
            part = found[found["curvature"] == curvature]
            for ax, (name, label) in zip(row, _VALUES.items(), strict=True):
                _panel(ax, part, name, curvature.startswith("strongly"))
                ax.set_title(curvature, loc="left", fontsize="medium")
                ax.set_ylabel(label)
                plain(ax)
        for ax in axes[-1]:
            ax.set_xlabel("number of records n")
        legend_below(figure, axes.ravel())
        yield f"rates-{noise}", figure


def _panel(ax: Axes, part: pd.DataFrame, name: str, strong: bool) -> None:
    ax.set(xscale="log", yscale="log")
    for number, ((scheme, family), line) in enumerate(part.groupby(["scheme", "family"], sort=False)):
        color = COLORS[number % len(COLORS)]
        ax.plot(line["n"], line[name], "o-", color=color, markersize=3.5, label=f"{scheme}, {family}")
        half = line[f"{name}_half"].fillna(0.0)
        low = (line[name] - half).clip(lower=line[name] / 10)  # a logarithm has no zero
        ax.fill_between(line["n"], low, line[name] + half, color=color, alpha=0.2, linewidth=0)
    if name == "excess" or strong:  # the theorem says nothing of theta without curvature
        rate = 1.0 if name == "excess" and strong else 0.5
        first, last = part["n"].min(), part["n"].max()
        top = part[part["n"] == first][name].min()
        style, told = ((0, (1, 1)), "-1") if rate == 1.0 else ((0, (1, 3)), "-1/2")
        ends = (top, top * (first / last) ** rate)
        ax.plot((first, last), ends, linestyle=style, color="0.4", label=f"slope {told}, of the theorem")
