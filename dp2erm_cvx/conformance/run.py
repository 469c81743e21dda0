"""All checks of one program, as a report or as pytest items.

Files that declare programs are read here.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Any

from dp2erm_cvx.audit.search import Deadline, SearchPlan
from dp2erm_cvx.checks import json_types
from dp2erm_cvx.conformance.checks import SEARCH, Check, CheckStatus, Subject, checks_of
from dp2erm_cvx.display import Shown, plural
from dp2erm_cvx.errors import DeclarationError, Dp2ermError, InfeasibleError, ProgramError
from dp2erm_cvx.program import FirstStage, Program
from dp2erm_cvx.program.files import programs_of_file
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.program.stage import Registered, family_of


@dataclass(frozen=True)
class CheckOutcome:
    """What came of one check.

    Parameters
    ----------
    check
        Its name.
    status
        What came out.
    detail
        The numbers, or the reason in words.
    """

    check: str
    status: CheckStatus
    detail: str

    def __str__(self) -> str:
        return f"  {self.status.value:<6} {self.check}: {self.detail}"


@dataclass(frozen=True)
class ConformanceReport(Shown):
    """All checks of one program at one choice of settings.

    A search refutes and never proves: ``passed`` says that nothing was found, not that a bound
    holds.

    Parameters
    ----------
    program, settings
        Its name, and its settings.
    kind, proved
        What kind of program it is, and what is proved of those.
    outcomes
        Of the checks, in their order.
    """

    program: str
    settings: dict[str, Any]
    kind: str
    proved: str
    outcomes: tuple[CheckOutcome, ...]

    def of(self, status: CheckStatus) -> tuple[CheckOutcome, ...]:
        """The checks that ended so: a reader has to judge what is ``NOTED``."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is status)

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return not self.of(CheckStatus.FAILED)

    @property
    def conclusion(self) -> str:
        """In one line; what a reader has to judge is no pass."""
        failures = self.of(CheckStatus.FAILED)
        if failures:
            return f"{len(failures)} failed"
        notes = self.of(CheckStatus.NOTED)
        if notes:
            count = f"{len(notes)} {plural('note', len(notes))}"
            return f"no check failed; {count} to read: {', '.join(note.check for note in notes)}"
        derived = self.of(CheckStatus.SKIPPED)
        if derived:
            return f"all checks passed, {len(derived)} of {len(self.outcomes)} derived"
        return "all checks passed"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dict(
            json_types(asdict(self) | {"passed": self.passed, "conclusion": self.conclusion})
        )

    @property
    def headline(self) -> str:
        """The program at its settings, and what came out, in one line."""
        verdict = self.conclusion if self.passed else "FAILED"
        settings = [f"{name}={one}" for name, one in self.settings.items() if one is not None]
        program = self.program
        if settings:
            program += f" ({', '.join(settings)})"
        return f"{program}: {verdict} ({self.kind}: {self.proved})"

    def __str__(self) -> str:
        return "\n".join([self.headline, *map(str, self.outcomes)])


def check_program(
    program: Registered,
    *,
    search: SearchPlan = SEARCH,
    done: Callable[[CheckOutcome], None] | None = None,
    n: int = 60,
) -> Iterator[ConformanceReport]:
    """A report for every choice of settings in ``program.examples``.

    Parameters
    ----------
    program
        A scheme, or a class of programs of the library.
    search
        Limits of the audit, per choice of settings, and the seed of all searches; default: 20,000
        neighbors, or 200 where each takes two solves in full. Its seconds are those of all searches
        together, each of which takes half of what is left. Without a limit in seconds a seed
        repeats it all.
    done
        Called with the outcome of every check as soon as it has ended.
    n
        Number of records that V is told at, and that are looked at beside few and 500.

    Whatever a program does wrong is in its report, which ends at the first check that fails.
    """
    for index, settings in enumerate(program.examples):
        outcomes: list[CheckOutcome] = []
        try:
            subject = Subject(program(**settings), search, n=n)
        except Dp2ermError as error:
            outcomes.append(CheckOutcome("settings", CheckStatus.FAILED, str(error)))
        else:
            checks = checks_of(program, first=index == 0)
            for outcome in _outcomes(subject, checks, search.deadline()):
                outcomes.append(outcome)
                if done is not None:
                    done(outcome)
            settings = subject.program.settings()
        name = str(getattr(program, "name", program.__name__))
        kind = "second stage"
        proved = "Theorems 1 and 2 from constants that are derived"
        if issubclass(family_of(program), FirstStage):
            kind, proved = program.kind.value, program.kind.proved  # type: ignore[union-attr]
        yield ConformanceReport(name, dict(settings), kind, proved, tuple(outcomes))


