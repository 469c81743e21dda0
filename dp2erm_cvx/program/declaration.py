"""One CVXPY declaration per program, with its data as Parameters.

It is checked to be DPP, compiled once, and printed as text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import scipy

from dp2erm_cvx.arrays import Array, largest_bound
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.on_demand import cvxpy as cp

#: Largest :meth:`Compiled.cost` that is compiled: about 100 bytes each, so 1.5 GB.
PARAMETER_LIMIT = 1.5e7

#: Data of one parameter.
Value = Array | float
#: Values and derivatives that are read may differ from CVXPY's by this part of their sizes.
_CLOSE = 1e-9


@dataclass
class Declaration:
    """A convex program: minimize an objective subject to named constraints.

    Parameters
    ----------
    objective
        What is minimized.
    variables
        The variables by name; the first is the one whose value the program stands for.
    constraints
        The constraints by name.
    """

    objective: Any
    variables: dict[str, Any]
    constraints: dict[str, Any] = field(default_factory=dict)


class Params:
    """Hands a declaration its data, by name, as Parameters or as Constants.

    Parameters
    ----------
    data
        The data by name.
    embed
        Whether vectors and matrices are Constants. Scalars are Parameters in either case, so that
        hyper-parameters, noise and gamma re-solve.
    """

    def __init__(self, data: Mapping[str, Value], *, embed: bool) -> None:
        self._data = data
        self._embed = embed
        self.made: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        """True if the data hold a parameter of this name."""
        return name in self._data

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the data of a name, of which no parameter is made."""
        return np.shape(self._data[name])

    def __call__(self, name: str, *, nonneg: bool = False) -> Any:
        """The parameter called ``name``, shaped like its data."""
        if name not in self._data:
            raise ProgramError(f"the declaration asks for {name!r}, which its data do not contain")
        value = np.asarray(self._data[name], dtype=np.float64)
        if self._embed and value.ndim:  # vectors, too: n multipliers take memory of the order n^2
            return cp.Constant(value, name=name)
        if name not in self.made:
            self.made[name] = cp.Parameter(value.shape, name=name, nonneg=nonneg)
        return self.made[name]


class Compiled:
    """A declaration compiled by CVXPY, to be loaded with new data and solved again.

    Parameters
    ----------
    declare
        Makes the declaration of its data.
    data
        The data by name.
    embed
        Whether vectors and matrices are Constants, which are not loaded anew.

    Raises
    ------
    ProgramError
        If the problem is not DPP, or if its data are too large to be Parameters.
    """

    def __init__(
        self,
        declare: Callable[[Params], Declaration],
        data: Mapping[str, Value],
        *,
        embed: bool = False,
    ) -> None:
        cost = self.cost(data)
        if not embed and cost > PARAMETER_LIMIT:
            raise ProgramError(
                f"a data Parameter of this size would need about {cost * 100 / 1e9:.1f} GB to "
                "compile; declare the data as constants (embed=True)"
            )
        parameters = Params(data, embed=embed)
        self.declaration = declare(parameters)
        self.parameters = parameters.made
        self.problem = cp.Problem(
            cp.Minimize(self.declaration.objective), list(self.declaration.constraints.values())
        )
        if not self.problem.is_dcp(dpp=True):
            raise ProgramError(
                "the declared problem is not DPP, so that a re-solve could silently use old data: "
                + _reason(self.problem)
            )

    @staticmethod
    def cost(data: Mapping[str, Value]) -> float:
        """``n^2 p`` summed over the matrices among the data, the cost of compiling them."""
        matrices = [value for value in data.values() if np.ndim(value) == 2]
        return float(sum(np.shape(matrix)[0] * np.size(matrix) for matrix in matrices))

    def load(self, data: Mapping[str, Value]) -> None:
        """Set every Parameter from ``data``. Raises ProgramError on another shape."""
        for name, parameter in self.parameters.items():
            value = np.asarray(data[name], dtype=np.float64)
            if value.shape != parameter.shape:
                raise ProgramError(
                    f"parameter {name!r} has shape {parameter.shape}, not {value.shape}"
                )
            parameter.value = value

    def values(self) -> dict[str, Array] | None:
        """Values of the variables by name, or None where one has no finite numbers of its shape."""
        values = {}
        for name, variable in self.declaration.variables.items():
            value = _numbers_or_none(variable.value)
            if value is None or value.shape != variable.shape:
                return None
            values[name] = value
        return values

    def duals(self) -> dict[str, Array]:
        """Dual values of the constraints by name, where the solver gave finite numbers."""
        duals = {}
        for name, constraint in self.declaration.constraints.items():
            value = constraint.dual_value
            if value is None or isinstance(value, list):
                continue
            numbers = _numbers_or_none(value)
            if numbers is not None:
                duals[name] = numbers
        return duals


