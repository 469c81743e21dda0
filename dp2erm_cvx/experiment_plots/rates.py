"""Rates: excess and error over n."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dp2erm_cvx.experiment_plots.common import COLORS, new_figure, plain
from dp2erm_cvx.experiments.summary import means

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def rates(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """Excess and error over n, by curvature; dotted lines have the slopes of the theorem."""
    by = ["curvature", "scheme", "family", "noise", "n"]
    values = {"excess": "excess objective", "error": "distance of theta to the sample minimizer"}
    found = means(table, by, list(values))
    found = found[found["noise"] == "gamma"]
    curvatures = list(found["curvature"].unique())
    figure = new_figure(1.0 + 4.2 * len(values), 1.0 + 3.0 * len(curvatures))
    axes = figure.subplots(len(curvatures), len(values), squeeze=False, sharex=True)
    for row, curvature in zip(axes, curvatures, strict=True):
        part = found[found["curvature"] == curvature]
        for ax, (name, label) in zip(row, values.items(), strict=True):
            for number, ((scheme, family), line) in enumerate(part.groupby(["scheme", "family"], sort=False)):
                color = COLORS[number % len(COLORS)]
                ax.plot(line["n"], line[name], "o-", color=color, markersize=3.5, label=f"{scheme}, {family}")
            ends = part["n"].min(), part["n"].max()
            rate = (1.0 if name == "excess" else 0.5) if curvature.startswith("strongly") else 0.5
            top = part[part["n"] == ends[0]][name].min()
            if name == "excess" or curvature.startswith("strongly"):
                told = f"n^-{rate:g}"
                ax.plot(ends, [top, top * (ends[0] / ends[1]) ** rate], ":", color="0.4", label=told)
            ax.set(xscale="log", yscale="log", title=curvature, ylabel=label)
            plain(ax)
            ax.legend(frameon=False, fontsize="x-small")
    for ax in axes[-1]:
        ax.set_xlabel("number of records n")
    yield "rates-gamma", figure