def _outcomes(
    subject: Subject, checks: Mapping[str, Check], limit: Deadline
) -> Iterator[CheckOutcome]:
    """Outcomes of checks up to the first that fails: what comes after would fail for its reason."""
    for name, check in checks.items():
        outcome = outcome_of(name, check, replace(subject, until=limit.part(0.5)))
        yield outcome
        if outcome.status is CheckStatus.FAILED:
            return


def parametrize(*classes: Registered, search: SearchPlan = SEARCH) -> Callable[[Any], Any]:
    """A decorator for pytest: one item for every check at every example of the classes.

    What it decorates takes ``program`` and ``check``, and calls ``check(program)``, which raises
    AssertionError where the check fails and skips what is derived or only noted::

        @parametrize(my_weights)
        def test_my_weights(program, check):
            check(program)
    """
    import pytest

    def assert_passed(name: str, check: Check, program: Program) -> None:
        outcome = outcome_of(name, check, Subject(program, search))
        assert outcome.status is not CheckStatus.FAILED, f"{name}: {outcome.detail}"
        if outcome.status is not CheckStatus.PASSED:
            pytest.skip(outcome.detail)

    items = []
    for cls in classes:
        for index, settings in enumerate(cls.examples):
            chosen = [str(cls.name), *(f"{key}={value}" for key, value in settings.items())]
            for name, check in checks_of(cls, first=index == 0).items():
                one = partial(assert_passed, name, check)
                items.append(pytest.param(cls(**settings), one, id="-".join([*chosen, name])))
    return pytest.mark.parametrize(("program", "check"), items)


def outcome_of(name: str, check: Check, subject: Subject) -> CheckOutcome:
    """The outcome of a check whose own exceptions are findings: a program may do anything."""
    try:
        return CheckOutcome(name, *check(subject))
    except InfeasibleError as error:
        status = CheckStatus.FAILED if subject.program.relations else CheckStatus.NOTED
        return CheckOutcome(name, status, str(error))
    except Exception as error:
        raises = "" if isinstance(error, Dp2ermError) else "raises "
        return CheckOutcome(name, CheckStatus.FAILED, f"{raises}{type(error).__name__}: {error}")


#: Kinds that there is a template for, and what each is for.
TEMPLATES = {
    "exponential": "weights are a function of a fitted coefficient, with a ridge (Theorem 3)",
    "quadratic": "weights balance functions of the covariates, with a ridge (Theorems 5, 6 and 18)",
    "direct": "the weights are the variable of a problem (Theorems 5, 6, 18 and 29), or V is 2n",
    "loss": "a second stage: weighted convex losses of <z, theta> - o (Theorems 1 and 2)",
}


def program_template(name: str, kind: str) -> str:
    """Text of a file that declares a program called ``name``.

    Raises DeclarationError for a name that is no lower-case Python name or that the file needs for
    itself, and for an unknown kind.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise DeclarationError(
            f"name = {name!r}: must be a lower-case Python name such as my_weights"
        )
    if kind not in TEMPLATES:
        raise DeclarationError(f"kind = {kind!r}: must be one of {', '.join(TEMPLATES)}")
    text = (
        files("dp2erm_cvx.conformance")
        .joinpath(f"templates/{kind}.py.txt")
        .read_text(encoding="utf-8")
    )
    text = text.replace("@NAME@", name)
    imports = [
        node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    taken = {alias.asname or alias.name for node in imports for alias in node.names}
    if name in taken:
        raise DeclarationError(
            f"name = {name!r}: the file uses it for something else; choose another name"
        )
    return text


def load_program(name_or_file: str) -> list[Registered]:
    """Programs of a file that ends in .py, or the registered one of that name.

    Raises ProgramError.
    """
    if name_or_file.endswith(".py"):
        return programs_of_file(name_or_file)
    known = programs()
    if name_or_file not in known:
        raise ProgramError(f"{name_or_file!r} is neither a .py file nor one of {', '.join(known)}")
    return [known[name_or_file]]
