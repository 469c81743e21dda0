"""The confounded scenario: accuracy over n."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dp2erm_cvx.experiment_plots.common import COLORS, new_figure, plain
from dp2erm_cvx.experiments.summary import means

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def confounded(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """One figure a noise: accuracy over n, budgets in columns, with and without the public center in rows."""
    by = ["center", "scheme", "family", "noise", "epsilon", "n"]
    found = means(table, by, ["accuracy", "effective_share", "V"])
    names = list(dict.fromkeys(found["scheme"]))
    for noise in [name for name in found["noise"].unique() if name != "none"]:
        here = found[found["noise"] == noise]
        epsilons, centers = sorted(here["epsilon"].unique()), list(here["center"].unique())
        figure = new_figure(1.0 + 3.0 * len(epsilons), 1.2 + 2.9 * len(centers))
        axes = figure.subplots(len(centers), len(epsilons), squeeze=False, sharex=True, sharey=True)
        for row, center in zip(axes, centers, strict=True):
            for ax, epsilon in zip(row, epsilons, strict=True):
                part = here[(here["center"] == center) & (here["epsilon"] == epsilon)]
                for (scheme, family), line in part.groupby(["scheme", "family"], sort=False):
                    style = {"color": COLORS[names.index(scheme) % len(COLORS)]}
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
                plain(ax)
            row[0].set_ylabel("accuracy of the rule")
        for ax in axes[-1]:
            ax.set_xlabel("number of records n")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
        yield f"confounded-{noise}", figure
