"""All checks of one program, in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.conformance.bounds import bound_of_theorem, movement, short_audit
from dp2erm_cvx.conformance.constancy import fixed_set, public_numbers
from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.declaration import declaration, kind, statement
from dp2erm_cvx.conformance.objective import model_and_declaration, strong_convexity
from dp2erm_cvx.conformance.other_settings import other_settings
from dp2erm_cvx.conformance.outcome import CheckOutcome, CheckStatus, ConformanceReport
from dp2erm_cvx.conformance.own_record import contributions, own_record
from dp2erm_cvx.conformance.perturbation import coefficient_noise, perturbation, unconstrained
from dp2erm_cvx.conformance.solutions import agreement, balance, certified_in_advance, feasibility
from dp2erm_cvx.conformance.subject import SEARCH, Check, Subject
from dp2erm_cvx.errors import Dp2ermError, InfeasibleError, ProgramError
from dp2erm_cvx.program import FirstStage, Kind, PrivateFirstStage, Program

_BOTH: tuple[Check, ...] = (statement, declaration, agreement, feasibility, strong_convexity)
_FIRST: tuple[Check, ...] = (
    kind,
    *_BOTH,
    balance,
    model_and_declaration,
    fixed_set,
    public_numbers,
    own_record,
    constants,
    bound_of_theorem,
    movement,
    short_audit,
    certified_in_advance,
)
_SECOND: tuple[Check, ...] = (
    *_BOTH,
    model_and_declaration,
    fixed_set,
    public_numbers,
    perturbation,
    contributions,
    unconstrained,
    constants,
    certified_in_advance,
)


def checks_of(cls: type[Program]) -> tuple[Check, ...]:
    """All that a program of this class is examined by, at each choice of its settings."""
    if issubclass(cls, PrivateFirstStage):
        return (*_FIRST, coefficient_noise)
    return _FIRST if issubclass(cls, FirstStage) else _SECOND


def check_program(
    program: type[Program], *, search: SearchPlan = SEARCH, done: Callable[[str], None] | None = None
) -> Iterator[ConformanceReport]:
    """A report for every choice of settings in ``program.examples``.

    Parameters
    ----------
    program
        A concrete program class.
    search
        Limits of the audit, per choice of settings, and the seed of all searches; default: 20,000 neighbors,
        or 500 where each takes two solves in full. Constants are searched at 600 points at most, and at no
        more than ``evaluations``. Without a limit in seconds a seed repeats the whole report.
    done
        Called with the name of every check that has ended.

    Raises ProgramError for ``examples`` that are none; whatever else
    a program does wrong is in its report.
    """
    examples = program.examples
    listed = isinstance(examples, tuple | list) and all(isinstance(one, Mapping) for one in examples)
    if not listed or not examples:
        raise ProgramError(f"{program.__name__}: examples must be a tuple of one dict of settings or more")
    for index, settings in enumerate(examples):
        report = _unexaminable(program, settings)
        if report is None:
            subject = Subject(program(**settings), search)
            # other settings than the examples once, beside the first of them
            report = _examined(subject, beside=index == 0, done=done or (lambda name: None))
        yield report


def _unexaminable(cls: type[Program], settings: Mapping[str, object]) -> ConformanceReport | None:
    """The report on a class that no check can begin with, if it is one."""
    if issubclass(cls, FirstStage) and not isinstance(cls.kind, Kind):
        known = ", ".join(f"Kind.{one.name}" for one in Kind)
        outcome = CheckOutcome("kind", CheckStatus.FAILED, f"must be one of {known}")
        return ConformanceReport(_name(cls), dict(settings), str(cls.kind), "", (outcome,))
    if not dataclasses.is_dataclass(cls):
        wrong = "make it a frozen dataclass"
    else:
        try:
            cls(**settings)
            return None
        except (Dp2ermError, TypeError) as error:
            wrong = str(error)
    outcome = CheckOutcome("settings", CheckStatus.FAILED, wrong)
    return ConformanceReport(_name(cls), dict(settings), *_claim(cls), (outcome,))


def _examined(subject: Subject, beside: bool, done: Callable[[str], None]) -> ConformanceReport:
    cls, outcomes = type(subject.program), list[CheckOutcome]()
    for each in checks_of(cls):
        outcomes.append(outcome_of(each, subject))
        done(each.name)
        if outcomes[-1].status is CheckStatus.FAILED and each is declaration:
            break  # what comes after would fail for the same reason
    if beside and all(outcome.status is not CheckStatus.FAILED for outcome in outcomes):
        outcomes.append(outcome_of(other_settings, subject))
        done(other_settings.name)
    return ConformanceReport(_name(cls), subject.program.settings(), *_claim(cls), tuple(outcomes))


def _name(cls: type[Program]) -> str:
    return str(getattr(cls, "name", cls.__name__))


def _claim(cls: type[Program]) -> tuple[str, str]:
    """Kind, and what is proved about it."""
    if issubclass(cls, FirstStage):
        return cls.kind.value, cls.kind.proved
    return "second stage", "Theorems 1 and 2 from its constants"


def outcome_of(check: Check, subject: Subject) -> CheckOutcome:
    """Of a check whose own exceptions are findings: a program may do anything."""
    try:
        return check(subject)
    except InfeasibleError as error:
        status = CheckStatus.FAILED if subject.program.relations else CheckStatus.NOTED
        return CheckOutcome(check.name, status, str(error))
    except Dp2ermError as error:
        return CheckOutcome(check.name, CheckStatus.FAILED, f"{type(error).__name__}: {error}")
    except Exception as error:
        return CheckOutcome(check.name, CheckStatus.FAILED, f"raises {type(error).__name__}: {error}")
