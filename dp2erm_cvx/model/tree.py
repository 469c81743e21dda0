"""The walk over a CVXPY objective of the weights: its terms, their gradients, and bounds of their rounding.

An objective is read as ``sum_k <s_k, T_k(A_k w + b_k)> + <c, w>`` with ``A_k, b_k, s_k, c`` affine in the
data, entry by entry. Every coefficient carries a majorant, the same products of absolute values, and a count
K of operations: a computed one is within ``gamma_K`` majorants of the exact one (Higham, Accuracy and
Stability of Numerical Algorithms, 3.1 and 3.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import ProgramError

Index = NDArray[np.int64]

#: Kinds of terms that work on every number by itself, by the atoms of CVXPY that are vectors or sums of them.
SINGLE = {kind: kind for kind in ("entr", "log", "exp", "logistic", "power", "abs")}
SINGLE |= {"quad_over_lin": "square", "norm1": "abs"}
#: Kinds of terms that are one number.
GROUPS = ("Pnorm", "max", "QuadForm", "log_det")
_NAMES = {"PowerApprox": "power", "PnormApprox": "Pnorm"}
_BILINEAR = frozenset({"MulExpression", "multiply", "conv", "convolve", "kron"})

#: What to do about data times data, which no parameter of a program may be.
_PRODUCT = "make the product by records.rows or records.numbers"


@dataclass(frozen=True, eq=False)
class Affine:
    """Entries ``(row, col, datum): value``, sorted and unique, of an expression affine in columns and data.

    Column -1 is the offset, datum 0 the number 1. ``major`` bounds what ``value`` sums, ``count`` is K.
    """

    size: int
    row: Index
    col: Index
    datum: Index
    value: Array
    major: Array
    count: int

    def pick(self, rows: Index) -> tuple[Index, Index]:
        """Entries of ``rows`` (t,), one row after the other: the place in ``rows``, and the entry."""
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
    """A plan of the sums of chosen entries of an expression by their ``place``, at whatever data."""

    def __init__(self, affine: Affine, chosen: Any, place: Index, size: int) -> None:
        self.datum, self.value, self.major = affine.datum[chosen], affine.value[chosen], affine.major[chosen]
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


#: The kind of a term, its argument (rows, n), the number of its first output, and what is its own: the power,
#: the matrix of a quadratic form, or the floor of the eigenvalues in ``log_det``. A term that works on every
#: number by itself has as many outputs as rows, any other has one.
Read = tuple[str, Affine, int, Any]


class Walk:
    """One walk over a convex objective of ``weights``, a Variable (n,).

    ``terms`` are those that it met, ``outer`` is the affine function of their outputs. Arguments and errors
    are those of :class:`~dp2erm_cvx.model.terms.ReadObjective`.
    """

    def __init__(
        self, objective: Any, weights: Any, parameters: Mapping[str, Any], floor: float | None = None
    ) -> None:
        objective = cp.Constant(0) + objective
        if not objective.is_scalar() or not objective.is_convex():
            raise ProgramError("the objective is not a convex number by the rules of CVXPY")
        self.weights, self.floor, self.outputs = weights, floor or 0.0, weights.size
        begins = np.cumsum([1, *(datum.size for datum in parameters.values())])
        self.begin = {datum.id: at for datum, at in zip(parameters.values(), begins, strict=False)}
        self.terms: list[Read] = []
        self.outer = self.read(objective, inside=False)

    def read(self, e: Any, *, inside: bool) -> Affine:
        """The affine function of weights, data and outputs of terms that an expression is."""
        rows = np.arange(e.size)
        if not e.parameters() and e.is_constant():
            # its double is the definition
            value = np.broadcast_to(np.ravel(_dense(e.value), order="F"), (e.size,))
            return merged(e.size, rows, -1, 0, value, np.abs(value), 0)
        if isinstance(e, cp.Parameter):
            if e.id not in self.begin:
                raise ProgramError(f"the parameter {e.name()!r} is none of the data")
            return merged(e.size, rows, -1, self.begin[e.id] + rows, 1.0, 1.0, 0)
        if e is self.weights:
            return merged(e.size, rows, rows, 0, 1.0, 1.0, 0)
        if isinstance(e, cp.atoms.affine.affine_atom.AffAtom):
            return _combined(e, [self.read(argument, inside=inside) for argument in e.args])
        if e.is_constant():
            raise ProgramError(f"{kind_of(e)} of data inside the objective: compute it in data()")
        if inside:
            raise ProgramError(f"{kind_of(e)} inside of another atom is not read")
        return self._term(e)

    def _term(self, e: Any) -> Affine:
        name = kind_of(e)
        if name not in (known := {**SINGLE, **dict.fromkeys(GROUPS)}):
            raise ProgramError(f"the atom {name} is not read: known are {', '.join(sorted(known))}")
        if getattr(e, "axis", None) is not None:
            raise ProgramError(f"{name} along an axis is not read: write one term for each row")
        own: Any = float(np.ravel(getattr(e.p, "value", e.p))[0]) if hasattr(e, "p") else 1.0
        if name == "Pnorm" and own != 2.0:
            raise ProgramError(f"the norm of order {own:g} is not read")
        share, count = 1.0, 0
        if name in ("quad_over_lin", "QuadForm"):
            if e.args[1].parameters() or not e.args[1].is_constant():
                raise ProgramError(f"the second argument of {name} holds data: {_PRODUCT}")
            value = _dense(e.args[1].value)
            own, share, count = (value, 1.0, 0) if name == "QuadForm" else (1.0, 1.0 / float(value), 2)
        if name == "log_det":
            own = self.floor
        inner = self.read(e.args[0], inside=True)
        number = inner.size if name in SINGLE else 1
        self.terms.append((SINGLE.get(name, name), inner, self.outputs, own))
        columns = self.outputs + np.arange(number)
        self.outputs += number
        return merged(e.size, np.arange(number) % e.size, columns, 0, share, share, count)


def kind_of(e: Any) -> str:
    """The kind of a node: the name of its class, one for exact and approximated powers."""
    return _NAMES.get(type(e).__name__, type(e).__name__)


def _dense(value: Any) -> Array:
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=np.float64)


def _combined(e: Any, kids: Sequence[Affine]) -> Affine:
    """An affine node of its arguments: its Jacobian by CVXPY, whose entries are the node's own constants."""
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
        parts.append((row, kid.col[entry], datum, kid.value[entry] * weight, kid.major[entry] * heavy))
        count += int(np.max(np.bincount(J.row, minlength=1)))
    row, col, datum, value, major = (np.concatenate(column) for column in zip(*parts, strict=True))
    return merged(e.size, row, col, datum, value, major, count + len(kids) + 1)


def _jacobians(e: Any, fixed: Sequence[Any]) -> list[Any]:
    """Jacobians (out, in) of a node for its arguments that are not ``fixed``; None for these."""
    free = [cp.Variable(a.shape) if v is None else None for a, v in zip(e.args, fixed, strict=True)]
    numbers = [cp.Constant(v) if f is None else f for v, f in zip(fixed, free, strict=True)]
    jacobians = e.copy(numbers)._grad([np.zeros(a.shape) for a in e.args])
    return [
        None if f is None else sp.coo_array(sp.csr_array(np.atleast_2d(J) if np.isscalar(J) else J).T)
        for f, J in zip(free, jacobians, strict=True)
    ]
