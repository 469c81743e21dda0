"""The effect on NHEFS over budgets, by the first stages of the demonstration.

``python nhefs.py`` takes half a minute.
Everything else is what the demonstration declares: ``dp2erm_cvx/demo/settings.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from common import Cell, Design, Row, cells, folder_of, options, report, run
from matplotlib.figure import Figure
from rules import PlannedRule, Weights, draw_thetas, without_noise

from dp2erm_cvx.compare.effect_references import difference
from dp2erm_cvx.datasets import load_nhefs
from dp2erm_cvx.demo import settings
from dp2erm_cvx.demo.comparison import effect_of
from dp2erm_cvx.demo.effect import textbook_effect
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.plan import Study, make_plan
from dp2erm_cvx.plotting.figure import COLORS, WIDTH, legend_below, new_figure, plain
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.universe import Universe

CLIPPED = "no privacy, same bounds"
FULL: Design = {"seed": 2606, "draws": 400, "epsilons": [0.1, 0.5, 1.0, 2.0, 5.0, 10.0], "delta": 1e-6}
QUICK: Design = {"draws": 20, "epsilons": [1.0, 5.0]}
#: Noise, calibration, and delta over that of the design.
WAYS = (("gamma", "sharp", 0.0), ("gaussian", "sharp", 1.0), ("laplace", "output", 0.0))


def rows(design: Design, cell: Cell) -> list[Row]:
    """Quantiles of the released effect over draws of all noise, in kg, for one first stage."""
    known = {one.label: one for one in (*settings.schemes(), settings.composed_scheme())}
    data, domain = load_nhefs(), settings.effect_domain()
    first = known[cell["scheme"]].program.resolve(domain)
    weights, found = Weights(domain.records(data.X, data.a, data.y)), list[Row]()
    for noise, family, delta in WAYS:
        second = (settings.plug_in() if family == "output" else settings.arm_means()).resolve(domain)
        for epsilon in design["epsilons"]:
            head = {"noise": noise, "statistic": second.name, "epsilon": epsilon}
            law = "gaussian" if noise == "gaussian" else "gamma"
            budget, universe = Budget(epsilon, delta * design["delta"]), Universe(domain, *data.X.shape)
            try:
                plan = make_plan(Study(first, second, universe, budget, calibration=family, noise=law))
            except CalibrationError as error:
                found.append(head | {"status": "refused", "reason": str(error)})
                continue
            rng = cell.rng(f"{noise}/{epsilon}")
            thetas, share, _ = draw_thetas(PlannedRule(plan), weights, design["draws"], rng)
            effects = [effect_of(theta.tolist()) for theta in thetas]
            low, middle, high = np.quantile(effects, [0.05, 0.5, 0.95])
            quantiles = {"median": float(middle), "low": float(low), "high": float(high)}
            facts = {"effective_share": share, "V": plan.bound.V}
            found.append(head | {"status": "done"} | quantiles | facts)
    if plan.propensity is None:
        thetas, share, _ = without_noise(first, settings.arm_means().resolve(domain), weights)
        found.append(_plain(CLIPPED, effect_of(thetas[0].tolist())) | {"effective_share": share})
    found.append(_plain("textbook, no bounds", textbook_effect(data)))
    found.append(_plain("difference of means", difference(data).value))
    return found


def _plain(statistic: str, effect: float) -> Row:
    head = {"noise": "none", "statistic": statistic, "epsilon": None, "status": "done"}
    return head | dict.fromkeys(("median", "low", "high"), effect)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Median and 90 % range of the released effect by budget, in kg."""
    done = table[(table["status"] == "done") & table["epsilon"].notna()]
    ends = done[["median", "low", "high"]].itertuples(index=False)
    done = done.assign(shown=[f"{one:.1f} [{low:.1f}, {high:.1f}]" for one, low, high in ends])
    by = ["scheme", "statistic", "noise"]
    wide = done.pivot_table("shown", by, "epsilon", "first", sort=False).reset_index()
    clipped = table[table["statistic"] == CLIPPED].set_index("scheme")["median"].map("{:.2f}".format)
    wide.insert(3, "no privacy", wide["scheme"].map(clipped))
    return wide.rename(columns=lambda name: name if isinstance(name, str) else f"{name:g}").fillna("")


_LINES = {CLIPPED: "-", "textbook, no bounds": "--", "difference of means": ":"}
_TITLES = {
    "uniform": "weights of 1",
    "entropy": "entropy balancing",
    "entropy, ridge/4": "entropy balancing, a quarter of the ridge",
    "IPW": "IPW",
    "IPW, ridge/10": "IPW, a tenth of the ridge",
    "private IPW": "IPW, a tenth of the ridge, private propensity",
}
_LABELS = {
    "gamma": "difference of arm means, gamma noise",
    "gaussian": "difference of arm means, Gaussian noise",
    "laplace": "plug-in, Laplace noise",
}
#: The effects, in kg, that the panels show.
_LOW, _HIGH = -6.0, 12.0


def figures(table: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Median and 90 % range of the released effect over epsilon, a panel for each first stage."""
    private, plain_rows = (table[table["epsilon"].notna()], table[table["epsilon"].isna()])
    private = private[private["status"] == "done"]
    figure = new_figure(WIDTH, 1.2 + 2.4 * 3)
    axes = figure.subplots(3, 2, squeeze=False, sharex=True, sharey=True)
    for ax, scheme in zip(axes.ravel(), private["scheme"].unique(), strict=True):
        groups = private[private["scheme"] == scheme].groupby("noise", sort=False)
        for number, (noise, line) in enumerate(groups):
            place, color = (0.93, 1.0, 1.07)[number % 3] * line["epsilon"], COLORS[1 + 2 * number]
            bars = [line["median"] - line["low"], line["high"] - line["median"]]
            ax.errorbar(place, line["median"], bars, fmt="o", markersize=4, color=color, label=_LABELS[noise])
            # a triangle at the edge where a bar goes on beyond it
            for beyond, edge, mark in ((line["low"] < _LOW, _LOW, "v"), (line["high"] > _HIGH, _HIGH, "^")):
                spots = place[beyond]
                ax.plot(spots, [edge] * len(spots), mark, color=color, markersize=7, clip_on=False, zorder=5)
        for name, style in _LINES.items():
            owner = "IPW, ridge/10" if (name, scheme) == (CLIPPED, "private IPW") else scheme
            known = plain_rows[(plain_rows["scheme"] == owner) & (plain_rows["statistic"] == name)]
            label = "arm means without noise, same bounds" if name == CLIPPED else name
            for height in known["median"]:
                ax.axhline(height, color="0.4", linestyle=style, label=label)
        ax.set(xscale="log", ylim=(_LOW, _HIGH))
        ax.set_title(_TITLES[scheme], loc="left", fontsize="medium")
        plain(ax)
    for ax in axes[-1]:
        ax.set_xlabel("epsilon")
    for row in axes:
        row[0].set_ylabel("effect on weight, kg")
    legend_below(figure, axes.ravel())
    yield "nhefs", figure


def main() -> None:
    """Run and report."""
    asked = options(__doc__)
    design, folder = FULL | (QUICK if asked.variant else {}), folder_of("nhefs", asked)
    schemes = (*settings.schemes(), settings.composed_scheme())
    places = cells(design, [{"scheme": scheme.label} for scheme in schemes])
    table = run(rows, design, places, folder, asked.workers)
    report(folder, [summary(table)], figures(table))


if __name__ == "__main__":
    main()
