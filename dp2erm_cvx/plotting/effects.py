"""Errors of private effects, and accuracy of rules, over the number of records times epsilon."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.plotting.figure import COLORS, WIDTH, legend_below, new_figure, plain
from dp2erm_cvx.studies.effect_summary import effect_errors
from dp2erm_cvx.studies.summary import rule_errors

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PLAIN = "AIPW"
_COLUMNS = 3


def benchmark(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """A figure of effects, and one of rules where there are any, with a panel for all data in each."""
    yield "benchmark", _effects(table)
    if "accuracy" in table:
        yield "benchmark-rules", _rules(table)


def _effects(table: pd.DataFrame) -> Figure:
    """RMSE of every private method over n epsilon, both on logarithmic axes.

    Grey is the error of AIPW without privacy, and dotted the size of the effect: an answer that is off by as
    much says nothing about it.
    """
    found = effect_errors(table)
    private, plain_lines = found[np.isfinite(found["epsilon"])], found[found["method"] == _PLAIN]
    names, panels = list(private["method"].unique()), list(private["data"].unique())
    figure, axes = panels_of(len(panels), "RMSE")
    for ax, panel in zip(axes.ravel(), panels, strict=False):
        here = private[private["data"] == panel]
        # records and epsilon matter by their product alone, nearly: one line holds both
        here = here.assign(place=here["records"] * here["epsilon"]).sort_values("place")
        for method, line in here.groupby("method", sort=False):
            ax.plot(line["place"], line["rmse"], **line_style(names, str(method)))
        known = plain_lines[plain_lines["data"] == panel]
        for n in here["n"].unique():
            own, at = here[here["n"] == n]["place"], known[known["n"] == n]["rmse"]
            if len(at) and at.iloc[0] > 1e-9:  # it may stand for the effect itself
                ends = [own.min() / 1.15, own.max() * 1.15]
                ax.plot(ends, [at.iloc[0]] * 2, color="0.65", linewidth=4, label="AIPW, no privacy", zorder=0)
        size = abs(float(here["effect"].iloc[0]))
        if size > 0.0:
            ax.axhline(size, color="0.3", linestyle=":", label="size of the effect")
        ax.set_yscale("log")
        finish(ax, str(panel), here["place"])
    legend_below(figure, axes.ravel())
    return figure


def _rules(table: pd.DataFrame) -> Figure:
    """Mean accuracy of every private rule over n epsilon.

    Grey is the best without privacy, dotted the better of treating everybody and nobody.
    """
    found = rule_errors(table)
    private, others = found[np.isfinite(found["epsilon"])], found[~np.isfinite(found["epsilon"])]
    names, panels = list(private["method"].unique()), list(private["data"].unique())
    figure, axes = panels_of(len(panels), "accuracy")
    for ax, panel in zip(axes.ravel(), panels, strict=False):
        here = private[private["data"] == panel]
        here = here.assign(place=here["n"] * here["epsilon"]).sort_values("place")
        for method, line in here.groupby("method", sort=False):
            ax.plot(line["place"], line["accuracy"], **line_style(names, str(method)))
        known = others[others["data"] == panel]
        constant = known["method"].str.startswith("treat ")
        best = float(known[~constant]["accuracy"].max())
        ax.axhline(best, color="0.65", linewidth=4, label="best without privacy", zorder=0)
        level = float(known[constant]["accuracy"].max())
        ax.axhline(level, color="0.3", linestyle=":", label="everybody or nobody")
        finish(ax, str(panel), here["place"])
    legend_below(figure, axes.ravel())
    return figure


def panels_of(count: int, quantity: str) -> tuple[Figure, Any]:
    """A figure with so many panels and its axes (rows, columns), those beyond them hidden."""
    rows = -(-count // _COLUMNS)
    figure = new_figure(WIDTH, 1.6 + 2.1 * rows)
    axes = figure.subplots(rows, _COLUMNS, squeeze=False)
    for ax in axes.ravel()[count:]:
        ax.set_visible(False)
    for row in axes:
        row[0].set_ylabel(quantity)
    for ax in axes.ravel()[:count][-_COLUMNS:]:
        ax.set_xlabel("n epsilon")
    return figure, axes


def line_style(names: list[str], method: str) -> dict[str, Any]:
    """How the line of a method is drawn."""
    number = names.index(method)
    return {
        "marker": "o" if number < len(COLORS) else "s",
        "markersize": 3,
        "color": COLORS[number % len(COLORS)],
        "linestyle": "-" if number < len(COLORS) else "--",
        "linewidth": 2.0 if method.startswith("private") else 1.1,
        "label": method,
    }


def finish(ax: Axes, panel: str, places: pd.Series[float]) -> None:
    """The title, and n epsilon on a logarithmic axis with its ends."""
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log")
    ax.set_title(panel, loc="left", fontsize="medium")
    plain(ax)
    ends = sorted({float(places.min()), float(places.max())})
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(ends, [f"{end:,.0f}" for end in ends])
