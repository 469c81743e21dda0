"""Whether the objective that a first stage solves takes each record by itself, as its theorem does.

The methods of a program may each be a function of one record, and what is solved another thing: ``data``,
``model`` and ``instance`` can be overridden.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.conformance.company import KEPT, SIZE, Company, companies
from dp2erm_cvx.conformance.declared_value import DeclaredValue
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.program import (
    Composite,
    EntropyFirstStage,
    FirstStage,
    Instance,
    Kind,
    MarginModel,
)

_ROUNDING = 1e-7


def shared_terms(program: FirstStage, seed: int) -> Iterator[tuple[str, str]]:
    """What was compared between datasets, and what is wrong about it, if anything."""
    if program.kind is Kind.DIRECT:
        return
    keeps = _needs_arms(program)
    for same_arms in (True,) if keeps else (True, False):
        for company in companies(same_arms=same_arms, seed=seed):
            try:
                bound = [program.instance(records) for records in (*company.here, *company.there)]
            except InfeasibleError:
                continue  # which the check of feasibility judges
            if program.kind is Kind.QUADRATIC:
                yield from _quadratic(bound, company)
            elif all(one.model is not None for one in bound):
                models = [one.model for one in bound if one.model is not None]
                if len({model.dimension for model in models}) == 1:
                    yield from _parametric(program, models, same_arms)


def _needs_arms(program: FirstStage) -> bool:
    """Whether the theorem lets the sizes of the arms enter."""
    paper = isinstance(program, EntropyFirstStage) and program.scaling == "paper"
    return paper or "weights" in program.moving


def _parametric(program: FirstStage, models: list[Composite], same_arms: bool) -> Iterator[tuple[str, str]]:
    rng = np.random.default_rng(17)
    # the log of a mean of exponentials, which a model of another class may be, is a sum at 0 only
    everywhere = isinstance(models[0], MarginModel)
    for size in (0.0, 0.3, 1.0):
        point = models[0].penalty.set.project(size * rng.normal(size=models[0].dimension))
        if program.kind is not Kind.CLOSED_FORM and (everywhere or (size == 0.0 and same_arms)):
            yield "terms of the objective", _not_a_sum([model.gradient(point) for model in models])
        at = point if program.kind is not Kind.CLOSED_FORM else np.ones(models[0].dimension)
        logs = [_logs(model.output(at)) for model in models]
        yield "ratios of weights", _other_ratios(logs)


def _not_a_sum(gradients: list[Array]) -> str:
    scale = 1e-12 + max(float(np.max(np.abs(one))) for one in gradients)
    apart = (gradients[0] - gradients[1]) - (gradients[2] - gradients[3])
    if np.max(np.abs(apart)) <= _ROUNDING * scale:
        return ""
    return "the term of one record in the objective depends on the other records"


def _logs(weights: Array) -> Array:
    return np.log(np.maximum(np.abs(weights[list(KEPT)]), 1e-300))


def _other_ratios(logs: list[Array]) -> str:
    shifted = [one - one[0] for one in logs]
    if all(
        np.max(np.abs(one - shifted[0])) <= _ROUNDING * (1 + np.max(np.abs(shifted[0]))) for one in shifted
    ):
        return ""
    return "the ratio of two weights at a fixed coefficient depends on the other records"


def _quadratic(bound: list[Instance], company: Company) -> Iterator[tuple[str, str]]:
    forms = [_form(one, records) for one, records in zip(bound, (*company.here, *company.there), strict=True)]
    entries = [form[0] for form in forms]
    scale = 1e-12 + float(np.max(np.abs(entries[0])))
    apart = max(float(np.max(np.abs(one - entries[0]))) for one in entries)
    wrong = "" if apart <= _ROUNDING * scale else "the entry of two records depends on the other records"
    yield "entries of the quadratic form", wrong
    linear = [form[1] for form in forms]
    yield (
        "terms of the linear form",
        _not_a_sum(linear)
        and ("what one record adds to the linear term of another depends on the other records"),
    )


def _form(instance: Instance, records: Records) -> tuple[Array, Array]:
    """The quadratic and the linear form between the records that stay."""
    if instance.model is not None:
        model = instance.model
        hessian, linear = model.hessian(model.start()), model.gradient(np.zeros(model.dimension))
        # a record may have no variable: what a unit of each variable brings says whose it is
        owners = [int(np.argmax(np.abs(model.output(unit)))) for unit in np.eye(model.dimension)]
        kept = [owners.index(index) for index in KEPT if index in owners]
        return hessian[np.ix_(kept, kept)], linear[kept]
    value = DeclaredValue(instance, "weights")
    if value.dimension != SIZE:
        return np.zeros((1, 1)), np.zeros(1)
    at_zero, units = value(np.zeros(SIZE)), np.eye(SIZE)[list(KEPT)]
    single = np.array([value(unit) - at_zero for unit in units])
    pairs = np.array([[value(one + other) - at_zero for other in units] for one in units])
    if not np.all(np.isfinite(pairs)):
        return np.zeros((1, 1)), np.zeros(1)  # no quadratic form, which its author answers for
    return pairs - single[:, None] - single[None, :], single
