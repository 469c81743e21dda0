"""Affine functions of variables and data in CVXPY's tree, with bounds of their rounding (Lemma 3).

Every coefficient carries a majorant, the same products of absolute values, and a count K of
operations: a computed one is within ``gamma_K`` majorants of the exact one (Higham, Accuracy and
Stability of Numerical Algorithms, 3.1 and 3.5; page on solving).
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.on_demand import sparse as sp

Index = NDArray[np.int64]

#: Kinds of nodes that CVXPY has two classes for: exact and approximated ones.
_NAMES = {"PowerApprox": "power", "PnormApprox": "Pnorm"}
_BILINEAR = frozenset({"MulExpression", "multiply", "conv", "convolve", "kron"})

#: Sums and products of whole numbers up to this are exact.
_WHOLE = 2.0**50

#: What to do about data times data, which no parameter of a program may be.
_PRODUCT = "make the product by records.rows or records.numbers"


def gamma(k: float) -> float:
    """``k u / (1 - k u)`` for k operations, u the unit roundoff (Higham, section 3.1)."""
    return k * UNIT / (1.0 - k * UNIT)


@dataclass(frozen=True, eq=False)
class Affine:
    """An expression that is affine in columns and data, as entries ``(row, col, datum): value``.

    Parameters
    ----------
    size
        Number of rows.
    row, col, datum
        Sorted and unique places (m,); column -1 is the offset, datum 0 the number 1.
    value
        Coefficients (m,).
    major
        Bounds (m,) on the sums of absolute values that the coefficients are computed from.
    count
        K, the number of operations: a value is within ``gamma_K`` majorants of the exact one.
    """

    size: int
    row: Index
    col: Index
    datum: Index
    value: Array
    major: Array
    count: int

    def pick(self, rows: Index) -> tuple[Index, Index]:
        """Entries of rows (t,), one row after the other: the place in ``rows``, and the entry."""
        begin = np.searchsorted(self.row, rows)
        end = np.searchsorted(self.row, rows, side="right")
        number = end - begin
        place = np.repeat(np.arange(len(rows)), number)
        shift = np.arange(len(place)) - np.repeat(np.cumsum(number) - number, number)
        return place, shift + np.repeat(begin, number)


def merged(size: int, row: Any, col: Any, data: Any, value: Any, major: Any, count: int) -> Affine:
    """An affine function from entries in any order, those of one place added up."""
    row, col, data, value, major = np.broadcast_arrays(row, col, data, value, major)
    width = int(np.max(col, initial=0)) + 2
    depth = int(np.max(data, initial=0)) + 1
    key = (row * width + col + 1) * depth + data
    unique, place = np.unique(key, return_inverse=True)
    of_row_and_col, unique_datum = np.divmod(unique, depth)
    unique_row, shifted_col = np.divmod(of_row_and_col, width)
    values = np.zeros(len(unique))
    majors = np.zeros(len(unique))
    np.add.at(values, place, value)
    np.add.at(majors, place, major)
    return Affine(size, unique_row, shifted_col - 1, unique_datum, values, majors, count)


class Sums:
    """A plan of the sums of chosen entries of an expression by their place, at whatever data."""

    def __init__(self, affine: Affine, chosen: Any, place: Index, size: int) -> None:
        self.datum = affine.datum[chosen]
        self.value = affine.value[chosen]
        self.major = affine.major[chosen]
        self.place = place[chosen]
        self.size = size
        self.most = 0
        if len(self.place):
            self.most = int(np.max(np.bincount(self.place)))

    def at(self, data: Array, value: Array) -> Array:
        """Sums (..., size) of ``value``, one of the plan's own, times datum (..., 1 + D)."""
        out = np.zeros((*data.shape[:-1], self.size))
        terms = value * data[..., self.datum]
        if self.most <= 1:
            out[..., self.place] = terms
        else:
            where: Any = (..., self.place)
            np.add.at(out, where, terms)
        return out

    def both(self, center: Array, bound: Array) -> tuple[Array, Array]:
        """The sums at data, and their majorants at bounds of its absolute values."""
        return self.at(center, self.value), self.at(bound, self.major)


class AffineWalk(abc.ABC):
    """A walk over an expression: affine functions of a variable (d,), data and outputs of terms.

    Parameters
    ----------
    variable
        The Variable (d,). Outputs of terms are numbered after its entries.
    parameters
        Parameters by name, in the order of the data.
    """

    def __init__(self, variable: Any, parameters: Mapping[str, Any]) -> None:
        self.variable = variable
        self.outputs = variable.size
        begins = np.cumsum([1, *(datum.size for datum in parameters.values())])
        self.begin = {datum.id: at for datum, at in zip(parameters.values(), begins, strict=False)}

    @abc.abstractmethod
    def term(self, e: Any) -> Affine:
        """The outputs of an atom that is not affine. Raises ProgramError for what is not read."""

    def read(self, e: Any) -> Affine:
        """The affine function of the variable, data and outputs of terms that an expression is.

        Raises ProgramError, with the reason, for what is not read.
        """
        rows = np.arange(e.size)
        if not e.parameters() and e.is_constant():
            # its double is the definition
            value = np.broadcast_to(np.ravel(_dense(e.value), order="F"), (e.size,))
            return merged(e.size, rows, -1, 0, value, np.abs(value), 0)
        if isinstance(e, cp.Parameter):
            if e.id not in self.begin:
                raise ProgramError(f"the parameter {e.name()!r} is none of the data")
            return merged(e.size, rows, -1, self.begin[e.id] + rows, 1.0, 1.0, 0)
        if e is self.variable:
            return merged(e.size, rows, rows, 0, 1.0, 1.0, 0)
        if isinstance(e, cp.atoms.affine.affine_atom.AffAtom):
            return _combined(e, [self.read(argument) for argument in e.args])
        if e.is_constant():
            raise ProgramError(f"{kind_of(e)} of data inside the objective: compute it in data()")
        return self.term(e)


