"""A copy of an affine expression at few records, which has the same coefficients.

An expression of a million records takes long to evaluate once for every column of its data. Of most
expressions a copy whose weights and data have few records tells the same, because a record whose
weight and data are 0 adds nothing to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.rows import Datum
from dp2erm_cvx.program.weighting.data import is_mean

#: Records of a copy.
FEW = 64

#: Atoms that give every entry of a shape the same number.
_SPREADING = frozenset({"Promote", "broadcast_to"})
#: Atoms of one entry at a time that are 0 where a factor is: others of their arguments may be
#: public numbers of all records.
_SCALING = frozenset({"DivExpression", "NegExpression", "multiply"})
#: Atoms that are 0 at a record where all of their arguments are, or that add up records.
_OF_RECORDS = frozenset(
    {"AddExpression", "Hstack", "MulExpression", "Sum", "Vstack", "conj", "transpose"}
)

_Shape = tuple[int, ...]


@dataclass(frozen=True)
class CopyAtFewRecords:
    """An expression at :data:`FEW` records.

    Parameters
    ----------
    e
        The copy.
    w
        Its weights (FEW,).
    data
        Its data: of FEW records each, means as they are.
    """

    e: Any
    w: cp.Variable
    data: list[Datum]


def at_few_records(
    e: Any, w: cp.Variable, data: Sequence[Datum], *, is_line: bool = False
) -> CopyAtFewRecords | None:
    """The copy of an affine expression at few records.

    At weights and data that are 0 beyond the first records both have the same value. For each node
    of the expression one of three things holds, by induction over its atoms:

    - It holds no records, and has the same value in both.
    - It holds records, and is the same in both at the first ones and 0 at all others.
    - It is a public number of all records, and scales a node of the second kind.

    An expression with an entry for every record may be a node of the second kind plus one public
    number for all: no atom adds up its entries.

    Parameters
    ----------
    e
        The expression.
    w
        Its weights (n,).
    data
        Its data, of n records or means.
    is_line
        Whether the expression has an entry for every record.

    Returns
    -------
    CopyAtFewRecords or None
        None where an atom is none of these, such as the entries at some places, or a public number
        that is added to every record.
    """
    n = int(w.size)
    leaves: dict[int, Any] = {id(w): cp.Variable(FEW)}
    for datum in data:
        columns = datum.shape if is_mean(datum) else datum.shape[1:]
        if n in columns:
            return None
        few = datum if is_mean(datum) else cp.Parameter((FEW, *columns), name=datum.name())
        leaves[id(datum)] = few
    try:
        copy = _Copier(n, leaves, is_line=is_line).copy(e)
    except _NotAlikeError:
        return None
    return CopyAtFewRecords(copy, leaves[id(w)], [leaves[id(datum)] for datum in data])


class _NotAlikeError(Exception):
    """An atom may be another function of few records than of all."""


class _Copier:
    """Copies expressions of n records to few.

    Parameters
    ----------
    n
        Number of records; no axis of public numbers or of columns is as long.
    leaves
        Weights and data at few records, by the identity of those at n.
    is_line
        Whether the expression has an entry for every record: then a public number may be added to
        all of them, and no atom may add up records.
    """

    def __init__(self, n: int, leaves: Mapping[int, Any], *, is_line: bool) -> None:
        self.n = n
        self.leaves = leaves
        self.is_line = is_line

    def copy(self, node: Any) -> Any:
        """A node at few records. Raises _NotAlikeError."""
        if id(node) in self.leaves:
            return self.leaves[id(node)]
        if isinstance(node, cp.Constant) and not self._holds_records(node):
            return node
        if not node.args or node.shape.count(self.n) > 1:
            raise _NotAlikeError
        self._refuse_unlike(node)
        copy = self._with_arguments(node, [self.copy(argument) for argument in node.args])
        if copy.shape != self._few(node.shape):
            raise _NotAlikeError
        return copy

    def _holds_records(self, node: Any) -> bool:
        """Whether a node has an entry for every record."""
        return self.n in node.shape

    def _refuse_unlike(self, node: Any) -> None:
        """Raise _NotAlikeError where a node may depend on the number of records.

        It does where public numbers of all records add up, and where a number that depends on
        weights or data counts for every record.
        """
        kind = type(node).__name__
        scales = _SCALING | {"AddExpression"} if self.is_line else _SCALING
        spreads = scales | _SPREADING | {"MulExpression"}
        for argument in node.args:
            is_public = not argument.variables() and not argument.parameters()
            if self._holds_records(argument):
                adds_up = not self._holds_records(node)
                is_unlike = (is_public and kind not in scales) or (self.is_line and adds_up)
            else:
                is_unlike = self._holds_records(node) and not (is_public and kind in spreads)
            if is_unlike:
                raise _NotAlikeError

    def _with_arguments(self, node: Any, arguments: list[Any]) -> Any:
        """A node with arguments of few records. Raises _NotAlikeError."""
        kind = type(node).__name__
        if kind in _SCALING or kind in _OF_RECORDS:
            return node.copy(arguments)
        if kind in _SPREADING:
            return type(node)(arguments[0], self._few(node.shape))
        if kind == "reshape" and self._keeps_order(node):
            return cp.reshape(arguments[0], self._few(node.shape), order=node.order)
        if kind == "index":
            # values are taken by the places as written, which are all records at any number of them
            return type(node)(arguments[0], self._few_places(node), node.get_data()[1])
        raise _NotAlikeError

    def _few(self, shape: _Shape) -> _Shape:
        """A shape with few records in the place of n."""
        return tuple(FEW if size == self.n else size for size in shape)

    def _keeps_order(self, node: Any) -> bool:
        """True if a reshape is of no records, or only adds and leaves out axes of one entry."""
        if not self._holds_records(node) and not self._holds_records(node.args[0]):
            return True
        return _above_one(node.args[0].shape) == _above_one(node.shape)

    def _few_places(self, node: Any) -> tuple[slice, ...]:
        """The places that an index takes, all records among them. Raises _NotAlikeError."""
        places = []
        for size, taken in zip(node.args[0].shape, node.key, strict=True):
            if size != self.n:
                places.append(taken)
            elif (taken.start, taken.stop, taken.step) == (0, self.n, 1):
                places.append(slice(0, FEW, 1))
            else:
                raise _NotAlikeError
        return tuple(places)


def _above_one(shape: _Shape) -> list[int]:
    """Sizes of the axes of more than one entry."""
    return [size for size in shape if size > 1]
