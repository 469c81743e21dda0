"""Problems with kinks in conic form and in public units, for the judge and other solvers.

What the judge's solve returns is a candidate. Nothing of it is believed:
:mod:`dp2erm_cvx.solve.gap` proves what it is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.model.kinked import KinkedProblem
from dp2erm_cvx.model.sets import Box, L1Ball, L2Ball, Simplices
from dp2erm_cvx.model.supports import LoadedFunction, LoadedTerm
from dp2erm_cvx.on_demand import clarabel
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.on_demand import sparse as sp

#: The solves that are used: any other status says that the point is no solution.
USABLE = frozenset({"Solved", "AlmostSolved"})

_TOLERANCE = 1e-12
_MOST_ITERATIONS = 200
#: Newton steps of a smooth part that is no quadratic, and halves of each; a move below this share
#: ends them.
_MOST_STEPS = 60
_MOST_HALVES = 30
_STILL = 1e-5

#: Multiples of the public unit that are tried in turn, and how many of these a set may be wide in a
#: solve: no solver works with numbers of 1 and of 1e12 at once.
_MULTIPLES = (1.0, 1e4, 1e8)
_WIDEST = 1e4


class Candidate(NamedTuple):
    """Result of the judge's own solve.

    Parameters
    ----------
    point
        The point (d,).
    slopes
        For every term of the objective the slope of a kink, or None.
    beside_slopes
        The same of the constraints.
    prices
        Multipliers >= 0 of the constraints.
    """

    point: Array
    slopes: list[Array | None]
    beside_slopes: list[Array | None]
    prices: Array


class _Program:
    """A conic program as it is put together: ``minimize x'Px/2 + q'x`` with ``h - G x`` in cones.

    ``scale`` holds the unit of every column; rows are in units of their own.
    """

    def __init__(self) -> None:
        self.scale = np.zeros(0)
        self.squares: list[tuple[Any, Array, Array]] = []
        self.blocks: list[tuple[Any, Array, Any]] = []

    def columns(self, scale: Array) -> slice:
        """New columns in units of ``scale``."""
        begin = len(self.scale)
        self.scale = np.concatenate([self.scale, scale])
        return slice(begin, len(self.scale))

    def wide(self, matrix: Any, columns: slice | Array) -> Any:
        """A matrix of some columns as one of all columns so far, in their units."""
        places = np.arange(len(self.scale))[columns]
        entries = sp.coo_array(matrix)
        place = places[entries.col]
        shape = (entries.shape[0], len(self.scale))
        return sp.csr_array((entries.data * self.scale[place], (entries.row, place)), shape=shape)

    def add(self, matrix: Any, offset: Array, cone: Any) -> int:
        """Require ``offset - matrix x`` in a cone; the number of the block."""
        self.blocks.append((matrix, offset, cone))
        return len(self.blocks) - 1

    def add_square(self, matrix: Any, offset: Array, weight: Array) -> None:
        """Add ``<weight, (matrix x + offset)^2>`` to the objective."""
        self.squares.append((matrix, offset, weight))

    def rows(self) -> tuple[Any, Array]:
        """Matrix and offset of all blocks, one under the other."""
        width = len(self.scale)
        G = sp.vstack([_enlarged(matrix, matrix.shape[0], width) for matrix, _, _ in self.blocks])
        return G, np.concatenate([np.zeros(0), *(offset for _, offset, _ in self.blocks)])

    def _quadratic(self, linear: Array, hessian: Array | None) -> tuple[Any, Array]:
        """P and q of the objective, of columns in their units, the squares included."""
        width = len(self.scale)
        q = linear * self.scale
        P = sp.csc_array((width, width))
        if hessian is not None:
            units = self.scale[: len(hessian)]
            P = _enlarged(hessian * units * units[:, None], width, width)
        for matrix, offset, weight in self.squares:
            whole = _enlarged(matrix, matrix.shape[0], width)
            heavy = sp.diags_array(2.0 * weight) @ whole
            P = P + whole.T @ heavy
            q = q + heavy.T @ offset
        return sp.csc_array(P), q

    def solved(
        self, linear: Array, hessian: Array | None
    ) -> tuple[Array, list[Array], float] | None:
        """Point in declared units, multipliers of all blocks, and unit of the objective.

        None where there is no point. ``linear`` (all columns) and ``hessian`` (of the first ones)
        are in declared units.
        """
        P, q = self._quadratic(linear, hessian)
        G, h = self.rows()
        unit = float(max(np.max(np.abs(q), initial=0.0), np.max(np.abs(P.data), initial=0.0)))
        numbers = (q, P.data, sp.coo_array(G).data, h, np.array([unit]))
        if unit <= 0 or not all(np.all(np.isfinite(part)) for part in numbers):
            return None
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = _MOST_ITERATIONS
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _TOLERANCE
        cones = [cone for _, _, cone in self.blocks]
        upper = sp.csc_matrix(sp.triu(P / unit))
        solver = clarabel.DefaultSolver(upper, q / unit, sp.csc_matrix(G), h, cones, settings)
        solution = solver.solve()
        if str(solution.status) not in USABLE:
            return None
        x = np.asarray(solution.x)
        z = np.asarray(solution.z)
        if not (np.all(np.isfinite(x)) and np.all(np.isfinite(z))):
            return None
        ends = np.cumsum([len(offset) for _, offset, _ in self.blocks])
        return x * self.scale, np.split(z, ends[:-1]), unit


def _enlarged(matrix: Any, rows: int, columns: int) -> Any:
    entries = sp.coo_array(matrix)
    return sp.csc_array((entries.data, (entries.row, entries.col)), shape=(rows, columns))


class _Placed:
    """The terms of one function in a program: columns, blocks of kinks, and rows of its values."""

    def __init__(
        self, program: _Program, function: LoadedFunction, variable: slice, objective: bool
    ) -> None:
        self.program = program
        self.function = function
        own = np.arange(len(program.scale))[variable]
        self.places = np.concatenate([own, np.full(function.columns - function.dimension, -1)])
        self.kinks: list[int | None] = []
        used = [term.matrix for term in function.terms]
        inner = np.zeros(function.columns)
        for matrix in used:
            inner += np.asarray(abs(matrix.A).sum(axis=0)).ravel()
        # a square that nothing but the objective asks for is its quadratic part
        self.outer = function.outer.A.toarray()
        self.free = objective & (inner == 0)
        for term in function.terms:
            self.kinks.append(self._place(term))

    def _place(self, term: LoadedTerm) -> int | None:
        """Put a term into the program; the number of its first block, None where it has no kink."""
        program = self.program
        A = term.matrix.A
        b = term.matrix.b
        known = self.places >= 0
        sizes = np.zeros(len(known))
        sizes[known] = program.scale[self.places[known]]
        size = abs(A) @ sizes + np.abs(b)
        unit = float(np.max(size, initial=0.0)) or 1.0
        degree = 1 if term.kink else 2
        outputs = program.columns(np.full(term.n_outputs, unit**degree))
        self.places[term.outputs] = np.arange(outputs.start, outputs.stop)
        if not term.kink:
            self._place_square(term, A, b, unit)
            return None
        argument = program.wide(A[:, known], self.places[known]) / unit
        value = self._output(term) / unit
        offset = b / unit
        rows = len(b)
        if term.kind == "abs":
            both = sp.vstack([argument - value, -argument - value])
            offsets = np.concatenate([-offset, offset])
            return program.add(both, offsets, clarabel.NonnegativeConeT(2 * rows))
        if term.kind == "max":
            return program.add(argument - value, -offset, clarabel.NonnegativeConeT(rows))
        first = len(program.blocks)
        single = program.wide(sp.eye_array(term.n_outputs), outputs) / unit
        for output in range(term.n_outputs):
            members = np.flatnonzero(term.group == output)
            matrix = sp.vstack([-single[[output]], -argument[members]])
            cone = clarabel.SecondOrderConeT(len(members) + 1)
            program.add(matrix, np.concatenate([np.zeros(1), offset[members]]), cone)
        return first

    def _output(self, term: LoadedTerm) -> Any:
        """The output of every row of a term, in all columns so far."""
        spread = sp.csr_array((np.ones(len(term.group)), (np.arange(len(term.group)), term.group)))
        return self.program.wide(spread, self.places[term.outputs])

    def _place_square(self, term: LoadedTerm, A: Any, b: Array, unit: float) -> None:
        """Squares ``y^2 <= t``; those of Huber's function as ``(y - e)^2 + 2 bound |e| <= t``."""
        program = self.program
        rows = len(b)
        known = self.places >= 0
        inner = program.columns(np.full(2 * rows, unit)) if term.kind == "huber" else None
        argument = program.wide(A[:, known], self.places[known])
        value = self._output(term)
        if inner is not None:
            part = np.arange(inner.start, inner.start + rows)
            size = np.arange(inner.start + rows, inner.stop)
            e = program.wide(sp.eye_array(rows), part)
            length = program.wide(sp.eye_array(rows), size)
            both = sp.vstack([e - length, -e - length]) / unit
            program.add(both, np.zeros(2 * rows), clarabel.NonnegativeConeT(2 * rows))
            argument = argument - e
            value = value - 2.0 * term.bound * length
        if np.all(self.free[term.outputs]):
            weight = self.outer[0, term.outputs]
            program.add_square(argument, b, weight)
            # what is left of the output is linear in the objective
            program.add(value / unit**2, np.zeros(rows), clarabel.ZeroConeT(rows))
            return
        argument = argument / unit
        value = value / unit**2
        for row in range(rows):
            matrix = sp.vstack([-value[[row]], -value[[row]], -2.0 * argument[[row]]])
            offset = np.array([1.0, -1.0, 2.0 * b[row] / unit])
            program.add(matrix, offset, clarabel.SecondOrderConeT(3))

    def add_values(self, target: Array) -> None:
        """Add the linear part of the objective to ``target`` (all columns), in declared units."""
        np.add.at(target, self.places, self.outer[0])

    def slopes(self, multipliers: Sequence[Array]) -> list[Array | None]:
        """Slopes of all kinks from the multipliers of their blocks."""
        slopes: list[Array | None] = []
        for term, block in zip(self.function.terms, self.kinks, strict=True):
            if block is None:
                slopes.append(None)
            else:
                slopes.append(_slope(term, multipliers[block : block + term.n_outputs]))
        return slopes


