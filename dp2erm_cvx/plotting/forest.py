"""A forest plot: released effects with their intervals, one above the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plotting.figure import BLUE, new_figure, plain, save
from dp2erm_cvx.release.answers import Answer, answers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    for one in listed:
        panels.setdefault((one.outcome, one.unit), []).append(one)
    heights = [1.3 + 0.36 * len(rows) for rows in panels.values()]
    figure = new_figure(6.4, sum(heights))
    drawn = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for ax, ((outcome, unit), rows) in zip(drawn, panels.items(), strict=True):
        _draw(ax, rows)
        level = 100 * rows[0].interval.level
        of = f" ({unit})" if unit else ""
        ax.set_xlabel(f"effect on {outcome}{of}, with {level:g} % intervals; thin: of all together")
        plain(ax)
    drawn[0].set_title(
        f"Effects of {listed[0].treatment} (about how many records)", loc="left", fontsize="medium"
    )
    if path is not None:
        save(figure, path)
    return figure


def _draw(ax: Axes, rows: list[Answer]) -> None:
    for place, one in enumerate(rows):
        color = "0.2" if one.group is None else BLUE
        if one.interval.low is None or one.interval.high is None:
            ax.text(0.5, place, "unbounded", transform=ax.get_yaxis_transform(), ha="center", va="center")
            continue
        for interval, width in ((one.joint, 1.0), (one.interval, 3.0)):
            if interval.low is not None and interval.high is not None:
                ax.hlines(place, interval.low, interval.high, color=color, linewidth=width)
        ax.plot([one.estimate], [place], "D" if one.group is None else "o", color=color, markersize=5)
    ax.axvline(0.0, color="0.4", linewidth=1, linestyle=":")
    counts = ["" if one.records is None else f" ({max(one.records, 0.0):,.0f})" for one in rows]
    ax.set_yticks(range(len(rows)), [one.name + count for one, count in zip(rows, counts, strict=True)])
    ax.set_ylim(len(rows) - 0.5, -0.5)
