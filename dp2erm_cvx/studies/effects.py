"""Average effects with intervals, over populations, real data, numbers of records and budgets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from dp2erm_cvx.studies.effect_data import EffectData, drawn_data, real_data
from dp2erm_cvx.studies.effect_methods import EffectMethod, plain_rows, private_row, weighted_row
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

    ``methods`` are private estimates from all data.
    """

    data: dict[str, EffectSource]
    methods: dict[str, EffectMethod]
    weights: dict[str, StudyScheme]


class EffectsStudy(Experiment[EffectsDesign]):
    """Private effects beside estimates without privacy, by direct weights, and without any weights."""

    name = "effects"
    text_columns = 4
    summary = "Average effects with intervals: bias, error and coverage, beside estimates without privacy."
    design = EffectsDesign

    def keys(self, design: EffectsDesign) -> Iterable[Mapping[str, str | int | float]]:
        """Samples of every population and number of records."""
        for name, source in design.data.items():
            for n, replicates in source.replicates.items():
                for replicate in range(replicates):
                    yield {"data": name, "n": n, "replicate": replicate}

    def rows(self, design: EffectsDesign, cell: StudyCell, shared: Mapping[str, Any]) -> list[Row]:
        """Every method at every budget on one sample."""
        name, n = str(cell.key["data"]), int(cell.key["n"])
        data = real_data(name) if n == _ALL else drawn_data(name, n, cell.rng("records"))
        return [{"effect": data.effect, **row} for row in _rows(design, data, cell)]

    def summary_table(self, design: EffectsDesign, table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Bias, error, coverage and width of every method."""
        return effect_table(table)


def _rows(design: EffectsDesign, data: EffectData, cell: StudyCell) -> Iterator[Row]:
    source = design.data[str(cell.key["data"])]
    for epsilon in source.epsilons:
        for label, method in {**design.methods, **source.methods}.items():
            rng = cell.rng(f"{label}/{epsilon}")
            yield {"method": label, "epsilon": epsilon, **private_row(data, method, epsilon, rng)}
        for label, scheme in design.weights.items() if cell.key["n"] in source.weights else ():
            rng = cell.rng(f"{label}/{epsilon}")
            yield {"method": label, "epsilon": epsilon, **weighted_row(data, scheme, epsilon, rng)}
    for label, row in plain_rows(data):
        yield {"method": label, "epsilon": float("inf"), **row}
