"""From what is declared to its plan: the steps, each calibrated to its part of the budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.numbers import Arithmetic
from dp2erm_cvx.calibration.profiles import joint_delta, joint_relief
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.mechanism import secure_available
from dp2erm_cvx.plan.pipeline import P_co, Pipeline
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps import Step, StepPlan
from dp2erm_cvx.steps.step import exact_budget

P = TypeVar("P", bound=Plan)

#: Above this, exp(epsilon) is no longer small against the probability of noise beyond its bound.
LARGEST_COUNTED = 500.0


def make_plan(study: Pipeline[P_co]) -> P_co:
    """Calibrate a release from public quantities alone.

    Raises DeclarationError for an invalid share, CalibrationError where no theorem covers what is declared.
    """
    if counts(study):
        plan = _planned(study, study.numerical_share)
        if plan.counted:
            return plan
        if study.arithmetic is Arithmetic.COUNTED:
            raise CalibrationError(
                "arithmetic = 'counted': the curvature is too small for floating point; use a smaller "
                "epsilon or a larger regularizer"
            )
    return _planned(study, None)


def plan_as_declared(study: Pipeline[P_co]) -> P_co:
    """The same for arithmetic that is declared "counted" or "assumed", whatever can be drawn on this machine.

    Raises as :func:`make_plan` does.
    """
    return _planned(study, study.numerical_share if study.arithmetic is Arithmetic.COUNTED else None)


def counts(study: Pipeline[Any]) -> bool:
    """Whether the arithmetic is counted. Raises DeclarationError or CalibrationError where it cannot be."""
    if study.arithmetic is Arithmetic.ASSUMED:
        return False
    missing = _uncountable(study)
    if study.arithmetic is Arithmetic.AUTO:
        return missing is None and secure_available()
    if missing is not None:
        raise CalibrationError(f"arithmetic = 'counted': {missing}")
    if not secure_available():
        raise DeclarationError("arithmetic = 'counted' needs the extra: pip install 'dp2erm-cvx[secure]'")
    return True


def _uncountable(study: Pipeline[Any]) -> str | None:
    """Why no theorem covers the arithmetic, or None."""
    epsilon = study.budget.epsilon
    if epsilon > LARGEST_COUNTED:
        return f"epsilon = {epsilon:g} is above {LARGEST_COUNTED:g}, where nothing is hidden anyway"
    missing, universe = list[str | None](), study.start
    for step in study.steps(None):
        missing.append(step.uncountable(universe))
        universe = step.hands(universe)
    # what is missing in the step that takes the rest is told first
    return next((reason for reason in reversed(missing) if reason is not None), None)


def _planned(study: Pipeline[P_co], numerical_share: float | None) -> P_co:
    steps = list(study.steps(numerical_share))
    budgets = _divided(study.budget, steps)
    planned: dict[str, StepPlan] = {}
    universe = study.start
    for step in steps:
        planned[step.name] = step.plan(universe, budgets[step.name], dict(planned))
        universe = step.hands(universe)
    return _composed(study.planned(tuple(planned.values())))


def _composed(plan: P) -> P:
    """Less noise in Gaussian steps, where one delta covers the sum of their losses (Theorem 16)."""
    laws = [step.loss_law for step in plan.steps if step.loss_law is not None]
    if len(laws) < max(2, len(plan.steps)):
        return plan
    left = exact_budget(plan.study.budget, plan.steps)
    relief = joint_relief(laws, left)
    if relief <= 1.0:
        return plan
    found = replace(plan, steps=tuple(step.relieved(relief) for step in plan.steps))
    laws = [step.loss_law for step in found.steps if step.loss_law is not None]
    return found if joint_delta(laws, left.epsilon) <= left.delta else plan


def _divided(budget: Budget, steps: Sequence[Step]) -> dict[str, Budget]:
    """The budget of each step: a later one takes its share first, and one step takes the rest."""
    parts, left = {}, budget
    for step in reversed(steps):
        if not step.takes_rest:
            parts[step.name], left = step.divide(left)
    spent = math.fsum(part.delta for part in parts.values())
    if spent > 0.0 and any(
        step.takes_rest and Noise(getattr(step, "noise", "gaussian")).pure for step in steps
    ):
        # the last step has no use for what is left of delta
        more = budget.delta / spent * (1.0 - 1e-12)
        parts = {name: Budget(part.epsilon, more * part.delta) for name, part in parts.items()}
        left = Budget(left.epsilon)
    return parts | {step.name: left for step in steps if step.takes_rest}
