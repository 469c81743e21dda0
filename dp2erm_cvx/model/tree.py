"""The walk over a CVXPY objective of the weights: its terms, their gradients, and bounds of their rounding.

An objective is read as ``sum_k <s_k, T_k(A_k w + b_k)> + <c, w>`` with ``A_k, b_k, s_k, c`` affine in the
data, entry by entry. Every coefficient carries a majorant, the same products of absolute values, and a count
K of operations: a computed one is within ``gamma_K`` majorants of the exact one (Higham, Accuracy and
Stability of Numerical Algorithms, 3.1 and 3.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import ProgramError

Index = NDArray[np.int64]

#: Atoms of CVXPY that are sums or vectors of atoms of one number.
_ATOMS = {kind: kind for kind in ("entr", "log", "exp", "logistic", "power")} | {"quad_over_lin": "square"}
#: Atoms whose derivative has a kink: read as the support function of a set (Theorem D).
_KINKS = frozenset({"Pnorm", "norm1", "abs", "max"})
_NAMES = {"PowerApprox": "power", "PnormApprox": "Pnorm"}
_BILINEAR = frozenset({"MulExpression", "multiply", "conv", "convolve", "kron"})

#: What to do about data times data, which no parameter of a program may be.
_PRODUCT = "make the product by records.rows or records.numbers"


@dataclass(frozen=True, eq=False)
class Affine:
    """Entries ``(row, col, datum): value`` of an expression that is affine in its columns and in the data.

    Column -1 is the offset, datum 0 the number 1, datum k the k-th number of the data. Entries are sorted and
    unique. ``major`` bounds what ``value`` is a sum of, and ``count`` is K.
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


def _merged(size: int, row: Index, col: Index, data: Index, value: Array, major: Array, count: int) -> Affine:
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


@dataclass(frozen=True, eq=False)
class AtomTerm:
    """One atom of an objective: its ``kind``, its argument (rows, n), and its place among the outputs."""

    kind: str
    inner: Affine
    start: int
    outputs: int
    power: float = 1.0
    divisor: float = 1.0
    matrix: Array = field(default_factory=lambda: np.zeros((0, 0)))
    floor: float | None = None

    @property
    def atom(self) -> str | None:
        """The kind of atom of one number that every component is; None for any other."""
        return _ATOMS.get(self.kind)

    @property
    def elementwise(self) -> bool:
        """True if derivatives of components depend on that component alone."""
        return self.atom is not None or self.kind in ("abs", "norm1")

    @property
    def kink(self) -> bool:
        """True if it is a support function, whose gradient may jump."""
        return self.kind in _KINKS


def walked(
    objective: Any, weights: Any, parameters: Mapping[str, Any], eigenvalue_floor: float | None = None
) -> tuple[list[AtomTerm], Affine]:
    """Terms of a convex objective of ``weights``, a Variable (n,), and the affine function of their outputs.

    The data are the ``parameters``. ``eigenvalue_floor`` is a public lower bound of the eigenvalues of
    every argument of ``log_det``. Raises ProgramError, with the reason, for what is not known.
    """
    objective = cp.Constant(0) + objective
    if not objective.is_scalar() or not objective.is_convex():
        raise ProgramError("the objective is not a convex number by the rules of CVXPY")
    walk = _Walk(weights, parameters, eigenvalue_floor)
    outer = walk.read(objective, inside=False)
    return walk.terms, outer


