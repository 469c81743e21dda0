"""Programs by name: this package's own, those of other distributions, and for a time those of a file."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.installed import GROUP, collect
from dp2erm_cvx.program import FirstStage, Program, SecondStage

Stage = TypeVar("Stage", bound=Program)

#: Classes that :func:`known_meanwhile` has added.
_ADDED: list[type[Program]] = []


@cache
def programs() -> dict[str, type[Program]]:
    """Every registered program class by name, sorted.

    Raises ProgramError if two share a name, one has none, or the module of an entry point cannot be imported.
    """
    found, complaints = collect(entry_points(group=GROUP))
    if complaints:
        raise ProgramError(complaints[0])
    return found


def available() -> dict[str, type[Program]]:
    """Every program that can be used by name; entry points that are broken are left out with a warning."""
    return {**_sound()[0], **{cls.name: cls for cls in _ADDED}}


def first_stages() -> dict[str, type[FirstStage]]:
    """First stages that can be used by name."""
    return {name: cls for name, cls in available().items() if issubclass(cls, FirstStage)}


def second_stages() -> dict[str, type[SecondStage]]:
    """Second stages that can be used by name."""
    return {name: cls for name, cls in available().items() if issubclass(cls, SecondStage)}


@contextmanager
def known_meanwhile(cls: type[Program]) -> Iterator[None]:
    """A class that is not installed can be used by its name inside of the block.

    Raises DeclarationError where a registered program has that name.
    """
    _refuse_other(cls, available())
    _ADDED.append(cls)
    try:
        yield
    finally:
        _ADDED.remove(cls)


def refuse_taken_name(program: Program) -> None:
    """Raise DeclarationError where a program bears the name of a registered one that it is not.

    A release names its programs: one that is based on another and changes it needs a name of its own.
    """
    _refuse_other(type(program), available())


def build(known: dict[str, type[Stage]], name: str, **settings: Any) -> Stage:
    """The program called ``name`` with the given hyper-parameters.

    Raises ProgramError on an unknown name and DeclarationError on an unknown hyper-parameter.
    """
    if not isinstance(name, str) or name not in known:
        # it may be that of a broken entry point, whose names nobody can read
        unread = "".join(f"; {complaint}" for complaint in _sound()[1])
        raise ProgramError(f"unknown program {name!r}: choose one of {', '.join(known)}{unread}")
    accepted = inspect.signature(known[name]).parameters
    for setting in settings:
        if setting not in accepted:
            raise DeclarationError(
                f"{name} has no setting {setting!r}; known: {', '.join(accepted) or 'none'}"
            )
    return known[name](**settings)


@cache
def _sound() -> tuple[dict[str, type[Program]], tuple[str, ...]]:
    found, complaints = collect(entry_points(group=GROUP))
    for complaint in complaints:
        warnings.warn(f"left out: {complaint}", RuntimeWarning, stacklevel=4)
    return found, complaints


def _refuse_other(cls: type[Program], known: dict[str, type[Program]]) -> None:
    other = known.get(cls.name)
    if other is not None and cls is not other:
        raise DeclarationError(
            f"{cls.__name__} is named {cls.name!r}, as {other.__module__}.{other.__name__} is: "
            "give it a name of its own"
        )
