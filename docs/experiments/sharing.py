"""Gain of three questions of one study from one propensity: ``python sharing.py``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import Cell, Design, Row, cells, grid, report, run, start
from scipy.special import expit

from dp2erm_cvx.study import read_study

DESIGN: Design = {"seed": 33, "n": 6000, "replicates": 100}
QUICK: Design = {"replicates": 2}
SETTINGS = 'settings = { propensity = "logistic" }'
STUDY = f"""
outcome_column = "y"
outcome_bound = 4.0
treatment = "a"

[ranges]
u = [-1, 1]
v = [-1, 1]
w = [-1, 1]

[missing]    # neither outcome has gaps: the same records count in all questions
y = 0.0
z = 10.0

[budget]
epsilon = 3

[[effect]]
name = "average"
residual_scale = 0.5
{SETTINGS}

[[effect]]
name = "treated"
estimand = "att"
residual_scale = 0.5
{SETTINGS}

[[effect]]
name = "stay"
outcome_column = "z"
outcome_center = 10.0
outcome_bound = 8.0
residual_scale = 1.0
{SETTINGS}
"""


def replicate(design: Design, cell: Cell) -> list[Row]:
    """Every answer to one table, each question by itself or sharing what no outcome enters."""
    n, number = design["n"], cell["replicate"]
    rng = np.random.default_rng([design["seed"], number])  # both kinds see one table
    x = rng.uniform(-1, 1, (n, 3))
    a = (rng.random(n) < expit(0.8 * x[:, 0] - 0.5 * x[:, 1])).astype(int)
    effect = 1.0 + 0.5 * x[:, 0]
    y = x[:, 0] - x[:, 1] + effect * a + rng.normal(0, 0.5, n)
    z = 10.0 + 2.0 * x[:, 0] + x[:, 2] - 1.5 * a + rng.normal(0, 1.0, n)
    truths = {"average": 1.0, "treated": effect[a == 1].mean(), "stay": -1.5}
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "study.toml").write_text(STUDY, encoding="utf-8")
        study = read_study(file)
    table = pd.DataFrame(x, columns=["u", "v", "w"]).assign(a=a, y=y, z=z)
    seed = 3 * number
    if cell["propensity"] == "shared":
        released: dict[str, Any] = dict(study.run(table, seed=seed))
    else:  # one by one, each question releases all its steps
        released = {
            name: model.fit(table, a, z if name == "stay" else y).release_
            for name, model in study.models(seed=seed).items()
        }
    rows: list[Row] = []
    for name, release in released.items():
        low, high = release.interval.low, release.interval.high
        covered = low <= truths[name] <= high
        error = release.estimate - truths[name]
        rows.append({"question": name, "error": error, "covered": covered, "width": high - low})
    return rows


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A line for every question, its numbers without and with sharing."""
    lines = []
    for name, part in table.groupby("question", sort=False):
        line = {"question": name}
        for kind in ("own", "shared"):
            one = part[part["propensity"] == kind]
            line |= {f"RMSE, {kind}": f"{np.sqrt(np.mean(one['error'] ** 2)):.4f}"}
            line |= {f"half width, {kind}": f"{one['width'].mean() / 2:.4f}"}
            line |= {f"covered, {kind}": f"{int(one['covered'].sum())} of {len(one)}"}
        lines.append(line)
    return pd.DataFrame(lines)


def main() -> None:
    """Draw, release and compare; print the table."""
    args, design, folder = start(__doc__, "sharing", DESIGN, {"quick": QUICK})
    keys = grid(propensity=["own", "shared"], replicate=range(design["replicates"]))
    table = summary(run(replicate, design, cells(design, keys), folder, args.workers))
    table.to_csv(folder / "table.csv", index=False)
    report(folder, [table])


if __name__ == "__main__":
    main()
