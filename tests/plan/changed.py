"""Plans with a part of a step replaced: what a test plants into them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dp2erm_cvx.plan import TwoStagePlan
from dp2erm_cvx.steps import Planned


def changed(plan: TwoStagePlan, name: str = "theta", **changes: Any) -> TwoStagePlan:
    """The plan with fields of one step replaced: of what is planned of it, or of what is declared."""
    steps = tuple(_changed(step, changes) if step.name == name else step for step in plan.steps)
    return replace(plan, steps=steps)


def _changed(step: Planned, changes: dict[str, Any]) -> Planned:
    planned = {name: value for name, value in changes.items() if hasattr(step, name)}
    others = {name: value for name, value in changes.items() if name not in planned}
    return replace(step, declared=replace(step.declared, **others), **planned)


def unproven(plan: TwoStagePlan) -> TwoStagePlan:
    """The plan with a bound that was read off the data."""
    bound = replace(plan.theta.bound, private=False)
    return changed(plan, bound=bound, weights=replace(plan.theta.weights, bound=bound))
