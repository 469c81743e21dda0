"""Settings of a program: public numbers, each checked where its field says how, some left to the domain."""

from __future__ import annotations

import ast
import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.public import public_number

#: A number, or a formula of public numbers such as M and outcome_bound.
Setting = float | str


def setting(default: Any, check: Callable[..., Any] = public_number, **bounds: Any) -> Any:
    """Field of a program whose value is ``check(name, value, **bounds)``; None stays where it is the default.

    The program is a frozen dataclass; ``check`` raises DeclarationError.
    """
    return dataclasses.field(default=default, metadata={"check": (check, bounds)})


def check_settings(program: Any) -> None:
    """Put what its check returns in place of every field that has one."""
    for field in dataclasses.fields(program):
        value = getattr(program, field.name)
        if "check" in field.metadata and not (value is None and field.default is None):
            check, bounds = field.metadata["check"]
            object.__setattr__(program, field.name, check(field.name, value, **bounds))


def kept_check(bases: tuple[type[Any], ...], name: str, default: Any) -> Any:
    """Field of this name with another default, and the check of the field of the bases."""
    known = {field.name: field for base in bases for field in dataclasses.fields(base)}
    check, bounds = known[name].metadata["check"] if name in known else (public_number, {"infinite": True})
    return setting(default, check, **bounds)


def resolved(name: str, value: float | None) -> float:
    """A setting whose default depends on the domain. Raises ProgramError if it is still open."""
    if value is None:
        raise ProgramError(f"{name} is left to the domain: call resolve(domain) first")
    return value


def one_of_words(name: str, value: object, *, words: tuple[str, ...]) -> object:
    """The word. Raises DeclarationError where it is none of these."""
    if value not in words:
        raise DeclarationError(f"{name} = {value!r}: must be {' or '.join(map(repr, words))}")
    return value


def in_words(formulas: Mapping[str, Setting]) -> dict[str, str]:
    """Text of every formula, as a reader writes it."""
    return {k: v.replace("**", "^").replace("*", "") for k, v in formulas.items() if isinstance(v, str)}


_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def evaluated(name: str, formula: Setting, known: Mapping[str, float]) -> float:
    """Number of a setting: itself, or its formula in ``known`` numbers. Raises DeclarationError."""
    if not isinstance(formula, str):
        return formula

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.Name) and node.id in known:
            return known[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise DeclarationError(f"{name} = {formula!r}: a formula has numbers, {', '.join(known)}, + - * / **")

    try:
        return value(ast.parse(formula, mode="eval").body)
    except SyntaxError:
        raise DeclarationError(f"{name} = {formula!r}: is no formula") from None
