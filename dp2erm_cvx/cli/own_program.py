"""Programs of the user's own on the command line: ``FILE.py``, or ``FILE.py:CLASS`` of several."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
import sys
from typing import TYPE_CHECKING

import click

from dp2erm_cvx.errors import ProgramError

if TYPE_CHECKING:
    from dp2erm_cvx.program import Program

_FILE = re.compile(r"(?P<path>.*\.py)(:(?P<chosen>\w*))?", re.DOTALL)

_OPTIONS = {"first": "--program", "second": "--second-stage"}


def known_name(text: str, stage: str) -> str:
    """The name that ``text`` stands for, which it is itself unless it is a file.

    ``stage`` is "first" or "second". A file is executed, and its program can be used by name until the
    command ends. Raises ProgramError where it holds none of that stage, or several without a choice.
    """
    match = _FILE.fullmatch(text)
    if match is None:
        return text
    from dp2erm_cvx.registry import known_meanwhile

    cls = _chosen(match["path"], match["chosen"], stage)
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not dataclasses.is_dataclass(cls):
        raise ProgramError(f"{match['path']}: {cls.__name__} has to be a frozen dataclass with a name")
    _send_by_value(cls)
    click.get_current_context().with_resource(known_meanwhile(cls))
    return name


def _chosen(path: str, chosen: str | None, stage: str) -> type[Program]:
    from dp2erm_cvx.conformance import programs_of_file
    from dp2erm_cvx.program import FirstStage

    by_stage: dict[str, dict[str, type[Program]]] = {"first": {}, "second": {}}
    for cls in programs_of_file(path):
        by_stage["first" if issubclass(cls, FirstStage) else "second"][cls.__name__] = cls
    fitting = by_stage[stage]
    if not fitting:
        (other,) = {"first", "second"} - {stage}
        raise ProgramError(
            f"{path}: holds no {stage} stage; {', '.join(by_stage[other])} goes with {_OPTIONS[other]}"
        )
    if chosen is None and len(fitting) > 1:
        listed = ", ".join(f"{path}:{name}" for name in fitting)
        raise ProgramError(f"{path}: holds {len(fitting)} {stage} stages: choose one of {listed}")
    if chosen is None:
        return next(iter(fitting.values()))
    if chosen not in fitting:
        raise ProgramError(f"{path}: holds no {stage} stage {chosen!r}; it has {', '.join(fitting)}")
    return fitting[chosen]


def _send_by_value(cls: type[Program]) -> None:
    """Other processes cannot import a file that is not installed: joblib sends them the class itself."""
    inside = "joblib.externals.cloudpickle"  # which newer versions of joblib import from elsewhere
    pickler = importlib.import_module(inside if importlib.util.find_spec(inside) else "cloudpickle")
    pickler.register_pickle_by_value(sys.modules[cls.__module__])
