"""From a study to its plan: the steps, each calibrated to its part of the budget."""

from __future__ import annotations

from collections.abc import Sequence

from dp2erm_cvx.calibration.grid import Arithmetic
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.mechanism import secure_available
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.plan.study import LARGEST_COUNTED, Study
from dp2erm_cvx.privacy import BoundFamily, Budget
from dp2erm_cvx.program import PrivateFirstStage, SecondStage
from dp2erm_cvx.steps import Step, StepPlan


def make_plan(study: Study) -> Plan:
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


def counts(study: Study) -> bool:
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


def _uncountable(study: Study) -> str | None:
    """Why no theorem covers the arithmetic, or None."""
    epsilon = study.budget.epsilon
    if epsilon > LARGEST_COUNTED:
        return f"epsilon = {epsilon:g} is above {LARGEST_COUNTED:g}, where nothing is hidden anyway"
    if study.calibrator.family is BoundFamily.PAPER:
        return "the paper's calibrations assume exact arithmetic"
    gamma = study.universe.domain.covariate_bound**2
    solved: list[SecondStage | PrivateFirstStage] = [study.second]
    if isinstance(study.first, PrivateFirstStage):
        solved.append(study.first)
    for program in solved:
        if program.certified_radius(study.universe, gamma, 0.0) is None:
            return f"{program.name} does not state what it is certified to"
    return None


def _planned(study: Study, numerical_share: float | None) -> Plan:
    steps = list(study.steps(numerical_share))
    budgets = _divided(study.budget, steps)
    planned: dict[str, StepPlan] = {}
    for step in steps:
        planned[step.name] = step.plan(study.universe, budgets[step.name], dict(planned))
    return Plan(study, tuple(planned.values()))


def _divided(budget: Budget, steps: Sequence[Step]) -> dict[str, Budget]:
    """The budget of each step: a later one takes its share first, and one step takes the rest."""
    parts = {}
    for step in reversed(steps):
        if not step.takes_rest:
            parts[step.name], budget = step.divide(budget)
    return parts | {step.name: budget for step in steps if step.takes_rest}
