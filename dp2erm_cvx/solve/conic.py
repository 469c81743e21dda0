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
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.kinked import KinkedProblem
from dp2erm_cvx.model.sets import Box, L1Ball, L2Ball, Simplices
from dp2erm_cvx.model.supports import LoadedFunction, LoadedTerm
from dp2erm_cvx.on_demand import clarabel
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.on_demand import sparse as sp

#: The solves that are used: any other status says that the point is no solution.
USABLE = frozenset({"Solved", "AlmostSolved"})

#: Gaps and residuals that the judge's solve asks for, and the most iterations that it takes.
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


def solved(problem: KinkedProblem) -> Candidate | None:
    """Solve a problem with kinks by an interior-point method, in public units.

    Where the smooth part is no quadratic, Newton's method is used: each step minimizes the
    quadratic at the point, the kinks and the set as they are, and goes as far toward its minimizer
    as the objective falls.

    Parameters
    ----------
    problem
        The problem.

    Returns
    -------
    Candidate or None
        None where the solver leaves no usable point.
    """
    if problem.is_quadratic:
        _, candidate = _in_fitting_units(problem)
        return candidate
    return _solved_by_newton(problem)


class ConicForm:
    """The same problem for any solver that CVXPY knows, in public units.

    Attributes
    ----------
    problem
        A ``cvxpy.Problem`` whose only variable holds all columns.
    """

    def __init__(self, problem: KinkedProblem) -> None:
        fitting, _ = _in_fitting_units(problem)
        conic = _ConicProblem(fitting)
        program = conic.program
        self._dimension = conic.dimension
        self._scale = program.scale
        self._x = cp.Variable(len(program.scale), name="columns")
        objective = _objective_in_cvxpy(conic, self._x)
        constraints = [_constraint(self._x, block) for block in program.blocks]
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
        """No multipliers: a problem that a gap judges is read off its point."""
        return {}


def _objective_in_cvxpy(conic: _ConicProblem, x: Any) -> Any:
    """The objective of all columns ``x`` as a CVXPY expression, in a unit of its own."""
    linear = conic.linear * conic.program.scale
    squares = _all_squares(conic)
    unit = float(np.max(np.abs(linear), initial=0.0))
    for square in squares:
        weighted = sp.csr_array(sp.diags_array(square.weight) @ square.matrix)
        product = abs(square.matrix.T @ weighted)
        unit = max(unit, float(np.max(product.data, initial=0.0)))
    if unit == 0.0:
        unit = 1.0
    objective = (linear / unit) @ x
    for square in squares:
        root = np.sqrt(square.weight / unit)
        matrix = sp.csr_array(sp.diags_array(root) @ square.matrix)
        objective += cp.sum_squares(matrix @ x + root * square.offset)
    return objective


def _all_squares(conic: _ConicProblem) -> list[_Square]:
    """The squares of the objective in all columns, those of its Hessian among them."""
    program = conic.program
    width = len(program.scale)
    squares = []
    for square in program.squares:
        squares.append(square._replace(matrix=_enlarged(square.matrix, width)))
    if conic.hessian is not None:
        # v' H v / 2 is the sum of (sqrt(lambda) <u, v>)^2 / 2 over eigenvectors u of H
        eigenvalues, vectors = np.linalg.eigh(conic.hessian)
        factor = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T
        factor = factor * program.scale[: conic.dimension]
        rows = len(factor)
        squares.append(_Square(_enlarged(factor, width), np.zeros(rows), np.full(rows, 0.5)))
    return squares


def _constraint(x: Any, block: _Block) -> Any:
    """A block of a conic program as CVXPY states it."""
    inside = block.offset - _enlarged(block.matrix, x.size) @ x
    if isinstance(block.cone, clarabel.ZeroConeT):
        return inside == 0
    if isinstance(block.cone, clarabel.NonnegativeConeT):
        return inside >= 0
    return cp.SOC(inside[0], inside[1:])


