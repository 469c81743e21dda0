"""What answers where the arms are declared to lie far apart: ``python far_arms.py``.

Samples whose effect is known are answered by a fitted logistic propensity, and by a constant one
with more of the budget for the outcome regression. The distance of the arms is declared as it is,
or as a larger one. Every cell of the table has the coverage, the median half width, and the root
mean square error with its standard error. ``--quick`` takes seconds; ``--variant weights`` answers
with the weights of a scheme as well.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import common
import pandas as pd
from interval_scenarios import Cell
from intervals import drawn, estimator
from scheme_effects import distance, measured

from dp2erm_cvx import PrivateEffect
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.plan import Plan

#: Populations without their log odds. Residuals have the standard deviation 1, events a share of
#: one half.
WORLDS = (
    Cell("five columns", 16_000, 1.0, law="uniform"),
    Cell("few records", 4000, 1.0, law="uniform"),
    Cell("twenty columns", 16_000, 2.0, p=20, law="uniform"),
    Cell("0/1 columns", 30_000, 4.0, law="switches"),
    Cell("events", 16_000, 1.0, law="uniform", binary=True, event=True, scale=0.0),
    Cell("curved", 16_000, 1.0, law="uniform", curve=0.3),
)
#: Declared distances and true ones. No covariates that are near normal lie farther apart than 1.6.
DISTANCES = ((1.0, 0.9), (1.2, 1.2), (1.3, 1.3), (1.4, 1.4), (1.5, 1.5), (1.8, 1.55), (1.5, 0.8))
LOGISTIC, CONSTANT, WEIGHTS = "logistic", "constant", "weights"
#: What is declared: shares that suit either propensity, those of the first near what rules of use
#: take.
WAYS: dict[str, dict[str, Any]] = {
    LOGISTIC: {
        "settings": {"propensity": "logistic", "center_share": 0.25, "propensity_share": 0.25}
    },
    CONSTANT: {"settings": {"propensity": "constant", "center_share": 0.6}},
    WEIGHTS: {"weights": "entropy_balancing"},
}
DESIGN = {
    "seed": 1,
    "worlds": [world.name for world in WORLDS],
    "ways": [way for way in WAYS if way != WEIGHTS],
    "distances": DISTANCES,
    "samples": 60,
}
VARIANTS = {
    "weights": {"ways": list(WAYS), "samples": 20},
    "quick": {"worlds": ["few records"], "distances": ((1.5, 1.5),), "samples": 6},
}


@functools.cache
def world_at(name: str, apart: float) -> Cell:
    """The population of a name whose arms lie so many standard deviations apart."""
    world = next(one for one in WORLDS if one.name == name)
    low, high = 0.0, 20.0
    for _ in range(12):
        middle = 0.5 * (low + high)
        if distance(replace(world, odds=middle)) < apart:
            low = middle
        else:
            high = middle
    return replace(world, odds=high)


@functools.cache
def lines_of(name: str, apart: float) -> tuple:
    """The lines of a population, and its average effect."""
    world = world_at(name, apart)
    lines = world.lines()
    return lines, world.truth(lines)


@functools.cache
def planned(name: str, declared: float, apart: float, way: str) -> tuple[PrivateEffect, Plan[Any]]:
    """An effect in a population, and its plan: public, and the same for all samples."""
    world = world_at(name, apart)
    domain = world.domain(lines_of(name, apart)[0])
    model = estimator(replace(world, declared={"confounding": declared, **WAYS[way]}), domain)
    assert isinstance(model, PrivateEffect)
    columns = [f"x{number}" for number in range(world.p)]
    return model, model.plan(world.n, columns)


def answered(design: common.Design, cell: common.Cell) -> list[common.Row]:
    """One sample of a population, answered once: the same sample and seed for all that answer."""
    declared, apart = cell["declared"], cell["distance"]
    world = world_at(cell["world"], apart)
    lines, truth = lines_of(world.name, apart)
    model, plan = planned(world.name, declared, apart, cell["way"])
    records = Dataset.declared(world.domain(lines), *drawn(world, lines, cell["replicate"]))
    release = model.set_params(seed=cell["replicate"]).run_plan(plan, records).release
    # where none is stated, as arms hardly overlap, it is unbounded
    ends = release.interval
    low = -math.inf if ends.low is None else ends.low
    high = math.inf if ends.high is None else ends.high
    return [{"estimate": release.estimate, "low": low, "high": high, "truth": truth}]


def keys(design: common.Design) -> Iterator[common.Row]:
    """Every answer to every sample, a population and a distance at a time."""
    for world in design["worlds"]:
        for declared, apart in design["distances"]:
            for replicate in range(design["samples"]):
                for way in design["ways"]:
                    place = {"world": world, "declared": declared, "distance": apart}
                    yield place | {"way": way, "replicate": replicate}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A line for every population and both distances: coverage, half width and RMSE."""
    lines = []
    for (name, declared, apart), part in table.groupby(
        ["world", "declared", "distance"], sort=False
    ):
        line = {"population": name, "declared": f"{declared:g}", "true": f"{apart:g}"}
        line["samples"] = str(part["replicate"].nunique())
        for way, own in part.groupby("way", sort=False):
            found = measured(own)
            error = f"{found['rmse']:.4f} ({found['rmse_error']:.4f})"
            line[str(way)] = f"{found['covered']:.2f}; {found['half']:.4f}; {error}"
        lines.append(line)
    return pd.DataFrame(lines)


def main() -> None:
    """Draw, answer and compare; print the table."""
    args, design, folder = common.start(__doc__, "far-arms", DESIGN, VARIANTS)
    seeded = {"seed": design["seed"]}
    table = common.run(answered, seeded, common.cells(seeded, keys(design)), folder, args.workers)
    lines = summary(table)
    lines.to_csv(folder / "table.csv", index=False)
    common.report(folder, [lines])


if __name__ == "__main__":
    main()
