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
    """One figure a scenario: accuracy over epsilon, schemes in columns, noises in rows."""
    values = ["accuracy", "effective_share"]
    found = means(table, ["scenario", "scheme", "noise", "family", "epsilon"], values)
    for scenario in found["scenario"].unique():
        here = found[found["scenario"] == scenario]
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
        yield f"simulation-{scenario}", figure


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


_DRAWN: dict[str, Callable[[pd.DataFrame], Iterable[tuple[str, Figure]]]] = {"simulation": _simulation}
