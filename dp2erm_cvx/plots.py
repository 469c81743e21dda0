"""Figures from tables. matplotlib is imported when a figure is drawn, never before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dp2erm_cvx.diagnostics import BalanceTable
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DeclarationError("plots need matplotlib: pip install 'dp2erm-cvx[plots]'") from None

    before, after = np.abs(table.smd_before), np.abs(table.smd_after)
    order = np.argsort(np.where(np.isnan(before), -1.0, before), kind="stable")
    places = np.arange(len(order))
    if ax is None:
        # a Figure of its own rather than pyplot's: no window system, no global state
        ax = Figure(figsize=(6.4, 1.4 + 0.32 * len(order)), layout="constrained").add_subplot()
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
        try:
            figure.savefig(path, dpi=150)
        except (OSError, ValueError) as error:
            raise DeclarationError(f"{path}: cannot be written: {str(error).splitlines()[0]}") from None
    return ax
