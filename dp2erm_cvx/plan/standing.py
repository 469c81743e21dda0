"""What a plan says in advance of the standing of its release, and of bounds that it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.program.standing import CONDITIONAL, COVERS_ALL
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.step import RELEASED, Step

#: What is said of each standing, before its reason.
_SAID = {
    Standing.PRIVATE: "private",
    Standing.CONDITIONAL: CONDITIONAL,
    Standing.NOT_PRIVATE: "not private: do not publish",
    Standing.UNPROVEN: "not private: do not publish",
}


def standing_in_words(plan: Plan[Any]) -> str:
    """What a release by a plan will be, with its reason where it will not be private.

    The text has no full stop.
    """
    said = _SAID[plan.standing]
    reason = _reason(plan)
    if reason:
        return f"{said} ({reason})"
    return said


def standing_sentences(plan: Plan[Any]) -> Iterator[str]:
    """Sentences on the standing of a release by a plan, and on the bounds of its weights."""
    yield f"Its release will be {standing_in_words(plan)}."
    for step in plan.steps:
        for program in step.programs:
            if isinstance(program, FirstStage):
                yield from _bound_sentences(step, program, plan.study.universe.n_samples)


def _bound_sentences(step: Step, program: FirstStage, n_samples: int) -> Iterator[str]:
    """Sentences on the bound V of the weights of one ``program`` of a step."""
    if step.bound.V >= 2.0 * n_samples:
        yield f"{COVERS_ALL} of {program.name}."
    bounded = step.bounded(program)
    assert isinstance(bounded, FirstStage)
    unused = bounded.unused_bound(step.universe)
    if unused is not None:
        yield f"{program.name}: {unused}."
    if bounded.uses_stated_bound(step.universe):
        yield f"{program.name}: V = {step.bound.V:.4g} rests on the bound that its author states."


def _reason(plan: Plan[Any]) -> str:
    """Why a release by a plan will not be private; empty where it will be."""
    if plan.standing is Standing.NOT_PRIVATE:
        if plan.seeded:
            return "the noise is seeded"
        return "the noise of the ranges of its domain was seeded"
    if plan.standing is Standing.UNPROVEN:
        names = ", ".join(RELEASED[step.name] for step in plan.steps if not step.proven)
        return f"no theorem proves the calibration of {names}"
    if plan.standing is Standing.PRIVATE:
        return ""
    if plan.certified_by_design:
        return "the declared solver does not certify every dataset"
    return "; ".join(_uncertified(plan))


def _uncertified(plan: Plan[Any]) -> Iterator[str]:
    """What no public number bounds the numerical error of, by step."""
    for step in plan.steps:
        if step.certified_by_design:
            continue
        if isinstance(step, Fit) and step.weights is not None and not step.weights.known:
            assert step.weights.program is not None
            yield (
                "no public number bounds the numerical error of the weights of "
                f"{step.weights.program.name}"
            )
        elif isinstance(step, Fit):
            yield f"no public number bounds the numerical error of {step.program.name}"
        else:
            yield "the weights rest on a bound that their author states"
