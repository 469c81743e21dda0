"""Convex functions with kinks, bounded from below by supporting planes of counted error.

A function is read off its CVXPY expression as terms: norms, absolute values, maxima, squares and
Huber's function, each of an affine function of the variable and of the outputs of terms before it.
A slope for every term gives a plane below the function (page on solving, Theorem 40): no solver is
believed, because any slopes of the right size do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, SQUARES_UNDERFLOW, UNIT, Array
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.model.affine import Affine, AffineWalk, Index, Sums, gamma, kind_of, merged
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.on_demand import sparse as sp

#: What is read, in words.
READ = "norms of order 1, 2 and inf, abs, max, maximum, pos, square, sum_squares and huber"

#: Rows that are summed in rational numbers at most, and entries of each.
_MOST_SETTLED = 256
#: A slope of a norm as near as this to its direction stands for that.
_ALIKE = 1e-10


class NestedTerm(NamedTuple):
    """One term as it was read.

    Parameters
    ----------
    kind
        ``abs``, ``norm`` (of order 2), ``max``, ``square`` or ``huber``.
    argument
        Affine in the variable and in the outputs of the terms before.
    group
        For every row of the argument (rows,) the number of the output that it belongs to.
    start
        Number of the first output among the columns, which begin with the variable's own.
    outputs
        How many outputs there are.
    bound
        Where Huber's function becomes linear; 0 for other kinds.
    """

    kind: str
    argument: Affine
    group: Index
    start: int
    outputs: int
    bound: float = 0.0


class _NestedWalk(AffineWalk):
    """A walk over a convex expression of any size whose atoms may stand inside of one another."""

    def __init__(self, expression: Any, variable: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__(variable, parameters)
        self.nested: list[NestedTerm] = []
        self.outer = self.read(expression)

    def term(self, e: Any) -> Affine:
        kind = kind_of(e)
        argument = self._argument(e)
        rows = np.arange(argument.size)
        if kind == "abs":
            return self._added("abs", argument, rows)
        if kind == "huber":
            return self._added("huber", argument, rows, _number(e.M, e))
        if kind == "power" and _number(e.p, e) == 2.0:
            return self._added("square", argument, rows)
        if kind == "maximum":
            return self._added("max", argument, np.tile(np.arange(e.size), len(e.args)))
        groups = _groups(e)
        if kind == "max":
            return self._added("max", argument, groups)
        if kind == "Pnorm" and _number(e.p, e) == 2.0:
            return self._added("norm", argument, groups)
        if kind == "norm_inf":
            return self._added("max", self._added("abs", argument, rows), groups)
        if kind == "norm1":
            # a sum of norms is written as the norm of norms, which are their own absolute values
            sizes = argument if e.args[0].is_nonneg() else self._added("abs", argument, rows)
            return _summed(sizes, groups, 1.0)
        if kind == "quad_over_lin":
            share = 1.0 / _number(e.args[1], e)
            return _summed(self._added("square", argument, rows), groups, share)
        raise ProgramError(f"a duality gap does not read the atom {kind}: state it by {READ}")

    def _argument(self, e: Any) -> Affine:
        """The arguments of an atom, one under the other where it has several."""
        if kind_of(e) != "maximum":
            return self.read(e.args[0])
        rows = []
        columns = []
        data = []
        values = []
        majors = []
        count = 0
        for number, argument in enumerate(e.args):
            kid = self.read(argument)
            # a single number is compared with every entry of the others
            wanted = np.arange(e.size) if kid.size == e.size else np.zeros(e.size, dtype=np.int64)
            place, entry = kid.pick(wanted)
            rows.append(place + number * e.size)
            columns.append(kid.col[entry])
            data.append(kid.datum[entry])
            values.append(kid.value[entry])
            majors.append(kid.major[entry])
            count = max(count, kid.count)
        return merged(
            len(e.args) * e.size,
            np.concatenate(rows),
            np.concatenate(columns),
            np.concatenate(data),
            np.concatenate(values),
            np.concatenate(majors),
            count,
        )

    def _added(self, kind: str, argument: Affine, group: Index, bound: float = 0.0) -> Affine:
        """A new term, and its outputs as an affine function."""
        outputs = int(np.max(group, initial=-1)) + 1
        self.nested.append(NestedTerm(kind, argument, group, self.outputs, outputs, bound))
        columns = self.outputs + np.arange(outputs)
        self.outputs += outputs
        return merged(outputs, np.arange(outputs), columns, 0, 1.0, 1.0, 0)


def _number(value: Any, e: Any) -> float:
    """A public number that an atom takes beside its argument; ProgramError for one of the data."""
    if isinstance(value, cp.Expression) and (value.parameters() or not value.is_constant()):
        raise ProgramError(f"a number of {kind_of(e)} depends on data: state it as a setting")
    return float(np.ravel(getattr(value, "value", value))[0])


def _groups(e: Any) -> Index:
    """For every entry of the argument of an atom the number of the output that it belongs to."""
    shape = e.args[0].shape
    axis = getattr(e, "axis", None)
    if axis is None:
        return np.zeros(e.args[0].size, dtype=np.int64)
    if len(shape) != 2 or not isinstance(axis, int):
        raise ProgramError(f"{kind_of(e)} along an axis is read for matrices only")
    kept = 1 - axis % 2
    return np.ravel(np.indices(shape)[kept], order="F")


def _summed(entries: Affine, groups: Index, share: float) -> Affine:
    """Sums over groups of entries, times a public number."""
    size = int(np.max(groups, initial=-1)) + 1
    rounded = 0 if share == 1.0 else 2
    value = entries.value * share
    longest = int(np.max(np.bincount(groups, minlength=1)))
    count = entries.count + longest + rounded
    return merged(
        size, groups[entries.row], entries.col, entries.datum, value, np.abs(value), count
    )


class SupportedFunction:
    """A convex function of a Variable (d,), read once; ``at`` loads it with data.

    Parameters
    ----------
    expression
        Convex by the rules of CVXPY, of one number or of several.
    variable
        The Variable (d,) that it is a function of.
    parameters
        Its Parameters by name, in the order of the data.

    Raises
    ------
    ProgramError
        With the reason, for what is not read.
    """

    def __init__(self, expression: Any, variable: Any, parameters: Mapping[str, Any]) -> None:
        expression = cp.Constant(0) + expression
        if not expression.is_convex():
            raise ProgramError("the expression is not convex by the rules of CVXPY")
        walk = _NestedWalk(expression, variable, parameters)
        self.dimension = variable.size
        self.parameters = parameters
        self.terms = walk.nested
        self.outer = walk.outer
        self.columns = walk.outputs
        self._without_data: LoadedFunction | None = None

    def at(self, data: Mapping[str, Any], factor: float = 1.0) -> LoadedFunction:
        """The function at data, times a public ``factor`` >= 0.

        Parameters
        ----------
        data
            Values of the parameters by name; those that are declared nonnegative must be.
        factor
            A number that every value is multiplied by.
        """
        if self.parameters or factor != 1.0:
            return self._loaded(data, factor)
        # a public penalty is one function, which is asked for at every point
        if self._without_data is None:
            self._without_data = self._loaded({}, 1.0)
        return self._without_data

    def _loaded(self, data: Mapping[str, Any], factor: float) -> LoadedFunction:
        parts = [
            np.ravel(np.asarray(data[name], dtype=np.float64), order="F")
            for name in self.parameters
        ]
        vector = np.concatenate([np.ones(1), *parts])
        terms = [LoadedTerm(term, self.dimension, self.columns, vector) for term in self.terms]
        outer = LoadedAffine(self.outer, self.columns, vector, factor)
        return LoadedFunction(self.dimension, self.columns, terms, outer)


class LoadedAffine:
    """An affine function at data: ``A v + b`` of columns v, with majorants ``M`` and ``c``.

    Every entry is within ``gamma(count)`` of its majorant of the exact one.
    """

    def __init__(self, affine: Affine, columns: int, data: Array, factor: float = 1.0) -> None:
        cells = affine.row * columns + affine.col
        entries = affine.col >= 0
        places = np.unique(cells[entries])
        row, column = np.divmod(places, columns)
        matrix = Sums(affine, entries, np.searchsorted(places, cells), len(places))
        offset = Sums(affine, ~entries, affine.row, affine.size)
        values, majors = matrix.both(data, np.abs(data))
        shape = (affine.size, columns)
        self.A = sp.csr_array((factor * values, (row, column)), shape=shape)
        self.M = sp.csr_array((factor * majors, (row, column)), shape=shape)
        offset_values, offset_majors = offset.both(data, np.abs(data))
        self.b = factor * offset_values
        self.c = factor * offset_majors
        self.count = affine.count + max(matrix.most, offset.most) + 2
        # coefficients that nothing has rounded: those of the declaration, each once, times 1
        self.exact = affine.count == 0 and factor == 1.0 and max(matrix.most, offset.most) <= 1
        self.exact = self.exact and not np.any(affine.datum)
        self.longest = int(np.max(np.bincount(row, minlength=1)))
        self.tallest = int(np.max(np.bincount(column, minlength=1)))

    def forward(self, v: Array, error: Array) -> tuple[Array, Array]:
        """The argument ``A v + b`` (rows,), and a bound of its distance to those of columns near v.

        Near is within ``error``.
        """
        value = np.asarray(self.A @ v + self.b, dtype=np.float64)
        size = self.M @ np.abs(v) + self.c
        moved = np.asarray(self.M @ error, dtype=np.float64)
        wrong: Array = (gamma(self.count + self.longest + 2) * size + moved) * ROUND_UP_SUMS
        if self.exact:
            self._settle(v, value, wrong, moved)
        return value, wrong

    def _settle(self, v: Array, value: Array, wrong: Array, moved: Array) -> None:
        """Put the rows that are 0 in rational arithmetic to 0, without an error."""
        near = np.flatnonzero((np.abs(value) <= wrong) & (wrong > 0) & (moved == 0))
        if len(near) > _MOST_SETTLED or self.longest > _MOST_SETTLED:
            return
        for row in near:
            places = slice(self.A.indptr[row], self.A.indptr[row + 1])
            pairs = zip(self.A.data[places], v[self.A.indices[places]], strict=True)
            total = Fraction(float(self.b[row]))
            total += sum(Fraction(float(one)) * Fraction(float(other)) for one, other in pairs)
            if total == 0:
                value[row] = 0.0
                wrong[row] = 0.0

    def back(self, h: Array, error: Array) -> tuple[Array, Array]:
        """``A' h`` (columns,), and a bound of its distance to that of any h within ``error``."""
        size = self.M.T @ np.abs(h)
        wrong = gamma(self.count + self.tallest + 2) * size + self.M.T @ error
        return np.asarray(self.A.T @ h, dtype=np.float64), wrong * ROUND_UP_SUMS


