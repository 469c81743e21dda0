"""What a release states of an author's own program: files, reading and numbers."""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.balance import BalanceFunctions
from dp2erm_cvx.program.declaration import numbers_in, stated
from dp2erm_cvx.program.reach import Called, Reach, loads, reached_by_declaration

#: Most numbers of a program that are named one by one.
_MOST_NAMED = 12
#: Numbers that are named nowhere: signs, what is absent, and what has no end.
_NEVER_NAMED = frozenset({0.0, 1.0, math.inf})
#: Numbers that are not named where they stand in the code of a function.
_NOT_NAMED_IN_CODE = _NEVER_NAMED | {0.5, 2.0}


@dataclass(frozen=True)
class DeclaredExpressions:
    """What an author's functions return at the settings of a program, and what they are called for.

    Parameters
    ----------
    expressions
        Expressions and constraints that are read, by what they are.
    sets
        Public sets of the data that they ask for, by the name of the data.
    called
        Functions that are called for one record, or for a stated bound, by name.
    """

    expressions: Mapping[str, Any] = field(default_factory=dict)
    sets: Mapping[str, Any] = field(default_factory=dict)
    called: Mapping[str, Called] = field(default_factory=dict)

    @staticmethod
    def of_problem(problem: cp.Problem, records: Any) -> DeclaredExpressions:
        """A declared problem of records as a declaration sees them."""
        expressions: dict[str, Any] = {"minimize": problem.objective.args[0]}
        for place, constraint in enumerate(problem.constraints):
            expressions[f"subject to {place + 1}"] = constraint
        sets = {datum.name(): datum.within for datum in problem.parameters()}
        return DeclaredExpressions(expressions, sets, dict(records.called))

    def text(self) -> dict[str, Any]:
        """All of it with every number in full precision, in plain JSON types."""
        read = dict(zip(self.expressions, stated(*self.expressions.values()), strict=True))
        for name, within in sorted(self.sets.items()):
            read[f"data {name}"] = repr(within)
        reaches = {}
        for name, called in self.called.items():
            if called.stated():
                reaches[name] = called.stated()["reaches"]
        if not reaches:
            return {"read": read}
        return {"read": read, "reaches": reaches}

    def numbers(self) -> Iterator[float | str]:
        """Numbers of what is read, and of the sets of the author's own data."""
        for expression in self.expressions.values():
            yield from numbers_in(expression)
        for name in self.called:
            if name in self.sets:
                yield from map(float, vars(self.sets[name]).values())


def stated_program(program: Any, universe: MappedUniverse) -> dict[str, Any]:
    """What a release states of a program beside its name and settings.

    Of a program of the library it states nothing more.

    Parameters
    ----------
    program
        The resolved program.
    universe
        The public sizes that it is used at.

    Returns
    -------
    dict
        ``source``, the SHA-256 of every file of the author's by name; ``read``, the expressions
        with every number in full precision, and the sets of the data; ``reaches``, the numbers and
        texts that functions of one record reach.
    """
    functions = _functions(program)
    if not functions:
        return {}
    declared = _declared(program, universe)
    return {"source": source_of(*functions), **declared.text()}


def program_source(program: Any) -> dict[str, str]:
    """SHA-256 of the files of an author's own program, by name.

    Of a program of the library there are none.
    """
    functions = _functions(program)
    if not functions:
        return {}
    return source_of(*functions)


def assumed_public(program: Any, universe: MappedUniverse) -> tuple[str, ...]:
    """Numbers that are neither settings nor the library's, each in a sentence.

    Where a function is known to reach numbers, texts and pure functions alone, these are the
    numbers that it reaches and those that stand in its code; elsewhere every number that was read.

    Parameters
    ----------
    program
        The resolved program.
    universe
        The public sizes that it is used at.
    """
    functions = _functions(program)
    if not functions:
        return ()
    declared = _declared(program, universe)
    stated_numbers = _stated_numbers(program, universe)
    reaches = [reached_by_declaration(function) for function in functions]
    facts = [
        *_reached_facts(declared, reaches, stated_numbers),
        *_read_facts(declared, reaches, stated_numbers),
    ]
    sentences = [f"{program.name}: {fact} is public" for fact in dict.fromkeys(facts)]
    n_more = len(sentences) - _MOST_NAMED
    if n_more > 0:
        del sentences[_MOST_NAMED:]
        sentences.append(f"{program.name}: {n_more} more numbers, which it declares, are public")
    return tuple(sentences)