def _numbers_or_none(value: Any) -> Array | None:
    """Finite numbers that a solver left; None for anything else, as of an author's own solver."""
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return numbers if np.all(np.isfinite(numbers)) else None


def derivative(e: Any, variable: Any) -> Array | None:
    """Derivative (size,) of a number by a variable at its value, or None.

    CVXPY computes it.
    """
    try:
        gradient = e.grad.get(variable)
    except NotImplementedError:  # as of a largest absolute value
        return None
    return None if gradient is None else np.ravel(_dense(gradient))


def _dense(value: Any) -> Any:
    """A value of CVXPY, which may be sparse, as an array or a number."""
    return value.toarray() if hasattr(value, "toarray") else value


def refuse_misread(
    e: Any,
    variable: Any,
    reading: Callable[[Any], tuple[Any, Any]],
    points: Iterable[Any],
    *,
    shifted: bool = False,
    valued: bool = True,
) -> None:
    """Compare what was read of an expression with CVXPY's own values and derivatives.

    Parameters
    ----------
    e
        The expression, one number.
    variable
        The variable of the derivatives.
    reading
        Value and derivative at a point by what was read; None for a derivative that is not known.
    points
        Values of the variable.
    shifted
        Whether values may differ by a constant, which moves no minimizer.
    valued
        Whether an expression without a finite value at any point is refused: nothing of it can be
        compared. A log weight may be -inf.

    Raises
    ------
    DeclarationError
        Where values or derivatives differ by more than rounding, or nothing can be compared.
    """
    values = []
    slope_errors = [0.0]
    slope_sizes = [1.0]
    for point in points:
        variable.value = np.reshape(point, variable.shape)
        value = e.value
        if value is None or not np.all(np.isfinite(value)):
            continue  # outside of the domain of an atom, where CVXPY cannot add up gradients
        read_value, read_slope = reading(point)
        values.append((float(np.ravel(read_value)[0]), float(np.ravel(value)[0])))
        slope = None if read_slope is None else derivative(e, variable)
        if slope is None:
            continue
        finite = np.isfinite(slope)
        errors = np.abs(np.ravel(read_slope) - slope)[finite]
        slope_errors.append(float(np.max(errors, initial=0.0)))
        slope_sizes.append(float(np.max(np.abs(slope[finite]), initial=0.0)))
    if not values and not valued:
        return
    if not values:
        raise DeclarationError(
            f"{printed(e)}: has no finite value at any point that was tried: its public numbers "
            "must be finite"
        )
    first_values = np.array(values[0]) if shifted else np.zeros(2)
    table = np.array(values) - first_values
    value_error = float(np.max(np.abs(table[:, 0] - table[:, 1])))
    # a value or a slope that is no number has an infinite error
    error = largest_bound(value_error, *slope_errors)
    if not error <= _CLOSE * (max(slope_sizes) + float(np.max(np.abs(table)))):
        raise DeclarationError(
            f"{printed(e)} was read as something with other values: please report it"
        )


