"""Figures of weights and propensities. Not differentially private: for the data holder only.

matplotlib is imported when a figure is drawn, never before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.diagnostics import LIMITS, overlap_table, weight_summary
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.plotting.figure import BLUE, ORANGE, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = {"control": ORANGE, "treated": BLUE}
_BINS = 30


def weight_histogram(weights: ArrayLike, a: ArrayLike, path: str | Path | None = None) -> Figure:
    """Histograms of the weights of the two arms, one above the other. Not private: for the data holder only.

    Weights are drawn in units of their mean in the arm, which only scales them: 1 is the weight of every
    record before weighting.

    Parameters
    ----------
    weights, a
        (n,) nonnegative weights of any scale and (n,) treatments in {0, 1}.
    path
        Where to save the figure: .png, .svg or .pdf.

    Raises
    ------
    DataError
        As :func:`~dp2erm_cvx.diagnostics.weight_summary`; an arm is empty or has no weight.
    DeclarationError
        matplotlib is missing, or the file cannot be written.
    """
    summary = weight_summary(weights, a)
    weight, arm = np.asarray(weights, dtype=np.float64), np.asarray(a)
    parts = []
    for value, name, one in ((1, "treated", summary.treated), (0, "control", summary.control)):
        if not one.n_samples or not one.maximum:
            raise DataError(f"the {name} arm is empty or has no weight: nothing can be drawn")
        own = weight[arm == value] / one.maximum
        parts.append((name, one, own / np.mean(own)))
    edges = np.linspace(0.0, max(2.0, *(float(np.max(own)) for _, _, own in parts)), _BINS + 1)
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots(2, 1, sharex=True)
    for ax, (name, one, own) in zip(axes, parts, strict=True):
        ax.hist(own, bins=edges, color=_COLORS[name], edgecolor="white", linewidth=0.4)
        ax.axvline(1.0, color="0.3", linewidth=1, linestyle="--", label="equal weights")
        ax.set_ylabel("records")
        text = f"{name}: {one.n_samples:,} records, effective sample size {one.effective:,.1f}"
        ax.set_title(text, loc="right", fontsize="small", color=_COLORS[name])
        ax.spines[["top", "right"]].set_visible(False)
    axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), frameon=False, fontsize="small")
    axes[1].set_xlim(0.0, edges[-1])
    axes[1].set_xlabel("weight / mean weight of the arm")
    axes[0].set_title("Weights by arm (not private)", loc="left", fontsize="medium")
    if path is not None:
        save(figure, path)
    return figure


def propensity_overlap(
    propensity: ArrayLike,
    a: ArrayLike,
    path: str | Path | None = None,
    *,
    limits: tuple[float, float] = LIMITS,
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

    Raises
    ------
    DataError
        As :func:`~dp2erm_cvx.diagnostics.overlap_table`; an arm is empty.
    DeclarationError
        As there; matplotlib is missing, or the file cannot be written.
    """
    table = overlap_table(propensity, a, limits=limits)
    for name, one in (("control", table.control), ("treated", table.treated)):
        if not one.n_samples:
            raise DataError(f"the {name} arm is empty: nothing can be drawn")
    score, arm = np.asarray(propensity, dtype=np.float64), np.asarray(a)
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    ax = new_figure(6.4, 4.4).add_subplot()
    for value, name, sign in ((1, "treated", 1.0), (0, "control", -1.0)):
        own = score[arm == value]
        share = sign * np.histogram(own, edges)[0] / len(own)
        label = f"{name} ({len(own):,} records)"
        ax.bar(
            edges[:-1],
            share,
            width=np.diff(edges),
            align="edge",
            color=_COLORS[name],
            edgecolor="white",
            linewidth=0.4,
            label=label,
        )
    ax.axhline(0.0, color="0.3", linewidth=0.8)
    for k, limit in enumerate(table.limits):
        text = f"limits {table.limits[0]:g} and {table.limits[1]:g}: {table.outside_limits:.1%} outside"
        ax.axvline(limit, color="0.4", linewidth=1, linestyle="--", label=text if k == 0 else None)
    ax.set_xlim(0.0, 1.0)
    height = 1.08 * max(abs(end) for end in ax.dataLim.intervaly)
    ax.set_ylim(-height, height)
    ax.yaxis.set_major_formatter(lambda height, _: f"{abs(height):.0%}")
    ax.set_xlabel("propensity: estimated probability of treatment")
    ax.set_ylabel("share of the arm")
    ax.set_title(
        f"Overlap of propensities (not private); area under the ROC curve {table.auc:.2f}",
        loc="left",
        fontsize="medium",
    )
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False, fontsize="small")
    ax.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure = ax.get_figure(root=True)
        assert figure is not None
        save(figure, path)
    return ax
