"""Figures of experiments from their tables, as SVG and PNG. matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.experiments.summary import means

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: How a family of calibrations is drawn, wherever it is.
STYLES: dict[str, dict[str, Any]] = {
    "sharp": {"color": "#1f5fa8", "linewidth": 2.2},
    "auto": {"color": "#3a7d44", "linestyle": (0, (1, 1)), "linewidth": 2.2},
    "composition-sharp": {"color": "#7a4fa3", "linestyle": "--"},
    "composition-printed": {"color": "#a08bc0", "linestyle": ":"},
    "paper-corrected": {"color": "#d08a3c", "linestyle": ":"},
    "paper": {"color": "#b35900", "linestyle": "-."},
}


_LINES = {"no privacy, same bounds": "-", "textbook, no bounds": "--", "difference of means": ":"}
_COLORS = ("#222222", "#1f5fa8", "#6aa3d8", "#b35900", "#d9a066", "#3a7d44", "#7a4fa3")


def figures_of(name: str, table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw what there is for an experiment; the paths. Raises DeclarationError without matplotlib."""
    drawn: list[Path] = []
    for stem, figure in _DRAWN[name](table):
        for ending in ("svg", "png"):
            path = folder / f"{stem}.{ending}"
            _save(figure, path)
            drawn.append(path)
    return drawn


