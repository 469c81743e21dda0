"""Whether the feasible set is the same for neighbors, as theorems about a fixed set need it."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import neighbors
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.program import Compiled, FirstStage, Instance, Kind, Program


def fixed_set(subject: Subject) -> Outcome:
    """Leaves of the constraints compared between neighbors, and the set of one with that of the other."""
    check, program = "fixed feasible set", subject.program
    kind = program.kind if isinstance(program, FirstStage) else None
    moved: set[str] = set()
    for first, second in neighbors(6, 40, subject.seed):
        here, there = subject.bind(first), subject.bind(second)
        moved |= _moved_leaves(here, there)
        if not moved and _leaves_the_set(here, there):
            moved.add("the set of the model")
    allowed = sorted(moved & program.moving)
    extra = sorted(moved - program.moving)
    if extra and not (program.moving and extra == ["the set of the model"]):
        told = f"{', '.join(extra)} in the constraints differs between neighbors"
        if kind is Kind.DIRECT:
            return noted(check, f"{told}: {kind.proved}")
        if kind is None:
            return failed(check, f"{told}: Theorems 1 and 2 need one Theta for all datasets")
        return failed(check, f"{told}: no theorem of kind {kind.value!r} covers that; declare 'direct'")
    if allowed and not _by_the_library(program):
        told = f"{', '.join(allowed)} in the constraints differs between neighbors"
        return noted(check, f"{told}: that {program.theorem} allows it is its author's word")
    if allowed:
        return passed(check, f"{', '.join(allowed)} may differ under {program.theorem}")
    return passed(check, "the same for all neighbors tried")


def _by_the_library(program: Program) -> bool:
    """Whether what may move is stated by a class of the library, whose theorem is proved for it."""
    stated = next(base for base in type(program).__mro__ if "moving" in vars(base))
    return stated.__module__.startswith("dp2erm_cvx.")


def _moved_leaves(here: Instance, there: Instance) -> set[str]:
    compiled = Compiled(here.program.declare, here.data)
    leaves = {p.name() for c in compiled.declaration.constraints.values() for p in c.parameters()}
    moved = {name for name in leaves if not _same(here.data[name], there.data[name])}
    shapes = {v.shape for v in compiled.declaration.variables.values()}
    other = Compiled(there.program.declare, there.data).declaration.variables.values()
    return moved | (set() if shapes == {v.shape for v in other} else {"weights"})


def _same(one: object, other: object) -> bool:
    return np.array_equal(np.asarray(one), np.asarray(other))


def _leaves_the_set(here: Instance, there: Instance) -> bool:
    if here.model is None or there.model is None or here.model.dimension != there.model.dimension:
        return False
    point = here.model.penalty.set.project(here.model.start())
    return bool(np.max(np.abs(there.model.penalty.set.project(point) - point)) > 1e-9)
