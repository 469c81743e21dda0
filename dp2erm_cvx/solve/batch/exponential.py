"""Neighbors of an entropy-balancing dual."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT, dot_error
from dp2erm_cvx.program.schemes.exponential import ExponentialModel
from dp2erm_cvx.program.stage import ReplacedRows
from dp2erm_cvx.solve.batch.rows import Index, Members, RowBatch, Tree, clipped, dot, norms


class ExponentialBatch(RowBatch):
    """f_k(v) = n (log mean exp(<b_i, v>) - <target_k, v>) + ridge/2 ||v||^2, one row replaced.

    Rows and targets are shifted by the center of the base rows, which changes no neighbor's problem.
    """

    model: ExponentialModel

    def __init__(self, model: ExponentialModel, point: Array) -> None:
        super().__init__(model, model.B, point)
        self.log_base: Array = np.broadcast_to(np.asarray(model.log_base, dtype=np.float64), (self.n,))
        self.weighted = bool(np.any(self.log_base))
        self.base_tilt: Array = np.exp(clipped(self.Z @ point) + self.log_base)
        self.base_total = math.fsum(self.base_tilt)
        self.base_sum: Array = self.base_tilt @ self.Z
        self.largest_base = float(np.max(np.abs(self.log_base)))

    def members(self, index: Index, replaced: ReplacedRows) -> Members:
        """Neighbors with these rows."""
        assert replaced.target is not None
        center = self.model.center
        return self.gather(index, replaced.rows - center, replaced.target - center)

    def first_gradient(self, members: Members) -> Array:
        """Gradients of the neighbors at the base solution."""
        old = self.base_tilt[members.index]
        new = self._tilt_at_base(members.index, members.rows)
        total = np.maximum(self.base_total - old + new, 1e-300)
        moment = self.base_sum - old[:, None] * self.Z[members.index] + new[:, None] * members.rows
        gradient: Array = self.n * (moment / total[:, None] - members.target) + self.ridge * self.point
        return gradient

    def sweep(self, V: Array, members: Members, weights: Array | None) -> Array:
        """One pass over the shared rows."""
        m, index = len(V), members.index
        new_tilt: Array = np.exp(clipped(dot(V, members.rows)) + self.log_base[index])
        totals, moments = Tree(new_tilt), Tree(members.rows * new_tilt[:, None])
        cap = self._caps(V)
        for block, held in self.blocks(index):
            f = self.scratch("u", m, block.stop - block.start) if weights is None else weights[:, block]
            u = self.scratch("u", m, block.stop - block.start)
            np.matmul(V, self.Z[block].T, out=u)
            if self.weighted:
                u += self.log_base[block]
            np.exp(u, out=u)
            u[held, index[held] - block.start] = 0.0
            totals.add(u.sum(axis=1))
            moments.add(u @ self.Z[block])
            if weights is not None:
                np.copyto(f, u) if cap is None else np.minimum(u, cap[:, None], out=f)
        total, moment = totals.sum(), moments.sum()
        if weights is not None:
            weights[np.arange(m), index] = new_tilt if cap is None else np.minimum(new_tilt, cap)
            sums = total if cap is None else weights.sum(axis=1)
            weights *= (self.n / sums)[:, None]
        gradient: Array = self.n * (moment / total[:, None] - members.target) + self.ridge * V
        return gradient

    def unnormalized(self, V: Array, rows: Array, part: slice) -> Array:
        """The tilts, no larger than the cap."""
        u = self.scratch("u", len(V), len(rows))
        np.matmul(V, rows.T, out=u)
        if self.weighted:
            u += self.log_base[part]
        cap = self._caps(V)
        np.exp(u, out=u)
        return u if cap is None else np.minimum(u, cap[:, None], out=u)

    def replaced(self, V: Array, members: Members) -> Array:
        """By the members' rows."""
        tilt: Array = np.exp(clipped(dot(V, members.rows)) + self.log_base[members.index])
        cap = self._caps(V)
        return tilt if cap is None else np.minimum(tilt, cap)

    def rounding(self, V: Array, members: Members) -> Array:
        """As for one instance, with each sum over records bounded by its largest terms."""
        norm = norms(V)
        score = self._score_error(members, norm)
        relative = np.expm1(np.minimum(2 * score, 150.0) + 16 * UNIT) + self.sum_error()
        relative += self.total_error()
        size = members.spread + 2 * float(np.linalg.norm(self.model.center))
        shift = 16 * UNIT * (norms(members.target) + size)
        bound: Array = self.n * (members.spread * relative + shift) + 4 * UNIT * self.ridge * norm
        return bound * (1 + 1e-9)

    def kept(self, index: Index, rows: Array) -> Array:
        """What the record that left takes from the base Hessian at most."""
        # a mixture's covariance is at least the share of either part times the covariance of that part
        old, new = self.base_tilt[index], self._tilt_at_base(index, rows)
        share_old = np.minimum(old / self.base_total, 0.5)
        share_new = new / (self.base_total * (1 - share_old) + new)
        away = self.Z[index] - self.base_sum / self.base_total
        leverage = self.n * share_old / (1 - share_old) * self.metric.lengths(away) ** 2
        ratio = np.minimum((1 - share_new) / (1 - share_old), 1.0)
        # of a record with half of the weight too little is left to count on, and rounding would rule
        return np.where(old < 0.5 * self.base_total, ratio * (1 - leverage) - 1e-9, -np.inf)

    def updates(self, members: Members) -> list[tuple[Array, Array]]:
        """The record that came, and the one that left."""
        old = self.base_tilt[members.index] / self.base_total
        new = self._tilt_at_base(members.index, members.rows) / self.base_total
        center = self.base_sum / self.base_total
        away, toward = self.Z[members.index] - center, members.rows - center
        return [(toward, self.n * new / (1 + new)), (away, -self.n * old)]

    def _tilt_at_base(self, index: Index, rows: Array) -> Array:
        tilt: Array = np.exp(clipped(rows @ self.point) + self.log_base[index])
        return tilt

    def concordance(self, members: Members) -> Array:
        """That of the longest row."""
        return 2 * members.spread

    def smoothness(self, members: Members) -> Array:
        """By the norms of the rows."""
        bound: Array = self.n * members.spread**2 + self.ridge
        return bound

    def output_radius(self, V: Array, members: Members, radius: Array, kappa: Array) -> Array:
        """As for one instance (tilt lemma)."""
        kappa = np.minimum(kappa, members.spread * radius)
        if math.isfinite(self.model.trim):
            # a cap breaks the common shift: every score counts with its own size
            size = members.spread + 2 * float(np.linalg.norm(self.model.center))
            kappa = size * (radius + dot_error(self.dimension) * norms(V))
            kappa = kappa + 2 * UNIT * abs(math.log(self.model.trim))
        kappa = kappa + self._score_error(members, norms(V))
        bound: Array = 2 * self.n * np.tanh(kappa / 2) + self.total_error() * self.n
        return bound

    def _score_error(self, members: Members, norm: Array) -> Array:
        # a row that was centered by rounding, then the product, then the base measure
        size = members.spread + 2 * float(np.linalg.norm(self.model.center))
        error: Array = dot_error(self.dimension) * members.spread * norm + 2 * UNIT * size * norm
        return error + 4 * UNIT * self.largest_base

    def _caps(self, V: Array) -> Array | None:
        # the cap is on the score without the common shift
        if math.isinf(self.model.trim):
            return None
        cap: Array = np.exp(np.minimum(math.log(self.model.trim) - V @ self.model.center, 700.0))
        return cap
