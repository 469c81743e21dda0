"""Figures of experiments from their tables, as SVG and PNG. matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.plotting.effects import benchmark
from dp2erm_cvx.plotting.figure import COLORS, WIDTH, legend_below, new_figure, plain, save
from dp2erm_cvx.plotting.rules import study
from dp2erm_cvx.studies.summary import means

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_VALUES = {"excess": "excess objective", "error": "distance to the sample minimizer"}


def figures_of(name: str, table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw what there is for an experiment; the paths. Raises DeclarationError without matplotlib."""
    drawn: list[Path] = []
    for stem, figure in _DRAWN[name](table) if name in _DRAWN else ():
        for ending in ("svg", "png"):
            path = folder / f"{stem}.{ending}"
            save(figure, path)
            drawn.append(path)
    return drawn


def confounded(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """One figure a noise: accuracy over n, with and without the public center in columns, budgets in rows."""
    by = ["center", "scheme", "family", "noise", "epsilon", "n"]
    if "population" in table:
        return  # a table tells more of many populations at two n
    found = means(table, by, ["accuracy"])
    names = list(dict.fromkeys(found["scheme"]))
    for noise in [name for name in found["noise"].unique() if name != "none"]:
        here = found[found["noise"] == noise]
        epsilons, centers = sorted(here["epsilon"].unique()), list(here["center"].unique())
        figure = new_figure(WIDTH, 1.9 + 2.3 * len(epsilons))
        axes = figure.subplots(len(epsilons), len(centers), squeeze=False, sharex=True, sharey=True)
        for row, epsilon in zip(axes, epsilons, strict=True):
            for ax, center in zip(row, centers, strict=True):
                part = here[(here["center"] == center) & (here["epsilon"] == epsilon)]
                for (scheme, family), line in part.groupby(["scheme", "family"], sort=False):
                    composed = family.startswith("composition")
                    ax.errorbar(
                        line["n"],
                        line["accuracy"],
                        yerr=line["accuracy_half"],
                        label=scheme + (", private propensity" if composed else ""),
                        color=COLORS[names.index(scheme) % len(COLORS)],
                        linestyle="--" if composed else "-",
                        linewidth=2.2 if scheme == "w = 1" else 1.4,
                    )
                ax.set_xscale("log")
                told = "no center" if center == "none" else f"center {center}"
                ax.set_title(f"epsilon {epsilon:g}, {told}", loc="left", fontsize="medium")
                plain(ax)
            row[0].set_ylabel("accuracy of the rule")
        for ax in axes[-1]:
            ax.set_xlabel("number of records n")
        legend_below(figure, axes.ravel())
        yield f"confounded-{noise}", figure


def rates(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """Excess and error over n, by curvature, a figure for each noise.

    Bands are 95 % intervals over replicates; dotted lines have the slopes of the theorem.
    """
    by = ["curvature", "scheme", "family", "noise", "n"]
    every = means(table, by, list(_VALUES))
    for noise in every["noise"].unique():
        found = every[every["noise"] == noise]
        curvatures = list(found["curvature"].unique())
        figure = new_figure(WIDTH, 0.9 + 2.9 * len(curvatures))
        axes = figure.subplots(len(curvatures), len(_VALUES), squeeze=False, sharex=True)
        for row, curvature in zip(axes, curvatures, strict=True):
            part = found[found["curvature"] == curvature]
            for ax, (name, label) in zip(row, _VALUES.items(), strict=True):
                _panel(ax, part, name, curvature.startswith("strongly"))
                ax.set_title(curvature, loc="left", fontsize="medium")
                ax.set_ylabel(label)
                plain(ax)
        for ax in axes[-1]:
            ax.set_xlabel("number of records n")
        legend_below(figure, axes.ravel())
        yield f"rates-{noise}", figure


def _panel(ax: Axes, part: pd.DataFrame, name: str, strong: bool) -> None:
    ax.set(xscale="log", yscale="log")
    for number, ((scheme, family), line) in enumerate(part.groupby(["scheme", "family"], sort=False)):
        color = COLORS[number % len(COLORS)]
        ax.plot(line["n"], line[name], "o-", color=color, markersize=3.5, label=f"{scheme}, {family}")
        half = line[f"{name}_half"].fillna(0.0)
        low = (line[name] - half).clip(lower=line[name] / 10)  # a logarithm has no zero
        ax.fill_between(line["n"], low, line[name] + half, color=color, alpha=0.2, linewidth=0)
    if name == "excess" or strong:  # the theorem says nothing of theta without curvature
        rate = 1.0 if name == "excess" and strong else 0.5
        first, last = part["n"].min(), part["n"].max()
        top = part[part["n"] == first][name].min()
        style, told = ((0, (1, 1)), "-1") if rate == 1.0 else ((0, (1, 3)), "-1/2")
        ends = (top, top * (first / last) ** rate)
        ax.plot((first, last), ends, linestyle=style, color="0.4", label=f"slope {told}, of the theorem")


_CLIPPED = "no privacy, same bounds"
_LINES = {_CLIPPED: "-", "textbook, no bounds": "--", "difference of means": ":"}
_TITLES = {
    "uniform": "weights of 1",
    "entropy": "entropy balancing",
    "entropy, ridge/4": "entropy balancing, a quarter of the ridge",
    "IPW": "IPW",
    "IPW, ridge/10": "IPW, a tenth of the ridge",
    "private IPW": "IPW, a tenth of the ridge, private propensity",
}
#: A private first stage and the one without privacy that has its ridge and trim.
_PLAIN_FORM = {"private IPW": "IPW, ridge/10"}
_STATISTICS = {"arm_means": "difference of arm means", "plug_in_ate": "plug-in"}
_NOISES = {
    "gamma": "gamma noise",
    "box": "box noise",
    "gaussian": "Gaussian noise",
    "laplace": "Laplace noise",
}
#: The effects, in kg, that the panels show.
_LOW, _HIGH = -6.0, 12.0


def nhefs(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """Median and 90 % range of the released effect over epsilon, a panel for each first stage."""
    private = table[(table["status"] == "done") & table["epsilon"].notna()]
    schemes = list(private["scheme"].unique())
    figure = new_figure(WIDTH, 1.2 + 2.4 * -(-len(schemes) // 2))
    axes = figure.subplots(-(-len(schemes) // 2), 2, squeeze=False, sharex=True, sharey=True)
    for ax, scheme in zip(axes.ravel(), schemes, strict=False):
        lines = private[private["scheme"] == scheme].groupby("noise", sort=False)
        for number, (noise, line) in enumerate(lines):
            statistic = str(line["statistic"].iloc[0])
            label = f"{_STATISTICS.get(statistic, statistic)}, {_NOISES.get(str(noise), noise)}"
            _ranges(ax, line, (0.93, 1.0, 1.07)[number % 3], COLORS[1 + 2 * number], label)
        reference = table[table["epsilon"].isna()]
        for name, style in _LINES.items():
            owner = _PLAIN_FORM.get(scheme, scheme) if name == _CLIPPED else scheme
            row = reference[(reference["scheme"] == owner) & (reference["statistic"] == name)]
            if len(row):
                told = "arm means without noise, same bounds" if name == _CLIPPED else name
                ax.axhline(row["median"].iloc[0], color="0.4", linestyle=style, label=told)
        ax.set(xscale="log", ylim=(_LOW, _HIGH))
        ax.set_title(_TITLES.get(scheme, scheme), loc="left", fontsize="medium")
        plain(ax)
    for ax in axes.ravel()[len(schemes) :]:
        ax.set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("epsilon")
    for row in axes:
        row[0].set_ylabel("effect on weight, kg")
    legend_below(figure, axes.ravel())
    yield "nhefs", figure


def _ranges(ax: Axes, line: pd.DataFrame, shift: float, color: str, label: str) -> None:
    """Dots with bars; a triangle at the edge where a bar goes on beyond it."""
    bars = [line["median"] - line["low"], line["high"] - line["median"]]
    place = shift * line["epsilon"]
    ax.errorbar(place, line["median"], bars, fmt="o", markersize=4, color=color, label=label)
    for beyond, edge, marker in ((line["low"] < _LOW, _LOW, "v"), (line["high"] > _HIGH, _HIGH, "^")):
        if beyond.any():
            spots = place[beyond]
            ax.plot(spots, [edge] * len(spots), marker, color=color, markersize=7, clip_on=False, zorder=5)


_DRAWN: dict[str, Callable[[pd.DataFrame], Iterable[tuple[str, Any]]]] = {
    "benchmark": benchmark,
    "confounded": confounded,
    "nhefs": nhefs,
    "rates": rates,
    "simulation": partial(study, part="scenario", stem="simulation"),
    "twins": partial(study, part="form", stem="twins"),
}
