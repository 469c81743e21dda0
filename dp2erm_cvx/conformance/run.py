"""All checks of one program, in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from dp2erm_cvx.conformance.checks import Check, checks_of
from dp2erm_cvx.conformance.outcome import Outcome, Report, Status, failed
from dp2erm_cvx.conformance.settings import other_settings
from dp2erm_cvx.conformance.statement import declaration
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.errors import Dp2ermError, InfeasibleError, ProgramError
from dp2erm_cvx.program import FirstStage, Kind, Program
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import sample_size


def check_program(
    program: type[Program], *, seconds: float = 5.0, seed: int = 0, done: Callable[[str], None] | None = None
) -> Iterator[Report]:
    """A report for every choice of settings in ``program.examples``.

    Parameters
    ----------
    program
        A concrete program class.
    seconds
        For each of the two searches for moving weights, per choice of settings.
    seed
        Of the searches, which repeats them up to what fits into the time.
    done
        Called with the name of every check that has ended.

    Raises DeclarationError for invalid numbers and ProgramError for ``examples`` that are none; whatever else
    a program does wrong is in its report.
    """
    seconds = public_number("seconds", seconds, above=0)
    examples = program.examples
    if (
        not isinstance(examples, tuple | list)
        or not examples
        or not all(isinstance(settings, Mapping) for settings in examples)
    ):
        raise ProgramError(f"{program.__name__}: examples must be a tuple of one dict of settings or more")
    seed = sample_size(seed, name="seed", at_least=0)
    for index, settings in enumerate(examples):
        # other settings than the examples once, beside the first of them
        yield _examined(program, dict(settings), seconds, seed, done, beside=index == 0)


def _examined(
    cls: type[Program],
    settings: dict[str, object],
    seconds: float,
    seed: int,
    done: Callable[[str], None] | None,
    beside: bool,
) -> Report:
    name = str(getattr(cls, "name", cls.__name__))
    stage, proved = ("second stage", "Theorems 1 and 2 from its constants")
    if issubclass(cls, FirstStage):
        if not isinstance(cls.kind, Kind):
            known = ", ".join(f"Kind.{kind.name}" for kind in Kind)
            return Report(name, settings, str(cls.kind), "", (failed("kind", f"must be one of {known}"),))
        stage, proved = cls.kind.value, cls.kind.proved
    if not dataclasses.is_dataclass(cls):
        return Report(name, settings, stage, proved, (failed("settings", "make it a frozen dataclass"),))
    try:
        subject = Subject(cls(**settings), seconds, seed)
    except (Dp2ermError, TypeError) as error:
        return Report(name, settings, stage, proved, (failed("settings", f"{error}"),))
    outcomes: list[Outcome] = []
    for check in checks_of(cls):
        outcomes.append(_ran(check, subject))
        if done is not None:
            done(outcomes[-1].check)
        if outcomes[-1].status is Status.FAILED and check is declaration:
            break  # what comes after would fail for the same reason
    report = Report(name, subject.program.settings(), stage, proved, tuple(outcomes))
    if beside and report.passed:
        outcomes.append(_ran(other_settings, subject))
        if done is not None:
            done(outcomes[-1].check)
    return Report(name, subject.program.settings(), stage, proved, tuple(outcomes))


def _ran(check: Check, subject: Subject) -> Outcome:
    """A check whose own exceptions are findings: a program may do anything."""
    title = check.__name__.replace("_", " ")
    try:
        return check(subject)
    except InfeasibleError as error:
        if not subject.program.relations:
            return Outcome(title, Status.NOTED, str(error))
        return failed(title, str(error))
    except Dp2ermError as error:
        return failed(title, f"{type(error).__name__}: {error}")
    except Exception as error:
        return failed(title, f"raises {type(error).__name__}: {error}")
