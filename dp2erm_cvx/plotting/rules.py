"""Studies of rules: accuracy and value over budgets, every calibration side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.plotting.figure import BLUE, ORANGE, WIDTH, legend_below, new_figure, plain
from dp2erm_cvx.studies.summary import means

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: How a family of calibrations is drawn, wherever it is.
_STYLES: dict[str, dict[str, Any]] = {
    "sharp": {"color": BLUE, "linewidth": 2.2},
    "auto": {"color": "#3a7d44", "linestyle": (0, (1, 1)), "linewidth": 2.2},
    "saturating": {"color": "#b3246b", "linewidth": 2.2},
    "pipeline": {"color": "#d0679d", "linestyle": (0, (4, 1))},
    "composition-sharp": {"color": "#7a4fa3", "linestyle": "--"},
    "composition-printed": {"color": "#a08bc0", "linestyle": ":"},
    "paper-corrected": {"color": "#d08a3c", "linestyle": ":"},
    "paper": {"color": ORANGE, "linestyle": "-."},
}
_LABELS = {"accuracy": "accuracy of the rule", "value": "mean outcome under the rule"}
#: How the two constant rules are drawn; closer together than the share below of the axis they are one line.
_CONSTANT = {"treat all": (0, (5, 2)), "treat none": (0, (2, 2))}
_SAME = 0.02
#: What the paper reports in words for its Figure 1, at epsilon 0.5 in the linear scenario.
_REPORTED = {("linear", "EBW", "gamma"): 0.91, ("linear", "EBW", "gaussian"): 0.87}
#: Letters of a line above a panel.
_LINE = 58


def study(table: pd.DataFrame, part: str, stem: str) -> Iterable[tuple[str, Figure]]:
    """Two figures a scenario or form: accuracy and value over epsilon, schemes in rows, noises in columns."""
    values = [*_LABELS, "effective_share"]
    found = means(table, [part, "scheme", "noise", "family", "epsilon"], values)
    for scenario in found[part].unique():
        here = found[found[part] == scenario]
        for value, label in _LABELS.items():
            schemes = _weighting(here)
            noises = [name for name in here["noise"].unique() if name != "none"]
            figure = new_figure(WIDTH, 0.9 + 2.6 * len(schemes))
            axes = figure.subplots(len(schemes), len(noises), squeeze=False, sharex=True, sharey=True)
            low, high = _limits(here, value)
            constant = _constant(here, value, high - low)
            for row, scheme in zip(axes, schemes, strict=True):
                for ax, noise in zip(row, noises, strict=True):
                    known = {scheme, "pipeline"} if scheme == schemes[0] else {scheme}
                    told = _panel(ax, here[here["scheme"].isin(known)], noise, value, constant)
                    ax.set_ylim(low, high)
                    reported = _REPORTED.get((scenario, scheme, noise)) if stem == "simulation" else None
                    if reported is not None and value == "accuracy":
                        ax.plot(0.5, reported, "kD", markersize=6, label="reported by the paper", zorder=5)
                    law = "Gaussian" if noise == "gaussian" else noise
                    pad = 5 + 11 * (1 + told.count("\n"))  # the title stands above what is told
                    ax.set_title(f"{scheme}, {law} noise", loc="left", fontsize="medium", pad=pad)
                    ax.annotate(
                        told,
                        (0.0, 1.0),
                        xytext=(0, 3),
                        xycoords="axes fraction",
                        textcoords="offset points",
                        fontsize=8,
                        color="0.25",
                    )
                row[0].set_ylabel(label)
            for ax in axes[-1]:
                ax.set_xlabel("epsilon")
            legend_below(figure, axes.ravel())
            yield f"{stem}-{scenario}" + ("" if value == "accuracy" else f"-{value}"), figure


def _weighting(rows: pd.DataFrame) -> list[str]:
    """The schemes that have panels of their own: weights, or the pipelines where nothing is weighted."""
    weighted = rows[rows["family"] != "pipeline"]
    found = [str(name) for name in weighted["scheme"].unique() if name not in _CONSTANT]
    return found or [str(name) for name in rows["scheme"].unique() if name not in _CONSTANT]


def _limits(rows: pd.DataFrame, value: str) -> tuple[float, float]:
    """What holds every curve, its band and every reference line, with a little room."""
    half = rows[f"{value}_half"].where(rows["noise"] != "none").fillna(0.0)
    low, high = float((rows[value] - half).min()), float((rows[value] + half).max())
    room = 0.04 * (high - low) or 0.01
    return low - room, high + room


def _constant(rows: pd.DataFrame, value: str, span: float) -> dict[str, tuple[float, Any]]:
    """Height and line style of the constant rules by label; one line where they are the same."""
    rules = rows[rows["family"] == "constant rule"]
    known = dict(zip(rules["scheme"].astype(str).tolist(), rules[value].tolist(), strict=True))
    if len(known) > 1 and max(known.values()) - min(known.values()) < _SAME * span:
        return {"treat all or none": (max(known.values()), _CONSTANT["treat all"])}
    return {name: (height, _CONSTANT[name]) for name, height in known.items()}


def _panel(
    ax: Axes, rows: pd.DataFrame, noise: str, value: str, constant: dict[str, tuple[float, Any]]
) -> str:
    """Draw the lines of a scheme; what to tell of their effective sample sizes."""
    private_free = rows[rows["family"] == "non-private"]
    if len(private_free):
        ax.axhline(private_free[value].iloc[0], color="0.2", linewidth=1, label="without privacy")
    for name, (height, dashes) in constant.items():
        ax.axhline(height, color="0.55", linewidth=1, linestyle=dashes, label=name)
    shares: dict[str, list[str]] = {}
    for family, style in _STYLES.items():
        line = rows[(rows["family"] == family) & (rows["noise"] == noise)].sort_values("epsilon")
        if not len(line):
            continue
        ax.plot(line["epsilon"], line[value], label=family, **style)
        low, high = line[value] - line[f"{value}_half"], line[value] + line[f"{value}_half"]
        ax.fill_between(line["epsilon"], low, high, color=style["color"], alpha=0.15, linewidth=0)
        if line["effective_share"].notna().any():
            shares.setdefault(f"{line['effective_share'].mean():.3f}", []).append(family)
    if len(private_free):
        shares.setdefault(f"{private_free['effective_share'].iloc[0]:.3f}", []).append("without privacy")
    ax.set_xscale("log")
    plain(ax)
    if len(shares) == 1:
        told = f"effective sample size / n: {next(iter(shares))} for all"
    else:
        parts = (f"{share} {', '.join(families)}" for share, families in shares.items())
        told = "effective sample size / n: " + "; ".join(parts)
    return "\n".join(textwrap.wrap(told, _LINE, break_on_hyphens=False))
