"""How near a point is to the minimizer of a problem without a prox: a duality gap (Theorem 40).

Such are second stages whose penalties have kinks, and weights outside of the form.

The judge solves the problem itself and proves a radius of its own point: an *anchor*. The radius of
any other point is its distance to the anchor and that radius, whatever solver computed it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dp2erm_cvx.arrays import (
    ROUND_DOWN_SUMS,
    ROUND_UP,
    ROUND_UP_SUMS,
    SQUARES_UNDERFLOW,
    UNIT,
    Array,
)
from dp2erm_cvx.model.kinked import KinkedProblem
from dp2erm_cvx.model.sets import ConvexSet, L2Ball
from dp2erm_cvx.model.supports import LoadedFunction, Plane
from dp2erm_cvx.solve.conic import Candidate, solved
from dp2erm_cvx.solve.kinks import at_kinks

#: Slopes of a kink this near to the edge of their set are taken at the edge, where the kink is not
#: felt; all of them in the end.
_EDGES = (0.0, 1e-6, 1e-3, 1.0)
#: Curvatures ell of a step, whose length is 1/ell, relative to the strong convexity: where no
#: curvature of the problem is known.
_RELATIVE_CURVATURES = (1.0, 1e1, 1e2, 1e3, 1e4)


class Anchor(NamedTuple):
    """A point with a proved radius.

    Parameters
    ----------
    point
        The point (d,).
    radius
        Bound on its distance to the minimizer.
    strong_convexity
        The curvature that the radius rests on: c/2 of the theorem, the mean of both sides of the
        proof.
    residual
        Norm of r of the theorem, which stationarity leaves at the point.
    """

    point: Array
    radius: float
    strong_convexity: float
    residual: float


def rounded_norm(v: Array) -> float:
    """Norm of ``v`` (d,), rounded up, over underflow as well; ``inf`` where it is no number."""
    norm = float(np.linalg.norm(v)) * ROUND_UP + SQUARES_UNDERFLOW * math.sqrt(len(v))
    if not math.isfinite(norm):
        return math.inf
    return norm


@np.errstate(all="ignore")  # bounds that overflow end in an infinite radius
def anchored(problem: KinkedProblem) -> Anchor | None:
    """The judge's own point with the least radius that is proved; None where its solve has none."""
    candidate = solved(problem)
    if candidate is None:
        return None
    anchors = [_anchor(problem, choice, ell) for choice, ell in _choices(problem, candidate)]
    for standing in at_kinks(problem, candidate):
        anchors.append(_standing(problem, standing))
        for ell in _curvatures_of_step(problem, standing):
            anchors.append(_anchor(problem, standing, ell))
    return min(anchors, key=lambda anchor: anchor.radius)


def _choices(problem: KinkedProblem, candidate: Candidate) -> Iterator[tuple[Candidate, float]]:
    """Slopes and curvatures of a step to be tried: a proof may rest on any."""
    curvatures = _curvatures_of_step(problem, candidate)
    for edge in _EDGES:
        slopes = _edged(problem.kinks, candidate.point, candidate.slopes, edge)
        for ell in curvatures:
            yield candidate._replace(slopes=slopes), ell


def _curvatures_of_step(problem: KinkedProblem, candidate: Candidate) -> list[float]:
    """Curvatures ell of a step: the largest of the problem, or some where none is known."""
    if problem.smooth is not None:
        return [max(problem.smooth.spectrum(candidate.point)[1], 1e-300)]
    return [relative * problem.strong_convexity for relative in _RELATIVE_CURVATURES]


def _edged(
    function: LoadedFunction, point: Array, slopes: list[Array | None], edge: float
) -> list[Array | None]:
    """Slopes of kinks, those within ``edge`` of size 1 replaced by those at the point."""
    edged: list[Array | None] = []
    for term, slope, at_point in zip(
        function.terms, slopes, function.slopes_at(point), strict=True
    ):
        if slope is None or at_point is None or term.kind == "max" or edge == 0.0:
            edged.append(slope)
        else:
            is_near_edge = term.norm(slope)[term.group] >= 1.0 - edge
            edged.append(np.where(is_near_edge, at_point, slope))
    return edged


