"""Figures of balance, bounds, audits and effects, their common look, and figures as files.

matplotlib is imported when one is drawn, never before. Figures of balance are not private: they are
for the data holder only.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.diagnostics import BalanceTable
from dp2erm_cvx.diagnostics.balance import PREDICTED, UNWEIGHTED, arm_masks, numbers_where
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.report.answers import Answer, answers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from dp2erm_cvx.audit import Verdict
    from dp2erm_cvx.design import FrontierResult
    from dp2erm_cvx.report.tables import BoundCurves


__all__ = ["bound_plot", "forest_plot", "frontier_plot", "love_plot", "overlap_plot"]

BLUE = "#1f5fa8"
ORANGE = "#b35900"
#: Colors that stay apart for color-blind readers, black first.
COLORS = ("#222222", BLUE, "#6aa3d8", ORANGE, "#d9a066", "#3a7d44", "#7a4fa3")
_GRID = "#ededed"
#: Inches: figures fill the text column of the pages at their own size, so that their letters stay
#: readable.
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


def save(figure: Figure, path: str | Path | io.StringIO, **options: Any) -> None:
    """Write .png, .svg or .pdf; the same figure is the same file. Raises DeclarationError."""
    from matplotlib import rc_context

    ending = ".svg" if isinstance(path, io.StringIO) else Path(path).suffix.lower()
    try:
        with rc_context({"svg.hashsalt": "dp2erm"}):
            figure.savefig(path, dpi=150, metadata=_DATED.get(ending), **options)
    except (OSError, ValueError) as error:
        raise DeclarationError(f"{path}: cannot be written: {str(error).splitlines()[0]}") from None


def plain(ax: Axes) -> None:
    """Axes without a box, with a light grid. Call it when everything is drawn."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=_GRID, linewidth=0.6)
    ax.set_axisbelow(True)
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


_FAMILIES = (BLUE, ORANGE, *COLORS[5:], "#8c2d2d")
#: The usable figure of the paper is the smaller of two others, which stay visible on top of it.
_STYLES: dict[str, dict[str, Any]] = {
    "paper, printed alone": {"linestyle": "--"},
    "paper, usable": {"linewidth": 5, "alpha": 0.3, "zorder": 1},
    "universal": {"linestyle": "-."},
}


def bound_plot(panels: Sequence[tuple[str, str, BoundCurves]], path: str | Path) -> Figure:
    """Bounds on the coupled variation V in log-log, one panel beside the other.

    Parameters
    ----------
    panels
        Of each its title, what its curves are over, and the curves, a color each.
    path
        Where to save the figure: .png, .svg or .pdf.

    Raises
    ------
    DeclarationError
        Where matplotlib is missing or the file cannot be written.
    """
    figure = new_figure(1.0 + 5.6 * len(panels), 4.4)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (title, x_label, curves) in zip(axes, panels, strict=True):
        for place, (family, (x, V)) in enumerate(curves.items()):
            color = _FAMILIES[place % len(_FAMILIES)]
            ax.plot(x, V, color=color, label=family, **_STYLES.get(family, {}))
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(x_label)
        ax.set_ylabel("bound V on the movement of the weights")
        ax.set_title(title, loc="left", fontsize="medium")
        plain(ax)
        ax.legend(frameon=False, fontsize="small")
    save(figure, path)
    return figure