class LoadedTerm:
    """A term at data."""

    def __init__(self, term: NestedTerm, dimension: int, columns: int, data: Array) -> None:
        self.kind = term.kind
        self.group = term.group
        self.bound = term.bound
        self.outputs = slice(term.start, term.start + term.outputs)
        self.n_outputs = term.outputs
        self.matrix = LoadedAffine(term.argument, columns, data)
        self.kink = term.kind in ("abs", "norm", "max")
        # an argument that holds outputs of other terms may be raised (1) or lowered (-1) by them
        # alone
        inner = self.matrix.A[:, dimension:]
        self.direction = np.sign(np.asarray(inner.sum(axis=1)).ravel())
        self.alone = inner.nnz == 0

    def _sum(self, entries: Array) -> Array:
        """Sums of nonnegative ``entries`` (rows,) over groups, (outputs,)."""
        return np.bincount(self.group, weights=entries, minlength=self.n_outputs).astype(np.float64)

    def _largest(self, entries: Array) -> Array:
        """Largest of ``entries`` (rows,) over groups, (outputs,)."""
        largest = np.full(self.n_outputs, -np.inf)
        np.maximum.at(largest, self.group, entries)
        return largest

    def norm(self, v: Array) -> Array:
        """Size (outputs,) of ``v`` that the term grows by at most, per unit of its slope."""
        if self.kind == "norm":
            return np.sqrt(self._sum(v * v))
        return self._largest(np.abs(v))

    def _grown(self, error: Array) -> Array:
        """The same of an error, over what underflows as well."""
        return self.norm(error) + SQUARES_UNDERFLOW * math.sqrt(len(error))

    def value(self, a: Array, error: Array) -> tuple[Array, Array]:
        """The outputs at an argument, and a bound of their distance to those within ``error``."""
        if self.kink:
            value = self._largest(a) if self.kind == "max" else self.norm(a)
            wrong = self._grown(error) + gamma(len(a) + 8) * self.norm(a)
            return value, wrong * ROUND_UP_SUMS
        size = np.abs(a) + error
        if self.kind == "square":
            wrong = 2 * size * error + 4 * UNIT * size * size + SQUARES_UNDERFLOW
            return a * a, wrong * ROUND_UP_SUMS
        # Huber's function
        inside = np.abs(a) <= self.bound
        value = np.where(inside, a * a, self.bound * (2 * np.abs(a) - self.bound))
        steep = 2 * np.minimum(size, self.bound)
        wrong = steep * error + 8 * UNIT * steep * size + SQUARES_UNDERFLOW
        return value, wrong * ROUND_UP_SUMS

    def unit_slope(self, v: Array) -> Array:
        """The point (rows,) next to ``v`` among the slopes that a kink has: a ball or simplexes.

        A slope on an argument that holds outputs of other terms keeps the sign in which these may
        act.
        """
        v = np.where(np.isfinite(v), v, 0.0)
        if self.kind == "max":
            return self._into_simplexes(v)
        v = np.where(self.direction * v < 0, 0.0, v)
        if self.kind == "abs":
            return np.clip(v, -1.0, 1.0)
        return v / np.maximum(self.norm(v), 1.0)[self.group]

    def _into_simplexes(self, v: Array) -> Array:
        u = np.maximum(v, 0.0)
        total = self._sum(u)
        even = 1.0 / self._sum(np.ones_like(v))
        divisor = np.where(total > 0, total, 1.0)
        # where nothing is left every argument counts alike
        return np.where(total[self.group] > 0, u / divisor[self.group], even[self.group])

    def support(self, a: Array, error: Array, u: Array | None) -> tuple[Array, Array, Array]:
        """Slope (rows,) per unit of an output's coefficient, its error, and what it leaves out.

        What is left out is of every output (outputs,).

        ``a`` is the argument, known within ``error``. A kink takes ``u``, a result of
        :meth:`unit_slope`.
        """
        if not self.kink:
            # the tangent at a point that may act in the direction of the outputs inside
            near = np.where(self.direction * a < 0, 0.0, a)
            inner = near
            if self.kind != "square":
                inner = np.clip(near, -self.bound, self.bound)
            distance = np.abs(a - near) + error
            left_out = (distance**2 + SQUARES_UNDERFLOW) * ROUND_UP_SUMS
            return 2 * inner, np.zeros_like(a), left_out
        assert u is not None
        value = self._largest(a) if self.kind == "max" else self.norm(a)
        along = np.bincount(self.group, weights=u * a, minlength=self.n_outputs)
        size = gamma(len(a) + 12)
        left_out = np.maximum(value - along, 0.0) + 2 * self._grown(error) + 4 * size * self.norm(a)
        slope_error = size * np.abs(u)
        if self.kind != "max" and self.alone:
            self._sharpen(a, error, u, slope_error, left_out)
        return u, slope_error, left_out * ROUND_UP_SUMS

    def _sharpen(
        self, a: Array, error: Array, u: Array, slope_error: Array, left_out: Array
    ) -> None:
        """Where the exact slope is known near u its plane is meant, and nothing is left out.

        An absolute value off 0 by more than its error has its sign as the only slope. A norm has
        the exact direction, within ``2 ||error|| / ||a||`` of the computed one, and u is within its
        distance of that.
        """
        if self.kind == "abs":
            left_out[(np.abs(a) > error) & (u == np.sign(a))] = 0.0
            return
        length = self.norm(a)
        wrong = self._grown(error)
        safe = length > 4 * wrong
        divisor = np.where(safe, length, 1.0)
        direction = a / divisor[self.group]
        apart = self.norm(u - direction) + 2 * wrong / divisor + gamma(len(a) + 12)
        known = safe & (apart <= _ALIKE)
        left_out[known] = 0.0
        inside = known[self.group]
        slope_error[inside] = (apart[self.group] * ROUND_UP_SUMS)[inside]