def differing(
    one: Any,
    other: Any,
    n: int,
    m: int,
    same_data: Callable[[Any, Any], bool],
    columns: tuple[int, int] = (0, 0),
) -> tuple[Any, Any] | None:
    """The first parts in which two expressions differ; None where they are the same.

    Parameters
    ----------
    one, other
        Expressions or constraints of CVXPY, of n and of m records.
    n, m
        Numbers of records: public numbers may be multiples of a power of them.
    same_data
        Whether two parameters mean the same data.
    columns
        Numbers of columns of the records, which places of entries may follow.
    """
    one = _without_copies(one)
    other = _without_copies(other)
    if _are_norms_of_one_number(one, other):
        return differing(one.args[0], other.args[0], n, m, same_data, columns)
    if not one.args or type(one) is not type(other):
        return None if _same_leaves(one, other, n, m, same_data) else (one, other)
    if len(one.args) != len(other.args) or not _same_settings(one, other, n, m, columns):
        return one, other
    for part, other_part in zip(one.args, other.args, strict=True):
        pair = differing(part, other_part, n, m, same_data, columns)
        if pair is not None:
            return pair
    return None


def _same_leaves(
    one: Any, other: Any, n: int, m: int, same_data: Callable[[Any, Any], bool]
) -> bool:
    """True if two variables, parameters or constants mean the same; False for other nodes."""
    if hasattr(one, "within") and isinstance(other, cp.Constant):
        # data that are too large for parameters are numbers of their name
        return bool(one.name() == other.name())
    if type(one) is not type(other):
        return False
    if isinstance(one, cp.Parameter):
        are_data = hasattr(one, "within") and hasattr(other, "within")
        if are_data and not same_data(one, other):
            return False
        return bool(one.name() == other.name())
    if isinstance(one, cp.Constant):
        return _same_numbers(one.value, other.value, n, m)
    return True


def _without_copies(e: Any) -> Any:
    """An expression without the copies that CVXPY makes of a number for every entry.

    A copy of one entry stays.
    """
    while type(e).__name__ in ("Promote", "broadcast_to"):
        e = e.args[0]
    return e


#: Norms, which CVXPY replaces by one another where they are of a single number.
_NORMS = ("Pnorm", "PnormApprox", "norm1", "norm_inf")


def _are_norms_of_one_number(one: Any, other: Any) -> bool:
    """True if two atoms are norms, one of them of a single number.

    All norms of one number are its size.
    """
    if type(one).__name__ not in _NORMS or type(other).__name__ not in _NORMS:
        return False
    return 1 in (one.args[0].size, other.args[0].size)


def _same_settings(one: Any, other: Any, n: int, m: int, columns: tuple[int, int]) -> bool:
    """True if two atoms have the same settings, such as the threshold of a Huber loss."""
    return _alike(_settings_of(one), _settings_of(other), n, m, columns)


#: Atoms that change shapes alone.
_SHAPES = ("Promote", "broadcast_to", "reshape", "Reshape")


def _settings_of(node: Any) -> list[Any]:
    """What a node holds beside its arguments."""
    if isinstance(node, cp.Constraint) or type(node).__name__ in _SHAPES:
        return []  # its number, which no two have in common; a shape, which is that of the records
    settings = list(_held_data(node))
    if hasattr(node, "atom"):
        settings.append(node.atom)
    return settings


def _held_data(node: Any) -> Any:
    """What CVXPY hands over to a copy of a node beside its arguments."""
    data = node.get_data() if hasattr(node, "get_data") else None
    return data or []


#: How often the number of columns is counted in a place: once, or in the rows of both arms.
_TIMES = (-2, -1, 1, 2)


