"""What an effect rests on: the released regressions and propensity, or cells, and ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import betainc, expit

from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan import EffectPlan
from dp2erm_cvx.private_ranges import Known, Within
from dp2erm_cvx.steps import (
    CellNuisances,
    CellSums,
    ColumnRanges,
    Rows,
    Step,
    TreatmentRate,
)
from dp2erm_cvx.steps.record_map import treated_share
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
        if isinstance(step, ColumnRanges):
            continue
        if isinstance(step, CellSums):
            yield from _cells(plan, step, released, columns)
            continue
        yield state_coefficient(step, released[step.name], columns)


def state_coefficient(step: Step, released: Array, columns: tuple[str, ...]) -> Nuisance:
    """What a step ``released`` (p,): a regression of the outcome, or the propensity."""
    coefficient = tuple(float(value) for value in released)
    if step.regression is not None:
        rows, names = step.regression.rows.value, step.regression.rows.names(columns)
    elif isinstance(step, TreatmentRate):
        rows, names, coefficient = step.stated(released)
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
    if step is None or not isinstance(step, CellSums):
        return None
    return dict(zip(columns, step.partition.raw(plan.study.universe.domain), strict=True))


def _cells(
    plan: EffectPlan, step: CellSums, released: Mapping[str, Array], columns: tuple[str, ...]
) -> Iterator[Nuisance]:
    table = step.table(released).ravel()
    yield Nuisance(step.name, "records in cells", (), tuple(float(value) for value in table))
    nuisances, domain = plan.score.score.nuisances, plan.study.universe.domain
    assert isinstance(nuisances, CellNuisances)
    found = nuisances.leaves(released)
    names = step.partition.names(found.boxes, columns, domain)
    stated = {
        "records": found.count,
        "outcome of controls": domain.outcome_bound * found.outcome[:, 0],
        "outcome of treated": domain.outcome_bound * found.outcome[:, 1],
    }
    if nuisances.known is None:
        stated["treated share"] = found.treated
    for rows, values in stated.items():
        yield Nuisance(step.name, rows, names, tuple(float(value) for value in values))


def capped_share(
    estimand: str, cap: float, features_bound: float, nuisances: Sequence[Nuisance], n_samples: int
) -> float:
    """How many propensities the cap cuts off, from what was released and public numbers alone.

    Of a logistic one the share beyond the cap of covariates spread evenly over the ball of radius
    ``features_bound``, whoever the records are; in cells that of the released counts. No factor of the
    overlap population needs a cap, and small odds need none among the treated.
    """
    if estimand == "overlap":
        return 0.0
    known = {f"{one.step}, {one.rows}": np.array(one.coefficient) for one in nuisances}
    high = math.log(cap - 1.0)
    low = -math.inf if estimand == "att" else -high
    if "propensity, log odds of treatment" in known:
        constant, *slopes = known["propensity, log odds of treatment"]
        reach = features_bound * float(np.linalg.norm(slopes))
        # the projection of an even ball onto a line is a scaled beta variable
        half = 0.5 * (len(slopes) + 1)
        ends = [
            float(np.clip(0.5 * (1.0 + (end - constant) / max(reach, 1e-300)), 0.0, 1.0))
            for end in (low, high)
        ]
        return float(betainc(half, half, ends[0]) + betainc(half, half, 1.0 - ends[1]))
    rates = [values for name, values in known.items() if name.startswith("rate, ")]
    if rates:
        sums = np.reshape(rates[0], (min(len(rates[0]), 2), -1))
        share = np.array([treated_share(column, n_samples) for column in sums.T])
        count = np.maximum(sums.sum(axis=0), 0.0)
    elif "cells, treated share" in known:
        share, count = known["cells, treated share"], np.maximum(known["cells, records"], 0.0)
    else:
        return 0.0
    beyond = (share < expit(low)) | (share > expit(high))
    return float(np.sum(count[beyond]) / max(float(np.sum(count)), 1.0))


@dataclass(frozen=True)
class ColumnRange:
    """``low`` to ``high`` of a column in its own units, which later steps saw as -1 to 1.

    ``released`` from private quantiles, or else declared. ``within`` are wide public bounds that a released
    range was looked for in; None where there are none.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    column: str
    low: float
    high: float
    released: bool
    within: tuple[float, float] | None = None


def state_ranges(
    plan: EffectPlan, released: Mapping[str, Array], names: tuple[str, ...]
) -> tuple[tuple[ColumnRange, ...], float]:
    """The range of every covariate and of the outcome, by ``names``, then what effects are multiplied by."""
    step = plan.step("ranges")
    if step is None:
        return (), 1.0
    assert isinstance(step, ColumnRanges)
    public = step.public
    found, known = released[step.name], public.known(len(names) - 1)
    stated = tuple(
        ColumnRange(name, float(low), float(high), not isinstance(one, tuple), _wide(one))
        for name, (low, high), one in zip(names, found, known, strict=True)
    )
    return stated, public.outcome_unit(found)


def _wide(known: Known) -> tuple[float, float] | None:
    return (known.low, known.high) if isinstance(known, Within) else None
