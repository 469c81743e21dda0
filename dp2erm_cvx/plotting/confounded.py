"""The confounded scenario: accuracy over n."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dp2erm_cvx.plotting.common import COLORS, legend_below, new_figure, plain
from dp2erm_cvx.studies.summary import means

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def confounded(table: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
    """One figure a noise: accuracy over n, with and without the public center in columns, budgets in rows."""
    by = ["center", "scheme", "family", "noise", "epsilon", "n"]
    found = means(table, by, ["accuracy", "effective_share", "V"])
    names = list(dict.fromkeys(found["scheme"]))
    for noise in [name for name in found["noise"].unique() if name != "none"]:
        here = found[found["noise"] == noise]
        epsilons, centers = sorted(here["epsilon"].unique()), list(here["center"].unique())
        figure = new_figure(1.9 + 2.3 * len(epsilons))
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
