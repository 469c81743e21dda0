"""Programs with one planted error each, made from right ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dp2erm_cvx.audit import SearchPlan
from dp2erm_cvx.conformance.run import CheckOutcome
from dp2erm_cvx.conformance.subject import Check, CheckStatus, Subject
from dp2erm_cvx.program import Program

#: Limits of searches in full, of those that find what is far off, and of those that have to run.
FULL = SearchPlan(20_000)
FEW = SearchPlan(150)
LEAST = SearchPlan(60)


def derived(base: type, **members: Any) -> Any:
    """A dataclass based on ``base`` with other members."""
    made = type("Mine", (base,), {"__doc__": "minimize", "__module__": __name__, "name": "mine", **members})
    return dataclasses.dataclass(frozen=True)(made)


def judged(check: Check, program: Program, search: SearchPlan = FULL) -> CheckOutcome:
    """What one check finds about a program."""
    return CheckOutcome("", *check(Subject(program, search)))


def refuted(check: Check, program: Program, why: str) -> None:
    """Assert that a check fails, though its search is short, and says why."""
    found = judged(check, program, FEW)
    assert found.status is CheckStatus.FAILED, found
    assert why in found.detail


def restated(base: type, method: str, **changes: Callable[[Any], Any]) -> Any:
    """``method`` of ``base`` with fields of what it returns changed."""

    def changed(self: Any, *arguments: Any) -> Any:
        found = getattr(base, method)(self, *arguments)
        new = {name: change(getattr(found, name)) for name, change in changes.items()}
        return dataclasses.replace(found, **new)

    return changed