def _solved_by_newton(problem: KinkedProblem) -> Candidate | None:
    """The candidate of :func:`solved` where the smooth part is no quadratic."""
    point = problem.feasible.project(np.zeros(problem.kinks.dimension))
    value = problem.value(point)
    latest: Candidate | None = None
    for _ in range(_MOST_STEPS):
        _, candidate = _in_fitting_units(problem, point)
        if candidate is None:
            break
        latest = candidate
        aim = problem.feasible.project(candidate.point)
        move = aim - point
        if float(np.linalg.norm(move)) <= _STILL * float(np.linalg.norm(aim)):
            # the values of both are one to rounding
            return candidate._replace(point=aim)
        share, next_value = _falling_share(problem, point, move, value)
        if share == 0.0:
            break
        point = point + share * move
        value = next_value
    if latest is None:
        return None
    return latest._replace(point=point)


def _falling_share(
    problem: KinkedProblem, point: Array, move: Array, value: float
) -> tuple[float, float]:
    """The largest share of a move at which the objective falls, 0 without one; and its value."""
    share = 1.0
    for _ in range(_MOST_HALVES):
        value_there = problem.value(point + share * move)
        if value_there < value:
            return share, value_there
        share *= 0.5
    return 0.0, value


def _in_fitting_units(
    problem: KinkedProblem, expansion_point: Array | None = None
) -> tuple[KinkedProblem, Candidate | None]:
    """The problem in the least units that a solver copes with, and the judge's candidate in it.

    The candidate is no end of a cut set.

    Parameters
    ----------
    problem
        The problem in its public unit.
    expansion_point
        Where the smooth part is replaced by its quadratic (d,), by default at 0.
    """
    if isinstance(problem.feasible, Simplices):
        return problem, _candidate(problem, expansion_point)
    for multiple in _MULTIPLES:
        narrow, width = _narrowed(problem, multiple)
        candidate = _candidate(narrow, expansion_point)
        if candidate is not None and np.sum(np.abs(candidate.point)) <= width / 2:
            return narrow, candidate
    return problem, None


def _narrowed(problem: KinkedProblem, multiple: float) -> tuple[KinkedProblem, float]:
    """The problem in a multiple of its unit, in a set not too wide, and the width of the cut.

    The width is infinite where nothing is cut.
    """
    feasible = problem.feasible
    unit = problem.scale * multiple
    width = _WIDEST * unit
    if isinstance(feasible, L1Ball | L2Ball) and feasible.radius > width:
        return replace(problem, scale=unit, feasible=replace(feasible, radius=width)), width
    if isinstance(feasible, Box) and feasible.bound > width:
        return replace(problem, scale=unit, feasible=Box(width)), width
    return replace(problem, scale=unit), math.inf


def _candidate(problem: KinkedProblem, expansion_point: Array | None) -> Candidate | None:
    """The candidate of one solve; None where there is no point."""
    conic = _ConicProblem(problem, expansion_point)
    solution = conic.program.solved(conic.linear, conic.hessian)
    if solution is None:
        return None
    point = solution.x[: conic.dimension]
    slopes = conic.objective.slopes(solution.multipliers)
    if conic.beside is None:
        return Candidate(point, slopes, [], np.zeros(0))
    multipliers = np.maximum(solution.multipliers[conic.beside_block], 0.0)
    prices = multipliers * solution.objective_unit / conic.beside_units
    return Candidate(point, slopes, conic.beside.slopes(solution.multipliers), prices)


