"""What an effect rests on: the released regressions and propensity, or cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan import EffectPlan
from dp2erm_cvx.steps import (
    CellNuisances,
    CellSums,
    ColumnRanges,
    Planned,
    Rows,
    TreatmentRate,
    score_of,
)
from dp2erm_cvx.steps.sums import SIDES


@dataclass(frozen=True)
class Nuisance:
    """Released by a ``step``: a coefficient (p,) on its ``rows``, or means in cells.

    A coefficient is of the centered outcome, or of the log odds on (1, x). The first entry of cells holds
    what noise was added to, in records: by cell (the last covariate first), by arm, P and Q. What follows
    from it is in the others: the number of records, the centered outcome of either arm and the treated share
    of every leaf, whose ``parameters`` say what is in it.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    step: str
    rows: str
    parameters: tuple[str, ...]
    coefficient: tuple[float, ...]


def state_nuisances(
    plan: EffectPlan, released: Mapping[str, Array], columns: tuple[str, ...]
) -> Iterator[Nuisance]:
    """Those of a run, a public regression first."""
    public = plan.study.public_center
    if public is not None:
        assert not isinstance(public.source, str)
        yield Nuisance("public center", public.rows.value, public.rows.names(columns), public.source)
    for step in plan.steps[:-1]:
        if isinstance(step.declared, ColumnRanges):
            continue
        if isinstance(step.declared, CellSums):
            yield from _cells(plan, step.declared, released, columns)
            continue
        yield state_coefficient(step, released[step.name], columns)


def state_coefficient(step: Planned, released: Array, columns: tuple[str, ...]) -> Nuisance:
    """What a step ``released`` (p,): a regression of the outcome, or the propensity."""
    coefficient = tuple(float(value) for value in released)
    if step.regression is not None:
        rows, names = step.regression.rows.value, step.regression.rows.names(columns)
    elif isinstance(step.declared, TreatmentRate):
        rows, names, coefficient = step.declared.stated(step, released)
    elif step.integers is not None:
        unit = step.integers.unit
        coefficient = tuple(unit * float(value) for value in released)
        rows, names = "sum of scaled covariates", columns
        if step.name == "sides":
            rows, names = "records", SIDES
        elif step.name == "spread":
            rows, names = "sum of squared norms over their bound", ("square",)
    else:
        rows, names = "log odds of treatment", Rows.POOLED.names(columns)
    return Nuisance(step.name, rows, names, coefficient)


def state_cuts(plan: EffectPlan, columns: tuple[str, ...]) -> dict[str, list[float]] | None:
    """The public cuts of every covariate, in raw units; None without cells."""
    step = plan.step("cells")
    if step is None or not isinstance(step.declared, CellSums):
        return None
    return dict(zip(columns, step.declared.partition.raw(plan.study.universe.domain), strict=True))


def _cells(
    plan: EffectPlan, step: CellSums, released: Mapping[str, Array], columns: tuple[str, ...]
) -> Iterator[Nuisance]:
    table = step.table(released).ravel()
    yield Nuisance(step.name, "records in cells", (), tuple(float(value) for value in table))
    nuisances, domain = score_of(plan.score).nuisances, plan.study.universe.domain
    assert isinstance(nuisances, CellNuisances)
    found = nuisances.leaves(released)
    names, means = step.partition.names(found.boxes, columns, domain), found.means
    stated = {
        "records": means.count,
        "outcome of controls": domain.outcome_bound * means.outcome[:, 0],
        "outcome of treated": domain.outcome_bound * means.outcome[:, 1],
    }
    if nuisances.known is None:
        stated["treated share"] = means.treated
    for rows, values in stated.items():
        yield Nuisance(step.name, rows, names, tuple(float(value) for value in values))
