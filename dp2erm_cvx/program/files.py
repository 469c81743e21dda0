"""Programs and functions in Python files of the user's own, which are executed to be read."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.program.registry import programs_in, refuse_taken_name
from dp2erm_cvx.program.stage import Registered, family_of
from dp2erm_cvx.program.trust import refuse_own_class

#: A file, and behind a colon the name of a scheme in it.
_FILE = re.compile(r"(?P<path>.*\.py)(:(?P<chosen>\w*))?", re.DOTALL)


def file_of(text: str) -> tuple[str, str | None] | None:
    """The path and the name of ``FILE.py`` or ``FILE.py:NAME``, or None."""
    match = _FILE.fullmatch(text)
    if match is None:
        return None
    return match["path"], match["chosen"]


def stage_of(made: Registered) -> str:
    """The stage of a program: "first" where it finds weights, "second" where it finds theta."""
    return "first" if issubclass(family_of(made), FirstStage) else "second"


def program_of_file(path: str | Path, chosen: str | None, stage: str | None = None) -> Registered:
    """The program of a file, which is executed, for use in place of a registered one.

    Parameters
    ----------
    path
        The Python file.
    chosen
        Name of the scheme, where the file holds several; None for the only one.
    stage
        "first" or "second", None where either will do.

    Raises
    ------
    ProgramError
        Where the file holds none of that stage, or several without a choice.
    DeclarationError
        Where a registered program has its name.
    """
    inside = {made.__name__: made for made in programs_of_file(path)}
    fitting = {name: made for name, made in inside.items() if stage in (None, stage_of(made))}
    if not fitting:
        other = "second" if stage == "first" else "first"
        raise ProgramError(
            f"{path}: holds no {stage} stage; {', '.join(inside)} is a {other} stage"
        )
    program = fitting[_chosen_name(path, chosen, list(fitting), stage)]
    refuse_taken_name(program)
    send_by_value(program)
    return program


def _chosen_name(path: str | Path, chosen: str | None, names: list[str], stage: str | None) -> str:
    """The name among those of a file that is chosen, or that of the only program."""
    what = "program" if stage is None else f"{stage} stage"
    if chosen is None:
        if len(names) > 1:
            listed = ", ".join(f"{path}:{name}" for name in names)
            raise ProgramError(f"{path}: holds {len(names)} {what}s: choose one of {listed}")
        return names[0]
    if chosen not in names:
        raise ProgramError(f"{path}: holds no {what} {chosen!r}; it has {', '.join(names)}")
    return chosen


def send_by_value(named: Callable[..., Any]) -> None:
    """Let joblib send what a file holds to other processes, which cannot import the file."""
    inside = "joblib.externals.cloudpickle"  # which newer versions of joblib import from elsewhere
    pickler = importlib.import_module(inside if importlib.util.find_spec(inside) else "cloudpickle")
    pickler.register_pickle_by_value(sys.modules[named.__module__])


def programs_of_file(path: str | Path) -> list[Registered]:
    """Every program of a Python file, which is executed.

    Raises ProgramError where the file cannot be run or holds no program, with the place of its
    error.
    """
    module = _executed(Path(path))
    found = programs_in(module)
    if not found:
        text = f"{path}: holds no program: put a decorator of dp2erm_cvx.program on a function"
        if any(type(value).__module__.startswith("cvxpy.") for value in vars(module).values()):
            text += ", or pass one that makes your problem for n records to scheme.from_problem"
        raise ProgramError(text)
    try:
        for made in found:
            refuse_own_class(family_of(made))
    except DeclarationError as error:
        raise ProgramError(f"{path}: {error}") from None
    return found


def callable_of(text: str) -> Callable[..., Any]:
    """Object named by ``FILE.py:NAME`` or ``package.module:NAME``.

    A file is executed, a module imported.

    Raises ProgramError where there is no such file, module or name, or what it names cannot be
    called.
    """
    place, _, name = text.rpartition(":")
    if not place or not name.isidentifier():
        raise ProgramError(f"{text!r}: must look like FILE.py:NAME or package.module:NAME")
    if place.endswith(".py"):
        module = _executed(Path(place))
    else:
        try:
            module = importlib.import_module(place)
        except Exception as error:
            raise ProgramError(
                f"{place}: cannot be imported: {type(error).__name__}: {error}"
            ) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise ProgramError(f"{place}: holds nothing called {name} that can be called")
    return function  # type: ignore[no-any-return]


def _executed(path: Path) -> ModuleType:
    """The module of a file, which is executed.

    Raises ProgramError with the place of an error in it.
    """
    if not os.path.isfile(path):  # which no name is too long for
        raise ProgramError(f"{path}: is no file")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ProgramError(f"{path}: cannot be read: {error.strerror or error}") from None
    # a name of its own for every version, because a dataclass looks itself up among the modules
    name = f"dp2erm_checked_{path.stem}_{hashlib.sha256(source).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ProgramError(f"{path}: is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = _line(error, path)
        raise ProgramError(f"{path}{line}: {type(error).__name__}: {error}") from None
    return module


def _line(error: BaseException, path: Path) -> str:
    """Where in a file an error was raised, in words; empty where nobody knows."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f", line {error.lineno}"
    names = (str(path), os.path.abspath(path))
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename in names
    ]
    return f", line {lines[-1]}" if lines else ""
