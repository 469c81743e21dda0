"""What the weights of a scheme leave, beside the rehearsal on public records.

The command is ``python rehearsals.py``. Twenty populations are drawn, and a sample of each is
weighted by three unlike schemes, without any noise. The rehearsal knows the distance, the share of
the treated and the spreads. ``--quick`` takes seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import common
import numpy as np
import pandas as pd
from interval_scenarios import Cell
from intervals import drawn, estimator
from scheme_effects import FILES, RULED, distance, weights_of

from dp2erm_cvx import PrivateEffect
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.inference.rehearsal import Public, rehearsed
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.steps.covariates import CovariateMean, MeanSquare
from dp2erm_cvx.steps.sums import TreatmentRate

DESIGN = {"seed": 1, "populations": 20, "most": 16_000}
VARIANTS = {"quick": {"populations": 4, "most": 1000}}
#: What populations are drawn from.
SIZES = (2000, 4000, 8000, 16_000)
LAWS = ("normal", "uniform", "t4", "lognormal", "switches")
COLUMNS = (2, 5, 10, 20)
TREATED = (0.1, 0.25, 0.5)
EPSILONS = (0.5, 1.0, 4.0)
#: The least and the largest standard deviation of the log odds of treatment.
ODDS = (0.3, 2.5)


@functools.cache
def population_of(seed: int, number: int, most: int) -> Cell:
    """One of the populations; its true distance is declared, to a hundredth."""
    rng = np.random.default_rng([seed, number])
    population = Cell(
        f"population {number + 1}",
        min(int(rng.choice(SIZES)), most),
        float(rng.choice(EPSILONS)),
        p=int(rng.choice(COLUMNS)),
        law=str(rng.choice(LAWS)),
        treated=float(rng.choice(TREATED)),
        odds=float(np.exp(rng.uniform(*np.log(ODDS)))),
    )
    return replace(population, declared={"confounding": round(distance(population), 2)})


@functools.cache
def planned(population: str, weights: str, place: tuple[int, int, int]) -> Plan[Any]:
    """The plan of an effect by weights in a population."""
    cell = population_of(*place)
    declared = {**cell.declared, "weights": weights_of(weights, cell)}
    model = estimator(replace(cell, declared=declared), cell.domain(cell.lines()))
    assert isinstance(model, PrivateEffect)
    return model.plan(cell.n, [f"x{number}" for number in range(cell.p)])


def without_noise(plan: Plan[Any], records: Records) -> tuple[Records, dict[str, Array]]:
    """The records that the weights are of, and what earlier steps release without noise."""
    released: dict[str, Array] = {}
    here = records
    for step in plan.steps:
        if isinstance(step, TreatmentRate | CovariateMean | MeanSquare):
            released[step.name] = np.array(step.exact_sums(here, released), dtype=np.float64)
        if isinstance(step, CovariateMean | MeanSquare):
            here = step.mapped(here, released)
    released["center"] = np.zeros(2 + plan.study.universe.n_features)
    return here, released


def along(x: Array, a: np.ndarray) -> Array:
    """Where records lie along the difference of the arms (n,), from their mean on.

    That is the combination of covariates in which the arms differ most.
    """
    apart = np.mean(x[a == 1], axis=0) - np.mean(x[a == 0], axis=0)
    covariance = np.atleast_2d(np.cov(x.T))
    return np.asarray((x - np.mean(x, axis=0)) @ np.linalg.solve(covariance, apart))


def weighted(design: common.Design, cell: common.Cell) -> list[common.Row]:
    """What weights leave of one sample, and what is rehearsed of it."""
    place = design["seed"], cell["population"], design["most"]
    population = population_of(*place)
    lines = population.lines()
    plan = planned(population.name, cell["weights"], place)
    data = Dataset.declared(population.domain(lines), *drawn(population, lines, 0))
    records, released = without_noise(plan, plan.study.start.domain.records(data.X, data.a, data.y))
    score = plan.main.at(plan.main.universe, released)
    spreads = tuple(float(one) for one in score.lines.nuisances.spreads)
    apart = max(plan.study.confounding, 0.01)
    trial = rehearsed(
        score.program, Public(score.universe.space, score.lines.rate, 0.0, spreads, apart)
    )
    n = records.n_samples
    weights = score.weights_of(records, released)
    signs = np.where(records.a == 1, 1.0, -1.0)
    where = along(records.covariates, records.a)
    before = float(np.mean(where[records.a == 1]) - np.mean(where[records.a == 0]))
    rate = float(np.mean(records.a))
    even = 0.25 / rate + 0.25 / (1.0 - rate)
    return [
        {
            "name": population.name,
            "n": population.n,
            "epsilon": population.epsilon,
            "columns": population.p,
            "law": population.law,
            "treated": population.treated,
            "distance": population.declared["confounding"],
            "rehearsed": trial.left,
            "left": 2.0 / n * float(np.sum(weights * signs * where)) / before,
            "squares rehearsed": trial.inflation,
            "squares": float(np.mean(np.square(weights))) / even,
            "mass rehearsed": trial.mass,
            "mass": abs(float(np.sum(weights * signs))) / n,
            "centered": plan.step("mean") is not None,
        }
    ]


def keys(populations: int) -> Iterator[common.Row]:
    """Every scheme in every population."""
    for number in range(populations):
        for weights in (RULED, *FILES):
            yield {"population": number, "weights": weights}


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """A line for every population, what is left beside what was rehearsed of every scheme."""
    lines = []
    for _, part in table.groupby("population", sort=False):
        first = part.iloc[0]
        line = {
            "n": f"{first['n']:,}",
            "epsilon": f"{first['epsilon']:g}",
            "columns": first["columns"],
            "law": first["law"],
            "treated": f"{first['treated']:g}",
            "distance": f"{first['distance']:.2f}",
            "mean released": "yes" if first["centered"] else "no",
        }
        for one in part.itertuples():
            line[one.weights] = f"{one.left:.2f} ({one.rehearsed:.2f})"
        lines.append(line)
    return pd.DataFrame(lines)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """How far the rehearsals of every scheme are off."""
    lines = []
    for weights, part in table.groupby("weights", sort=False):
        more = part["left"] - part["rehearsed"]
        squares = part["squares"] / part["squares rehearsed"] - 1.0
        lines.append(
            {
                "weights": weights,
                "more left, at most": f"{more.max():.3f}",
                "less left, at most": f"{-more.min():.3f}",
                "root mean square": f"{np.sqrt(np.mean(more**2)):.3f}",
                "beyond 1.1 times": (
                    f"{np.sum(part['left'] > 1.1 * part['rehearsed'])} of {len(part)}"
                ),
                "sum of squares more, at most": f"{squares.max():.3f}",
                "less, at most": f"{-squares.min():.3f}",
            }
        )
    return pd.DataFrame(lines)


def main() -> None:
    """Draw, weigh and compare; print the tables."""
    args, design, folder = common.start(__doc__, "rehearsals", DESIGN, VARIANTS)
    places = common.cells(design, keys(design["populations"]))
    table = common.run(weighted, design, places, folder, args.workers)
    lines = shown(table)
    lines.to_csv(folder / "table.csv", index=False)
    common.report(folder, [lines, summary(table)])


if __name__ == "__main__":
    main()