class _ConicProblem:
    """A problem with kinks as a conic program, its smooth part as a quadratic at a point.

    Attributes
    ----------
    dimension
        d, the number of entries of the variable, which are the first columns.
    program
        The program: all but the linear part and the Hessian of the objective.
    objective, beside
        The terms of the objective, and those of the constraints beside the set, if any.
    beside_block, beside_units
        Number of the block of the constraints beside the set, and the unit of each of them.
    linear, hessian
        Of the objective, (columns,) and (d, d), in declared units.
    """

    def __init__(self, problem: KinkedProblem, expansion_point: Array | None = None) -> None:
        d = problem.kinks.dimension
        program = _Program()
        self.dimension = d
        self.program = program
        variable = program.columns(np.full(d, problem.scale))
        _add_set(program, problem, variable)
        self.objective = _PlacedFunction(program, problem.kinks, variable, is_objective=True)
        self.beside: _PlacedFunction | None = None
        self.beside_block = 0
        self.beside_units = np.zeros(0)
        if problem.beside is not None:
            self._place_beside(problem.beside, variable)
        self.linear = np.zeros(len(program.scale))
        self.objective.add_linear_part(self.linear)
        self.hessian: Array | None = None
        if problem.smooth is not None:
            self._expand(problem.smooth, expansion_point)

    def _place_beside(self, function: LoadedFunction, variable: slice) -> None:
        """Require that a function of the variable is at most 0, each value in its own unit."""
        program = self.program
        self.beside = _PlacedFunction(program, function, variable, is_objective=False)
        matrix = program.wide(function.outer.A, self.beside.places)
        offset = function.outer.b
        sizes = np.asarray(abs(matrix).sum(axis=1)).ravel() + np.abs(offset)
        self.beside_units = np.where(sizes > 0, sizes, 1.0)
        scaled = sp.diags_array(1.0 / self.beside_units) @ matrix
        cone = clarabel.NonnegativeConeT(len(offset))
        self.beside_block = program.add(scaled, -offset / self.beside_units, cone)

    def _expand(self, smooth: Composite, expansion_point: Array | None) -> None:
        """Add the quadratic of the smooth part at a point x (d,), by default 0.

        It is ``v' H v / 2 + <g - H x, v>`` up to a constant, g its gradient at x and H its Hessian.
        """
        if expansion_point is None:
            origin = np.zeros(self.dimension)
            self.hessian = smooth.hessian(origin)
            linear = smooth.gradient(origin)
        else:
            self.hessian = smooth.hessian(expansion_point)
            linear = smooth.gradient(expansion_point) - self.hessian @ expansion_point
        self.linear[: self.dimension] += linear


class _Square(NamedTuple):
    """A sum of weighted squares ``<weight, (matrix x + offset)^2>`` of columns x.

    Attributes
    ----------
    matrix
        Sparse, of all columns there were when it was made.
    offset, weight
        Of every row (rows,).
    """

    matrix: Any
    offset: Array
    weight: Array


class _Block(NamedTuple):
    """A constraint: ``offset - matrix x`` lies in a cone.

    Attributes
    ----------
    matrix
        Sparse, of all columns there were when it was made.
    offset
        Of every row (rows,).
    cone
        A cone of Clarabel.
    """

    matrix: Any
    offset: Array
    cone: Any


class _ConicSolution(NamedTuple):
    """What the interior-point method leaves.

    Attributes
    ----------
    x
        All columns in declared units (columns,).
    multipliers
        Multipliers of every block (rows,), in the unit of the objective.
    objective_unit
        That unit.
    """

    x: Array
    multipliers: list[Array]
    objective_unit: float