def frontier_plot(
    result: FrontierResult, path: str | Path, paper: Sequence[tuple[float, float]] = ()
) -> Figure:
    """V against the part of the distance of the arms that is left, a color for every scheme.

    Points are all settings that were tried; a line joins those of a scheme of which no other one of
    it has both less V and less left.

    Parameters
    ----------
    result
        From :func:`~dp2erm_cvx.design.frontier`.
    path
        Where to save the figure: .png, .svg or .pdf.
    paper
        Points (left, V) of the paper's entropy bound, which stand beside them.

    Raises
    ------
    DeclarationError
        Where nothing has a bound, matplotlib is missing, or the file cannot be written.
    """
    check_figure(path)
    solved = [row for row in result.rows if not row.refusal]
    if not solved:
        raise DeclarationError("no setting has weights and a bound: there is nothing to draw")
    n = result.request.universe.n_samples
    figure = new_figure(WIDTH, 4.5)
    ax = figure.add_subplot()
    for place, scheme in enumerate(dict.fromkeys(row.scheme for row in solved)):
        points = sorted((row.left, row.V) for row in solved if row.scheme == scheme)
        _draw_scheme(ax, place, scheme, points)
    if paper:
        left, V = zip(*sorted(paper), strict=True)
        ax.plot(left, V, "k-", marker="+", label="entropy, the paper's bound")
    if result.proposed is not None:
        ax.plot(
            [result.proposed.left],
            [result.proposed.V],
            "o",
            label="proposed",
            markersize=10,
            markerfacecolor="none",
            color=COLORS[0],
        )
    largest = 2.0 * n  # V of any weights
    if max(row.V for row in solved) > 0.2 * largest or paper:
        ax.axhline(largest, color="gray", linewidth=0.8)
        ax.annotate("2n: any weights", (0.02, largest), va="bottom", fontsize=7)
    ax.set_yscale("log")
    ax.set_xlim(0.0, max(1.02, 1.02 * max(row.left for row in solved)))
    ax.set_xlabel("part of the distance of the arms that is left")
    ax.set_ylabel(f"V at n = {n:,}")
    plain(ax)
    ax.legend(frameon=False, fontsize="small")
    save(figure, path)
    return figure


