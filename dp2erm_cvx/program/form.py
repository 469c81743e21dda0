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
#: Curves that are read, in words.
_KNOWN = (
    "logistic, probit, exp, square, huber, square(pos(.)) and bounded_influence of an affine margin"
)

#: A public number times one number of every record.
Multiple = tuple[float, Datum]


@dataclass(frozen=True, eq=False)
class MarginTerm:
    """``sum_i c_i phi(<z_i, v> + o_i) + t_i <z_i, v>``.

    Parameters
    ----------
    rows
        The rows z.
    curve
        The curve phi.
    offset, factor, tilt
        Public multiples of numbers of the records, which are o, c and t; None for 0, 1 and 0.
    """

    rows: Datum
    curve: Curve
    offset: Multiple | None = None
    factor: Multiple | None = None
    tilt: Multiple | None = None

    def near(self, other: MarginTerm) -> bool:
        """True if another term has the same curve of the same data, to within rounding."""
        same_numbers = (
            _near_multiples(self.offset, other.offset)
            and _near_multiples(self.factor, other.factor)
            and _near_multiples(self.tilt, other.tilt)
        )
        if not same_numbers:
            return False
        parts = self.curve.parts
        other_parts = other.curve.parts
        if len(parts) != len(other_parts) or not same_data(self.rows, other.rows):
            return False
        pairs = zip(parts, other_parts, strict=True)
        return all(_near_parts(part, other_part) for part, other_part in pairs)

    def interval(self, which: str) -> tuple[float, float]:
        """Public interval of ``offset``, ``factor`` or ``tilt``."""
        part = getattr(self, which)
        if part is None:
            return (1.0, 1.0) if which == "factor" else (0.0, 0.0)
        multiple, numbers = part
        assert isinstance(numbers.within, Range)
        ends = multiple * numbers.within.low, multiple * numbers.within.high
        return min(ends), max(ends)

    def numbers(self, which: str, records: Records) -> Array | None:
        """Numbers (n,) of ``offset``, ``factor`` or ``tilt`` of records; None without."""
        part = getattr(self, which)
        if part is None:
            return None
        multiple, numbers = part
        return np.asarray(multiple * numbers.of(records))


def _near_multiples(one: Multiple | None, other: Multiple | None) -> bool:
    """True if two multiples are of the same numbers, to within rounding, or both are missing."""
    if one is None or other is None:
        return one is other
    return _close([one[0]], [other[0]]) and same_data(one[1], other[1])


def _near_parts(one: Part, other: Part) -> bool:
    """True if two parts of curves are the same to within rounding."""
    if one.atom != other.atom:
        return False
    numbers = (one.coefficient, one.scale, one.shift)
    return _close(numbers, (other.coefficient, other.scale, other.shift))


