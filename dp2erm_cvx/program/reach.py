"""What an author's function reaches beside its arguments.

It may be numbers, texts and pure functions; anything else is refused.

A function that is called for one record at a time is never read, so that nothing derives what it
depends on. It may therefore reach only what cannot hold data: what is listed in ``MODULES`` and
``BUILTINS``, numbers, texts, tuples of those, and plain functions of which the same holds. What it
reaches is found in its code, and in that of every function that it reaches. What is not understood
is refused.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import inspect
import itertools
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import scipy
from scipy import special

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.stability import Bound

#: Functions and numbers of NumPy that neither read files nor hold a state. ``empty`` is none of
#: them: it shows whatever was in memory before.
_NUMPY = """
abs absolute add all allclose amax amin any append apply_along_axis arange arccos arccosh arcsin
arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere around array array_equal asarray
ascontiguousarray atleast_1d atleast_2d average bitwise_and bitwise_or bitwise_xor broadcast_to cbrt
ceil clip column_stack compress concatenate conj convolve copy copysign cos cosh count_nonzero cov
cross cumprod cumsum deg2rad degrees diag diagonal diff digitize divide divmod dot e ediff1d einsum
equal euler_gamma exp exp2 expand_dims expm1 extract eye fabs flatnonzero flip float_power floor
floor_divide fmax fmin fmod full full_like geomspace gradient greater greater_equal heaviside
histogram hstack hypot identity inf inner insert interp invert isclose isfinite isin isinf isnan
kron ldexp less less_equal linspace log log10 log1p log2 logaddexp logaddexp2 logical_and
logical_not logical_or logical_xor logspace matmul max maximum mean median meshgrid min minimum mod
multiply nan nan_to_num nanmax nanmean nanmin nansum ndim negative newaxis nonzero not_equal ones
ones_like outer pad partition percentile pi piecewise polyval positive power prod product ptp
quantile rad2deg radians ravel reciprocal remainder repeat reshape resize rint roll round
searchsorted select shape sign signbit sin sinc sinh size sort split sqrt square squeeze stack std
subtract sum swapaxes take tan tanh tensordot tile trace transpose trapezoid tri tril triu
true_divide trunc unique vander var vdot vstack where zeros zeros_like bool_ float32 float64 int32
int64
"""
_LINALG = """
cholesky cond det eigh eigvalsh inv matrix_power matrix_rank multi_dot norm pinv qr slogdet solve
svd
"""
_SPECIAL = """
entr erf erfc exp10 expit expm1 gamma gammaln log1p log_ndtr logit logsumexp ndtr ndtri softmax
xlog1py xlogy
"""
_ITERTOOLS = """
accumulate chain combinations islice pairwise permutations product starmap takewhile zip_longest
"""
_BUILTINS = """
abs all any bool chr complex dict divmod enumerate filter float frozenset int isinstance iter len
list map max min next ord pow range reversed round set slice sorted str sum tuple zip
ArithmeticError AssertionError Exception FloatingPointError IndexError KeyError LookupError
OverflowError StopIteration TypeError ValueError ZeroDivisionError
"""


def _kept(module: Any, names: str) -> dict[str, Any]:
    """Attributes of a module by name, as they are when this package is imported."""
    return {name: getattr(module, name) for name in names.split() if hasattr(module, name)}


#: Modules that any function may reach, each with what may be taken of it.
MODULES: Mapping[types.ModuleType, Mapping[str, Any]] = {
    np: {**_kept(np, _NUMPY), "linalg": np.linalg},
    np.linalg: _kept(np.linalg, _LINALG),
    scipy: {"special": special},
    special: _kept(special, _SPECIAL),
    math: {name: value for name, value in vars(math).items() if not name.startswith("_")},
    itertools: _kept(itertools, _ITERTOOLS),
    functools: {"partial": functools.partial, "reduce": functools.reduce},
}
#: Builtins that any function may reach.
BUILTINS: Mapping[str, Any] = _kept(builtins, _BUILTINS)


def _callables(*tables: Mapping[str, Any]) -> frozenset[int]:
    """Identities of the functions and classes of tables of attributes."""
    values = [value for table in tables for value in table.values()]
    return frozenset(id(value) for value in values if callable(value))


#: Functions and classes that may be reached under any name, by identity.
_CALLABLES = _callables(*MODULES.values(), BUILTINS, {"Bound": Bound})


@functools.cache
def _of_cvxpy() -> Mapping[str, Any]:
    """Functions and classes of CVXPY by name, which a function that is read may reach.

    CVXPY may have been imported long before this is asked for. What somebody put into it meanwhile
    is left out, because it is written elsewhere.
    """
    named = vars(sys.modules["cvxpy"])
    own = {name: value for name, value in named.items() if callable(value)}
    return {
        name: value for name, value in own.items() if str(value.__module__).startswith("cvxpy.")
    }


@functools.cache
def _declaring() -> frozenset[int]:
    """Identities of the functions and classes of CVXPY."""
    return _callables(_of_cvxpy())


#: Values that are stated as they are.
_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...))
#: The same of NumPy, whose values are immutable, too.
_SCALARS = (
    *(np.bool_, np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64),
    *(np.uint8, np.uint16, np.uint32, np.uint64),
)

#: Values that a function computes with.
_VALUES = (
    np.ndarray,
    np.float64,
    np.int64,
    np.bool_,
    float,
    int,
    complex,
    str,
    tuple,
    list,
    dict,
    set,
    range,
)
#: Attributes of values that show more than the value, or write files.
_DENIED = frozenset(
    {
        *("base", "ctypes", "data", "dump", "dumps", "flags", "format", "format_map"),
        *("getfield", "setfield", "setflags", "tofile", "view"),
    }
)


def _attributes(*kinds: type) -> frozenset[str]:
    """Public attributes of objects of these types."""
    return (
        frozenset(name for kind in kinds for name in dir(kind) if not name.startswith("_"))
        - _DENIED
    )


#: Attributes that may be read of what a function is given or has made itself.
ATTRIBUTES = _attributes(*_VALUES) | {"from_l2", "from_gradient", "outer", "reduce"}


@functools.cache
def declared_attributes() -> frozenset[str]:
    """The attributes of a function that is read, of expressions and of declared records."""
    of_records = {
        "M",
        "n",
        "x",
        "y",
        "signed",
        "favored",
        "outcome_size",
        "response",
        "treatment",
        "arms",
    }
    of_records |= {"ones", "outcome_bound", "by_arm", "rows", "cells", "numbers"}
    of_expressions = _attributes(cp.Variable, cp.Parameter) - {"value", "project", "save_value"}
    return ATTRIBUTES | of_expressions | of_records


#: Instructions that only compute with what is at hand, by how their names begin (Python 3.11 to
#: 3.13).
_COMPUTING = (
    *(
        "BINARY_",
        "BUILD_",
        "CALL",
        "CHECK_EXC_MATCH",
        "COMPARE_OP",
        "CONTAINS_OP",
        "CONVERT_VALUE",
        "COPY",
    ),
    *(
        "DELETE_FAST",
        "DELETE_SUBSCR",
        "DICT_MERGE",
        "DICT_UPDATE",
        "END_FOR",
        "END_SEND",
        "FORMAT_",
        "FOR_ITER",
    ),
    *(
        "GET_ITER",
        "GET_LEN",
        "GET_YIELD_FROM_ITER",
        "IS_OP",
        "JUMP_",
        "KW_NAMES",
        "LIST_",
        "LOAD_CONST",
    ),
    *(
        "LOAD_ASSERTION_ERROR",
        "LOAD_FAST",
        "MAKE_CELL",
        "MAKE_FUNCTION",
        "MAP_ADD",
        "MATCH_KEYS",
        "MATCH_MAPPING",
    ),
    *(
        "MATCH_SEQUENCE",
        "NOP",
        "POP_",
        "PRECALL",
        "PUSH_",
        "RAISE_VARARGS",
        "RERAISE",
        "RESUME",
        "RETURN_",
        "SEND",
    ),
    *(
        "SET_ADD",
        "SET_FUNCTION_ATTRIBUTE",
        "SET_UPDATE",
        "STORE_FAST",
        "STORE_SLICE",
        "STORE_SUBSCR",
        "SWAP",
    ),
    *("TO_BOOL", "UNARY_", "UNPACK_", "YIELD_VALUE"),
)
_OF_CELLS = ("LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_TAKES = ("LOAD_ATTR", "LOAD_METHOD")
_ALONE = "write what makes each value of its own record alone"
#: Instructions that are refused: what they do, and what to do instead.
_REFUSED = {
    "IMPORT_NAME": ("imports {}", "import it at the top of the file"),
    "IMPORT_FROM": ("imports {}", "import it at the top of the file"),
    "STORE_GLOBAL": ("writes to the global {}", _ALONE),
    "DELETE_GLOBAL": ("writes to the global {}", _ALONE),
    "STORE_ATTR": ("writes to the attribute {}", _ALONE),
    "DELETE_ATTR": ("writes to the attribute {}", _ALONE),
    "LOAD_BUILD_CLASS": ("makes a class", "write functions"),
}
#: What to do in place of reaching what may hold data.
REMEDY = "pass numbers as settings of the decorator, or take a tuple of numbers"
_ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


@dataclass(frozen=True)
class Reach:
    """What a function reaches beside its arguments.

    Parameters
    ----------
    values
        Numbers and texts that it closes over, takes from modules of its author or has as defaults:
        the name by which it reaches each, and the value in full precision.
    literals
        Numbers that stand in its code.
    functions
        Plain functions that it reaches, itself first.
    """

    values: tuple[tuple[str, str], ...] = ()
    literals: frozenset[float] = frozenset()
    functions: tuple[types.FunctionType, ...] = ()


def reached(name: str, function: object) -> Reach:
    """What a function of one record, or of public numbers, reaches beside its arguments.

    Raises DeclarationError, in one line with the remedy, where that is anything but numbers, texts,
    tuples of those and functions of which the same holds: it might hold data, or remember records.
    """
    walk = _Walk(name)
    if (
        not isinstance(function, types.FunctionType | functools.partial)
        and id(function) not in _CALLABLES
    ):
        walk.refuse(f"is {_described(function)}, which may hold data", "write a plain function")
    walk.value("itself", function)
    return walk.reach()


def reached_by_declaration(function: object) -> Reach | None:
    """What a function that is read reaches beside its arguments, or None.

    It is None where that is more than numbers.

    It may take of CVXPY and of this package what it likes: what counts is the expression that comes
    out.
    """
    walk = _Walk("", declares=True)
    try:
        walk.value("itself", function)
    except DeclarationError:
        return None
    return walk.reach()


def loads(function: Callable[..., Any], argument: str) -> bool:
    """True if the code of a function, or code inside of it, ever loads an argument.

    Also where arguments are taken by other ways, which are not looked into: by ``locals()``, or as
    a whole.
    """
    code = inspect.unwrap(function).__code__
    if argument not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return True
    for step in dis.get_instructions(code):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if step.opname.startswith("LOAD_") and argument in names:
            return True
        if step.opname == "LOAD_GLOBAL" and step.argval in ("eval", "exec", "locals", "vars"):
            return True
    return any(
        isinstance(part, types.CodeType) and argument in part.co_freevars for part in code.co_consts
    )


@dataclass(frozen=True)
class Called:
    """An author's function that is called, not read, with what it reached when it was declared.

    Parameters
    ----------
    name
        What messages and releases call it.
    function
        The function.
    reach
        What it reaches beside its arguments.
    """

    name: str
    function: Callable[..., Any]
    reach: Reach

    @staticmethod
    def of(name: str, function: Callable[..., Any]) -> Called:
        """A function with what it reaches. Raises DeclarationError as :func:`reached`."""
        return Called(name, function, reached(name, function))

    def stated(self) -> dict[str, Any]:
        """What it reaches, in plain JSON types for a release; nothing where it reaches nothing."""
        values: dict[str, list[str]] = {}
        for label, value in self.reach.values:
            values.setdefault(label, []).append(value)
        return (
            {"reaches": {label: ", ".join(several) for label, several in values.items()}}
            if values
            else {}
        )

    def unchanged(self) -> Callable[..., Any]:
        """The function.

        Raises DeclarationError where it now reaches other numbers than when declared.
        """
        now = reached(self.name, self.function).values
        for label, value in self.reach.values:
            if (label, value) not in now:
                other = dict(now).get(label, "nothing")
                raise DeclarationError(
                    f"{self.name!r} reaches {label} = {other}, which was {value} when it was "
                    "declared: declare it again"
                )
        return self.function


class _Walk:
    """One walk through the code of a function and of all that it reaches.

    ``declares`` says that the function is read: it makes expressions of CVXPY, of objects of this
    package.
    """

    def __init__(self, name: str, *, declares: bool = False) -> None:
        self.name, self.declares = name, declares
        self.attributes = declared_attributes() if declares else ATTRIBUTES
        self.values: dict[tuple[str, str], None] = {}
        self.literals: set[float] = set()
        self.functions: dict[int, types.FunctionType] = {}

    def reach(self) -> Reach:
        """What was found."""
        return Reach(tuple(self.values), frozenset(self.literals), tuple(self.functions.values()))

    def refuse(self, what: str, remedy: str = REMEDY) -> NoReturn:
        """Raise DeclarationError for what the function reaches or does."""
        raise DeclarationError(f"{self.name!r} {what}: {remedy}")

    def value(self, label: str, value: object) -> None:
        """Take up a value that is reached under a name."""
        if id(value) in _CALLABLES or self.declares_with(value):
            return
        if isinstance(value, types.FunctionType):
            self.function(value)
        elif type(value) in _PLAIN:
            self.values[label, repr(value)] = None
        elif isinstance(value, np.generic) and type(value) in _SCALARS:
            self.values[label, repr(value.item())] = None
        elif type(value) is tuple:
            if not value:
                self.values[label, "()"] = None
            for place, part in enumerate(value):
                self.value(f"{label}[{place}]", part)
        elif type(value) is functools.partial:
            self.partial(label, value)
        else:
            self.refuse(f"reaches {label}, {_described(value)}, which may hold data")

    def partial(self, label: str, value: functools.partial[Any]) -> None:
        """Take up a function with some of its arguments."""
        if vars(value):
            self.refuse(f"reaches attributes of {label}, which may hold data")
        self.value(label, value.func)
        for place, argument in enumerate(value.args):
            self.value(f"argument {place} of {label}", argument)
        for name, argument in value.keywords.items():
            self.value(f"{name} of {label}", argument)

    def function(self, function: types.FunctionType) -> None:
        """Take up a plain function: its attributes, defaults and code."""
        if id(function) in self.functions:
            return
        self.functions[id(function)] = function
        for name, attribute in vars(function).items():
            if name != "__wrapped__":
                self.refuse(f"reaches {name!r}, an attribute of the function {function.__name__}")
            self.value(function.__name__, attribute)
        code = function.__code__
        arguments = code.co_varnames[: code.co_argcount]
        defaults = function.__defaults__ or ()
        for name, default in zip(
            arguments[len(arguments) - len(defaults) :], defaults, strict=True
        ):
            self.value(name, default)
        for name, default in (function.__kwdefaults__ or {}).items():
            self.value(name, default)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        self.code(code, function, cells)

    def code(
        self, code: types.CodeType, function: types.FunctionType, cells: Mapping[str, Any]
    ) -> None:
        """Take up the code of a function or inside of it; ``cells`` are what it closes over."""
        if code.co_flags & _ASYNCHRONOUS:
            self.refuse("is asynchronous", "write a plain function")
        steps = [
            step
            for step in dis.get_instructions(code)
            if step.opname not in ("EXTENDED_ARG", "CACHE")
        ]
        place = 0
        while place < len(steps):
            step = steps[place]
            place += 1
            if step.opname == "LOAD_GLOBAL":
                place += self.taken(step.argval, self.found(step.argval, function), steps[place:])
            elif step.opname in _OF_CELLS and step.argval in cells:
                place += self.taken(
                    step.argval, self.held(step.argval, cells[step.argval]), steps[place:]
                )
            else:
                self.computed(step, code)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                inner = {name: cell for name, cell in cells.items() if name in constant.co_freevars}
                self.code(constant, function, inner)
            else:
                self.literals.update(_numbers(constant))

    def computed(self, step: dis.Instruction, code: types.CodeType) -> None:
        """Refuse an instruction that does more than to compute with what is at hand."""
        name = step.argval
        if step.opname in _REFUSED:
            what, remedy = _REFUSED[step.opname]
            self.refuse(what.format(repr(name)), remedy)
        if step.opname in _TAKES:
            if name not in self.attributes:
                self.refuse(
                    f"takes the attribute {name!r}",
                    "compute with numbers, arrays and their methods",
                )
        elif step.opname in ("STORE_DEREF", "DELETE_DEREF"):
            if name in code.co_freevars:
                self.refuse(f"writes to {name!r} of the function around it", _ALONE)
        elif not step.opname.startswith(_COMPUTING) and step.opname not in _OF_CELLS:
            self.refuse(
                f"does what is not understood ({step.opname})",
                "write it with numbers and functions",
            )

    def found(self, name: str, function: types.FunctionType) -> object:
        """A global of a function, or a builtin that any function may reach."""
        if name in function.__globals__:
            return function.__globals__[name]
        if not hasattr(builtins, name):
            self.refuse(
                f"reaches {name!r}, which is not defined", "define it before the declaration"
            )
        own: Mapping[str, Any] = getattr(function, "__builtins__", {})
        if name not in BUILTINS or own.get(name) is not BUILTINS[name]:
            self.refuse(f"reaches the builtin {name!r}", _ALONE)
        return BUILTINS[name]

    def held(self, name: str, cell: Any) -> object:
        """What a function closes over under a name."""
        try:
            return cell.cell_contents
        except ValueError:
            self.refuse(
                f"reaches {name!r}, which is not defined", "define it before the declaration"
            )

    def taken(self, name: str, value: object, following: Sequence[dis.Instruction]) -> int:
        """Take up a value by its name, or what the code takes of a module.

        Returns the number of attributes used.
        """
        used = 0
        while isinstance(value, types.ModuleType):
            if used == len(following) or following[used].opname not in _TAKES:
                self.refuse(
                    f"reaches the module {name} as a whole",
                    f"write {name}. and what it takes of it",
                )
            attribute = following[used].argval
            value = self.of_module(name, value, attribute)
            name = f"{name}.{attribute}"
            used += 1
            if isinstance(
                value, float | None
            ):  # a constant of a module that is known, such as math.pi
                return used
        takes = used < len(following) and following[used].opname in _TAKES
        if takes and isinstance(value, types.FunctionType | functools.partial):
            self.refuse(f"reaches {name}.{following[used].argval}, an attribute of a function")
        self.value(name, value)
        return used

    def of_module(self, name: str, module: types.ModuleType, attribute: str) -> object:
        """An attribute of a module, where it is known to hold no data."""
        kept = MODULES.get(module, {})
        if self.declares and module in (cp, sys.modules.get("cvxpy")):
            kept = _of_cvxpy()
        elif module not in MODULES:
            remedy = (
                f"write from {module.__name__} import {attribute}, where it is a plain function or "
                "a number"
            )
            self.refuse(f"reaches the module {name}", remedy)
        if attribute not in kept:
            self.refuse(f"reaches {name}.{attribute}, which is not known to hold no data", _ALONE)
        if getattr(module, attribute) is not kept[attribute]:
            self.refuse(f"reaches {name}.{attribute}, which was replaced", "leave it as it is")
        return kept[attribute]

    def declares_with(self, value: object) -> bool:
        """True of classes and functions of CVXPY and of this package, where a function is read."""
        if not self.declares or not isinstance(
            value, type | types.FunctionType | types.BuiltinFunctionType
        ):
            return False
        home = str(value.__module__)
        found = getattr(sys.modules.get(home), value.__name__, None) is value
        return id(value) in _declaring() or (found and home.startswith("dp2erm_cvx."))


def _described(value: object) -> str:
    """What kind of object is reached, in words."""
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, types.MethodType | types.BuiltinMethodType):
        owner = value.__self__
        if isinstance(owner, types.ModuleType | None):
            return f"the function {value.__name__}"
        return f"a method of {_described(owner)}"
    if isinstance(value, np.ndarray):
        return "an array"
    return f"an object of the class {type(value).__name__}"


def _numbers(constant: object) -> Iterator[float]:
    """Numbers of a constant of code."""
    if isinstance(constant, int | float) and not isinstance(constant, bool):
        with contextlib.suppress(OverflowError):  # a whole number that is no size of anything
            yield float(constant)
    elif isinstance(constant, tuple | frozenset):
        for part in constant:
            yield from _numbers(part)
