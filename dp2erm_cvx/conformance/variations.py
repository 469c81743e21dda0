"""Settings beside those of the examples, one changed at a time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.conformance.samples import check_domain, check_universe
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.program import (
    Box,
    ConvexSet,
    ElasticNet,
    FirstStage,
    L1Ball,
    L2Ball,
    PrivateFirstStage,
    Program,
    SecondStage,
)

#: In place of a setting that is infinite, which cannot be halved.
_FINITE = 1.5


@dataclass(frozen=True)
class Variation:
    """``program`` with its setting ``name`` at ``value``; ``beside`` tells the example, if not the first."""

    name: str
    value: Any
    program: Program
    beside: str = ""

    def __str__(self) -> str:
        return f"{self.name} = {told(self.value)}{self.beside}"


def variations(program: Program) -> Iterator[Variation]:
    """From the program and from every example but the first, those that can be used at all.

    A bound that is right at twice the first example may be wrong at twice the second.
    """
    yield from _around(program, "")
    for settings in type(program).examples[1:]:
        beside = ", ".join(f"{name} = {told(value)}" for name, value in settings.items())
        try:
            start = type(program)(**settings)
        except (Dp2ermError, TypeError):
            continue  # which its own run reports
        yield from _around(start, f" (from {beside})")


def whole_numbers(program: Program) -> list[str]:
    """Fields of integers: half of one is none, and twice a number of columns says nothing of a bound."""
    resolved = program.resolve(check_domain())
    return [
        field.name
        for field in dataclasses.fields(program)  # type: ignore[arg-type]
        if _is_integer(_number(program, resolved, field.name)) and not _takes_floats(field)
    ]


def told(value: Any) -> str:
    """A setting in a line of the report."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _around(program: Program, beside: str) -> Iterator[Variation]:
    resolved = program.resolve(check_domain())
    for field in dataclasses.fields(program):  # type: ignore[arg-type]
        for value in _others(_number(program, resolved, field.name), getattr(resolved, field.name), field):
            try:
                other = dataclasses.replace(program, **{field.name: value})  # type: ignore[type-var]
            except (Dp2ermError, TypeError, ValueError):
                continue  # a setting that the program refuses
            if _applies(other):
                yield Variation(field.name, value, other, beside)


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
