"""Bounds on the coupled variation as curves. matplotlib is imported when a figure is drawn, never before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.plotting.figure import BLUE, ORANGE, new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dp2erm_cvx.compare.bound_curves import Curve

_COLORS = (BLUE, ORANGE, "#3a7d44", "#7a4fa3", "#8c2d2d")
#: The usable figure of the paper is the smaller of two others, which stay visible on top of it.
_STYLES: dict[str, dict[str, Any]] = {
    "sharp, unrefined": {"linestyle": ":"},
    "paper, printed alone": {"linestyle": "--"},
    "paper, usable": {"linewidth": 5, "alpha": 0.3, "zorder": 1},
    "universal": {"linestyle": "-."},
}


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
    figure = new_figure(1.0 + 5.6 * len(panels), 4.4)
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
    save(figure, path)
    return figure
