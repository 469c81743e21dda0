"""Programs by name: this package's, those of other distributions, those of a file.

The last are known for a time only.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from dp2erm_cvx.errors import DeclarationError, ProgramError, known_names
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.program.scheme import Scheme
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.stage import Program, Registered, family_of, fields_of
from dp2erm_cvx.program.trust import refuse_own_class

#: Of the entry points that name modules or packages of programs.
GROUP = "dp2erm_cvx.problems"
Found = dict[str, Registered]

#: Schemes that :func:`known_meanwhile` has added.
_ADDED: list[Registered] = []


@cache
def programs() -> Found:
    """Every registered scheme and class of programs by name, sorted.

    Raises ProgramError if two share a name, one has none, or the module of an entry point cannot be
    imported.
    """
    known, complaints = collect(entry_points(group=GROUP))
    if complaints:
        raise ProgramError(complaints[0])
    return known


def available() -> Found:
    """Every program that can be used by name.

    Entry points that are broken are left out with a warning.
    """
    return {**_sound()[0], **{made.name: made for made in _ADDED}}


def first_stages() -> Found:
    """First stages that can be used by name."""
    return _of_stage(FirstStage)


def second_stages() -> Found:
    """Second stages that can be used by name."""
    return _of_stage(SecondStage)


def _of_stage(stage: type[Any]) -> Found:
    """Programs of a stage that can be used by name."""
    return {name: made for name, made in available().items() if issubclass(family_of(made), stage)}


@cache
def parts() -> Found:
    """Programs of this library that a pipeline solves beside its stages, by name."""
    found: Found = {}
    for entry in entry_points(group=GROUP):
        if not _own(entry):
            continue
        for made in _written(entry):
            if not issubclass(family_of(made), FirstStage | SecondStage):
                found[made.name] = made
    return found


@contextmanager
def known_meanwhile(made: Registered) -> Iterator[None]:
    """A scheme that is not installed can be used by its name inside of the block.

    Raises DeclarationError where a registered program has that name.
    """
    refuse_taken_name(made)
    _ADDED.append(made)
    try:
        yield
    finally:
        _ADDED.remove(made)


def refuse_taken_name(made: Registered) -> None:
    """Raise DeclarationError where a scheme bears the name of a registered one that it is not.

    A release names its programs: one that is based on another and changes it needs a name of its
    own.
    """
    other = available().get(made.name, made)
    if made is not other:
        raise DeclarationError(
            f"{made.__name__} is named {made.name!r}, as {other.__module__}.{other.__name__} is: "
            "give it a name of its own"
        )


def build(known: Mapping[str, Registered], name: str, **settings: Any) -> Any:
    """The program called ``name`` with the given hyper-parameters.

    Raises ProgramError on an unknown name and DeclarationError on an unknown hyper-parameter.
    """
    if not isinstance(name, str) or name not in known:
        # it may be that of a broken entry point, whose names nobody can read
        unread = "".join(f"; {complaint}" for complaint in _sound()[1])
        raise ProgramError(f"unknown program {name!r}: choose one of {', '.join(known)}{unread}")
    accepted = fields_of(known[name])
    for setting in settings:
        if setting not in accepted:
            raise DeclarationError(
                f"{name} has no setting {setting!r}; {known_names(setting, accepted)}"
            )
    return known[name](**settings)


@cache
def _sound() -> tuple[Found, tuple[str, ...]]:
    """Programs of sound entry points, and complaints of the others, which are warned of."""
    known, complaints = collect(entry_points(group=GROUP))
    for complaint in complaints:
        warnings.warn(f"left out: {complaint}", RuntimeWarning, stacklevel=4)
    return known, complaints


def collect(entries: Iterable[EntryPoint]) -> tuple[Found, tuple[str, ...]]:
    """Schemes and classes of programs by name, sorted, and faults of entry points.

    Entry points with a fault are left out.

    An entry point is taken as a whole or not at all. Of two programs of one name that of this
    library stays, and where neither is the library's both entry points are left out: which one is
    meant, nobody knows.
    """
    offers: list[tuple[EntryPoint, Found]] = []
    complaints: list[str] = []
    for entry in entries:
        try:
            offers.append((entry, _offered(entry)))
        except ProgramError as error:
            complaints.append(str(error))
    # the library's own first, so that no other distribution takes a name from it
    places = sorted(range(len(offers)), key=lambda place: not _own(offers[place][0]))
    left_out: set[int] = set()
    first_place: dict[str, int] = {}
    for place in places:
        for name, made in offers[place][1].items():
            first = first_place.setdefault(name, place)
            first_entry, first_offer = offers[first]
            other = first_offer[name]
            if other is made:
                continue
            complaints.append(
                f"two programs are named {name!r}: in {other.__module__} and in {made.__module__}; "
                "rename or uninstall one"
            )
            left_out.add(place)
            if not _own(first_entry):
                left_out.add(first)
    programs_by_name: Found = {}
    for place, (_, offered) in enumerate(offers):
        if place not in left_out:
            programs_by_name |= offered
    return dict(sorted(programs_by_name.items())), tuple(complaints)


def _own(entry: EntryPoint) -> bool:
    """True for an entry point of this library."""
    return entry.dist is not None and entry.dist.name.replace("_", "-") == "dp2erm-cvx"


def _offered(entry: EntryPoint) -> Found:
    """The stages of an entry point, by name."""
    offered: Found = {}
    for made in _written(entry):
        if not issubclass(family_of(made), FirstStage | SecondStage):
            continue
        try:
            refuse_own_class(family_of(made))
        except DeclarationError as error:
            raise ProgramError(f"{made.__module__}: {error}") from None
        other = offered.setdefault(made.name, made)
        if other is not made:
            raise ProgramError(
                f"two programs are named {made.name!r}: in {other.__module__} and in "
                f"{made.__module__}; rename one"
            )
    return offered


def _written(entry: EntryPoint) -> list[Registered]:
    """The programs of an entry point's module, or of every module of its package."""
    try:
        loaded = entry.load()
        if not isinstance(loaded, ModuleType):
            raise ProgramError(
                f"entry point group {GROUP}: must name a module or package, not {loaded!r}"
            )
        inside = pkgutil.iter_modules(getattr(loaded, "__path__", ()), prefix=loaded.__name__ + ".")
        modules = [importlib.import_module(info.name) for info in inside] or [loaded]
    except ProgramError:
        raise
    except (Exception, SystemExit) as error:  # of another distribution: anything
        home = f" of {entry.dist.name}" if entry.dist is not None else ""
        raise ProgramError(
            f"entry point {entry.name} = {entry.value}{home} cannot be imported: "
            f"{type(error).__name__}: {error}; repair or uninstall it"
        ) from error
    return [made for module in modules for made in programs_in(module)]


def programs_in(module: ModuleType) -> list[Registered]:
    """The schemes and classes of programs of a module, in the order of their names."""
    found: list[Registered] = []
    for _, made in sorted(vars(module).items()):
        if _is_program(made) and made.__module__ == module.__name__ and made not in found:
            found.append(made)
    return found


def _is_program(made: object) -> bool:
    """True for a scheme, and for a class of programs that is not abstract."""
    if isinstance(made, Scheme):
        return True
    return inspect.isclass(made) and issubclass(made, Program) and not inspect.isabstract(made)
