"""Settings that no example tries: the cheap checks at some of them, and the names of the rest."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Container
from typing import Any

from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.contributions import contributions
from dp2erm_cvx.conformance.movement import measured
from dp2erm_cvx.conformance.outcome import Outcome, Status, failed, noted, passed
from dp2erm_cvx.conformance.own_record import own_record
from dp2erm_cvx.conformance.stated_bound import stated_bound
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.conformance.variations import told, variations, whole_numbers
from dp2erm_cvx.errors import CertificateError, InfeasibleError, SolverError
from dp2erm_cvx.program import FirstStage, Program

_CHECK = "other settings"


def other_settings(subject: Subject) -> Outcome:
    """Every number among the settings halved and doubled, one at a time, under the cheap checks.

    A bound may be right at the examples and wrong elsewhere: a probability of 1/2 is its own complement.
    """
    program, tried = subject.program, dict[str, list[str]]()
    end, late = time.monotonic() + subject.seconds, 0
    others = list(variations(program))
    checks: tuple[Callable[[Subject], Outcome], ...] = (contributions, constants)
    if isinstance(program, FirstStage):
        checks = (stated_bound, own_record, constants, _movement)
    for check in checks:
        for one in others:
            if time.monotonic() > end and check is checks[-1]:
                late += 1
                continue
            at = dataclasses.replace(subject, program=one.program, seconds=1e-3, sizes=(8,), evaluations=60)
            found = check(at)
            if found.status is Status.FAILED:
                return failed(_CHECK, f"{one}: {found.check}: {found.detail}")
            values = tried.setdefault(one.name, [])
            if (value := told(one.value) + one.beside) not in values:
                values.append(value)
    text = "; ".join(f"{name} = {', '.join(values)}" for name, values in tried.items())
    text = f"{text}: nothing found" if text else "no other values were tried"
    if late:
        text += f", {late} of {len(others)} without the check of {_LAST[checks[-1]]} for want of time"
    return _with_what_was_left_out(program, text, tried)


def _with_what_was_left_out(program: Program, text: str, tried: Container[str]) -> Outcome:
    alone = [name for name in _at_their_defaults(program) if name not in tried]
    whole = [name for name in whole_numbers(program) if name not in alone]
    if whole:
        text += f". {', '.join(whole)}: whole numbers, tried at those of the examples only"
    if alone:
        return noted(_CHECK, f"{text}. {', '.join(alone)}: only their defaults were checked")
    return passed(_CHECK, text)


def _movement(subject: Subject) -> Outcome:
    try:
        return measured(subject)
    except (InfeasibleError, SolverError, CertificateError) as error:
        return noted("movement", str(error))  # settings that nobody asked for may be hard to solve


#: What the last checks are about, which end with the time.
_LAST: dict[Callable[[Subject], Outcome], str] = {constants: "constants", _movement: "movement"}


def _at_their_defaults(program: Program) -> list[str]:
    """Fields that no example sets to another value than their default."""
    examples = type(program).examples
    names = []
    for field in dataclasses.fields(program):  # type: ignore[arg-type]
        default = field.default
        if all(field.name not in one or _same(one[field.name], default) for one in examples):
            names.append(field.name)
    return names


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays have no one answer
        return False
