"""Candidates of the judge that stand exactly at kinks, by Newton's method among such points.

Nothing of them is believed: :mod:`dp2erm_cvx.solve.gap` proves what they are worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.model.kinked import KinkedProblem
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.model.supports import LoadedTerm
from dp2erm_cvx.solve.conic import Candidate

#: Arguments of kinks below these shares of the point are taken for 0.
_NEAR = (1e-7, 1e-5)
#: Steps of Newton's method.
_STEPS = 8
#: Coefficients are 0, or whole, where they differ by less than this part.
_SAME = 1e-9
#: Entries that are free are kept to so many digits of 2, so that sums of few of them do not round.
_DIGITS = 46


class _Plane(NamedTuple):
    """Points ``basis @ z + offset``, whose entries ``free`` are z."""

    basis: Array
    offset: Array
    free: NDArray[np.int64]

    def at(self, z: Array) -> Array:
        """The point (d,) of z, whose digits are cut."""
        largest = float(np.max(np.abs(z), initial=0.0))
        if largest > 0:
            unit = 2.0 ** (math.frexp(largest)[1] - _DIGITS)
            z = np.round(z / unit) * unit
        point: Array = self.basis @ z + self.offset
        return point


def at_kinks(problem: KinkedProblem, candidate: Candidate) -> Iterator[Candidate]:
    """Candidates at which the kinks that the solve is near are exact; none for terms of others."""
    if problem.smooth is None or problem.beside is not None or not problem.kinks.stands_alone:
        return
    size = float(np.linalg.norm(candidate.point)) + problem.scale * 1e-6
    tried: list[list[NDArray[np.bool_]]] = []
    for share in _NEAR:
        active = _active(problem, candidate.point, share * size)
        if any(_same_rows(active, other) for other in tried):
            continue
        tried.append(active)
        minimized = _minimized(problem, candidate, active)
        if minimized is not None:
            yield minimized


def _same_rows(one: list[NDArray[np.bool_]], other: list[NDArray[np.bool_]]) -> bool:
    """True if the same rows of all terms are at their kinks."""
    return all(np.array_equal(at, other_at) for at, other_at in zip(one, other, strict=True))


def _active(problem: KinkedProblem, point: Array, near: float) -> list[NDArray[np.bool_]]:
    """For every term the rows (rows,) of the outputs that are at their kink."""
    active = []
    for term, a in zip(problem.kinks.terms, problem.kinks.arguments(point), strict=True):
        at = np.zeros(len(a), dtype=bool)
        if term.kink:
            at = (term.norm(a) <= near)[term.group]
        active.append(at)
    return active


def _minimized(
    problem: KinkedProblem, candidate: Candidate, active: list[NDArray[np.bool_]]
) -> Candidate | None:
    """The minimizer where the active kinks stay, with the slopes that leave least."""
    plane = _plane_of_kinks(problem, active)
    radius = _felt_radius(problem, candidate.point)
    x = plane.at(candidate.point[plane.free])
    if len(plane.free):
        minimizer = _minimizer_on_plane(problem, plane, active, x, radius)
        if minimizer is None:
            return None
        x = minimizer
    if not np.all(np.isfinite(x)):
        return None
    normal = np.zeros((0, len(x)))
    if radius is not None:
        normal = x[None, :]
    return candidate._replace(point=x, slopes=_balanced(problem, candidate, x, active, normal))


def _minimizer_on_plane(
    problem: KinkedProblem,
    plane: _Plane,
    active: list[NDArray[np.bool_]],
    start: Array,
    radius: float | None,
) -> Array | None:
    """The minimizer on the plane of the active kinks, by Newton's method; None without a step.

    On the plane ``x = B z + offset`` a step d solves ``B' (H + price I) B d = B' (g + price x)``.
    Where a ball is felt, its price is an unknown as well, with the equation
    ``||x||^2 = radius^2``.
    """
    B = plane.basis
    x = start
    price = 0.0
    for _ in range(_STEPS):
        gradient, hessian = _derivatives(problem, x, active)
        matrix = B.T @ (hessian + price * np.eye(len(x))) @ B
        residual = B.T @ (gradient + price * x)
        if radius is not None:
            along = B.T @ x
            matrix = np.block([[matrix, along[:, None]], [along[None, :], np.zeros((1, 1))]])
            residual = np.append(residual, (x @ x - radius**2) / 2)
        try:
            step = np.linalg.solve(matrix, residual)
        except np.linalg.LinAlgError:
            return None
        if radius is not None:
            price -= float(step[-1])
            step = step[:-1]
        x = plane.at(x[plane.free] - step)
    return x


def _plane_of_kinks(problem: KinkedProblem, active: list[NDArray[np.bool_]]) -> _Plane:
    """The points at which the arguments of all active kinks are 0."""
    d = problem.kinks.dimension
    rows = [np.zeros((0, d))]
    offsets = [np.zeros(0)]
    for term, at in zip(problem.kinks.terms, active, strict=True):
        rows.append(term.matrix.A.toarray()[at, :d])
        offsets.append(term.matrix.b[at])
    return _plane(np.vstack(rows), np.concatenate(offsets))


def _derivatives(
    problem: KinkedProblem, x: Array, active: list[NDArray[np.bool_]]
) -> tuple[Array, Array]:
    """Gradient and Hessian of the objective where the active kinks stay."""
    assert problem.smooth is not None
    kinks = problem.kinks
    coefficients = kinks.coefficients()
    gradient = _gradient(problem, x, _slopes(problem, x, active))
    hessian = problem.smooth.hessian(x)
    for term, a, at in zip(kinks.terms, kinks.arguments(x), active, strict=True):
        hessian = hessian + _bend(term, a, at, coefficients[term.outputs], kinks.dimension)
    return gradient, hessian


def _gradient(problem: KinkedProblem, x: Array, slopes: list[Array | None]) -> Array:
    """A subgradient of the objective at x, by slopes of its kinks."""
    assert problem.smooth is not None
    plane = problem.kinks.plane(x, np.zeros(problem.kinks.dimension), slopes, np.ones(1))
    return problem.smooth.gradient(x) + plane.slope


def _felt_radius(problem: KinkedProblem, point: Array) -> float | None:
    """Radius of a ball whose boundary the point is at; None elsewhere."""
    feasible = problem.feasible
    if isinstance(feasible, L2Ball) and np.linalg.norm(point) >= feasible.radius * (1 - 1e-6):
        return feasible.radius
    return None


def _plane(rows: Array, offsets: Array) -> _Plane:
    """The points with ``rows x + offsets = 0``, by elimination; whole coefficients stay whole."""
    d = rows.shape[1]
    table, pivots = _eliminated(np.hstack([rows, offsets[:, None]]))
    free = np.setdiff1d(np.arange(d), pivots)
    basis = np.zeros((d, len(free)))
    basis[free, np.arange(len(free))] = 1.0
    offset = np.zeros(d)
    for row, column in enumerate(pivots):
        # adding 0 turns a negative 0 into 0
        basis[column] = 0.0 - table[row, free]
        offset[column] = 0.0 - table[row, d]
    whole = np.round(basis)
    basis = np.where(np.abs(basis - whole) < _SAME, whole, basis)
    return _Plane(basis, offset, free)


def _eliminated(table: Array) -> tuple[Array, list[int]]:
    """A table (rows, d + 1) of equations in reduced form, and the column of every pivot."""
    d = table.shape[1] - 1
    largest = np.max(np.abs(table[:, :d]), initial=0.0)
    pivots: list[int] = []
    row = 0
    for column in range(d):
        if row == len(table):
            break
        best = row + int(np.argmax(np.abs(table[row:, column])))
        if abs(table[best, column]) <= _SAME * largest:
            continue
        table[[row, best]] = table[[best, row]]
        table[row] /= table[row, column]
        others = np.arange(len(table)) != row
        table[others] -= np.outer(table[others, column], table[row])
        pivots.append(column)
        row += 1
    return table, pivots


def _bend(
    term: LoadedTerm, a: Array, active: NDArray[np.bool_], coefficient: Array, d: int
) -> Array:
    """Hessian (d, d) of a term off its kinks, times the coefficients of its outputs.

    Parameters
    ----------
    term
        The term, of arguments ``a = A x + b``.
    a, active
        The arguments (rows,), and which are at their kink.
    coefficient
        Of every output.
    d
        Number of entries of x.
    """
    A = term.matrix.A.toarray()[:, :d]
    of_rows = coefficient[term.group]
    if term.kind == "square":
        return np.asarray(A.T @ (2.0 * of_rows[:, None] * A))
    if term.kind == "huber":
        inside = np.abs(a) <= term.bound
        return np.asarray(A.T @ (2.0 * (of_rows * inside)[:, None] * A))
    total = np.zeros((d, d))
    if term.kind == "norm":
        length = term.norm(a)
        for output in range(term.n_outputs):
            members = np.flatnonzero(term.group == output)
            if length[output] == 0.0 or active[members[0]]:
                continue
            # of ||a||: (A'A - A'u u'A) / ||a||, u = a / ||a||
            along = A[members].T @ (a[members] / length[output])
            bend = A[members].T @ A[members] - np.outer(along, along)
            total += coefficient[output] / length[output] * bend
    return total


def _slopes(
    problem: KinkedProblem, x: Array, active: list[NDArray[np.bool_]]
) -> list[Array | None]:
    """Slopes of kinks at a point, 0 at the active ones."""
    slopes: list[Array | None] = []
    for u, at in zip(problem.kinks.slopes_at(x), active, strict=True):
        slopes.append(None if u is None else np.where(at, 0.0, u))
    return slopes


def _balanced(
    problem: KinkedProblem,
    candidate: Candidate,
    x: Array,
    active: list[NDArray[np.bool_]],
    normal: Array,
) -> list[Array | None]:
    """Slopes at a point: those of active kinks move as little as leaves no residual.

    They begin as the solve's. What is along a ``normal`` (k, d) of the set is no residual.
    """
    slopes = _slopes(problem, x, active)
    residual = _gradient(problem, x, slopes)
    pull, solved_slopes = _pulls_of_kinks(problem, candidate, active)
    pull = np.vstack([pull, normal])
    begun = np.concatenate([solved_slopes, np.zeros(len(normal))])
    balanced = begun + np.linalg.lstsq(pull.T, -residual - pull.T @ begun, rcond=None)[0]
    begin = 0
    for number, (term, at) in enumerate(zip(problem.kinks.terms, active, strict=True)):
        u = slopes[number]
        if u is None:
            continue
        end = begin + int(np.sum(at))
        u[at] = balanced[begin:end]
        slopes[number] = term.unit_slope(u)
        begin = end
    return slopes


def _pulls_of_kinks(
    problem: KinkedProblem, candidate: Candidate, active: list[NDArray[np.bool_]]
) -> tuple[Array, Array]:
    """What slopes of 1 of the active kinks add to the gradient (k, d), and the solve's slopes (k,).

    They are those of active rows, term by term.
    """
    kinks = problem.kinks
    coefficients = kinks.coefficients()
    pulls = [np.zeros((0, kinks.dimension))]
    slopes = [np.zeros(0)]
    for term, u, at in zip(kinks.terms, candidate.slopes, active, strict=True):
        if u is not None:
            of_rows = coefficients[term.outputs][term.group]
            A = term.matrix.A.toarray()[:, : kinks.dimension]
            pulls.append((of_rows[:, None] * A)[at])
            slopes.append(u[at])
    return np.vstack(pulls), np.concatenate(slopes)