def kind_of(e: Any) -> str:
    """The kind of a node: the name of its class, one for exact and approximated powers."""
    return _NAMES.get(type(e).__name__, type(e).__name__)


def _dense(value: Any) -> Array:
    """A constant of a tree, which may be sparse, as an array."""
    if hasattr(value, "toarray"):
        value = value.toarray()
    return np.asarray(value, dtype=np.float64)


def _combined(e: Any, kids: Sequence[Affine]) -> Affine:
    """An affine node of its arguments.

    The entries of its Jacobian by CVXPY are the node's own constants.
    """
    fixed, loaded, operations = _fixed_arguments(e, kids)
    count = max(kid.count for kid in kids) + operations
    before = count
    exact = loaded is None and kind_of(e) != "DivExpression"
    parts = []
    for kid, jacobian in zip(kids, _jacobians(e, fixed), strict=True):
        if jacobian is None:
            continue
        products = _products(kid, jacobian, loaded)
        exact = exact and products.exact
        parts.append(products.entries)
        count += int(np.max(np.bincount(jacobian.row, minlength=1)))
    row, col, datum, value, major = (np.concatenate(column) for column in zip(*parts, strict=True))
    combined = merged(e.size, row, col, datum, value, major, count + len(kids) + 1)
    # nothing rounds: products by 1 or of whole numbers, and sums of one term or of whole numbers
    one_term = len(combined.row) == len(row)
    small = bool(np.all(combined.major <= _WHOLE))
    if exact and small and (one_term or bool(np.all(_whole(value)))):
        return replace(combined, count=before)
    return combined


def _fixed_arguments(e: Any, kids: Sequence[Affine]) -> tuple[list[Any], Affine | None, int]:
    """What a node is linear at: the other factor of a product, or the divisor.

    Returns
    -------
    tuple
        Values of the arguments, None for those that the node is a function of; the factor that is
        data, if any; and the operations that it adds to those of the arguments.
    """
    fixed: list[Any] = [None] * len(kids)
    if kind_of(e) == "DivExpression":
        if e.args[1].parameters():
            raise ProgramError("division by data: divide in data()")
        fixed[1] = e.args[1].value
        return fixed, None, 2
    if kind_of(e) not in _BILINEAR:
        return fixed, None, 0
    constant = [i for i, argument in enumerate(e.args) if argument.is_constant()]
    # numbers before data
    at = min(constant, key=lambda i: bool(e.args[i].parameters()))
    if not e.args[at].parameters():
        fixed[at] = e.args[at].value
        return fixed, None, 0
    loaded = kids[at]
    # the numbers 1, 2, ...: every entry of the Jacobian names the datum it is
    fixed[at] = np.arange(1.0, loaded.size + 1).reshape(e.args[at].shape, order="F")
    return fixed, loaded, loaded.count


class _Products(NamedTuple):
    """Entries of a Jacobian times those of an argument.

    Attributes
    ----------
    entries
        Row, column, datum, value and majorant of every product.
    exact
        Whether no product rounds.
    """

    entries: tuple[Index, Index, Index, Array, Array]
    exact: bool


def _products(kid: Affine, jacobian: Any, loaded: Affine | None) -> _Products:
    """What an argument adds to a node, by its Jacobian or by the data that its entries name."""
    place, entry = kid.pick(jacobian.col.astype(np.int64))
    row = jacobian.row[place].astype(np.int64)
    weight = jacobian.data[place]
    weight_major = np.abs(weight)
    datum = kid.datum[entry]
    if loaded is not None:
        if np.any(datum):
            raise ProgramError(f"a product of data: {_PRODUCT}")
        again, source = loaded.pick(np.rint(weight).astype(np.int64) - 1)
        row = row[again]
        entry = entry[again]
        datum = loaded.datum[source]
        weight = loaded.value[source]
        weight_major = loaded.major[source]
    own = kid.value[entry]
    by_one = (np.abs(weight) == 1.0) | (np.abs(own) == 1.0)
    of_whole = _whole(weight) & _whole(own)
    exact = bool(np.all(by_one | of_whole))
    entries = (row, kid.col[entry], datum, own * weight, kid.major[entry] * weight_major)
    return _Products(entries, exact)


def _whole(numbers: Array) -> NDArray[np.bool_]:
    """Which numbers are whole."""
    whole: NDArray[np.bool_] = numbers == np.rint(numbers)
    return whole


def _jacobians(e: Any, fixed: Sequence[Any]) -> list[Any]:
    """Jacobians (out, in) of a node for its arguments that are not ``fixed``; None for these."""
    numbers = []
    for argument, value in zip(e.args, fixed, strict=True):
        numbers.append(cp.Variable(argument.shape) if value is None else cp.Constant(value))
    origin = [np.zeros(argument.shape) for argument in e.args]
    jacobians: list[Any] = []
    for value, transposed in zip(fixed, e.copy(numbers)._grad(origin), strict=True):
        if value is not None:
            jacobians.append(None)
            continue
        if np.isscalar(transposed):
            transposed = np.atleast_2d(transposed)
        jacobians.append(sp.coo_array(sp.csr_array(transposed).T))
    return jacobians