class _Program:
    """A conic program as it is put together: ``minimize x'Px/2 + q'x`` with ``h - G x`` in cones.

    Attributes
    ----------
    scale
        Unit of every column (columns,). Rows are in units of their own.
    squares
        Sums of squares that are added to the objective.
    blocks
        The constraints.
    """

    def __init__(self) -> None:
        self.scale = np.zeros(0)
        self.squares: list[_Square] = []
        self.blocks: list[_Block] = []

    def columns(self, scale: Array) -> slice:
        """New columns in units of ``scale``."""
        begin = len(self.scale)
        self.scale = np.concatenate([self.scale, scale])
        return slice(begin, len(self.scale))

    def wide(self, matrix: Any, columns: slice | Array) -> Any:
        """A matrix of some columns as one of all columns so far, in their units."""
        numbers = np.arange(len(self.scale))[columns]
        entries = sp.coo_array(matrix)
        column = numbers[entries.col]
        shape = (entries.shape[0], len(self.scale))
        scaled = entries.data * self.scale[column]
        return sp.csr_array((scaled, (entries.row, column)), shape=shape)

    def selected(self, columns: slice | Array) -> Any:
        """The matrix that picks some columns, in their units."""
        count = len(np.arange(len(self.scale))[columns])
        return self.wide(sp.eye_array(count), columns)

    def add(self, matrix: Any, offset: Array, cone: Any) -> int:
        """Require ``offset - matrix x`` in a cone; the number of the block."""
        self.blocks.append(_Block(matrix, offset, cone))
        return len(self.blocks) - 1

    def add_sizes(self, argument: Any, offset: Array, size: Any) -> int:
        """Require ``|argument x + offset| <= size x`` row by row; the number of the block."""
        above_and_below = sp.vstack([argument - size, -argument - size])
        offsets = np.concatenate([-offset, offset])
        return self.add(above_and_below, offsets, clarabel.NonnegativeConeT(len(offsets)))

    def add_square(self, matrix: Any, offset: Array, weight: Array) -> None:
        """Add ``<weight, (matrix x + offset)^2>`` to the objective."""
        self.squares.append(_Square(matrix, offset, weight))

    def solved(self, linear: Array, hessian: Array | None) -> _ConicSolution | None:
        """Solve the program by Clarabel.

        Parameters
        ----------
        linear
            Linear part of the objective beside the squares (columns,), in declared units.
        hessian
            Its Hessian (d, d) in the first columns, in declared units; None for 0.

        Returns
        -------
        _ConicSolution or None
            None where there is no usable point.
        """
        P, q = self._quadratic(linear, hessian)
        G, h = self._rows()
        unit = float(max(np.max(np.abs(q), initial=0.0), np.max(np.abs(P.data), initial=0.0)))
        numbers = (q, P.data, sp.coo_array(G).data, h)
        if unit <= 0 or not all(np.all(np.isfinite(part)) for part in numbers):
            return None
        cones = [block.cone for block in self.blocks]
        upper = sp.csc_matrix(sp.triu(P / unit))
        solver = clarabel.DefaultSolver(upper, q / unit, sp.csc_matrix(G), h, cones, _settings())
        solution = solver.solve()
        if str(solution.status) not in USABLE:
            return None
        x = np.asarray(solution.x)
        z = np.asarray(solution.z)
        if not (np.all(np.isfinite(x)) and np.all(np.isfinite(z))):
            return None
        ends = np.cumsum([len(block.offset) for block in self.blocks])
        return _ConicSolution(x * self.scale, np.split(z, ends[:-1]), unit)

    def _quadratic(self, linear: Array, hessian: Array | None) -> tuple[Any, Array]:
        """P and q of the objective, of columns in their units, the squares included."""
        width = len(self.scale)
        q = linear * self.scale
        P = sp.csc_array((width, width))
        if hessian is not None:
            units = self.scale[: len(hessian)]
            P = _enlarged(hessian * units * units[:, None], width, width)
        for square in self.squares:
            # <w, (A x + b)^2> adds 2 A' W A to P and 2 A' W b to q, W the diagonal of w
            matrix = _enlarged(square.matrix, width)
            weighted = sp.diags_array(2.0 * square.weight) @ matrix
            P = P + matrix.T @ weighted
            q = q + weighted.T @ square.offset
        return sp.csc_array(P), q

    def _rows(self) -> tuple[Any, Array]:
        """Matrix G and offset h of all blocks, one under the other."""
        width = len(self.scale)
        G = sp.vstack([_enlarged(block.matrix, width) for block in self.blocks])
        return G, np.concatenate([np.zeros(0), *(block.offset for block in self.blocks)])


