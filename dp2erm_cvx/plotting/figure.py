"""New figures, their common look, and figures as files. matplotlib is imported when a figure is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release.answers import Answer, answers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


BLUE, ORANGE = "#1f5fa8", "#b35900"
#: Colors that stay apart for color-blind readers, black first.
COLORS = ("#222222", BLUE, "#6aa3d8", ORANGE, "#d9a066", "#3a7d44", "#7a4fa3")
#: Inches: figures fill the text column of the pages at their own size, so that their letters stay readable.
WIDTH = 7.7
_MISSING = "figures need matplotlib: pip install 'dp2erm-cvx[plots]'"
#: What to leave out so that the same figure is the same file.
_DATED: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def new_figure(width: float, height: float) -> Figure:
    """A figure of its own rather than pyplot's. Raises DeclarationError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DeclarationError(_MISSING) from None
    return Figure(figsize=(width, height), layout="constrained")


def check_figure(path: str | Path) -> None:
    """Raise DeclarationError where a figure could not be drawn, or not be saved as such a file."""
    if find_spec("matplotlib") is None:
        raise DeclarationError(_MISSING)
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise DeclarationError(f"{path}: figures are .png, .svg or .pdf")


def save(figure: Figure, path: str | Path) -> None:
    """Write .png, .svg or .pdf; the same figure is the same file. Raises DeclarationError."""
    from matplotlib import rc_context

    try:
        with rc_context({"svg.hashsalt": "dp2erm"}):
            figure.savefig(path, dpi=150, metadata=_DATED.get(Path(path).suffix.lower()))
    except (OSError, ValueError) as error:
        raise DeclarationError(f"{path}: cannot be written: {str(error).splitlines()[0]}") from None


def plain(ax: Axes) -> None:
    """Axes without a box, with a light grid. Call it when everything is drawn."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.93", linewidth=0.6)
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            _number_ticks(axis)


def _number_ticks(axis: Axis) -> None:
    """Numbers on a logarithmic axis, also where it spans less than a power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_minor_formatter(NullFormatter())  # on a short logarithmic axis they overlap
    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low) if low > 0 else math.inf
    if decades < 2:
        steps = (1, 2, 5) if decades > 0.9 else (1, 1.5, 2, 3, 4, 6)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))


def forest_plot(releases: Any, path: str | Path | None = None) -> Figure:
    """The effects of one release, by groups or not, or of several: a panel for every outcome.

    Of what was released alone, hence as public as the releases. Thick lines are the intervals of the effects
    by themselves, thin ones hold for all of them together; what is unbounded is said in words.

    Parameters
    ----------
    releases
        An :class:`~dp2erm_cvx.release.effect.EffectRelease`, or several by the names of their questions.
    path
        Where to save the figure: .png, .svg or .pdf.

    Raises DeclarationError where there is no effect, matplotlib is missing, or the file cannot be written.
    """
    if not isinstance(releases, Mapping):
        releases = {getattr(releases, "by", None) or "all records": releases}
    listed = answers(releases)
    if not listed:
        raise DeclarationError("forest_plot: needs a release of an effect")
    panels: dict[tuple[str, str], list[Answer]] = {}
    for answer in listed:
        panels.setdefault((answer.outcome, answer.unit), []).append(answer)
    heights = [1.3 + 0.36 * len(rows) for rows in panels.values()]
    figure = new_figure(6.4, sum(heights))
    drawn = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for ax, ((outcome, unit), rows) in zip(drawn, panels.items(), strict=True):
        _draw(ax, rows)
        level = 100 * rows[0].interval.level
        of = f" ({unit})" if unit else ""
        ax.set_xlabel(f"effect on {outcome}{of}\n{level:g} % intervals; thin: of all together")
        plain(ax)
    drawn[0].set_title(
        f"Effects of {listed[0].treatment} (about how many records)", loc="left", fontsize="medium"
    )
    if path is not None:
        save(figure, path)
    return figure


def _draw(ax: Axes, rows: list[Answer]) -> None:
    for place, row in enumerate(rows):
        color = "0.2" if row.group is None else BLUE
        if row.interval.low is None or row.interval.high is None:
            ax.text(0.5, place, "unbounded", transform=ax.get_yaxis_transform(), ha="center", va="center")
            continue
        for interval, width in ((row.joint, 1.0), (row.interval, 3.0)):
            if interval.low is not None and interval.high is not None:
                ax.hlines(place, interval.low, interval.high, color=color, linewidth=width)
        ax.plot([row.estimate], [place], "D" if row.group is None else "o", color=color, markersize=5)
    ax.axvline(0.0, color="0.4", linewidth=1, linestyle=":")
    counts = ["" if row.records is None else f" ({max(row.records, 0.0):,.0f})" for row in rows]
    ax.set_yticks(range(len(rows)), [row.name + count for row, count in zip(rows, counts, strict=True)])
    ax.set_ylim(len(rows) - 0.5, -0.5)
