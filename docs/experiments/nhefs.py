"""The effect on NHEFS over budgets, by five first stages and one with a private propensity.

``python nhefs.py`` takes half a minute. What is declared, and why, stands at its head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from common import (
    Cell,
    Design,
    Row,
    by_budget,
    cells,
    grid,
    hajek,
    legend_below,
    report,
    run,
    start,
)
from matplotlib.figure import Figure
from rules import PlannedRule, Weights, draw_thetas, without_noise

from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.datasets import load_nhefs, nhefs_domain
from dp2erm_cvx.diagnostics import difference_of_means
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.plan import Study, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import Box, FirstStage, SecondStage, registry
from dp2erm_cvx.report.figures import COLORS, WIDTH, new_figure, plain

#: Norm of the ten scaled covariates; the constant 1 in front of them comes on top.
COVARIATES_BOUND = 2.5
#: In kg: who would gain more than this by giving up is flagged by the rule.
TREATMENT_COST = 3.0
#: In kg: an arm's mean change of weight lies between -5 and 10 kg, one person's between -17.5 and
#: 22.5 kg.
ARM_MEAN_BOUND = 7.5
#: A rule looks at these alone: few parameters, little noise.
FEATURES = ("age", "wt71")
#: Covariates whose squares the textbook adds.
SQUARED = ("age", "wt71", "smokeintensity", "smokeyrs")


@dataclass(frozen=True)
class Scheme:
    """A first stage with its short name in the tables and the public reason for its settings."""

    label: str
    program: FirstStage
    reason: str


def effect_domain() -> Domain:
    """The public domain of the effect: the default, with a constant for the propensity."""
    return nhefs_domain(covariate_bound=math.hypot(COVARIATES_BOUND, 1.0), intercept=1.0)


def schemes() -> tuple[Scheme, ...]:
    """First stages, from none to stronger balance within each family."""
    first = registry.first_stages()
    squared = effect_domain().covariate_bound ** 2
    balance = 2 * COVARIATES_BOUND**2
    return (
        Scheme("uniform", registry.build(first, "uniform"), "no weighting: the baseline"),
        Scheme(
            "entropy",
            registry.build(first, "entropy_balancing", ridge=balance),
            f"entropy balancing; ridge {balance:g} = G^2, the squared norm bound of the balance "
            "functions",
        ),
        Scheme(
            "entropy, ridge/100",
            registry.build(first, "entropy_balancing", ridge=balance / 100),
            f"ridge {balance / 100:g}: a hundredth, for better balance",
        ),
        Scheme(
            "IPW",
            registry.build(first, "ipw_logistic", ridge=squared / 10, trim=4.0),
            f"logistic propensity; ridge {squared / 10:g} = M^2/10; no 1/propensity above 4",
        ),
        Scheme(
            "IPW, ridge/10",
            registry.build(first, "ipw_logistic", ridge=squared / 100, trim=4.0),
            f"ridge {squared / 100:g}: a tenth, for better balance",
        ),
    )


def composed_scheme() -> Scheme:
    """The last scheme again, with a private coefficient (Theorem 9)."""
    squared = effect_domain().covariate_bound ** 2
    program = registry.build(
        registry.first_stages(), "ipw_private", share=0.3, ridge=squared / 100, trim=4.0
    )
    return Scheme("private IPW", program, "the same with 30 % of epsilon spent on the propensity")


def arm_means() -> SecondStage:
    """The effect as the difference of two arm means.

    Each is within :data:`ARM_MEAN_BOUND` of the center.
    """
    return _least_squares("arm_means", theta_set=Box(ARM_MEAN_BOUND))


def plug_in() -> SecondStage:
    """The effect as one weighted mean.

    It is exact only where each arm has half of the weight.
    """
    return _least_squares("plug_in_ate")


def _least_squares(name: str, **settings: Any) -> SecondStage:
    built = registry.build(registry.second_stages(), name, **settings)
    assert isinstance(built, SecondStage)
    return built


def effect_of(theta: Sequence[float]) -> float:
    """theta_1 - theta_0 of arm means; theta itself of the plug-in."""
    return theta[0] if len(theta) == 1 else theta[1] - theta[0]


def textbook_effect(data: Dataset) -> float:
    """The textbook's estimate. Not private.

    Inverse propensity weights from a logistic regression without ridge or trim, on the unclipped
    covariates and the squares of :data:`SQUARED`; difference of the two weighted means (Hernan &
    Robins, What If, chapter 12).
    """
    squares = [data.columns.index(name) for name in SQUARED]
    X = np.hstack([data.X, data.X[:, squares] ** 2])
    return hajek(
        Dataset(X, data.a, data.y, (*data.columns, *(f"{name}^2" for name in SQUARED)))
    ).value


CLIPPED = "no privacy, same bounds"
FULL: Design = {
    "seed": 2606,
    "draws": 400,
    "epsilons": [0.1, 0.5, 1.0, 2.0, 5.0, 10.0],
    "delta": 1e-6,
}
QUICK: Design = {"draws": 20, "epsilons": [1.0, 5.0]}
#: Noise, calibration, and delta over that of the design.
WAYS = (("gamma", "sharp", 0.0), ("gaussian", "sharp", 1.0), ("laplace", "output", 0.0))


def rows(design: Design, cell: Cell) -> list[Row]:
    """Quantiles of the released effect over draws of all noise, in kg, for one first stage."""
    known = {one.label: one for one in (*schemes(), composed_scheme())}
    data, domain = load_nhefs(), effect_domain()
    first = known[cell["scheme"]].program.resolve(domain.space)
    weights, out = Weights(domain.records(data.X, data.a, data.y)), list[Row]()
    for noise, family, delta in WAYS:
        second = (plug_in() if family == "output" else arm_means()).resolve(domain.space)
        for epsilon in design["epsilons"]:
            head = {"noise": noise, "statistic": second.name, "epsilon": epsilon}
            law = "gaussian" if noise == "gaussian" else "gamma"
            budget, universe = (
                Budget(epsilon, delta * design["delta"]),
                Universe(domain, *data.X.shape),
            )
            try:
                plan = make_plan(
                    Study(first, second, universe, budget, calibration=family, noise=law)
                )
            except CalibrationError as error:
                out.append(head | {"status": "refused", "reason": str(error)})
                continue
            rng = cell.rng(f"{noise}/{epsilon}")
            thetas, share, _ = draw_thetas(PlannedRule(plan), weights, design["draws"], rng)
            effects = [effect_of(theta.tolist()) for theta in thetas]
            low, middle, high = np.quantile(effects, [0.05, 0.5, 0.95])
            quantiles = {"median": float(middle), "low": float(low), "high": float(high)}
            facts = {"effective_share": share, "V": plan.bound.V}
            out.append(head | {"status": "done"} | quantiles | facts)
    if plan.step("propensity") is None:
        thetas, share, _ = without_noise(first, arm_means().resolve(domain.space), weights)
        out.append(_plain(CLIPPED, effect_of(thetas[0].tolist())) | {"effective_share": share})
    out.append(_plain("textbook, no bounds", textbook_effect(data)))
    out.append(_plain("difference of means", difference_of_means(data).value))
    return out


def _plain(statistic: str, effect: float) -> Row:
    head = {"noise": "none", "statistic": statistic, "epsilon": None, "status": "done"}
    return head | dict.fromkeys(("median", "low", "high"), effect)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Median and 90 % range of the released effect by budget, in kg."""
    done = table[(table["status"] == "done") & table["epsilon"].notna()]
    ends = done[["median", "low", "high"]].itertuples(index=False)
    done = done.assign(shown=[f"{one:.1f} [{low:.1f}, {high:.1f}]" for one, low, high in ends])
    by = ["scheme", "statistic", "noise"]
    wide = by_budget(done, by)
    clipped = (
        table[table["statistic"] == CLIPPED].set_index("scheme")["median"].map("{:.2f}".format)
    )
    wide.insert(3, "no privacy", wide["scheme"].map(clipped))
    return wide.fillna("")


_LINES = {CLIPPED: "-", "textbook, no bounds": "--", "difference of means": ":"}
_TITLES = {
    "uniform": "weights of 1",
    "entropy": "entropy balancing",
    "entropy, ridge/100": "entropy balancing, ridge/100",
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
            ax.errorbar(
                place,
                line["median"],
                bars,
                fmt="o",
                markersize=4,
                color=color,
                label=_LABELS[noise],
            )
            # a triangle at the edge where a bar goes on beyond it
            for beyond, edge, mark in (
                (line["low"] < _LOW, _LOW, "v"),
                (line["high"] > _HIGH, _HIGH, "^"),
            ):
                spots = place[beyond]
                if len(spots):  # a layout has no room for a line without points
                    ends = [edge] * len(spots)
                    ax.plot(spots, ends, mark, color=color, markersize=7, clip_on=False, zorder=5)
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
    args, design, folder = start(__doc__, "nhefs", FULL, {"quick": QUICK})
    compared = (*schemes(), composed_scheme())
    places = cells(design, grid(scheme=[scheme.label for scheme in compared]))
    table = run(rows, design, places, folder, args.workers)
    report(folder, [summary(table)], figures(table))


if __name__ == "__main__":
    main()
