"""NHEFS: the released effect over budgets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dp2erm_cvx.plotting.figure import COLORS, WIDTH, legend_below, new_figure, plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLIPPED = "no privacy, same bounds"
_LINES = {_CLIPPED: "-", "textbook, no bounds": "--", "difference of means": ":"}
_TITLES = {
    "uniform": "weights of 1",
    "entropy": "entropy balancing",
    "entropy, ridge/4": "entropy balancing, a quarter of the ridge",
    "IPW": "IPW",
    "IPW, ridge/10": "IPW, a tenth of the ridge",
    "private IPW": "IPW, a tenth of the ridge, private propensity",
}
#: A private first stage and the one without privacy that has its ridge and trim.
_PLAIN_FORM = {"private IPW": "IPW, ridge/10"}
_STATISTICS = {"arm_means": "difference of arm means", "plug_in_ate": "plug-in"}
_NOISES = {"gamma": "gamma noise", "gaussian": "Gaussian noise", "laplace": "Laplace noise"}
#: The effects, in kg, that the panels show.
_LOW, _HIGH = -6.0, 12.0


def nhefs(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """Median and 90 % range of the released effect over epsilon, a panel for each first stage."""
    private = table[(table["status"] == "done") & table["epsilon"].notna()]
    schemes = list(private["scheme"].unique())
    figure = new_figure(WIDTH, 1.2 + 2.4 * -(-len(schemes) // 2))
    axes = figure.subplots(-(-len(schemes) // 2), 2, squeeze=False, sharex=True, sharey=True)
    for ax, scheme in zip(axes.ravel(), schemes, strict=False):
        lines = private[private["scheme"] == scheme].groupby("noise", sort=False)
        for number, (noise, line) in enumerate(lines):
            statistic = str(line["statistic"].iloc[0])
            label = f"{_STATISTICS.get(statistic, statistic)}, {_NOISES.get(str(noise), noise)}"
            _ranges(ax, line, (0.93, 1.0, 1.07)[number % 3], COLORS[1 + 2 * number], label)
        reference = table[table["epsilon"].isna()]
        for name, style in _LINES.items():
            owner = _PLAIN_FORM.get(scheme, scheme) if name == _CLIPPED else scheme
            row = reference[(reference["scheme"] == owner) & (reference["statistic"] == name)]
            if len(row):
                told = "arm means without noise, same bounds" if name == _CLIPPED else name
                ax.axhline(row["median"].iloc[0], color="0.4", linestyle=style, label=told)
        ax.set(xscale="log", ylim=(_LOW, _HIGH))
        ax.set_title(_TITLES.get(scheme, scheme), loc="left", fontsize="medium")
        plain(ax)
    for ax in axes.ravel()[len(schemes) :]:
        ax.set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("epsilon")
    for row in axes:
        row[0].set_ylabel("effect on weight, kg")
    legend_below(figure, axes.ravel())
    yield "nhefs", figure


def _ranges(ax: Axes, line: pd.DataFrame, shift: float, color: str, label: str) -> None:
    """Dots with bars; a triangle at the edge where a bar goes on beyond it."""
    bars = [line["median"] - line["low"], line["high"] - line["median"]]
    place = shift * line["epsilon"]
    ax.errorbar(place, line["median"], bars, fmt="o", markersize=4, color=color, label=label)
    for beyond, edge, marker in ((line["low"] < _LOW, _LOW, "v"), (line["high"] > _HIGH, _HIGH, "^")):
        if beyond.any():
            spots = place[beyond]
            ax.plot(spots, [edge] * len(spots), marker, color=color, markersize=7, clip_on=False, zorder=5)