def assumed_in_words(program: Any, universe: MappedUniverse) -> str:
    """All that is assumed of a resolved program in one line; empty where all is derived."""
    own_data = program.own_data()
    facts = [fact.removeprefix(f"{program.name}: ") for fact in assumed_public(program, universe)]
    if program.uses_stated_bound(universe):
        facts.insert(0, "the bound as its author states it, and functions of one record alone")
    elif own_data:
        facts.insert(0, f"{', '.join(own_data)} is made record by record")
    return "; ".join(facts)


def _reached_facts(
    declared: DeclaredExpressions,
    reaches: Sequence[Reach | None],
    stated_numbers: Mapping[str, str],
) -> Iterator[str]:
    """Numbers and texts that functions reach under a name, but settings under their own.

    Parameters
    ----------
    declared
        What the functions return and are called for.
    reaches
        What the functions that are read reach; None of one that may reach more than numbers.
    stated_numbers
        Numbers that a release states anyway, by name.
    """
    for called in declared.called.values():
        for label, value in called.reach.values:
            if stated_numbers.get(label) != value:
                yield f"{label} = {value}"
    for reach in reaches:
        if reach is not None:
            for label, value in reach.values:
                yield f"{label} = {value}"


def _read_facts(
    declared: DeclaredExpressions,
    reaches: Sequence[Reach | None],
    stated_numbers: Mapping[str, str],
) -> Iterator[str]:
    """Numbers of what was read that are no settings; parameters as of :func:`_reached_facts`.

    Where it is known what the functions reach, what is computed of settings needs no word; numbers
    that stand in their code do.
    """
    all_reaches_are_known = None not in reaches
    literals: set[float] = set()
    for reach in reaches:
        if reach is not None:
            literals |= reach.literals
    for number in declared.numbers():
        if isinstance(number, str):
            yield number
            continue
        size = abs(number)
        if size in _NEVER_NAMED or repr(size) in stated_numbers.values():
            continue
        stands_in_code = size in literals and size not in _NOT_NAMED_IN_CODE
        if stands_in_code or not all_reaches_are_known:
            yield repr(number)


#: Numbers that a setting is tried at, beside some near its default.
_TRIED = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0, 2.0, 3.0, 10.0, 100.0, 1e4, 1e8, 1e-4, -1.0, -10.0)


def refuse_unused(program: Any, names: tuple[str, ...], universe: MappedUniverse) -> None:
    """Raise DeclarationError for a setting of an author's function that changes nothing.

    The code has to load every setting. At some other number of the setting something of what is
    read has to change, or the function has to fail.

    Parameters
    ----------
    program
        The resolved program of a scheme.
    names
        The author's own settings.
    universe
        Where the function is read.
    """
    function = program.scheme.function
    for name in names:
        if not loads(function, name):
            raise DeclarationError(
                f"{program.name}: its function never uses {name!r}: use it, or leave it out"
            )
    declared = program.declared_at(universe)
    if not declared.expressions:  # of a function that is called, not read
        return
    text = declared.text()
    for name in names:
        # kernels and functions are not tried: there are no others to try in their place
        is_number = isinstance(program.number(name), int | float)
        if is_number and not _changes_text(program, name, text, universe):
            raise DeclarationError(
                f"{program.name}: {name!r} changes nothing that its function returns: use it, or "
                "leave it out"
            )


def _changes_text(
    program: Any, name: str, text: Mapping[str, Any], universe: MappedUniverse
) -> bool:
    """True if another number of a setting changes the text of what is read, or makes it fail."""
    value = program.number(name)
    for other in (2.0 * value, 0.5 * value, 1.01 * value, *_TRIED):
        if other == value:
            continue
        changed = program.changed(own={**program.own, name: other})
        try:
            changed_text = changed.declared_at(universe).text()
        except Exception:  # of the author's function, of which any kind may come
            return True
        if changed_text != text:
            return True
    return False


def source_of(*functions: Callable[..., Any]) -> dict[str, str]:
    """SHA-256 of every file that functions of an author are written in, by the name of the file.

    Files of what they reach count, too, unless that is of another distribution. Of a function that
    is in no file, as in a notebook, it is that of its code, by what runs it.
    """
    digests: dict[str, str] = {}
    for path in _files(functions):
        name = path.name
        while name in digests:
            name = f"{name}, another"
        digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for function in functions:
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None and not Path(code.co_filename).is_file():
            function_name = getattr(function, "__name__", "function")
            name = f"{function_name}{_NO_FILE}: code of Python {version}"
            digests[name] = hashlib.sha256(_code_text(code).encode()).hexdigest()
    return dict(sorted(digests.items()))


#: What a release says of a function that is in no file.
_NO_FILE = ", in no file"


