"""Neighbors of a model that is a sum over rows.

Here stand gradients and bounds of many points, their steps and certificates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array, dot_error
from dp2erm_cvx.curves.curves import Curve, CurvesByArm
from dp2erm_cvx.curves.log_weights import LogWeight, LogWeightsByArm
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import L2Ball, WholeSpace
from dp2erm_cvx.neighbors.rows import (
    CLIP,
    LARGEST_SCORE,
    Batch,
    Claims,
    Index,
    Mask,
    Part,
    Reading,
    Replacements,
    SharedRows,
    Terms,
    dot,
    norms,
)
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.program.stage import RowNeighbors


@dataclass(frozen=True, eq=False, repr=False)
class Members(Batch):
    """m neighbors, each with one of the shared rows replaced.

    Parameters
    ----------
    old, rows
        The row ``index[k]`` of the shared rows, and the one in its place, (m, d).
    old_arm, arm
        Arms of both records, (m,).
    target
        The linear terms, (m, d).
    spread, reach
        Bounds of the norms of all rows, as they are and in the metric of the base Hessian H, (m,).
    least
        A neighbor's Hessian at the base solution is at least ``least`` times H, (m,).
    """

    old: Array
    rows: Array
    old_arm: Index
    arm: Index
    target: Array
    spread: Array
    least: Array
    reach: Array


class _Metric:
    """The Hessian of the base model at its solution.

    It is the preconditioner, and the yardstick of every neighbor.
    """

    def __init__(self, model: Composite, point: Array) -> None:
        values, self.vectors = np.linalg.eigh(model.hessian(point))
        error = 64 * model.dimension * UNIT * float(values[-1]) + model.hessian_rounding(point)
        #: Lower bounds on the eigenvalues, (d,).
        self.values: Array = values - error
        self.inverse_root: Array = self.vectors / np.sqrt(np.maximum(self.values, 1e-300))
        self.inverse: Array = self.inverse_root @ self.inverse_root.T

    def lengths(self, rows: Array) -> Array:
        """``(r' H^-1 r)^(1/2)``, not below the exact one, for rows (m, d): (m,)."""
        return norms(rows @ self.inverse_root) * (1 + 1e-9)

    def solve(self, right: Array, shift: Array) -> Array:
        """``(H + shift_k I)^-1 right_k`` for right (m, d) and shift (m,)."""
        if not np.any(shift):
            return np.asarray(right @ self.inverse)
        return np.asarray((right @ self.vectors / (self.values + shift[:, None])) @ self.vectors.T)


class RowBatch:
    """Neighbors of one model, each with one row replaced.

    The solution of the base model is ``point`` (d,).

    f_k(v) = sum_i phi(<z_i, v>) + <target_k, v> + ridge/2 ||v||^2.

    Parameters
    ----------
    model
        The base model, one that is known.
    point
        The solution (d,) of the base model.
    rows
        Rows and linear terms of neighbors.
    """

    def __init__(self, model: MarginModel, point: Array, rows: RowNeighbors) -> None:
        assert isinstance(model.loss, Curve | CurvesByArm)
        assert isinstance(model.weight, LogWeight | LogWeightsByArm)
        self.rows = rows
        self.loss = model.loss
        self.point = point
        self.ridge = model.ridge
        self.n = model.n
        self.dimension = model.dimension
        self.terms = Terms(model.loss, model.weight)
        self.shared = SharedRows(model.blocks, self.dimension, self.terms)
        ball = model.penalty.set
        self.radius = ball.radius if isinstance(ball, L2Ball) else np.inf
        self.metric = _Metric(model, point)
        #: Largest ``||z_i||`` in the metric and as it is, and sums of norms and squares.
        self.reach, self.longest, self.first, self.second = self.shared.extent(
            self.metric.inverse_root
        )
        with np.errstate(all="ignore"):  # what overflows is not usable
            moment, _ = self.shared.sums(point[None, :], np.array([-1]))
        self.base_moment = moment[0]

    @staticmethod
    def knows(model: MarginModel) -> bool:
        """True for plain rows over a ball, whose loss and weight are alike one for all, or by arm.

        Rows with an offset or a factor are not plain, and no l1 norm or box is known.
        """
        one = isinstance(model.loss, Curve) and isinstance(model.weight, LogWeight)
        by_arm = isinstance(model.loss, CurvesByArm) and isinstance(model.weight, LogWeightsByArm)
        if not one and not by_arm:
            return False
        if (
            model.arm_total is not None
            or np.any(model.penalty.l1)
            or not isinstance(model.penalty.set, L2Ball | WholeSpace)
        ):
            return False
        return all(model.blocks.map(_plain))

    @property
    def usable(self) -> bool:
        """True if the base solution offers a metric and scores that do not overflow."""
        definite = bool(self.metric.values[0] > 0)
        return definite and self.longest * float(np.linalg.norm(self.point)) <= LARGEST_SCORE

    def members(self, part: Replacements) -> Members:
        """The rows that leave and those that come."""
        index, leaving = part.index, part.leaving
        (old, _), (rows, moved) = self.rows(leaving, leaving), self.rows(leaving, part.records())
        target = np.zeros_like(rows) if moved is None else moved
        spread = np.maximum(norms(rows), self.longest)
        reach = np.maximum(self.metric.lengths(rows), self.reach)
        least = self.least(old, leaving.a)
        return Members(index, old, rows, leaving.a, part.a, target, spread, least, reach)

    def first_gradient(self, members: Members) -> Array:
        """Gradients (m, d) of the neighbors at the base solution, without a sweep."""
        old = self._pulls_at_base(members.old, members.old_arm)
        new = self._pulls_at_base(members.rows, members.arm)
        moment = self.base_moment - old[:, None] * members.old + new[:, None] * members.rows
        return self._gradient(self.point, members, moment)

    def sweep(self, V: Array, members: Members) -> tuple[Array, Array]:
        """Gradients (m, d) and the sums that weights are divided by (m,)."""
        moment, total = self.shared.sums(V, members.index)
        pull, f = self.terms.own(V, members.rows, members.arm)
        return self._gradient(V, members, moment + members.rows * pull[:, None]), total + f

    def _gradient(self, V: Array, members: Members, moment: Array) -> Array:
        """Gradients at V from the sums over all rows, the replaced ones among them."""
        return np.asarray(members.target - moment + self.ridge * V)

    def _pulls_at_base(self, rows: Array, arm: Index) -> Array:
        return self.terms.own(np.broadcast_to(self.point, rows.shape), rows, arm)[0]

    def weighed(self, V: Array, members: Members, total: Array) -> tuple[Array, Array]:
        """Unnormalized weights of replaced rows at V (m, d), (m,).

        The second result is the factor n / total of all, (m,).
        """
        return self.terms.own(V, members.rows, members.arm)[1], self.n / total

    def rounding(self, V: Array, members: Members) -> Array:
        """Bound on the 2-norm of the floating-point error of every gradient, (m,)."""
        norm = norms(V)
        length = members.spread
        reach = float(np.max(length * norm))
        steep = self.loss.largest_curvature(reach)
        slope = self.loss.largest_slope(reach)
        first = self.first + length
        second = self.second + length**2
        # a loss without a form in exp(-s) takes its margin from there
        score_error = (dot_error(self.dimension) + UNIT) * norm * second + 4 * UNIT * first
        margin = 1.1 * steep * score_error
        terms = margin + (8 * UNIT + self.shared.sum_error()) * slope * first
        linear = self.ridge * norm
        if np.any(members.target):
            linear = linear + norms(members.target)
        return np.asarray(terms * (1 + 1e-9) + 8 * UNIT * linear)

    def least(self, old: Array, arm: Index) -> Array:
        """Shares (m,) s with ``H_k >= s H`` at the base solution.

        They are at most 1, and useless where not positive.
        """
        curvature = self._curvature(old, arm) * (1 + 1e-9) + 1e-14
        return np.asarray(1 - curvature * self.metric.lengths(old) ** 2 - 1e-9)

    def updates(self, members: Members) -> list[tuple[Array, Array]]:
        """Vectors (m, d) and coefficients (m,) of the updates of the Hessian.

        They turn the base Hessian into a neighbor's, nearly.
        """
        old = self._curvature(members.old, members.old_arm)
        new = self._curvature(members.rows, members.arm)
        return [(members.rows, new), (members.old, -old)]

    def _curvature(self, rows: Array, arm: Index) -> Array:
        """Curvature of the loss at the base solution."""
        return self.terms.curvature(np.clip(rows @ self.point, -CLIP, CLIP), arm)

    def smoothness(self, members: Members) -> Array:
        """Bound on the largest eigenvalue of every neighbor's Hessian, (m,), over the ball."""
        steep = self.loss.largest_curvature(
            float(np.max(members.spread)) * self.radius * (1 + 1e-9)
        )
        return np.asarray(steep * (self.second + members.spread**2) + self.ridge)

    def output_radius(self, V: Array, members: Members, radius: Array, kappa: Array) -> Array:
        """Bound on the l1 error of weights by the tilt lemma.

        Points err by ``radius``, scores by ``kappa``.

        What f is divided by was added up in another pass, where each f was computed anew, to the
        same error.
        """
        size = members.spread * norms(V)
        kappa = np.minimum(kappa, members.spread * radius)
        # margins at the point, and at the exact one; where the latter are not known, the bound is
        # that of any two weights, whatever the slope
        farthest = (size + kappa) * (1 + 1e-9)
        known = farthest[np.isfinite(farthest)]
        steep = self.terms.steepest(float(np.max(known, initial=0.0)))
        kappa = steep * kappa
        error = steep * (dot_error(self.dimension) + UNIT) * size + 16 * UNIT * (1 + steep * size)
        moved = 2 * self.n * np.tanh((kappa + error) / 2)
        rounded = np.expm1(np.minimum(2 * error, 150.0)) + 2 * self.shared.total_error()
        return np.asarray(moved + self.n * rounded)


def _plain(rows: MarginRows) -> bool:
    """True for rows without offsets, factors and bases, of which weights are read at themselves."""
    beside = (rows.offset, rows.factor, rows.weight_rows, rows.base)
    return all(column is None for column in beside)


_MAX_SWEEPS = 24


def minimize_together(batch: RowBatch, replaced: Replacements, goal: float) -> Claims:
    """Solve m neighbors until the weights are certified to ``goal`` in l1.

    A member ends before that where rounding stops it. The points come from Newton's method with the
    Hessians at the base solution; on the ball the multiplier is solved for along with the point.
    Weights are made, and read, in one more pass over the records.
    """
    members = batch.members(replaced)
    search = _Search(batch, members)
    for _ in range(_MAX_SWEEPS):
        search.sweep(goal)
        if not len(search.live):
            break
    best = search.best
    total = search.total

    # nothing was proved about some points, where anything may overflow
    @np.errstate(all="ignore")
    def weights(of: slice) -> Array:
        """Weights of the members ``of`` at all records."""
        part = members.take(of)
        own, scale = batch.weighed(best[of], part, total[of])
        return batch.shared.weights(best[of], part.index, own, scale)

    @np.errstate(all="ignore")
    def read(reading: Reading) -> tuple[Array, Array, Array]:
        """Sums and maxima of the weights of all members, and the weights of the changed records."""
        own, scale = batch.weighed(best, members, total)
        sums, maxima = batch.shared.read(best, members.index, own, scale, reading)
        return sums, maxima, own * scale

    return Claims(best, search.radius, search.sweeps, weights, read)


class _Search:
    """Points of m neighbors on their way to the solutions, and the best of each.

    Parameters
    ----------
    batch
        What the neighbors have in common.
    members
        The neighbors.
    """

    def __init__(self, batch: RowBatch, members: Members) -> None:
        m = len(members.index)
        self.batch = batch
        self.members = members
        #: The points (m, d), their gradients (m, d), and the multipliers (m,) of the ball.
        self.points: Array = np.tile(batch.point, (m, 1))
        self.gradients = batch.first_gradient(members)
        self.on_ball = np.full(m, np.linalg.norm(batch.point) >= batch.radius * (1 - 1e-9))
        self.multipliers = _multiplier(self.points, self.gradients, self.on_ball)
        #: The best points (m, d), the bounds (m,) on the l1 errors of their weights, and the sums
        #: (m,) that these weights are divided by.
        self.best = self.points.copy()
        self.radius = np.full(m, np.inf)
        self.total = np.ones(m)
        #: Sweeps (m,) that every member took, and how many of the last ones hardly helped.
        self.sweeps = np.zeros(m, dtype=np.int64)
        self.stalled = np.zeros(m, dtype=np.int64)
        #: Numbers of the members that go on.
        self.live = np.arange(m)

    def sweep(self, goal: float) -> None:
        """One step of Newton's method for every member that goes on, and a judgment of it.

        A member stops at the ``goal``, at the floor of rounding, after three sweeps that hardly
        helped, and where its scores would overflow: there it is left to be solved elsewhere.
        """
        live = self.live
        everybody = len(live) == len(self.best)
        of: Part = slice(None) if everybody else live
        members = self.members if everybody else self.members.take(live)
        with np.errstate(all="ignore"):
            points, self.on_ball[of] = _step(
                self.batch,
                members,
                self.points[of],
                self.gradients[of],
                self.multipliers[of],
                self.on_ball[of],
            )
            far = ~(members.spread * np.linalg.norm(points, axis=1) <= LARGEST_SCORE)
        points[far] = self.points[live][far]
        gradients, total = self.batch.sweep(points, members)
        multipliers = _multiplier(points, gradients, self.on_ball[live])
        radius, at_floor = judge(self.batch, members, points, gradients, multipliers)
        self.points[of] = points
        self.gradients[of] = gradients
        self.multipliers[of] = multipliers
        self.sweeps[live] += 1
        helped = radius < 0.5 * self.radius[live]
        self.stalled[live] = np.where(helped, 0, self.stalled[live] + 1)
        self._remember(points, radius, total)
        goes_on = (radius > goal) & ~at_floor & (self.stalled[live] < 3) & ~far
        self.live = live[goes_on]

    def _remember(self, points: Array, radius: Array, total: Array) -> None:
        """Keep the points of live members that are better than the best so far."""
        better = radius < self.radius[self.live]
        improved = self.live[better]
        self.best[improved] = points[better]
        self.radius[improved] = radius[better]
        self.total[improved] = total[better]


def judge(
    batch: RowBatch, members: Members, V: Array, gradient: Array, multiplier: Array
) -> tuple[Array, Mask]:
    """Bounds (m,) on the errors of the weights of points V (m, d), and whether rounding rules.

    ``gradient + multiplier v`` is an element of the subdifferential. The error of v follows from
    the declared ridge, or from the base Hessian H: a neighbor's is at least ``least * H`` at the
    base solution and falls by ``exp(-c t)`` over a length t. Scores err by ``max ||z_i||`` times
    that, in the metric of H if less.
    """
    metric = batch.metric
    residual: Array = gradient + multiplier[:, None] * V
    rounding = batch.rounding(V, members)
    step = np.zeros(len(V))
    if np.isfinite(batch.radius):
        # a point of the sphere is one only up to rounding: the bounds are about the exact one next
        # to it
        step = np.where(norms(V) >= batch.radius * (1 - 1e-9), 16 * UNIT * batch.radius, 0.0)
        curvature = batch.smoothness(members) + multiplier
        rounding = rounding + curvature * step + 8 * UNIT * multiplier * batch.radius
    size = norms(residual) + rounding
    with np.errstate(all="ignore"):
        # self-concordance of the longest row
        c = batch.loss.concordance * members.spread
        share = members.least * np.exp(-c * norms(V - batch.point))
        ratio = c * size / (share * metric.values[0]) * ROUND_UP
        radius = np.where((share > 0) & (ratio < 1), -np.log1p(-ratio) / c, np.inf)
        if batch.ridge > 0:
            radius = np.minimum(radius, size / batch.ridge)
        along = share * np.exp(-c * radius)
        energy = (metric.lengths(residual) + rounding / np.sqrt(metric.values[0])) / along
        kappa = np.where(
            along > 0, members.reach * energy * (1 + 1e-9) + members.spread * step, np.inf
        )
        output = batch.output_radius(V, members, (radius + step) * (1 + 1e-9), kappa)
    sound = np.isfinite(output) & (members.spread * norms(V) <= LARGEST_SCORE)
    return np.where(sound, output, np.inf), norms(residual) <= rounding


#: Update vectors u (m, d), the inverse Hessian times them, and Sherman and Morrison's factors (m,).
_Updates = list[tuple[Array, Array, Array]]


def _updated(batch: RowBatch, members: Members, shift: Array) -> _Updates:
    """Updates from the inverse of a shifted base Hessian to those of the members, nearly.

    The shift (m,) is added times I.

    By Sherman and Morrison's formula for the record that left and the one that came, one after the
    other.
    """
    updates: _Updates = []
    for u, c in batch.updates(members):
        solved = _applied(batch, updates, u, shift)
        scale = 1 + c * dot(u, solved)
        # an update that would leave no curvature is left out
        sound = scale > 0.05
        factor = np.where(sound, c / np.where(sound, scale, 1.0), 0.0)
        updates.append((u, solved, factor))
    return updates


def _applied(batch: RowBatch, updates: _Updates, right: Array, shift: Array) -> Array:
    """The inverse Hessians of the members times right (m, d)."""
    product = batch.metric.solve(right, shift)
    for u, solved, factor in updates:
        product -= solved * (factor * dot(u, product))[:, None]
    return product


def _step(
    batch: RowBatch, members: Members, V: Array, G: Array, nu: Array, on_ball: Mask
) -> tuple[Array, Mask]:
    """The next points, and whether each of them lies on the ball."""
    zero = np.zeros(len(V))
    free = V - _applied(batch, unshifted := _updated(batch, members, zero), G, zero)
    if np.isinf(batch.radius):
        return free, on_ball
    # inside by the free step: the ball does not bind. Otherwise the multiplier is an unknown too
    inside = np.linalg.norm(free, axis=1) <= batch.radius
    updates = _updated(batch, members, nu) if np.any(nu) else unshifted
    away = _applied(batch, updates, G + nu[:, None] * V, nu)
    normal = _applied(batch, updates, V, nu)
    gap = 0.5 * (batch.radius**2 - dot(V, V))
    change = -(dot(V, away) + gap) / np.maximum(dot(V, normal), 1e-300)
    bound = V - away - change[:, None] * normal
    bound *= (batch.radius / np.maximum(np.linalg.norm(bound, axis=1), 1e-300))[:, None]
    return np.where(inside[:, None], free, bound), ~inside


def _multiplier(V: Array, G: Array, on_ball: Mask) -> Array:
    square = np.maximum(dot(V, V), 1e-300)
    pressure: Array = np.maximum(-dot(G, V) / square, 0.0)
    return np.where(on_ball, pressure, 0.0)