class _Walk:
    """The state of one walk: where the data begin, and the atoms that it met."""

    def __init__(self, weights: Any, parameters: Mapping[str, Any], floor: float | None) -> None:
        self.weights, self.n, self.floor = weights, weights.size, floor
        self.terms: list[AtomTerm] = []
        self.begin: dict[int, int] = {}
        end = 1
        for datum in parameters.values():
            self.begin[datum.id] = end
            end += datum.size
        self.outputs = self.n

    def read(self, e: Any, *, inside: bool) -> Affine:
        size = e.size
        everything = np.arange(size)
        zero, one = np.zeros(size, dtype=np.int64), np.ones(size)
        if not e.parameters() and e.is_constant():
            # its double is the definition
            value = np.broadcast_to(np.ravel(_dense(e.value), order="F"), (size,)).copy()
            return _merged(size, everything, zero - 1, zero, value, np.abs(value), 0)
        if isinstance(e, cp.Parameter):
            if e.id not in self.begin:
                raise ProgramError(f"the parameter {e.name()!r} is none of the data")
            return _merged(size, everything, zero - 1, self.begin[e.id] + everything, one, one, 0)
        if e is self.weights:
            return _merged(size, everything, everything, zero, one, one, 0)
        if not isinstance(e, cp.atoms.affine.affine_atom.AffAtom):
            if e.is_constant():
                raise ProgramError(f"{_kind(e)} of data inside the objective: compute it in data()")
            if inside:
                raise ProgramError(f"{_kind(e)} inside of another atom is not read")
            return self._atom(e)
        kids = [self.read(argument, inside=inside) for argument in e.args]
        return _combined(e, kids)

    def _atom(self, e: Any) -> Affine:
        kind = _kind(e)
        if kind not in (*_KINKS, *_ATOMS, "QuadForm", "log_det"):
            known = ", ".join(sorted({*_KINKS, *_ATOMS, "QuadForm", "log_det"}))
            raise ProgramError(f"the atom {kind} is not read: known are {known}")
        if getattr(e, "axis", None) is not None:
            raise ProgramError(f"{kind} along an axis is not read: write one term for each row")
        power = float(np.ravel(getattr(e.p, "value", e.p))[0]) if hasattr(e, "p") else 1.0
        if kind == "Pnorm" and power != 2.0:
            raise ProgramError(f"the norm of order {power:g} is not read")
        divisor, matrix = 1.0, np.zeros((0, 0))
        if kind in ("quad_over_lin", "QuadForm"):
            if e.args[1].parameters() or not e.args[1].is_constant():
                raise ProgramError(f"the second argument of {kind} holds data: {_PRODUCT}")
            value = _dense(e.args[1].value)
            divisor, matrix = (1.0, value) if kind == "QuadForm" else (float(value), matrix)
        inner = self.read(e.args[0], inside=True)
        floor = self.floor if kind == "log_det" else None
        self.terms.append(AtomTerm(kind, inner, self.outputs, e.size, power, divisor, matrix, floor))
        columns = self.outputs + np.arange(e.size)
        self.outputs += e.size
        ones = np.ones(e.size)
        return _merged(e.size, np.arange(e.size), columns, np.zeros(e.size, np.int64), ones, ones, 0)


def _kind(e: Any) -> str:
    return _NAMES.get(type(e).__name__, type(e).__name__)


def _dense(value: Any) -> Array:
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=np.float64)


def _combined(e: Any, kids: Sequence[Affine]) -> Affine:
    """An affine node of its arguments: its Jacobian by CVXPY, whose entries are the node's own constants."""
    count, loaded = max(kid.count for kid in kids), None
    fixed: list[Any] = [None] * len(kids)
    if _kind(e) == "DivExpression":
        if e.args[1].parameters():
            raise ProgramError("division by data: divide in data()")
        fixed[1], count = e.args[1].value, count + 2
    elif _kind(e) in _BILINEAR:
        constant = [i for i, a in enumerate(e.args) if a.is_constant()]
        at = min(constant, key=lambda i: bool(e.args[i].parameters()))  # numbers before data
        if e.args[at].parameters():
            loaded = kids[at]
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
    return _merged(e.size, row, col, datum, value, major, count + len(kids) + 1)


def _jacobians(e: Any, fixed: Sequence[Any]) -> list[Any]:
    """Jacobians (out, in) of a node for its arguments that are not ``fixed``; None for these.

    A factor that is loaded with data comes as the numbers 1, 2, ...: every entry names the datum it is.
    """
    free = [cp.Variable(a.shape) if v is None else None for a, v in zip(e.args, fixed, strict=True)]
    numbers = [cp.Constant(v) if f is None else f for v, f in zip(fixed, free, strict=True)]
    jacobians = e.copy(numbers)._grad([np.zeros(a.shape) for a in e.args])
    return [
        None if f is None else sp.coo_array(sp.csr_array(np.atleast_2d(J) if np.isscalar(J) else J).T)
        for f, J in zip(free, jacobians, strict=True)
    ]
