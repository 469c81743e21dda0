"""Panels in rows, one for each data set, with a line for every method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dp2erm_cvx.plotting.figure import COLORS, WIDTH, new_figure, plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3


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
