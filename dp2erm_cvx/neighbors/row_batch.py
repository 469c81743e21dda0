"""Neighbors of a model that is a sum over rows, solved and certified together.

Each neighbor has a point of its own, and all share the rows. One pass over the rows gives the
gradients at all points. Certificates are those of the page on solving, one for each point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, ROUND_UP_SUMS, UNIT, Array, dot_error
from dp2erm_cvx.curves.curves import Curve, CurvesByArm
from dp2erm_cvx.curves.log_weights import LogWeight, LogWeightsByArm
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import L2Ball, WholeSpace
from dp2erm_cvx.neighbors.gradients import by_covariates, mean_signs
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
    index
        Numbers (m,) of the replaced rows.
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
    """The Hessian H of the base model at its solution: preconditioner and yardstick of neighbors.

    Parameters
    ----------
    model
        The base model.
    point
        Its solution (d,).
    """

    def __init__(self, model: Composite, point: Array) -> None:
        values, vectors = np.linalg.eigh(model.hessian(point))
        error = 64 * model.dimension * UNIT * float(values[-1]) + model.hessian_rounding(point)
        #: Eigenvectors (d, d) in columns, and lower bounds (d,) on the eigenvalues.
        self.vectors: Array = vectors
        self.values: Array = values - error
        #: A root of the inverse, ``R R' = H^-1``, and the inverse, (d, d).
        self.inverse_root: Array = self.vectors / np.sqrt(np.maximum(self.values, 1e-300))
        self.inverse: Array = self.inverse_root @ self.inverse_root.T

    def lengths(self, rows: Array) -> Array:
        """``(r' H^-1 r)^(1/2)``, not below the exact one, for rows (m, d): (m,)."""
        return norms(rows @ self.inverse_root) * ROUND_UP_SUMS

    def solve(self, right: Array, shift: Array) -> Array:
        """``(H + shift_k I)^-1 right_k`` for right (m, d) and shift (m,)."""
        if not np.any(shift):
            return np.asarray(right @ self.inverse)
        coordinates = right @ self.vectors / (self.values + shift[:, None])
        return np.asarray(coordinates @ self.vectors.T)


class RowBatch:
    """Neighbors of one model, each with one row replaced.

    Neighbor k minimizes ``f_k(v) = sum_i phi(<z_i, v>) + <target_k, v> + ridge/2 ||v||^2``, on a
    ball where the model has one.

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
        extent = self.shared.extent(self.metric.inverse_root)
        #: Largest ``||z_i||`` in the metric and as it is, and sums of norms and squares.
        self.reach = extent.reach
        self.longest = extent.longest
        self.first = extent.norms
        self.second = extent.squares
        # what overflows is not usable
        with np.errstate(all="ignore"):
            moments, _ = self.shared.sums(point[None, :], _NO_RECORD)
        self.base_moment = moments[0]

    @staticmethod
    def knows(model: MarginModel) -> bool:
        """True for plain rows over a ball, whose loss and weight are alike one for all, or by arm.

        Rows with an offset or a factor are not plain, and no l1 norm or box is known.
        """
        one_for_all = isinstance(model.loss, Curve) and isinstance(model.weight, LogWeight)
        by_arm = isinstance(model.loss, CurvesByArm) and isinstance(model.weight, LogWeightsByArm)
        if not one_for_all and not by_arm:
            return False
        if model.arm_total is not None or np.any(model.penalty.l1):
            return False
        if not isinstance(model.penalty.set, L2Ball | WholeSpace):
            return False
        return all(model.blocks.map(_plain))

    @property
    def usable(self) -> bool:
        """True if the base solution offers a metric and scores that do not overflow."""
        definite = bool(self.metric.values[0] > 0)
        return definite and self.longest * float(np.linalg.norm(self.point)) <= LARGEST_SCORE

    def members(self, part: Replacements) -> Members:
        """The rows that leave and those that come."""
        leaving = part.leaving
        old, _ = self.rows(leaving, leaving)
        rows, target = self.rows(leaving, part.records())
        if target is None:
            target = np.zeros_like(rows)
        return Members(
            index=part.index,
            old=old,
            rows=rows,
            old_arm=leaving.a,
            arm=part.a,
            target=target,
            spread=np.maximum(norms(rows), self.longest),
            least=self.least(old, leaving.a),
            reach=np.maximum(self.metric.lengths(rows), self.reach),
        )

    def first_gradient(self, members: Members) -> Array:
        """Gradients (m, d) of the neighbors at the base solution, without a sweep."""
        old = self._pulls_at_base(members.old, members.old_arm)
        new = self._pulls_at_base(members.rows, members.arm)
        moment = self.base_moment - old[:, None] * members.old + new[:, None] * members.rows
        return self._gradient(self.point, members, moment)

    def sweep(self, V: Array, members: Members) -> tuple[Array, Array]:
        """Gradients (m, d) and the sums that weights are divided by (m,)."""
        moment, total = self.shared.sums(V, members.index)
        pull, weight = self.terms.own(V, members.rows, members.arm)
        moment = moment + members.rows * pull[:, None]
        return self._gradient(V, members, moment), total + weight

    def _gradient(self, V: Array, members: Members, moment: Array) -> Array:
        """Gradients at V from the sums over all rows, the replaced ones among them."""
        return np.asarray(members.target - moment + self.ridge * V)

    def _pulls_at_base(self, rows: Array, arm: Index) -> Array:
        pulls, _ = self.terms.own(np.broadcast_to(self.point, rows.shape), rows, arm)
        return pulls

    def weighed(self, V: Array, members: Members, total: Array) -> tuple[Array, Array]:
        """Unnormalized weights (m,) of replaced rows at V (m, d), and factors n / total (m,)."""
        _, weights = self.terms.own(V, members.rows, members.arm)
        return weights, self.n / total

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
        return np.asarray(terms * ROUND_UP_SUMS + 8 * UNIT * linear)

    def least(self, old: Array, arm: Index) -> Array:
        """Shares (m,) s with ``H_k >= s H`` at the base solution.

        They are at most 1, and useless where not positive.
        """
        # H_k >= H - phi''(s) z z' for the row z that leaves, and z z' <= (z' H^-1 z) H
        curvature = self._curvature(old, arm) * ROUND_UP_SUMS + _CURVATURE_ERROR
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
        largest_margin = float(np.max(members.spread)) * self.radius * ROUND_UP_SUMS
        steep = self.loss.largest_curvature(largest_margin)
        return np.asarray(steep * (self.second + members.spread**2) + self.ridge)

    def of_new_records(self, part: Replacements) -> Array:
        """Rows of new records, and the linear terms of the models that have them: (m, 2 d)."""
        rows, target = self.rows(part.leaving, part.records())
        return np.hstack([rows, np.zeros_like(rows) if target is None else target])

    def partials(
        self, V: Array, members: Members, total: Array, base: Array, mean_sign: Array
    ) -> Array:
        """Partial derivatives (m, 2 d) of V by what :meth:`of_new_records` makes.

        With z the new row of a neighbor, s = <z, v>, t its linear term and H its Hessian, the
        implicit function theorem gives ``dv = -H^-1 (phi'(s) dz + phi''(s) <dz, v> z + dt)``. The
        weights ``w_i = n f_i / sum f`` move by ``dV = sum_i g_i ds_i`` with
        ``g_i = (c_i - c) w_i h'(s_i)``, the sign c_i of their movement, 1 for the new record, and
        the mean c of these by the weights. So one solve ``H q = sum_i g_i z_i`` serves all
        coordinates (docs/audits.md, *Gradients*).

        Parameters
        ----------
        V
            Solutions v (m, d) of the neighbors.
        members
            The neighbors.
        total
            Sums (m,) that weights are divided by.
        base
            Weights (n,) from which the weights move.
        mean_sign
            The means c (m,).
        """
        z = members.rows
        arm = members.arm
        margin = np.clip(dot(V, z), -CLIP, CLIP)
        pull, own = self.terms.own(V, z, arm)
        curvature = self.terms.curvature(margin, arm)
        scale = self.n / total
        weighed = (own, scale)
        by_point, hessian = self.shared.derivatives(V, members.index, weighed, base, mean_sign)
        by_margin = (1.0 - mean_sign) * own * scale * self.terms.log_slope(margin, arm)
        by_point += by_margin[:, None] * z
        hessian += curvature[:, None, None] * z[:, :, None] * z[:, None, :]
        adjoint = self._adjoint(V, members, hessian, by_point)
        bent = by_margin - curvature * dot(z, adjoint)
        by_row = bent[:, None] * V + pull[:, None] * adjoint
        return np.hstack([by_row, -adjoint])

    def _adjoint(self, V: Array, members: Members, hessian: Array, by_point: Array) -> Array:
        """Solutions q (m, d) of ``H q = by_point`` with the ridge; on the ball along it alone."""
        on_ball = norms(V) >= self.radius * (1 - 1e-9)
        gradient, _ = self.sweep(V, members)
        shift = self.ridge + _multiplier(V, gradient, on_ball)
        hessian = hessian + shift[:, None, None] * np.eye(self.dimension)
        right = np.stack([by_point, V], axis=2)
        adjoint, normal = np.moveaxis(np.linalg.solve(hessian, right), 2, 0)
        outward = np.where(on_ball, dot(V, adjoint) / dot(V, normal), 0.0)
        return np.asarray(adjoint - outward[:, None] * normal)

    def output_radius(self, V: Array, members: Members, radius: Array, kappa: Array) -> Array:
        """Bound (m,) on the l1 error of weights by the tilt lemma.

        ``||w_hat - w||_1 <= 2n tanh(kappa / 2)`` where no log weight moves by more than kappa. The
        sum that weights are divided by was added up in another pass, where each weight was
        computed anew, to the same error.

        Parameters
        ----------
        V
            Points (m, d).
        members
            The neighbors.
        radius
            Bounds (m,) on the errors of the points.
        kappa
            Bounds (m,) on the errors of all scores.
        """
        size = members.spread * norms(V)
        kappa = np.minimum(kappa, members.spread * radius)
        # margins at the point, and at the exact one; where the latter are not known, the bound is
        # that of any two weights, whatever the slope
        farthest = (size + kappa) * ROUND_UP_SUMS
        finite = farthest[np.isfinite(farthest)]
        steep = self.terms.steepest(float(np.max(finite, initial=0.0)))
        kappa = steep * kappa
        error = steep * (dot_error(self.dimension) + UNIT) * size + 16 * UNIT * (1 + steep * size)
        moved = 2 * self.n * np.tanh((kappa + error) / 2)
        rounded = np.expm1(np.minimum(2 * error, 150.0)) + 2 * self.shared.total_error()
        return np.asarray(moved + self.n * rounded)


def _plain(rows: MarginRows) -> bool:
    """True for rows without offsets, factors and bases, of which weights are read at themselves."""
    beside = (rows.offset, rows.factor, rows.weight_rows, rows.base)
    return all(column is None for column in beside)


#: No record is left out of a sum.
_NO_RECORD = np.array([-1])
#: Error of a curvature that is computed at a margin.
_CURVATURE_ERROR = 1e-14
#: Sweeps after which a member is left to be solved elsewhere.
_MAX_SWEEPS = 24
#: Sweeps in a row that hardly help, after which a member stops.
_MOST_STALLED = 3
#: Part of the curvature that an update must leave at least.
_LEAST_UPDATE = 0.05
#: Points so near to the ball, in parts of its radius, count as on it.
_NEAR_BALL = 1 - 1e-9


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

    @np.errstate(all="ignore")
    def gradients(base: Array) -> Array:
        """Gradients (m, p) of V in the covariates of the new records."""
        proved = np.isfinite(search.radius)
        mean_sign = mean_signs(read, base, members.index)
        partials = batch.partials(
            best[proved], members.take(proved), total[proved], base, mean_sign[proved]
        )
        found = np.full((len(best), replaced.base.n_features), np.nan)
        found[proved] = by_covariates(partials, replaced[proved], batch.of_new_records)
        return found

    return Claims(best, search.radius, search.sweeps, weights, read, gradients)


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
        self.on_ball = np.full(m, np.linalg.norm(batch.point) >= batch.radius * _NEAR_BALL)
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
        of: Part = live
        members = self.members
        if len(live) == len(self.best):
            of = slice(None)
        else:
            members = members.take(live)
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
        goes_on = (radius > goal) & ~at_floor & (self.stalled[live] < _MOST_STALLED) & ~far
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
    """Bounds on the errors of the weights of points, each certified by itself.

    ``r = gradient + multiplier v`` is an element of the subdifferential at v.

    Parameters
    ----------
    batch
        What the neighbors have in common.
    members
        The neighbors.
    V, gradient, multiplier
        Points (m, d), their gradients (m, d), and the multipliers (m,) of the ball.

    Returns
    -------
    radius
        Bounds (m,) on the l1 errors of the weights, infinite where nothing is proved.
    at_floor
        Whether (m,) the residual is no more than rounding.
    """
    residual: Array = gradient + multiplier[:, None] * V
    rounding = batch.rounding(V, members)
    step = np.zeros(len(V))
    if np.isfinite(batch.radius):
        # a point of the sphere is one only up to rounding: the bounds are about the exact one next
        # to it
        step = np.where(norms(V) >= batch.radius * _NEAR_BALL, 16 * UNIT * batch.radius, 0.0)
        curvature = batch.smoothness(members) + multiplier
        rounding = rounding + curvature * step + 8 * UNIT * multiplier * batch.radius
    with np.errstate(all="ignore"):
        radius, kappa = _errors(batch, members, V, residual, rounding)
        kappa = kappa + members.spread * step
        output = batch.output_radius(V, members, (radius + step) * ROUND_UP_SUMS, kappa)
    sound = np.isfinite(output) & (members.spread * norms(V) <= LARGEST_SCORE)
    return np.where(sound, output, np.inf), norms(residual) <= rounding


def _errors(
    batch: RowBatch, members: Members, V: Array, residual: Array, rounding: Array
) -> tuple[Array, Array]:
    """Bounds on the errors of points and of their scores, by the declared ridge or by H.

    A neighbor's Hessian is at least ``least H`` at the base solution and falls by ``exp(-c t)``
    over a length t, c the self-concordance of its longest row.

    Parameters
    ----------
    batch, members, V
        As of :func:`judge`.
    residual
        Elements r (m, d) of the subdifferentials.
    rounding
        Bounds (m,) on the errors of their norms.

    Returns
    -------
    radius
        Bounds t (m,) on the distances to the exact points: ``||r|| / ridge`` and
        ``-log(1 - c ||r|| / h) / c`` with h the least eigenvalue at the point.
    kappa
        Bounds (m,) on the errors of scores, ``max ||H^-1/2 z_i|| exp(c t) ||H^-1/2 r||``.
    """
    metric = batch.metric
    size = norms(residual) + rounding
    c = batch.loss.concordance * members.spread
    share = members.least * np.exp(-c * norms(V - batch.point))
    ratio = c * size / (share * metric.values[0]) * ROUND_UP
    radius = np.where((share > 0) & (ratio < 1), -np.log1p(-ratio) / c, np.inf)
    if batch.ridge > 0:
        radius = np.minimum(radius, size / batch.ridge)
    share_on_the_way = share * np.exp(-c * radius)
    length = metric.lengths(residual) + rounding / np.sqrt(metric.values[0])
    energy = length / share_on_the_way
    kappa = np.where(share_on_the_way > 0, members.reach * energy * ROUND_UP_SUMS, np.inf)
    return radius, kappa


def _step(
    batch: RowBatch, members: Members, V: Array, G: Array, nu: Array, on_ball: Mask
) -> tuple[Array, Mask]:
    """The next points, and whether each of them lies on the ball.

    Parameters
    ----------
    batch, members
        As of :func:`judge`.
    V, G, nu
        Points (m, d), their gradients (m, d), and the multipliers (m,) of the ball.
    on_ball
        Whether the points (m,) lie on the ball.
    """
    no_shift = np.zeros(len(V))
    free_updates = _updated(batch, members, no_shift)
    free = V - _applied(batch, free_updates, G, no_shift)
    if np.isinf(batch.radius):
        return free, on_ball
    # where the free step leads inside, the ball does not bind; otherwise the multiplier is an
    # unknown, too
    inside = np.linalg.norm(free, axis=1) <= batch.radius
    updates = free_updates
    if np.any(nu):
        updates = _updated(batch, members, nu)
    newton = _applied(batch, updates, G + nu[:, None] * V, nu)
    normal = _applied(batch, updates, V, nu)
    # the change of nu with <v, step> = (radius^2 - ||v||^2) / 2, the sphere to first order
    gap = 0.5 * (batch.radius**2 - dot(V, V))
    change = -(dot(V, newton) + gap) / np.maximum(dot(V, normal), 1e-300)
    bound = V - newton - change[:, None] * normal
    bound *= (batch.radius / np.maximum(np.linalg.norm(bound, axis=1), 1e-300))[:, None]
    return np.where(inside[:, None], free, bound), ~inside


#: Update vectors u (m, d), the inverse Hessian times them, and Sherman and Morrison's factors (m,).
_Updates = list[tuple[Array, Array, Array]]


def _updated(batch: RowBatch, members: Members, shift: Array) -> _Updates:
    """Updates from the inverse of a shifted base Hessian to those of the members, nearly.

    The shift (m,) is added times I. The updates are Sherman and Morrison's for the record that left
    and the one that came, one after the other.
    """
    updates: _Updates = []
    for u, coefficient in batch.updates(members):
        solved = _applied(batch, updates, u, shift)
        scale = 1 + coefficient * dot(u, solved)
        # an update that would leave no curvature is left out
        sound = scale > _LEAST_UPDATE
        factor = np.where(sound, coefficient / np.where(sound, scale, 1.0), 0.0)
        updates.append((u, solved, factor))
    return updates


def _applied(batch: RowBatch, updates: _Updates, right: Array, shift: Array) -> Array:
    """The inverse Hessians of the members times right (m, d)."""
    product = batch.metric.solve(right, shift)
    for u, solved, factor in updates:
        product -= solved * (factor * dot(u, product))[:, None]
    return product


def _multiplier(V: Array, G: Array, on_ball: Mask) -> Array:
    """The multipliers (m,) of the ball at points on it, 0 elsewhere."""
    square = np.maximum(dot(V, V), 1e-300)
    pressure: Array = np.maximum(-dot(G, V) / square, 0.0)
    return np.where(on_ball, pressure, 0.0)
