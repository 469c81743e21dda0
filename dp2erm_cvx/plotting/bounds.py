"""Stability bounds as curves, and beside what audits met. matplotlib is imported when one is drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.plotting.figure import BLUE, COLORS, ORANGE, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dp2erm_cvx.audit import Verdict
    from dp2erm_cvx.compare import Curves


_COLORS = (BLUE, ORANGE, "#3a7d44", "#7a4fa3", "#8c2d2d")
#: The usable figure of the paper is the smaller of two others, which stay visible on top of it.
_STYLES: dict[str, dict[str, Any]] = {
    "paper, printed alone": {"linestyle": "--"},
    "paper, usable": {"linewidth": 5, "alpha": 0.3, "zorder": 1},
    "universal": {"linestyle": "-."},
}


def bound_plot(panels: Sequence[tuple[str, str, Curves]], path: str | Path) -> Figure:
    """Bounds on the coupled variation V in log-log, one panel beside the other, saved as .png, .svg or .pdf.

    A panel is its title, what its curves are over, and the curves, a color each. Raises DeclarationError
    where matplotlib is missing or the file cannot be written.
    """
    figure = new_figure(1.0 + 5.6 * len(panels), 4.4)
    for ax, (title, x_label, curves) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        for k, (family, curve) in enumerate(curves.items()):
            ax.plot(*curve, color=_COLORS[k % len(_COLORS)], label=family, **_STYLES.get(family, {}))
        ax.set(xscale="log", yscale="log", xlabel=x_label, ylabel="bound V on the movement of the weights")
        ax.set_title(title, loc="left", fontsize="medium")
        _plain(ax)
        ax.legend(frameon=False, fontsize="small")
    save(figure, path)
    return figure


_HELD, _VIOLATED, _FOUND, _GRID = BLUE, ORANGE, COLORS[0], "#ebebeb"
#: Shares beyond are drawn here.
_FARTHEST = 1e6
#: What the page that a figure stands in decides, for light and dark readers.
_STYLED = {
    "#000000": "currentColor",
    _FOUND: "currentColor",
    _GRID: "var(--line)",
    _HELD: "var(--good)",
    _VIOLATED: "var(--bad)",
}


def shares_figure(verdicts: Sequence[Verdict]) -> str:
    """The largest movement met as a share of each bound, with its numerical interval."""
    figure = new_figure(7.6, 1.1 + 0.33 * len(verdicts))
    ax = figure.add_subplot()
    for place, verdict in enumerate(reversed(verdicts)):
        low, high = (_share(end, verdict) for end in (verdict.movement.low, verdict.movement.high))
        color = _VIOLATED if verdict.violated else _HELD
        ax.barh(place, low, left=0, height=0.62, color=color, alpha=0.85)
        ax.plot([low, high], [place, place], color=_FOUND, linewidth=2.5, solid_capstyle="butt")
        text = f"{low:.1%}" if low < 10 else f"{low:,.0f} times" if low < _FARTHEST else "beyond any multiple"
        ax.annotate(text, (high, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    names = [f"{verdict.claim.name}: {verdict.claim.quantity}" for verdict in reversed(verdicts)]
    ax.set_yticks(range(len(names)), [shorten(name, 44) for name in names], parse_math=False)
    ax.axvline(1.0, color=_FOUND, linewidth=1.2)
    top = max(_share(verdict.movement.high, verdict) for verdict in verdicts)
    if top > 3:
        ax.set_xscale("symlog", linthresh=1.0)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    ax.set_xlim(0, max(1.18, 1.35 * top))
    ax.set_xlabel("largest movement reached, as a share of the bound (line: the bound itself)")
    _plain(ax)
    return _svg(figure, "Largest movement reached as a share of each bound")


def _share(movement: float, verdict: Verdict) -> float:
    # a bound of next to nothing has no place on an axis
    return min(movement / max(verdict.claim.bound, 1e-12 * movement, 1e-300), _FARTHEST)


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=_GRID, linewidth=0.6)
    ax.set_axisbelow(True)


def _svg(figure: Figure, title: str) -> str:
    from matplotlib import rc_context

    text = io.StringIO()
    # a fixed salt and no date: the same audit is the same file
    with rc_context({"svg.hashsalt": "dp2erm", "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    for color, styled in _STYLED.items():
        svg = svg.replace(color, styled)
    return svg.replace("<svg", '<svg role="img"', 1).replace(">", f"><title>{title}</title>", 1)