def _settings() -> Any:
    """The settings of the judge's solve."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = _MOST_ITERATIONS
    settings.tol_gap_abs = _TOLERANCE
    settings.tol_gap_rel = _TOLERANCE
    settings.tol_feas = _TOLERANCE
    return settings


def _enlarged(matrix: Any, columns: int, rows: int | None = None) -> Any:
    """A matrix with columns of zeros after its own, and rows of zeros as well where asked for."""
    entries = sp.coo_array(matrix)
    if rows is None:
        rows = entries.shape[0]
    return sp.csc_array((entries.data, (entries.row, entries.col)), shape=(rows, columns))


class _PlacedFunction:
    """The terms of one function in a program: columns, blocks of kinks, and rows of its values.

    Every term has outputs, columns of the program that are at least its values. Arguments of terms
    are affine in the variable and in the outputs of terms before.

    Attributes
    ----------
    program
        The program.
    function
        The function.
    places
        Column of the program (function.columns,) of each entry of the variable and of each output;
        -1 where there is none yet.
    kink_blocks
        For every term the number of its first block, None where it has no kink.
    """

    def __init__(
        self, program: _Program, function: LoadedFunction, variable: slice, *, is_objective: bool
    ) -> None:
        self.program = program
        self.function = function
        of_variable = np.arange(len(program.scale))[variable]
        n_outputs = function.columns - function.dimension
        self.places = np.concatenate([of_variable, np.full(n_outputs, -1)])
        size_in_arguments = np.zeros(function.columns)
        for term in function.terms:
            size_in_arguments += np.asarray(abs(term.matrix.A).sum(axis=0)).ravel()
        self._outer = function.outer.A.toarray()
        # a square that nothing but the objective asks for is its quadratic part
        self._only_in_objective = is_objective & (size_in_arguments == 0)
        self.kink_blocks = [self._place(term) for term in function.terms]

    def add_linear_part(self, target: Array) -> None:
        """Add the linear part of the function to ``target`` (columns,), in declared units."""
        np.add.at(target, self.places, self._outer[0])

    def slopes(self, multipliers: Sequence[Array]) -> list[Array | None]:
        """Slopes of all kinks from the multipliers of their blocks."""
        slopes: list[Array | None] = []
        for term, block in zip(self.function.terms, self.kink_blocks, strict=True):
            if block is None:
                slopes.append(None)
            else:
                slopes.append(_slope(term, multipliers[block : block + term.n_outputs]))
        return slopes

    def _place(self, term: LoadedTerm) -> int | None:
        """Put a term into the program; the number of its first block, None where it has no kink."""
        unit = self._unit_of_argument(term)
        if not term.kink:
            self._add_outputs(term, unit**2)
            self._place_square(term, unit)
            return None
        self._add_outputs(term, unit)
        argument = self._argument(term) / unit
        offset = term.matrix.b / unit
        if term.kind == "abs":
            return self.program.add_sizes(argument, offset, self._outputs_of_rows(term) / unit)
        if term.kind == "max":
            value = self._outputs_of_rows(term) / unit
            cone = clarabel.NonnegativeConeT(len(offset))
            return self.program.add(argument - value, -offset, cone)
        return self._place_norms(term, argument, offset, unit)

    def _unit_of_argument(self, term: LoadedTerm) -> float:
        """The largest size of a row of the argument where every column is as large as its unit."""
        is_placed = self.places >= 0
        units = np.zeros(len(self.places))
        units[is_placed] = self.program.scale[self.places[is_placed]]
        sizes = abs(term.matrix.A) @ units + np.abs(term.matrix.b)
        largest = float(np.max(sizes, initial=0.0))
        if largest == 0.0:
            return 1.0
        return largest

    def _add_outputs(self, term: LoadedTerm, unit: float) -> None:
        """Columns for the outputs of a term."""
        outputs = self.program.columns(np.full(term.n_outputs, unit))
        self.places[term.outputs] = np.arange(outputs.start, outputs.stop)

    def _argument(self, term: LoadedTerm) -> Any:
        """The argument of every row of a term but for its offset, in all columns so far."""
        is_placed = self.places >= 0
        return self.program.wide(term.matrix.A[:, is_placed], self.places[is_placed])

    def _outputs_of_rows(self, term: LoadedTerm) -> Any:
        """The output of every row of a term, in all columns so far."""
        rows = len(term.group)
        spread = sp.csr_array((np.ones(rows), (np.arange(rows), term.group)))
        return self.program.wide(spread, self.places[term.outputs])

    def _place_norms(self, term: LoadedTerm, argument: Any, offset: Array, unit: float) -> int:
        """Euclidean norms of groups of rows, one block for each; the number of the first."""
        program = self.program
        first = len(program.blocks)
        output = program.selected(self.places[term.outputs]) / unit
        for number in range(term.n_outputs):
            members = np.flatnonzero(term.group == number)
            matrix = sp.vstack([-output[[number]], -argument[members]])
            cone = clarabel.SecondOrderConeT(len(members) + 1)
            program.add(matrix, np.concatenate([np.zeros(1), offset[members]]), cone)
        return first

    def _place_square(self, term: LoadedTerm, unit: float) -> None:
        """Squares ``y^2 <= t``; those of Huber's function as ``(y - e)^2 + 2 bound |e| <= t``."""
        program = self.program
        b = term.matrix.b
        rows = len(b)
        if term.kind == "huber":
            argument, value = self._less_excess(term, unit)
        else:
            argument = self._argument(term)
            value = self._outputs_of_rows(term)
        if np.all(self._only_in_objective[term.outputs]):
            program.add_square(argument, b, self._outer[0, term.outputs])
            # what is left of the output is linear in the objective
            program.add(value / unit**2, np.zeros(rows), clarabel.ZeroConeT(rows))
            return
        argument = argument / unit
        value = value / unit**2
        for row in range(rows):
            # y^2 <= t where the norm of (t - 1, 2 y) is at most t + 1
            matrix = sp.vstack([-value[[row]], -value[[row]], -2.0 * argument[[row]]])
            offset = np.array([1.0, -1.0, 2.0 * b[row] / unit])
            program.add(matrix, offset, clarabel.SecondOrderConeT(3))

    def _less_excess(self, term: LoadedTerm, unit: float) -> tuple[Any, Any]:
        """``y - e`` and ``t - 2 bound |e|`` of Huber's function, with columns for e and ``|e|``."""
        program = self.program
        rows = len(term.matrix.b)
        excess_columns = program.columns(np.full(rows, unit))
        size_columns = program.columns(np.full(rows, unit))
        excess = program.selected(excess_columns)
        size = program.selected(size_columns)
        program.add_sizes(excess / unit, np.zeros(rows), size / unit)
        argument = self._argument(term) - excess
        value = self._outputs_of_rows(term) - 2.0 * term.bound * size
        return argument, value


