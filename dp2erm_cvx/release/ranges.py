"""The ranges that a release states: what they are, what they cost, and what clipping at them means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import EffectPlan, PlanResult
from dp2erm_cvx.steps import ColumnRangesPlan

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.release.effect import EffectRelease


@dataclass(frozen=True)
class ColumnRange:
    """``low`` to ``high`` of a column in its own units, which later steps saw as -1 to 1.

    ``released`` from private quantiles, or else declared.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    column: str
    low: float
    high: float
    released: bool


def state_ranges(
    plan: EffectPlan, result: PlanResult, columns: tuple[str, ...]
) -> tuple[tuple[ColumnRange, ...], float]:
    """The range of every covariate and of the outcome, then what effects are multiplied by."""
    step = plan.step(ColumnRangesPlan.name)
    if step is None:
        return (), 1.0
    assert isinstance(step, ColumnRangesPlan)
    found = result.released[step.name]
    known = [level is None for level in step.calibration.levels]
    names = (*columns, result.inputs.dataset.outcome)
    stated = tuple(
        ColumnRange(name, float(low), float(high), not public)
        for name, (low, high), public in zip(names, found, known, strict=True)
    )
    return stated, step.declared.outcome_unit(found)


def range_blocks(release: EffectRelease) -> Iterator[Block]:
    """The ranges in a table, what they cost, and a warning."""
    step = release.step(ColumnRangesPlan.name)
    if step is None:
        return
    table = grid("range", "from", "to", "")
    for one in release.ranges:
        table.add_row(
            one.column, f"{one.low:.4g}", f"{one.high:.4g}", "released" if one.released else "public"
        )
    yield table
    yield (
        f"Ranges were released for epsilon = {step.epsilon:.4g}, and records are clipped to them: a bias "
        "that the interval does not see."
    )
    yield ""


def check_ranges(release: EffectRelease) -> None:
    """Raise DeclarationError where ranges are none, or stand without their step."""
    stated = len(release.columns) + 1 if release.step(ColumnRangesPlan.name) is not None else 0
    if len(release.ranges) != stated or any(not one.low < one.high for one in release.ranges):
        raise DeclarationError(
            "release JSON: ranges: one of low below high for every column, with their step"
        )
    last = release.ranges[-1] if release.normalized else None
    if release.outcome_unit != (1.0 if last is None else last.high / 2.0 - last.low / 2.0):
        raise DeclarationError("release JSON: outcome_unit: does not agree with the range of the outcome")
