"""The simulation study of Lee & Chen (Figure 1): one replicate of one scenario is a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.studies.engine import Experiment, Listing, Part, Row, StudyCell
from dp2erm_cvx.studies.listing import constants_listing
from dp2erm_cvx.studies.scheme import StudyDesign
from dp2erm_cvx.studies.summary import means, with_interval
from dp2erm_cvx.studies.trial import Choice, all_rows, choose, in_force, places

if TYPE_CHECKING:
    import pandas as pd


class SimulationDesign(StudyDesign):
    """See ``designs/simulation.toml``."""

    scenarios: list[str]
    n_samples: int = Field(ge=10)
    n_test: int = Field(ge=10)


class SimulationStudy(Experiment[SimulationDesign]):
    """Rules learned from three scenarios, over schemes, calibrations, noises and budgets."""

    name = "simulation"
    text_columns = 3
    summary = "Figure 1 of the paper: accuracy of private rules over budgets, every calibration side by side."
    parts_are = "settings tuned"
    design = SimulationDesign

    def keys(self, design: SimulationDesign) -> Iterable[Mapping[str, str | int | float]]:
        """Replicates of scenarios."""
        for scenario in design.scenarios:
            for replicate in range(design.replicates):
                yield {"scenario": scenario, "replicate": replicate}

    def parts(self, design: SimulationDesign) -> Iterable[Part]:
        """Scenarios, schemes and families."""
        return places(design, design.scenarios)

    def needs(self, design: SimulationDesign, cell: StudyCell) -> Iterable[Part]:
        """Those of its scenario."""
        return places(design, [str(cell.key["scenario"])])

    def share(self, design: SimulationDesign, part: Part) -> Choice:
        """Settings tuned on an independent dataset of the scenario."""
        scenario, name, family = part
        rng = np.random.default_rng([design.seed, 6, design.scenarios.index(scenario)])
        return choose(design, simulate(scenario, design.n_samples, rng=rng), name, family)

    def rows(self, design: SimulationDesign, cell: StudyCell, shared: Mapping[str, Any]) -> list[Row]:
        """Every scheme, family, noise and budget on one dataset; constant rules and no privacy beside."""
        scenario = str(cell.key["scenario"])
        train = simulate(scenario, design.n_samples, rng=cell.rng("train"))
        test = simulate(scenario, design.n_test, rng=cell.rng("test"))
        return all_rows(design, scenario, train, test, cell, shared)

    def summary_table(
        self, design: SimulationDesign, table: pd.DataFrame
    ) -> tuple[list[str], list[list[str]]]:
        """Accuracy by family at the budget nearest to 0.5."""
        epsilon = min(design.epsilons, key=lambda known: abs(known - 0.5))
        found = means(table, ["scenario", "scheme", "noise", "family", "epsilon"], ["accuracy"])
        at = found[found["epsilon"] == epsilon]
        lines = []
        families = [*design.families, *(["pipeline"] if design.methods else [])]
        for place, group in at.groupby(["scenario", "scheme", "noise"], sort=False):
            shown = map(with_interval, group["accuracy"].tolist(), group["accuracy_half"].tolist())
            known = dict(zip(group["family"], shown, strict=True))
            lines.append([*map(str, place), *(known.get(family, "") for family in families)])
        return ["scenario", "scheme", f"noise, epsilon {epsilon:g}", *families], lines

    def listings(
        self, design: SimulationDesign, table: pd.DataFrame, shared: Mapping[str, Any]
    ) -> list[Listing]:
        """The constants in force, tuned or declared."""
        return [constants_listing("scenario", in_force(design, design.scenarios, shared), table)]
