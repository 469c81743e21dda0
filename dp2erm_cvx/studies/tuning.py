"""Settings by bootstrap out-of-bag accuracy on an independent simulated dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.datasets import Simulation
from dp2erm_cvx.studies.engine import Part, Row, part_label
from dp2erm_cvx.studies.listing import InForce
from dp2erm_cvx.studies.plans import PLAIN
from dp2erm_cvx.studies.scheme import Rule, StudyDesign
from dp2erm_cvx.studies.trial import Trial, taken

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
            yield InForce(sample, name, family, design.chosen(shared[part_label(place)], name))


def choose(design: StudyDesign, sample: Simulation, name: str, family: str) -> Choice:
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
            tried = {**best, kind: option}
            score = _score(design, sample, rows, design.chosen(tried, name), family)
            if score is not None and (best["score"] is None or score > best["score"]):
                best = {**tried, "score": score}
    return best


def _score(
    design: StudyDesign, sample: Simulation, rows: list[NDArray[np.int64]], rule: Rule, family: str
) -> float | None:
    """Mean out-of-bag accuracy over resamples, noises and budgets; None where a budget is refused.

    A candidate that is refused where noise is large would else be judged where it is small.
    """
    once = design.model_copy(update={"draws": 1})
    scores = []
    for number, inside in enumerate(rows):
        outside = np.setdiff1d(np.arange(sample.dataset.n_samples), inside)
        for row in _fits(Trial(once, taken(sample, inside), taken(sample, outside)), rule, family, number):
            if row["status"] != "done":
                return None
            scores.append(row["accuracy"])
    return float(np.mean(scores))  # type: ignore[arg-type]


def _fits(trial: Trial, rule: Rule, family: str, number: int) -> Iterator[Row]:
    """What a candidate is judged by on one resample: every noise and budget, or one fit without noise."""
    if family == PLAIN:
        yield trial.plain_row(rule)
        return
    for noise in trial.design.noises:
        yield from trial.private_rows(
            rule, family, noise, np.random.default_rng([trial.design.seed, 8, number])
        )
