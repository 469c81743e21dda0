"""Excess objective and error of the parameter against n, beside the consistency theorem of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field
from scipy.stats import linregress, t

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.domain import Array
from dp2erm_cvx.solve import solve
from dp2erm_cvx.studies.costs import costs, scale_rows, scales_listing
from dp2erm_cvx.studies.engine import Design, Experiment, Listing, Part, Row, StudyCell, part_label
from dp2erm_cvx.studies.listing import InForce, constants_listing
from dp2erm_cvx.studies.plans import Refused, Weights, effective_share, plan_rule
from dp2erm_cvx.studies.scheme import Constants, Rule, StudyScheme
from dp2erm_cvx.studies.summary import means
from dp2erm_cvx.studies.trial import budget_of

if TYPE_CHECKING:
    import pandas as pd

STRONG, NONE = "strongly convex", "not strongly convex"


class RatesDesign(Design):
    """See ``designs/rates.toml``. ``population`` records stand for infinitely many."""

    n_samples: list[int]
    population: int = Field(ge=1000)
    replicates: int = Field(ge=1)
    draws: int = Field(ge=1)
    epsilon: float = Field(gt=0)
    noises: list[str]
    families: list[str]
    constants: Constants
    schemes: dict[str, StudyScheme]


class Rates(Experiment[RatesDesign]):
    """The linear scenario, and the same with every covariate twice: half of R^p has no curvature then."""

    name = "rates"
    summary = "Excess objective and error of theta against n, with fitted slopes; utility bounds."
    text_columns = 4
    parts_are = "limits found"
    design = RatesDesign

    def keys(self, design: RatesDesign) -> Iterable[Mapping[str, str | int | float]]:
        """Replicates of every n, by curvature."""
        for curvature in (STRONG, NONE):
            for n in design.n_samples:
                for replicate in range(design.replicates):
                    yield {"curvature": curvature, "n": n, "replicate": replicate}

    def parts(self, design: RatesDesign) -> Iterable[Part]:
        """Curvatures and schemes."""
        return [(curvature, name) for curvature in (STRONG, NONE) for name in design.schemes]

    def needs(self, design: RatesDesign, cell: StudyCell) -> Iterable[Part]:
        """Those of its curvature."""
        return [(str(cell.key["curvature"]), name) for name in design.schemes]

    def share(self, design: RatesDesign, part: Part) -> dict[str, list[float]]:
        """The minimizer of a scheme on a large sample, by the norm of the ball Theta."""
        curvature, name = part
        data = _data(curvature, design.population, np.random.default_rng([design.seed, 9]))
        domain = design.constants.domain(design.population)
        records = domain.records(data.X, data.a, data.y)
        w = solve(
            design.schemes[name].first_stage(domain).instance(records), solver="newton", throw=False
        ).value
        found: dict[str, list[float]] = {}
        for family in design.families:
            if design.constants.norm(family) not in found:
                second = design.constants.second_stage(family).resolve(domain)
                theta = solve(second.instance(records, w, gamma=0.0), solver="newton", throw=False).value
                found[design.constants.norm(family)] = _image(curvature, theta).tolist()
        return found

    def rows(self, design: RatesDesign, cell: StudyCell, shared: Mapping[str, Any]) -> list[Row]:
        """Every scheme, family and noise on one dataset; scales of noise, which no data change, once."""
        curvature, n = str(cell.key["curvature"]), int(cell.key["n"])
        data = _data(curvature, n, cell.rng("train"))
        domain, p = design.constants.domain(n), data.X.shape[1]
        weights = Weights(domain.records(data.X, data.a, data.y))
        rows: list[Row] = []
        for name, scheme in design.schemes.items():
            declared = Rule(scheme, design.constants)
            if int(cell.key["replicate"]) == 0:
                found = scale_rows(declared, design.noises, design.epsilon, n, p)
                rows += [{"scheme": name, **row} for row in found]
            limits = shared[part_label((curvature, name))]
            for family in design.families:
                limit = np.array(limits[design.constants.norm(family)])
                for noise in design.noises:
                    head: Row = {"scheme": name, "family": family, "noise": noise}
                    budget = budget_of(design.epsilon, noise, n)
                    rule = plan_rule(declared, family, noise, budget, n, p)
                    if isinstance(rule, Refused):
                        rows.append({**head, "status": "refused", "reason": rule.reason})
                        continue
                    rng = cell.rng(f"{name}/{family}/{noise}")
                    w = weights(rule.first).value
                    thetas, measured = costs(rule, weights.records, w, design.draws, rng)
                    apart = np.linalg.norm(_image(curvature, thetas) - limit, axis=-1)
                    rows.append(
                        {
                            **head,
                            "status": "done",
                            **measured,
                            "population_error": float(np.mean(apart)),
                            "effective_share": effective_share(w),
                            **rule.facts(),
                        }
                    )
        return rows

    def summary_table(self, design: RatesDesign, table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Fitted slopes of the logarithm of each quantity in that of n, with 95 % intervals."""
        values = ["excess", "error", "population_error"]
        bounds = ["excess_quantile", "excess_bound", "paper_excess_bound"]
        by = ["curvature", "scheme", "family", "noise"]
        found = means(table, [*by, "n"], [*values, *bounds, "exceeded", "V"])
        lines = []
        for place, group in found.groupby(by, sort=False):
            fits = [slope(group["n"].to_numpy(), group[name].to_numpy()) for name in values]
            last = group.iloc[-1]
            shown = [f"{fit:.2f}±{half:.2f}" for fit, half in fits]
            tail = [f"{last[name]:.2g}" for name in ("V", *bounds)]
            lines.append([*map(str, place), *shown, *tail, f"{group['exceeded'].max():.3f}"])
        names = ["excess ~ n^", "error ~ n^", "to the population ~ n^", "V at the last n"]
        names += ["95 % of the excess there", "its bound", "the paper's", "above the bound"]
        return [*by, *names], lines

    def listings(self, design: RatesDesign, table: pd.DataFrame, shared: Mapping[str, Any]) -> list[Listing]:
        """Scales of noise beside each other, and the constants in force."""
        entries = [
            InForce(curvature, name, family, Rule(scheme, design.constants))
            for curvature in (STRONG, NONE)
            for name, scheme in design.schemes.items()
            for family in design.families
        ]
        return [scales_listing(table), constants_listing("curvature", entries, table)]


def _data(curvature: str, n: int, rng: np.random.Generator) -> Dataset:
    data = simulate("linear", n, rng=rng).dataset
    X = data.X if curvature == STRONG else np.hstack([data.X, data.X])
    return Dataset.from_arrays(X, data.a, data.y)


def _image(curvature: str, theta: Array) -> Array:
    """What of theta matters to the rule: the coefficients of equal columns add up."""
    if curvature == STRONG:
        return theta
    half = theta.shape[-1] // 2
    total: Array = theta[..., :half] + theta[..., half:]
    return total


def slope(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Least-squares slope of log y in log x, and the half width of its 95 % interval (inf for two points)."""
    log_x, log_y = np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    fit = linregress(log_x, log_y)
    free = len(log_x) - 2
    half = float(t.ppf(0.975, free) * fit.stderr) if free > 0 else float("inf")
    return float(fit.slope), half