def _anchor(problem: KinkedProblem, candidate: Candidate, curvature_of_step: float) -> Anchor:
    """Theorem 40 at the projection of one step from the candidate.

    The length of the step is 1 / ell, ell the ``curvature_of_step``. Where the projection may miss
    constraints beside the set, the point goes on toward one inside of them.
    """
    step = _projected_step(problem, candidate, curvature_of_step)
    misplaced = np.full_like(step.projected, step.misplaced)
    point, moved, shift = _feasible(problem, step.projected, misplaced)
    plane = _plane(problem, candidate, point, moved)
    residual, stationarity = _stationarity(problem, step, plane, point, moved)

    # tau = sigma - <lambda, h(x)> + ||q|| ||x - p||
    normal_error = step.ell * step.misplaced
    by_shift = rounded_norm(step.normal) * shift * ROUND_UP_SUMS
    tau = plane.left_out + by_shift + normal_error * shift
    tau += _slack(problem, candidate, point, moved)

    least_normal = rounded_norm(step.normal) - 2 * step.ell * step.misplaced
    curvature = _curvature(problem, point, least_normal)
    radius = _proved_radius(stationarity, curvature, tau, rounded_norm(moved))
    return Anchor(point, radius, curvature / 2, rounded_norm(residual))


class _ProjectedStep(NamedTuple):
    """A step from a candidate and its projection onto the set C, with the symbols of Theorem 40.

    Attributes
    ----------
    ell
        Inverse of the length of the step.
    trial
        v, the end of the step (d,).
    projected
        p, the computed projection of v (d,).
    misplaced
        Bound on the distance of the computed projection to the exact one.
    normal
        ``q = ell (v - p)`` (d,), which is normal to C at p.
    """

    ell: float
    trial: Array
    projected: Array
    misplaced: float
    normal: Array


def _projected_step(problem: KinkedProblem, candidate: Candidate, ell: float) -> _ProjectedStep:
    """The step ``v = x - s / ell`` from a candidate x, s a subgradient of the objective there."""
    start = candidate.point
    subgradient = _plane(problem, candidate, start, np.zeros_like(start)).slope
    if problem.smooth is not None:
        subgradient = subgradient + problem.smooth.gradient(start)
    trial = start - subgradient / ell
    projected = problem.feasible.project(trial)
    # a projection that scales rounds relative to its result, any other to what it is given
    size = rounded_norm(trial)
    if problem.feasible.scales:
        size = rounded_norm(projected)
    misplaced = problem.feasible.rounding(len(trial)) * UNIT * size
    return _ProjectedStep(ell, trial, projected, misplaced, ell * (trial - projected))


def _stationarity(
    problem: KinkedProblem, step: _ProjectedStep, plane: Plane, point: Array, moved: Array
) -> tuple[Array, float]:
    """The residual ``r = grad f(x) + g + q`` (d,), and a bound of the norm of the exact one.

    Parameters
    ----------
    problem
        The problem.
    step
        The step whose projection the point is, or is near.
    plane
        The plane below the part with kinks, of slope g.
    point, moved
        The point x (d,), and how far the exact one may be from it in every coordinate.
    """
    ell = step.ell
    residual = plane.slope + step.normal
    sizes = rounded_norm(plane.slope) + rounded_norm(step.normal)
    error = rounded_norm(plane.error)
    subtracted = rounded_norm(step.trial) + rounded_norm(step.projected)
    error += ell * (step.misplaced + 4 * UNIT * subtracted)
    if problem.smooth is not None:
        gradient = problem.smooth.gradient(point)
        residual = residual + gradient
        sizes += rounded_norm(gradient)
        error += problem.smooth.rounding(point) + problem.smooth.smoothness * rounded_norm(moved)
    return residual, rounded_norm(residual) + error + 8 * UNIT * sizes


def _standing(problem: KinkedProblem, candidate: Candidate) -> Anchor:
    """Theorem 40 at a point inside of the set, which is neither projected nor moved: q = 0."""
    point = candidate.point
    feasible = problem.feasible
    is_inside = isinstance(feasible, ConvexSet) and feasible.is_inside(point)
    if problem.smooth is None or problem.beside is not None or not is_inside:
        return Anchor(point, math.inf, 0.0, math.inf)
    plane = problem.kinks.plane(point, np.zeros_like(point), candidate.slopes, np.ones(1))
    gradient = problem.smooth.gradient(point)
    residual = plane.slope + gradient
    sizes = rounded_norm(plane.slope) + rounded_norm(gradient)
    stationarity = rounded_norm(residual) + rounded_norm(plane.error)
    stationarity += problem.smooth.rounding(point)
    stationarity += 8 * UNIT * sizes
    curvature = _curvature(problem, point, 0.0)
    radius = _proved_radius(stationarity, curvature, plane.left_out, 0.0)
    return Anchor(point, radius, curvature / 2, rounded_norm(residual))


