"""What has to be the same for all datasets: the feasible set, public numbers, and what a file remembers."""

from __future__ import annotations

import dataclasses

import numpy as np

from dp2erm_cvx.conformance.declaration import equal_data
from dp2erm_cvx.conformance.files import executed_anew
from dp2erm_cvx.conformance.outcome import Judgment, failed, noted, passed
from dp2erm_cvx.conformance.samples import neighbors, standard_records
from dp2erm_cvx.conformance.subject import Subject, check_named
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.program import FirstStage, Instance, Kind, Program
from dp2erm_cvx.program.declaration import Compiled

#: Records of the neighbors whose public numbers are compared; what is off by 1/n shows at few.
_NUMBERS_AT = (12, 2000)


@check_named("fixed feasible set")
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


@check_named("public numbers")
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
        found |= {"ridge": float(instance.model.ridge), "l1": float(instance.model.penalty.l1)}
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
