"""Terms of a problem in the weights as CVXPY's tree holds them: factors and prices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.declaration import printed
from dp2erm_cvx.program.weighting.sums import flat
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, LogSumExpPenalty, Penalty

#: Ends of the orders of norms whose proximal steps keep their digits.
_LEAST_ORDER = 1.1
_LARGEST_ORDER = 16.0
#: Atoms of CVXPY that change the shape of a single number at most.
_RESHAPES = (
    "Promote",
    "broadcast_to",
    "reshape",
    "Reshape",
    "Vec",
    "transpose",
    "index",
    "special_index",
)


@dataclass(frozen=True)
class ScaledNode:
    """A public factor times a function of an expression, added up over its entries.

    Parameters
    ----------
    factor
        One number, or one for every entry.
    node
        The function, a node of CVXPY's tree.
    """

    factor: float | Array
    node: Any

    @property
    def number(self) -> float:
        """The factor, where it is one for all entries. Raises DeclarationError where it is not."""
        if isinstance(self.factor, float):
            return self.factor
        if np.ptp(self.factor) == 0.0:
            return float(self.factor[0])
        raise DeclarationError(
            f"{printed(self.node)}: has a factor for every entry: write one for all"
        )


def node_kind(e: Any) -> str:
    """Name of the class of a node.

    Approximations of powers and norms have the names of the exact ones.
    """
    return type(e).__name__.removesuffix("Approx")


def is_public(e: Any) -> bool:
    """True if an expression holds neither weights nor data."""
    return not e.variables() and not e.parameters()


def entries_of(e: Any, factor: float | Array = 1.0) -> Iterator[ScaledNode]:
    """Terms that add up to an expression, entry by entry."""
    kind = node_kind(e)
    if is_public(e) or e.is_affine():
        yield ScaledNode(factor, e)
    elif kind == "AddExpression":
        for part in e.args:
            yield from entries_of(part, factor)
    elif kind == "NegExpression":
        yield from entries_of(e.args[0], -factor)
    elif kind in _RESHAPES and e.args[0].size == 1:
        yield from entries_of(e.args[0], factor)
    elif (scaled := _scaled(e)) is not None:
        by, inner = scaled
        yield from entries_of(inner, factor * by)
    elif kind == "Sum" and e.size == 1:
        yield from summed(e.args[0], factor)
    elif kind == "MulExpression" and e.size == 1 and (product := _public_product(e)) is not None:
        weights, inner = product
        yield from summed(inner, factor * weights)
    else:
        yield ScaledNode(factor, e)


def summed(e: Any, factor: float | Array = 1.0) -> Iterator[ScaledNode]:
    """Terms that add up to the sum of all entries of an expression."""
    if node_kind(e) == "Sum":
        if not isinstance(factor, float) and np.ptp(factor) != 0.0:
            raise DeclarationError(f"{printed(e)}: has a factor for every entry: write one for all")
        yield from summed(e.args[0], float(np.ravel(factor)[0]))
        return
    for term in entries_of(e, factor):
        if term.node.size == e.size:
            yield term
        else:  # one number, which every entry has
            entries = np.broadcast_to(term.factor, (e.size,))
            yield ScaledNode(float(np.sum(entries)), term.node)


def _scaled(e: Any) -> tuple[float | Array, Any] | None:
    """A public factor (one number, or one for each entry) and the expression that it scales."""
    kind = node_kind(e)
    if kind == "DivExpression" and is_public(e.args[1]) and e.args[0].size == e.size:
        return _number_or_array(1.0 / flat(e.args[1].value)), e.args[0]
    if kind not in ("multiply", "MulExpression"):
        return None
    for by, inner in (e.args, e.args[::-1]):
        fits = by.size == 1 or (kind == "multiply" and by.size == e.size)
        if is_public(by) and fits and inner.size == e.size:
            return _number_or_array(flat(by.value)), inner
    return None


def _public_product(e: Any) -> tuple[float | Array, Any] | None:
    """A public vector and the vector that it is multiplied by to one number."""
    for by, inner in (e.args, e.args[::-1]):
        if is_public(by) and by.size == inner.size:
            return _number_or_array(flat(by.value)), inner
    return None


def _number_or_array(values: Array) -> float | Array:
    return float(values[0]) if np.ptp(values) == 0.0 else values


@dataclass(frozen=True)
class Price:
    """A price of the entries of an expression, or of their norm.

    Parameters
    ----------
    argument
        The affine expression.
    penalty
        Its price.
    entries
        Factors of the entries, which are priced after they are multiplied by these.
    """

    argument: Any
    penalty: Penalty
    entries: float | Array = 1.0


def all_entries(term: ScaledNode) -> Any:
    """The sum of the entries of a term, with its factors."""
    node = term.node
    if not isinstance(term.factor, float):
        return cp.sum(cp.multiply(term.factor, cp.vec(node, order="F")))
    whole = node if node.size == 1 else cp.sum(node)
    return whole if term.factor == 1.0 else term.factor * whole


def price_of(term: ScaledNode) -> Price | None:
    """A term as a price of an affine expression; None for another function.

    Raises DeclarationError for a price that no theorem covers, saying what to write.
    """
    node = term.node
    kind = node_kind(node)
    if kind == "quad_over_lin":
        return _quad_over_lin(node, term)
    if kind == "Power" and exponent_of(node) == 2.0:
        return _square(node.args[0], term.factor)
    if kind == "huber":
        return _huber(node, term)
    if kind in ("abs", "norm1"):
        _refuse_axis(node)
        return _size(node, term)
    part = positive_part(node, term.factor)
    if part is not None:
        argument, factor = part
        return _kink_of_entries(argument, factor, sided=True)
    if kind == "log_sum_exp":
        return _log_sum_exp(node, term.number)
    if kind == "QuadForm":
        return _quadratic(node, term.number)
    if kind in ("Pnorm", "norm_inf", "max"):
        argument, norm = norm_of(node)
        if not term.number > 0.0:
            refuse_node(node)
        return Price(argument, ImbalancePenalty(math.inf, norm=norm, price=term.number))
    return None


def _quad_over_lin(node: Any, term: ScaledNode) -> Price:
    """A sum of squares over a public number."""
    _refuse_axis(node)
    argument, divisor = node.args
    if not is_public(divisor):
        raise DeclarationError(f"{printed(node)}: divides by data: divide by a public number")
    return _square(argument, term.number / float(flat(divisor.value)[0]))


def norm_of(node: Any) -> tuple[Any, float]:
    """Argument and order of a norm, above 1. Raises DeclarationError for one that is not solved."""
    kind = node_kind(node)
    _refuse_axis(node)
    argument = node.args[0]
    norm = math.inf
    if kind == "max":
        if node_kind(argument) != "abs":
            raise DeclarationError(
                f"{printed(node)}: is no size of an imbalance: write cp.norm_inf(m)"
            )
        argument = argument.args[0]
    elif kind == "Pnorm":
        norm = float(getattr(node.p, "value", node.p))
        if not _LEAST_ORDER <= norm <= _LARGEST_ORDER:
            raise DeclarationError(
                f"{printed(node)}: is of order {norm:g}: write order 1, infinity, or one from "
                f"{_LEAST_ORDER:g} to {_LARGEST_ORDER:g}"
            )
    if node_kind(argument) == "abs":
        argument = argument.args[0]
    if not argument.is_affine():
        raise DeclarationError(
            f"{printed(node)}: is a norm of a curved function: write one of an imbalance"
        )
    return argument, norm


def positive_part(e: Any, factor: float | Array = 1.0) -> tuple[Any, float | Array] | None:
    """The affine x and the factor of ``factor * pos(x)``, which a minimum with 0 is as well.

    None for anything else. Raises DeclarationError for a factor below 0.
    """
    kind = node_kind(e)
    if kind == "NegExpression":
        return positive_part(e.args[0], -factor)
    if kind not in ("maximum", "minimum") or len(e.args) != 2:
        return None
    inner = _other_than_zero(e)
    if inner is None or not inner.is_affine() or is_public(inner):
        return None
    # min(x, 0) = -max(-x, 0)
    argument = inner if kind == "maximum" else -inner
    sign = 1.0 if kind == "maximum" else -1.0
    scaled = sign * factor
    if not np.all(np.asarray(scaled) >= 0.0):
        raise DeclarationError(f"{printed(e)}: has a factor below 0")
    return argument, scaled


def _other_than_zero(e: Any) -> Any | None:
    """The argument beside a public 0 of a maximum or minimum of two; None without a 0."""
    for inner, zero in (e.args, e.args[::-1]):
        if is_public(zero) and not np.any(flat(zero.value)):
            return inner
    return None


def exponent_of(node: Any) -> float:
    """Exponent of a power, as CVXPY takes it."""
    return float(getattr(node.p, "value", node.p))


def beyond_tolerance(e: Any) -> tuple[Any, float | Array, float | Array] | None:
    """Size, factor and tolerance of ``pos(factor * size - tolerance)``, or None."""
    if node_kind(e) != "maximum" or len(e.args) != 2:
        return None
    inner = _other_than_zero(e)
    return None if inner is None else size_and_limit(inner)


def size_and_limit(e: Any) -> tuple[Any, float | Array, float | Array] | None:
    """``(size, factor, limit)`` of an expression ``factor * size - limit``.

    The limit is public.
    """
    size: ScaledNode | None = None
    limit: float | Array = 0.0
    for term in entries_of(e):
        if is_public(term.node):
            values = _number_or_array(flat(term.node.value))
            limit = limit - term.factor * values
        elif size is None and not term.node.is_affine():
            size = term
        else:
            return None
    if size is None or not np.all(np.asarray(size.factor) > 0.0):
        return None
    return size.node, size.factor, limit


def _square(argument: Any, factor: float | Array) -> Price:
    """A square of entries, of a norm, or of what is beyond a tolerance."""
    if not np.all(np.asarray(factor) >= 0.0):
        raise DeclarationError(f"square({printed(argument)}): has a factor below 0")
    kind = node_kind(argument)
    if argument.is_affine():
        return _entrywise(argument, factor)
    if kind == "abs":
        return _square(argument.args[0], factor)
    if kind in ("Pnorm", "norm_inf", "max"):
        inner, norm = norm_of(argument)
        order = None if norm == 2.0 else norm
        return Price(inner, ImbalancePenalty(float(np.ravel(factor)[0]), norm=order))
    part = positive_part(argument)
    if part is not None and isinstance(factor, float):
        return Price(part[0], ImbalancePenalty(factor, sided=True))
    if part is not None:
        return Price(part[0], ImbalancePenalty(1.0, sided=True), np.sqrt(factor))
    found = beyond_tolerance(argument)
    if found is None:
        raise DeclarationError(
            f"square({printed(argument)}): is not read: write cp.sum_squares(m), or "
            "cp.sum_squares(cp.pos(cp.abs(m) - tolerance))"
        )
    size, by, limit = found
    return _beyond(size, by, limit, factor, math.inf)


def _entrywise(argument: Any, factor: float | Array) -> Price:
    """A sum of squares, with a factor for all entries or one for each.

    Rows are multiplied by the latter.
    """
    if isinstance(factor, float):
        return Price(argument, ImbalancePenalty(factor))
    return Price(argument, ImbalancePenalty(1.0), np.sqrt(factor))


def _beyond(
    size: Any, by: float | Array, limit: float | Array, factor: float | Array, knee: float
) -> Price:
    """``factor * huber(pos(by * size - limit), knee)`` of absolute values or a norm."""
    text = printed(size)
    if np.any(np.asarray(limit) < 0.0):
        raise DeclarationError(f"{text}: has a tolerance below 0: leave it out")
    kind = node_kind(size)
    if kind == "Pnorm":
        argument, norm = norm_of(size)
        # huber(by t, knee) = by^2 huber(t, knee / by)
        scale = _single(by, text)
        one_factor = _single(factor, text)
        tolerance = _single(limit, text) / scale
        penalty = ImbalancePenalty(one_factor * scale**2, tolerance, knee / scale, norm)
        return Price(argument, penalty)
    if kind != "abs":
        raise DeclarationError(
            f"{text}: write cp.pos(cp.abs(m) - tolerance), or that of cp.norm(m)"
        )
    argument = size.args[0]
    if math.isinf(knee):
        return _squares_beyond(argument, by, limit, factor)
    penalty = ImbalancePenalty(_single(factor, text), _number_if_alike(limit), knee)
    return Price(argument, penalty, _number_if_alike(by))


def _squares_beyond(
    argument: Any, by: float | Array, limit: float | Array, factor: float | Array
) -> Price:
    """``factor * square(pos(by * |argument| - limit))``, entry by entry."""
    multiple = _number_if_alike(by)
    if isinstance(multiple, float) and isinstance(factor, float):
        tolerance = _number_if_alike(limit / multiple)
        return Price(argument, ImbalancePenalty(factor * multiple**2, tolerance))
    root = np.sqrt(factor)
    penalty = ImbalancePenalty(1.0, _number_if_alike(root * limit))
    return Price(argument, penalty, _number_if_alike(root * by))


def _huber(node: Any, term: ScaledNode) -> Price:
    """A Huber function of entries, of a norm, or of what is beyond a tolerance."""
    argument = node.args[0]
    knee = float(flat(node.M.value)[0])
    kind = node_kind(argument)
    factor = term.number
    if not factor > 0.0 or not knee > 0.0:
        raise DeclarationError(f"{printed(node)}: has a factor or a knee that is not above 0")
    if kind == "abs":
        argument = argument.args[0]
    if argument.is_affine():
        return Price(argument, ImbalancePenalty(factor, knee=knee))
    if kind == "Pnorm":
        inner, norm = norm_of(argument)
        return Price(inner, ImbalancePenalty(factor, knee=knee, norm=norm))
    part = positive_part(argument)
    if part is not None:
        return Price(part[0], ImbalancePenalty(factor, knee=knee, sided=True))
    beyond = beyond_tolerance(argument)
    if beyond is None:
        beyond = size_and_limit(argument)
        if beyond is None or np.any(beyond[2]):  # a tolerance that is not cut off at 0
            refuse_node(node)
    size, by, limit = beyond
    return _beyond(size, by, limit, factor, knee)


def _size(node: Any, term: ScaledNode) -> Price:
    """A sum of sizes: a kink."""
    argument = node.args[0]
    if not argument.is_affine():
        refuse_node(node)
    if not np.all(np.asarray(term.factor) >= 0.0):
        raise DeclarationError(f"{printed(node)}: has a factor below 0")
    return _kink_of_entries(argument, term.factor, sided=False)


def _kink_of_entries(argument: Any, factor: float | Array, *, sided: bool) -> Price:
    """A sum of sizes, with a factor for all entries or one for each."""
    if isinstance(factor, float):
        return Price(argument, ImbalancePenalty(math.inf, price=factor, sided=sided))
    return Price(argument, ImbalancePenalty(math.inf, price=1.0, sided=sided), factor)


def _log_sum_exp(node: Any, factor: float) -> Price:
    """A logarithm of a sum of exponentials of all entries."""
    _refuse_axis(node)
    argument = node.args[0]
    if not argument.is_affine() or not factor > 0.0:
        refuse_node(node)
    return Price(argument, LogSumExpPenalty(factor))


def _quadratic(node: Any, factor: float) -> Price:
    """A public quadratic form of an imbalance: its rows are multiplied by a root of the matrix."""
    argument, matrix = node.args
    if not is_public(matrix):
        raise DeclarationError(f"{printed(node)}: has a matrix that is data: write a public one")
    of_weights = argument.variables() and argument.is_affine() and not argument.parameters()
    if of_weights and argument.size > 1:
        raise DeclarationError(
            f"{printed(node)}: is a quadratic of weights: write cp.sum_squares(w - 1)"
        )
    values = matrix.value
    dense = np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float64)
    eigenvalues, vectors = np.linalg.eigh((dense + dense.T) / 2.0)
    root = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T
    if not factor > 0.0:
        refuse_node(node)
    rooted = cp.Constant(root) @ cp.vec(argument, order="F")
    return Price(rooted, ImbalancePenalty(factor))


def _single(value: float | Array, text: str) -> float:
    """One number for all entries."""
    values = np.ravel(value)
    if np.ptp(values) != 0.0:
        raise DeclarationError(f"{text}: has a number for every entry: write one for all")
    return float(values[0])


def _number_if_alike(value: Any) -> float | Array:
    values = np.ravel(np.asarray(value, dtype=np.float64))
    return float(values[0]) if values.size == 1 or np.ptp(values) == 0.0 else values


def _refuse_axis(node: Any) -> None:
    """Raise DeclarationError for a norm or a maximum along an axis."""
    if getattr(node, "axis", None) is not None:
        raise DeclarationError(f"{printed(node)}: is taken along an axis: write one of all entries")


#: What to write in place of atoms that are not read.
_INSTEAD = {
    "log_sum_exp": "cp.log_sum_exp(m) of an imbalance with a factor above 0",
    "exp": "-cp.sum(cp.entr(w)) or cp.sum_squares(w - 1)",
    "logistic": "cp.sum_squares(w - 1), or two entropies on an interval",
    "maximum": "cp.abs, or cp.pos(m) or cp.sum_squares(cp.pos(cp.abs(m) - tolerance))",
    "Sum": "cp.sum of all entries",
}


def refuse_node(node: Any) -> NoReturn:
    """Raise DeclarationError for a node that is not read."""
    default = (
        "squares, entr, log, power or huber of weights, and squares, huber or norms of imbalances"
    )
    instead = _INSTEAD.get(node_kind(node), default)
    raise DeclarationError(f"{printed(node)}: is not read here: write {instead}")
