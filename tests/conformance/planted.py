"""Programs with one planted error each: classes made from right ones, and files with a few words changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dp2erm_cvx.audit import SearchPlan
from dp2erm_cvx.conformance import ConformanceReport, check_program, program_template, programs_of_file, run
from dp2erm_cvx.conformance.run import CheckOutcome, outcome_of
from dp2erm_cvx.conformance.subject import Check, CheckStatus, Subject
from dp2erm_cvx.program import Program
from tests.conformance.class_style import DIRECT, EXPONENTIAL, LOSS

#: Limits of searches in full, of those that find what is far off, and of those that have to run.
FULL = SearchPlan(20_000)
FEW = SearchPlan(150)
LEAST = SearchPlan(60)


def derived(base: type, **members: Any) -> Any:
    """A dataclass based on ``base`` with other members."""
    made = type("Mine", (base,), {"__doc__": "minimize", "__module__": __name__, "name": "mine", **members})
    return dataclasses.dataclass(frozen=True)(made)


def judged(
    check: Check, program: Program, search: SearchPlan = FULL, larger: tuple[int, ...] = (101,)
) -> CheckOutcome:
    """What one check finds about a program, without datasets of thousands unless they are named."""
    return CheckOutcome("", *check(Subject(program, search, larger=larger)))


def refuted(check: Check, program: Program, why: str, larger: tuple[int, ...] = (101,)) -> None:
    """Assert that a check fails, though its search is short, and says why."""
    found = judged(check, program, FEW, larger)
    assert found.status is CheckStatus.FAILED, found
    assert why in found.detail


def restated(base: type, method: str, **changes: Callable[[Any], Any]) -> Any:
    """``method`` of ``base`` with fields of what it returns changed."""

    def changed(self: Any, *arguments: Any) -> Any:
        found = getattr(base, method)(self, *arguments)
        new = {name: change(getattr(found, name)) for name, change in changes.items()}
        return dataclasses.replace(found, **new)

    return changed


#: Before it a method of a class of kind exponential is put.
BEFORE = "    def row_bound(self"

#: Kinds whose templates are declarations, which leave little to get wrong.
_CLASSES = {"direct": DIRECT, "exponential": EXPONENTIAL, "loss": LOSS}


def changed(kind: str, *pairs: tuple[str, str]) -> str:
    """A template, or a program written as a class, with every one of some words replaced."""
    text = _CLASSES.get(kind) or program_template("mine", kind)
    for old, new in pairs:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    return text


def program_of(path: Path, text: str) -> Any:
    """The one program of a file that is written."""
    path.write_text(text, encoding="utf-8")
    (cls,) = programs_of_file(path)
    return cls


def reports_of(path: Path, text: str, search: SearchPlan = FEW) -> list[ConformanceReport]:
    """A whole run at each example, without datasets of thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Subject", partial(Subject, larger=(101,)))
        return list(check_program(program_of(path, text), search=search))


def outcomes_of(check: Check, cls: Any) -> list[CheckOutcome]:
    """Of one check at each example."""
    return [outcome_of("", check, Subject(cls(**settings), FEW)) for settings in cls.examples]
