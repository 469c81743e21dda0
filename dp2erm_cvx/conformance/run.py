"""All checks of one program, at its examples and at other settings, as a report or as pytest items."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.conformance.bounds import bound_of_theorem, compared_movement, movement, short_audit
from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.own_record import contributions, own_record
from dp2erm_cvx.conformance.perturbation import coefficient_noise, perturbation, unconstrained
from dp2erm_cvx.conformance.report import (
    SEARCH,
    Check,
    CheckOutcome,
    CheckStatus,
    ConformanceReport,
    Judgment,
    Subject,
    failed,
    noted,
    passed,
)
from dp2erm_cvx.conformance.samples import check_domain, check_universe
from dp2erm_cvx.conformance.solutions import (
    UNSOLVED,
    agreement,
    balance,
    certified_in_advance,
    feasibility,
    model_and_declaration,
    strong_convexity,
)
from dp2erm_cvx.conformance.statement import declaration, fixed_set, kind, public_numbers, statement
from dp2erm_cvx.errors import Dp2ermError, InfeasibleError, ProgramError
from dp2erm_cvx.model.sets import ElasticNet, L2Ball
from dp2erm_cvx.program import (
    Box,
    ConvexSet,
    FirstStage,
    Kind,
    L1Ball,
    PrivateFirstStage,
    Program,
    SecondStage,
)

_BOTH: dict[str, Check] = {
    "statement": statement,
    "declaration": declaration,
    "solver agreement": agreement,
    "feasibility": feasibility,
    "strong convexity": strong_convexity,
}
_SOLVED: dict[str, Check] = {
    "declaration and model": model_and_declaration,
    "fixed feasible set": fixed_set,
    "public numbers": public_numbers,
}
_FIRST: dict[str, Check] = {
    "kind": kind,
    **_BOTH,
    "balance": balance,
    **_SOLVED,
    "own record": own_record,
    "constants": constants,
    "stated bound": bound_of_theorem,
    "movement": movement,
    "audit": short_audit,
    "certified by design": certified_in_advance,
}
_SECOND: dict[str, Check] = {
    **_BOTH,
    **_SOLVED,
    "weights, gamma, noise": perturbation,
    "own record": contributions,
    "without Theta": unconstrained,
    "constants": constants,
    "certified by design": certified_in_advance,
}
#: The check that is run once, beside the first example.
BESIDE = "other settings"


def checks_of(cls: type[Program]) -> dict[str, Check]:
    """All that a program of this class is examined by, at each choice of its settings, by name."""
    if issubclass(cls, PrivateFirstStage):
        return {**_FIRST, "gamma, noise": coefficient_noise}
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
    program, tried = subject.program, dict[str, dict[str, None]]()
    cheap: dict[str, Check] = {"own record": contributions, "constants": constants}
    if isinstance(program, FirstStage):
        cheap = {"stated bound": bound_of_theorem, "own record": own_record, "constants": constants}
        cheap["movement"] = _few_movements
    for one in (others := list(_variations(program))):
        tried.setdefault(one.name, {})[_text(one.value) + one.beside] = None
    few = dataclasses.replace(subject.search, evaluations=min(subject.evaluations, 60))
    for name, check in cheap.items():
        for one in _distinct(others):
            smaller = dataclasses.replace(subject, program=one.program, sizes=(8,), larger=(), search=few)
            status, detail = check(smaller)
            if status is CheckStatus.FAILED:
                return failed(f"{one}: {name}: {detail}")
    text = "; ".join(f"{name} = {', '.join(values)}" for name, values in tried.items())
    return _with_what_was_left_out(
        program, f"{text}: nothing found" if text else "no other values were tried", tried
    )


def _distinct(others: list[_Variation]) -> list[_Variation]:
    programs = [one.program for one in others]
    return [
        one
        for place, one in enumerate(others)
        if not any(_same(one.program, earlier) for earlier in programs[:place])
    ]


def _few_movements(subject: Subject) -> Judgment:
    try:
        return compared_movement(subject)
    except UNSOLVED as error:
        return noted(str(error))  # settings that nobody asked for may be hard to solve


def _with_what_was_left_out(program: Program, text: str, tried: Container[str]) -> Judgment:
    alone = [name for name in _at_their_defaults(program) if name not in tried]
    whole = [name for name in _whole_numbers(program) if name not in alone]
    if whole:
        text += f". {', '.join(whole)}: whole numbers, tried at those of the examples only"
    if alone:
        return noted(f"{text}. {', '.join(alone)}: only their defaults were checked")
    return passed(text)


def _at_their_defaults(program: Program) -> list[str]:
    """Fields that no example sets to another value than their default."""
    examples = type(program).examples
    return [
        field.name
        for field in dataclasses.fields(program)  # type: ignore[arg-type]
        if all(field.name not in one or _same(one[field.name], field.default) for one in examples)
    ]


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays have no one answer
        return False


@dataclass(frozen=True)
class _Variation:
    """``program`` with its setting ``name`` at ``value``; ``beside`` names the example, if not the first."""

    name: str
    value: Any
    program: Program
    beside: str = ""

    def __str__(self) -> str:
        return f"{self.name} = {_text(self.value)}{self.beside}"


def _variations(program: Program) -> Iterator[_Variation]:
    """From the program and from every example but the first, those that can be used at all.

    A bound that is right at twice the first example may be wrong at twice the second.
    """
    yield from _around(program, "")
    for settings in type(program).examples[1:]:
        beside = ", ".join(f"{name} = {_text(value)}" for name, value in settings.items())
        try:
            start = type(program)(**settings)
        except (Dp2ermError, TypeError):
            continue  # which its own run reports
        yield from _around(start, f" (from {beside})")


def _whole_numbers(program: Program) -> list[str]:
    """Fields of integers: half of one is none, and twice a number of columns says nothing of a bound."""
    resolved = program.resolve(check_domain())
    return [
        field.name
        for field in dataclasses.fields(program)  # type: ignore[arg-type]
        if _is_integer(_number(program, resolved, field.name)) and not _takes_floats(field)
    ]


def _text(value: Any) -> str:
    """A setting in a line of the report."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _around(program: Program, beside: str) -> Iterator[_Variation]:
    resolved = program.resolve(check_domain())
    for field in dataclasses.fields(program):  # type: ignore[arg-type]
        for value in _others(_number(program, resolved, field.name), getattr(resolved, field.name), field):
            try:
                other = dataclasses.replace(program, **{field.name: value})  # type: ignore[type-var]
            except (Dp2ermError, TypeError, ValueError):
                continue  # a setting that the program refuses
            if _applies(other):
                yield _Variation(field.name, value, other, beside)


def _number(program: Program, resolved: Program, name: str) -> Any:
    """A setting, or what the domain makes of one that is left to it."""
    value = getattr(program, name)
    return getattr(resolved, name) if value is None else value


def _others(value: Any, resolved: Any, field: dataclasses.Field[Any]) -> list[Any]:
    if isinstance(resolved, ConvexSet):
        return [kind(0.9) for kind in (L1Ball, L2Ball, Box) if not isinstance(resolved, kind)]
    if isinstance(value, ElasticNet):
        return [ElasticNet(l1=0.3, l2=0.7)]
    if _is_integer(value) and _takes_floats(field):
        value = float(value)  # "temperature: float = 1"
    if not isinstance(value, float):
        return []
    if math.isinf(value):
        return [_FINITE]
    return [value / 2, 2 * value] if value else [0.5]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _takes_floats(field: dataclasses.Field[Any]) -> bool:
    # an annotation is a string where annotations are not evaluated
    return "float" in str(field.type) or isinstance(field.default, float)


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