@dataclass(frozen=True, eq=False)
class Form:
    """A sum over records of one margin term, with an elastic net and a set of the variable v.

    Parameters
    ----------
    term
        The margin term.
    ridge
        Factor of ``||v||^2 / 2``.
    l1
        Factor of ``||v||_1``.
    feasible
        The set of v.
    is_mean
        Whether the declared objective is a mean over records, not a sum.
    own
        Names of data that maps of the author make.
    public
        Other terms of v, which hold no data; None without any.
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
        ridge = 0.0
        l1 = 0.0
        for factor, node in _split(objective):
            if not node.variables():
                continue
            kind = _name(node)
            if kind == "quad_over_lin" and node.args[0] is v:
                ridge += 2 * factor / _number(node.args[1])
            elif kind == "norm1" and node.args[0] is v:
                l1 += factor
            elif not node.parameters():
                public.append((factor, node))
            else:
                terms += _summed(factor, node, v)
        margins = _one_square(_tilted(terms))
        if len(margins) != 1:
            raise DeclarationError(
                f"{printed(objective)}: a loss is read of one margin, rows @ {v.name()} plus one "
                f"number per record, and {_margins_in_words(margins)}"
            )
        penalty = PublicPenalty.of(public, v) if public else None
        feasible = _set(problem.constraints, v)
        return Form(margins[0], ridge, l1, feasible, public=penalty)

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
        if self.public is None:
            same_public = other.public is None
        else:
            same_public = self.public.near(other.public)
        if not same_public or not _close((self.ridge, self.l1), (other.ridge, other.l1)):
            return "its penalty"
        return ""

    def refuse_other_set(self, problem: cp.Problem, v: cp.Variable) -> None:
        """Raise DeclarationError where the set that was read is not the declared one.

        Seen from outside, its nearest point obeys them, and a point beyond that does not.
        """
        size = self.feasible.norm_bound(v.size)
        is_bounded = math.isfinite(size)
        for direction in _DIRECTIONS:
            outside = np.resize(direction, v.size) * (size if is_bounded else _FAR)
            nearest = self.feasible.project(outside)
            beyond = nearest + 1e-3 * (outside - nearest)
            at_nearest = _violation(problem, v, nearest)
            at_beyond = _violation(problem, v, beyond)
            admits_less = not at_nearest <= 1e-9 * np.max(np.abs(outside))
            admits_more = is_bounded and not at_beyond > 0.0
            if admits_less or admits_more:
                texts = ", ".join(map(printed, problem.constraints))
                raise DeclarationError(f"{texts} was read as {self.feasible}: please report it")

    def scaled(self, factor: float) -> Form:
        """The form of a multiple of the objective."""
        tilt = self.term.tilt
        if tilt is not None:
            tilt = (factor * tilt[0], tilt[1])
        return replace(
            self,
            term=replace(self.term, curve=self.term.curve.scaled(factor), tilt=tilt),
            ridge=factor * self.ridge,
            l1=factor * self.l1,
            public=None if self.public is None else self.public.scaled(factor),
        )


#: Directions from 0 that the set of a declaration is tried in, and how far where it has no bound.
_DIRECTIONS = np.array([[1.1, 1.2, 1.3], [1.1, -1.2, 1.3], [-1.3, 1.1, -1.2]])
_FAR = 1e3


def _violation(problem: cp.Problem, v: cp.Variable, point: Array) -> float:
    """By how much a point breaks the constraint that it breaks most; 0 without constraints."""
    v.value = point
    violations = [float(np.max(constraint.violation())) for constraint in problem.constraints]
    return float(np.max(violations, initial=0.0))


def at_size(form: Form, n: int, is_mean: bool) -> Form:
    """The form of one record of a sum over n records, or of a mean, as it was read of a problem."""
    if is_mean:
        per_record = form.scaled(n)
        return replace(per_record, ridge=form.ridge, l1=form.l1, public=form.public, is_mean=True)
    public = None if form.public is None else form.public.scaled(1.0 / n)
    return replace(form, ridge=form.ridge / n, l1=form.l1 / n, public=public)


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
    """True if public numbers are the same to within rounding."""
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
    for e in expressions:
        if e.is_dcp():
            continue
        cause = _first_nonconvex(e)
        remedy = "write it with convex atoms of CVXPY"
        if _name(cause) == "log":
            remedy = "log(1 + exp(s)) is logistic(s)"
        raise DeclarationError(f"not convex by DCP: {printed(cause)}; {remedy}")


def _first_nonconvex(e: Any) -> Any:
    """The innermost first part of an expression that does not follow the rules of DCP."""
    for part in e.args:
        if not part.is_dcp():
            return _first_nonconvex(part)
    return e


def states_sum(constraint: Any, w: cp.Variable, total: float | None = None) -> bool:
    """True for an equation of the sum of the weights; of this ``total``, where one is given."""
    if type(constraint).__name__ != "Equality" or not constraint.expr.is_scalar():
        return False
    w.value = np.ones(w.size)
    slope = derivative(constraint.expr, w)
    if slope is None or slope[0] == 0.0 or np.ptp(slope) != 0.0:
        return False
    if total is None:
        return True
    # slope (sum(w) - total) is the expression, which at weights 1 is slope (n - total)
    residual = float(np.ravel(constraint.expr.value)[0])
    error = (w.size - total) * slope[0] - residual
    return bool(abs(error) <= 1e-9 * total * abs(slope[0]))


def weights_curvature(problem: cp.Problem, w: cp.Variable) -> float:
    """Largest m known such that the objective less ``m/2 ||w||^2`` is convex.

    Squares of the weights themselves count, less constants; 0 where there are none.

    Parameters
    ----------
    problem
        A problem in the weights.
    w
        Its variable (n,).

    Returns
    -------
    float
        m, in units of the objective per squared weight.

    Raises
    ------
    DeclarationError
        Where the problem is not convex, and where its constraints hold data.
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
    curvature = 0.0
    for factor, node in _split(objective):
        if _name(node) != "quad_over_lin" or not _scalar(node.args[1]):
            continue
        scale = _scale_of_weights(node.args[0], w)
        if scale is not None:
            curvature += 2 * factor * scale**2 / _number(node.args[1])
    return curvature