def _slope(term: LoadedTerm, multipliers: Sequence[Array]) -> Array:
    """The slope per unit of a kink that multipliers of its constraints stand for."""
    if term.kind == "max":
        return term.unit_slope(multipliers[0])
    if term.kind == "abs":
        up, down = np.split(multipliers[0], 2)
        total = up + down
        return term.unit_slope((up - down) / np.where(total > 0, total, 1.0))
    u = np.zeros(len(term.group))
    for output, z in enumerate(multipliers):
        u[term.group == output] = -z[1:] / z[0] if z[0] > 0 else 0.0
    return term.unit_slope(u)


def _add_set(program: _Program, problem: KinkedProblem, variable: slice) -> None:
    """Constraints that put the variable into the set."""
    feasible = problem.feasible
    unit = problem.scale
    d = variable.stop
    if isinstance(feasible, Simplices):
        _add_simplices(program, feasible, variable)
        return
    if isinstance(feasible, L1Ball):
        _add_l1_ball(program, feasible.radius, unit, variable)
        return
    identity = program.wide(sp.eye_array(d), variable) / unit
    if isinstance(feasible, L2Ball):
        matrix = sp.vstack([sp.csr_array((1, len(program.scale))), -identity])
        offset = np.concatenate([np.array([feasible.radius / unit]), np.zeros(d)])
        program.add(matrix, offset, clarabel.SecondOrderConeT(d + 1))
    elif isinstance(feasible, Box):
        both = sp.vstack([identity, -identity])
        program.add(both, np.full(2 * d, feasible.bound / unit), clarabel.NonnegativeConeT(2 * d))


