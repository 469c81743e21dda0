"""The cells of the simulation study: one replicate of one scenario each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.experiments.engine import Cell, Experiment, Row
from dp2erm_cvx.experiments.rules import Weights
from dp2erm_cvx.experiments.simulation.design import SimulationDesign
from dp2erm_cvx.experiments.simulation.grid import Judge, plain_row, private_rows
from dp2erm_cvx.experiments.simulation.tuning import chosen, tune_all
from dp2erm_cvx.experiments.summary import means, told

if TYPE_CHECKING:
    import pandas as pd


class Simulation(Experiment[SimulationDesign]):
    """Rules learned from three scenarios, over schemes, calibrations, noises and budgets."""

    name = "simulation"
    text_columns = 3
    summary = "Figure 1 of the paper: accuracy of private rules over budgets, every calibration side by side."
    design = SimulationDesign

    def keys(self, design: SimulationDesign) -> Iterable[Mapping[str, str | int | float]]:
        """Replicates of scenarios."""
        for scenario in design.scenarios:
            for replicate in range(design.replicates):
                yield {"scenario": scenario, "replicate": replicate}

    def prepare(self, design: SimulationDesign, workers: int) -> Any:
        """Tuned settings, by scenario, scheme and family."""
        return tune_all(design, workers)

    def rows(self, design: SimulationDesign, cell: Cell, shared: Any) -> list[Row]:
        """Every scheme, family, noise and budget on one dataset; constant rules and no privacy beside."""
        scenario = str(cell.key["scenario"])
        train = simulate(scenario, design.n_samples, rng=cell.rng("train"))
        test = simulate(scenario, design.n_test, rng=cell.rng("test"))
        rows: list[Row] = []
        weights: dict[str, Weights] = {}
        for name in design.schemes:
            for family in design.families:
                own, constants = chosen(design, shared[f"{scenario}/{name}/{family}"], name)
                judge = Judge(test, constants.intercept)
                for noise in design.noises:
                    rng = cell.rng(f"{name}/{family}/{noise}")
                    found = private_rows(
                        train,
                        judge,
                        own,
                        constants,
                        family,
                        noise,
                        design.epsilons,
                        design.draws,
                        rng,
                        weights,
                    )
                    rows += [{"scheme": name, **row} for row in found]
            reference = "sharp" if "sharp" in design.families else design.families[0]
            own, constants = chosen(design, shared[f"{scenario}/{name}/{reference}"], name)
            plain = plain_row(train, Judge(test, constants.intercept), own, constants, weights)
            rows.append({"scheme": name, **plain})
        for label, rule in (("treat all", 1), ("treat none", 0)):
            constant = np.full(design.n_test, rule)
            rows.append(
                {
                    "scheme": label,
                    "family": "constant rule",
                    "noise": "none",
                    "epsilon": float("inf"),
                    "status": "done",
                    "accuracy": test.accuracy(constant),
                    "value": test.value(constant),
                }
            )
        return rows

    def summary_table(
        self, design: SimulationDesign, table: pd.DataFrame
    ) -> tuple[list[str], list[list[str]]]:
        """Accuracy by family at the budget nearest to 0.5."""
        epsilon = min(design.epsilons, key=lambda known: abs(known - 0.5))
        found = means(table, ["scenario", "scheme", "noise", "family", "epsilon"], ["accuracy"])
        at = found[found["epsilon"] == epsilon]
        lines = []
        for place, group in at.groupby(["scenario", "scheme", "noise"], sort=False):
            shown = map(told, group["accuracy"].tolist(), group["accuracy_half"].tolist())
            known = dict(zip(group["family"], shown, strict=True))
            lines.append([*map(str, place), *(known.get(family, "") for family in design.families)])
        return ["scenario", "scheme", f"noise, epsilon {epsilon:g}", *design.families], lines
