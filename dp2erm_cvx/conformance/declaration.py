"""Whether a program says what it is, and is declared as CVXPY can re-solve it."""

from __future__ import annotations

import json
import math
import sys

import numpy as np

from dp2erm_cvx.conformance.outcome import Judgment, failed, noted, passed
from dp2erm_cvx.conformance.samples import check_domain, check_universe, neighbors, standard_records
from dp2erm_cvx.conformance.subject import Subject, check_named
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.program import FirstStage, Kind, LinearStage, WeightedLeastSquares
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.declared import DeclaredProgram
from dp2erm_cvx.program.separable import SeparableFirstStage

_FACTS = ("name", "formula", "cone", "citation", "theorem")


@check_named("statement")
def statement(subject: Subject) -> Judgment:
    """Name, formula, cone, citation and theorem; docstrings; settings that a release can print."""
    cls = type(subject.program)
    missing = [fact for fact in _FACTS if not str(getattr(cls, fact, "")).strip()]
    if missing:
        return failed(f"state {', '.join(missing)} as class attributes")
    if not all(isinstance(getattr(cls, fact), str) for fact in _FACTS):
        return failed(f"{', '.join(_FACTS)} must be text")
    if not isinstance(subject.program, DeclaredProgram) and not any(
        "minimize" in text for text in _docstrings(cls)
    ):
        return failed("the docstring of neither the file nor the class says what is minimized")
    if not cls.__doc__:
        return failed("the class has no docstring")
    settings = subject.program.settings()
    if json.loads(json.dumps(settings)) != settings:
        return failed("settings() are not plain JSON types: give what they hold a describe()")
    return passed(f"{cls.citation}; {cls.theorem}")


def _docstrings(cls: type) -> list[str]:
    """Of a class and its file, and of what it is based on outside of the library's own bases."""
    own = [base for base in cls.__mro__ if not base.__module__.startswith(("dp2erm_cvx.program", "builtins"))]
    modules = [sys.modules.get(base.__module__) for base in own]
    return [getattr(one, "__doc__", None) or "" for one in (*own, *modules)]


@check_named("kind")
def kind(subject: Subject) -> Judgment:
    """What is proved about a program of its kind."""
    program = subject.program
    assert isinstance(program, FirstStage)
    if program.kind is not Kind.DIRECT:
        return passed(program.kind.proved)
    return noted(f"{program.kind.proved}: V = 2n at best")


@check_named("declaration")
def declaration(subject: Subject) -> Judgment:
    """DPP; every datum a Parameter that enters the problem; names that agree."""
    if wrong := _overflow(subject):
        return failed(wrong)
    instance = subject.bind(standard_records())
    try:
        compiled = Compiled(instance.program.declare, instance.data)
    except ProgramError as error:
        return failed(str(error))
    inside = {parameter.name() for parameter in compiled.problem.parameters()}
    if unused := set(compiled.parameters) - inside:
        return failed(f"{', '.join(sorted(unused))} is asked for and enters nowhere: it would go stale")
    if _constants_of_records(subject):
        return failed(
            "a number in the problem is not a Parameter and differs between neighbors: use leaf(name)"
        )
    for name, leaf in [*compiled.parameters.items(), *compiled.declaration.variables.items()]:
        if leaf.name() != name:
            return failed(f"{name!r} is called {leaf.name()!r} in the problem")
    return passed(f"DPP, {len(inside)} parameters")


def _constants_of_records(subject: Subject) -> bool:
    """Whether records come into the declaration past its leaves, where a re-solve would not replace them."""
    found = []
    for records in next(neighbors(1, 24, seed=3)):
        instance = subject.bind(records)
        compiled = Compiled(instance.program.declare, instance.data)
        found.append([np.asarray(one.value) for one in compiled.problem.constants()])
    shapes = [[one.shape for one in constants] for constants in found]
    # other shapes where a record brings or takes a variable of its own
    return shapes[0] == shapes[1] and not all(map(equal_data, *found))


def equal_data(one: object, other: object) -> bool:
    """Whether two leaves hold the same numbers."""
    first, second = np.asarray(one), np.asarray(other)
    return first.shape == second.shape and bool(np.all(np.asarray(first == second)))


def _overflow(subject: Subject) -> str:
    """Of a loss that is unbounded over the set that its coefficient is searched in."""
    domain = check_domain()
    program = subject.program.resolve(domain)
    if isinstance(program, SeparableFirstStage):
        return _unbounded(program.loss, program.row_bound(domain) * program.ball(domain))
    if isinstance(program, LinearStage) and not isinstance(program, WeightedLeastSquares):
        bounds, p = program.row_bounds(check_universe(domain)), subject.n_parameters(domain)
        return _unbounded(program.loss, bounds.reach(program.feasible(domain).norm_bound(p)))
    return ""


def _unbounded(loss: Curve, reach: float) -> str:
    """Reports a loss without a finite slope and curvature over ``|s| <= reach``."""
    bounds = loss.largest_slope(reach), loss.largest_curvature(reach)
    if all(math.isfinite(bound) for bound in bounds):
        return ""
    if math.isinf(reach):
        return (
            "the loss overflows without a ball: its slope or curvature is unbounded over all coefficients. "
            "State ball(domain), a radius that no minimizer exceeds, or declare a radius"
        )
    return (
        f"the loss overflows within the ball: at margins up to {reach:.3g} its slope or curvature is {bounds}"
    )
