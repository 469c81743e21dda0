"""Ascents of an audit: the covariates of replaced records move to where V is larger.

Two ways are there: steps along the slopes of V, and an evolution strategy, which asks for no slope.
Both climb from many changes side by side, so that their neighbors are solved together. Nothing that
a slope says is reported: a height is the lower end of a certified movement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.changes import Base, Changes, Moves
from dp2erm_cvx.audit.movement import Quantity
from dp2erm_cvx.audit.search import Deadline, evolve
from dp2erm_cvx.neighbors.rows import Index

#: Distance between neighbors whose difference is a slope, in units of the bound of covariates.
_DIFFERENCE = 1e-4
#: Lengths of steps along the sphere, in units of the reach.
_LENGTHS = np.array([1.0, 0.2])
#: Parts of the distance of a step that the next step reaches, after a rise and without one.
_LONGER, _SHORTER = 2.0, 0.1
#: Part of V by which a step has to rise, and steps without a rise after which climbs end.
_RISE, _PATIENCE = 1e-6, 2
#: Climbs of which none is given up.
_LAST_CLIMBS = 2


@dataclass(frozen=True, eq=False)
class Climbed:
    """Where climbs ended.

    Parameters
    ----------
    ends
        The changes where they ended.
    tried
        How many neighbors were tried.
    solved
        How many of them were solved.
    """

    ends: Changes
    tried: int
    solved: int


def evolved(
    base: Base,
    starts: Changes,
    step: float,
    solves: int,
    rng: np.random.Generator,
    until: Deadline,
) -> Climbed:
    """Where evolution strategies on the covariates of the records end.

    They climb in lockstep, so that their candidates are solved together.

    Parameters
    ----------
    base
        The dataset.
    starts
        Changes at which they start, one each.
    step
        Their first step, in units of the bound of covariates.
    solves
        Candidates that each may try.
    rng
        Draws the candidates.
    until
        After this deadline nothing is tried any more.
    """
    bound = base.universe.space.features_bound
    solved = 0

    def heights(tried: list[tuple[int, Array]]) -> list[Array]:
        """V of every candidate, in the order of the climbs."""
        nonlocal solved
        climb = np.concatenate([np.full(len(points), number) for number, points in tried])
        points = bound * np.concatenate([points for _, points in tried])
        values = base.heights(starts.take(climb), points, until)
        solved += int(np.sum(np.isfinite(values)))
        return [values[climb == number] for number, _ in tried]

    climbs = [(point / bound, step, solves) for point in starts.covariates]
    points = []
    tried = 0
    for point, _, spent in evolve(heights, climbs, rng):
        points.append(point)
        tried += spent
    ends = base.universe.space.inside(bound * np.array(points))
    return Climbed(Changes(starts.index, ends, starts.arms), tried, solved)


def slopes_followed(base: Base, starts: Moves, room: int, until: Deadline) -> Climbed:
    """Where steps along the slopes of V end that begin at every change.

    After every step the lower half of the climbs ends. They end all where two steps in turn bring
    no rise.

    Parameters
    ----------
    base
        The dataset.
    starts
        Changes at which the steps begin, with their movements.
    room
        Neighbors that may be tried.
    until
        After this deadline nothing is tried any more.
    """
    climbs = _SlopeClimbs(base, starts, until)
    cost = solves_of_step(base)
    live = np.arange(len(starts))
    idle = 0
    while idle < _PATIENCE and not until.passed:
        live = live[: (room - climbs.tried) // cost]
        if not len(live):
            break
        idle += 1
        if climbs.step(live):
            idle = 0
        live = live[np.argsort(-climbs.best[live], kind="stable")]
        live = live[: max(len(live) // 2, _LAST_CLIMBS)]
    changes = starts.changes
    ends = Changes(changes.index, climbs.points, changes.arms)
    return Climbed(ends, climbs.tried, climbs.solved)


def solves_of_step(base: Base) -> int:
    """Neighbors that one step along a slope solves."""
    of_slope = 1
    if not base.knows_gradients:
        of_slope = base.universe.n_features + 1
    return of_slope + 1 + len(_LENGTHS)


class _SlopeClimbs:
    """Points on their way along the slopes of V.

    Parameters
    ----------
    base
        The dataset.
    starts
        Changes at which m climbs begin, with their movements.
    until
        After this deadline nothing is tried any more.
    """

    def __init__(self, base: Base, starts: Moves, until: Deadline) -> None:
        self.base = base
        self.changes = starts.changes
        self.until = until
        #: The highest points (m, d), their heights (m,), and how far the next steps reach, (m,).
        self.points = starts.changes.covariates.copy()
        self.best = starts.movements[Quantity.V].low.copy()
        self.reach = np.full(len(starts), base.universe.space.features_bound)
        #: Neighbors that were tried, and those of them that were solved.
        self.tried = 0
        self.solved = 0

    def step(self, live: Index) -> bool:
        """One step of the climbs ``live``, to the best of several points; True if one rose."""
        changes = self.changes.take(live)
        points = self.points[live]
        best = self.best[live]
        slopes = self._slopes(changes, points)
        ends = self._along(points, slopes, self.reach[live])
        heights = self._heights_of_sets(changes, ends)
        self.tried += len(live) * solves_of_step(self.base)
        chosen = np.argmax(np.nan_to_num(heights, nan=-np.inf), axis=1)
        each = np.arange(len(live))
        highest = heights[each, chosen]
        highest_ends = ends[each, chosen]
        higher = highest > best
        distance = np.linalg.norm(highest_ends - points, axis=1)
        self.points[live[higher]] = highest_ends[higher]
        self.best[live[higher]] = highest[higher]
        self.reach[live] = np.where(higher, _LONGER * distance, _SHORTER * self.reach[live])
        return bool(np.any(highest > (1.0 + _RISE) * best))

    def _slopes(self, changes: Changes, points: Array) -> Array:
        """Slopes (m, d) of V where the changes get other points (m, d); 0 where none are known.

        They are gradients where neighbors have them, and else differences between neighbors.
        """
        if self.base.knows_gradients:
            slopes = self.base.gradients(changes, points, self.until)
            self.solved += int(np.sum(np.isfinite(slopes[:, 0])))
            return np.nan_to_num(slopes, posinf=0.0, neginf=0.0)
        near = self._heights_of_sets(changes, self._around(points))
        return np.nan_to_num(near[:, 1:] - near[:, :1])

    def _around(self, points: Array) -> Array:
        """Points (m, d + 1, d) near ``points`` (m, d), the others a step along one axis each.

        All are within the ball.
        """
        d = points.shape[1]
        shifts = _DIFFERENCE * self.base.universe.space.features_bound * np.eye(d + 1, d, -1)
        return np.asarray(points[:, None, :] * (1.0 - 2.0 * _DIFFERENCE) + shifts)

    def _along(self, points: Array, slopes: Array, reach: Array) -> Array:
        """Points (m, s, d) of the ball along the slopes (m, d) at points (m, d).

        The first is the end of the ball in the direction of the slope, where a linear function with
        this slope is largest; a convex V rises on the way there. The others are up to ``reach``
        (m,) away.
        """
        space = self.base.universe.space
        bound = space.features_bound
        end = bound * _unit(slopes)
        directions = _unit(_along_sphere(slopes, points, bound))
        lengths = reach[:, None] * _LENGTHS
        near = space.inside(points[:, None, :] + lengths[:, :, None] * directions[:, None, :])
        return np.concatenate([end[:, None, :], near], axis=1)

    def _heights_of_sets(self, changes: Changes, points: Array) -> Array:
        """V (m, s) where the record of every change gets each of its s ``points`` (m, s, d)."""
        m, s, d = points.shape
        change = np.repeat(np.arange(m), s)
        heights = self.base.heights(changes.take(change), points.reshape(-1, d), self.until)
        self.solved += int(np.sum(np.isfinite(heights)))
        return heights.reshape(m, s)


def _along_sphere(slopes: Array, points: Array, bound: float) -> Array:
    """Slopes (m, d) without the part that leads out of the ball at points of its sphere."""
    directions = points / bound
    outward = np.sum(slopes * directions, axis=1)
    leaves = (np.sum(directions**2, axis=1) > 1.0 - 1e-6) & (outward > 0.0)
    return np.asarray(slopes - np.where(leaves, outward, 0.0)[:, None] * directions)


def _unit(vectors: Array) -> Array:
    """Directions (m, d) of vectors (m, d); 0 where there is none."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300))
