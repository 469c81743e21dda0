"""Figures of rules and of effects, from tables of rows.

Their look is that of ``dp2erm_cvx.report.figures``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from common import legend_below, means
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from rules import PLAIN

from dp2erm_cvx.report.figures import BLUE, COLORS, ORANGE, WIDTH, new_figure, plain

#: How a family of calibrations is drawn, wherever it is.
STYLES: dict[str, dict[str, Any]] = {
    "sharp": {"color": BLUE, "linewidth": 2.2},
    "auto": {"color": "#3a7d44", "linestyle": (0, (1, 1)), "linewidth": 2.2},
    "saturating": {"color": "#b3246b", "linewidth": 2.2},
    "pipeline": {"color": "#d0679d", "linestyle": (0, (4, 1))},
    "composition-sharp": {"color": "#7a4fa3", "linestyle": "--"},
    "composition-printed": {"color": "#a08bc0", "linestyle": ":"},
    "paper-corrected": {"color": "#d08a3c", "linestyle": ":"},
    "paper": {"color": ORANGE, "linestyle": "-."},
}
LABELS = {"accuracy": "accuracy of the rule", "value": "mean outcome under the rule"}
CONSTANT = {"treat all": (0, (5, 2)), "treat none": (0, (2, 2))}
#: What the paper reports in words for its Figure 1, at epsilon 0.5.
REPORTED = {("linear", "EBW", "gamma"): 0.91, ("linear", "EBW", "gaussian"): 0.87}


def study(table: pd.DataFrame, part: str, stem: str) -> Iterator[tuple[str, Figure]]:
    """Two figures a scenario or form: accuracy and value over epsilon.

    Schemes are in rows, and noises in columns.
    """
    by = [part, "scheme", "noise", "family", "epsilon"]
    known = means(table, by, [*LABELS, "effective_share"])
    for name in known[part].unique():
        here = known[known[part] == name]
        schemes = [
            one
            for one in here[here["family"] != "pipeline"]["scheme"].unique()
            if one not in CONSTANT
        ]
        noises = [one for one in here["noise"].unique() if one != "none"]
        for value, label in LABELS.items():
            figure = new_figure(WIDTH, 0.9 + 2.6 * len(schemes))
            axes = figure.subplots(
                len(schemes), len(noises), squeeze=False, sharex=True, sharey=True
            )
            low, high = _limits(here, value)
            for row, scheme in zip(axes, schemes, strict=True):
                for ax, noise in zip(row, noises, strict=True):
                    drawn = {scheme, "pipeline"} if scheme == schemes[0] else {scheme}
                    text = _panel(ax, here, drawn, noise, value)
                    ax.set_ylim(low, high)
                    if (
                        (name, scheme, noise) in REPORTED
                        and stem == "simulation"
                        and value == "accuracy"
                    ):
                        at = REPORTED[name, scheme, noise]
                        ax.plot(
                            0.5, at, "kD", markersize=6, label="reported by the paper", zorder=5
                        )
                    law = "Gaussian" if noise == "gaussian" else noise
                    pad = 5 + 11 * (1 + text.count("\n"))  # the title stands above the text
                    ax.set_title(f"{scheme}, {law} noise", loc="left", fontsize="medium", pad=pad)
                    ax.text(0.0, 1.01, text, transform=ax.transAxes, fontsize=8, color="0.25")
                row[0].set_ylabel(label)
            for ax in axes[-1]:
                ax.set_xlabel("epsilon")
            legend_below(figure, axes.ravel())
            yield f"{stem}-{name}" + ("" if value == "accuracy" else f"-{value}"), figure


def _limits(rows: pd.DataFrame, value: str) -> tuple[float, float]:
    half = rows[f"{value}_half"].where(rows["noise"] != "none").fillna(0.0)
    low, high = float((rows[value] - half).min()), float((rows[value] + half).max())
    room = 0.04 * (high - low) or 0.01
    return low - room, high + room


def _panel(ax: Any, here: pd.DataFrame, schemes: set[str], noise: str, value: str) -> str:
    """The lines of a scheme; the effective sample sizes as text."""
    rows, shares = here[here["scheme"].isin(schemes)], dict[str, list[str]]()
    private_free = rows[rows["family"] == PLAIN]
    for family, style in STYLES.items():
        line = rows[(rows["family"] == family) & (rows["noise"] == noise)].sort_values("epsilon")
        if len(line):
            ax.plot(line["epsilon"], line[value], label=family, **style)
            half = line[f"{value}_half"]
            ends = (line[value] - half, line[value] + half)
            ax.fill_between(line["epsilon"], *ends, color=style["color"], alpha=0.15, linewidth=0)
            if line["effective_share"].notna().any():
                shares.setdefault(f"{line['effective_share'].mean():.3f}", []).append(family)
    if len(private_free):
        ax.axhline(private_free[value].iloc[0], color="0.2", linewidth=1, label="without privacy")
        shares.setdefault(f"{private_free['effective_share'].iloc[0]:.3f}", []).append(
            "without privacy"
        )
    for _, line in here[here["family"] == "constant rule"].iterrows():
        style = CONSTANT[line["scheme"]]
        ax.axhline(line[value], color="0.55", linewidth=1, linestyle=style, label=line["scheme"])
    ax.set_xscale("log")
    plain(ax)
    parts = (f"{share} {', '.join(families)}" for share, families in shares.items())
    text = "effective sample size / n: " + "; ".join(parts)
    return "\n".join(textwrap.wrap(text, 58, break_on_hyphens=False))


def effects(errors: pd.DataFrame) -> Figure:
    """RMSE of every private method over n epsilon, a panel for all data, both axes logarithmic.

    Grey is the error of AIPW without privacy, dotted the size of the effect: an answer that is off
    by as much says nothing about it.
    """
    private, free = errors[np.isfinite(errors["epsilon"])], errors[errors["method"] == "AIPW"]
    # records and epsilon matter by their product alone, nearly: one line holds both
    private = private.assign(place=private["records"] * private["epsilon"])
    figure, panels = _panels(private, "RMSE")
    for name, ax, here in panels:
        _lines(ax, here, list(private["method"].unique()), "rmse")
        known = free[free["data"] == name]
        for n in here["n"].unique():
            own, at = here[here["n"] == n]["place"], known[known["n"] == n]["rmse"]
            if len(at) and at.iloc[0] > 1e-9:  # it may stand for the effect itself
                ends = [own.min() / 1.15, own.max() * 1.15]
                label = "AIPW, no privacy"
                ax.plot(ends, [at.iloc[0]] * 2, color="0.65", linewidth=4, label=label, zorder=0)
        if size := abs(float(here["effect"].iloc[0])):
            ax.axhline(size, color="0.3", linestyle=":", label="size of the effect")
        ax.set_yscale("log")
    legend_below(figure, figure.axes)
    return figure


def learned(errors: pd.DataFrame) -> Figure:
    """Mean accuracy of every private rule over n epsilon.

    Grey is the best without privacy, dotted the better of treating everybody and nobody.
    """
    private, free = errors[np.isfinite(errors["epsilon"])], errors[~np.isfinite(errors["epsilon"])]
    private = private.assign(place=private["n"] * private["epsilon"])
    figure, panels = _panels(private, "accuracy")
    for name, ax, here in panels:
        _lines(ax, here, list(private["method"].unique()), "accuracy")
        known = free[free["data"] == name]
        constant = known["method"].str.startswith("treat ")
        best, level = known[~constant]["accuracy"].max(), known[constant]["accuracy"].max()
        ax.axhline(best, color="0.65", linewidth=4, label="best without privacy", zorder=0)
        ax.axhline(level, color="0.3", linestyle=":", label="everybody or nobody")
    legend_below(figure, figure.axes)
    return figure


def _panels(
    private: pd.DataFrame, quantity: str
) -> tuple[Figure, list[tuple[str, Any, pd.DataFrame]]]:
    """Three panels in a row, one for all data, with their rows by place."""
    names = list(private["data"].unique())
    figure = new_figure(WIDTH, 1.6 + 2.1 * -(-len(names) // 3))
    axes = figure.subplots(-(-len(names) // 3), 3, squeeze=False)
    for ax in axes.ravel()[len(names) :]:
        figure.delaxes(ax)
    for row in axes:
        row[0].set_ylabel(quantity)
    panels = []
    for name, ax in zip(names, axes.ravel(), strict=False):
        here = private[private["data"] == name].sort_values("place")
        ax.set_title(str(name), loc="left", fontsize="medium")
        ax.set(xscale="log", xlabel="n epsilon")
        ends = sorted({float(here["place"].min()), float(here["place"].max())})
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(ends, [f"{end:,.0f}" for end in ends])
        panels.append((name, ax, here))
    return figure, panels


def _lines(ax: Any, here: pd.DataFrame, names: list[str], value: str) -> None:
    """A line for every method."""
    for method, line in here.groupby("method", sort=False):
        second, number = divmod(names.index(method), len(COLORS))
        ax.plot(
            line["place"],
            line[value],
            "s--" if second else "o-",
            markersize=3,
            color=COLORS[number],
            linewidth=2.0 if method.startswith("private") else 1.1,
            label=method,
        )
    plain(ax)
