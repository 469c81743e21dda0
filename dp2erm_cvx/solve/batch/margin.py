"""Neighbors of a sum of margin losses, whatever the loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT, dot_error
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.log_weights import LogWeight
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.program.losses.margin_rows import MarginRows
from dp2erm_cvx.program.stage import ReplacedRows
from dp2erm_cvx.solve.batch.rows import Index, Members, Room, RowBatch, Terms, clipped, dot, norms

_STEP = 1e-4


@dataclass(frozen=True, eq=False)
class Descents(Terms):
    """Slopes of a margin loss, and what weights are proportional to."""

    loss: Curve
    weight: LogWeight

    def rows(self, block: MarginRows) -> Array:
        """As they are."""
        return block.Z

    def tilted(self, V: Array, Z: Array, base: tuple[Array, ...], room: Room) -> tuple[Array, Array]:
        """One exponential serves the loss and the weight: no margin is beyond LARGEST_SCORE."""
        tilt, total = self._tilts(V, Z, room)
        descent = self.loss.descent(tilt, total, room.of("descent", len(Z)))
        return descent, self.weight.of(tilt, total)

    def unnormalized(self, V: Array, Z: Array, base: tuple[Array, ...], room: Room) -> Array:
        """By one exponential each."""
        return self.weight.of(*self._tilts(V, Z, room))

    def _tilts(self, V: Array, Z: Array, room: Room) -> tuple[Array, Array]:
        tilt, total = room.of("tilt", len(Z)), room.of("total", len(Z))
        np.exp(np.matmul(-V, Z.T, out=tilt), out=tilt)
        return tilt, np.add(tilt, 1.0, out=total)


class MarginBatch(RowBatch):
    """f_k(v) = sum_i phi(<z_i, v>) + <linear_k, v> + ridge/2 ||v||^2, one row replaced.

    Without multipliers and offsets; the linear terms are the members' targets.
    """

    model: MarginModel

    def __init__(self, model: MarginModel, weight: LogWeight, point: Array) -> None:
        super().__init__(model, model.blocks, Descents(model.loss, weight), point)
        self.loss, self.weight = model.loss, weight
        self.base_gradient: Array = model.gradient(point) - model.linear

    def members(self, index: Index, old: Array, replaced: ReplacedRows) -> Members:
        """Neighbors with these rows in place of old ones."""
        return self.gather(index, old, replaced.rows, replaced.target)

    def first_gradient(self, members: Members) -> Array:
        """Gradients of the neighbors at the base solution."""
        old, new = (
            rows * self.loss.slope(clipped(rows @ self.point))[:, None]
            for rows in (members.old, members.rows)
        )
        gradient: Array = self.base_gradient - old + new + members.target
        return gradient

    def gradient(self, V: Array, members: Members, moment: Array, total: Array) -> Array:
        """With the replaced rows."""
        new = np.exp(-dot(V, members.rows))
        push = members.rows * self.loss.descent(new, 1 + new, np.empty_like(new))[:, None]
        gradient: Array = members.target - (moment + push) + self.ridge * V
        return gradient

    def replaced(self, V: Array, members: Members) -> Array:
        """By the members' rows."""
        tilt = np.exp(-dot(V, members.rows))
        return self.weight.of(tilt, 1 + tilt)

    def rounding(self, V: Array, members: Members) -> Array:
        """As for one instance, with the derivatives of the loss bounded over all margins of the chunk."""
        norm, length = norms(V), members.spread
        reach = float(np.max(length * norm))
        steep, slope = self.loss.largest_curvature(reach), self.loss.largest_slope(reach)
        first, second = self.first + length, self.second + length**2
        # a loss without a form in exp(-s) takes its margin from there
        margin = 1.1 * steep * ((dot_error(self.dimension) + UNIT) * norm * second + 4 * UNIT * first)
        terms = margin + (8 * UNIT + self.sum_error()) * slope * first
        linear = self.ridge * norm + (norms(members.target) if np.any(members.target) else 0.0)
        bound: Array = terms * (1 + 1e-9) + 8 * UNIT * linear
        return bound

    def kept(self, index: Index, old: Array, rows: Array) -> Array:
        """What the record that left takes from the base Hessian at most."""
        curvature = self._curvature(old) * (1 + 1e-9) + 1e-14
        share: Array = 1 - curvature * self.metric.lengths(old) ** 2 - 1e-9
        return share

    def updates(self, members: Members) -> list[tuple[Array, Array]]:
        """The record that came, and the one that left."""
        return [
            (members.rows, self._curvature(members.rows)),
            (members.old, -self._curvature(members.old)),
        ]

    def _curvature(self, rows: Array) -> Array:
        """Of the loss at the base solution."""
        return self.loss.curvature(clipped(rows @ self.point))

    def curved(self, members: Members, D: Array) -> Array:
        """By both of these."""
        curved = D @ self.metric.H
        for rows, coefficient in self.updates(members):
            curved += (coefficient * dot(rows, D))[:, None] * rows
        return curved

    def third(self) -> tuple[Array, Array]:
        """By the third derivatives of the loss, differences of second ones."""
        (rows,) = self.sample()
        s = clipped(rows @ self.point)
        third = (self.loss.curvature(s + _STEP) - self.loss.curvature(s - _STEP)) / (2 * _STEP)
        return rows, third * (0.5 * self.n / len(rows))

    def concordance(self, members: Members) -> Array:
        """That of the longest row."""
        bound: Array = self.loss.concordance * members.spread
        return bound

    def smoothness(self, members: Members) -> Array:
        """By the norms of the rows, over the ball."""
        steep = self.loss.largest_curvature(float(np.max(members.spread)) * self.radius * (1 + 1e-9))
        bound: Array = steep * (self.second + members.spread**2) + self.ridge
        return bound

    def output_radius(self, V: Array, members: Members, radius: Array, kappa: Array) -> Array:
        """As for one instance (tilt lemma)."""
        size = members.spread * norms(V)
        kappa = self.weight.lipschitz * np.minimum(kappa, members.spread * radius)
        error = self.weight.lipschitz * (dot_error(self.dimension) + UNIT) * size
        return self.weights_error(kappa, error + 16 * UNIT * (1 + self.weight.lipschitz * size))
