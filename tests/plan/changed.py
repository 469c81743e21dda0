"""Plans with a part of a step replaced: what a test plants into them."""

from dataclasses import replace
from typing import Any

from dp2erm_cvx.plan import Plan


def changed(plan: Plan[Any], name: str = "theta", **changes: Any) -> Plan[Any]:
    """The plan with fields of one step replaced."""
    steps = tuple(replace(step, **changes) if step.name == name else step for step in plan.steps)
    return replace(plan, steps=steps)


def unproven(plan: Plan[Any]) -> Plan[Any]:
    """The plan with a bound that was read off the data."""
    bound = replace(plan.main.bound, private=False)
    return changed(plan, bound=bound, weights=replace(plan.main.weights, bound=bound))