def _scale_of_weights(e: Any, w: cp.Variable) -> float | None:
    """The number k of ``k w - constant`` without data; None for another expression."""
    if e.parameters():
        return None
    scales = []
    for factor, node in _split(e):
        if node is w:
            scales.append(factor)
        elif node.variables():
            return None
    return sum(scales)


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

    Returns
    -------
    curve, beside
        The curve, and the factor of the line.

    Raises
    ------
    DeclarationError
        For what is not convex, not read, or read with other values.
    """
    _refuse_nonconvex(e)
    if not e.is_convex():
        raise DeclarationError(
            f"not convex by DCP: {printed(e)}; a loss of a margin must be convex"
        )
    parts = []
    beside = 0.0
    for factor, node in _split(e):
        if node is other:
            beside += factor
            continue
        if not node.variables() or factor == 0.0:
            continue  # a constant moves no minimizer, and 0 times infinity is no slope
        bend, inner = _line_or_atom(node)
        scale, shift = _line(inner, s)
        if scale:
            parts.append(Part(factor, bend, scale, shift))
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

    Parameters
    ----------
    e
        The expression.
    s
        Its variable.
    compared
        Whether values of the log weight are compared with those of CVXPY.

    Raises
    ------
    DeclarationError
        For what is not read, or read with other values.
    """
    weight = _log_weight(e, s)
    if compared:
        refuse_misread(e, s, lambda x: (weight.log(x), None), _MARGINS, valued=False)
    return weight


def _log_weight(e: Any, s: cp.Variable) -> LogWeight:
    """Log weight of an expression, read from the top of its tree."""
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
    place = _multiple(e)
    if place is not None:
        return _log_weight(e.args[1 - place], s).times(_number(e.args[place]))
    if name == "DivExpression" and _scalar(e.args[1]):
        return _log_weight(e.args[0], s).times(1 / _number(e.args[1]))
    if name in ("minimum", "maximum"):
        return _log_weight_of_extreme(e, s)
    if name in ("log", "entr"):
        return LogWeight(name, (_log_weight(e.args[0], s),))
    outer, inner = _atom(e)
    return LogWeight("atom", (_log_weight(inner, s),), atom=outer)


def _log_weight_of_extreme(e: Any, s: cp.Variable) -> LogWeight:
    """Log weight of a minimum or a maximum, without caps that are not set."""
    is_minimum = _name(e) == "minimum"
    unset = math.inf if is_minimum else -math.inf
    parts = [part for part in e.args if not part.is_constant() or _number(part) != unset]
    if len(parts) == 1:
        return _log_weight(parts[0], s)
    log_weights = [_log_weight(part, s) for part in parts]
    if is_minimum:
        return LogWeight("minimum", tuple(log_weights))
    # max(h, k) = -min(-h, -k)
    negatives = tuple(log_weight.times(-1.0) for log_weight in log_weights)
    return LogWeight("minimum", negatives).times(-1.0)


def _summed(factor: float, node: Any, v: cp.Variable) -> Iterator[MarginTerm]:
    """Terms of ``factor node``, a sum over records.

    It is sum(losses), a vector @ losses, or sum_squares(residuals).
    """
    name = _name(node)
    if name == "Sum" and node.axis is None:
        return _losses(factor, node.args[0], v)
    if name == "MulExpression":
        multiples, losses = node.args
        if _is_numbers(multiples):
            return _losses(factor, losses, v, (1.0, multiples))
        if _equal_entries(multiples) and losses.ndim == 1:
            return _losses(factor * _number(multiples), losses, v)
    if name == "quad_over_lin" and _scalar(node.args[1]):
        residuals, divisor = node.args
        return _losses(factor / _number(divisor), cp.square(residuals), v)
    raise DeclarationError(
        f"{printed(node)}: no sum over records, and a penalty of {v.name()} holds no data: write "
        f"cp.sum of a curve of rows @ {v.name()}, or leave the data out"
    )


