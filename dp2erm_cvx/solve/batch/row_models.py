"""Neighbors of the two models that are sums over rows: margin losses, and the dual of entropy balancing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT, dot_error
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.entropy import ExponentialModel
from dp2erm_cvx.program.log_weights import LogWeight
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.program.stage import ReplacedRows
from dp2erm_cvx.solve.batch.replacements import Index
from dp2erm_cvx.solve.batch.rows import Members, Room, RowBatch, Terms, clipped, dot, norms


class MarginBatch(RowBatch):
    """f_k(v) = sum_i phi(<z_i, v>) + <linear_k, v> + ridge/2 ||v||^2, one row replaced.

    Without multipliers and offsets; the linear terms are the members' targets.
    """

    model: MarginModel

    def __init__(self, model: MarginModel, weight: LogWeight, point: Array) -> None:
        super().__init__(model, model.blocks, _Descents(model.loss, weight), point)
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


@dataclass(frozen=True, eq=False)
class _Descents(Terms):
    """Slopes of a margin loss, and what weights are proportional to."""

    loss: Curve
    weight: LogWeight

    def rows(self, block: MarginRows) -> Array:
        """As they are."""
        return block.Z

    def tilted(self, V: Array, Z: Array, base: tuple[Array, ...], room: Room) -> tuple[Array, Array]:
        """One exponential serves the loss and the weight: no margin is beyond LARGEST_SCORE."""
        tilt, total = room.of("tilt", len(Z)), room.of("total", len(Z))
        np.exp(np.matmul(-V, Z.T, out=tilt), out=tilt)
        np.add(tilt, 1.0, out=total)
        descent = self.loss.descent(tilt, total, room.of("descent", len(Z)))
        return descent, self.weight.of(tilt, total)


class ExponentialBatch(RowBatch):
    """f_k(v) = n (log mean exp(<b_i, v>) - <target_k, v>) + ridge/2 ||v||^2, one row replaced.

    Rows and targets are shifted by the center of the base rows, which changes no neighbor's problem.
    """

    model: ExponentialModel
    terms: _Tilts

    def __init__(self, model: ExponentialModel, point: Array) -> None:
        log_cap = math.log(model.trim) if math.isfinite(model.trim) else math.inf
        self.log_base: Array = np.zeros(model.n) if model.log_base is None else model.log_base
        base = (self.log_base,) if np.any(self.log_base) else ()
        super().__init__(model, model.blocks, _Tilts(model.center, log_cap), point, base)
        self.base_moment, self.base_total = self.at_base()
        self.largest_base = float(np.max(np.abs(self.log_base)))

    def members(self, index: Index, old: Array, replaced: ReplacedRows) -> Members:
        """Neighbors with these rows in place of old ones."""
        assert replaced.target is not None
        center = self.model.center
        return self.gather(index, old - center, replaced.rows - center, replaced.target - center)

    def first_gradient(self, members: Members) -> Array:
        """Gradients of the neighbors at the base solution."""
        old = self._tilt_at_base(members.index, members.old)
        new = self._tilt_at_base(members.index, members.rows)
        total = np.maximum(self.base_total - old + new, 1e-300)
        moment = self.base_moment - old[:, None] * members.old + new[:, None] * members.rows
        gradient: Array = self.n * (moment / total[:, None] - members.target) + self.ridge * self.point
        return gradient

    def gradient(self, V: Array, members: Members, moment: Array, total: Array) -> Array:
        """With the replaced rows."""
        new = self._tilts(V, members)
        moment = moment + members.rows * new[:, None]
        mean = moment / (total + new)[:, None]
        gradient: Array = self.n * (mean - members.target) + self.ridge * V
        return gradient

    def replaced(self, V: Array, members: Members) -> Array:
        """By the members' rows."""
        tilt, cap = self._tilts(V, members), self.terms.caps(V)
        return tilt if cap is None else np.minimum(tilt, cap)

    def _tilts(self, V: Array, members: Members) -> Array:
        tilt: Array = np.exp(clipped(dot(V, members.rows)) + self.log_base[members.index])
        return tilt

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

    def kept(self, index: Index, old: Array, rows: Array) -> Array:
        """What the record that left takes from the base Hessian at most."""
        # a mixture's covariance is at least the share of either part times the covariance of that part
        gone, new = self._tilt_at_base(index, old), self._tilt_at_base(index, rows)
        share_old = np.minimum(gone / self.base_total, 0.5)
        share_new = new / (self.base_total * (1 - share_old) + new)
        away = old - self.base_mean
        leverage = self.n * share_old / (1 - share_old) * self.metric.lengths(away) ** 2
        ratio = np.minimum((1 - share_new) / (1 - share_old), 1.0)
        # of a record with half of the weight too little is left to count on, and rounding would rule
        return np.where(gone < 0.5 * self.base_total, ratio * (1 - leverage) - 1e-9, -np.inf)

    def updates(self, members: Members) -> list[tuple[Array, Array]]:
        """The record that came, and the one that left."""
        old = self._tilt_at_base(members.index, members.old) / self.base_total
        new = self._tilt_at_base(members.index, members.rows) / self.base_total
        away, toward = members.old - self.base_mean, members.rows - self.base_mean
        return [(toward, self.n * new / (1 + new)), (away, -self.n * old)]

    @property
    def base_mean(self) -> Array:
        """Of the tilted rows at the base solution."""
        mean: Array = self.base_moment / self.base_total
        return mean

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
        kappa, error = np.minimum(kappa, members.spread * radius), self._score_error(members, norms(V))
        if math.isfinite(self.model.trim):
            # a cap breaks the common shift: every score counts with its own size
            size = members.spread + 2 * float(np.linalg.norm(self.model.center))
            kappa = size * radius
            error = error + size * dot_error(self.dimension) * norms(V)
            error = error + 2 * UNIT * abs(math.log(self.model.trim))
        return self.weights_error(kappa, error)

    def _score_error(self, members: Members, norm: Array) -> Array:
        # a row that was centered by rounding, then the product, then the base measure
        size = members.spread + 2 * float(np.linalg.norm(self.model.center))
        error: Array = dot_error(self.dimension) * members.spread * norm + 2 * UNIT * size * norm
        return error + 4 * UNIT * self.largest_base


@dataclass(frozen=True, eq=False)
class _Tilts(Terms):
    """Tilts ``exp(<b_i, v>)`` of rows that are shifted by ``center`` (d,), times a base measure.

    Weights are no larger than the cap: ``log_cap`` less the common shift, in the score.
    """

    center: Array
    log_cap: float

    def rows(self, block: MarginRows) -> Array:
        """As they are."""
        return block.Z

    def tilted(self, V: Array, Z: Array, base: tuple[Array, ...], room: Room) -> tuple[Array, Array]:
        """Tilts pull, whether they are capped or not."""
        u, cap = np.matmul(V, Z.T, out=room.of("tilt", len(Z))), self.caps(V)
        for log_base in base:
            u += log_base
        np.exp(u, out=u)
        return u, u if cap is None else np.minimum(u, cap[:, None], out=room.of("capped", len(Z)))

    def caps(self, V: Array) -> Array | None:
        """The largest tilts (m,), None for none."""
        if math.isinf(self.log_cap):
            return None
        cap: Array = np.exp(np.minimum(self.log_cap - V @ self.center, 700.0))
        return cap
