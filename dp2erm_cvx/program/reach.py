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
def _cvxpy_names() -> Mapping[str, Any]:
    """Functions and classes of CVXPY by name, which a function that is read may reach.

    CVXPY may have been imported long before this is asked for. What somebody put into it meanwhile
    is left out, because it is written elsewhere.
    """
    attributes = vars(sys.modules["cvxpy"])
    callables = {name: value for name, value in attributes.items() if callable(value)}
    return {
        name: value
        for name, value in callables.items()
        if str(value.__module__).startswith("cvxpy.")
    }


@functools.cache
def _cvxpy_callables() -> frozenset[int]:
    """Identities of the functions and classes of CVXPY."""
    return _callables(_cvxpy_names())


#: Types of immutable values, which are stated as they are.
_PLAIN_TYPES = (int, float, complex, str, bytes, bool, type(None), type(...))
#: The same of NumPy, whose scalars are immutable, too.
_NUMPY_SCALARS = (
    np.bool_,
    np.float16,
    np.float32,
    np.float64,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
)

#: Types of the values that a function computes with.
_COMPUTED_TYPES = (
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
_DENIED = """
base ctypes data dump dumps flags format format_map getfield setfield setflags tofile view
"""


def _attributes(*types_of_values: type) -> frozenset[str]:
    """Public attributes of objects of these types, without those that are denied."""
    names: set[str] = set()
    for one in types_of_values:
        names.update(name for name in dir(one) if not name.startswith("_"))
    return frozenset(names.difference(_DENIED.split()))


#: Attributes that may be read of what a function is given or has made itself.
ATTRIBUTES = _attributes(*_COMPUTED_TYPES) | {"from_l2", "from_gradient", "outer", "reduce"}

#: Attributes of declared records, for a function that is read.
_OF_RECORDS = """
M n x y signed favored outcome_size response treatment arms ones outcome_bound by_arm rows cells
numbers
"""


@functools.cache
def declared_attributes() -> frozenset[str]:
    """The attributes of a function that is read, of expressions and of declared records."""
    of_expressions = _attributes(cp.Variable, cp.Parameter) - {"value", "project", "save_value"}
    return ATTRIBUTES | of_expressions | set(_OF_RECORDS.split())


#: Instructions that only compute with what is at hand, by how their names begin (Python 3.11 to
#: 3.13).
_COMPUTING_NAMES = """
BINARY_ BUILD_ CALL CHECK_EXC_MATCH COMPARE_OP CONTAINS_OP CONVERT_VALUE COPY DELETE_FAST
DELETE_SUBSCR DICT_MERGE DICT_UPDATE END_FOR END_SEND FORMAT_ FOR_ITER GET_ITER GET_LEN
GET_YIELD_FROM_ITER IS_OP JUMP_ KW_NAMES LIST_ LOAD_CONST LOAD_ASSERTION_ERROR LOAD_FAST MAKE_CELL
MAKE_FUNCTION MAP_ADD MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE NOP POP_ PRECALL PUSH_ RAISE_VARARGS
RERAISE RESUME RETURN_ SEND SET_ADD SET_FUNCTION_ATTRIBUTE SET_UPDATE STORE_FAST STORE_SLICE
STORE_SUBSCR SWAP TO_BOOL UNARY_ UNPACK_ YIELD_VALUE
"""
_COMPUTING = tuple(_COMPUTING_NAMES.split())
#: Instructions that load what a function closes over.
_LOADS_CELL = ("LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
#: Instructions that take an attribute of the value that was loaded last.
_TAKES_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
#: Entries of a listing of instructions that are no instructions of their own.
_FILLING = ("EXTENDED_ARG", "CACHE")
#: The remedy for what could carry values from one record to another.
_BY_RECORD = "write what makes each value of its own record alone"
#: Instructions that are refused: what they do, and what to do instead.
_REFUSED = {
    "IMPORT_NAME": ("imports {}", "import it at the top of the file"),
    "IMPORT_FROM": ("imports {}", "import it at the top of the file"),
    "STORE_GLOBAL": ("writes to the global {}", _BY_RECORD),
    "DELETE_GLOBAL": ("writes to the global {}", _BY_RECORD),
    "STORE_ATTR": ("writes to the attribute {}", _BY_RECORD),
    "DELETE_ATTR": ("writes to the attribute {}", _BY_RECORD),
    "LOAD_BUILD_CLASS": ("makes a class", "write functions"),
}
#: What to do in place of reaching what may hold data.
REMEDY = "pass numbers as settings of the decorator, or take a tuple of numbers"
#: Flags of the code of functions that run in steps of their own.
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

    Parameters
    ----------
    name
        What messages call the function.
    function
        The function.

    Raises
    ------
    DeclarationError
        In one line with the remedy, where that is anything but numbers, texts, tuples of those and
        functions of which the same holds: it might hold data, or remember records.
    """
    walk = _Walk(name)
    is_function = isinstance(function, types.FunctionType | functools.partial)
    if not is_function and id(function) not in _CALLABLES:
        walk.refuse(f"is {_described(function)}, which may hold data", "write a plain function")
    walk.take_value("itself", function)
    return walk.reach()


def reached_by_declaration(function: object) -> Reach | None:
    """What a function that is read reaches beside its arguments.

    It may take of CVXPY and of this package what it likes: what counts is the expression that comes
    out.

    Returns
    -------
    Reach or None
        None where it reaches more than numbers, texts and pure functions.
    """
    walk = _Walk("", declares=True)
    try:
        walk.take_value("itself", function)
    except DeclarationError:
        return None
    return walk.reach()


def loads(function: Callable[..., Any], argument: str) -> bool:
    """True if the code of a function, or code inside of it, ever loads an argument.

    It counts as loaded, too, where the function may take it in a way that is not looked into: by
    ``locals()`` or the like, or among its ``*`` and ``**`` arguments.

    Parameters
    ----------
    function
        A plain function, or one that wraps it.
    argument
        Name of the argument.
    """
    code = inspect.unwrap(function).__code__
    n_named = code.co_argcount + code.co_kwonlyargcount
    if argument not in code.co_varnames[:n_named]:
        return True
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL" and step.argval in ("eval", "exec", "locals", "vars"):
            return True
        # from Python 3.13 on one instruction may load two names
        several = isinstance(step.argval, tuple)
        names = step.argval if several else (step.argval,)
        if step.opname.startswith("LOAD_") and argument in names:
            return True
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return any(argument in part.co_freevars for part in inner)


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
        by_label: dict[str, list[str]] = {}
        for label, value in self.reach.values:
            by_label.setdefault(label, []).append(value)
        if not by_label:
            return {}
        return {"reaches": {label: ", ".join(values) for label, values in by_label.items()}}

    def unchanged(self) -> Callable[..., Any]:
        """The function, if it still reaches what it reached when it was declared.

        Raises
        ------
        DeclarationError
            Where it now reaches other numbers or texts.
        """
        values_now = reached(self.name, self.function).values
        for label, value in self.reach.values:
            if (label, value) not in values_now:
                value_now = dict(values_now).get(label, "nothing")
                raise DeclarationError(
                    f"{self.name!r} reaches {label} = {value_now}, which was {value} when it was "
                    "declared: declare it again"
                )
        return self.function


class _Walk:
    """One walk through the code of a function and of all that it reaches.

    It begins with :meth:`take_value` of the function and ends with :meth:`reach`.

    Parameters
    ----------
    name
        What messages call the function.
    declares
        Whether the function is read: it makes expressions of CVXPY, of objects of this package.
    """

    def __init__(self, name: str, *, declares: bool = False) -> None:
        self.name = name
        self.declares = declares
        self.attributes = declared_attributes() if declares else ATTRIBUTES
        #: The keys are labels with values, in the order in which they were found.
        self.values: dict[tuple[str, str], None] = {}
        self.literals: set[float] = set()
        #: Functions by identity, in the order in which they were found.
        self.functions: dict[int, types.FunctionType] = {}

    def reach(self) -> Reach:
        """What was found."""
        return Reach(tuple(self.values), frozenset(self.literals), tuple(self.functions.values()))

    def refuse(self, what: str, remedy: str = REMEDY) -> NoReturn:
        """Raise DeclarationError for what the function reaches or does."""
        raise DeclarationError(f"{self.name!r} {what}: {remedy}")

    def take_value(self, label: str, value: object) -> None:
        """Take up a value that is reached under a name."""
        if id(value) in _CALLABLES or self._is_for_declaring(value):
            return
        if isinstance(value, types.FunctionType):
            self._take_function(value)
        elif type(value) in _PLAIN_TYPES:
            self.values[label, repr(value)] = None
        elif isinstance(value, np.generic) and type(value) in _NUMPY_SCALARS:
            self.values[label, repr(value.item())] = None
        elif type(value) is tuple:
            if not value:
                self.values[label, "()"] = None
            for place, part in enumerate(value):
                self.take_value(f"{label}[{place}]", part)
        elif type(value) is functools.partial:
            self._take_partial(label, value)
        else:
            self.refuse(f"reaches {label}, {_described(value)}, which may hold data")

    def _is_for_declaring(self, value: object) -> bool:
        """True of classes and functions of CVXPY and of this package, where a function is read."""
        if not self.declares:
            return False
        if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            return False
        if id(value) in _cvxpy_callables():
            return True
        home = str(value.__module__)
        stands_there = getattr(sys.modules.get(home), value.__name__, None) is value
        return stands_there and home.startswith("dp2erm_cvx.")

    def _take_function(self, function: types.FunctionType) -> None:
        """Take up a plain function: its attributes, defaults and code."""
        if id(function) in self.functions:
            return
        self.functions[id(function)] = function
        for name, attribute in vars(function).items():
            if name != "__wrapped__":
                self.refuse(f"reaches {name!r}, an attribute of the function {function.__name__}")
            self.take_value(function.__name__, attribute)
        code = function.__code__
        arguments = code.co_varnames[: code.co_argcount]
        defaults = function.__defaults__ or ()
        # defaults are those of the last arguments
        with_default = arguments[len(arguments) - len(defaults) :]
        for name, default in zip(with_default, defaults, strict=True):
            self.take_value(name, default)
        for name, default in (function.__kwdefaults__ or {}).items():
            self.take_value(name, default)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        self._take_code(code, function, cells)

    def _take_partial(self, label: str, value: functools.partial[Any]) -> None:
        """Take up a function with some of its arguments."""
        if vars(value):
            self.refuse(f"reaches attributes of {label}, which may hold data")
        self.take_value(label, value.func)
        for place, argument in enumerate(value.args):
            self.take_value(f"argument {place} of {label}", argument)
        for name, argument in value.keywords.items():
            self.take_value(f"{name} of {label}", argument)

    def _take_code(
        self, code: types.CodeType, function: types.FunctionType, cells: Mapping[str, Any]
    ) -> None:
        """Take up the code of a function, and the code inside of it.

        Parameters
        ----------
        code
            The code.
        function
            The function that it is written in.
        cells
            What the code closes over, by name.
        """
        if code.co_flags & _ASYNCHRONOUS:
            self.refuse("is asynchronous", "write a plain function")
        self._take_instructions(code, function, cells)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                inner = {name: cell for name, cell in cells.items() if name in constant.co_freevars}
                self._take_code(constant, function, inner)
            else:
                self.literals.update(_numbers(constant))

    def _take_instructions(
        self, code: types.CodeType, function: types.FunctionType, cells: Mapping[str, Any]
    ) -> None:
        """Take up what the instructions of a code load, and refuse those that do not compute."""
        steps = [step for step in dis.get_instructions(code) if step.opname not in _FILLING]
        place = 0
        while place < len(steps):
            step = steps[place]
            place += 1
            if step.opname == "LOAD_GLOBAL":
                value = self._of_global(step.argval, function)
                place += self._take_loaded(step.argval, value, steps[place:])
            elif step.opname in _LOADS_CELL and step.argval in cells:
                value = self._of_cell(step.argval, cells[step.argval])
                place += self._take_loaded(step.argval, value, steps[place:])
            else:
                self._refuse_unless_computing(step, code)

    def _of_global(self, name: str, function: types.FunctionType) -> object:
        """A global of a function, or a builtin that any function may reach."""
        if name in function.__globals__:
            return function.__globals__[name]
        if not hasattr(builtins, name):
            self.refuse(
                f"reaches {name!r}, which is not defined", "define it before the declaration"
            )
        # a module may have builtins of its own, which are somebody else's
        builtins_of_function: Mapping[str, Any] = getattr(function, "__builtins__", {})
        if name not in BUILTINS or builtins_of_function.get(name) is not BUILTINS[name]:
            self.refuse(f"reaches the builtin {name!r}", _BY_RECORD)
        return BUILTINS[name]

    def _of_cell(self, name: str, cell: Any) -> object:
        """What a function closes over under a name."""
        try:
            return cell.cell_contents
        except ValueError:
            self.refuse(
                f"reaches {name!r}, which is not defined", "define it before the declaration"
            )

    def _take_loaded(self, name: str, value: object, following: Sequence[dis.Instruction]) -> int:
        """Take up a value that the code loads; of a module, what the code takes of it.

        Parameters
        ----------
        name
            The name under which it is loaded.
        value
            The value.
        following
            The instructions after the one that loads it.

        Returns
        -------
        int
            How many of the following instructions were used: those that take of modules.
        """
        used = 0
        while isinstance(value, types.ModuleType):
            if not _takes_attribute(following, used):
                self.refuse(
                    f"reaches the module {name} as a whole",
                    f"write {name}. and what it takes of it",
                )
            attribute = following[used].argval
            value = self._of_module(name, value, attribute)
            name = f"{name}.{attribute}"
            used += 1
            # a constant of a listed module, such as math.pi, needs no word
            if isinstance(value, float | None):
                return used
        is_function = isinstance(value, types.FunctionType | functools.partial)
        if is_function and _takes_attribute(following, used):
            self.refuse(f"reaches {name}.{following[used].argval}, an attribute of a function")
        self.take_value(name, value)
        return used

    def _of_module(self, name: str, module: types.ModuleType, attribute: str) -> object:
        """An attribute of a module, where it is known to hold no data."""
        listed = MODULES.get(module, {})
        if self.declares and module in (cp, sys.modules.get("cvxpy")):
            listed = _cvxpy_names()
        elif module not in MODULES:
            remedy = (
                f"write from {module.__name__} import {attribute}, where it is a plain function or "
                "a number"
            )
            self.refuse(f"reaches the module {name}", remedy)
        if attribute not in listed:
            self.refuse(
                f"reaches {name}.{attribute}, which is not known to hold no data", _BY_RECORD
            )
        if getattr(module, attribute) is not listed[attribute]:
            self.refuse(f"reaches {name}.{attribute}, which was replaced", "leave it as it is")
        return listed[attribute]

    def _refuse_unless_computing(self, step: dis.Instruction, code: types.CodeType) -> None:
        """Refuse an instruction that does more than to compute with what is at hand."""
        name = step.argval
        if step.opname in _REFUSED:
            what, remedy = _REFUSED[step.opname]
            self.refuse(what.format(repr(name)), remedy)
        if step.opname in _TAKES_ATTRIBUTE:
            if name not in self.attributes:
                self.refuse(
                    f"takes the attribute {name!r}",
                    "compute with numbers, arrays and their methods",
                )
        elif step.opname in ("STORE_DEREF", "DELETE_DEREF"):
            if name in code.co_freevars:
                self.refuse(f"writes to {name!r} of the function around it", _BY_RECORD)
        elif not step.opname.startswith(_COMPUTING) and step.opname not in _LOADS_CELL:
            self.refuse(
                f"does what is not understood ({step.opname})",
                "write it with numbers and functions",
            )


def _takes_attribute(steps: Sequence[dis.Instruction], place: int) -> bool:
    """True if there is a step at this place, and it takes an attribute."""
    return place < len(steps) and steps[place].opname in _TAKES_ATTRIBUTE


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