def _losses(
    coefficient: float, e: Any, v: cp.Variable, factor: Multiple | None = None
) -> Iterator[MarginTerm]:
    """Terms of a vector with one entry per record.

    Parameters
    ----------
    coefficient
        What multiplies all of it.
    e
        The vector.
    v
        The variable of the margins.
    factor
        Numbers of the records that multiply its entries.
    """
    if e.ndim != 1:
        raise DeclarationError(
            f"{printed(e)} has the shape {e.shape}: a sum over records adds one number each"
        )
    for multiple, node in _split(e, coefficient):
        if _name(node) == "multiply" and _is_numbers(node.args[0]) and factor is None:
            numbers, losses = node.args
            yield from _losses(multiple, losses, v, (1.0, numbers))
        elif node.variables() and multiple != 0.0:
            yield _loss(multiple, node, v, factor)


def _loss(coefficient: float, node: Any, v: cp.Variable, factor: Multiple | None) -> MarginTerm:
    """The term of a vector of one curve of a margin ``scale z @ v + k numbers + shift``."""
    bend, inner = _line_or_atom(node)
    scale, rows, numbers, shift = _margin(inner, v)
    if node.is_affine():  # numbers beside a margin move no minimizer
        return MarginTerm(rows, Curve((Part(coefficient, bend, scale),)), None, factor)
    if bend.kind == "square":
        # (a s + k o + b)^2 = a^2 (s + k/a o + b/a)^2
        part = Part(coefficient * scale**2, bend, 1.0, shift / scale)
    else:
        # a s + k o + b = a (s + k/a o) + b
        part = Part(coefficient, bend, scale, shift)
    offset = None if numbers is None else (numbers[0] / scale, numbers[1])
    return MarginTerm(rows, Curve((part,)), offset, factor)


def _line_or_atom(node: Any) -> tuple[Atom, Any]:
    """A line of an affine node, or the atom of a curved one, and what it is taken of."""
    return (atom("line"), node) if node.is_affine() else _atom(node)


def _margin(e: Any, v: cp.Variable) -> tuple[float, Datum, Multiple | None, float]:
    """(a, rows, (k, numbers), b) of an affine expression ``a rows @ v + k numbers + b``.

    A public linear function of v, which is the same for every record, is a constant row beside the
    rows.
    """
    scale = 0.0
    shift = 0.0
    rows: Datum | None = None
    offset: Multiple | None = None
    constant_row = np.zeros(v.size)
    for factor, node in _split(e):
        if _name(node) == "MulExpression" and node.args[1] is v:
            multiple, rows = _rows_of(node, rows)
            scale += factor * multiple
        elif _is_numbers(node) and offset is None:
            offset = factor, node
        elif node.is_constant() and _scalar(node):
            shift += factor * _number(node)
        elif node.size == 1 and node.is_affine() and not node.parameters():
            v.value = np.zeros(v.size)
            slope = derivative(node, v)
            assert slope is not None
            constant_row += factor * slope
            shift += factor * _number(node)
        else:
            raise DeclarationError(
                f"{printed(node)}: a margin is rows @ {v.name()} plus one number per record; make "
                "a product with records.rows(...) or records.numbers(...)"
            )
    if rows is None or scale == 0.0:
        raise DeclarationError(f"{printed(e)}: no rows of records multiply {v.name()}")
    if np.any(constant_row):
        rows = shifted_rows(rows, constant_row / scale)
    return scale, rows, offset, shift


def _rows_of(node: Any, rows: Datum | None) -> tuple[float, Datum]:
    """The number k and the rows of ``k rows @ v``, which have to be those of before, if any."""
    ((multiple, datum),) = _split(node.args[0])
    is_rows = isinstance(getattr(datum, "within", None), Ball | Vertices)
    if not is_rows or (rows is not None and rows is not datum):
        raise DeclarationError(
            f"{printed(node)}: one margin has one set of rows; make them with records.rows(...)"
        )
    return multiple, datum


