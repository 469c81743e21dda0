"""Neighbors of a sum of margin losses, whatever the loss."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT, dot_error
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.program.losses.margin_weight import MarginWeight
from dp2erm_cvx.program.stage import ReplacedRows
from dp2erm_cvx.solve.batch.rows import Index, Members, RowBatch, Tree, clipped, dot, norms


class MarginBatch(RowBatch):
    """f_k(v) = sum_i phi(<z_i, v>) + <linear_k, v> + ridge/2 ||v||^2, one row replaced.

    Without multipliers and offsets; the linear terms are the members' targets.
    """

    model: MarginModel

    def __init__(self, model: MarginModel, weight: MarginWeight, point: Array) -> None:
        super().__init__(model, model.Z, point)
        self.loss, self.weight = model.loss, weight
        margins = model.Z @ point
        self.base_gradient: Array = model.gradient(point) - model.linear
        self.base_slope, self.base_curvature = self.loss.slope(margins), self.loss.curvature(margins)
        self.first, self.second = float(np.sum(self.norms)), float(np.sum(self.norms**2))

    def members(self, index: Index, replaced: ReplacedRows) -> Members:
        """Neighbors with these rows."""
        return self.gather(index, replaced.rows, replaced.target)

    def first_gradient(self, members: Members) -> Array:
        """Gradients of the neighbors at the base solution."""
        old = self.Z[members.index] * self.base_slope[members.index, None]
        new = members.rows * self.loss.slope(clipped(members.rows @ self.point))[:, None]
        gradient: Array = self.base_gradient - old + new + members.target
        return gradient

    def sweep(self, V: Array, members: Members, weights: Array | None) -> Array:
        """One pass over the shared rows."""
        # no margin is beyond LARGEST_SCORE: the caller leaves such points alone
        new = np.exp(-dot(V, members.rows))
        push = members.rows * self.loss.descent(new, 1 + new, np.empty_like(new))[:, None]
        new_weight = self.weight.of(new, 1 + new)
        pushes, sums, opposite = Tree(push), Tree(new_weight.copy()), -V
        for block, held in self.blocks(members.index):
            m, width, position = len(V), block.stop - block.start, members.index[held] - block.start
            tilt, room = self.scratch("tilt", m, width), self.scratch("room", m, width)
            total = room if weights is None else weights[:, block]
            # one exponential serves the loss and the weight
            np.exp(np.matmul(opposite, self.Z[block].T, out=tilt), out=tilt)
            np.add(tilt, 1.0, out=total)
            descent = self.loss.descent(tilt, total, room)
            if weights is not None:
                f = self.weight.of(tilt, total)
                f[held, position] = 0.0
                sums.add(f.sum(axis=1))
            descent[held, position] = 0.0
            pushes.add(descent @ self.Z[block])
        if weights is not None:
            weights[np.arange(len(V)), members.index] = new_weight
            weights *= (self.n / sums.sum())[:, None]
        gradient: Array = members.target - pushes.sum() + self.ridge * V
        return gradient

    def unnormalized(self, V: Array, rows: Array, part: slice) -> Array:
        """By one exponential each."""
        tilt = self.scratch("tilt", len(V), len(rows))
        np.exp(np.matmul(-V, rows.T, out=tilt), out=tilt)
        return self.weight.of(tilt, np.add(tilt, 1.0, out=self.scratch("room", len(V), len(rows))))

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

    def kept(self, index: Index, rows: Array) -> Array:
        """What the record that left takes from the base Hessian at most."""
        curvature = self.base_curvature[index] * (1 + 1e-9) + 1e-14
        share: Array = 1 - curvature * self.metric.lengths(self.Z[index]) ** 2 - 1e-9
        return share

    def updates(self, members: Members) -> list[tuple[Array, Array]]:
        """The record that came, and the one that left."""
        new = self.loss.curvature(clipped(members.rows @ self.point))
        return [(members.rows, new), (self.Z[members.index], -self.base_curvature[members.index])]

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
        kappa = np.minimum(kappa, members.spread * radius) + (dot_error(self.dimension) + UNIT) * size
        kappa = self.weight.lipschitz * kappa + 16 * UNIT * (1 + self.weight.lipschitz * size)
        bound: Array = 2 * self.n * np.tanh(kappa / 2) + self.total_error() * self.n
        return bound
