"""A scenario in which weights of 1 are clearly wrong, to see where weighting pays under privacy.

``python confounded.py --workers 2`` takes 7 minutes; the variants ``large``, ``pipeline`` and
``robustness`` 2 to 5. Most are treated, the more so the larger X_1, and X_1 raises the outcome
whoever is treated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from common import (
    Cell,
    Design,
    Row,
    across,
    cells,
    grid,
    legend_below,
    means,
    nearest,
    report,
    run,
    start,
)
from matplotlib.figure import Figure
from populations import Population, people_of, population_domain
from rules import PLAIN, Constants, Trial
from scipy.special import expit

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.datasets import Scenario, Simulation
from dp2erm_cvx.report.figures import COLORS, WIDTH, new_figure, plain

N_COVARIATES = 5


@dataclass(frozen=True)
class Strength:
    """Strengths of confounding in a scenario whose outcome and propensity have few terms.

    They are ``Y = mean + main X_1 + (A - 1/2)(X_3 - X_2) + noise`` and
    ``logit P(A = 1) = share + confounding X_1``. X is uniform on [-1, 1]^5. Most records are
    treated, so in a regression of ``2 Y (2A - 1)`` with weights 1 neither the mean outcome nor the
    main effect of X_1 cancels: a public center removes the mean, no constant removes the main
    effect. Weights that give each arm half of the mass at every x remove both.

    ``main_curve`` and ``treatment_curve`` times ``3 X_1^2 - 1`` are added to the outcome and to the
    log odds: no line is the center then, or none the propensity. The noise is normal, or
    exponential and centered: skewed "alike" in both arms, or "opposite", with its sign turned in
    the untreated arm.
    """

    mean: float = 3.0
    main: float = 2.0
    share: float = 1.0  # 72 % are treated
    confounding: float = 1.0
    noise: float = 0.5
    main_curve: float = 0.0
    treatment_curve: float = 0.0
    skewed: Literal["no", "alike", "opposite"] = "no"

    def draw(self, n_samples: int, rng: np.random.Generator) -> Simulation:
        """``n_samples`` records with what is unknown in real data."""
        X = _covariates(rng, n_samples)
        propensity = self._propensity(X)
        a = (rng.random(n_samples) < propensity).astype(np.int64)
        contrast, main = X[:, 2] - X[:, 1], self._main(X)
        y = main + (a - 0.5) * contrast + self.noise * self._noise(a, rng)
        return Simulation(self.scenario, Dataset.from_arrays(X, a, y), propensity, contrast, main)

    @property
    def scenario(self) -> Scenario:
        """The outcome mechanism, with normal noise."""
        return Scenario(
            "confounded",
            self._main,
            lambda rows: rows[:, 2] - rows[:, 1],
            lambda rows, arm: np.full(len(rows), self.noise**2),
        )

    def population(self) -> Population:
        """A population with normal noise, whose average effect is 0, as is that among the treated.

        Covariates are not clipped, and outcomes within 5 of their mean, which is public in
        simulations.
        """
        return Population(
            "confounded",
            0.0,
            population_domain(math.sqrt(N_COVARIATES), 5.0, self.mean),
            self.noise,
            people_of(_covariates, self.scenario.outcomes),
            self._propensity,
            effect_on_treated=0.0,
        )

    def _propensity(self, X: Array) -> Array:
        bent = 3.0 * X[:, 0] ** 2 - 1.0
        return expit(self.share + self.confounding * X[:, 0] + self.treatment_curve * bent)

    def _main(self, X: Array) -> Array:
        return self.mean + self.main * X[:, 0] + self.main_curve * (3.0 * X[:, 0] ** 2 - 1.0)

    def _noise(self, a: Array, rng: np.random.Generator) -> Array:
        """Noise of mean 0 and variance 1, (n,)."""
        if self.skewed == "no":
            return rng.standard_normal(len(a))
        drawn = rng.exponential(size=len(a)) - 1.0
        return drawn if self.skewed == "alike" else (2 * a - 1) * drawn


#: The population of the study.
CONFOUNDED = Strength()


def _covariates(rng: np.random.Generator, n_samples: int) -> Array:
    return rng.uniform(-1.0, 1.0, (n_samples, N_COVARIATES))


# public: norms beyond 1.3 are shrunk, a constant column makes the bound 1.64
NO_CENTER = Constants(1.6401, 6.5, intercept=1.0, theta_radius=1.5, arm_floor=0.1)
AT_3 = replace(NO_CENTER, outcome_bound=3.5, outcome_center=3.0)
_PIPELINE = {"covariate_bound": 1.2, "outcome_bound": 13.0, "outcome_scale": 1.3}
# what each piece gains: the rule alone, with a center, with a propensity, with both
_PIECES = {
    "pipeline": _PIPELINE,
    "pipeline, rule alone": _PIPELINE | {"settings": {"center_share": None, "propensity": None}},
    "pipeline, center": _PIPELINE | {"settings": {"center_share": 0.4, "propensity": None}},
    "pipeline, propensity": _PIPELINE
    | {"settings": {"center_share": None, "propensity": "logistic"}},
}
FULL: Design = {
    "seed": 2603,
    "n_samples": [400, 1000, 4000, 10_000],
    "n_test": 10_000,
    "replicates": 20,
    "draws": 5,
    "epsilons": [0.5, 1.0, 2.0, 5.0],
    "noises": ["gamma", "gaussian"],
    "families": ["sharp", "composition-sharp"],
    "centers": {"none": NO_CENTER, "at 3": AT_3},
    "schemes": {
        "w = 1": {"program": "uniform"},
        "IPW, ridge 0.1, trim 4": {
            "program": "ipw_logistic",
            "settings": {"ridge": 0.1, "trim": 4.0},
        },
        "IPW, ridge 0.003, trim 6": {
            "program": "ipw_logistic",
            "settings": {"ridge": 0.003, "trim": 6.0},
        },
        "EBW, ridge 1": {"program": "entropy_balancing", "settings": {"ridge": 1.0}},
        "EBW, ridge 0.1": {"program": "entropy_balancing", "settings": {"ridge": 0.1}},
        "MMD, 100 features": {
            "program": "mmd",
            "settings": {"ridge": 1.0, "kernel": "fourier:1.0:50:0"},
        },
    },
}
_NO_SCHEMES = {"replicates": 100, "noises": ["gamma"], "schemes": {}, "families": []}
VARIANTS: dict[str, Design] = {
    "quick": {
        "n_samples": [400, 2000],
        "n_test": 2000,
        "replicates": 2,
        "draws": 2,
        "epsilons": [1.0],
        "noises": ["gamma"],
    },
    # fewer replicates where each takes a minute
    "large": {"n_samples": [20_000, 40_000], "replicates": 8, "epsilons": [1.0]},
    # ridges and trims around those above, on another seed
    "settings": {
        "seed": 1,
        "n_samples": [4000, 10_000],
        "epsilons": [1.0],
        "noises": ["gamma"],
        "centers": {"at 3": AT_3},
        "schemes": {
            **{
                f"IPW, ridge {ridge}, trim {trim:g}": {
                    "program": "ipw_logistic",
                    "settings": {"ridge": ridge, "trim": trim},
                }
                for ridge in (0.1, 0.01, 0.003, 0.001)
                for trim in (4.0, 6.0)
            },
            **{
                f"EBW, ridge {ridge}": {
                    "program": "entropy_balancing",
                    "settings": {"ridge": ridge},
                }
                for ridge in (3.0, 1.0, 0.3, 0.1)
            },
        },
    },
    # rules by the default pipeline in place of weighting schemes
    "pipeline": _NO_SCHEMES | {"epsilons": [0.5, 1.0], "methods": _PIECES},
    # centers and propensities that no line is, skewed noise, and where there is nothing to correct
    "robustness": _NO_SCHEMES
    | {
        "n_samples": [1000, 4000],
        "epsilons": [1.0],
        "centers": {"at 3": Constants(1.6401, 3.5, intercept=1.0, outcome_center=3.0)},
        "populations": {
            "both lines right": CONFOUNDED,
            "center wrong": Strength(main_curve=1.0),
            "propensity wrong": Strength(treatment_curve=1.0),
            "both wrong": Strength(main_curve=1.0, treatment_curve=1.0),
            "more noise": Strength(noise=1.0),
            "skewed alike": Strength(noise=1.0, skewed="alike"),
            "skewed oppositely": Strength(noise=1.0, skewed="opposite"),
            "randomized": Strength(share=0.0, confounding=0.0),
            "nothing to correct": Strength(main=0.0, share=0.0, confounding=0.0),
        },
        "methods": _PIECES
        | {"pipeline, four times the slopes": _PIPELINE | {"outcome_scale": 5.2}},
    },
}


def keys(design: Design) -> list[Row]:
    """Replicates of every n, in every population."""
    populations = {"population": design["populations"]} if "populations" in design else {}
    return grid(**populations, n=design["n_samples"], replicate=range(design["replicates"]))


def rows(design: Design, cell: Cell) -> list[Row]:
    """Every center, scheme, family, noise and budget on one dataset."""
    drawn = design["populations"][cell["population"]] if "populations" in design else CONFOUNDED
    train, test = (
        drawn.draw(cell["n"], cell.rng("train")),
        drawn.draw(design["n_test"], cell.rng("test")),
    )
    trial, out = Trial(train, test, design["epsilons"], design["draws"]), list[Row]()
    for center, constants in design["centers"].items():
        for name, scheme in design["schemes"].items():
            head = {"center": center, "scheme": name}
            out.append(head | trial.plain_row(scheme, constants))
            for family in design["families"]:
                if family.startswith("composition") and scheme["program"] != "ipw_logistic":
                    continue  # only a logistic propensity has a private form
                for noise in design["noises"]:
                    rng = cell.rng(f"{center}/{name}/{family}/{noise}")
                    private = trial.private_rows(scheme, constants, family, noise, rng)
                    out += [head | row for row in private]
        for name, declared in design.get("methods", {}).items():
            for noise in design["noises"]:
                rng = cell.rng(f"{center}/{name}/{noise}")
                pipeline = trial.pipeline_rows(name, declared, noise, rng, constants.outcome_center)
                out += [{"center": center} | row for row in pipeline]
    return out


def summary(design: Design, table: pd.DataFrame) -> pd.DataFrame:
    """Accuracy over n at the budget nearest to 1, and without privacy."""
    parts = [
        *(["population"] if "population" in table else []),
        "center",
        "scheme",
        "family",
        "noise",
    ]
    errors = means(table, [*parts, "epsilon", "n"], ["accuracy"])
    return across(errors[errors["epsilon"].isin([nearest(design, 1.0), np.inf])], parts, "n")


def figures(table: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """One figure a noise: accuracy over n, centers in columns, budgets in rows."""
    if "population" in table:
        return  # a table tells more of many populations at two n
    errors = means(table, ["center", "scheme", "family", "noise", "epsilon", "n"], ["accuracy"])
    names = list(dict.fromkeys(errors["scheme"]))
    for noise in [name for name in errors["noise"].unique() if name != "none"]:
        here = errors[(errors["noise"] == noise) & (errors["family"] != PLAIN)]
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
                title = "no center" if center == "none" else f"center {center}"
                ax.set_title(f"epsilon {epsilon:g}, {title}", loc="left", fontsize="medium")
                ax.set_xscale("log")
                plain(ax)
            row[0].set_ylabel("accuracy of the rule")
        for ax in axes[-1]:
            ax.set_xlabel("number of records n")
        legend_below(figure, axes.ravel())
        yield f"confounded-{noise}", figure


def main() -> None:
    """Run and report."""
    args, design, folder = start(__doc__, "confounded", FULL, VARIANTS)
    table = run(rows, design, cells(design, keys(design)), folder, args.workers)
    report(folder, [summary(design, table)], figures(table))


if __name__ == "__main__":
    main()
