"""Newton's steps for many neighbors at once from the base solution, and the certificate of each."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.solve.batch.replacements import Claims, Mask, Part, Reading, Replacements
from dp2erm_cvx.solve.batch.row_batch import Members, RowBatch
from dp2erm_cvx.solve.batch.rows import LARGEST_SCORE, dot, norms

_MAX_SWEEPS = 24


def minimize_together(batch: RowBatch, replaced: Replacements, goal: float) -> Claims:
    """Solve m neighbors until the weights are certified to ``goal`` in l1, or rounding stops a member.

    The first gradient costs no sweep. Steps are those of Newton's method with the Hessians at the base
    solution. On the ball the multiplier is solved for along with the point. Nothing here decides whether a
    point is good: that is for :func:`judge`; what it does not certify is solved again elsewhere. Weights are
    made, and read, in one more pass over the records.
    """
    members, m = batch.members(replaced), len(replaced)
    V: Array = np.tile(batch.point, (m, 1))
    G = batch.first_gradient(members)
    on_ball = np.full(m, np.linalg.norm(batch.point) >= batch.radius * (1 - 1e-9))
    multiplier = _multiplier(V, G, on_ball)
    best, best_radius, sweeps = V.copy(), np.full(m, np.inf), np.zeros(m, dtype=np.int64)
    inverses, live, stalled = _Inverses(batch, members), np.arange(m), np.zeros(m, dtype=np.int64)
    total = np.ones(m)
    for sweep in range(_MAX_SWEEPS):
        of: Part = slice(None) if len(live) == m else live
        with np.errstate(all="ignore"):
            # what overflows is left where it was, to be solved elsewhere
            V_new, on_ball[of] = _step(batch, inverses, V[of], G[of], multiplier[of], on_ball[of], of)
            far = ~(members.spread[live] * np.linalg.norm(V_new, axis=1) <= LARGEST_SCORE)
        V_new[far] = V[live][far]
        part = members if len(live) == m else members.take(live)
        G_new, f_total = batch.sweep(V_new, part)
        nu = _multiplier(V_new, G_new, on_ball[live])
        _, found, at_floor = judge(batch, part, V_new, G_new, nu)
        V[of], G[of], multiplier[of] = V_new, G_new, nu
        sweeps[live] = sweep + 1
        better, progress = found < best_radius[live], found < 0.5 * best_radius[live]
        stalled[live] = np.where(progress, 0, stalled[live] + 1)
        improved = live[better]
        best[improved], best_radius[improved] = V_new[better], found[better]
        total[improved] = f_total[better]
        live = live[(found > goal) & ~at_floor & (stalled[live] < 3) & ~far]
        if not len(live):
            break

    @np.errstate(all="ignore")  # of a point that nothing was proved about
    def weights(of: slice) -> Array:
        return batch.weights(best[of], members.take(of), total[of])

    @np.errstate(all="ignore")
    def read(reading: Reading) -> tuple[Array, Array, Array]:
        return batch.read(best, members, total, reading)

    return Claims(best, best_radius, sweeps, weights, read)


def judge(
    batch: RowBatch, members: Members, V: Array, gradient: Array, multiplier: Array
) -> tuple[Array, Array, Mask]:
    """Bounds (m,) on the errors of points V (m, d) and of their weights, and whether rounding rules.

    V have gradients (m, d); on the ball ``multiplier`` (m,) >= 0 is added.

    ``gradient + multiplier v`` is an element of the subdifferential, where the multiplier is 0 inside the
    ball. Strong monotonicity bounds the error of v by the declared ridge, or by the Hessian H of the base
    model at its solution. A neighbor's Hessian there is at least ``kept * H``, and self-concordance lets it
    fall by ``exp(-c t)`` over a length t. The weights then follow from the scores, which err by at most ``max
    ||z_i||`` times the error, both in the metric of H where that is less.
    """
    metric = batch.metric
    residual: Array = gradient + multiplier[:, None] * V
    rounding = batch.rounding(V, members)
    step = np.zeros(len(V))
    if np.isfinite(batch.radius):
        # a point of the sphere is one only up to rounding: the bounds are about the exact one next to it
        step = np.where(norms(V) >= batch.radius * (1 - 1e-9), 16 * UNIT * batch.radius, 0.0)
        curvature = batch.smoothness(members) + multiplier
        rounding = rounding + curvature * step + 8 * UNIT * multiplier * batch.radius
    size = norms(residual) + rounding
    with np.errstate(all="ignore"):
        radius = size / batch.ridge if batch.ridge > 0 else np.full(len(V), np.inf)
        kappa = np.full(len(V), np.inf)
        if metric.definite:
            c = batch.concordance(members)
            away = norms(V - batch.point)
            share = members.kept * np.exp(-c * away)
            lowest = share * metric.values[0]
            ratio = c * size / lowest * (1 + 1e-12)
            local = np.where((share > 0) & (ratio < 1), -np.log1p(-ratio) / c, np.inf)
            radius = np.minimum(radius, local)
            along = share * np.exp(-c * radius)
            energy = (metric.lengths(residual) + rounding / np.sqrt(metric.values[0])) / along
            kappa = np.where(along > 0, members.reach * energy * (1 + 1e-9) + members.spread * step, np.inf)
        radius = (radius + step) * (1 + 1e-9)
        output = batch.output_radius(V, members, radius, kappa)
    sound = np.isfinite(output) & (members.spread * norms(V) <= LARGEST_SCORE)
    return radius, np.where(sound, output, np.inf), norms(residual) <= rounding


class _Inverses:
    """Inverse Hessians of the neighbors at the base solution, which every step of Newton's method takes.

    The Hessian of a neighbor is nearly the base Hessian plus ``coefficient u u'`` for the record that left
    and the one that came, inverted by Sherman and Morrison's formula.
    """

    def __init__(self, batch: RowBatch, members: Members) -> None:
        self.metric, self.updates = batch.metric, batch.updates(members)
        self.unshifted = self._updated(np.zeros(len(members)), slice(None))

    def apply(self, right: Array, shift: Array, live: Part) -> Array:
        """Inverse Hessians of the members ``live`` plus ``shift`` (m,) I, times right (m, d)."""
        found = self.metric.solve(right, shift)
        if np.any(shift):
            updates = self._updated(shift, live)
        else:
            updates = [(u[live], solved[live], factor[live]) for u, solved, factor in self.unshifted]
        for u, solved, factor in updates:
            found -= solved * (factor * dot(u, found))[:, None]
        return found

    def _updated(self, shift: Array, live: Part) -> list[tuple[Array, Array, Array]]:
        """Every update u with ``H^-1 u`` after the updates before it, and Sherman and Morrison's factor."""
        seen: list[tuple[Array, Array, Array]] = []
        for vectors, coefficients in self.updates:
            u, c = vectors[live], coefficients[live]
            solved = self.metric.solve(u, shift)
            for v, solved_v, factor in seen:
                solved -= solved_v * (factor * dot(v, solved))[:, None]
            scale = 1 + c * dot(u, solved)
            # an update that would leave no curvature is left out
            seen.append((u, solved, np.where(scale > 0.05, c / np.where(scale > 0.05, scale, 1.0), 0.0)))
        return seen


