"""Programs whose bounds are proved: the library's own classes as they are."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.scheme import HELD, REMEDY, Scheme

#: The classes of programs of the library, by their modules. What is no object found here under its
#: name is somebody else's, whatever module and name it claims.
LIBRARY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dp2erm_cvx.program.separable": (
            "SeparableFirstStage",
            "PrivateFirstStage",
            "BalancedProgram",
            "PrivateBalancedProgram",
        ),
        "dp2erm_cvx.program.second_stage": ("SecondStage",),
        "dp2erm_cvx.program.direct_stage": ("WeightsProgram",),
        "dp2erm_cvx.program.moment_weights": ("MomentWeights",),
        "dp2erm_cvx.program.weights": ("KnownWeights",),
        "dp2erm_cvx.problems.known_weights": ("Uniform", "KnownCoefficient", "RandomizedTrial"),
        "dp2erm_cvx.problems.multinomial_propensity": ("MultinomialPropensity",),
        "dp2erm_cvx.problems.paper_entropy_balancing": ("PaperEntropyBalancing",),
    }
)


def of_library(kind: type[Any]) -> bool:
    """True if a class is one of :data:`LIBRARY`, by the identity of the object."""
    for module, names in LIBRARY.items():
        loaded = sys.modules.get(module)
        if any(getattr(loaded, name, None) is kind for name in names):
            return True
    return False


def is_of_library(program: Any) -> bool:
    """True if the library wrote a program: its scheme, or its class where it has none."""
    if "scheme" in {field.name for field in dataclasses.fields(program)}:
        return bool(program.scheme.of_library)
    return of_library(type(program))


def refuse_own_class(kind: type[Any]) -> None:
    """Raise DeclarationError for a class of programs that is not the library's."""
    if not of_library(kind):
        raise DeclarationError(f"{kind.__name__}: {REMEDY}")


def refuse_patched(program: Any) -> None:
    """Raise DeclarationError where a program or a setting was changed after it was made.

    A method or a number of an instance would take the place of what is derived.
    """
    refuse_own_class(type(program))
    field_names = [field.name for field in dataclasses.fields(program)]
    for name in vars(program):
        if name not in field_names:
            raise DeclarationError(
                f"{type(program).__name__}: {name!r} was put on it after it was made: {REMEDY}"
            )
    if "scheme" in field_names:
        refuse_other_scheme(program)
    for name, field in program.setting_fields().items():
        value = program.value(name)
        if not _alike(checked_setting(name, field, value), value):
            raise DeclarationError(
                f"{program.name}: {name} was changed after it was made: make another program"
            )
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            _refuse_patched_part(f"{program.name}: {name}", value)


def refuse_other_scheme(program: Any) -> None:
    """Raise DeclarationError where a declared program is not of its scheme.

    The scheme must be one of the class of the program, and its settings those of the program.
    """
    scheme = program.scheme
    if type(scheme) is not Scheme or scheme.family is not type(program):
        raise DeclarationError(f"{type(program).__name__}: call a scheme, which makes its programs")
    fields = {field.name: field for field in dataclasses.fields(program)}
    own = [name for name in scheme.settings if name not in fields]
    if list(program.own) != own:
        raise DeclarationError(f"{scheme.name}: its own settings are {', '.join(own) or 'none'}")
    for name, field in fields.items():
        if name not in (*scheme.settings, *HELD) and getattr(program, name) != field.default:
            raise DeclarationError(f"{scheme.name} has no setting {name!r}")


def checked_setting(name: str, field: Any, value: Any) -> Any:
    """What the check of a setting makes of its value.

    Parameters
    ----------
    name
        Name of the setting.
    field
        Its field of a dataclass, whose metadata hold the check.
    value
        Its value.

    Raises
    ------
    DeclarationError
        For a value that the check refuses.
    """
    if "check" not in field.metadata:
        return value
    if value is None and field.metadata["optional"]:
        return value
    check, bounds = field.metadata["check"]
    return check(field.metadata["title"] + name, value, **bounds)


def _refuse_patched_part(what: str, part: Any) -> None:
    """Raise DeclarationError where a set, a kernel or the like was changed after it was made."""
    fields = {field.name: field for field in dataclasses.fields(part)}
    arguments = {name: getattr(part, name) for name, field in fields.items() if field.init}
    for name in vars(part):
        if name not in fields:
            raise DeclarationError(
                f"{what}: {name!r} was put on it after it was made: make another one"
            )
    made_again = type(part)(**arguments)
    for name in fields:
        if not _alike(getattr(made_again, name), getattr(part, name)):
            raise DeclarationError(
                f"{what}: {name} was changed after it was made: make another one"
            )


def _alike(one: Any, other: Any) -> bool:
    """True if two values are the same object or equal, of arrays in every entry."""
    return one is other or bool(np.all(one == other))
