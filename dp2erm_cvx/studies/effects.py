"""Average effects with intervals, over populations, real data, numbers of records and budgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from dp2erm_cvx.datasets import BENCHMARKS
from dp2erm_cvx.studies.effect_data import EffectData, drawn_data, real_data
from dp2erm_cvx.studies.effect_methods import (
    EffectMethod,
    PublishedMethod,
    plain_rows,
    private_row,
    published_row,
    weighted_row,
)
from dp2erm_cvx.studies.effect_summary import effect_table
from dp2erm_cvx.studies.engine import Design, Experiment, Row, StudyCell
from dp2erm_cvx.studies.scheme import StudyScheme

if TYPE_CHECKING:
    import pandas as pd

#: Stands for the number of real records, which is what it is.
_ALL = 0


class EffectSource(BaseModel):
    """One population or data set. ``replicates`` maps n to a number of samples; n = 0 is all real records.

    ``methods`` are private estimates from these data alone; ``weights`` are the n at which those by direct
    weights are computed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    replicates: dict[int, int]
    epsilons: list[float]
    methods: dict[str, EffectMethod] = {}
    weights: list[int] = []


class EffectsDesign(Design):
    """See ``designs/effects.toml``. ``weights`` are direct first stages, with ridges as in other studies.

    ``methods`` are private estimates from all data, ``published`` those of others. A name in ``data`` may
    stand for several benchmarks: ``"acic-*"``. ``timed`` keeps seconds, which no two runs share.
    """

    data: dict[str, EffectSource]
    methods: dict[str, EffectMethod]
    weights: dict[str, StudyScheme] = Field(default_factory=dict)
    published: dict[str, PublishedMethod] = Field(default_factory=dict)
    timed: bool = False

    def sources(self) -> dict[str, EffectSource]:
        """Every population and data set by its own name."""
        return {
            own: source
            for name, source in self.data.items()
            for own in ([one for one in BENCHMARKS if fnmatchcase(one, name)] or [name])
        }


class EffectsStudy(Experiment[EffectsDesign]):
    """Private effects beside estimates without privacy, by direct weights, and without any weights."""

    name = "effects"
    text_columns = 4
    summary = "Average effects with intervals: bias, error and coverage, beside estimates without privacy."
    design = EffectsDesign

    def keys(self, design: EffectsDesign) -> Iterable[Mapping[str, str | int | float]]:
        """Samples of every population and number of records."""
        for name, source in design.sources().items():
            for n, replicates in source.replicates.items():
                for replicate in range(replicates):
                    yield {"data": name, "n": n, "replicate": replicate}

    def rows(self, design: EffectsDesign, cell: StudyCell, shared: Mapping[str, Any]) -> list[Row]:
        """Every method at every budget on one sample."""
        name, n = str(cell.key["data"]), int(cell.key["n"])
        data = real_data(name) if n == _ALL else drawn_data(name, n, cell.rng("records"))
        known: Row = {"effect": data.effect, "records": len(data.dataset.a)}
        return [{**known, **row} for row in _rows(design, data, cell)]

    def summary_table(self, design: EffectsDesign, table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Bias, error, coverage and width of every method."""
        return effect_table(table)


class BenchmarkStudy(EffectsStudy):
    """The same beside the methods of others, see :mod:`dp2erm_cvx.studies.published`."""

    name = "benchmark"
    summary = "Private effects beside published methods: bias, error, coverage, width and seconds."


#: A row by a method of its own kind at one epsilon.
_Answer = Callable[[float, np.random.Generator], Row | None]


def _rows(design: EffectsDesign, data: EffectData, cell: StudyCell) -> Iterator[Row]:
    source = design.sources()[str(cell.key["data"])]
    answers: dict[str, _Answer] = {}
    for label, method in {**design.methods, **source.methods}.items():
        answers[label] = partial(private_row, data, method)
    for label, published in design.published.items():
        answers[label] = partial(published_row, data, published)
    for label, scheme in design.weights.items() if cell.key["n"] in source.weights else ():
        answers[label] = partial(weighted_row, data, scheme)
    for epsilon in source.epsilons:
        for label, answer in answers.items():
            start = time.process_time()
            row = answer(epsilon, cell.rng(f"{label}/{epsilon}"))
            if row is not None:
                seconds: Row = {"seconds": time.process_time() - start} if design.timed else {}
                yield {"method": label, "epsilon": epsilon, **row, **seconds}
    for label, row in plain_rows(data):
        yield {"method": label, "epsilon": float("inf"), **row}
