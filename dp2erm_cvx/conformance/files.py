"""Files of programs: a new one from a template, and the programs that one declares."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import keyword
import os
import re
import sys
import traceback
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.program import Program
from dp2erm_cvx.registry import programs

#: Kinds that there is a template for, and what each is for.
TEMPLATES = {
    "exponential": "weights are a function of a fitted coefficient, with a ridge (Theorem 3)",
    "quadratic": "weights balance functions of the covariates, with a ridge on one simplex (Theorem 6)",
    "direct": "any convex problem in the weights: V = 2n, or a bound that you state",
    "loss": "a second stage: weighted convex losses of <z, theta> - o (Theorems 1 and 2)",
}


#: Of the names of modules that are executed files.
_PREFIX = "dp2erm_checked_"


def program_template(name: str, kind: str) -> str:
    """Text of a file that declares a program called ``name``.

    Raises DeclarationError for a name that is no lower-case Python name or that the file needs for itself,
    and for an unknown kind.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise DeclarationError(f"name = {name!r}: must be a lower-case Python name such as my_weights")
    if kind not in TEMPLATES:
        raise DeclarationError(f"kind = {kind!r}: must be one of {', '.join(TEMPLATES)}")
    text = files("dp2erm_cvx.conformance").joinpath(f"templates/{kind}.py.txt").read_text(encoding="utf-8")
    text = text.replace("@NAME@", name)
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    taken = {alias.asname or alias.name for node in imports for alias in node.names}
    if name in taken:
        raise DeclarationError(f"name = {name!r}: the file uses it for something else; choose another name")
    return text


def load_program(name_or_file: str) -> list[type[Program]]:
    """Programs of a file that ends in .py, or the registered one of that name. Raises ProgramError."""
    if name_or_file.endswith(".py"):
        return programs_of_file(name_or_file)
    known = programs()
    if name_or_file not in known:
        raise ProgramError(f"{name_or_file!r} is neither a .py file nor one of {', '.join(known)}")
    return [known[name_or_file]]


def programs_of_file(path: str | Path) -> list[type[Program]]:
    """Every program of a Python file, which is executed.

    Raises ProgramError where the file cannot be run or holds no program, with the place of its error.
    """
    place = Path(path)
    if not os.path.isfile(place):  # which no name is too long for
        raise ProgramError(f"{path}: is no file")
    module = _executed(place)
    classes = [
        cls
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, Program) and cls.__module__ == module.__name__
    ]
    if not classes:
        raise ProgramError(f"{path}: holds no program: put a decorator of dp2erm_cvx.program on a function")
    try:
        for cls in classes:
            cls.refuse_own_class()
    except DeclarationError as error:
        raise ProgramError(f"{path}: {error}") from None
    return classes


def callable_of(text: str) -> Callable[..., Any]:
    """Object named by ``FILE.py:NAME`` or ``package.module:NAME``; a file is executed, a module imported.

    Raises ProgramError where there is no such file, module or name, or what it names cannot be called.
    """
    place, _, name = text.rpartition(":")
    if not place or not name.isidentifier():
        raise ProgramError(f"{text!r}: must look like FILE.py:NAME or package.module:NAME")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise ProgramError(f"{place}: is no file")
        module = _executed(Path(place))
    else:
        try:
            module = importlib.import_module(place)
        except Exception as error:
            raise ProgramError(f"{place}: cannot be imported: {type(error).__name__}: {error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise ProgramError(f"{place}: holds nothing called {name} that can be called")
    return function  # type: ignore[no-any-return]


def _executed(path: Path) -> ModuleType:
    # a name of its own for every version, because a dataclass looks itself up among the modules
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ProgramError(f"{path}: cannot be read: {error.strerror or error}") from None
    name = f"{_PREFIX}{path.stem}_{hashlib.sha256(source).hexdigest()[:12]}"
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
    if isinstance(error, SyntaxError) and error.lineno:
        return f", line {error.lineno}"
    names = (str(path), os.path.abspath(path))
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename in names]
    return f", line {lines[-1]}" if lines else ""
