"""Balance before and after weighting. matplotlib is imported when a figure is drawn, never before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dp2erm_cvx.diagnostics import BalanceTable
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.plotting.figure import BLUE, ORANGE, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BEFORE, _AFTER = ORANGE, BLUE

Statistic = Literal["smd", "variance_ratio", "ks"]
#: What the axis says, and where the usual mark of good balance is.
_STATISTICS: dict[Statistic, tuple[str, float]] = {
    "smd": ("absolute standardized mean difference", 0.1),
    "variance_ratio": ("variance ratio, treated / control", 2.0),
    "ks": ("Kolmogorov-Smirnov statistic", 0.1),
}


def love_plot(
    table: BalanceTable,
    path: str | Path | None = None,
    *,
    ax: Axes | None = None,
    threshold: float | None = None,
    statistic: Statistic = "smd",
) -> Axes:
    """One balance statistic before and after weighting, one line per covariate.

    Not differentially private: for the data holder only.

    Parameters
    ----------
    table
        From :func:`~dp2erm_cvx.diagnostics.balance_table`. Undefined entries are left out; a covariate
        without any says so.
    path
        Where to save the figure: .png, .svg or .pdf.
    ax
        Axes to draw on; a new figure otherwise.
    threshold
        Where to draw the usual mark of good balance: 0.1, or for variance ratios 2 and 1/2 (Austin 2009).
    statistic
        ``"smd"``, the absolute standardized mean differences; ``"variance_ratio"``, on a logarithmic axis
        with ratios of 0 at its left end; ``"ks"``, the Kolmogorov-Smirnov statistics.

    Raises
    ------
    DeclarationError
        matplotlib is missing, the file cannot be written, the statistic is unknown, or the threshold of a
        ratio is not above 1.
    """
    if statistic not in _STATISTICS:
        raise DeclarationError(f"statistic = {shown(statistic)}: must be one of {', '.join(_STATISTICS)}")
    label, usual = _STATISTICS[statistic]
    mark = usual if threshold is None else threshold
    ratio = statistic == "variance_ratio"
    if ratio and not mark > 1:
        raise DeclarationError(f"threshold = {shown(mark)}: must be above 1 for variance ratios")
    before, after = (np.abs(getattr(table, f"{statistic}_{when}")) for when in ("before", "after"))
    if ratio:
        drawn = np.concatenate([before, after, [1 / mark, mark]])
        left = 0.8 * float(np.min(drawn[drawn > 0]))
        # 0 is the worst ratio of all, and has no place on a logarithmic axis
        worst = before == 0
        before, after = np.maximum(before, left), np.maximum(after, left)
        size = np.where(worst, np.inf, np.abs(np.log(before)))
    else:
        left, size = 0.0, before
    order = np.argsort(np.where(np.isnan(size), -1.0, size), kind="stable")
    places = np.arange(len(order))
    if ax is None:
        # a Figure of its own rather than pyplot's: no window system, no global state
        ax = new_figure(7.8 if ratio else 6.4, 1.4 + 0.32 * len(order)).add_subplot()
    ax.hlines(places, before[order], after[order], color="0.8", linewidth=1.5, zorder=1)
    ax.scatter(
        before[order],
        places,
        s=42,
        facecolors="white",
        edgecolors=_BEFORE,
        linewidths=1.6,
        label="before",
        clip_on=False,
        zorder=2,
    )
    ax.scatter(after[order], places, s=42, color=_AFTER, label="after weighting", clip_on=False, zorder=3)
    name = f"{mark:g}" if not ratio else f"{1 / mark:g} and {mark:g}"
    ax.axvline(mark, color="0.4", linewidth=1, linestyle="--", label=name)
    if ratio:
        from matplotlib.ticker import NullLocator

        ax.axvline(1 / mark, color="0.4", linewidth=1, linestyle="--")
        ax.axvline(1.0, color="0.8", linewidth=1, zorder=0)
        ax.set_xscale("log")
        octaves = np.arange(np.ceil(np.log2(left)), np.log2(np.nanmax(drawn)) + 1)
        ax.set_xticks(2.0 ** octaves[octaves % (1 + len(octaves) // 8) == 0])
        ax.xaxis.set_major_formatter("{x:.3g}")
        ax.xaxis.set_minor_locator(NullLocator())
    aside: dict[str, Any] = {"color": "0.5", "va": "center", "bbox": {"color": "white", "pad": 1.0}}
    for place in places[np.isnan(before[order]) & np.isnan(after[order])]:
        ax.text(0.02, place, "not defined", transform=ax.get_yaxis_transform(), **aside)
    ax.set_yticks(places, [table.columns[k] for k in order])
    ax.set_xlim(left=left)
    ax.set_ylim(-0.7, len(order) - 0.3)
    ax.set_xlabel(label)
    ax.set_title("Covariate balance (not private)", loc="left", fontsize="medium")
    if ratio:  # which leave no corner empty
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    else:
        ax.legend(loc="lower right", frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure = ax.get_figure(root=True)
        if figure is None:
            raise DeclarationError("ax belongs to no figure: nothing can be saved")
        save(figure, path)
    return ax
