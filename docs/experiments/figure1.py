"""Figure 1 of Lee & Chen: accuracy of private rules over budgets, every calibration side by side.

``python figure1.py --workers 2`` takes 25 minutes, ``--variant n4000`` 50, ``--quick`` seconds.
"""

from __future__ import annotations

import drawing
import numpy as np
import pandas as pd
from common import Cell, Design, Row, across, means, nearest, report, start
from rules import Constants, Trial, all_rows, choose, tuned_run

from dp2erm_cvx.datasets import simulate

_PIPELINE = {"covariate_bound": 1.2, "outcome_bound": 30.0, "outcome_scale": 4.0}
# as in the paper: next to this norm a constant of 1 is nothing
_NO_INTERCEPT = {"norm": 100.0, "center_slope": 0.75, "slope": 1.5}
_CENTER = {"center_share": 0.4, "propensity": None}
UNIFORM = {"program": "uniform"}
IPW = {
    "program": "ipw_logistic",
    "settings": {"ridge": 1.0, "radius": 1.0},
    "paper": {"trim": np.inf},
    "composition": {"share": 0.3},
}
EBW = {
    "program": "entropy_balancing",
    "settings": {"ridge": 1.5},
    "paper": {"program": "paper_entropy_balancing", "radius": 1.0},
}
# the paper's R_MMD; the sharp bound needs none
MMD = {"program": "mmd", "settings": {"ridge": 10.0}, "paper": {"cap": 2.0}}

FULL: Design = {
    "seed": 2602,
    "scenarios": ["linear", "tree", "nonlinear"],
    "n_samples": 400,
    "n_test": 10_000,
    "replicates": 100,
    "draws": 5,  # of the noise, averaged within a replicate
    "epsilons": [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0],
    "noises": ["gamma", "gaussian"],  # delta = 0 and 1/n
    "families": [
        *("paper", "paper-corrected", "sharp", "auto", "saturating"),
        *("composition-sharp", "composition-printed"),
    ],
    # half of the records are treated
    "constants": Constants(1.0, 2.0, paper_theta_radius=2.0, arm_floor=0.35),
    # an outcome pulls with the slope at most: 2 (2A - 1) Y has a standard deviation of 8
    "saturating": Constants(1.2, 30.0, slope=1.5, arm_floor=0.35),
    "schemes": {"w = 1": UNIFORM, "IPW": IPW, "EBW": EBW, "MMD": MMD},
    "methods": {
        "pipeline": _PIPELINE,
        "pipeline, rule alone": _PIPELINE
        | {"settings": {"center_share": None, "propensity": None}},
        "pipeline, center": _PIPELINE | {"settings": _CENTER},
        "pipeline, no intercept": _PIPELINE | {"settings": _NO_INTERCEPT},
        "pipeline, center, no intercept": _PIPELINE | {"settings": _CENTER | _NO_INTERCEPT},
    },
    "tuning": {
        "bootstraps": 10,
        "candidates": {
            "IPW": [
                *({"ridge": ridge, "radius": 1.0} for ridge in (1.0, 0.3, 0.1, 0.03)),
                *({"ridge": ridge, "radius": 1.0, "trim": 3.0} for ridge in (0.03, 0.003)),
                *({"ridge": ridge, "radius": 0.5} for ridge in (0.1, 0.01)),
            ],
            "EBW": [
                *({"ridge": ridge} for ridge in (5.0, 1.5, 0.5, 0.25)),
                *({"ridge": 0.1, "radius": 0.5}, {"ridge": 0.03, "radius": 0.25}),
            ],
            "MMD": [{"ridge": ridge} for ridge in (100.0, 10.0, 1.0, 0.1, 0.01)],
        },
    },
}
VARIANTS: dict[str, Design] = {
    "quick": {
        "replicates": 3,
        "n_test": 2000,
        "draws": 2,
        "epsilons": [0.1, 0.5, 5.0],
        "tuning": {
            "bootstraps": 2,
            "candidates": {"IPW": [{"ridge": 1.0, "radius": 1.0}, {"ridge": 0.1, "radius": 0.5}]},
        },
    },
    # more records, without MMD, whose Gram matrices take seconds each; a larger Theta pays with
    # less noise
    "n4000": {
        "scenarios": ["linear", "nonlinear"],
        "n_samples": 4000,
        "epsilons": [0.1, 0.5, 1.0, 5.0],
        "families": ["paper", "sharp", "auto", "saturating", "composition-sharp"],
        "constants": Constants(1.0, 2.0, theta_radius=2.0, paper_theta_radius=8.0, arm_floor=0.35),
        "schemes": {"w = 1": UNIFORM, "IPW": IPW, "EBW": EBW},
    },
    # the public constants are tuned on the same independent sample as well
    "tuned-constants": {
        "scenarios": ["linear"],
        "families": [name for name in FULL["families"] if name != "saturating"],
        "methods": {},
        "constants": Constants(1.0, 2.0, arm_floor=0.35),
        "tuning": {
            "bootstraps": 10,
            "constants": [
                dict(zip(("covariate_bound", "outcome_bound", "theta_radius"), tried, strict=True))
                for tried in (
                    *(
                        (1.0, 2.0, 2.0),
                        (1.0, 2.0, 1.0),
                        (1.0, 1.0, 1.0),
                        (1.0, 2.0, 0.5),
                        (0.5, 1.0, 1.0),
                    ),
                    *((1.7, 2.0, 1.0), (1.7, 4.0, 0.5), (1.0, 2.0, 4.0), (1.0, 4.0, 4.0)),
                )
            ],
            "candidates": {
                "IPW": [
                    *({"ridge": 1.0, "radius": 1.0}, {"ridge": 0.3, "radius": 1.0}),
                    {"ridge": 0.1, "radius": 0.5},
                ],
                "EBW": [{"ridge": ridge} for ridge in (5.0, 1.5, 0.5)],
                "MMD": [{"ridge": ridge} for ridge in (100.0, 10.0, 1.0)],
            },
        },
    },
}


def tuned(design: Design, scenario: str, name: str, family: str) -> Row:
    """Settings that are chosen on an independent dataset of the scenario."""
    rng = np.random.default_rng([design["seed"], 6, design["scenarios"].index(scenario)])
    return choose(design, simulate(scenario, design["n_samples"], rng=rng), name, family)


def rows(design: Design, cell: Cell) -> list[Row]:
    """A replicate of a scenario."""
    sizes = {"train": design["n_samples"], "test": design["n_test"]}
    train, test = (simulate(cell["scenario"], n, rng=cell.rng(one)) for one, n in sizes.items())
    trial = Trial(train, test, design["epsilons"], design["draws"])
    return all_rows(design, design["choices"], cell["scenario"], trial, cell)


def summary(design: Design, table: pd.DataFrame, part: str = "scenario") -> pd.DataFrame:
    """Accuracy by family at the budget nearest to 0.5."""
    errors = means(table, [part, "scheme", "noise", "family", "epsilon"], ["accuracy"])
    at = errors[errors["epsilon"] == nearest(design, 0.5)]
    return across(at, [part, "scheme", "noise"], "family")


def main() -> None:
    """Tune, run, and report."""
    args, design, folder = start(__doc__, "simulation", FULL, VARIANTS)
    table, chosen = tuned_run(design, "scenario", tuned, rows, folder, args.workers)
    report(folder, (summary(design, table), chosen), drawing.study(table, "scenario", "simulation"))


if __name__ == "__main__":
    main()
