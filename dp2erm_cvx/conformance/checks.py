"""The checks of each kind of program, in order."""

from __future__ import annotations

from collections.abc import Callable

from dp2erm_cvx.conformance.balance import balance
from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.contributions import contributions
from dp2erm_cvx.conformance.convexity import model_and_declaration, strong_convexity
from dp2erm_cvx.conformance.fixed_set import fixed_set
from dp2erm_cvx.conformance.movement import audit, movement
from dp2erm_cvx.conformance.outcome import Outcome
from dp2erm_cvx.conformance.own_record import own_record
from dp2erm_cvx.conformance.perturbation import perturbation
from dp2erm_cvx.conformance.private_coefficient import coefficient_noise
from dp2erm_cvx.conformance.reach import reach
from dp2erm_cvx.conformance.solving import agreement, feasibility
from dp2erm_cvx.conformance.stated_bound import stated_bound
from dp2erm_cvx.conformance.statement import declaration, kind, statement
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.conformance.unconstrained import unconstrained
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, Program

Check = Callable[[Subject], Outcome]

_BOTH: tuple[Check, ...] = (statement, declaration, agreement, feasibility, strong_convexity)
_FIRST: tuple[Check, ...] = (
    kind,
    *_BOTH,
    balance,
    model_and_declaration,
    fixed_set,
    own_record,
    constants,
    stated_bound,
    movement,
    audit,
    reach,
)
_PRIVATE: tuple[Check, ...] = (*_FIRST, coefficient_noise)
_SECOND: tuple[Check, ...] = (
    *_BOTH,
    model_and_declaration,
    fixed_set,
    perturbation,
    contributions,
    unconstrained,
    constants,
    reach,
)


def checks_of(cls: type[Program]) -> tuple[Check, ...]:
    """All that a program of this class is examined by."""
    if issubclass(cls, PrivateFirstStage):
        return _PRIVATE
    return _FIRST if issubclass(cls, FirstStage) else _SECOND