def _alike(one: Any, other: Any, n: int, m: int, columns: tuple[int, int]) -> bool:
    """True if two settings of an atom mean the same at n and at m records."""
    if isinstance(one, cp.Expression):
        return isinstance(other, cp.Expression) and _same_numbers(one.value, other.value, 1, 1)
    if isinstance(one, tuple | list):
        if not isinstance(other, tuple | list) or len(one) != len(other):
            return False
        pairs = zip(one, other, strict=True)
        return all(_alike(item, other_item, n, m, columns) for item, other_item in pairs)
    if isinstance(one, slice):
        ends = (one.start, one.stop, one.step)
        other_ends = (other.start, other.stop, other.step)
        return _alike(ends, other_ends, n, m, columns)
    if isinstance(one, int | np.integer) and isinstance(other, int | np.integer):
        return _same_places(int(one), int(other), n, m, columns)
    if isinstance(one, np.ndarray | float):
        return _same_numbers(one, other, 1, 1)
    return bool(one == other)


def _same_places(one: int, other: int, n: int, m: int, columns: tuple[int, int]) -> bool:
    """True if two places or sizes are the same, or follow the records or their columns."""
    more_columns = columns[0] - columns[1]
    differences = [0, n - m, *(times * more_columns for times in _TIMES)]
    return one - other in differences or one * m == other * n


#: Powers of the number of records that a public number of a problem may be a multiple of.
_POWERS = (0.0, 0.5, 1.0, 1.5, 2.0, -0.5, -1.0, -1.5, -2.0)


def _same_numbers(one: Any, other: Any, n: int, m: int) -> bool:
    """True if public numbers are the same multiples of 1, of the root of n, or of n.

    Arrays of different sizes are compared where all entries are equal, or those of the diagonal
    alone.
    """
    numbers: Any = _representatives(one)
    other_numbers: Any = _representatives(other)
    if numbers is None or other_numbers is None:
        if np.shape(one) != np.shape(other):
            return False
        if scipy.sparse.issparse(one) or scipy.sparse.issparse(other):
            return bool(np.all(np.asarray(one != other) == 0))
        numbers = one
        other_numbers = other
    for power in _POWERS:
        scaled = np.multiply(other_numbers, (n / m) ** power)
        if np.allclose(numbers, scaled, rtol=1e-12, atol=0.0):
            return True
    return False


def _representatives(value: Any) -> tuple[float, float] | None:
    """The entry of the diagonal and the entry beside it, of an array of two values.

    It is None for any other array.
    """
    array = np.asarray(_dense(value), dtype=np.float64)
    if array.size == 0:
        return 0.0, 0.0
    if _all_equal(array):
        number = float(np.ravel(array)[0])
        return number, number
    if array.ndim == 2 and array.shape[0] == array.shape[1]:
        diagonal = np.diag(array)
        beside = array[~np.eye(len(array), dtype=bool)]
        if _all_equal(diagonal) and _all_equal(beside):
            return float(diagonal[0]), float(beside[0])
    return None


def _all_equal(values: Array) -> bool:
    """True if all entries are the same number, which may be infinite."""
    entries = np.ravel(values)
    return bool(np.all(entries == entries[0]))


#: Longest text of an expression in a message.
_LONGEST = 160


def printed(e: Any) -> str:
    """Text of an expression, such as ``sum(logistic(-(signed @ v)))``, cut where long."""
    text = _Writer().text(e)
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 44]} ... {text[-40:]}"


def refuse_no_problem(name: str, returned: Any) -> None:
    """Raise DeclarationError where an author's function returns no problem.

    The error says what to return instead.

    Parameters
    ----------
    name
        The function, for the message.
    returned
        What it returned.
    """
    if isinstance(returned, cp.Problem):
        return
    objective = "objective"
    what = "nothing" if returned is None else f"an object of the class {type(returned).__name__}"
    if isinstance(returned, cp.Minimize | cp.Maximize):
        objective = printed(returned.args[0])
        what = f"the objective {objective}"
    elif isinstance(returned, cp.Expression):
        objective = printed(returned)
        what = f"the expression {objective}"
    raise DeclarationError(
        f"{name}: returns {what}: return cp.Problem(cp.Minimize({objective}), constraints)"
    )


#: Numbers of records at which a formula is written, to tell which of its numbers grow with n.
SIZES = (5, 8)
#: A number in the text of a formula, which is no part of a name.
_NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)")


