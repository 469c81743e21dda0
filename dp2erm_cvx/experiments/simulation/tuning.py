"""Settings by bootstrap out-of-bag accuracy on an independent simulated dataset."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.datasets import Simulation as Simulated
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.experiments.rules import Constants, Scheme, Weights
from dp2erm_cvx.experiments.simulation.design import SimulationDesign
from dp2erm_cvx.experiments.simulation.grid import Judge, private_rows
from dp2erm_cvx.parallel import run_tasks

#: What was chosen for a scheme and a family, in plain JSON types.
Choice = dict[str, Any]


def tune_all(design: SimulationDesign, workers: int) -> dict[str, Choice]:
    """A choice for every ``scenario/scheme/family``; the declared settings where nothing is tuned."""
    places = [
        (scenario, name, family)
        for scenario in design.scenarios
        for name in design.schemes
        for family in design.families
    ]
    found = run_tasks(_tune, [(design, *place) for place in places], workers=workers)
    return {"/".join(place): choice for place, choice in zip(places, found, strict=True)}


def chosen(design: SimulationDesign, choice: Choice, name: str) -> tuple[Scheme, Constants]:
    """The scheme and the constants with what was chosen for them."""
    scheme = design.schemes[name]
    settings = {**scheme.settings, **choice["settings"]}
    constants = design.constants.model_copy(update=choice["constants"])
    return scheme.model_copy(update={"settings": settings}), constants


def _tune(design: SimulationDesign, scenario: str, name: str, family: str) -> Choice:
    best: Choice = {"settings": {}, "constants": {}, "score": None}
    tuning = design.tuning
    if tuning is None:
        return best
    rng = np.random.default_rng([design.seed, 7, design.scenarios.index(scenario)])
    sample = simulate(scenario, design.n_samples, rng=rng)
    rows = [rng.integers(design.n_samples, size=design.n_samples) for _ in range(tuning.bootstraps)]
    # constants first, then the settings of the scheme at the best of them
    for kind, options in (("constants", tuning.constants), ("settings", tuning.candidates.get(name, []))):
        for option in options:
            trial = {**best, kind: option}
            score = _score(design, sample, rows, name, family, trial)
            if score is not None and (best["score"] is None or score > best["score"]):
                best = {**trial, "score": score}
    return best


def _score(
    design: SimulationDesign,
    sample: Simulated,
    rows: list[NDArray[np.int64]],
    name: str,
    family: str,
    choice: Choice,
) -> float | None:
    """Mean out-of-bag accuracy over resamples, noises and budgets; None where every budget is refused."""
    scheme, constants = chosen(design, choice, name)
    scores = []
    for number, inside in enumerate(rows):
        outside = np.setdiff1d(np.arange(design.n_samples), inside)
        train, judge = _take(sample, inside), Judge(_take(sample, outside), constants.intercept)
        weights: dict[str, Weights] = {}
        for noise in design.noises:
            rng = np.random.default_rng([design.seed, 8, number])
            found = private_rows(
                train, judge, scheme, constants, family, noise, design.epsilons, 1, rng, weights
            )
            scores += [row["accuracy"] for row in found if row["status"] == "done"]
    return float(np.mean(scores)) if scores else None  # type: ignore[arg-type]


def _take(sample: Simulated, rows: NDArray[np.int64]) -> Simulated:
    data = sample.dataset
    part = dataclasses.replace(data, X=data.X[rows], a=data.a[rows], y=data.y[rows])
    return Simulated(
        sample.scenario, part, sample.propensity[rows], sample.contrast[rows], sample.main_effect[rows]
    )
