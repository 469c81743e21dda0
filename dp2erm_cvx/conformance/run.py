"""All checks of one program, at its examples and at other settings, as a report or as pytest items."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.conformance import objective, solutions, statement
from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.subject import (
    SEARCH,
    Check,
    CheckStatus,
    Judgment,
    Subject,
    check_domain,
    check_universe,
    failed,
    noted,
    passed,
)
from dp2erm_cvx.errors import Dp2ermError, InfeasibleError, ProgramError
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet, L2Ball
from dp2erm_cvx.program import Box, FirstStage, Kind, L1Ball, PrivateFirstStage, Program, SecondStage

#: Every check with the programs that it concerns: all, first stages, private ones among them, or second.
CHECKS: dict[str, tuple[Check, type[Program]]] = {
    **statement.CHECKS,
    **solutions.CHECKS,
    **objective.CHECKS,
    "constants": (constants, Program),
}
#: The check that is run once, beside the first example.
BESIDE = "other settings"


def checks_of(cls: type[Program]) -> dict[str, Check]:
    """All that a program of this class is examined by, at each choice of its settings, by name."""
    return {name: check for name, (check, concerned) in CHECKS.items() if issubclass(cls, concerned)}


@dataclass(frozen=True)
class CheckOutcome:
    """One check: its name, what came out and the numbers or the reason in words."""

    check: str
    status: CheckStatus
    detail: str


@dataclass(frozen=True)
class ConformanceReport:
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
        """Whether no check failed."""
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
            return "all checks passed"
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
    for index, settings in enumerate(_examples(program)):
        outcomes = [wrong] if (wrong := _unexaminable(program, settings)) else list[CheckOutcome]()
        if not outcomes:
            subject = Subject(program(**settings), search)
            for name, check in checks_of(program).items():
                outcomes.append(outcome_of(name, check, subject))
                if done is not None:
                    done(name)
                if outcomes[-1].status is CheckStatus.FAILED and name == "declaration":
                    break  # what comes after would fail for the same reason
            # other settings than the examples once, beside the first of them
            if index == 0 and all(outcome.status is not CheckStatus.FAILED for outcome in outcomes):
                outcomes.append(outcome_of(BESIDE, other_settings, subject))
                if done is not None:
                    done(BESIDE)
            settings = subject.program.settings()
        name = str(getattr(program, "name", program.__name__))
        yield ConformanceReport(name, dict(settings), *_claim(program), tuple(outcomes))


def parametrize(*programs: type[Program], search: SearchPlan = SEARCH) -> Callable[[Any], Any]:
    """A decorator for pytest: one item for every check at every example of the programs.

    What it decorates takes ``program`` and ``check``, and calls ``check(program)``, which raises
    AssertionError where the check fails and skips what is only noted::

        @parametrize(MyWeights)
        def test_my_weights(program, check):
            check(program)

    Raises ProgramError for ``examples`` that are none.
    """
    import pytest

    def item(cls: type[Program], settings: Mapping[str, Any], name: str, check: Check) -> Any:
        def assert_passed(program: Program) -> None:
            outcome = outcome_of(name, check, Subject(program, search))
            assert outcome.status is not CheckStatus.FAILED, f"{name}: {outcome.detail}"
            if outcome.status is CheckStatus.NOTED:
                pytest.skip(outcome.detail)

        chosen = "-".join(f"{key}={value}" for key, value in settings.items())
        label = "-".join(part for part in (str(cls.name), chosen, name) if part)
        return pytest.param(cls(**settings), assert_passed, id=label)

    items = []
    for cls in programs:
        for index, settings in enumerate(_examples(cls)):
            checks = {**checks_of(cls), **({BESIDE: other_settings} if index == 0 else {})}
            items += [item(cls, settings, name, check) for name, check in checks.items()]
    return pytest.mark.parametrize(("program", "check"), items)


def _examples(program: type[Program]) -> tuple[Mapping[str, Any], ...]:
    examples = program.examples
    listed = isinstance(examples, tuple | list) and all(isinstance(one, Mapping) for one in examples)
    if not listed or not examples:
        raise ProgramError(f"{program.__name__}: examples must be a tuple of one dict of settings or more")
    return tuple(examples)


def _unexaminable(cls: type[Program], settings: Mapping[str, object]) -> CheckOutcome | None:
    """What is wrong about a class that no check can begin with, if it is one."""
    if issubclass(cls, FirstStage) and not isinstance(cls.kind, Kind):
        known = ", ".join(f"Kind.{one.name}" for one in Kind)
        return CheckOutcome("kind", CheckStatus.FAILED, f"must be one of {known}")
    if not dataclasses.is_dataclass(cls):
        return CheckOutcome("settings", CheckStatus.FAILED, "make it a frozen dataclass")
    try:
        cls(**settings)
    except (Dp2ermError, TypeError) as error:
        return CheckOutcome("settings", CheckStatus.FAILED, str(error))
    return None


def _claim(cls: type[Program]) -> tuple[str, str]:
    """Kind, and what is proved about it."""
    if issubclass(cls, FirstStage):
        return (cls.kind.value, cls.kind.proved) if isinstance(cls.kind, Kind) else (str(cls.kind), "")
    return "second stage", "Theorems 1 and 2 from its constants"


def outcome_of(name: str, check: Check, subject: Subject) -> CheckOutcome:
    """Of a check whose own exceptions are findings: a program may do anything."""
    try:
        return CheckOutcome(name, *check(subject))
    except InfeasibleError as error:
        status = CheckStatus.FAILED if subject.program.relations else CheckStatus.NOTED
        return CheckOutcome(name, status, str(error))
    except Dp2ermError as error:
        return CheckOutcome(name, CheckStatus.FAILED, f"{type(error).__name__}: {error}")
    except Exception as error:
        return CheckOutcome(name, CheckStatus.FAILED, f"raises {type(error).__name__}: {error}")


#: In place of a setting that is infinite, which cannot be halved.
_FINITE = 1.5


def other_settings(subject: Subject) -> Judgment:
    """Every number among the settings halved and doubled, one at a time, under the cheap checks.

    A bound may be right at the examples and wrong elsewhere: a probability of 1/2 is its own complement.
    """
    program = subject.program
    cheap = {name: CHECKS[name][0] for name in ("own record", "constants")}
    if isinstance(program, FirstStage):
        # settings that nobody asked for may be hard to solve
        moved = partial(statement.movement, unsolved=noted)
        cheap = {"stated bound": CHECKS["stated bound"][0], **cheap, "movement": moved}
    few = dataclasses.replace(subject.search, evaluations=min(subject.evaluations, 60))
    variations, distinct = list(_variations(program)), list[tuple[str, str, Program]]()
    for one in variations:
        if not any(_same(one[2], known[2]) for known in distinct):
            distinct.append(one)
    for check_name, check in cheap.items():
        for name, value, other in distinct:
            smaller = dataclasses.replace(subject, program=other, sizes=(8,), larger=(), search=few)
            status, detail = check(smaller)
            if status is CheckStatus.FAILED:
                return failed(f"{name} = {value}: {check_name}: {detail}")
    tried = dict[str, dict[str, None]]()
    for name, value, _ in variations:
        tried.setdefault(name, {})[value] = None
    text = "; ".join(f"{name} = {', '.join(values)}" for name, values in tried.items())
    text = f"{text}: nothing found" if text else "no other values were tried"
    fields: Any = dataclasses.fields(program)  # type: ignore[arg-type]
    alone = [
        field.name
        for field in fields
        if field.name not in tried
        and all(
            field.name not in one or _same(one[field.name], field.default) for one in type(program).examples
        )
    ]
    resolved = program.resolve(check_domain())
    whole = [one.name for one in fields if one.name not in alone and _others(program, resolved, one) is None]
    if whole:
        text += f". {', '.join(whole)}: whole numbers, tried at those of the examples only"
    if alone:
        return noted(f"{text}. {', '.join(alone)}: only their defaults were checked")
    return passed(text)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays have no one answer
        return False


def _variations(program: Program) -> Iterator[tuple[str, str, Program]]:
    """A setting, its value in words, and the program with it: those that can be used at all.

    From the program and from every example but the first, which is named: a bound that is right at twice the
    first example may be wrong at twice the second.
    """
    starts = [(program, "")]
    for settings in type(program).examples[1:]:
        beside = ", ".join(f"{name} = {_text(value)}" for name, value in settings.items())
        with contextlib.suppress(Dp2ermError, TypeError):  # which its own run reports
            starts.append((type(program)(**settings), f" (from {beside})"))
    for start, beside in starts:
        resolved = start.resolve(check_domain())
        for field in dataclasses.fields(start):  # type: ignore[arg-type]
            for value in _others(start, resolved, field) or ():
                try:
                    other = dataclasses.replace(start, **{field.name: value})  # type: ignore[type-var]
                except (Dp2ermError, TypeError, ValueError):
                    continue  # a setting that the program refuses
                if _applies(other):
                    yield field.name, _text(value) + beside, other


def _text(value: Any) -> str:
    """A setting in a line of the report."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _others(program: Program, resolved: Program, field: dataclasses.Field[Any]) -> list[Any] | None:
    """Other values of a setting, or of what the domain makes of one that is left to it.

    None for a whole number: half of one is none, and twice a number of columns says nothing of a bound.
    """
    bound = getattr(resolved, field.name)
    value = bound if (own := getattr(program, field.name)) is None else own
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        # an annotation is a string where annotations are not evaluated: "temperature: float = 1"
        if "float" not in str(field.type) and not isinstance(field.default, float):
            return None
        value = float(value)
    if isinstance(bound, ConvexSet):
        return [kind(0.9) for kind in (L1Ball, L2Ball, Box) if not isinstance(bound, kind)]
    if isinstance(value, ElasticNet):
        return [ElasticNet(l1=0.3, l2=0.7)]
    if not isinstance(value, float):
        return []
    if math.isinf(value):
        return [_FINITE]
    return [value / 2, 2 * value] if value else [0.5]


def _applies(program: Program) -> bool:
    """Whether the program can be used at these settings: what it refuses is not for the checks."""
    domain = check_domain(40)
    try:
        if isinstance(program, FirstStage):
            program.stability(check_universe(domain, 40))
        if isinstance(program, PrivateFirstStage):
            program.resolve(domain).loss_constants(check_universe(domain))
        elif isinstance(program, SecondStage):
            program.resolve(domain).constants(check_universe(domain))
    except Dp2ermError:
        return False
    return True