class Plane(NamedTuple):
    """A plane below a function.

    Parameters
    ----------
    slope
        Its slope (d,) as computed.
    error
        Bound (d,) on the distance to the slope of the exact plane.
    left_out
        Bound on how far the exact plane is below the function at the point.
    """

    slope: Array
    error: Array
    left_out: float


@dataclass(frozen=True, eq=False)
class LoadedFunction:
    """A :class:`SupportedFunction` at data: values and planes below it, with bounds of errors."""

    dimension: int
    columns: int
    terms: Sequence[LoadedTerm]
    outer: LoadedAffine

    @property
    def stands_alone(self) -> bool:
        """True if no term is of another one or a maximum: a point can then stand at its kinks."""
        return all(term.kind != "max" and term.alone for term in self.terms)

    def coefficients(self) -> Array:
        """What every output counts in the value (columns,)."""
        return self.outer.back(np.ones(len(self.outer.b)), np.zeros(len(self.outer.b)))[0]

    def arguments(self, x: Array) -> list[Array]:
        """Arguments of all terms at ``x`` (d,)."""
        *_, arguments = self._forward(x, np.zeros_like(x))
        return [a for a, _ in arguments]

    def _forward(self, x: Array, moved: Array) -> tuple[Array, Array, list[tuple[Array, Array]]]:
        """All columns at ``x``, bounds of their errors within ``moved``, and the arguments."""
        values = np.concatenate([x, np.zeros(self.columns - self.dimension)])
        errors = np.concatenate([moved, np.zeros(self.columns - self.dimension)])
        arguments = []
        for term in self.terms:
            argument = term.matrix.forward(values, errors)
            values[term.outputs], errors[term.outputs] = term.value(*argument)
            arguments.append(argument)
        return values, errors, arguments

    def values(self, x: Array, moved: Array) -> tuple[Array, Array]:
        """Values (k,) at ``x`` (d,), and bounds of their distance to those within ``moved``."""
        values, errors, _ = self._forward(x, moved)
        return self.outer.forward(values, errors)

    def slopes_at(self, x: Array) -> list[Array | None]:
        """Slopes of all kinks at ``x``, by their arguments alone; None for terms without a kink."""
        *_, arguments = self._forward(x, np.zeros_like(x))
        slopes: list[Array | None] = []
        for term, (a, _) in zip(self.terms, arguments, strict=True):
            if not term.kink:
                slopes.append(None)
            elif term.kind == "max":
                slopes.append(
                    term.unit_slope((a == term._largest(a)[term.group]).astype(np.float64))
                )
            else:
                slopes.append(term.unit_slope(a / (term.norm(a) + SQUARES_UNDERFLOW)[term.group]))
        return slopes

    def plane(
        self, x: Array, moved: Array, slopes: Sequence[Array | None], multipliers: Array
    ) -> Plane:
        """A plane below ``<multipliers, function>`` by Theorem 40, for every point near ``x``.

        Parameters
        ----------
        x
            A point (d,).
        moved
            How far (d,) the exact point may be from it.
        slopes
            One result of :meth:`~dp2erm_cvx.model.supports.LoadedTerm.unit_slope` for every kink,
            None for every other term.
        multipliers
            Numbers (k,) >= 0 of the values, exact.
        """
        *_, arguments = self._forward(x, moved)
        pull, wrong = self.outer.back(multipliers, np.zeros_like(multipliers))
        left_out = 0.0
        total = np.abs(pull)
        for term, (a, error), u in reversed(list(zip(self.terms, arguments, slopes, strict=True))):
            # by the rules of CVXPY the exact coefficient of a convex term is not negative
            coefficient = np.maximum(pull[term.outputs], 0.0)
            off = wrong[term.outputs] + np.maximum(-pull[term.outputs], 0.0)
            slope, slope_error, beside = term.support(a, error, u)
            left_out += float(np.sum((coefficient + off) * beside))
            h = coefficient[term.group] * slope
            h_error = (
                off[term.group] * (np.abs(slope) + slope_error)
                + coefficient[term.group] * slope_error
            )
            part, part_error = term.matrix.back(h, h_error + 2 * UNIT * np.abs(h))
            pull = pull + part
            total = total + np.abs(part)
            # every addition rounds, by at most a unit of what it makes
            wrong = wrong + part_error + UNIT * np.abs(pull)
        d = self.dimension
        error = wrong[:d] + gamma(len(self.terms) + 2) * total[:d]
        return Plane(pull[:d], error * ROUND_UP_SUMS, left_out * ROUND_UP_SUMS * ROUND_UP_SUMS)


def refuse_other_values(
    function: LoadedFunction, expression: Any, variable: Any, points: Sequence[Array]
) -> None:
    """Compare what was read with CVXPY's own values. Raises DeclarationError where they differ."""
    for point in points:
        variable.value = np.reshape(point, variable.shape, order="F")
        theirs = np.ravel(np.asarray(expression.value, dtype=np.float64), order="F")
        own, _ = function.values(np.ravel(point), np.zeros(np.size(point)))
        apart = float(np.max(np.abs(own - theirs), initial=0.0))
        if not apart <= 1e-9 * (1.0 + float(np.max(np.abs(theirs), initial=0.0))):
            raise DeclarationError(
                "an expression was read as something with other values: please report it"
            )
