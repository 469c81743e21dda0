"""Whether a program says what it is, and is declared as CVXPY can re-solve it."""

from __future__ import annotations

import json
import sys

from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import standard_records
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.program import Compiled, FirstStage, Kind

_FACTS = ("name", "formula", "cone", "citation", "theorem")


def statement(subject: Subject) -> Outcome:
    """Name, formula, cone, citation and theorem; docstrings; settings that a release can print."""
    cls, check = type(subject.program), "statement"
    missing = [fact for fact in _FACTS if not str(getattr(cls, fact, "")).strip()]
    if missing:
        return failed(check, f"state {', '.join(missing)} as class attributes")
    if "minimize" not in (getattr(sys.modules.get(cls.__module__), "__doc__", None) or ""):
        return failed(check, "the file's docstring does not say what is minimized")
    if not cls.__doc__:
        return failed(check, "the class has no docstring")
    settings = subject.program.settings()
    if json.loads(json.dumps(settings)) != settings:
        return failed(check, "settings() are not plain JSON types: give what they hold a describe()")
    return passed(check, f"{cls.citation}; {cls.theorem}")


def kind(subject: Subject) -> Outcome:
    """What is proved about a program of its kind."""
    program = subject.program
    assert isinstance(program, FirstStage)
    if program.kind is not Kind.DIRECT:
        return passed("kind", program.kind.proved)
    return noted("kind", f"{program.kind.proved}: V = 2n at best")


def declaration(subject: Subject) -> Outcome:
    """DPP; every datum a Parameter that enters the problem; names that agree."""
    check = "declaration"
    instance = subject.bind(standard_records())
    try:
        compiled = Compiled(instance.program.declare, instance.data)
    except ProgramError as error:
        return failed(check, str(error))
    inside = {parameter.name() for parameter in compiled.problem.parameters()}
    if unused := set(compiled.parameters) - inside:
        return failed(
            check, f"{', '.join(sorted(unused))} is asked for and enters nowhere: it would go stale"
        )
    for name, leaf in [*compiled.parameters.items(), *compiled.declaration.variables.items()]:
        if leaf.name() != name:
            return failed(check, f"{name!r} is called {leaf.name()!r} in the problem")
    return passed(check, f"DPP, {len(inside)} parameters")
