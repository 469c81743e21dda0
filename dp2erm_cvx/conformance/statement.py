"""Whether a program says what it is, and is declared as CVXPY can re-solve it."""

from __future__ import annotations

import json
import sys

import numpy as np

from dp2erm_cvx.conformance.margins import overflow
from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import (
    check_domain,
    check_universe,
    neighbors,
    standard_records,
)
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.program import Compiled, FirstStage, Kind, SeparableFirstStage, WeightedMarginLoss

_FACTS = ("name", "formula", "cone", "citation", "theorem")


def statement(subject: Subject) -> Outcome:
    """Name, formula, cone, citation and theorem; docstrings; settings that a release can print."""
    cls, check = type(subject.program), "statement"
    missing = [fact for fact in _FACTS if not str(getattr(cls, fact, "")).strip()]
    if missing:
        return failed(check, f"state {', '.join(missing)} as class attributes")
    if not all(isinstance(getattr(cls, fact), str) for fact in _FACTS):
        return failed(check, f"{', '.join(_FACTS)} must be text")
    if not any("minimize" in text for text in _docstrings(cls)):
        return failed(check, "the docstring of neither the file nor the class says what is minimized")
    if not cls.__doc__:
        return failed(check, "the class has no docstring")
    settings = subject.program.settings()
    if json.loads(json.dumps(settings)) != settings:
        return failed(check, "settings() are not plain JSON types: give what they hold a describe()")
    return passed(check, f"{cls.citation}; {cls.theorem}")


def _docstrings(cls: type) -> list[str]:
    """Of a class and its file, and of what it is based on outside of the library's own bases."""
    own = [base for base in cls.__mro__ if not base.__module__.startswith(("dp2erm_cvx.program", "builtins"))]
    modules = [sys.modules.get(base.__module__) for base in own]
    return [getattr(one, "__doc__", None) or "" for one in (*own, *modules)]


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
    if wrong := _overflow(subject):
        return failed(check, wrong)
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
    if _constants_of_records(subject):
        return failed(
            check, "a number in the problem is not a Parameter and differs between neighbors: use leaf(name)"
        )
    for name, leaf in [*compiled.parameters.items(), *compiled.declaration.variables.items()]:
        if leaf.name() != name:
            return failed(check, f"{name!r} is called {leaf.name()!r} in the problem")
    return passed(check, f"DPP, {len(inside)} parameters")


def _constants_of_records(subject: Subject) -> bool:
    """Whether records come into the declaration past its leaves, where a re-solve would not replace them."""
    found = []
    for records in next(neighbors(1, 24, seed=3)):
        instance = subject.bind(records)
        compiled = Compiled(instance.program.declare, instance.data)
        found.append([np.asarray(one.value) for one in compiled.problem.constants()])
    shapes = [[one.shape for one in constants] for constants in found]
    # other shapes where a record brings or takes a variable of its own
    return shapes[0] == shapes[1] and not all(map(_equal, *found))


def _equal(one: object, other: object) -> bool:
    return bool(np.all(np.asarray(one == other)))


def _overflow(subject: Subject) -> str:
    """Of a loss that is unbounded over the set that its coefficient is searched in."""
    domain = check_domain()
    program = subject.program.resolve(domain)
    if isinstance(program, SeparableFirstStage):
        return overflow(program.loss, program.row_bound(domain) * program.ball(domain))
    if isinstance(program, WeightedMarginLoss):
        bounds, p = program.row_bounds(check_universe(domain)), subject.n_parameters(domain)
        return overflow(program.loss, bounds.offset + bounds.norm * program.feasible(domain).norm_bound(p))
    return ""
