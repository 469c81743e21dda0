"""Programs in files of their own: templates with a few words changed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dp2erm_cvx.audit import SearchPlan
from dp2erm_cvx.conformance import ConformanceReport, check_program, program_template, programs_of_file, run
from dp2erm_cvx.conformance.run import CheckOutcome, outcome_of
from dp2erm_cvx.conformance.subject import Check, Subject
from tests.conformance.class_style import DIRECT, EXPONENTIAL, LOSS
from tests.conformance.planted import FEW

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