def _draw_scheme(ax: Axes, place: int, scheme: str, points: list[tuple[float, float]]) -> None:
    """All sorted points (left, V) of a scheme, and a line through those that no other one beats."""
    color = _FAMILIES[place % len(_FAMILIES)]
    style = ("-", "--", ":")[place // len(_FAMILIES) % 3]
    left, V = zip(*points, strict=True)
    ax.plot(left, V, ".", color=color, alpha=0.5)
    left, V = zip(*_lowest(points), strict=True)
    ax.plot(left, V, style, color=color, label=scheme.replace("_", " "))


def _lowest(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points (left, V), sorted by left, of which none before them has as little V."""
    kept: list[tuple[float, float]] = []
    for left, V in points:
        if not kept or V < kept[-1][1]:
            kept.append((left, V))
    return kept


#: Shares beyond are drawn here.
_FARTHEST = 1e6
#: What the page that a figure stands in decides, for light and dark readers.
_STYLED = dict.fromkeys(("#000000", COLORS[0]), "currentColor")
_STYLED |= {_GRID: "var(--line)", BLUE: "var(--good)", ORANGE: "var(--bad)"}


def shares_figure(verdicts: Sequence[Verdict]) -> str:
    """The largest movement met as a share of each bound, with its numerical interval."""
    figure = new_figure(7.6, 1.1 + 0.33 * len(verdicts))
    ax = figure.add_subplot()
    for place, verdict in enumerate(reversed(verdicts)):
        _draw_share(ax, place, verdict)
    names = [f"{verdict.claim.name}: {verdict.claim.quantity}" for verdict in reversed(verdicts)]
    ax.set_yticks(range(len(names)), [shorten(name, 44) for name in names], parse_math=False)
    ax.axvline(1.0, color=COLORS[0], linewidth=1.2)
    top = max(_share(verdict.movement.high, verdict) for verdict in verdicts)
    if top > 3:
        ax.set_xscale("symlog", linthresh=1.0)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    ax.set_xlim(0, max(1.18, 1.35 * top))
    ax.set_xlabel("largest movement reached, as a share of the bound (line: the bound itself)")
    plain(ax)
    return _inline(figure, "Largest movement reached as a share of each bound")


def _draw_share(ax: Axes, place: int, verdict: Verdict) -> None:
    """The bar of one bound, with the numerical interval of its movement."""
    low = _share(verdict.movement.low, verdict)
    high = _share(verdict.movement.high, verdict)
    color = ORANGE if verdict.violated else BLUE
    ax.barh(place, low, left=0, height=0.62, color=color, alpha=0.85)
    ax.plot([low, high], [place, place], color=COLORS[0], linewidth=2.5, solid_capstyle="butt")
    ax.annotate(
        _share_text(low),
        (high, place),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


def _share(movement: float, verdict: Verdict) -> float:
    """A movement as a share of the bound, up to the farthest that is drawn."""
    # a bound of next to nothing has no place on an axis
    bound = max(verdict.claim.bound, 1e-12 * movement, 1e-300)
    return min(movement / bound, _FARTHEST)


def _share_text(share: float) -> str:
    """A share in percent, or as a multiple."""
    if share < 10:
        return f"{share:.1%}"
    if share < _FARTHEST:
        return f"{share:,.0f} times"
    return "beyond any multiple"


def _inline(figure: Figure, title: str) -> str:
    """A figure as SVG within a page, which decides on its colors."""
    written = io.StringIO()
    save(figure, written, format="svg", transparent=True)
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    for color, styled in _STYLED.items():
        svg = svg.replace(color, styled)
    svg = svg.replace("<svg", '<svg role="img"', 1)
    return svg.replace(">", f"><title>{title}</title>", 1)


def forest_plot(releases: Any, path: str | Path | None = None) -> Figure:
    """The effects of one release, by groups or not, or of several: a panel for every outcome.

    Of what was released alone, hence as public as the releases. Thick lines are the intervals of
    the effects by themselves, thin ones hold for all of them together; where one is unbounded, or
    there is none, words say so. What is not private is titled so.

    Parameters
    ----------
    releases
        An :class:`~dp2erm_cvx.release.effect.EffectRelease`, or several by the names of their
        questions.
    path
        Where to save the figure: .png, .svg or .pdf.

    Raises
    ------
    DeclarationError
        Where there is no effect, matplotlib is missing, or the file cannot be written.
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
        _draw_answers(ax, rows)
        level = 100 * rows[0].interval.level
        of = f" ({unit})" if unit else ""
        ax.set_xlabel(f"effect on {outcome}{of}\n{level:g} % intervals; thin: of all together")
        plain(ax)
    # as the table of answers says it: what is seeded is nothing to publish
    weak = dict.fromkeys(str(one.cost["standing"]).upper() for one in listed)
    weak.pop(Standing.PRIVATE.upper(), None)
    title = "\n".join([f"Effects of {listed[0].treatment} (about how many records)", *weak])
    drawn[0].set_title(title, loc="left", fontsize="medium")
    if path is not None:
        save(figure, path)
    return figure


def _draw_answers(ax: Axes, rows: list[Answer]) -> None:
    """The effects on one outcome, one below the other, with their names and numbers."""
    names = []
    for place, row in enumerate(rows):
        _draw_answer(ax, place, row)
        count = ""
        if row.records is not None:
            count = f" ({max(row.records, 0.0):,.0f})"
        names.append(row.name + count)
    ax.axvline(0.0, color="0.4", linewidth=1, linestyle=":")
    ax.set_yticks(range(len(rows)), names)
    ax.set_ylim(len(rows) - 0.5, -0.5)


def _draw_answer(ax: Axes, place: int, row: Answer) -> None:
    """One effect with both of its intervals, or words where it has none."""
    if row.interval.low is None or row.interval.high is None:
        missing = "no interval" if row.withdrawn else "unbounded"
        middle = ax.get_yaxis_transform()
        ax.text(0.5, place, missing, transform=middle, ha="center", va="center")
        return
    color = "0.2"
    marker = "D"
    if row.group is not None:
        color = BLUE
        marker = "o"
    for interval, width in ((row.joint, 1.0), (row.interval, 3.0)):
        if interval.low is not None and interval.high is not None:
            ax.hlines(place, interval.low, interval.high, color=color, linewidth=width)
    ax.plot([row.estimate], [place], marker, color=color, markersize=5)


#: Bars of a histogram of propensities.
_BINS = 30


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
        From :func:`~dp2erm_cvx.diagnostics.balance_table`. Undefined entries are left out; a
        covariate without any says so.
    path
        Where to save the figure: .png, .svg or .pdf.
    ax
        Axes to draw on; a new figure otherwise.
    threshold
        Where to draw the usual mark of good balance (Austin 2009).

    Raises
    ------
    DeclarationError
        Where matplotlib is missing or the file cannot be written.
    """
    before = np.abs(table.smd_before)
    after = np.abs(table.smd_after)
    order = np.argsort(np.where(np.isnan(before), -1.0, before), kind="stable")
    places = np.arange(len(order))
    if ax is None:
        # a Figure of its own rather than pyplot's: no window system, no global state
        ax = new_figure(6.4, 1.4 + 0.32 * len(order)).add_subplot()
    _draw_differences(ax, table, before[order], after[order])
    ax.axvline(threshold, color="0.4", linewidth=1, linestyle="--", label=f"{threshold:g}")
    undefined = places[np.isnan(before[order]) & np.isnan(after[order])]
    for place in undefined:
        ax.text(
            0.02,
            place,
            "not defined",
            transform=ax.get_yaxis_transform(),
            color="0.5",
            va="center",
            bbox={"color": "white", "pad": 1.0},
        )
    ax.set_yticks(places, [table.columns[k] for k in order])
    ax.set_xlim(left=0.0)
    ax.set_ylim(-0.7, len(order) - 0.3)
    ax.set_xlabel("absolute standardized mean difference")
    ax.legend(loc="lower right", frameon=False)
    note = f"\n{UNWEIGHTED}" if UNWEIGHTED in table.notes else ""
    return _finished(ax, f"Covariate balance (not private){note}", path)


def _draw_differences(ax: Axes, table: BalanceTable, before: Array, after: Array) -> None:
    """Differences of every covariate before and after weighting, joined by a line."""
    places = np.arange(len(before))
    ax.hlines(places, before, after, color="0.8", linewidth=1.5, zorder=1)
    ax.scatter(
        before,
        places,
        s=42,
        clip_on=False,
        zorder=2,
        facecolors="white",
        edgecolors=ORANGE,
        linewidths=1.6,
        label="before",
    )
    label = "as adjusted" if PREDICTED in table.columns else "after weighting"
    ax.scatter(after, places, s=42, clip_on=False, zorder=3, color=BLUE, label=label)


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

    Raises
    ------
    DataError
        For other shapes, an entry out of range or an empty arm.
    DeclarationError
        Where matplotlib is missing or the file cannot be written.
    """
    controls, treated = arm_masks(a)
    score = numbers_where(propensity, "propensity", lambda v: (v >= 0) & (v <= 1), "in [0, 1]")
    if score.ndim != 1 or score.shape != controls.shape:
        raise DataError(
            f"propensity and a have shapes {score.shape} and {controls.shape}: must be (n,)"
        )
    ax = new_figure(6.4, 4.4).add_subplot()
    _draw_arm(ax, "treated", score[treated], 1.0, BLUE)
    _draw_arm(ax, "control", score[controls], -1.0, ORANGE)
    ax.axhline(0.0, color="0.3", linewidth=0.8)
    low, high = limits
    outside = float(np.mean((score < low) | (score > high)))
    text = f"limits {low:g} and {high:g}: {outside:.1%} outside"
    ax.axvline(low, color="0.4", linewidth=1, linestyle="--", label=text)
    ax.axvline(high, color="0.4", linewidth=1, linestyle="--")
    ax.set_xlim(0.0, 1.0)
    height = 1.08 * max(abs(end) for end in ax.dataLim.intervaly)
    ax.set_ylim(-height, height)
    ax.yaxis.set_major_formatter(lambda height, _: f"{100.0 * abs(height):.3g}%")
    ax.set_xlabel("propensity: estimated probability of treatment")
    ax.set_ylabel("share of the arm")
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False, fontsize="small"
    )
    return _finished(ax, "Overlap of propensities (not private)", path)


def _draw_arm(ax: Axes, name: str, score: Array, sign: float, color: str) -> None:
    """Histogram of the propensities of one arm, above (1) or below (-1) the axis."""
    if not len(score):
        raise DataError(f"the {name} arm is empty: nothing can be drawn")
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    share = sign * np.histogram(score, edges)[0] / len(score)
    ax.bar(
        edges[:-1],
        share,
        width=np.diff(edges),
        color=color,
        label=f"{name} ({len(score):,} records)",
        align="edge",
        edgecolor="white",
        linewidth=0.4,
    )


def _finished(ax: Axes, title: str, path: str | Path | None) -> Axes:
    """Axes with a title and without a box, saved where a path is given."""
    ax.set_title(title, loc="left", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure = ax.get_figure(root=True)
        if figure is None:
            raise DeclarationError("ax belongs to no figure: nothing can be saved")
        save(figure, path)
    return ax