def with_n(few: str, many: str) -> str:
    """One formula of two texts that were written at ``SIZES`` records.

    ``5`` and ``8`` become ``n``.
    """
    parts = re.split(_NUMBER, few)
    other_parts = re.split(_NUMBER, many)
    if len(parts) != len(other_parts):
        return few
    pairs = zip(parts, other_parts, strict=True)
    return "".join(part if part == other else _of_n(part, other) for part, other in pairs)


def refuse_products(problem: cp.Problem) -> None:
    """Raise DeclarationError for products of data, which are not DPP.

    A re-solve could use old data.

    Parameters
    ----------
    problem
        A problem that is convex by the rules of CVXPY.
    """
    if problem.is_dcp(dpp=True) or not problem.is_dcp():
        return
    cause = _not_dpp(problem)
    assert cause is not None
    raise DeclarationError(
        f"{printed(cause)}: a product of data, which is not DPP: data may be added, or multiply "
        "variables once; make the product by records.rows or records.numbers (covariates times "
        "treatment are records.by_arm(1.0), and (2a - 1) x is records.signed)"
    )


def _not_dpp(problem: Any) -> Any:
    """The smallest expression of a problem that is not DPP; None where there is none."""
    with cp.utilities.scopes.dpp_scope():
        for part in (problem.objective.expr, *problem.constraints):
            for node in _smallest(part):
                return node
    return None


def _reason(problem: Any) -> str:
    """Reason why the smallest expression that is not DPP is not, and what to do."""
    cause = _not_dpp(problem)
    if cause is None:
        return "the objective is not convex: minimize a convex function"
    data = ", ".join(sorted({parameter.name() for parameter in cause.parameters()}))
    if not data:
        return f"{_shown(cause)} is not convex by the rules of CVXPY, whatever the data are"
    return (
        f"{_shown(cause)} is not convex for every value of {data}: data may be added to an "
        "expression of the variable, or multiply it; make anything else of one record by "
        "records.rows or records.numbers"
    )


def _smallest(node: Any) -> Iterator[Any]:
    """Nodes that break the rules although their own parts follow them."""
    if node.is_dcp():
        return
    inner: list[Any] = []
    for part in node.args:
        inner.extend(_smallest(part))
    yield from inner or [node]


def _shown(node: Any) -> str:
    """The class of a node, and the names of all that it holds."""
    names = {symbol.name() for symbol in (*node.parameters(), *node.variables())}
    kind = "constraint" if isinstance(node, cp.Constraint) else "term"
    return f"the {kind} {type(node).__name__}({', '.join(sorted(names))})"


def _of_n(few: str, many: str) -> str:
    """A number as a multiple of n or of 1/n, of its texts at both ``SIZES``; else the first."""
    try:
        number = float(few)
        other_number = float(many)
    except ValueError:
        return few
    n, m = SIZES
    of_n = number / n
    of_inverse = number * n
    close = 1e-3 * abs(other_number)  # texts have four digits
    if abs(of_n * m - other_number) <= close:
        return "n" if of_n == 1.0 else f"{of_n:g}n"
    if abs(of_inverse / m - other_number) <= close:
        return f"{of_inverse:g}/n"
    return few


_RELATIONS = {"Inequality": "<=", "Equality": "=="}
_OPERATORS = {"MulExpression": "@", "multiply": "*", "DivExpression": "/"}
_NAMES = {
    "Pnorm": "norm",
    "PnormApprox": "norm",
    "Sum": "sum",
    "BoundedInfluence": "bounded_influence",
    "Probit": "probit",
}
#: Constants of more entries than these are stated by their digest.
_LISTED = 16


def _place_in_words(place: Any) -> str:
    """A number, a slice or a list of places as Python writes it.

    Of many places it says how many there are.
    """
    if isinstance(place, slice):
        ends = ["" if end is None else str(end) for end in (place.start, place.stop)]
        step = "" if place.step is None else f":{place.step}"
        return ":".join(ends) + step
    if np.ndim(place) == 0:
        return str(place)
    if np.size(place) <= _LISTED:
        return str(np.asarray(place).tolist())
    return f"[{np.size(place)} places]"


