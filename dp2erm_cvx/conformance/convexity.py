"""Whether the declared strong convexity is there, and whether declaration and model are one function."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import standard_records
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array
from dp2erm_cvx.program import Compiled, Instance

_ROUNDING = 1e-7


def strong_convexity(subject: Subject) -> Outcome:
    """Declared against measured: the least curvature of the objective over random feasible segments."""
    check, instance = "strong convexity", subject.bind(standard_records())
    declared = instance.strong_convexity
    if not declared > 0:
        return noted(check, "none is declared, so that no stability bound can rest on it")
    measured = _by_model(instance) if instance.model is not None else _by_segments(instance)
    text = f"declared {declared:.4g}, least measured {measured:.4g}"
    if measured < declared * (1 - _ROUNDING):
        return failed(check, f"{text}: every bound and certificate divides by the declared number")
    return passed(check, text)


def model_and_declaration(subject: Subject) -> Outcome:
    """At the certified minimizer of the model the declared objective is least, as conic solvers find it."""
    check, instance = "declaration and model", subject.bind(standard_records())
    if instance.model is None:
        return noted(check, "no smooth form: the duality gap of the declaration is the only judge")
    from dp2erm_cvx.solve import solve

    ours = solve(instance, solver="newton", throw=False)
    theirs = solve(instance, solver="clarabel", polish=False, throw=False)
    apart = subject.distance(ours.value, theirs.value)
    scale = instance.model.output_scale(ours.point)
    # Clarabel alone is good to some 1e-4 of the scale; a wrong term moves the minimizer by more
    if not apart <= 1e-3 * scale:
        return failed(check, f"minimizers differ by {apart / scale:.1e} of the scale: a term differs")
    return passed(check, f"one minimizer, to {apart / scale:.0e} of the scale")


def _by_model(instance: Instance) -> float:
    model = instance.model
    assert model is not None
    rng = np.random.default_rng(3)
    least = np.inf
    for size in (1e-3, 0.1, 1.0):
        point = model.penalty.set.project(model.start() + size * rng.normal(size=model.dimension))
        for _ in range(5):
            other = model.penalty.set.project(point + size * rng.normal(size=model.dimension))
            move = other - point
            if (length := float(move @ move)) > 1e-12:
                change = model.gradient(other) - model.gradient(point)
                least = min(least, float(change @ move) / length)
        if model.dimension <= 500:
            least = min(least, float(np.linalg.eigvalsh(model.hessian(point))[0]) + 1e-9 * model.smoothness)
    return least


def _by_segments(instance: Instance) -> float:
    """``4 (f(u) + f(v) - 2 f((u+v)/2)) / ||u - v||^2`` over random points of the feasible set."""
    assert instance.smooth is not None
    compiled = Compiled(instance.program.declare, instance.data)
    compiled.load(instance.data)
    (variable,) = compiled.declaration.variables.values()
    feasible, rng, least = instance.smooth.penalty.set, np.random.default_rng(3), np.inf

    def value(point: Array) -> float:
        variable.value = point
        return float(compiled.problem.objective.value)

    for size in (0.01, 0.3, 3.0):
        for _ in range(10):
            u, v = (feasible.project(1.0 + size * rng.normal(size=variable.shape)) for _ in range(2))
            length = float(np.sum((u - v) ** 2))
            if length > 1e-9:
                least = min(least, 4 * (value(u) + value(v) - 2 * value((u + v) / 2)) / length)
    return least
