"""The certificate of many neighbors at once: what ``certify`` bounds for one instance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.solve.batch.rows import LARGEST_SCORE, Members, RowBatch, norms


@dataclass(frozen=True, eq=False)
class Judged:
    """For m points: bounds (m,) on their errors and on those of the weights; whether rounding rules."""

    radius: Array
    output_radius: Array
    at_floor: NDArray[np.bool_]

    def __repr__(self) -> str:
        return f"Judged({len(self.radius)})"


def judge(batch: RowBatch, members: Members, V: Array, gradient: Array, multiplier: Array) -> Judged:
    """Judge points V (m, d) with gradients (m, d); on the ball ``multiplier`` (m,) >= 0 is added.

    ``gradient + multiplier v`` is an element of the subdifferential, where the multiplier is 0 inside the
    ball. Strong monotonicity bounds the error of v by the declared ridge, or by the Hessian H of the base
    model at its solution: a neighbor's Hessian there is at least ``kept * H``, and self-concordance lets it
    fall by ``exp(-c t)`` over a length t. The weights then follow from the scores, which err by at most
    ``max ||z_i||`` times the error, both in the metric of H where that is less.
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
    return Judged(radius, np.where(sound, output, np.inf), norms(residual) <= rounding)