@dataclass
class _Writer:
    """Writes expressions and constraints.

    Parameters
    ----------
    exact
        Whether every number is written in full precision, with all that an atom holds beside its
        arguments; else four digits, as for a reader.
    unnamed
        Variables without a name of their own, in the order in which they were written.
    """

    exact: bool = False
    unnamed: list[int] = field(default_factory=list)

    def text(self, e: Any, level: int = 0) -> str:
        """Text of a node inside of operators of a level: 1 sums, 2 products, 3 signs and powers."""
        name = type(e).__name__
        args = list(getattr(e, "args", []))
        if not args:
            return self.leaf(e)
        if name in _RELATIONS:
            return f"{self.text(args[0])} {_RELATIONS[name]} {self.text(args[1])}"
        if name == "Promote":
            return self.text(args[0], level)
        if name == "AddExpression":
            text = " + ".join(self.text(part, 1) for part in args).replace("+ -", "- ")
            return _inside(text, level > 1)
        if name == "NegExpression":
            return _inside(f"-{self.text(args[0], 2)}", level > 1)
        if name in _OPERATORS and len(args) == 2:
            return _inside(self.product(name, args), level > 2)
        if name == "quad_over_lin" and not (self.exact and self.held(e)):
            return self.squares(args, level)
        if name in ("index", "special_index") and not self.exact:
            return self.part(e)
        return self.call(name, e, [self.text(part) for part in args])

    def product(self, name: str, args: list[Any]) -> str:
        """Text of a product or a quotient of two factors."""
        operator = _OPERATORS[name]
        if operator == "@" and (args[0].is_scalar() or args[1].is_scalar()):
            operator = "*"
        return f"{self.text(args[0], 2)} {operator} {self.text(args[1], 3)}"

    def squares(self, args: list[Any], level: int) -> str:
        """Text of a sum of squares over a number, which is left out where it is 1."""
        text = f"sum_squares({self.text(args[0])})"
        divisor = self.text(args[1], 3)
        if divisor in ("1", "1.0"):
            return text
        return _inside(f"{text} / {divisor}", level > 2)

    def call(self, name: str, e: Any, inner: list[str]) -> str:
        """Text of an atom of arguments that are written already."""
        if name in ("power", "Power", "PowerApprox"):
            p = float(getattr(e.p, "value", e.p))
            return f"square({inner[0]})" if p == 2 else f"power({inner[0]}, {self.number(p)})"
        if name == "huber":
            return f"huber({inner[0]}, {self.text(e.M)})"
        if name == "BoundedInfluence":
            return f"bounded_influence({inner[0]}, {self.number(e.atom.number)})"
        if name == "minimum" and "inf" in inner:  # a cap that is not set
            inner.remove("inf")
            if len(inner) == 1:
                return inner[0]
        text = ", ".join(inner)
        if self.exact:
            text += "".join(f"; {self.item(item)}" for item in self.held(e))
        return f"{_NAMES.get(name, name)}({text})"

    def part(self, e: Any) -> str:
        """Text of a part of an expression as the author wrote it, such as ``x[:, 1]``."""
        written = e.get_data()[-1]
        places = written if isinstance(written, tuple) else (written,)
        return f"{self.text(e.args[0], 4)}[{', '.join(map(_place_in_words, places))}]"

    def held(self, e: Any) -> list[Any]:
        """What a node holds beside its arguments, without what says nothing."""
        data = list(e.get_data() or [])
        if isinstance(e, cp.Constraint):
            data = data[:-1]  # its number, which no two have in common
        if type(e).__name__.endswith("Approx"):
            # without the precision that CVXPY approximates powers to
            data = data[:1] + [item for item in data[1:] if not _is_precision(item, e)]
        return [item for item in data if item is not None and item is not False]

    def item(self, item: Any) -> str:
        """Text of something that an atom holds.

        Raises DeclarationError for what is not understood.
        """
        if isinstance(item, cp.Expression):
            return self.text(item)
        if isinstance(item, tuple | list):
            return f"({', '.join(map(self.item, item))})"
        if isinstance(item, slice):
            return ":".join(self.item(end) for end in (item.start, item.stop, item.step))
        if isinstance(item, np.ndarray | np.generic):
            return self.array(np.asarray(item))
        if isinstance(item, int | float | str | Fraction | None):
            return repr(item)
        raise DeclarationError(
            f"an atom holds {type(item).__name__}, which cannot be stated: use other atoms"
        )

    def leaf(self, e: Any) -> str:
        """Text of a variable, a parameter or a constant."""
        if isinstance(e, cp.Variable) and self.exact and e.name() == f"var{e.id}":
            return self.unnamed_variable(e)
        if not e.is_constant() or e.parameters():
            return str(e.name())
        return self.array(np.asarray(_dense(e.value)))

    def unnamed_variable(self, variable: Any) -> str:
        """Text of a variable by its place among those without a name, its shape and attributes."""
        if variable.id not in self.unnamed:
            self.unnamed.append(variable.id)
        text = f"{self.unnamed.index(variable.id) + 1}, {variable.shape}"
        for name, value in sorted(variable.attributes.items()):
            if value:
                text += f", {name} = {value!r}"
        return f"variable({text})"

    def array(self, value: Array) -> str:
        """Text of one number or of many."""
        if value.size == 1:
            return self.number(float(np.ravel(value)[0]))
        size = "x".join(map(str, value.shape))
        if not self.exact:
            return f"[{size} numbers]"
        if value.size <= _LISTED:
            return repr(np.asarray(value, dtype=np.float64).tolist())
        exact = np.ascontiguousarray(value, dtype=np.float64)
        return f"[{size} numbers, sha256 {hashlib.sha256(exact.tobytes()).hexdigest()}]"

    def number(self, value: float) -> str:
        """Text of one number."""
        return repr(value) if self.exact else f"{value:g}"


