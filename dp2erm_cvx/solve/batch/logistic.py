"""Neighbors of a logistic propensity model."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.program.logistic import LogisticModel
from dp2erm_cvx.program.neighbors import ReplacedRows
from dp2erm_cvx.program.sums import UNIT, dot_error
from dp2erm_cvx.solve.batch.rows import Index, Members, RowBatch, clipped, dot, norms


class LogisticBatch(RowBatch):
    """f_k(v) = sum_i log(1 + exp(-<z_i, v>)) + ridge/2 ||v||^2 + <noise, v>, one row replaced."""

    model: LogisticModel

    def __init__(self, model: LogisticModel, point: Array) -> None:
        super().__init__(model, model.Z, point)
        self.negated: Array = -self.transposed
        self.base_gradient = model.gradient(point)
        self.base_failure: Array = _failure(model.Z @ point)
        self.first, self.second = float(np.sum(self.norms)), float(np.sum(self.norms**2))

    def members(self, index: Index, replaced: ReplacedRows) -> Members:
        """Neighbors with these rows."""
        return self.gather(index, replaced.rows, None)

    def first_gradient(self, members: Members) -> Array:
        """Gradients of the neighbors at the base solution."""
        old = self.Z[members.index] * self.base_failure[members.index, None]
        new = members.rows * _failure(members.rows @ self.point)[:, None]
        gradient: Array = self.base_gradient + old - new
        return gradient

    def sweep(self, V: Array, members: Members, weights: Array | None) -> Array:
        """One pass over the shared rows."""
        m = len(V)
        # with u = exp(-margin): weight f = 1 + u, probability of the other arm u / f
        new = np.exp(-clipped(dot(V, members.rows)))
        pull = members.rows * (new / (1 + new))[:, None]
        total, trim = 1 + new, self.model.trim
        np.minimum(total, trim, out=total)
        new_weight = total.copy()
        for block, held in self.blocks(members.index):
            u = self.scratch("u", m, block.stop - block.start)
            np.matmul(V, self.negated[:, block], out=u)
            np.exp(u, out=u)
            f = self.scratch("f", m, u.shape[1]) if weights is None else weights[:, block]
            np.add(u, 1.0, out=f)
            np.divide(u, f, out=u)
            position = members.index[held] - block.start
            u[held, position] = 0.0
            pull += u @ self.Z[block]
            if weights is not None:
                if np.isfinite(trim):
                    np.minimum(f, trim, out=f)
                f[held, position] = 0.0
                total += f.sum(axis=1)
        if weights is not None:
            weights[np.arange(m), members.index] = new_weight
            weights *= (self.n / total)[:, None]
        gradient: Array = self.model.noise - pull + self.ridge * V
        return gradient

    def rounding(self, V: Array, members: Members) -> Array:
        """As for one instance, with each sum over records bounded by its largest terms."""
        # as for one instance, with the probabilities bounded by 1
        norm, length = norms(V), norms(members.rows)
        slope = 0.25 * dot_error(self.dimension) * norm * (self.second + length**2)
        terms = slope + (8 * UNIT + self.sum_error()) * (self.first + length)
        linear = self.ridge * norm + float(np.linalg.norm(self.model.noise))
        bound: Array = terms * (1 + 1e-9) + 4 * UNIT * linear
        return bound

    def kept(self, index: Index, rows: Array) -> Array:
        """What the record that left takes from the base Hessian at most."""
        failure = self.base_failure[index]
        variance = failure * (1 - failure) * (1 + 1e-9) + 1e-14
        share: Array = 1 - variance * self.metric.lengths(self.Z[index]) ** 2 - 1e-9
        return share

    def updates(self, members: Members) -> list[tuple[Array, Array]]:
        """The record that came, and the one that left."""
        old = self.base_failure[members.index]
        new = _failure(members.rows @ self.point)
        return [(members.rows, new * (1 - new)), (self.Z[members.index], -old * (1 - old))]

    def concordance(self, members: Members) -> Array:
        """That of the longest row."""
        return members.spread

    def smoothness(self, members: Members) -> Array:
        """By the norms of the rows."""
        bound: Array = 0.25 * (self.second + members.spread**2) + self.ridge
        return bound

    def output_radius(self, V: Array, members: Members, radius: Array, kappa: Array) -> Array:
        """As for one instance (tilt lemma)."""
        kappa = np.minimum(kappa, members.spread * radius)
        kappa = kappa + members.spread * dot_error(self.dimension) * norms(V)
        bound: Array = 2 * self.n * np.tanh(kappa / 2) + (64 + self.n / 64) * UNIT * self.n
        return bound


def _failure(margin: Array) -> Array:
    half: Array = 0.5 * np.tanh(-0.5 * margin)
    return 0.5 + half