def written_in_a_file(name: str) -> bool:
    """True if a name of :func:`source_of` is that of a file."""
    return _NO_FILE not in name


def _functions(program: Any) -> list[Callable[..., Any]]:
    """Functions of an author's own that a program is made of; none of one of the library's."""
    functions = [called.function for called in program.own_calls().values()]
    function = program.own_function()
    if function is not None and function not in functions:
        functions.insert(0, function)
    for name in program.setting_fields():
        value = program.value(name)
        if isinstance(value, BalanceFunctions) and value.function not in functions:
            functions.append(value.function)
    return functions


def _declared(program: Any, universe: MappedUniverse) -> DeclaredExpressions:
    """What the functions of a program return and are called for.

    Functions that are settings are included.
    """
    declared = DeclaredExpressions()
    if program.own_function() is not None:
        declared = program.declared_at(universe)
    called = dict(declared.called) | program.own_calls()
    for name in program.setting_fields():
        value = program.value(name)
        if isinstance(value, BalanceFunctions):
            called[value.name] = value.called
    return DeclaredExpressions(dict(declared.expressions), declared.sets, called)


def _stated_numbers(program: Any, universe: MappedUniverse) -> dict[str, str]:
    """Settings and other public numbers that a release states, by name and as they are written."""
    settings = {name: program.value(name) for name in program.setting_fields()}
    numbers = {name: value for name, value in settings.items() if isinstance(value, int | float)}
    numbers |= program.public_numbers(universe.space) | {"n": universe.n_samples}
    written = {name: repr(value) for name, value in numbers.items()}
    # a whole number is read as a float in an expression
    for name, value in numbers.items():
        written[f"{name} as a number"] = repr(float(value))
    return written


def _files(functions: tuple[Callable[..., Any], ...]) -> list[Path]:
    """Files of functions, and of what they reach of the same author's.

    Each stands once, in a fixed order.
    """
    files: dict[str, Path] = {}
    seen: set[int] = set()
    waiting: list[Any] = list(functions)
    modules = [str(getattr(function, "__module__", "")) for function in functions]
    packages_of_author = {module.partition(".")[0] for module in modules}
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        path = _file_of(value)
        if path is None or _is_of_others(value, path, packages_of_author):
            continue
        if path.is_file():
            files[str(path.resolve())] = path
        if isinstance(value, types.FunctionType):
            waiting += _values_reached(value)
    return [files[name] for name in sorted(files)]


def _file_of(value: Any) -> Path | None:
    """The file that a function, a class, an object or a module is written in."""
    if isinstance(value, types.FunctionType):
        return Path(value.__code__.co_filename)
    if isinstance(value, types.ModuleType):
        return _path(getattr(value, "__file__", None))
    owner = value if isinstance(value, type) else type(value)
    return _path(getattr(sys.modules.get(owner.__module__), "__file__", None))


def _path(name: str | None) -> Path | None:
    """The path of a file by its name, None for no name."""
    if name is None:
        return None
    return Path(name)


def _is_of_others(value: Any, path: Path, packages_of_author: set[str]) -> bool:
    """True for a file of Python, of this package or of a distribution that is not the author's.

    Parameters
    ----------
    value
        A function, a class, an object or a module.
    path
        The file that it is written in.
    packages_of_author
        Top-level packages of the author's functions.
    """
    module: str | None
    if isinstance(value, types.ModuleType):
        module = value.__name__
    else:
        module = getattr(value, "__module__", None)
    if module is None:
        module = type(value).__module__
    package = str(module).partition(".")[0]
    if package == "dp2erm_cvx":
        return True
    if package in packages_of_author:
        return False
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder) for folder in _INSTALLED)


#: Where Python and distributions are installed.
_INSTALLED = tuple(
    {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}
    | {Path(np.__file__).resolve().parents[1]}
)


def _values_reached(function: types.FunctionType) -> list[Any]:
    """What a function reaches by its names, its closure, its defaults and its wrapper."""
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names |= set(code.co_names)
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    global_names = [name for name in sorted(names) if name in function.__globals__]
    values = [function.__globals__[name] for name in global_names]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not yet defined
            continue
    values += function.__defaults__ or ()
    values += (function.__kwdefaults__ or {}).values()
    values += vars(function).values()
    return values


def _code_text(code: types.CodeType) -> str:
    """Text of code that two functions have in common only where they do the same."""
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            constants.append(_code_text(constant))
        elif isinstance(constant, frozenset):
            # a set of texts has another order in every process
            constants.append(repr(sorted(map(repr, constant))))
        else:
            constants.append(repr(constant))
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants))