def _add_simplices(program: _Program, feasible: Simplices, variable: slice) -> None:
    """Sums of the groups, the floor and the cap."""
    d = variable.stop
    identity = program.wide(sp.eye_array(d), variable)
    for members in feasible.members():
        row = np.zeros((1, d))
        row[0, members] = 1.0
        matrix = program.wide(row, variable) / feasible.total
        program.add(matrix, np.ones(1), clarabel.ZeroConeT(1))
    program.add(-identity, np.full(d, -feasible.floor), clarabel.NonnegativeConeT(d))
    if np.isfinite(feasible.cap):
        program.add(identity, np.full(d, feasible.cap), clarabel.NonnegativeConeT(d))


def _add_l1_ball(program: _Program, radius: float, unit: float, variable: slice) -> None:
    """Columns that bound the sizes of all entries, and the bound on their sum."""
    d = variable.stop
    sizes = program.columns(np.full(d, unit))
    v = program.wide(sp.eye_array(d), variable) / unit
    size = program.wide(sp.eye_array(d), sizes) / unit
    both = sp.vstack([v - size, -v - size])
    program.add(both, np.zeros(2 * d), clarabel.NonnegativeConeT(2 * d))
    total = sp.csr_array(np.ones((1, d))) @ size
    program.add(total, np.array([radius / unit]), clarabel.NonnegativeConeT(1))