def _tilted(terms: list[MarginTerm]) -> list[MarginTerm]:
    """Terms of one margin added up.

    A line joins the term of its rows, as a tilt where it has a factor.
    """
    by_margin: dict[tuple[Any, ...], MarginTerm] = {}
    for term in terms:
        offset_or_line = "line" if term.curve.is_line else _key(term.offset)
        key = (term.rows.id, _key(term.factor), offset_or_line)
        before = by_margin.get(key)
        if before is None:
            by_margin[key] = term
        else:
            by_margin[key] = replace(before, curve=before.curve.plus(term.curve))
    bent = [term for term in by_margin.values() if not term.curve.is_line]
    lines = [term for term in by_margin.values() if term.curve.is_line]
    for line in lines:
        # lines that found no rows stand among the terms, and a later line may join them
        places = [place for place, term in enumerate(bent) if term.rows is line.rows]
        joined = _with_line(bent[places[0]], line) if places else None
        if joined is None:
            bent.append(line)
        else:
            bent[places[0]] = joined
    return bent


def _with_line(term: MarginTerm, line: MarginTerm) -> MarginTerm | None:
    """A term with a line of the same rows added; None where it would be a second tilt."""
    if _datum(term.factor) is _datum(line.factor):
        return replace(term, curve=term.curve.plus(line.curve))
    if line.factor is None or term.tilt is not None:
        return None
    slope = sum(part.coefficient * part.scale for part in line.curve.parts)
    return replace(term, tilt=(slope, line.factor[1]))


def _key(multiple: Multiple | None) -> tuple[float, int] | None:
    """What two multiples of the same numbers have in common."""
    return None if multiple is None else (multiple[0], multiple[1].id)


def _one_square(terms: list[MarginTerm]) -> list[MarginTerm]:
    """Squares of the same rows and factor as one square.

    They may differ in multiples of the same numbers.

    ``sum_k a_k (s + o_k)^2`` is ``a (s + sum_k a_k o_k / a)^2`` with ``a = sum_k a_k``, up to a
    number of the record that moves no minimizer.
    """
    merged: dict[tuple[Any, ...], MarginTerm] = {}
    for term in terms:
        key: tuple[Any, ...] = ("another", len(merged))
        if _is_square(term):
            key = ("squares", term.rows.id, _key(term.factor))
        before = merged.get(key)
        total = term if before is None else _squares_added(before, term)
        if total is None:
            return terms
        merged[key] = total
    return list(merged.values())


def _is_square(term: MarginTerm) -> bool:
    """True if a term is a sum of squares of ``s + o``, without a tilt."""
    if term.tilt is not None:
        return False
    return all(part.atom.kind == "square" and part.scale == 1.0 for part in term.curve.parts)


def _squares_added(one: MarginTerm, other: MarginTerm) -> MarginTerm | None:
    """Two terms of squares as one; None where their offsets are of different data."""
    data = [term.offset[1] for term in (one, other) if term.offset is not None]
    if len(data) == 2 and data[0].id != data[1].id:
        return None
    sum_of_coefficients = 0.0
    sum_of_shifts = 0.0
    sum_of_multiples = 0.0
    for term in (one, other):
        multiple = 0.0 if term.offset is None else term.offset[0]
        for part in term.curve.parts:
            sum_of_coefficients += part.coefficient
            sum_of_shifts += part.coefficient * part.shift
            sum_of_multiples += part.coefficient * multiple
    shift = sum_of_shifts / sum_of_coefficients
    curve = Curve((Part(sum_of_coefficients, atom("square"), 1.0, shift),))
    offset = None
    if data:
        offset = (sum_of_multiples / sum_of_coefficients, data[0])
    return replace(one, curve=curve, offset=offset)


def _datum(multiple: Multiple | None) -> Datum | None:
    """The numbers of a multiple, if there is one."""
    return None if multiple is None else multiple[1]


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
        kind = _set_of(constraint, v)
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
    for kind, size in sizes.items():
        if math.isfinite(size):
            return kind(size)
    return WholeSpace()


def _set_of(constraint: Any, v: cp.Variable) -> Callable[[float], ConvexSet] | None:
    """The class of the set ``size(v) <= r`` of a constraint; None for another constraint."""
    if type(constraint).__name__ != "Inequality" or not _scalar(constraint.args[1]):
        return None
    size = constraint.args[0]
    if not size.args or size.args[0] is not v:
        return None
    kind = _SETS.get(_name(size))
    if kind is L2Ball and float(getattr(size, "p", 2)) != 2:
        return None
    return kind


