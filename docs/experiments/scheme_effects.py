"""How often intervals of effects by the weights of a scheme hold the truth.

The command is ``python scheme_effects.py``. Ten populations whose effect is known are drawn, and a
sample is answered up to five times with one budget: by three unlike schemes, by base weights that
balance nothing, and without weights. ``--quick`` takes seconds; ``--variant many`` has enough
samples for a coverage, and ``--variant broken`` draws two clusters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
from interval_scenarios import Cell
from intervals import drawn, estimator

from dp2erm_cvx import Domain, PrivateEffect
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.program import FirstStage, registry
from dp2erm_cvx.program.files import program_of_file

HERE = Path(__file__).parent
#: Outcomes are lines with residuals of standard deviation 1 unless a population says otherwise.
#: Arms lie at most 1 apart where no ``confounding`` is declared.
POPULATIONS = (
    Cell("small", 1000, 1.0, odds=0.65),
    Cell("two columns", 4000, 0.5, p=2, law="uniform", odds=0.3),
    Cell("middle", 4000, 1.0, odds=0.65),
    Cell("unequal effects", 16_000, 1.0, odds=1.25, varying=0.25),
    Cell("twenty columns", 8000, 2.0, p=20, law="uniform", odds=0.65),
    Cell("a tenth treated", 16_000, 1.0, odds=0.65, treated=0.1),
    Cell("two values", 8000, 1.0, odds=0.65, binary=True, event=True, scale=0.0),
    Cell("t residuals", 8000, 1.0, odds=0.95, residuals="t3"),
    Cell("far", 16_000, 1.0, law="uniform", odds=5.0, declared={"confounding": 1.5}),
    Cell("many, 0/1 columns", 30_000, 4.0, law="switches", odds=1.8, declared={"confounding": 1.3}),
)
#: What the rehearsal takes for granted does not hold: two clusters, and the treatment follows them.
BROKEN = (
    Cell("two clusters", 16_000, 1.0, p=1, law="clusters", odds=2.5, declared={"confounding": 1.6}),
)
NONE, BASES = "no weights", "base weights"
RULED = "entropy_balancing"
FILES = ("square_scheme", "logit_scheme")
#: Samples of every population, by what answers: those of the page, and those of the variants.
DESIGN = {
    "seed": 1,
    "populations": [one.name for one in POPULATIONS],
    "samples": {NONE: 20, BASES: 1, RULED: 20, "square_scheme": 1, "logit_scheme": 1},
}
VARIANTS = {
    "many": {
        "samples": {NONE: 100, BASES: 40, RULED: 100, "square_scheme": 40, "logit_scheme": 40}
    },
    "broken": {
        "populations": [one.name for one in BROKEN],
        "samples": {NONE: 30, BASES: 1, RULED: 30, "square_scheme": 30, "logit_scheme": 30},
    },
    "quick": {"populations": ["small"], "samples": dict.fromkeys((NONE, BASES, RULED, *FILES), 3)},
}
#: A price so low that weights stay at their bases.
_NO_PRICE = 1000.0


@functools.cache
def scheme_of_file(name: str) -> Any:
    """The scheme of a file beside this one."""
    return program_of_file(HERE / f"{name}.py", None, "first")


def weights_of(name: str, population: Cell) -> FirstStage | str:
    """What a row declares as weights: schemes of files have the ridge of the rule of use."""
    if name == BASES:
        settings = {"ridge": _NO_PRICE, "constant": 1.0, "cap": 1.5, "bases": "by_arm"}
        program: FirstStage = registry.build(registry.first_stages(), RULED, **settings)
        return program
    if name not in FILES:
        return name
    ridge = 3.6 / math.sqrt(population.n * population.epsilon * population.p)
    if population.declared.get("confounding", 1.0) >= 1.4:
        ridge /= 3.0
    scheme: FirstStage = scheme_of_file(name)(ridge=ridge)
    return scheme


def population_of(name: str) -> Cell:
    """The population of a name."""
    return next(one for one in (*POPULATIONS, *BROKEN) if one.name == name)


@functools.cache
def truth_of(name: str) -> float:
    """The average effect in a population."""
    return population_of(name).truth(world(name)[0])


def distance(population: Cell) -> float:
    """How far the arms lie apart in the worst combination of covariates, in standard deviations."""
    lines = population.lines()
    x = population.covariates(100_000, np.random.default_rng(5))
    propensity = population.propensity(x, lines)
    treated = propensity @ x / np.sum(propensity)
    control = (1.0 - propensity) @ x / np.sum(1.0 - propensity)
    apart = treated - control
    within = np.atleast_2d(np.cov(x.T))
    return float(np.sqrt(apart @ np.linalg.solve(within, apart)))


@functools.cache
def world(name: str) -> tuple[tuple, Domain]:
    """The lines of a population, and what is declared of its records."""
    population = population_of(name)
    lines = population.lines()
    return lines, population.domain(lines)


@functools.cache
def planned(name: str, weights: str) -> tuple[PrivateEffect, Plan[Any]]:
    """An effect in a population, and its plan: public, and the same for all samples."""
    population = population_of(name)
    declared = dict(population.declared)
    if weights != NONE:
        declared["weights"] = weights_of(weights, population)
    model = estimator(replace(population, declared=declared), world(name)[1])
    assert isinstance(model, PrivateEffect)
    columns = [f"x{number}" for number in range(population.p)]
    return model, model.plan(population.n, columns)


def answered(design: common.Design, cell: common.Cell) -> list[common.Row]:
    """One sample of a population, answered once: the same sample and seed for all that answer."""
    population = population_of(cell["population"])
    lines, domain = world(population.name)
    model, plan = planned(population.name, cell["weights"])
    records = Dataset.declared(domain, *drawn(population, lines, cell["replicate"]))
    release = model.set_params(seed=cell["replicate"]).run_plan(plan, records).release
    ends = release.interval
    truth = truth_of(population.name)
    return [{"estimate": release.estimate, "low": ends.low, "high": ends.high, "truth": truth}]


def keys(samples: dict[str, int], names: list[str]) -> Iterator[common.Row]:
    """Every answer to every sample, a population at a time: bounds of its plan are derived once."""
    for name in names:
        for number in range(max(samples.values())):
            for weights, wanted in samples.items():
                if number < wanted:
                    yield {"population": name, "weights": weights, "replicate": number}


def measured(part: pd.DataFrame) -> common.Row:
    """Coverage, half width and error of the answers of one kind, with standard errors."""
    error = part["estimate"] - part["truth"]
    covered = (part["low"] <= part["truth"]) & (part["truth"] <= part["high"])
    count, share = len(part), float(np.mean(covered))
    square = float(np.mean(error**2))
    # Agresti and Coull: that of a share of 1 is not 0
    middle = (count * share + 2.0) / (count + 4.0)
    return {
        "covered": share,
        "covered_error": math.sqrt(middle * (1.0 - middle) / (count + 4.0)),
        "half": float(np.median(part["high"] - part["low"])) / 2.0,
        "rmse": math.sqrt(square),
        "rmse_error": float(np.std(error**2)) / (2.0 * math.sqrt(square * count)),
        "bias": float(np.mean(error)),
        "bias_error": float(np.std(error)) / math.sqrt(count),
        "samples": count,
    }


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A line for every population and answer.

    Of one sample only the half width says something.
    """
    lines = []
    for (name, weights), part in table.groupby(["population", "weights"], sort=False):
        population = population_of(str(name))
        found = measured(part)
        line = {
            "population": name,
            "n": f"{population.n:,}",
            "epsilon": f"{population.epsilon:g}",
            "columns": population.p,
            "distance": f"{distance(population):.2f}",
            "weights": weights,
            "covered": "",
            "half width": f"{found['half']:.4f}",
            "RMSE": "",
            "bias": "",
            "samples": found["samples"],
        }
        if found["samples"] > 1:
            line["covered"] = f"{found['covered']:.2f} ({found['covered_error']:.2f})"
            line["RMSE"] = f"{found['rmse']:.4f} ({found['rmse_error']:.4f})"
            line["bias"] = f"{found['bias']:.4f} ({found['bias_error']:.4f})"
        lines.append(line)
    return pd.DataFrame(lines)


def main() -> None:
    """Draw, answer and compare; print the table."""
    args, design, folder = common.start(__doc__, "scheme-effects", DESIGN, VARIANTS)
    names = design["populations"]
    # the number of samples changes none of them
    seeded = {"seed": design["seed"]}
    places = common.cells(seeded, keys(design["samples"], names))
    table = common.run(answered, seeded, places, folder, args.workers)
    order = {name: place for place, name in enumerate([*names, *design["samples"]])}
    table = table.sort_values(
        ["population", "weights"], key=lambda column: column.map(order), kind="stable"
    )
    lines = summary(table)
    lines.to_csv(folder / "table.csv", index=False)
    common.report(folder, [lines])


if __name__ == "__main__":
    main()
