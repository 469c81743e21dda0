"""What a wrong residual scale costs, and what none does: ``python wrong_scale.py``.

Samples of a registry whose residuals have standard deviation 4 are answered at declared scales from
far too large to far too small, without one, which releases that of the outcome first, and at half
of the outcome bound, which a declared range alone would say. Other outcomes follow, without a
declared scale and with the right one. Every cell has its coverage, the median half width and the
root mean square error. ``--quick`` takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import common
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scheme_effects import measured
from scipy.special import expit

from dp2erm_cvx import Budget, Domain, PrivateEffect
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.report.figures import BLUE, ORANGE, WIDTH, new_figure, plain

#: What is not a declared scale: the outcome's is released, or half of its bound stands for it.
RELEASED, HALF = "released", "half of the bound"
#: Scales of residuals that are declared in the registry, where 4 is right.
DECLARED = ("160", "40", "12", "4", "1.33", "0.4", "0.1")
DESIGN = {
    "seed": 1,
    "scales": [*DECLARED, HALF, RELEASED],
    "epsilons": (0.5, 1.0, 4.0),
    "outcomes": ("t3", "costs", "zeros", "counts", "answers", "clusters"),
    "samples": 100,
}
VARIANTS = {
    "quick": {
        "scales": ["4", "0.4", RELEASED],
        "epsilons": (1.0,),
        "outcomes": ("costs",),
        "samples": 4,
    }
}


@dataclass(frozen=True)
class Outcome:
    """An outcome of 5,000 records with four covariates, at epsilon 1.

    Parameters
    ----------
    bound, center
        The declared outcome bound and center.
    right
        The standard deviation of its residuals, for who knows it.
    drawn
        Outcomes (n,) of covariates (n, 4) and treatments (n,).
    """

    bound: float
    center: float
    right: float
    drawn: Callable[[np.random.Generator, Array, Array], Array]


def _t3(rng: np.random.Generator, X: Array, a: Array) -> Array:
    return np.clip(0.3 * a + 0.4 * X.sum(axis=1) + rng.standard_t(3, len(a)), -12.0, 12.0)


def _costs(rng: np.random.Generator, X: Array, a: Array) -> Array:
    return np.minimum(rng.gamma(0.8, 1.0, len(a)) * np.exp(0.2 * X[:, 0] + 0.3 * a), 20.0)


def _zeros(rng: np.random.Generator, X: Array, a: Array) -> Array:
    some = rng.random(len(a)) < expit(-0.85 + 0.3 * X[:, 0] + 0.3 * a)
    return np.minimum(some * rng.exponential(2.0, len(a)), 20.0)


def _counts(rng: np.random.Generator, X: Array, a: Array) -> Array:
    return np.minimum(rng.poisson(np.exp(-0.3 + 0.3 * X[:, 0] + 0.3 * a)), 20).astype(float)


def _answers(rng: np.random.Generator, X: Array, a: Array) -> Array:
    return np.clip(np.rint(3.0 + 0.3 * a + 0.3 * X[:, 0] + rng.normal(size=len(a))), 1.0, 5.0)


def _clusters(rng: np.random.Generator, X: Array, a: Array) -> Array:
    high = rng.random(len(a)) < expit(0.5 * X[:, 0] + 0.5 * a)
    return np.where(high, 2.0, -2.0) + 0.3 * rng.normal(size=len(a))


OUTCOMES = {
    "t3": Outcome(12.0, 0.0, 1.7, _t3),
    "costs": Outcome(10.0, 10.0, 1.1, _costs),
    "zeros": Outcome(10.0, 10.0, 1.5, _zeros),
    "counts": Outcome(10.0, 10.0, 1.0, _counts),
    "answers": Outcome(2.0, 3.0, 1.0, _answers),
    "clusters": Outcome(6.0, 0.0, 2.0, _clusters),
}


def registry(rng: np.random.Generator) -> tuple[Array, Array, Array, float]:
    """4,000 records of five covariates.

    The outcome spreads by 4 around a line; the effect is 3.
    """
    X = rng.uniform(-1.0, 1.0, (4000, 5))
    a = rng.binomial(1, expit(1.2 * X[:, 0] + 0.6 * X[:, 1]))
    y = 3.0 * a + X @ np.array([5.0, 3.0, 2.0, 0.0, 0.0]) + rng.normal(0.0, 4.0, 4000)
    return X, a, np.clip(y, -40.0, 40.0), 3.0


def sample_of(name: str, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """A sample of one of the other outcomes."""
    X = np.clip(rng.normal(size=(5000, 4)), -4.0, 4.0)
    a = rng.binomial(1, expit(0.35 * X[:, 0] + 0.35 * X[:, 1]))
    return X, a, OUTCOMES[name].drawn(rng, X, a)


def truth_of(name: str) -> float:
    """The average effect on one of the other outcomes, by drawing it under both treatments."""
    rng = np.random.default_rng(7)
    X = np.clip(rng.normal(size=(1_000_000, 4)), -4.0, 4.0)
    means = [OUTCOMES[name].drawn(rng, X, np.full(len(X), arm)).mean() for arm in (0, 1)]
    return float(means[1] - means[0])


def answered(design: common.Design, cell: common.Cell) -> list[common.Row]:
    """One sample, answered once."""
    rng = np.random.default_rng([design["seed"], cell["replicate"]])
    scale, name = cell["scale"], cell["outcome"]
    if name == "registry":
        X, a, y, truth = registry(rng)
        domain = Domain(np.sqrt(5.0), 40.0, ranges=[(-1.0, 1.0)] * 5)
    else:
        X, a, y = sample_of(name, rng)
        truth = cell["truth"]
        known = OUTCOMES[name]
        domain = Domain(8.0, known.bound, known.center, ranges=[(-4.0, 4.0)] * 4)
    asked = {}
    if scale == HALF:
        asked = {"settings": {"scale_share": None}}
    elif scale != RELEASED:
        asked = {"residual_scale": float(scale)}
    model = PrivateEffect(domain, Budget(cell["epsilon"]), seed=cell["replicate"], **asked)
    release = model.fit(X, a, y, accept=True).release_
    ends = release.interval
    found = {"estimate": release.estimate, "low": ends.low, "high": ends.high, "truth": truth}
    return [found | {"used": release.settings["residual_scale"]}]


def keys(design: common.Design) -> Iterator[common.Row]:
    """Every sample of the registry at every scale and epsilon, then those of the other outcomes."""
    for epsilon in design["epsilons"]:
        for scale in design["scales"]:
            for replicate in range(design["samples"]):
                yield {
                    "outcome": "registry",
                    "epsilon": epsilon,
                    "scale": scale,
                    "replicate": replicate,
                }
    for name in design["outcomes"]:
        truth = truth_of(name)
        for scale in (f"{OUTCOMES[name].right:g}", HALF, RELEASED):
            for replicate in range(design["samples"]):
                place = {"outcome": name, "epsilon": 1.0, "scale": scale, "replicate": replicate}
                yield place | {"truth": truth}


def answers_of(part: pd.DataFrame) -> common.Row:
    """Measures of one cell; coverage and half width are of the samples that have an interval."""
    return measured(part) | {
        name: value
        for name, value in measured(part.dropna(subset="low")).items()
        if name in ("covered", "half")
    }


def _text(part: pd.DataFrame) -> str:
    found = answers_of(part)
    return f"{found['covered']:.2f}; {found['half']:.3g}; {found['rmse']:.3g}"


def of_registry(table: pd.DataFrame) -> pd.DataFrame:
    """A line for every scale: coverage, half width and RMSE at every epsilon."""
    here = table[table["outcome"] == "registry"]
    lines = []
    for scale, part in here.groupby("scale", sort=False):
        line = {"residual scale": "4 (right)" if scale == "4" else str(scale)}
        line |= {
            f"epsilon {epsilon:g}": _text(own)
            for epsilon, own in part.groupby("epsilon", sort=False)
        }
        lines.append(line)
    return pd.DataFrame(lines)


def of_others(table: pd.DataFrame) -> pd.DataFrame:
    """A line for every other outcome: the right scale, half of the bound, and a released one."""
    lines = []
    for name, part in table[table["outcome"] != "registry"].groupby("outcome", sort=False):
        line = {"outcome": str(name)}
        for scale, own in part.groupby("scale", sort=False):
            line["right scale" if scale not in (HALF, RELEASED) else str(scale)] = _text(own)
        lines.append(line)
    return pd.DataFrame(lines)


def drawn(table: pd.DataFrame) -> Figure:
    """Half widths over declared scales, a panel an epsilon.

    A panel says where fewer than 95 % of the intervals hold.
    """
    here = table[table["outcome"] == "registry"]
    figure = new_figure(WIDTH, 3.2)
    panels = np.atleast_1d(figure.subplots(1, here["epsilon"].nunique(), sharey=True))
    for ax, (epsilon, part) in zip(panels, here.groupby("epsilon", sort=False), strict=True):
        cells = {str(scale): answers_of(own) for scale, own in part.groupby("scale", sort=False)}
        known = sorted(float(scale) for scale in cells if scale not in (HALF, RELEASED))
        halves = [cells[f"{scale:g}"]["half"] for scale in known]
        ax.plot(known, halves, "o-", color=ORANGE, label="declared")
        for scale, half in zip(known, halves, strict=True):
            share = cells[f"{scale:g}"]["covered"]
            if share < 0.95:
                told = f"{100 * share:.0f} % hold"
                ax.annotate(told, (scale, half), (0, 6), textcoords="offset points", fontsize=8)
        released = cells[RELEASED]
        name = f"released first: {100 * released['covered']:.0f} % hold"
        ax.axhline(released["half"], color=BLUE, label=name)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(f"epsilon {epsilon:g}", loc="left", fontsize="medium")
        ax.legend(fontsize=8)
        plain(ax)
    panels[0].set_ylabel("half width")
    figure.supxlabel("declared residual scale (4 is right)", fontsize="medium")
    return figure


def main() -> None:
    """Draw, answer and compare; print both tables and draw the figure."""
    args, design, folder = common.start(__doc__, "wrong-scale", DESIGN, VARIANTS)
    seeded = {"seed": design["seed"]}
    table = common.run(answered, seeded, common.cells(seeded, keys(design)), folder, args.workers)
    lines, others = of_registry(table), of_others(table)
    lines.to_csv(folder / "wrong-scale.csv", index=False)
    others.to_csv(folder / "wrong-scale-outcomes.csv", index=False)
    common.report(folder, [lines, others], [("wrong-scale", drawn(table))])


if __name__ == "__main__":
    main()
