"""Programs by name: this package's own, those of other distributions, and for a time those of a file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, TypeVar

from dp2erm_cvx.errors import DeclarationError, ProgramError, known_names
from dp2erm_cvx.program import FirstStage, Program, SecondStage

Stage = TypeVar("Stage", bound=Program)

#: Of the entry points that name modules or packages of programs.
GROUP = "dp2erm_cvx.problems"
Found = dict[str, type[Program]]

#: Classes that :func:`known_meanwhile` has added.
_ADDED: list[type[Program]] = []


@cache
def programs() -> dict[str, type[Program]]:
    """Every registered program class by name, sorted.

    Raises ProgramError if two share a name, one has none, or the module of an entry point cannot be imported.
    """
    known, complaints = collect(entry_points(group=GROUP))
    if complaints:
        raise ProgramError(complaints[0])
    return known


def available() -> dict[str, type[Program]]:
    """Every program that can be used by name; entry points that are broken are left out with a warning."""
    return {**_sound()[0], **{cls.name: cls for cls in _ADDED}}


def first_stages() -> dict[str, type[FirstStage]]:
    """First stages that can be used by name."""
    return {name: cls for name, cls in available().items() if issubclass(cls, FirstStage)}


def second_stages() -> dict[str, type[SecondStage]]:
    """Second stages that can be used by name."""
    return {name: cls for name, cls in available().items() if issubclass(cls, SecondStage)}


@cache
def parts() -> dict[str, type[Program]]:
    """Programs of this library that a pipeline solves beside its stages, by name."""
    classes = [cls for entry in entry_points(group=GROUP) if _own(entry) for cls in _classes(entry)]
    return {cls.name: cls for cls in classes if not issubclass(cls, FirstStage | SecondStage)}


@contextmanager
def known_meanwhile(cls: type[Program]) -> Iterator[None]:
    """A class that is not installed can be used by its name inside of the block.

    Raises DeclarationError where a registered program has that name.
    """
    refuse_taken_name(cls)
    _ADDED.append(cls)
    try:
        yield
    finally:
        _ADDED.remove(cls)


def refuse_taken_name(cls: type[Program]) -> None:
    """Raise DeclarationError where a class bears the name of a registered one that it is not.

    A release names its programs: one that is based on another and changes it needs a name of its own.
    """
    other = available().get(cls.name, cls)
    if cls is not other:
        raise DeclarationError(
            f"{cls.__name__} is named {cls.name!r}, as {other.__module__}.{other.__name__} is: "
            "give it a name of its own"
        )


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
            raise DeclarationError(f"{name} has no setting {setting!r}; {known_names(setting, accepted)}")
    return known[name](**settings)


@cache
def _sound() -> tuple[dict[str, type[Program]], tuple[str, ...]]:
    known, complaints = collect(entry_points(group=GROUP))
    for complaint in complaints:
        warnings.warn(f"left out: {complaint}", RuntimeWarning, stacklevel=4)
    return known, complaints


def collect(entries: Iterable[EntryPoint]) -> tuple[Found, tuple[str, ...]]:
    """Program classes by name, sorted, and what is wrong with entry points that are left out.

    An entry point is taken as a whole or not at all. Of two programs of one name that of this library stays,
    and where neither is the library's both entry points are left out: which one is meant, nobody knows.
    """
    offers: list[tuple[EntryPoint, Found]] = []
    complaints: list[str] = []
    for entry in entries:
        try:
            offers.append((entry, _offered(entry)))
        except ProgramError as error:
            complaints.append(str(error))
    left_out: set[int] = set()
    claimed: dict[str, int] = {}
    # the library's own first, so that no other distribution takes a name from it
    for place in sorted(range(len(offers)), key=lambda place: not _own(offers[place][0])):
        for name, cls in offers[place][1].items():
            holder = claimed.setdefault(name, place)
            other = offers[holder][1][name]
            if other is cls:
                continue
            complaints.append(
                f"two programs are named {name!r}: in {other.__module__} and in {cls.__module__}; "
                "rename or uninstall one"
            )
            left_out |= {place} if _own(offers[holder][0]) else {place, holder}
    valid = [classes for place, (_, classes) in enumerate(offers) if place not in left_out]
    together = {name: cls for classes in valid for name, cls in classes.items()}
    return dict(sorted(together.items())), tuple(complaints)


def _own(entry: EntryPoint) -> bool:
    return entry.dist is not None and entry.dist.name.replace("_", "-") == "dp2erm-cvx"


def _offered(entry: EntryPoint) -> Found:
    """The stages of an entry point, by name."""
    offered: Found = {}
    for cls in _classes(entry):
        if not issubclass(cls, FirstStage | SecondStage):
            continue
        try:
            cls.refuse_own_class()
        except DeclarationError as error:
            raise ProgramError(f"{cls.__module__}: {error}") from None
        if (other := offered.setdefault(cls.name, cls)) is not cls:
            raise ProgramError(
                f"two programs are named {cls.name!r}: in {other.__module__} and in {cls.__module__}; "
                "rename one"
            )
    return offered


def _classes(entry: EntryPoint) -> list[type[Program]]:
    """The programs that are written in the module of an entry point, or in every module of its package."""
    try:
        loaded = entry.load()
        if not isinstance(loaded, ModuleType):
            raise ProgramError(f"entry point group {GROUP}: must name a module or package, not {loaded!r}")
        inside = pkgutil.iter_modules(getattr(loaded, "__path__", ()), prefix=loaded.__name__ + ".")
        modules = [importlib.import_module(info.name) for info in inside] or [loaded]
    except ProgramError:
        raise
    except (Exception, SystemExit) as error:  # of another distribution: anything
        home = f" of {entry.dist.name}" if entry.dist is not None else ""
        raise ProgramError(
            f"entry point {entry.name} = {entry.value}{home} cannot be imported: {type(error).__name__}: "
            f"{error}; repair or uninstall it"
        ) from error
    classes = [(module, cls) for module in modules for _, cls in inspect.getmembers(module, inspect.isclass)]
    own = [cls for module, cls in classes if cls.__module__ == module.__name__]
    return [cls for cls in own if issubclass(cls, Program) and not inspect.isabstract(cls)]
