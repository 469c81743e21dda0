"""Figures from tables. matplotlib is imported when a figure is drawn, never before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.diagnostics import BalanceTable
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dp2erm_cvx.experiments.bound_curves import Curve

#: Colors that stay apart for color-blind readers.
_COLORS = ("#1f5fa8", "#b35900", "#3a7d44", "#7a4fa3", "#8c2d2d")
#: The usable figure of the paper is the smaller of two others, which stay visible on top of it.
_STYLES: dict[str, dict[str, Any]] = {
    "sharp, unrefined": {"linestyle": ":"},
    "paper, printed alone": {"linestyle": "--"},
    "paper, usable": {"linewidth": 5, "alpha": 0.3, "zorder": 1},
    "universal": {"linestyle": "-."},
}
#: What to leave out so that the same figure is the same file.
_DATED: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_BEFORE, _AFTER = "#b35900", "#1f5fa8"


def love_plot(
    table: BalanceTable,
    path: str | Path | None = None,
    *,
    ax: Axes | None = None,
    threshold: float = 0.1,
) -> Axes:
    """Absolute standardized mean differences before and after weighting, one line per covariate.

    Not differentially private: for the data holder only.

    Parameters
    ----------
    table
        From :func:`~dp2erm_cvx.diagnostics.balance_table`. Undefined differences are left out.
    path
        Where to save the figure: .png, .svg or .pdf.
    ax
        Axes to draw on; a new figure otherwise.
    threshold
        Where to draw the usual mark of good balance.

    Raises
    ------
    DeclarationError
        matplotlib is missing, or the file cannot be written.
    """
    before, after = np.abs(table.smd_before), np.abs(table.smd_after)
    order = np.argsort(np.where(np.isnan(before), -1.0, before), kind="stable")
    places = np.arange(len(order))
    if ax is None:
        # a Figure of its own rather than pyplot's: no window system, no global state
        ax = _figure(6.4, 1.4 + 0.32 * len(order)).add_subplot()
    ax.hlines(places, before[order], after[order], color="0.8", linewidth=1.5, zorder=1)
    ax.scatter(
        before[order],
        places,
        s=42,
        facecolors="white",
        edgecolors=_BEFORE,
        linewidths=1.6,
        label="before",
        zorder=2,
    )
    ax.scatter(after[order], places, s=42, color=_AFTER, label="after weighting", clip_on=False, zorder=3)
    ax.axvline(threshold, color="0.4", linewidth=1, linestyle="--", label=f"{threshold:g}")
    ax.set_yticks(places, [table.columns[k] for k in order])
    ax.set_xlim(left=0.0)
    ax.set_ylim(-0.7, len(order) - 0.3)
    ax.set_xlabel("absolute standardized mean difference")
    ax.set_title("Covariate balance (not private)", loc="left", fontsize="medium")
    ax.legend(loc="lower right", frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure = ax.get_figure(root=True)
        if figure is None:
            raise DeclarationError("ax belongs to no figure: nothing can be saved")
        _save(figure, path)
    return ax


@dataclass(frozen=True, eq=False)
class Panel:
    """Curves over one quantity."""

    title: str
    x_label: str
    curves: Sequence[Curve]


def bound_plot(panels: Sequence[Panel], path: str | Path) -> Figure:
    """Bounds on the coupled variation V in log-log, one panel beside the other, saved as .png, .svg or .pdf.

    One color per program where there are several, else one per family.
    Raises DeclarationError where matplotlib is missing or the file cannot be written.
    """
    figure = _figure(1.0 + 5.6 * len(panels), 4.4)
    for ax, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        programs = list(dict.fromkeys(curve.program for curve in panel.curves))
        for k, curve in enumerate(panel.curves):
            several = len(programs) > 1
            color = _COLORS[(programs.index(curve.program) if several else k) % len(_COLORS)]
            label = f"{curve.program}, {curve.family}" if several else curve.family
            ax.plot(curve.x, curve.V, color=color, label=label, **_STYLES.get(curve.family, {}))
        ax.set(
            xscale="log", yscale="log", xlabel=panel.x_label, ylabel="bound V on the movement of the weights"
        )
        ax.set_title(panel.title, loc="left", fontsize="medium")
        ax.grid(color="0.9", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small")
    _save(figure, path)
    return figure


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DeclarationError("plots need matplotlib: pip install 'dp2erm-cvx[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: str | Path) -> None:
    from matplotlib import rc_context

    try:
        with rc_context({"svg.hashsalt": "dp2erm"}):
            figure.savefig(path, dpi=150, metadata=_DATED.get(Path(path).suffix.lower()))
    except (OSError, ValueError) as error:
        raise DeclarationError(f"{path}: cannot be written: {str(error).splitlines()[0]}") from None
