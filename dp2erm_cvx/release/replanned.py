"""The release that follows from what its file declares and from the numbers that were released."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import EffectPlan, Plan, RulePlan, TwoStagePlan
from dp2erm_cvx.plan.plan import plan_as_declared
from dp2erm_cvx.release.declaration import study_of
from dp2erm_cvx.release.effect import EffectRelease, make_effect
from dp2erm_cvx.release.record import BaseRelease, Guarantee, Release
from dp2erm_cvx.release.rule_release import RuleRelease, make_rule
from dp2erm_cvx.release.statement import guarantee_again, make_release
from dp2erm_cvx.steps import LinearNuisances, Rows, Term, placed, score_of

R = TypeVar("R", bound=BaseRelease)


def plan_of(release: BaseRelease) -> Plan:
    """The plan of what a release declares. Raises DeclarationError or CalibrationError."""
    plan: Plan = plan_as_declared(study_of(release))
    return plan


def released_numbers(release: BaseRelease, plan: Plan) -> dict[str, Array]:
    """What every step of a plan released, as the file states it, by the name of the step."""
    numbers: dict[str, Array] = {}
    for part in getattr(release, "nuisances", ()):
        step = plan.step(part.step)
        if step is not None and step.integers is not None:
            # the first entry of cells holds what noise was added to
            numbers.setdefault(part.step, np.rint(np.array(part.coefficient) / step.integers.unit))
        elif step is not None:
            numbers[part.step] = np.array(part.coefficient)
    if isinstance(release, EffectRelease):
        numbers["score"] = np.array(release.released)
        if release.ranges:
            numbers["ranges"] = np.array([(one.low, one.high) for one in release.ranges])
        return numbers
    numbers["theta" if isinstance(release, Release) else "rule"] = np.array(release.theta)  # type: ignore[attr-defined]
    stated = release.value if isinstance(release, Release) else release
    if plan.step("value") is not None:
        numbers["value"] = np.array(stated.released)  # type: ignore[union-attr]
    return numbers


def stated_again(release: R, plan: Plan) -> R:
    """The release that a plan makes of the numbers that were released: what follows from both.

    Of the run it takes over what no file can show: the standing, the study and the version.
    """
    released, guarantee = released_numbers(release, plan), guarantee_again(plan, release.guarantee)
    missing = [step.name for step in plan.steps if step.name not in released]
    if missing and not isinstance(release, Release):  # which does not state the coefficient of its weights
        raise DeclarationError(f"steps: nothing is stated that {missing[0]} released")
    again: BaseRelease
    if isinstance(release, EffectRelease):
        assert isinstance(plan, EffectPlan)
        again = _effect_at(release, release.interval.level, plan, released, guarantee)
    elif isinstance(release, RuleRelease):
        assert isinstance(plan, RulePlan)
        again = make_rule(plan, released, release.columns, guarantee)
    else:
        assert isinstance(plan, TwoStagePlan)
        again = make_release(plan, released, release.columns, guarantee)
    return replace(again, study=release.study, version=release.version)  # type: ignore[return-value]


def at_level(release: EffectRelease, level: float) -> EffectRelease:
    """The same release with intervals at another ``level``, from the numbers that were released.

    Raises DeclarationError where the level is not between 0 and 1, or nothing follows from what is declared.
    """
    plan = plan_of(release)
    assert isinstance(plan, EffectPlan)
    found = _effect_at(release, level, plan, released_numbers(release, plan), release.guarantee)
    return replace(found, study=release.study, version=release.version)


def _effect_at(
    release: EffectRelease, level: float, plan: EffectPlan, released: dict[str, Array], guarantee: Guarantee
) -> EffectRelease:
    # the name of the outcome is stated with its range, and nowhere else
    names = (*release.columns, release.ranges[-1].column if release.ranges else "")
    return make_effect(plan, released, names, guarantee, level, release.target)


def public_center(release: EffectRelease) -> Term:
    """The outcome regression in force, of the centered outcome on the scaled covariates of the domain.

    It is public from now on: a released mean, a smaller ball and the shrinkage that is undone are counted in.
    Raises DeclarationError where its parts have different rows, or are cells.
    """
    plan = plan_of(release)
    assert isinstance(plan, EffectPlan)
    released, step = released_numbers(release, plan), plan.score
    nuisances = score_of(step).at(step.universe, released).nuisances
    if not isinstance(nuisances, LinearNuisances):
        raise DeclarationError("public_center: cells are no regression")
    rows = {term.rows for term in nuisances.terms}
    if len(rows) != 1:
        raise DeclarationError("public_center: the released regressions have no common rows")
    (own,), k = rows, len(release.columns)
    theta = np.sum([term.coefficient(k, released) for term in nuisances.terms], axis=0)
    slopes = ~own.constants(k)
    mean, scale = placed(plan.steps, released)
    theta[slopes] *= scale
    if mean is not None:
        middle = mean[None]
        for arm in (0.0, 1.0) if own is not Rows.POOLED else (0.0,):
            place = int(np.argmax(own.of(0.0 * middle, arm)[0]))
            theta[place] -= float(own.of(middle, arm)[0][slopes] @ theta[slopes])
    return Term(own, tuple(theta.tolist()))