def _atom(node: Any) -> tuple[Atom, Any]:
    """Atom of a node, and the expression that it is taken of."""
    name = _name(node)
    if len(node.args) == 1:
        inner = node.args[0]
        if name == "huber" and _scalar(node.M):
            return atom("huber", _number(node.M)), inner
        if name in _POWERS and float(getattr(node.p, "value", node.p)) == 2:
            return _square_or_hinge(node, inner)
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


def _square_or_hinge(node: Any, inner: Any) -> tuple[Atom, Any]:
    """``square(x)`` is a hinge of y where x is ``pos(y)``, that is ``maximum(y, 0)``.

    Of several public numbers in a maximum the largest counts. Above 0 the square of it has a kink
    of slope twice that number, where no theorem holds. Raises DeclarationError there, and for a
    maximum of several margins.
    """
    if _name(inner) != "maximum":
        return atom("square"), inner
    margins = [part for part in inner.args if not _scalar(part)]
    numbers = [_number(part) for part in inner.args if _scalar(part)]
    if len(margins) == 1 and numbers and np.max(numbers) == 0.0:
        return atom("hinge"), margins[0]
    raise DeclarationError(
        f"{printed(node)}: has a kink, where no theorem holds: write square(pos(.)) of one margin, "
        "which is square(maximum(., 0))"
    )


#: Classes of CVXPY that are powers.
_POWERS = ("power", "Power", "PowerApprox")
#: Shape of the constants that CVXPY writes ``log_normcdf`` with.
_NORMCDF = (7, 7)
#: What to write in the place of an atom without a curve, by its name.
_INSTEAD = {
    "abs": ". An absolute value has a kink: write huber(., M)",
    "maximum": ". A hinge has a kink: write square(pos(.)) or logistic(.)",
    "norm1": ". A sum of absolute values has kinks: write sum(huber(., M))",
}


def _split(e: Any, factor: float = 1.0) -> Iterator[tuple[float, Any]]:
    """(coefficient, term) of the sums, signs and public multiples at the top of a tree."""
    name = _name(e)
    place = _multiple(e)
    if name == "AddExpression":
        for part in e.args:
            yield from _split(part, factor)
    elif name == "NegExpression":
        yield from _split(e.args[0], -factor)
    elif name == "Promote":
        yield from _split(e.args[0], factor)
    elif name == "DivExpression" and _scalar(e.args[1]):
        yield from _split(e.args[0], factor / _number(e.args[1]))
    elif place is not None:
        yield from _split(e.args[1 - place], factor * _number(e.args[place]))
    else:
        yield factor, e


def _multiple(e: Any) -> int | None:
    """Place of the argument that is one public number and multiplies the other.

    A matrix never is one.
    """
    if _name(e) not in ("multiply", "MulExpression"):
        return None
    for place in (0, 1):
        if _scalar(e.args[place]):
            return place
    return None


def _scalar(e: Any) -> bool:
    """True if an expression is one public number: settings are numbers, data are parameters."""
    if e.variables() or e.parameters():
        return False
    return e.size == 1 or _name(e) == "Promote"


def _equal_entries(e: Any) -> bool:
    """True if an expression is a public vector of equal entries.

    Its product with losses is their sum.
    """
    if not e.is_constant() or e.parameters() or e.ndim != 1:
        return False
    return bool(np.ptp(e.value) == 0)


def _number(e: Any) -> float:
    """The number that an expression is, the first of equal ones."""
    return float(np.ravel(e.value)[0])


def _line(e: Any, s: cp.Variable) -> tuple[float, float]:
    """(a, b) of an affine expression ``a s + b`` of one scalar variable."""
    slope = 0.0
    shift = 0.0
    for factor, node in _split(e):
        if node is s:
            slope += factor
        elif node.is_constant() and _scalar(node):
            shift += factor * _number(node)
        else:
            raise DeclarationError(f"{printed(node)} is no affine function of the margin")
    return slope, shift


def _is_numbers(e: Any) -> bool:
    """True if an expression is one number of every record."""
    return isinstance(getattr(e, "within", None), Range)


def _name(e: Any) -> str:
    """Name of the class of a node."""
    return type(e).__name__
