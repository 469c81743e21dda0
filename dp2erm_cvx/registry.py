"""Programs by name, found through entry points: this package's own and those of other distributions."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, TypeVar

from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.program import FirstStage, Program, SecondStage

GROUP = "dp2erm_cvx.problems"

Stage = TypeVar("Stage", bound=Program)


@cache
def programs() -> dict[str, type[Program]]:
    """Every registered program class by name, sorted.

    Raises ProgramError if two share a name, one has none, or the module of an entry point cannot be imported.
    """
    found: dict[str, type[Program]] = {}
    for entry in entry_points(group=GROUP):
        for module in _loaded(entry):
            for _, cls in inspect.getmembers(module, inspect.isclass):
                if (
                    not issubclass(cls, Program)
                    or inspect.isabstract(cls)
                    or cls.__module__ != module.__name__
                ):
                    continue
                name = getattr(cls, "name", None)
                if not isinstance(name, str):
                    raise ProgramError(f"{cls.__module__}.{cls.__name__} is registered and has no name")
                if (other := found.setdefault(name, cls)) is not cls:
                    raise ProgramError(
                        f"two programs are named {name!r}: in {other.__module__} and in {cls.__module__}; "
                        "rename or uninstall one"
                    )
    return dict(sorted(found.items()))


def first_stages() -> dict[str, type[FirstStage]]:
    """Registered first stages by name."""
    return {name: cls for name, cls in programs().items() if issubclass(cls, FirstStage)}


def second_stages() -> dict[str, type[SecondStage]]:
    """Registered second stages by name."""
    return {name: cls for name, cls in programs().items() if issubclass(cls, SecondStage)}


def refuse_taken_name(program: Program) -> None:
    """Raise DeclarationError where a program bears the name of a registered one that it is not.

    A release names its programs: one that is based on another and changes it needs a name of its own.
    """
    known = programs().get(program.name)
    if known is not None and type(program) is not known:
        raise DeclarationError(
            f"{type(program).__name__} is named {program.name!r}, as {known.__module__}.{known.__name__} is: "
            "give it a name of its own"
        )


def build(known: dict[str, type[Stage]], name: str, **settings: Any) -> Stage:
    """The program called ``name`` with the given hyper-parameters.

    Raises ProgramError on an unknown name and DeclarationError on an unknown hyper-parameter.
    """
    if not isinstance(name, str) or name not in known:
        raise ProgramError(f"unknown program {name!r}: choose one of {', '.join(known)}")
    accepted = inspect.signature(known[name]).parameters
    for setting in settings:
        if setting not in accepted:
            raise DeclarationError(
                f"{name} has no setting {setting!r}; known: {', '.join(accepted) or 'none'}"
            )
    return known[name](**settings)


def _loaded(entry: EntryPoint) -> list[ModuleType]:
    try:
        return _modules(entry.load())
    except ProgramError:
        raise
    except Exception as error:  # of another distribution: anything
        home = f" of {entry.dist.name}" if entry.dist is not None else ""
        raise ProgramError(
            f"entry point {entry.name} = {entry.value}{home} cannot be imported: {type(error).__name__}: "
            f"{error}; repair or uninstall it"
        ) from error


def _modules(loaded: object) -> list[ModuleType]:
    """A module, or every module of a package."""
    if not isinstance(loaded, ModuleType):
        raise ProgramError(f"entry point group {GROUP}: must name a module or package, not {loaded!r}")
    if not hasattr(loaded, "__path__"):
        return [loaded]
    names = [info.name for info in pkgutil.iter_modules(loaded.__path__, prefix=loaded.__name__ + ".")]
    return [importlib.import_module(name) for name in names]
