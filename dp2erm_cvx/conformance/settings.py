"""Settings that no example tries: the cheap checks at some of them, and the names of the rest."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.contributions import contributions
from dp2erm_cvx.conformance.movement import measured
from dp2erm_cvx.conformance.outcome import Outcome, Status, failed, noted, passed
from dp2erm_cvx.conformance.own_record import own_record
from dp2erm_cvx.conformance.samples import N_FEATURES, check_domain
from dp2erm_cvx.conformance.stated_bound import stated_bound
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.errors import CertificateError, Dp2ermError, InfeasibleError, SolverError
from dp2erm_cvx.program import Box, ConvexSet, ElasticNet, FirstStage, L1Ball, L2Ball, Program, SecondStage

_CHECK = "other settings"


#: In place of a setting that is infinite, which cannot be halved.
_FINITE = 1.5


def other_settings(subject: Subject) -> Outcome:
    """Every number among the settings halved and doubled, one at a time, under the cheap checks.

    A bound may be right at the examples and wrong elsewhere: a probability of 1/2 is its own complement.
    """
    program, tried = subject.program, dict[str, list[str]]()
    end = time.monotonic() + subject.seconds
    variations = [(name, value, other) for name, value, other in _variations(program) if _applies(other)]
    checks: tuple[Callable[[Subject], Outcome], ...] = (contributions, constants)
    if isinstance(program, FirstStage):
        checks = (stated_bound, own_record, constants, _movement)
    for check in checks:
        for name, value, other in variations:
            if time.monotonic() > end and check is checks[-1]:
                continue
            at = dataclasses.replace(subject, program=other, seconds=1e-3, sizes=(8,), evaluations=60)
            found = check(at)
            if found.status is Status.FAILED:
                return failed(_CHECK, f"{name} = {_told(value)}: {found.check}: {found.detail}")
            tried.setdefault(name, [])
            if _told(value) not in tried[name]:
                tried[name].append(_told(value))
    told = "; ".join(f"{name} = {', '.join(values)}" for name, values in tried.items())
    told = f"{told}: nothing found" if told else "no other values were tried"
    alone = [name for name in _at_their_defaults(program) if name not in tried]
    if alone:
        return noted(_CHECK, f"{told}. {', '.join(alone)}: only their defaults were checked")
    return passed(_CHECK, told)


def _movement(subject: Subject) -> Outcome:
    try:
        return measured(subject)
    except (InfeasibleError, SolverError, CertificateError) as error:
        return noted("movement", str(error))  # settings that nobody asked for may be hard to solve


def _variations(program: Program) -> Iterator[tuple[str, Any, Program]]:
    resolved = program.resolve(check_domain())
    for field in dataclasses.fields(program):  # type: ignore[arg-type]
        for value in _others(getattr(program, field.name), getattr(resolved, field.name)):
            try:
                yield field.name, value, dataclasses.replace(program, **{field.name: value})  # type: ignore[type-var]
            except (Dp2ermError, TypeError, ValueError):
                continue  # a setting that the program refuses


def _others(value: Any, resolved: Any) -> list[Any]:
    if isinstance(resolved, ConvexSet):
        return [kind(0.9) for kind in (L1Ball, L2Ball, Box) if not isinstance(resolved, kind)]
    if isinstance(value, ElasticNet):
        return [ElasticNet(l1=0.3, l2=0.7)]
    number = resolved if value is None else value
    if isinstance(number, bool) or not isinstance(number, float):
        return []
    if math.isinf(number):
        return [_FINITE]
    return [number / 2, 2 * number] if number else [0.5]


def _applies(program: Program) -> bool:
    """Whether the program can be used at these settings: what it refuses is not for the checks."""
    domain = check_domain(40)
    try:
        if isinstance(program, FirstStage):
            program.stability(40, domain)
        elif isinstance(program, SecondStage):
            program.resolve(domain).constants(domain, N_FEATURES)
    except Dp2ermError:
        return False
    return True


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


def _told(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