def _step(
    batch: RowBatch, inverses: _Inverses, V: Array, G: Array, nu: Array, on_ball: Mask, live: Part
) -> tuple[Array, Mask]:
    """The next points, and whether each of them lies on the ball."""
    zero = np.zeros(len(V))
    free = V - inverses.apply(G, zero, live)
    if np.isinf(batch.radius):
        return free, on_ball
    # inside by the free step: the ball does not bind. Otherwise the multiplier is an unknown too
    inside = np.linalg.norm(free, axis=1) <= batch.radius
    away = inverses.apply(G + nu[:, None] * V, nu, live)
    normal = inverses.apply(V, nu, live)
    gap = 0.5 * (batch.radius**2 - dot(V, V))
    change = -(dot(V, away) + gap) / np.maximum(dot(V, normal), 1e-300)
    bound = V - away - change[:, None] * normal
    bound *= (batch.radius / np.maximum(np.linalg.norm(bound, axis=1), 1e-300))[:, None]
    return np.where(inside[:, None], free, bound), ~inside


def _multiplier(V: Array, G: Array, on_ball: Mask) -> Array:
    square = np.maximum(dot(V, V), 1e-300)
    pressure: Array = np.maximum(-dot(G, V) / square, 0.0)
    return np.where(on_ball, pressure, 0.0)