class _Parts:
    """A problem with kinks as a conic program, its smooth part as a quadratic at a point.

    Attributes
    ----------
    dimension
        D, the number of entries of the variable.
    program
        What is put together.
    objective, beside
        The terms of the objective, and those of the constraints beside the set, if any.
    block, beside_units
        Number and units of the constraints beside the set.
    linear, hessian
        Of the objective, (all columns) and (d, d), in declared units.
    """

    def __init__(self, problem: KinkedProblem, at: Array | None = None) -> None:
        d = problem.kinks.dimension
        program = _Program()
        self.dimension = d
        self.program = program
        variable = program.columns(np.full(d, problem.scale))
        _add_set(program, problem, variable)
        self.objective = _Placed(program, problem.kinks, variable, objective=True)
        self.beside: _Placed | None = None
        self.block = 0
        self.beside_units = np.zeros(0)
        if problem.beside is not None:
            self.beside = _Placed(program, problem.beside, variable, objective=False)
            outer = problem.beside.outer
            matrix = program.wide(outer.A, self.beside.places)
            sizes = np.asarray(abs(matrix).sum(axis=1)).ravel() + np.abs(outer.b)
            self.beside_units = np.where(sizes > 0, sizes, 1.0)
            scaled = sp.diags_array(1.0 / self.beside_units) @ matrix
            cone = clarabel.NonnegativeConeT(len(outer.b))
            self.block = program.add(scaled, -outer.b / self.beside_units, cone)
        self.linear = np.zeros(len(program.scale))
        self.objective.add_values(self.linear)
        self.hessian: Array | None = None
        if problem.smooth is not None:
            point = np.zeros(d) if at is None else at
            self.hessian = problem.smooth.hessian(point)
            gradient = problem.smooth.gradient(point)
            if at is not None:
                gradient = gradient - self.hessian @ point
            self.linear[:d] += gradient


def _narrowed(problem: KinkedProblem, multiple: float) -> tuple[KinkedProblem, float]:
    """The problem in a multiple of its unit, in a set not too wide, and the width of the cut."""
    feasible = problem.feasible
    unit = problem.scale * multiple
    width = _WIDEST * unit
    if isinstance(feasible, L1Ball | L2Ball) and feasible.radius > width:
        return replace(problem, scale=unit, feasible=replace(feasible, radius=width)), width
    if isinstance(feasible, Box) and feasible.bound > width:
        return replace(problem, scale=unit, feasible=Box(width)), width
    return replace(problem, scale=unit), math.inf


def _in_reach(
    problem: KinkedProblem, at: Array | None = None
) -> tuple[KinkedProblem, Candidate | None]:
    """The problem as it is put to a solver, and the judge's candidate in it.

    The candidate is no end of a cut set. The smooth part is the quadratic ``at`` a point (d,), by
    default at 0.
    """
    if isinstance(problem.feasible, Simplices):
        return problem, _solved(problem, at)
    for multiple in _MULTIPLES:
        narrow, width = _narrowed(problem, multiple)
        candidate = _solved(narrow, at)
        if candidate is not None and np.sum(np.abs(candidate.point)) <= width / 2:
            return narrow, candidate
    return problem, None


