"""Settings that no example tries: the cheap checks at some of them, and the names of the rest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.conformance.bounds import bound_of_theorem, compared_movement
from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.outcome import CheckStatus, Judgment, failed, noted, passed
from dp2erm_cvx.conformance.own_record import contributions, own_record
from dp2erm_cvx.conformance.samples import check_domain, check_universe
from dp2erm_cvx.conformance.solutions import UNSOLVED
from dp2erm_cvx.conformance.subject import Check, Subject, check_named
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet, L2Ball
from dp2erm_cvx.program import Box, FirstStage, L1Ball, PrivateFirstStage, Program, SecondStage

#: In place of a setting that is infinite, which cannot be halved.
_FINITE = 1.5


@check_named("other settings")
def other_settings(subject: Subject) -> Judgment:
    """Every number among the settings halved and doubled, one at a time, under the cheap checks.

    A bound may be right at the examples and wrong elsewhere: a probability of 1/2 is its own complement.
    """
    program, tried = subject.program, dict[str, dict[str, None]]()
    cheap: tuple[Check, ...] = (contributions, constants)
    if isinstance(program, FirstStage):
        cheap = (bound_of_theorem, own_record, constants, _few_movements)
    for one in (others := list(_variations(program))):
        tried.setdefault(one.name, {})[_text(one.value) + one.beside] = None
    few = dataclasses.replace(subject.search, evaluations=min(subject.evaluations, 60))
    for each in cheap:
        for one in _distinct(others):
            smaller = dataclasses.replace(subject, program=one.program, sizes=(8,), larger=(), search=few)
            outcome = each(smaller)
            if outcome.status is CheckStatus.FAILED:
                return failed(f"{one}: {outcome.check}: {outcome.detail}")
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


@check_named("movement")
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
