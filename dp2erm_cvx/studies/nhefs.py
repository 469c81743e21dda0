"""The effect on NHEFS over budgets: one first stage of the demonstration is a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from dp2erm_cvx.compare.effect_references import difference
from dp2erm_cvx.datasets import load_nhefs
from dp2erm_cvx.demo import settings
from dp2erm_cvx.demo.comparison import effect_of
from dp2erm_cvx.demo.effect import textbook_effect
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.plan import Study, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.engine import Design, Experiment, Row, StudyCell
from dp2erm_cvx.studies.plans import PlannedRule, Weights, draw_thetas, without_noise
from dp2erm_cvx.universe import Universe

if TYPE_CHECKING:
    import pandas as pd

_CLIPPED, _TEXTBOOK, _NAIVE = "no privacy, same bounds", "textbook, no bounds", "difference of means"


class NhefsDesign(Design):
    """See ``designs/nhefs.toml``. ``draws`` of all noise at every budget."""

    draws: int = Field(ge=2)
    epsilons: list[float]
    delta: float = Field(gt=0, lt=1)


class NhefsBudgets(Experiment[NhefsDesign]):
    """Effects with the schemes of the demonstration: arm means, and the plug-in with output noise."""

    name: ClassVar[str] = "nhefs"
    summary = "The effect of giving up smoking over budgets, beside estimates without privacy."
    text_columns = 4
    design = NhefsDesign

    def keys(self, design: NhefsDesign) -> Iterable[Mapping[str, str | int | float]]:
        """First stages, the composed one last."""
        for scheme in (*settings.schemes(), settings.composed_scheme()):
            yield {"scheme": scheme.label}

    def rows(self, design: NhefsDesign, cell: StudyCell, shared: Mapping[str, Any]) -> list[Row]:
        """Quantiles of the released effect over draws of the noise, in kg."""
        known = {one.label: one for one in (*settings.schemes(), settings.composed_scheme())}
        data, domain = load_nhefs(), settings.effect_domain()
        first = known[str(cell.key["scheme"])].program.resolve(domain)
        weights = Weights(domain.records(data.X, data.a, data.y))
        n, p = data.X.shape
        rows: list[Row] = []
        ways = (("gamma", "sharp", 0.0), ("gaussian", "sharp", design.delta), ("laplace", "output", 0.0))
        for noise, family, delta in ways:
            second = (settings.plug_in() if family == "output" else settings.arm_means()).resolve(domain)
            for epsilon in design.epsilons:
                head: Row = {"noise": noise, "statistic": second.name, "epsilon": epsilon}
                try:
                    study = Study(
                        first,
                        second,
                        Universe(domain, n, p),
                        Budget(epsilon, delta),
                        calibration=family,
                        noise="gaussian" if noise == "gaussian" else "gamma",
                    )
                    plan = make_plan(study)
                except CalibrationError as error:
                    rows.append({**head, "status": "refused", "reason": str(error)})
                    continue
                rule = PlannedRule(plan)
                rng = cell.rng(f"{noise}/{epsilon}")
                found = draw_thetas(rule, weights, design.draws, rng)
                effects = [effect_of(theta.tolist()) for theta in found.thetas]
                low, middle, high = np.quantile(effects, [0.05, 0.5, 0.95])
                rows.append(
                    {
                        **head,
                        "status": "done",
                        "median": float(middle),
                        "low": float(low),
                        "high": float(high),
                        "effective_share": found.effective_share,
                        "V": plan.bound.V,
                    }
                )
        if plan.propensity is None:
            exact = without_noise(first, settings.arm_means().resolve(domain), weights)
            clipped = _plain(_CLIPPED, effect_of(exact.thetas[0].tolist()))
            rows.append({**clipped, "effective_share": exact.effective_share})
        rows.append(_plain(_TEXTBOOK, textbook_effect(data)))
        rows.append(_plain(_NAIVE, difference(data).value))
        return rows

    def summary_table(self, design: NhefsDesign, table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Median and 90 % range of the released effect by budget, in kg."""
        done = table[(table["status"] == "done") & table["epsilon"].notna()]
        clipped = table[table["statistic"] == _CLIPPED]
        plain = dict(zip(clipped["scheme"], clipped["median"].tolist(), strict=True))
        lines = []
        for place, group in done.groupby(["scheme", "statistic", "noise"], sort=False):
            shown = {
                epsilon: f"{middle:.1f} [{low:.1f}, {high:.1f}]"
                for epsilon, middle, low, high in zip(
                    group["epsilon"], group["median"], group["low"], group["high"], strict=True
                )
            }
            exact = f"{plain[place[0]]:.2f}" if place[0] in plain else ""
            lines.append([*map(str, place), exact, *(shown.get(e, "") for e in design.epsilons)])
        headers = ["scheme", "statistic", "noise", "no privacy"]
        return [*headers, *(f"{epsilon:g}" for epsilon in design.epsilons)], lines


def _plain(statistic: str, effect: float) -> Row:
    return {
        "noise": "none",
        "statistic": statistic,
        "epsilon": None,
        "status": "done",
        "median": effect,
        "low": effect,
        "high": effect,
    }