def _slope(term: LoadedTerm, multipliers: Sequence[Array]) -> Array:
    """The slope per unit of a kink that multipliers of its constraints stand for."""
    if term.kind == "max":
        return term.unit_slope(multipliers[0])
    if term.kind == "abs":
        above, below = np.split(multipliers[0], 2)
        total = above + below
        return term.unit_slope((above - below) / np.where(total > 0, total, 1.0))
    slope = np.zeros(len(term.group))
    for output, z in enumerate(multipliers):
        if z[0] > 0:
            slope[term.group == output] = -z[1:] / z[0]
    return term.unit_slope(slope)


def _add_set(program: _Program, problem: KinkedProblem, variable: slice) -> None:
    """Constraints that put the variable into the set."""
    feasible = problem.feasible
    unit = problem.scale
    if isinstance(feasible, Simplices):
        _add_simplices(program, feasible, variable)
    elif isinstance(feasible, L1Ball):
        _add_l1_ball(program, feasible.radius, unit, variable)
    elif isinstance(feasible, L2Ball):
        d = variable.stop
        entries = program.selected(variable) / unit
        matrix = sp.vstack([sp.csr_array((1, len(program.scale))), -entries])
        offset = np.concatenate([np.array([feasible.radius / unit]), np.zeros(d)])
        program.add(matrix, offset, clarabel.SecondOrderConeT(d + 1))
    elif isinstance(feasible, Box):
        d = variable.stop
        entries = program.selected(variable) / unit
        at_both_ends = sp.vstack([entries, -entries])
        offset = np.full(2 * d, feasible.bound / unit)
        program.add(at_both_ends, offset, clarabel.NonnegativeConeT(2 * d))


def _add_simplices(program: _Program, feasible: Simplices, variable: slice) -> None:
    """Sums of the groups, the floor and the cap."""
    d = variable.stop
    for members in feasible.members():
        row = np.zeros((1, d))
        row[0, members] = 1.0
        total = program.wide(row, variable) / feasible.total
        program.add(total, np.ones(1), clarabel.ZeroConeT(1))
    entries = program.selected(variable)
    program.add(-entries, np.full(d, -feasible.floor), clarabel.NonnegativeConeT(d))
    if np.isfinite(feasible.cap):
        program.add(entries, np.full(d, feasible.cap), clarabel.NonnegativeConeT(d))


def _add_l1_ball(program: _Program, radius: float, unit: float, variable: slice) -> None:
    """Columns that bound the sizes of all entries, and the bound on their sum."""
    d = variable.stop
    size_columns = program.columns(np.full(d, unit))
    entries = program.selected(variable) / unit
    sizes = program.selected(size_columns) / unit
    program.add_sizes(entries, np.zeros(d), sizes)
    total = sp.csr_array(np.ones((1, d))) @ sizes
    program.add(total, np.array([radius / unit]), clarabel.NonnegativeConeT(1))
