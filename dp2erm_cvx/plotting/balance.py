"""Balance and overlap. Not private: for the data holder only.

matplotlib is imported when a figure is drawn, never before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.diagnostics import BalanceTable
from dp2erm_cvx.diagnostics.balance import PREDICTED, UNWEIGHTED, arm_masks, numbers_where
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.plotting.figure import BLUE, ORANGE, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 30


def love_plot(
    table: BalanceTable, path: str | Path | None = None, *, ax: Axes | None = None, threshold: float = 0.1
) -> Axes:
    """Absolute standardized mean differences before and after weighting, one line per covariate.

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
        Where to draw the usual mark of good balance (Austin 2009).

    Raises DeclarationError where matplotlib is missing or the file cannot be written.
    """
    before, after = np.abs(table.smd_before), np.abs(table.smd_after)
    order = np.argsort(np.where(np.isnan(before), -1.0, before), kind="stable")
    places = np.arange(len(order))
    if ax is None:
        # a Figure of its own rather than pyplot's: no window system, no global state
        ax = new_figure(6.4, 1.4 + 0.32 * len(order)).add_subplot()
    ax.hlines(places, before[order], after[order], color="0.8", linewidth=1.5, zorder=1)
    label = "as adjusted" if PREDICTED in table.columns else "after weighting"
    looks: list[tuple[Any, dict[str, Any]]] = [
        (before, {"facecolors": "white", "edgecolors": ORANGE, "linewidths": 1.6, "label": "before"}),
        (after, {"color": BLUE, "label": label}),
    ]
    for zorder, (values, look) in enumerate(looks, 2):
        ax.scatter(values[order], places, s=42, clip_on=False, zorder=zorder, **look)
    ax.axvline(threshold, color="0.4", linewidth=1, linestyle="--", label=f"{threshold:g}")
    aside: dict[str, Any] = {"color": "0.5", "va": "center", "bbox": {"color": "white", "pad": 1.0}}
    for place in places[np.isnan(before[order]) & np.isnan(after[order])]:
        ax.text(0.02, place, "not defined", transform=ax.get_yaxis_transform(), **aside)
    ax.set_yticks(places, [table.columns[k] for k in order])
    ax.set_xlim(left=0.0)
    ax.set_ylim(-0.7, len(order) - 0.3)
    ax.set_xlabel("absolute standardized mean difference")
    ax.legend(loc="lower right", frameon=False)
    note = f"\n{UNWEIGHTED}" if UNWEIGHTED in table.notes else ""
    return _finished(ax, f"Covariate balance (not private){note}", path)


def overlap_plot(
    propensity: ArrayLike,
    a: ArrayLike,
    path: str | Path | None = None,
    *,
    limits: tuple[float, float] = (0.1, 0.9),
) -> Axes:
    """Mirrored histogram of the propensities: the treated above, the controls below. Not private.

    For the data holder only. Bars are shares of their arm, so that arms of different sizes compare.

    Parameters
    ----------
    propensity, a
        (n,) probabilities of treatment in [0, 1] and (n,) treatments in {0, 1}.
    path
        Where to save the figure: .png, .svg or .pdf.
    limits
        Public limits to mark; 0.1 and 0.9 as in Crump, Hotz, Imbens and Mitnik (2009).

    Raises DataError for other shapes, an entry out of range or an empty arm; DeclarationError where
    matplotlib is missing or the file cannot be written.
    """
    members = arm_masks(a)
    score = numbers_where(propensity, "propensity", lambda v: (v >= 0) & (v <= 1), "in [0, 1]")
    if score.ndim != 1 or score.shape != members[0].shape:
        raise DataError(f"propensity and a have shapes {score.shape} and {members[0].shape}: must be (n,)")
    low, high = limits
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    ax = new_figure(6.4, 4.4).add_subplot()
    for name, arm, sign, color in (("treated", 1, 1.0, BLUE), ("control", 0, -1.0, ORANGE)):
        own = score[members[arm]]
        if not len(own):
            raise DataError(f"the {name} arm is empty: nothing can be drawn")
        share = sign * np.histogram(own, edges)[0] / len(own)
        bars: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.4}
        label = f"{name} ({len(own):,} records)"
        ax.bar(edges[:-1], share, width=np.diff(edges), color=color, label=label, **bars)
    ax.axhline(0.0, color="0.3", linewidth=0.8)
    outside = float(np.mean((score < low) | (score > high)))
    text = f"limits {low:g} and {high:g}: {outside:.1%} outside"
    for limit, legend in ((low, text), (high, None)):
        ax.axvline(limit, color="0.4", linewidth=1, linestyle="--", label=legend)
    ax.set_xlim(0.0, 1.0)
    height = 1.08 * max(abs(end) for end in ax.dataLim.intervaly)
    ax.set_ylim(-height, height)
    ax.yaxis.set_major_formatter(lambda height, _: f"{100.0 * abs(height):.3g}%")
    ax.set_xlabel("propensity: estimated probability of treatment")
    ax.set_ylabel("share of the arm")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False, fontsize="small")
    return _finished(ax, "Overlap of propensities (not private)", path)


def _finished(ax: Axes, title: str, path: str | Path | None) -> Axes:
    ax.set_title(title, loc="left", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure = ax.get_figure(root=True)
        if figure is None:
            raise DeclarationError("ax belongs to no figure: nothing can be saved")
        save(figure, path)
    return ax
