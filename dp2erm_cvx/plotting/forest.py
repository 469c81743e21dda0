"""A forest plot: the released effect in every group with its interval."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plotting.figure import BLUE, new_figure, plain, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def forest_plot(release: Any, path: str | Path | None = None) -> Figure:
    """The effects of a release ``by`` groups, one above the other, and that of all their records.

    Of what was released alone, hence as public as the release. Thick lines are the intervals of the groups by
    themselves, thin ones hold for all of them together; what is unbounded is said in words.

    Parameters
    ----------
    release
        An :class:`~dp2erm_cvx.release.effect.EffectRelease` with groups.
    path
        Where to save the figure: .png, .svg or .pdf.

    Raises DeclarationError where there are no groups, matplotlib is missing, or the file cannot be written.
    """
    if not release.groups:
        raise DeclarationError("forest_plot: needs a release of an effect by groups: by = a column of levels")
    figure = new_figure(6.4, 1.3 + 0.36 * len(release.groups))
    ax, names = figure.subplots(), []
    rows = [(f"{one.group or 'missing'} ({max(one.counted, 0.0):,.0f})", one) for one in release.groups]
    for place, (name, one) in enumerate([*rows, ("all", release)]):
        names.append(name)
        color = "0.2" if one is release else BLUE
        if one.interval.low is None or one.interval.high is None:
            ax.text(0.5, place, "unbounded", transform=ax.get_yaxis_transform(), ha="center", va="center")
            continue
        for ends, width in ((getattr(one, "joint", None), 1.0), (one.interval, 3.0)):
            if ends is not None and ends.low is not None and ends.high is not None:
                ax.hlines(place, ends.low, ends.high, color=color, linewidth=width)
        ax.plot([one.estimate], [place], "D" if one is release else "o", color=color, markersize=5)
    ax.axvline(0.0, color="0.4", linewidth=1, linestyle=":")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel(f"effect, with {100 * release.interval.level:g} % intervals; thin: of all groups together")
    ax.set_title(f"Effect by {release.by} (about how many records)", loc="left", fontsize="medium")
    plain(ax)
    if path is not None:
        save(figure, path)
    return figure
