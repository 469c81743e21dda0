"""Reads a CVXPY problem: sums over records of curves of affine margins, a ridge, an l1 term, a set.

What is not read is refused in one line that names the expression and the remedy. A reading is
believed only after values and gradients of what was read have been compared with CVXPY's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.atoms import Atom, atom
from dp2erm_cvx.curves.curves import Curve, Part
from dp2erm_cvx.curves.log_weights import LogWeight
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.sets import Box, ConvexSet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.declaration import derivative, printed, refuse_misread, refuse_no_problem
from dp2erm_cvx.program.penalties import PublicPenalty
from dp2erm_cvx.program.rows import Ball, Datum, Range, Vertices, same_data, shifted_rows

#: Where expressions of one margin are compared.
_MARGINS = np.array([[-3.1], [-1.3], [-0.4], [0.0], [0.2], [0.9], [1.7], [4.3]])
_KNOWN = (
    "logistic, probit, exp, square, huber, square(pos(.)) and bounded_influence of an affine margin"
)


@dataclass(frozen=True, eq=False)
class MarginTerm:
    """``sum_i c_i phi(<z_i, v> + o_i) + t_i <z_i, v>``.

    It has rows z, a curve phi, and multiples of numbers o, c and t.
    """

    rows: Datum
    curve: Curve
    offset: tuple[float, Datum] | None = None
    factor: tuple[float, Datum] | None = None
    tilt: tuple[float, Datum] | None = None

    def near(self, other: MarginTerm) -> bool:
        """True if another term has the same curve of the same data, to within rounding."""
        for which in ("offset", "factor", "tilt"):
            own, theirs = getattr(self, which), getattr(other, which)
            if (own is None) is not (theirs is None):
                return False
            if own is not None and not (
                _close([own[0]], [theirs[0]]) and same_data(own[1], theirs[1])
            ):
                return False
        parts = self.curve.parts, other.curve.parts
        if len(parts[0]) != len(parts[1]) or not same_data(self.rows, other.rows):
            return False
        pairs = zip(*parts, strict=True)
        return all(
            a.atom == b.atom
            and _close((a.coefficient, a.scale, a.shift), (b.coefficient, b.scale, b.shift))
            for a, b in pairs
        )

    def interval(self, which: str) -> tuple[float, float]:
        """Public interval of ``offset``, ``factor`` or ``tilt``."""
        part = getattr(self, which)
        if part is None:
            return (1.0, 1.0) if which == "factor" else (0.0, 0.0)
        assert isinstance(part[1].within, Range)
        ends = part[0] * part[1].within.low, part[0] * part[1].within.high
        return min(ends), max(ends)

    def numbers(self, which: str, records: Records) -> Array | None:
        """Numbers (n,) of ``offset``, ``factor`` or ``tilt`` of records; None without."""
        part = getattr(self, which)
        return None if part is None else part[0] * part[1].of(records)


@dataclass(frozen=True, eq=False)
class Form:
    """A sum over records: one margin term, ``ridge/2 ||v||^2``, ``l1 ||v||_1``, a set of v.

    ``is_mean`` says that the declared objective is a mean over records, not a sum; ``own`` are the
    names of data that maps of the author make; ``public`` are other terms of v that hold no data.
    """

    term: MarginTerm
    ridge: float
    l1: float
    feasible: ConvexSet
    is_mean: bool = False
    own: tuple[str, ...] = ()
    public: PublicPenalty | None = None

    @staticmethod
    def of(problem: cp.Problem, v: cp.Variable) -> Form:
        """Form of a declared problem in v (p,).

        Raises DeclarationError naming what is not read, and why.
        """
        objective = _objective(problem)
        for variable in problem.variables():
            if variable is not v:
                raise DeclarationError(
                    f"variable {variable.name()}: is not {v.name()}: write the problem in "
                    f"{v.name()} alone"
                )
        terms: list[MarginTerm] = []
        public: list[tuple[float, Any]] = []
        ridge = l1 = 0.0
        for c, node in _split(objective):
            name = _name(node)
            if not node.variables():
                continue
            if name == "quad_over_lin" and node.args[0] is v:
                ridge += 2 * c / _number(node.args[1])
            elif name == "norm1" and node.args[0] is v:
                l1 += c
            elif not node.parameters():
                public.append((c, node))
            else:
                terms += _summed(c, node, v)
        margins = _one_square(_tilted(terms))
        if len(margins) != 1:
            raise DeclarationError(
                f"{printed(objective)}: a loss is read of one margin, rows @ {v.name()} plus one "
                f"number per record, and {_margins_in_words(margins)}"
            )
        penalty = PublicPenalty.of(public, v) if public else None
        return Form(margins[0], ridge, l1, _set(problem.constraints, v), public=penalty)

    def differs(self, other: Form, *, one_column: bool = False) -> str:
        """How another form of one record differs, in words; empty where it does not.

        Both are compared up to rounding.

        Over ``one_column`` a ball, an l1 ball and a box are one and the same set.
        """
        same_set = self.feasible == other.feasible
        if one_column:
            same_set = self.feasible.norm_bound(1) == other.feasible.norm_bound(1)
        if not same_set:
            return "its set of theta"
        if not self.term.near(other.term) or self.own != other.own:
            return "its loss"
        same_public = (
            other.public is None if self.public is None else self.public.near(other.public)
        )
        if not same_public or not _close((self.ridge, self.l1), (other.ridge, other.l1)):
            return "its penalty"
        return ""

    def refuse_other_set(self, problem: cp.Problem, v: cp.Variable) -> None:
        """Raise DeclarationError where the set that was read is not the declared one.

        Seen from outside, its nearest point obeys them, and a point beyond that does not.
        """
        size = self.feasible.norm_bound(v.size)
        for direction in np.array([[1.1, 1.2, 1.3], [1.1, -1.2, 1.3], [-1.3, 1.1, -1.2]]):
            far = np.resize(direction, v.size) * (size if math.isfinite(size) else 1e3)
            near = self.feasible.project(far)
            broken = []
            for v.value in (near, near + 1e-3 * (far - near)):
                broken.append(
                    max((float(np.max(c.violation())) for c in problem.constraints), default=0.0)
                )
            if broken[0] > 1e-9 * np.max(np.abs(far)) or (
                math.isfinite(size) and not broken[1] > 0.0
            ):
                texts = ", ".join(map(printed, problem.constraints))
                raise DeclarationError(f"{texts} was read as {self.feasible}: please report it")

    def scaled(self, factor: float) -> Form:
        """The form of a multiple of the objective."""
        tilt = self.term.tilt and (factor * self.term.tilt[0], self.term.tilt[1])
        term = replace(self.term, curve=self.term.curve.scaled(factor), tilt=tilt)
        public = self.public and self.public.scaled(factor)
        return replace(
            self, term=term, ridge=factor * self.ridge, l1=factor * self.l1, public=public
        )


def at_size(form: Form, n: int, is_mean: bool) -> Form:
    """The form of one record of a sum over n records, or of a mean, as it was read of a problem."""
    if not is_mean:
        public = form.public and form.public.scaled(1.0 / n)
        return replace(form, ridge=form.ridge / n, l1=form.l1 / n, public=public)
    return replace(form.scaled(n), ridge=form.ridge, l1=form.l1, public=form.public, is_mean=True)


def _margins_in_words(margins: Sequence[MarginTerm]) -> str:
    """How many margins were read, of which rows, and what to write instead."""
    if not margins:
        return (
            "none is written: add a sum over records such as cp.sum(cp.logistic(records.x @ theta))"
        )
    rows = " and ".join(term.rows.name() for term in margins)
    return (
        f"{len(margins)} are written, of the rows {rows}: write all curves of the same rows and "
        "number"
    )


def _close(numbers: Sequence[float], others: Sequence[float]) -> bool:
    return bool(np.allclose(numbers, others, rtol=1e-12, atol=0.0))


def _objective(problem: cp.Problem) -> Any:
    """Objective of a declared problem.

    Raises DeclarationError for what is not convex or has no set.
    """
    refuse_no_problem("the function", problem)
    if not isinstance(problem.objective, cp.Minimize):
        objective = printed(problem.objective.args[0])
        raise DeclarationError(f"maximizes {objective}: write cp.Minimize of its negative")
    _refuse_nonconvex(problem.objective.args[0], *problem.constraints)
    for datum in problem.parameters():
        if not hasattr(datum, "within"):
            raise DeclarationError(
                f"parameter {datum.name()} has no public set: take it from records (rows(), "
                "numbers()), or make it a setting"
            )
    return problem.objective.args[0]


def _refuse_nonconvex(*expressions: Any) -> None:
    """Raise DeclarationError naming the first part that is not convex by DCP."""
    for node in expressions:
        if node.is_dcp():
            continue
        while inner := [part for part in node.args if not part.is_dcp()]:
            node = inner[0]
        remedy = (
            "log(1 + exp(s)) is logistic(s)"
            if _name(node) == "log"
            else "write it with convex atoms of CVXPY"
        )
        raise DeclarationError(f"not convex by DCP: {printed(node)}; {remedy}")


def states_sum(constraint: Any, w: cp.Variable, total: float | None = None) -> bool:
    """True for an equation of the sum of the weights; of this ``total``, where one is given."""
    if type(constraint).__name__ != "Equality" or not constraint.expr.is_scalar():
        return False
    w.value = np.ones(w.size)
    along = derivative(constraint.expr, w)
    if along is None or along[0] == 0.0 or np.ptp(along) != 0.0:
        return False
    if total is None:
        return True
    off = (w.size - total) * along[0] - float(np.ravel(constraint.expr.value)[0])
    return bool(abs(off) <= 1e-9 * total * abs(along[0]))


def weights_curvature(problem: cp.Problem, w: cp.Variable) -> float:
    """Largest m known such that the objective less ``m/2 ||w||^2`` is convex.

    The problem is one in weights w.

    Squares of the weights themselves count, less constants; 0 where there are none. Raises
    DeclarationError where the problem is not convex, and where its constraints hold data.
    """
    objective = _objective(problem)
    for constraint in problem.constraints:
        if constraint.parameters():
            raise DeclarationError(
                f"{printed(constraint)} depends on the data, where no theorem holds: make it a "
                "penalty"
            )
        if states_sum(constraint, w) and not states_sum(constraint, w, float(w.size)):
            raise DeclarationError(
                f"{printed(constraint)}: write cp.sum(w) == records.n, or leave it out"
            )
    total = 0.0
    for c, node in _split(objective):
        if (
            _name(node) == "quad_over_lin"
            and _scalar(node.args[1])
            and not node.args[0].parameters()
        ):
            scale = [k for k, part in _split(node.args[0]) if part is w]
            rest = [part for _, part in _split(node.args[0]) if part is not w and part.variables()]
            if not rest:
                total += 2 * c * sum(scale) ** 2 / _number(node.args[1])
    return total


def read_curve(
    e: Any, s: cp.Variable, other: cp.Variable | None = None, *, compared: bool = True
) -> tuple[Curve, float]:
    """Curve of a convex CVXPY expression of a scalar variable, and the factor of a line beside it.

    Parameters
    ----------
    e
        The expression.
    s
        The variable of the curve.
    other
        A variable that a line may be added of; None for no line.
    compared
        Whether values and slopes of the curve are compared with those of CVXPY.

    Raises DeclarationError for what is not convex, not read, or read with other values.
    """
    _refuse_nonconvex(e)
    if not e.is_convex():
        raise DeclarationError(
            f"not convex by DCP: {printed(e)}; a loss of a margin must be convex"
        )
    parts, beside = [], 0.0
    for c, node in _split(e):
        if node is other:
            beside += c
        if node is other or not node.variables() or c == 0.0:
            continue  # a constant moves no minimizer, and 0 times infinity is no slope
        bend, inner = (atom("line"), node) if node.is_affine() else _atom(node)
        scale, shift = _line(inner, s)
        if scale:
            parts.append(Part(c, bend, scale, shift))
    curve = Curve(tuple(parts))
    if not compared:
        return curve, beside
    if other is not None:
        s.value = 0.3
        refuse_misread(e, other, lambda x: (beside * x, beside), _MARGINS, shifted=True)
    refuse_misread(e, s, lambda x: (curve.value(x), curve.slope(x)), _MARGINS, shifted=True)
    return curve, beside


def read_log_weight(e: Any, s: cp.Variable, *, compared: bool = True) -> LogWeight:
    """Log weight of a CVXPY expression of the scalar variable s, convex or not.

    Its values are ``compared`` with those of CVXPY. Raises DeclarationError.
    """
    weight = _log_weight(e, s)
    if compared:
        refuse_misread(e, s, lambda x: (weight.log(x), None), _MARGINS)
    return weight


def _log_weight(e: Any, s: cp.Variable) -> LogWeight:
    if e is s:
        return LogWeight()
    if e.is_constant():
        return LogWeight("constant", number=_number(e))
    name = _name(e)
    if name == "Promote":
        return _log_weight(e.args[0], s)
    if name == "AddExpression":
        return LogWeight("sum", tuple(_log_weight(part, s) for part in e.args))
    if name == "NegExpression":
        return _log_weight(e.args[0], s).times(-1.0)
    if (k := _multiple(e)) is not None:
        return _log_weight(e.args[1 - k], s).times(_number(e.args[k]))
    if name == "DivExpression" and _scalar(e.args[1]):
        return _log_weight(e.args[0], s).times(1 / _number(e.args[1]))
    if name in ("minimum", "maximum"):
        sign = 1.0 if name == "minimum" else -1.0
        parts = [
            part for part in e.args if not (part.is_constant() and _number(part) == sign * math.inf)
        ]
        if len(parts) == 1:
            return _log_weight(parts[0], s)
        if sign > 0:
            return LogWeight("minimum", tuple(_log_weight(part, s) for part in parts))
        return LogWeight(
            "minimum", tuple(_log_weight(part, s).times(-1.0) for part in parts)
        ).times(-1.0)
    if name in ("log", "entr"):
        return LogWeight(name, (_log_weight(e.args[0], s),))
    outer, inner = _atom(e)
    return LogWeight("atom", (_log_weight(inner, s),), atom=outer)


def _summed(c: float, node: Any, v: cp.Variable) -> Iterator[MarginTerm]:
    """Terms of ``c node``, a sum over records: sum(losses), c @ losses, sum_squares(residuals)."""
    name, first = _name(node), node.args[0] if node.args else node
    if name == "Sum" and node.axis is None:
        return _losses(c, first, v)
    if name == "MulExpression" and _is_numbers(first):
        return _losses(c, node.args[1], v, (1.0, first))
    if name == "MulExpression" and _equal_entries(first) and node.args[1].ndim == 1:
        return _losses(c * _number(first), node.args[1], v)
    if name == "quad_over_lin" and _scalar(node.args[1]):
        return _losses(c / _number(node.args[1]), cp.square(first), v)
    raise DeclarationError(
        f"{printed(node)}: no sum over records, and a penalty of {v.name()} holds no data: write "
        f"cp.sum of a curve of rows @ {v.name()}, or leave the data out"
    )


def _losses(
    c: float, e: Any, v: cp.Variable, factor: tuple[float, Datum] | None = None
) -> Iterator[MarginTerm]:
    """Terms of a vector with one entry per record."""
    if e.ndim != 1:
        raise DeclarationError(
            f"{printed(e)} has the shape {e.shape}: a sum over records adds one number each"
        )
    for k, node in _split(e, c):
        if _name(node) == "multiply" and _is_numbers(node.args[0]) and factor is None:
            yield from _losses(k, node.args[1], v, (1.0, node.args[0]))
            continue
        if not node.variables() or k == 0.0:
            continue
        bend, inner = (atom("line"), node) if (affine := node.is_affine()) else _atom(node)
        scale, rows, numbers, shift = _margin(inner, v)
        if bend.kind == "square":  # (a s + b)^2 = a^2 (s + b/a)^2
            numbers, k = numbers and (numbers[0] / scale, numbers[1]), k * scale**2
            scale, shift = 1.0, shift / scale
        if affine:  # numbers beside a margin move no minimizer
            yield MarginTerm(rows, Curve((Part(k, bend, scale),)), None, factor)
            continue
        offset = None if numbers is None else (numbers[0] / scale, numbers[1])
        yield MarginTerm(rows, Curve((Part(k, bend, scale, shift),)), offset, factor)


def _margin(e: Any, v: cp.Variable) -> tuple[float, Datum, tuple[float, Datum] | None, float]:
    """(a, rows, (k, numbers), b) of an affine expression ``a rows @ v + k numbers + b``.

    A public linear function of v, which is the same for every record, is a constant row beside the
    rows.
    """
    scale, shift = 0.0, 0.0
    rows: Datum | None = None
    offset: tuple[float, Datum] | None = None
    constant = np.zeros(v.size)
    for c, node in _split(e):
        if _name(node) == "MulExpression" and node.args[1] is v:
            ((k, datum),) = _split(node.args[0])
            if not isinstance(getattr(datum, "within", None), Ball | Vertices) or rows not in (
                None,
                datum,
            ):
                raise DeclarationError(
                    f"{printed(node)}: one margin has one set of rows; make them with "
                    "records.rows(...)"
                )
            scale, rows = scale + c * k, datum
        elif _is_numbers(node) and offset is None:
            offset = c, node
        elif node.is_constant() and _scalar(node):
            shift += c * _number(node)
        elif node.size == 1 and node.is_affine() and not node.parameters():
            v.value = np.zeros(v.size)
            along = derivative(node, v)
            assert along is not None
            constant += c * along
            shift += c * _number(node)
        else:
            raise DeclarationError(
                f"{printed(node)}: a margin is rows @ {v.name()} plus one number per record; make "
                "a product with records.rows(...) or records.numbers(...)"
            )
    if rows is None or scale == 0.0:
        raise DeclarationError(f"{printed(e)}: no rows of records multiply {v.name()}")
    if np.any(constant):
        rows = shifted_rows(rows, constant / scale)
    return scale, rows, offset, shift


def _tilted(terms: list[MarginTerm]) -> list[MarginTerm]:
    """Terms of one margin added up.

    A line joins the term of its rows, as a tilt where it has a factor.
    """
    by_margin: dict[tuple[Any, ...], MarginTerm] = {}
    for term in terms:
        offset, factor = (part and (part[0], part[1].id) for part in (term.offset, term.factor))
        key = term.rows.id, factor, "line" if term.curve.is_line else offset
        known = by_margin.get(key)
        by_margin[key] = (
            term if known is None else replace(known, curve=known.curve.plus(term.curve))
        )
    bent = [term for term in by_margin.values() if not term.curve.is_line]
    lines = [term for term in by_margin.values() if term.curve.is_line]
    for line in lines:
        slope = sum(part.coefficient * part.scale for part in line.curve.parts)
        place = next((i for i, term in enumerate(bent) if term.rows is line.rows), None)
        if place is not None and _datum((term := bent[place]).factor) is _datum(line.factor):
            bent[place] = replace(term, curve=term.curve.plus(line.curve))
        elif place is not None and line.factor is not None and bent[place].tilt is None:
            bent[place] = replace(bent[place], tilt=(slope, line.factor[1]))
        else:
            bent.append(line)
    return bent


def _one_square(terms: list[MarginTerm]) -> list[MarginTerm]:
    """Squares of the same rows and factor as one square.

    They may differ in multiples of the same numbers.

    ``sum_k a_k (s + o_k)^2`` is ``a (s + sum_k a_k o_k / a)^2`` with ``a = sum_k a_k``, up to a
    number of the record that moves no minimizer.
    """
    merged: dict[tuple[Any, ...], MarginTerm] = {}
    for term in terms:
        squares = all(part.atom.kind == "square" and part.scale == 1.0 for part in term.curve.parts)
        factor = None if term.factor is None else (term.factor[0], term.factor[1].id)
        if squares and term.tilt is None:
            key: tuple[Any, ...] = ("squares", term.rows.id, factor)
        else:
            key = ("another", len(merged))
        known = merged.get(key)
        both = term if known is None else _squares_added(known, term)
        if both is None:
            return terms
        merged[key] = both
    return list(merged.values())


def _squares_added(one: MarginTerm, other: MarginTerm) -> MarginTerm | None:
    """Two terms of squares as one; None where their offsets are of different data."""
    data = [part[1] for part in (one.offset, other.offset) if part is not None]
    if len(data) == 2 and data[0].id != data[1].id:
        return None
    total = beside = multiple = 0.0
    for term in (one, other):
        own = 0.0 if term.offset is None else term.offset[0]
        for part in term.curve.parts:
            total += part.coefficient
            beside += part.coefficient * part.shift
            multiple += part.coefficient * own
    curve = Curve((Part(total, atom("square"), 1.0, beside / total),))
    offset = (multiple / total, data[0]) if data else None
    return replace(one, curve=curve, offset=offset)


def _datum(part: tuple[float, Datum] | None) -> Datum | None:
    return None if part is None else part[1]


#: Sets by the atoms of CVXPY that are at most a number on them.
_SETS: dict[str, Callable[[float], ConvexSet]] = {
    "Pnorm": L2Ball,
    "PnormApprox": L2Ball,
    "norm2": L2Ball,
    "norm1": L1Ball,
    "norm_inf": Box,
    "abs": Box,
}


def _set(constraints: list[Any], v: cp.Variable) -> ConvexSet:
    """Set of v: a ball, an l1 ball or a box around 0, which holds 0."""
    sizes: dict[Callable[[float], ConvexSet], float] = {}
    for constraint in constraints:
        e, kind = constraint.args[0], None
        if type(constraint).__name__ == "Inequality" and _scalar(constraint.args[1]):
            kind = _SETS.get(_name(e)) if e.args and e.args[0] is v else None
            kind = kind if kind is not L2Ball or float(getattr(e, "p", 2)) == 2 else None
        if kind is None:
            raise DeclarationError(
                f"{printed(constraint)}: no set that is read; norm({v.name()}) <= r, "
                f"norm1({v.name()}) <= r or abs({v.name()}) <= r, with r a public number"
            )
        size = _number(constraint.args[1])
        if not size >= 0:
            raise DeclarationError(
                f"{printed(constraint)}: 0 is outside of the set, which the theorems need"
            )
        sizes[kind] = min(size, sizes.get(kind, math.inf))
    if len(sizes) > 1:
        raise DeclarationError("one set of the coefficient is read: a ball, an l1 ball or a box")
    sets = [kind(size) for kind, size in sizes.items() if math.isfinite(size)]
    return sets[0] if sets else WholeSpace()


def _atom(node: Any) -> tuple[Atom, Any]:
    """Atom of a node, and the expression that it is taken of."""
    name = _name(node)
    if len(node.args) == 1:
        inner = node.args[0]
        if name == "huber" and _scalar(node.M):
            return atom("huber", _number(node.M)), inner
        if (
            name in ("power", "Power", "PowerApprox")
            and float(getattr(node.p, "value", node.p)) == 2
        ):
            if _name(inner) == "maximum" and _scalar(inner.args[1]) and not _number(inner.args[1]):
                return atom("hinge"), inner.args[0]
            return atom("square"), inner
        if name in ("BoundedInfluence", "Probit"):
            return node.atom, inner
        if name in ("logistic", "exp"):
            return atom(name), inner
    if any(constant.shape == _NORMCDF for constant in node.constants()):
        # CVXPY writes this function as squares of maxima, in which nobody would know it again
        margins = ", ".join(variable.name() for variable in node.variables())
        raise DeclarationError(
            f"cp.log_normcdf of {margins}: CVXPY approximates log Phi: write probit(-s), of "
            "dp2erm_cvx.program, for -cp.log_normcdf(s)"
        )
    remedy = _INSTEAD.get(name, "")
    raise DeclarationError(f"{printed(node)}: no curve is known for it; read are {_KNOWN}{remedy}")


#: Shape of the constants that CVXPY writes ``log_normcdf`` with.
_NORMCDF = (7, 7)
#: What to write in the place of an atom without a curve, by its name.
_INSTEAD = {
    "abs": ". An absolute value has a kink: write huber(., M)",
    "maximum": ". A hinge has a kink: write square(pos(.)) or logistic(.)",
    "norm1": ". A sum of absolute values has kinks: write sum(huber(., M))",
}


def _split(e: Any, c: float = 1.0) -> Iterator[tuple[float, Any]]:
    """(coefficient, term) of the sums, signs and public multiples at the top of a tree."""
    name = _name(e)
    if name == "AddExpression":
        for part in e.args:
            yield from _split(part, c)
    elif name in ("NegExpression", "Promote"):
        yield from _split(e.args[0], -c if name == "NegExpression" else c)
    elif name == "DivExpression" and _scalar(e.args[1]):
        yield from _split(e.args[0], c / _number(e.args[1]))
    elif (k := _multiple(e)) is not None:
        yield from _split(e.args[1 - k], c * _number(e.args[k]))
    else:
        yield c, e


def _multiple(e: Any) -> int | None:
    """Place of the argument that is one public number and multiplies the other.

    A matrix never is one.
    """
    if _name(e) not in ("multiply", "MulExpression"):
        return None
    return next((k for k in (0, 1) if _scalar(e.args[k])), None)


def _scalar(e: Any) -> bool:
    """True if an expression is one public number: settings are numbers, data are parameters."""
    if e.variables() or e.parameters():
        return False
    return e.size == 1 or _name(e) == "Promote"


def _equal_entries(e: Any) -> bool:
    """True if an expression is a public vector of equal entries.

    Its product with losses is their sum.
    """
    return e.is_constant() and not e.parameters() and e.ndim == 1 and bool(np.ptp(e.value) == 0)


def _number(e: Any) -> float:
    return float(np.ravel(e.value)[0])


def _line(e: Any, s: cp.Variable) -> tuple[float, float]:
    """(a, b) of an affine expression ``a s + b`` of one scalar variable."""
    a = b = 0.0
    for c, node in _split(e):
        if node is s:
            a += c
        elif node.is_constant() and _scalar(node):
            b += c * _number(node)
        else:
            raise DeclarationError(f"{printed(node)} is no affine function of the margin")
    return a, b


def _is_numbers(e: Any) -> bool:
    return isinstance(getattr(e, "within", None), Range)


def _name(e: Any) -> str:
    return type(e).__name__
