"""Whether a program says what it is, is declared as CVXPY can re-solve it, and is one for all datasets."""

from __future__ import annotations

import dataclasses
import json
import math
import sys

import numpy as np

from dp2erm_cvx.conformance.files import executed_anew
from dp2erm_cvx.conformance.subject import (
    Judgment,
    Subject,
    check_domain,
    check_universe,
    failed,
    neighbors,
    noted,
    passed,
    standard_records,
)
from dp2erm_cvx.errors import InfeasibleError, ProgramError
from dp2erm_cvx.program import FirstStage, Instance, Kind, Program, SecondStage
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.declared import DeclaredProgram
from dp2erm_cvx.program.separable import SeparableFirstStage

_FACTS = ("name", "formula", "cone", "citation", "theorem")


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


def kind(subject: Subject) -> Judgment:
    """What is proved about a program of its kind."""
    program = subject.program
    assert isinstance(program, FirstStage)
    if program.kind is not Kind.DIRECT:
        return passed(program.kind.proved)
    return noted(f"{program.kind.proved}: V = 2n at best")


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
    # ordinary records, which programs with hard constraints have weights for, and one of them mirrored
    first, sides = standard_records(24, seed=3), np.where(np.arange(24) == 0, -1.0, 1.0)
    second = first.domain.records(sides[:, None] * first.covariates, first.a, sides * first.y)
    bound = [Compiled(one.program.declare, one.data) for one in map(subject.bind, (first, second))]
    found = [[np.asarray(one.value) for one in compiled.problem.constants()] for compiled in bound]
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
    if isinstance(program, SecondStage) and not program.squared:
        bounds, p = program.row_bounds(check_universe(domain)), subject.n_parameters(domain)
        return _unbounded(program.loss, bounds.reach(bounds.size(program.feasible(domain), p)))
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


#: Records of the neighbors whose public numbers are compared; what is off by 1/n shows at few.
_NUMBERS_AT = (12, 2000)


def fixed_set(subject: Subject) -> Judgment:
    """Leaves of the constraints compared between neighbors, and the set of one with that of the other."""
    program = subject.program
    kind = program.kind if isinstance(program, FirstStage) else None
    moved: set[str] = set()
    for first, second in neighbors(6, 40, subject.seed):
        try:
            here, there = subject.bind(first), subject.bind(second)
        except InfeasibleError:
            continue  # which the check of feasibility judges
        moved |= _moved_leaves(here, there)
        if not moved and _leaves_the_set(here, there):
            moved.add("the set of the model")
    extra = sorted(moved - program.moving)
    if extra and not (program.moving and extra == ["the set of the model"]):
        text = f"{', '.join(extra)} in the constraints differs between neighbors"
        if kind is Kind.DIRECT:
            return noted(f"{text}: {kind.proved}")
        if kind is None:
            return failed(f"{text}: Theorems 1 and 2 need one Theta for all datasets")
        return failed(f"{text}: no theorem of kind {kind.value!r} covers that; declare 'direct'")
    return _allowed(program, ", ".join(sorted(moved & program.moving)))


def _allowed(program: Program, leaves: str) -> Judgment:
    if not leaves:
        return passed("the same for all neighbors tried")
    # what may move is stated by a class of the library, whose theorem is proved for it, or by the author
    stated = next(base for base in type(program).__mro__ if "moving" in vars(base))
    if stated.__module__.startswith("dp2erm_cvx."):
        return passed(f"{leaves} may differ under {program.theorem}")
    return noted(
        f"{leaves} in the constraints differs between neighbors: that {program.theorem} allows it is its "
        "author's word"
    )


def _moved_leaves(here: Instance, there: Instance) -> set[str]:
    compiled = Compiled(here.program.declare, here.data)
    leaves = {p.name() for c in compiled.declaration.constraints.values() for p in c.parameters()}
    moved = {name for name in leaves if not equal_data(here.data[name], there.data[name])}
    shapes = {v.shape for v in compiled.declaration.variables.values()}
    other = Compiled(there.program.declare, there.data).declaration.variables.values()
    return moved | (set() if shapes == {v.shape for v in other} else {"weights"})


def _leaves_the_set(here: Instance, there: Instance) -> bool:
    if here.model is None or there.model is None or here.model.dimension != there.model.dimension:
        return False
    point = here.model.penalty.set.project(here.model.start())
    return bool(np.max(np.abs(there.model.penalty.set.project(point) - point)) > 1e-9)


def public_numbers(subject: Subject) -> Judgment:
    """Scalar leaves, curvature and penalty compared between datasets of one size; then what a file remembers.

    In some neighbors the changed record alone is the longest, the shortest, or that of the largest outcome.
    """
    kind = subject.program.kind if isinstance(subject.program, FirstStage) else None
    compared: set[str] = set()
    for n in _NUMBERS_AT:
        found: dict[str, float] = {}
        for records in (one for pair in neighbors(6 if n < 100 else 2, n, subject.seed) for one in pair):
            try:
                numbers = _numbers(subject.bind(records), closed_form=kind is Kind.CLOSED_FORM)
            except InfeasibleError:
                continue  # which the check of feasibility judges
            moved = [name for name, value in numbers.items() if found.setdefault(name, value) != value]
            if moved:
                text = f"{', '.join(sorted(moved))} differs between datasets of one size"
                told = noted if kind is Kind.DIRECT else failed
                return told(f"{text}: what bounds or noise rest on has to be public")
        compared |= found.keys()
    if _remembers(subject):
        return failed("what is bound to one dataset depends on the dataset before it")
    return passed(f"{', '.join(sorted(compared))}: the same for all datasets tried" if compared else "none")


def _numbers(instance: Instance, *, closed_form: bool) -> dict[str, float]:
    scalars = {name: float(value) for name, value in instance.data.items() if np.ndim(value) == 0}
    found = {f"leaf {name}": value for name, value in scalars.items()}
    if closed_form:
        return found  # whose curvature no theorem rests on
    found["strong convexity"] = float(instance.strong_convexity)
    if instance.model is not None:
        found |= {"ridge": float(instance.model.ridge), "l1": float(np.sum(instance.model.penalty.l1))}
    return found


def _remembers(subject: Subject) -> bool:
    """Whether the class, after all that it was bound to, binds records otherwise than a new copy does."""
    anew = executed_anew(type(subject.program))
    if anew is None:
        return False  # the library's own classes keep nothing between datasets
    records = standard_records(24, seed=subject.seed + 1)
    names = [one.name for one in dataclasses.fields(anew) if one.init]  # type: ignore[arg-type]
    settings = {name: getattr(subject.program, name) for name in names}
    used, new = (subject.bind(records), dataclasses.replace(subject, program=anew(**settings)).bind(records))
    return any(not equal_data(used.data[name], new.data[name]) for name in used.data)