def _is_precision(item: Any, e: Any) -> bool:
    """True for the largest denominator by which CVXPY approximates an exponent."""
    return type(item) is int and item == e.max_denom


def _inside(text: str, bracketed: bool) -> str:
    """A text, in brackets where the operator around it binds as strongly."""
    return f"({text})" if bracketed else text


def stated(*expressions: Any) -> tuple[str, ...]:
    """Texts of expressions and constraints with every number in full precision.

    They include all that atoms hold: two expressions that differ in one number have different
    texts. Of many numbers the digest is stated.

    Raises DeclarationError for an atom that holds what is not understood.
    """
    writer = _Writer(exact=True)
    return tuple(writer.text(e) for e in expressions)


def numbers_in(e: Any) -> Iterator[float | str]:
    """Numbers that an expression or a constraint holds, but shapes.

    Of a constant with many different ones it is the text.
    """
    writer = _Writer(exact=True)
    args = list(getattr(e, "args", []))
    if not args:
        if e.is_constant() and not e.parameters():
            values = np.unique(np.asarray(_dense(e.value)))
            if values.size > _LISTED:
                yield writer.leaf(e)
            else:
                yield from map(float, values)
        return
    for part in args:
        yield from numbers_in(part)
    if type(e).__name__ in _SHAPES:
        return
    for item in writer.held(e):
        yield from _numbers_of(item)
    if hasattr(e, "atom"):
        yield from _numbers_of(e.atom.number)


def _numbers_of(item: Any) -> Iterator[float | str]:
    """Numbers of something that an atom holds."""
    if isinstance(item, cp.Expression):
        yield from numbers_in(item)
    elif isinstance(item, tuple | list | np.ndarray):
        for part in item:
            yield from _numbers_of(part)
    elif isinstance(item, slice):
        yield from _numbers_of([item.start, item.stop, item.step])
    elif isinstance(item, int | float | np.number | Fraction) and not isinstance(item, bool):
        yield float(item)
