"""Average effects with intervals, over populations, real data, numbers of records and budgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from dp2erm_cvx.datasets import BENCHMARKS, TWINS_SHA256, twins_digest
from dp2erm_cvx.studies.effect_data import TWINS, EffectData, drawn_data, population, real_data
from dp2erm_cvx.studies.effect_methods import (
    EffectMethod,
    PublishedMethod,
    plain_rows,
    private_row,
    published_row,
    weighted_row,
)
from dp2erm_cvx.studies.effect_summary import effect_table
from dp2erm_cvx.studies.engine import Design, Experiment, Listing, Row, StudyCell
from dp2erm_cvx.studies.rule_rows import rule_rows
from dp2erm_cvx.studies.rule_source import RuleSource
from dp2erm_cvx.studies.scheme import StudyScheme
from dp2erm_cvx.studies.summary import rule_table

if TYPE_CHECKING:
    import pandas as pd

#: Stands for the number of real records, which is what it is.
_ALL = 0


class EffectSource(BaseModel):
    """One population or data set. ``replicates`` maps n to a number of samples; n = 0 is all real records.

    ``methods`` are private estimates from these data alone; ``weights`` are the n at which those by direct
    weights are computed. ``population`` is what is drawn from, where it is not the name of the source, and
    ``treated_only`` asks for the effect among the treated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    replicates: dict[int, int]
    epsilons: list[float]
    methods: dict[str, EffectMethod] = {}
    weights: list[int] = []
    population: str | None = None
    treated_only: bool = False


class EffectsDesign(Design):
    """See ``designs/effects.toml``. ``weights`` are direct first stages, with ridges as in other studies.

    ``methods`` are private estimates from all data, ``published`` those of others. A name in ``data`` may
    stand for several benchmarks: ``"acic-*"``. ``timed`` keeps seconds, which no two runs share.

    ``rules`` are populations that rules are learned from, by ``rule_schemes`` of this library and by
    ``published_rules``. ``twins`` is the path of the Twins file, of the digest ``twins_sha256``; without it
    what needs it is left out, and said so.
    """

    places: ClassVar[frozenset[str]] = frozenset({"twins"})

    data: dict[str, EffectSource]
    methods: dict[str, EffectMethod]
    weights: dict[str, StudyScheme] = Field(default_factory=dict)
    published: dict[str, PublishedMethod] = Field(default_factory=dict)
    timed: bool = False
    rules: dict[str, RuleSource] = Field(default_factory=dict)
    rule_schemes: dict[str, StudyScheme] = Field(default_factory=dict)
    published_rules: dict[str, PublishedMethod] = Field(default_factory=dict)
    twins: str | None = None
    twins_sha256: str | None = TWINS_SHA256

    def left_out(self) -> list[str]:
        """What needs the Twins file, where there is none."""
        if self.twins is not None:
            return []
        effects = [name for name, source in self.data.items() if (source.population or name) == TWINS]
        return [*effects, *(f"rules, {name}" for name, source in self.rules.items() if source.outcomes)]

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

    def opened(self, design: EffectsDesign) -> EffectsDesign:
        """The design with the digest of the Twins file, where one is given."""
        if design.twins is None:
            return design
        found = twins_digest(design.twins, sha256=design.twins_sha256)
        return design.model_copy(update={"twins_sha256": found})

    def keys(self, design: EffectsDesign) -> Iterable[Mapping[str, str | int | float]]:
        """Samples of every population and number of records, for effects and then for rules."""
        missing = design.left_out()
        for name, source in design.sources().items():
            if name not in missing:
                yield from _samples({"data": name}, source.replicates)
        for name, rule in design.rules.items():
            if f"rules, {name}" not in missing:
                yield from _samples({"task": "rule", "data": name}, rule.replicates)

    def rows(self, design: EffectsDesign, cell: StudyCell, shared: Mapping[str, Any]) -> list[Row]:
        """Every method at every budget on one sample."""
        name, n, twins = str(cell.key["data"]), int(cell.key["n"]), (design.twins, design.twins_sha256)
        if "task" in cell.key:
            rule = design.rules[name]
            samples = rule.samples(name, n, cell, twins)
            found = rule_rows(rule, design.rule_schemes, design.published_rules, samples, cell)
            kept = {"seconds"} if not design.timed else set()
            return [{field: one for field, one in row.items() if field not in kept} for row in found]
        if n == _ALL:
            data = real_data(name)
        else:
            source = design.sources()[name]
            one = population(source.population or name, *twins)
            data = drawn_data(one, n, cell.rng("records"), treated_only=source.treated_only)
        known: Row = {"effect": data.effect, "records": len(data.dataset.a)}
        return [{**known, **row} for row in _rows(design, data, cell)]

    def summary_table(self, design: EffectsDesign, table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Bias, error, coverage and width of every method."""
        return effect_table(table)

    def listings(
        self, design: EffectsDesign, table: pd.DataFrame, shared: Mapping[str, Any]
    ) -> list[Listing]:
        """Accuracy and value of rules, and what was left out."""
        found = []
        if "accuracy" in table:
            found.append(
                Listing("Rules: accuracy against the optimal rule, and value.", *rule_table(table), 4)
            )
        missing = [[name] for name in design.left_out()]
        if missing:
            title = "Not run, for want of Twin_Data.csv.gz, which is no part of the package (--data FILE):"
            found.append(Listing(title, ["data"], missing))
        return found


class BenchmarkStudy(EffectsStudy):
    """The same beside the methods of others, see :mod:`dp2erm_cvx.studies.published`."""

    name = "benchmark"
    summary = "Private effects and rules beside published methods: bias, error, coverage, width and seconds."


#: A row by a method of its own kind at one epsilon.
_Answer = Callable[[float, np.random.Generator], Row | None]


def _samples(place: dict[str, str], replicates: dict[int, int]) -> Iterator[dict[str, str | int | float]]:
    for n, count in replicates.items():
        for replicate in range(count):
            yield {**place, "n": n, "replicate": replicate}


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