def _proved_radius(stationarity: float, curvature: float, tau: float, moved: float) -> float:
    """The radius of Theorem 40; infinite where nothing is proved.

    Parameters
    ----------
    stationarity
        Bound on the norm of a subgradient at the point.
    curvature
        The sum c of the curvatures of both sides of the proof.
    tau
        What the lower bound of the objective leaves out at the point: sigma of the planes, the
        slack of the constraints at their prices, and what the shift into them costs.
    moved
        How far the exact point may be from the computed one.
    """
    if not (curvature > 0 and tau >= 0):
        return math.inf
    root = math.sqrt(stationarity * stationarity + 2 * curvature * tau)
    radius = ((stationarity + root) / curvature + moved) * ROUND_UP_SUMS
    if not math.isfinite(radius):
        return math.inf
    return radius


def _plane(problem: KinkedProblem, candidate: Candidate, point: Array, moved: Array) -> Plane:
    """A plane below the part with kinks, and below the constraints at their prices."""
    plane = problem.kinks.plane(point, moved, candidate.slopes, np.ones(1))
    if problem.beside is None:
        return plane
    other = problem.beside.plane(point, moved, candidate.beside_slopes, candidate.prices)
    slope = plane.slope + other.slope
    error = plane.error + other.error + 2 * UNIT * np.abs(slope)
    return Plane(slope, error, (plane.left_out + other.left_out) * (1 + 4 * UNIT))


def _feasible(problem: KinkedProblem, point: Array, moved: Array) -> tuple[Array, Array, float]:
    """A point that meets the constraints beside the set.

    Where the constraints are missed, or may be, it goes as far as needed toward the point inside of
    them.

    Returns
    -------
    tuple
        The point, how far the exact one may be from it in every coordinate, and how far it went.
    """
    if problem.beside is None:
        return point, moved, 0.0
    assert problem.inside is not None
    values, errors = problem.beside.values(point, moved)
    missed = np.maximum(values + errors, 0.0)
    # what is no number counts as missed
    is_missed = missed != 0
    if not np.any(is_missed):
        return point, moved, 0.0
    values_inside, errors_inside = problem.beside.values(problem.inside, np.zeros_like(point))
    least_room = -(values_inside + errors_inside)
    if not np.all(least_room[is_missed] > 0):
        return point, np.full_like(point, np.inf), math.inf
    # h is convex, so that h(x) / (h(x) - h(inside)) of the way is enough
    shares = missed / np.where(is_missed, missed + least_room, 1.0)
    share = float(np.max(shares)) * ROUND_UP
    way = problem.inside - point
    distance = share * (rounded_norm(way) + rounded_norm(moved))
    moved = moved + 4 * UNIT * (np.abs(point) + np.abs(problem.inside))
    return point + share * way, moved, distance


def _slack(problem: KinkedProblem, candidate: Candidate, point: Array, moved: Array) -> float:
    """What the constraints lack of 0 at a point that meets them, at their prices."""
    if problem.beside is None:
        return 0.0
    values, errors = problem.beside.values(point, moved)
    return float(candidate.prices @ np.maximum(errors - values, 0.0)) * ROUND_UP_SUMS


def _curvature(problem: KinkedProblem, point: Array, least_normal: float) -> float:
    """The curvature ``c = m + m_f + kappa`` of Theorem 40, rounded down.

    Parameters
    ----------
    problem
        The problem.
    point
        Where the Hessian of a quadratic is taken (d,): it is the same anywhere.
    least_normal
        Lower bound on ``||q||``; kappa is this over the radius of a Euclidean ball.
    """
    of_objective = problem.strong_convexity
    of_lower_bound = 0.0
    if problem.smooth is not None:
        of_lower_bound = problem.smooth.ridge
        if problem.is_quadratic:
            of_lower_bound = max(problem.smooth.spectrum(point)[0], of_lower_bound)
        of_objective = max(of_objective, of_lower_bound)
    if isinstance(problem.feasible, L2Ball) and least_normal > 0:
        of_lower_bound += least_normal / problem.feasible.radius * ROUND_DOWN_SUMS
    return (of_objective + of_lower_bound) * (1 - 4 * UNIT)
