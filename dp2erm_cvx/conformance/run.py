"""All checks of one program, at its examples and at other settings, as a report or as pytest items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.conformance.checks import BESIDE, checks_of
from dp2erm_cvx.conformance.subject import SEARCH, Check, CheckStatus, Subject
from dp2erm_cvx.display import Shown
from dp2erm_cvx.errors import Dp2ermError, InfeasibleError
from dp2erm_cvx.program import FirstStage, Program


@dataclass(frozen=True)
class CheckOutcome:
    """One check: its name, what came out and the numbers or the reason in words."""

    check: str
    status: CheckStatus
    detail: str


@dataclass(frozen=True)
class ConformanceReport(Shown):
    """All checks of one program at one choice of settings.

    A search refutes and never proves: ``passed`` says that nothing was found, not that a bound holds.
    """

    program: str
    settings: dict[str, Any]
    kind: str
    proved: str
    outcomes: tuple[CheckOutcome, ...]

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[CheckOutcome, ...]:
        """The checks that failed."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is CheckStatus.FAILED)

    @property
    def notes(self) -> tuple[CheckOutcome, ...]:
        """The checks that neither passed nor failed, for a reader to judge."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is CheckStatus.NOTED)

    @property
    def conclusion(self) -> str:
        """In one line; what a reader has to judge is no pass."""
        if self.failures:
            return f"{len(self.failures)} failed"
        if not self.notes:
            skipped = sum(one.status is CheckStatus.SKIPPED for one in self.outcomes)
            return "all checks passed" + (f", {skipped} of {len(self.outcomes)} derived" if skipped else "")
        count = f"{len(self.notes)} note{'s' if len(self.notes) > 1 else ''}"
        return f"no check failed; {count} to read: {', '.join(note.check for note in self.notes)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "program": self.program,
            "settings": self.settings,
            "kind": self.kind,
            "proved": self.proved,
            "passed": self.passed,
            "conclusion": self.conclusion,
            "outcomes": [asdict(o) | {"status": o.status.value} for o in self.outcomes],
        }

    def __str__(self) -> str:
        verdict = "FAILED" if self.failures else self.conclusion
        checks = [f"  {o.status.value:<6} {o.check}: {o.detail}" for o in self.outcomes]
        return "\n".join([f"{self.program}: {verdict} ({self.kind}: {self.proved})", *checks])


def check_program(
    program: type[Program], *, search: SearchPlan = SEARCH, done: Callable[[str], None] | None = None
) -> Iterator[ConformanceReport]:
    """A report for every choice of settings in ``program.examples``.

    Parameters
    ----------
    program
        The class of a program.
    search
        Limits of the audit, per choice of settings, and the seed of all searches; default: 20,000 neighbors,
        or 500 where each takes two solves in full. Without a limit in seconds a seed repeats it all.
    done
        Called with the name of every check that has ended.

    Whatever a program does wrong is in its report.
    """
    for index, settings in enumerate(program.examples):
        outcomes = list[CheckOutcome]()
        try:
            subject = Subject(program(**settings), search)
        except Dp2ermError as error:
            outcomes.append(CheckOutcome("settings", CheckStatus.FAILED, str(error)))
        else:
            for name, check in checks_of(program, first=index == 0).items():
                wrong = [one.check for one in outcomes if one.status is CheckStatus.FAILED]
                if "declaration" in wrong or (wrong and name == BESIDE):
                    break  # what comes after would fail for the same reason
                outcomes.append(outcome_of(name, check, subject))
                if done is not None:
                    done(name)
            settings = subject.program.settings()
        name = str(getattr(program, "name", program.__name__))
        yield ConformanceReport(name, dict(settings), *_claim(program), tuple(outcomes))


def parametrize(*programs: type[Program], search: SearchPlan = SEARCH) -> Callable[[Any], Any]:
    """A decorator for pytest: one item for every check at every example of the programs.

    What it decorates takes ``program`` and ``check``, and calls ``check(program)``, which raises
    AssertionError where the check fails and skips what is derived or only noted::

        @parametrize(my_weights)
        def test_my_weights(program, check):
            check(program)
    """
    import pytest

    def item(cls: type[Program], settings: Mapping[str, Any], name: str, check: Check) -> Any:
        def assert_passed(program: Program) -> None:
            outcome = outcome_of(name, check, Subject(program, search))
            assert outcome.status is not CheckStatus.FAILED, f"{name}: {outcome.detail}"
            if outcome.status is not CheckStatus.PASSED:
                pytest.skip(outcome.detail)

        chosen = "-".join(f"{key}={value}" for key, value in settings.items())
        label = "-".join(part for part in (str(cls.name), chosen, name) if part)
        return pytest.param(cls(**settings), assert_passed, id=label)

    items = []
    for cls in programs:
        for index, settings in enumerate(cls.examples):
            checks = checks_of(cls, first=index == 0)
            items += [item(cls, settings, name, check) for name, check in checks.items()]
    return pytest.mark.parametrize(("program", "check"), items)


def _claim(cls: type[Program]) -> tuple[str, str]:
    """Kind, and what is proved about it."""
    if issubclass(cls, FirstStage):
        return cls.kind.value, cls.kind.proved
    return "second stage", "Theorems 1 and 2 from constants that are derived"


def outcome_of(name: str, check: Check, subject: Subject) -> CheckOutcome:
    """The outcome of a check whose own exceptions are findings: a program may do anything."""
    try:
        return CheckOutcome(name, *check(subject))
    except InfeasibleError as error:
        status = CheckStatus.FAILED if subject.program.relations else CheckStatus.NOTED
        return CheckOutcome(name, status, str(error))
    except Dp2ermError as error:
        return CheckOutcome(name, CheckStatus.FAILED, f"{type(error).__name__}: {error}")
    except Exception as error:
        return CheckOutcome(name, CheckStatus.FAILED, f"raises {type(error).__name__}: {error}")
