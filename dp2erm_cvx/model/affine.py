"""Affine functions of variables and data as CVXPY's tree holds them, with bounds of their rounding
(Lemma B).

Every coefficient carries a majorant, the same products of absolute values, and a count K of
operations: a computed one is within ``gamma_K`` majorants of the exact one (Higham, Accuracy and
Stability of Numerical Algorithms, 3.1 and 3.5; page on solving).
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.on_demand import sparse as sp

Index = NDArray[np.int64]

#: Covers about 1e6 roundings of sums of numbers that are not negative.
UP = 1.0 + 1e-9
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
    """Entries ``(row, col, datum): value``, sorted and unique, of an expression affine in columns
    and data.

    Column -1 is the offset, datum 0 the number 1. ``major`` bounds what ``value`` sums, ``count``
    is K.
    """

    size: int
    row: Index
    col: Index
    datum: Index
    value: Array
    major: Array
    count: int

    def pick(self, rows: Index) -> tuple[Index, Index]:
        """Entries of ``rows`` (t,), one row after the other: the place in ``rows``, and the
        entry.
        """
        begin, end = np.searchsorted(self.row, rows), np.searchsorted(self.row, rows, side="right")
        number = end - begin
        place = np.repeat(np.arange(len(rows)), number)
        shift = np.arange(len(place)) - np.repeat(np.cumsum(number) - number, number)
        return place, shift + np.repeat(begin, number)


def merged(size: int, row: Any, col: Any, data: Any, value: Any, major: Any, count: int) -> Affine:
    """An affine function from entries in any order, those of one place added up."""
    row, col, data, value, major = np.broadcast_arrays(row, col, data, value, major)
    width, depth = int(np.max(col, initial=0)) + 2, int(np.max(data, initial=0)) + 1
    key = (row * width + col + 1) * depth + data
    unique, place = np.unique(key, return_inverse=True)
    rest, at = np.divmod(unique, depth)
    r, c = np.divmod(rest, width)
    values, majors = np.zeros(len(unique)), np.zeros(len(unique))
    np.add.at(values, place, value)
    np.add.at(majors, place, major)
    return Affine(size, r, c - 1, at, values, majors, count)


class Sums:
    """A plan of the sums of chosen entries of an expression by their ``place``, at whatever
    data.
    """

    def __init__(self, affine: Affine, chosen: Any, place: Index, size: int) -> None:
        self.datum, self.value, self.major = (
            affine.datum[chosen],
            affine.value[chosen],
            affine.major[chosen],
        )
        self.place, self.size = place[chosen], size
        self.most = int(np.max(np.bincount(self.place), initial=0)) if len(self.place) else 0

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
    """A walk over an expression of a variable (d,): affine functions of it, of data and of outputs
    of terms.

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
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=np.float64)


def _combined(e: Any, kids: Sequence[Affine]) -> Affine:
    """An affine node of its arguments: its Jacobian by CVXPY, whose entries are the node's own
    constants.
    """
    count, loaded = max(kid.count for kid in kids), None
    fixed: list[Any] = [None] * len(kids)
    if kind_of(e) == "DivExpression":
        if e.args[1].parameters():
            raise ProgramError("division by data: divide in data()")
        fixed[1], count = e.args[1].value, count + 2
    elif kind_of(e) in _BILINEAR:
        constant = [i for i, a in enumerate(e.args) if a.is_constant()]
        at = min(constant, key=lambda i: bool(e.args[i].parameters()))  # numbers before data
        if e.args[at].parameters():
            loaded = kids[at]
            # the numbers 1, 2, ...: every entry of the Jacobian names the datum it is
            fixed[at] = np.arange(1.0, loaded.size + 1).reshape(e.args[at].shape, order="F")
            count += loaded.count
        else:
            fixed[at] = e.args[at].value
    parts = []
    exact = loaded is None and kind_of(e) != "DivExpression"
    before = count
    for kid, J in zip(kids, _jacobians(e, fixed), strict=True):
        if J is None:
            continue
        place, entry = kid.pick(J.col.astype(np.int64))
        row, weight, heavy = J.row[place].astype(np.int64), J.data[place], np.abs(J.data[place])
        datum = kid.datum[entry]
        if loaded is not None:
            if np.any(datum):
                raise ProgramError(f"a product of data: {_PRODUCT}")
            again, source = loaded.pick(np.rint(weight).astype(np.int64) - 1)
            row, entry, datum = row[again], entry[again], loaded.datum[source]
            weight, heavy = loaded.value[source], loaded.major[source]
        own = kid.value[entry]
        products = (np.abs(weight) == 1.0) | (np.abs(own) == 1.0) | (_whole(weight) & _whole(own))
        exact = exact and bool(np.all(products))
        parts.append(
            (row, kid.col[entry], datum, kid.value[entry] * weight, kid.major[entry] * heavy)
        )
        count += int(np.max(np.bincount(J.row, minlength=1)))
    row, col, datum, value, major = (np.concatenate(column) for column in zip(*parts, strict=True))
    combined = merged(e.size, row, col, datum, value, major, count + len(kids) + 1)
    alone = len(combined.row) == len(row)
    small = bool(np.all(combined.major <= _WHOLE))
    if exact and small and (alone or bool(np.all(_whole(value)))):
        # nothing rounds: products by 1 or of whole numbers, and sums of one term or of whole
        # numbers
        return replace(combined, count=before)
    return combined


def _whole(numbers: Array) -> NDArray[np.bool_]:
    whole: NDArray[np.bool_] = numbers == np.rint(numbers)
    return whole


def _jacobians(e: Any, fixed: Sequence[Any]) -> list[Any]:
    """Jacobians (out, in) of a node for its arguments that are not ``fixed``; None for these."""
    free = [cp.Variable(a.shape) if v is None else None for a, v in zip(e.args, fixed, strict=True)]
    numbers = [cp.Constant(v) if f is None else f for v, f in zip(fixed, free, strict=True)]
    jacobians = e.copy(numbers)._grad([np.zeros(a.shape) for a in e.args])
    return [
        None
        if f is None
        else sp.coo_array(sp.csr_array(np.atleast_2d(J) if np.isscalar(J) else J).T)
        for f, J in zip(free, jacobians, strict=True)
    ]