def _simulation(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    return _study(table, "scenario", "simulation")


def _twins(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    return _study(table, "form", "twins")


def _study(table: pd.DataFrame, part: str, stem: str) -> Iterable[tuple[str, Figure]]:
    """One figure a scenario or form: accuracy over epsilon, schemes in columns, noises in rows."""
    values = ["accuracy", "effective_share"]
    found = means(table, [part, "scheme", "noise", "family", "epsilon"], values)
    for scenario in found[part].unique():
        here = found[found[part] == scenario]
        schemes = [name for name in here["scheme"].unique() if not name.startswith("treat ")]
        noises = [name for name in here["noise"].unique() if name != "none"]
        figure = _figure(1.2 + 2.9 * len(schemes), 0.9 + 2.7 * len(noises))
        axes = figure.subplots(len(noises), len(schemes), squeeze=False, sharex=True, sharey=True)
        constant = here[here["family"] == "constant rule"]["accuracy"].max()
        for row, noise in zip(axes, noises, strict=True):
            for ax, scheme in zip(row, schemes, strict=True):
                _panel(ax, here[here["scheme"] == scheme], noise, constant)
                ax.set_title(f"{scheme}, {noise} noise", loc="left", fontsize="medium")
        for ax in axes[-1]:
            ax.set_xlabel("epsilon")
        for row in axes:
            row[0].set_ylabel("accuracy of the rule")
        handles, labels = axes[0][0].get_legend_handles_labels()
        for ax in axes.ravel():
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                if label not in labels:
                    handles.append(handle)
                    labels.append(label)
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
        yield f"{stem}-{scenario}", figure


def _confounded(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """One figure a noise: accuracy over n, budgets in columns, with and without the public center in rows."""
    by = ["center", "scheme", "family", "noise", "epsilon", "n"]
    found = means(table, by, ["accuracy", "effective_share", "V"])
    names = list(dict.fromkeys(found["scheme"]))
    for noise in [name for name in found["noise"].unique() if name != "none"]:
        here = found[found["noise"] == noise]
        epsilons, centers = sorted(here["epsilon"].unique()), list(here["center"].unique())
        figure = _figure(1.0 + 3.0 * len(epsilons), 1.2 + 2.9 * len(centers))
        axes = figure.subplots(len(centers), len(epsilons), squeeze=False, sharex=True, sharey=True)
        for row, center in zip(axes, centers, strict=True):
            for ax, epsilon in zip(row, epsilons, strict=True):
                part = here[(here["center"] == center) & (here["epsilon"] == epsilon)]
                for (scheme, family), line in part.groupby(["scheme", "family"], sort=False):
                    style = {"color": _COLORS[names.index(scheme) % len(_COLORS)]}
                    composed = family.startswith("composition")
                    label = scheme + (", private propensity" if composed else "")
                    ax.errorbar(
                        line["n"],
                        line["accuracy"],
                        yerr=line["accuracy_half"],
                        label=label,
                        linestyle="--" if composed else "-",
                        linewidth=2.2 if scheme == "w = 1" else 1.4,
                        **style,
                    )
                ax.set_xscale("log")
                ax.set_title(f"center {center}, epsilon {epsilon:g}", loc="left", fontsize="medium")
                ax.spines[["top", "right"]].set_visible(False)
                ax.grid(color="0.93", linewidth=0.6)
            row[0].set_ylabel("accuracy of the rule")
        for ax in axes[-1]:
            ax.set_xlabel("number of records n")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
        yield f"confounded-{noise}", figure


def _rates(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """Excess and error over n, by curvature; dotted lines have the slopes of the theorem."""
    by = ["curvature", "scheme", "family", "noise", "n"]
    values = {"excess": "excess objective", "error": "distance of theta to the sample minimizer"}
    found = means(table, by, list(values))
    found = found[found["noise"] == "gamma"]
    curvatures = list(found["curvature"].unique())
    figure = _figure(1.0 + 4.2 * len(values), 1.0 + 3.0 * len(curvatures))
    axes = figure.subplots(len(curvatures), len(values), squeeze=False, sharex=True)
    for row, curvature in zip(axes, curvatures, strict=True):
        part = found[found["curvature"] == curvature]
        for ax, (name, label) in zip(row, values.items(), strict=True):
            for number, ((scheme, family), line) in enumerate(part.groupby(["scheme", "family"], sort=False)):
                color = _COLORS[number % len(_COLORS)]
                ax.plot(line["n"], line[name], "o-", color=color, markersize=3.5, label=f"{scheme}, {family}")
            ends = part["n"].min(), part["n"].max()
            rate = (1.0 if name == "excess" else 0.5) if curvature.startswith("strongly") else 0.5
            top = part[part["n"] == ends[0]][name].min()
            if name == "excess" or curvature.startswith("strongly"):
                told = f"n^-{rate:g}"
                ax.plot(ends, [top, top * (ends[0] / ends[1]) ** rate], ":", color="0.4", label=told)
            ax.set(xscale="log", yscale="log", title=curvature, ylabel=label)
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(color="0.93", linewidth=0.6)
            ax.legend(frameon=False, fontsize="x-small")
    for ax in axes[-1]:
        ax.set_xlabel("number of records n")
    yield "rates-gamma", figure


def _nhefs(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """Median and 90 % range of the released effect over epsilon, a panel for each first stage."""
    private = table[(table["status"] == "done") & table["epsilon"].notna()]
    schemes = list(private["scheme"].unique())
    figure = _figure(12.0, 6.2)
    axes = figure.subplots(2, -(-len(schemes) // 2), squeeze=False, sharex=True, sharey=True)
    for ax, scheme in zip(axes.ravel(), schemes, strict=False):
        for number, (name, line) in enumerate(
            private[private["scheme"] == scheme].groupby("noise", sort=False)
        ):
            color = _COLORS[1 + 2 * number]
            shift = 0.94 + 0.06 * number
            bars = [line["median"] - line["low"], line["high"] - line["median"]]
            label = f"{line['statistic'].iloc[0]}, {name}"
            ax.errorbar(shift * line["epsilon"], line["median"], bars, fmt="o", color=color, label=label)
        known = table[(table["scheme"] == scheme) & table["epsilon"].isna()]
        for name, row in known.groupby("statistic", sort=False):
            ax.axhline(row["median"].iloc[0], color="0.4", linestyle=_LINES[name], label=name)
        ax.set(xscale="log", ylim=(-6, 12))
        ax.set_title(scheme, loc="left", fontsize="medium")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="0.93", linewidth=0.6)
    for ax in axes[-1]:
        ax.set_xlabel("epsilon")
    for row in axes:
        row[0].set_ylabel("effect on weight, kg")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    yield "nhefs", figure


def _panel(ax: Axes, rows: pd.DataFrame, noise: str, constant: float) -> None:
    plain = rows[rows["family"] == "non-private"]
    if len(plain):
        ax.axhline(plain["accuracy"].iloc[0], color="0.35", linewidth=1, label="without privacy")
    ax.axhline(constant, color="0.6", linewidth=1, linestyle="--", label="best constant rule")
    shares = []
    for family, style in STYLES.items():
        line = rows[(rows["family"] == family) & (rows["noise"] == noise)].sort_values("epsilon")
        if not len(line):
            continue
        ax.plot(line["epsilon"], line["accuracy"], label=family, **style)
        low, high = line["accuracy"] - line["accuracy_half"], line["accuracy"] + line["accuracy_half"]
        ax.fill_between(line["epsilon"], low, high, color=style["color"], alpha=0.15, linewidth=0)
        if family in ("sharp", "paper"):
            shares.append(f"{family} {line['effective_share'].mean():.2f}")
    ax.set_xscale("log")
    if shares:
        told = "effective sample size / n: " + ", ".join(shares)
        ax.text(0.02, 0.99, told, transform=ax.transAxes, fontsize=6.5, va="top", color="0.3")
    ax.set_ylim(0.25, 1.09)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.93", linewidth=0.6)


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DeclarationError("figures need matplotlib: install dp2erm-cvx[plots]") from None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: Path) -> None:
    from matplotlib import rc_context

    dated: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
    with rc_context({"svg.hashsalt": "dp2erm"}):
        figure.savefig(path, dpi=150, metadata=dated)


_DRAWN: dict[str, Callable[[pd.DataFrame], Iterable[tuple[str, Figure]]]] = {
    "confounded": _confounded,
    "nhefs": _nhefs,
    "rates": _rates,
    "simulation": _simulation,
    "twins": _twins,
}
