"""What installed distributions offer as programs, by entry point, and which entry points are broken."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from types import ModuleType

from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.program import Program

GROUP = "dp2erm_cvx.problems"

Found = dict[str, type[Program]]


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
    kept = [found for place, (_, found) in enumerate(offers) if place not in left_out]
    together = {name: cls for found in kept for name, cls in found.items()}
    return dict(sorted(together.items())), tuple(complaints)


def _own(entry: EntryPoint) -> bool:
    return entry.dist is not None and entry.dist.name.replace("_", "-") == "dp2erm-cvx"


def _offered(entry: EntryPoint) -> Found:
    found: Found = {}
    for module in _loaded(entry):
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if not issubclass(cls, Program) or inspect.isabstract(cls) or cls.__module__ != module.__name__:
                continue
            name = getattr(cls, "name", None)
            if not isinstance(name, str):
                raise ProgramError(f"{cls.__module__}.{cls.__name__} is registered and has no name")
            if (other := found.setdefault(name, cls)) is not cls:
                raise ProgramError(
                    f"two programs are named {name!r}: in {other.__module__} and in {cls.__module__}; "
                    "rename one"
                )
    return found


def _loaded(entry: EntryPoint) -> list[ModuleType]:
    try:
        return _modules(entry.load())
    except ProgramError:
        raise
    except (Exception, SystemExit) as error:  # of another distribution: anything
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