def solved(problem: KinkedProblem) -> Candidate | None:
    """Solve the problem by an interior-point method in public units; None without a usable point.

    Where the smooth part is no quadratic, by Newton's method: each step minimizes the quadratic at
    the point, the kinks and the set as they are, and goes as far toward it as the objective falls.
    """
    if problem.is_quadratic:
        return _in_reach(problem)[1]
    point = problem.feasible.project(np.zeros(problem.kinks.dimension))
    value = problem.value(point)
    best: Candidate | None = None
    for _ in range(_MOST_STEPS):
        candidate = _in_reach(problem, point)[1]
        if candidate is None:
            return best
        aim = problem.feasible.project(candidate.point)
        move = aim - point
        if float(np.linalg.norm(move)) <= _STILL * float(np.linalg.norm(aim)):
            # the values of both are one to rounding
            return candidate._replace(point=aim)
        best = candidate._replace(point=point)
        share, there = _fallen(problem, point, move, value)
        if share == 0.0:
            return best
        point = point + share * move
        value = there
        best = candidate._replace(point=point)
    return best


def _fallen(problem: KinkedProblem, point: Array, move: Array, value: float) -> tuple[float, float]:
    """The largest share of a move at which the objective falls, 0 without one; and its value."""
    share = 1.0
    for _ in range(_MOST_HALVES):
        there = problem.value(point + share * move)
        if there < value:
            return share, there
        share *= 0.5
    return 0.0, value


def _solved(problem: KinkedProblem, at: Array | None = None) -> Candidate | None:
    """The candidate of one solve; None where there is no point."""
    parts = _Parts(problem, at)
    result = parts.program.solved(parts.linear, parts.hessian)
    if result is None:
        return None
    point, multipliers, unit = result
    point = point[: parts.dimension]
    slopes = parts.objective.slopes(multipliers)
    if parts.beside is None:
        return Candidate(point, slopes, [], np.zeros(0))
    prices = np.maximum(multipliers[parts.block], 0.0) * unit / parts.beside_units
    return Candidate(point, slopes, parts.beside.slopes(multipliers), prices)


class ConicForm:
    """The same problem for any solver that CVXPY knows, in public units.

    Parameters
    ----------
    problem
        A ``cvxpy.Problem`` whose only variable holds all columns.
    """

    def __init__(self, problem: KinkedProblem) -> None:
        narrow, _ = _in_reach(problem)
        parts = _Parts(narrow)
        program = parts.program
        self._dimension = parts.dimension
        self._scale = program.scale
        width = len(program.scale)
        self._x = x = cp.Variable(width, name="columns")
        linear = parts.linear * program.scale
        squares = [
            (_enlarged(matrix, matrix.shape[0], width), offset, weight)
            for matrix, offset, weight in program.squares
        ]
        if parts.hessian is not None:
            eigenvalues, vectors = np.linalg.eigh(parts.hessian)
            factor = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T
            factor = factor * program.scale[: parts.dimension]
            half = np.full(len(factor), 0.5)
            squares.append((_enlarged(factor, len(factor), width), np.zeros(len(factor)), half))
        unit = float(np.max(np.abs(linear), initial=0.0))
        for matrix, _, weight in squares:
            heavy = sp.csr_array(sp.diags_array(weight) @ matrix)
            unit = max(unit, float(np.max(abs(matrix.T @ heavy).data, initial=0.0)))
        unit = unit or 1.0
        objective = (linear / unit) @ x
        for matrix, offset, weight in squares:
            root = np.sqrt(weight / unit)
            objective += cp.sum_squares(
                sp.csr_array(sp.diags_array(root) @ matrix) @ x + root * offset
            )
        constraints = [
            _constraint(x, matrix, offset, cone) for matrix, offset, cone in program.blocks
        ]
        self.problem = cp.Problem(cp.Minimize(objective), constraints)

    def values(self) -> dict[str, Array] | None:
        """The point (d,) in declared units, or None where the solver left no finite numbers."""
        try:
            x = np.asarray(self._x.value, dtype=np.float64)
        except (TypeError, ValueError):
            return None
        if x.shape != self._scale.shape or not np.all(np.isfinite(x)):
            return None
        return {"point": (x * self._scale)[: self._dimension]}

    def duals(self) -> dict[str, Array]:
        """None: a problem that a gap judges is read off its point."""
        return {}


def _constraint(x: Any, matrix: Any, offset: Array, cone: Any) -> Any:
    """A block of a conic program as CVXPY states it."""
    left = offset - _enlarged(matrix, matrix.shape[0], x.size) @ x
    if isinstance(cone, clarabel.ZeroConeT):
        return left == 0
    if isinstance(cone, clarabel.NonnegativeConeT):
        return left >= 0
    return cp.SOC(left[0], left[1:])
