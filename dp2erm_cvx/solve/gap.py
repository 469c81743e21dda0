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

from dp2erm_cvx.arrays import ROUND_DOWN_SUMS, ROUND_UP, ROUND_UP_SUMS, UNIT, Array
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
    norm = float(np.linalg.norm(v)) * ROUND_UP + 1e-150 * math.sqrt(len(v))
    return norm if math.isfinite(norm) else math.inf


@np.errstate(all="ignore")  # bounds that overflow end in an infinite radius
def anchored(problem: KinkedProblem) -> Anchor | None:
    """The judge's own point with the least radius that is proved; None where its solve has none."""
    candidate = solved(problem)
    if candidate is None:
        return None
    anchors = [_anchor(problem, choice, ell) for choice, ell in _choices(problem, candidate)]
    for one in at_kinks(problem, candidate):
        anchors.append(_standing(problem, one))
        anchors += [_anchor(problem, one, ell) for ell in _curvatures_of_step(problem, one)]
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
    result = []
    for term, u, there in zip(function.terms, slopes, function.slopes_at(point), strict=True):
        if u is None or there is None or term.kind == "max" or edge == 0.0:
            result.append(u)
        else:
            result.append(np.where(term.norm(u)[term.group] >= 1.0 - edge, there, u))
    return result


def _anchor(problem: KinkedProblem, candidate: Candidate, curvature_of_step: float) -> Anchor:
    """Theorem 40 at the projection of one step from the candidate.

    The step is the pull over ell, the ``curvature_of_step``.
    """
    ell = curvature_of_step
    start = candidate.point
    still = np.zeros_like(start)
    pull = _plane(problem, candidate, start, still).slope
    if problem.smooth is not None:
        pull = pull + problem.smooth.gradient(start)
    trial = start - pull / ell
    projected = problem.feasible.project(trial)
    rounded = projected if problem.feasible.scales else trial
    misplaced = problem.feasible.rounding(len(trial)) * UNIT * rounded_norm(rounded)
    normal = ell * (trial - projected)
    point, moved, shift = _feasible(problem, projected, np.full_like(start, misplaced))

    plane = _plane(problem, candidate, point, moved)
    residual = plane.slope + normal
    sizes = rounded_norm(plane.slope) + rounded_norm(normal)
    error = rounded_norm(plane.error)
    error += ell * (misplaced + 4 * UNIT * (rounded_norm(trial) + rounded_norm(projected)))
    if problem.smooth is not None:
        gradient = problem.smooth.gradient(point)
        residual = residual + gradient
        sizes += rounded_norm(gradient)
        error += problem.smooth.rounding(point) + problem.smooth.smoothness * rounded_norm(moved)
    stationarity = rounded_norm(residual) + error + 8 * UNIT * sizes

    by_shift = rounded_norm(normal) * shift * ROUND_UP_SUMS
    tau = plane.left_out + by_shift + ell * misplaced * shift
    tau += _slack(problem, candidate, point, moved)
    curvature = _curvature(problem, point, rounded_norm(normal) - 2 * ell * misplaced)
    radius = _proved_radius(stationarity, curvature, tau, rounded_norm(moved))
    return Anchor(point, radius, curvature / 2, rounded_norm(residual))


def _standing(problem: KinkedProblem, candidate: Candidate) -> Anchor:
    """Theorem 40 at a point inside of the set, which is neither projected nor moved."""
    point = candidate.point
    still = np.zeros_like(point)
    unproved = Anchor(point, math.inf, 0.0, math.inf)
    if problem.smooth is None or problem.beside is not None:
        return unproved
    if not isinstance(problem.feasible, ConvexSet):
        return unproved
    # sets hold the origin: a point is inside where a longer one is left alone by the projection
    longer = point * (1 + 1e-6)
    if not np.array_equal(problem.feasible.project(longer), longer):
        return unproved
    plane = problem.kinks.plane(point, still, candidate.slopes, np.ones(1))
    gradient = problem.smooth.gradient(point)
    residual = plane.slope + gradient
    sizes = rounded_norm(plane.slope) + rounded_norm(gradient)
    error = rounded_norm(plane.error)
    stationarity = rounded_norm(residual) + error + problem.smooth.rounding(point)
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
    return radius if math.isfinite(radius) else math.inf


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
    room, room_error = problem.beside.values(problem.inside, np.zeros_like(point))
    least = -(room + room_error)
    if np.all(missed == 0):
        return point, moved, 0.0
    if not np.all(least[missed != 0] > 0):
        return point, np.full_like(point, np.inf), math.inf
    share = float(np.max(missed / np.where(missed > 0, missed + least, 1.0))) * ROUND_UP
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


def _curvature(problem: KinkedProblem, point: Array, normal: float) -> float:
    """Curvature of both sides of the proof: of the objective, and of what is below it."""
    whole = problem.strong_convexity
    below = 0.0
    if problem.smooth is not None:
        below = problem.smooth.ridge
        if problem.is_quadratic:
            # its Hessian at one point is that of all
            below = max(problem.smooth.spectrum(point)[0], below)
        whole = max(whole, below)
    if isinstance(problem.feasible, L2Ball) and normal > 0:
        below += normal / problem.feasible.radius * ROUND_DOWN_SUMS
    return (whole + below) * (1 - 4 * UNIT)
