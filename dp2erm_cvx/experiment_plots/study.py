"""Studies of rules: accuracy and value over budgets, every calibration side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.experiment_plots.common import new_figure, plain
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
#: Families whose effective sample size stands in the panel.
_SHOWN = {"sharp": "sharp", "composition-sharp": "composition", "paper": "paper"}
_LABELS = {"accuracy": "accuracy of the rule", "value": "mean outcome under the rule"}


def study(table: pd.DataFrame, part: str, stem: str) -> Iterable[tuple[str, Figure]]:
    """Two figures a scenario or form: accuracy and value over epsilon, schemes in columns, noises in rows."""
    values = [*_LABELS, "effective_share"]
    found = means(table, [part, "scheme", "noise", "family", "epsilon"], values)
    for scenario in found[part].unique():
        here = found[found[part] == scenario]
        for value, label in _LABELS.items():
            schemes = [name for name in here["scheme"].unique() if not name.startswith("treat ")]
            noises = [name for name in here["noise"].unique() if name != "none"]
            figure = new_figure(1.2 + 2.9 * len(schemes), 0.9 + 2.7 * len(noises))
            axes = figure.subplots(len(noises), len(schemes), squeeze=False, sharex=True, sharey=True)
            constant = here[here["family"] == "constant rule"][value].max()
            for row, noise in zip(axes, noises, strict=True):
                for ax, scheme in zip(row, schemes, strict=True):
                    _panel(ax, here[here["scheme"] == scheme], noise, value, constant)
                    ax.set_title(f"{scheme}, {noise} noise", loc="left", fontsize="medium")
            for ax in axes[-1]:
                ax.set_xlabel("epsilon")
            for row in axes:
                row[0].set_ylabel(label)
            handles, labels = axes[0][0].get_legend_handles_labels()
            for ax in axes.ravel():
                for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
                    if name not in labels:
                        handles.append(handle)
                        labels.append(name)
            figure.legend(
                handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small"
            )
            yield f"{stem}-{scenario}" + ("" if value == "accuracy" else f"-{value}"), figure


def _panel(ax: Axes, rows: pd.DataFrame, noise: str, value: str, constant: float) -> None:
    private_free = rows[rows["family"] == "non-private"]
    if len(private_free):
        ax.axhline(private_free[value].iloc[0], color="0.35", linewidth=1, label="without privacy")
    ax.axhline(constant, color="0.6", linewidth=1, linestyle="--", label="best constant rule")
    shares = []
    for family, style in STYLES.items():
        line = rows[(rows["family"] == family) & (rows["noise"] == noise)].sort_values("epsilon")
        if not len(line):
            continue
        ax.plot(line["epsilon"], line[value], label=family, **style)
        low, high = line[value] - line[f"{value}_half"], line[value] + line[f"{value}_half"]
        ax.fill_between(line["epsilon"], low, high, color=style["color"], alpha=0.15, linewidth=0)
        if family in _SHOWN:
            shares.append(f"{_SHOWN[family]} {line['effective_share'].mean():.2f}")
    ax.set_xscale("log")
    if shares:
        told = "ESS / n: " + ", ".join(shares)
        ax.text(0.02, 0.99, told, transform=ax.transAxes, fontsize=6.5, va="top", color="0.3")
    if value == "accuracy":
        ax.set_ylim(0.25, 1.09)
    plain(ax)
