"""Settings by bootstrap out-of-bag accuracy on an independent simulated dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.datasets import Simulation
from dp2erm_cvx.studies.engine import Part, Row, part_label
from dp2erm_cvx.studies.fit import Weights
from dp2erm_cvx.studies.listing import InForce
from dp2erm_cvx.studies.plans import PLAIN
from dp2erm_cvx.studies.scheme import Constants, Scheme, StudyDesign
from dp2erm_cvx.studies.trial import Judge, plain_row, private_rows, taken

#: What was chosen for a scheme and a family, in plain JSON types.
Choice = dict[str, Any]


def places(design: StudyDesign, samples: Iterable[str]) -> list[Part]:
    """What a choice is made for: every sample, scheme and family, and the fit without privacy."""
    families = [*design.families, PLAIN]
    return [(sample, name, family) for sample in samples for name in design.schemes for family in families]


def in_force(design: StudyDesign, samples: Iterable[str], shared: Mapping[str, Choice]) -> Iterator[InForce]:
    """Schemes and constants with what was chosen for them, where it is known."""
    for place in places(design, samples):
        if part_label(place) in shared:
            sample, name, family = place
            yield InForce(sample, name, family, *design.chosen(shared[part_label(place)], name))


def tune(design: StudyDesign, sample: Simulation, name: str, family: str) -> Choice:
    """The choice for a scheme and a family; the declared settings where nothing is tuned."""
    best: Choice = {"settings": {}, "constants": {}, "score": None}
    tuning = design.tuning
    if tuning is None:
        return best
    n = sample.dataset.n_samples
    rng = np.random.default_rng([design.seed, 7])
    rows = [rng.integers(n, size=n) for _ in range(tuning.bootstraps)]
    # constants first, then the settings of the scheme at the best of them
    for kind, options in (("constants", tuning.constants), ("settings", tuning.candidates.get(name, []))):
        for option in options:
            trial = {**best, kind: option}
            score = _score(design, sample, rows, name, family, trial)
            if score is not None and (best["score"] is None or score > best["score"]):
                best = {**trial, "score": score}
    return best


def _score(
    design: StudyDesign,
    sample: Simulation,
    rows: list[NDArray[np.int64]],
    name: str,
    family: str,
    choice: Choice,
) -> float | None:
    """Mean out-of-bag accuracy over resamples, noises and budgets; None where a budget is refused.

    A candidate that is refused where noise is large would else be judged where it is small.
    """
    scheme, constants = design.chosen(choice, name)
    scores = []
    for number, inside in enumerate(rows):
        outside = np.setdiff1d(np.arange(sample.dataset.n_samples), inside)
        train, judge = taken(sample, inside), Judge(taken(sample, outside), constants)
        for row in _fits(design, train, judge, scheme, constants, family, number):
            if row["status"] != "done":
                return None
            scores.append(row["accuracy"])
    return float(np.mean(scores))  # type: ignore[arg-type]


def _fits(
    design: StudyDesign,
    train: Simulation,
    judge: Judge,
    scheme: Scheme,
    constants: Constants,
    family: str,
    number: int,
) -> Iterator[Row]:
    """What a candidate is judged by on one resample: every noise and budget, or one fit without noise."""
    weights: dict[str, Weights] = {}
    if family == PLAIN:
        yield plain_row(train, judge, scheme, constants, weights)
        return
    for noise in design.noises:
        rng = np.random.default_rng([design.seed, 8, number])
        how = (family, noise, design.epsilons, 1)
        yield from private_rows(train, judge, scheme, constants, *how, rng, weights)
