"""The ranges that a release states: what they are, what they cost, and what clipping at them means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan import EffectPlan
from dp2erm_cvx.private_ranges import Known, Within
from dp2erm_cvx.steps import ColumnRanges


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
    assert isinstance(step.declared, ColumnRanges)
    public = step.declared.public
    found, known = released[step.name], public.known(len(names) - 1)
    stated = tuple(
        ColumnRange(name, float(low), float(high), not isinstance(one, tuple), _wide(one))
        for name, (low, high), one in zip(names, found, known, strict=True)
    )
    return stated, public.outcome_unit(found)


def _wide(known: Known) -> tuple[float, float] | None:
    return (known.low, known.high) if isinstance(known, Within) else None
