"""Many neighbors of one model that is a sum over rows: what passes over the shared rows need."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from dp2erm_cvx.blocks import ArrayBlocks, Blocks, tree_sum
from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.solve.batch.replacements import Batch, Index, Reading

#: Scores in one tile of a sweep: half a megabyte, which stays in the cache of a core.
_TILE = 2**16
#: The most shared rows in a tile: sums over more of them would round worse. Powers of 2, as those of views.
_TALLEST = 512
_SHORTEST = 128
#: Larger scores are left to the solver of single instances, which shifts them before the exponential.
LARGEST_SCORE = 300.0
#: Numbers in the shared rows up to which they are held: 64 MB.
_HELD = 2**23


@dataclass(frozen=True, eq=False, repr=False)
class Members(Batch):
    """m neighbors: row ``index[k]`` of the shared rows, ``old[k]``, is replaced by ``rows[k]``, (m, d).

    ``target`` is (m, d), 0 where the model has none; ``spread`` (m,) bounds the norms of all rows, ``reach``
    (m,) those in the metric of the base Hessian H. At the base solution a neighbor's Hessian is at least
    ``kept`` (m,) times H, which says nothing where that is not positive.
    """

    old: Array
    rows: Array
    target: Array
    spread: Array
    kept: Array
    reach: Array


class _Metric:
    """The Hessian of the base model at its solution: preconditioner, and yardstick of every neighbor."""

    def __init__(self, model: Composite, point: Array) -> None:
        self.H: Array = model.hessian(point)
        values, self.vectors = np.linalg.eigh(self.H)
        error = 64 * model.dimension * UNIT * float(values[-1]) + model.hessian_rounding(point)
        #: Lower bounds on the eigenvalues, (d,); the first one decides whether there is a metric at all.
        self.values: Array = values - error
        self.definite = bool(self.values[0] > 0)
        self.inverse_root: Array = self.vectors / np.sqrt(np.maximum(self.values, 1e-300))
        self.inverse: Array = self.inverse_root @ self.inverse_root.T

    def lengths(self, rows: Array) -> Array:
        """``(r' H^-1 r)^(1/2)``, not below the exact one, for rows (m, d): (m,)."""
        return norms(rows @ self.inverse_root) * (1 + 1e-9)

    def solve(self, right: Array, shift: Array) -> Array:
        """``(H + shift_k I)^-1 right_k`` for right (m, d) and shift (m,)."""
        if not np.any(shift):
            plain: Array = right @ self.inverse
            return plain
        solved: Array = (right @ self.vectors / (self.values + shift[:, None])) @ self.vectors.T
        return solved


@dataclass(frozen=True, eq=False)
class Terms(abc.ABC):
    """What shared rows contribute at points V (m, d). Few numbers: they go to whoever makes the pass.

    ``base`` holds what stands beside the rows of a block, if anything does.
    """

    @abc.abstractmethod
    def rows(self, block: Any) -> Array:
        """The shared rows (k, d) of a block."""

    @abc.abstractmethod
    def tilted(self, V: Array, Z: Array, base: tuple[Array, ...], room: Room) -> tuple[Array, Array]:
        """How rows Z (k, d) pull at the gradient and what their weights are proportional to, both (m, k).

        The two may be one array.
        """


class Room:
    """Arrays (m, k) that are reused from tile to tile."""

    def __init__(self, m: int) -> None:
        self.m, self._held = m, dict[str, Array]()

    def of(self, name: str, width: int) -> Array:
        """The array of this name."""
        if name not in self._held or self._held[name].size < self.m * width:
            self._held[name] = np.empty(self.m * width)
        return self._held[name][: self.m * width].reshape(self.m, width)


@dataclass(frozen=True, eq=False)
class _AtPoints:
    """Points V (m, d) of neighbors whose records ``index`` (m,) are not among the shared ones."""

    terms: Terms
    V: Array
    index: Index
    n_base: int

    def tiles(self, numbers: range) -> Iterator[tuple[slice, Index, Index]]:
        """Parts of a block, each with the members whose replaced row lies in it, and the place of that."""
        here = np.flatnonzero((self.index >= numbers.start) & (self.index < numbers.stop))
        place = self.index[here] - numbers.start
        size = min(max(_TILE // max(len(self.index), 1), _SHORTEST), _TALLEST)
        height = 2 ** (size.bit_length() - 1)
        for low in range(0, len(numbers), height):
            inside = (place >= low) & (place < low + height)
            yield slice(low, min(low + height, len(numbers))), here[inside], place[inside] - low


@dataclass(frozen=True, eq=False)
class _Weighed(_AtPoints):
    """With ``own`` (m,), what weights of replaced rows are proportional to, and the factor ``scale`` (m,)."""

    own: Array
    scale: Array

    def parts(self, Z: Array, numbers: range, beside: tuple[Array, ...]) -> Iterator[tuple[slice, Array]]:
        """The weights (m, k) of parts of a block."""
        room = Room(len(self.V))
        for part, held, place in self.tiles(numbers):
            base = tuple(one[part] for one in beside[: self.n_base])
            f = self.terms.tilted(self.V, Z[part], base, room)[1]
            f[held, place] = self.own[held]
            f *= self.scale[:, None]
            yield part, f


class RowBatch(abc.ABC):
    """Neighbors of one model: gradients, weights and error bounds of m points at once.

    The shared rows are made of ``blocks`` in passes over these, wherever they are, with ``base`` (n,) beside
    them; ``point`` (d,) is the solution of the base model, ``radius`` that of the ball (or inf), ``ridge``
    the declared quadratic coefficient.
    """

    def __init__(
        self, model: Composite, blocks: Blocks[Any], terms: Terms, point: Array, base: tuple[Array, ...] = ()
    ) -> None:
        self.model, self.terms, self.point, self.base = model, terms, point, base
        self.n, self.dimension = blocks.n_samples, model.dimension
        #: The shared rows (k, d): made in every pass, but of few records only once.
        self.blocks: Blocks[Array] = blocks.then(terms.rows)
        if blocks.here and self.n * self.dimension <= _HELD:
            self.blocks = ArrayBlocks((np.concatenate(self.blocks.each()),)).then(itemgetter(0))
        self.ridge = model.ridge
        ball = model.penalty.set
        self.radius = ball.radius if isinstance(ball, L2Ball) else np.inf
        self.metric = _Metric(model, point)
        found = np.array(self.blocks.map(partial(_extent, metric=self.metric)))
        #: Largest ``||z_i||`` in the metric, and as it is.
        self.reach, self.longest = map(float, np.max(found[:, :2], axis=0))
        self.first, self.second = map(float, np.sum(found[:, 2:], axis=0) * (1 + 1e-9))

    @property
    def usable(self) -> bool:
        """Whether the base solution offers a metric and scores that do not overflow."""
        return self.metric.definite and self.longest * float(np.linalg.norm(self.point)) <= LARGEST_SCORE

    @abc.abstractmethod
    def first_gradient(self, members: Members) -> Array:
        """Gradients (m, d) of the neighbors at the base solution, without a sweep."""

    @abc.abstractmethod
    def gradient(self, V: Array, members: Members, moment: Array, total: Array) -> Array:
        """Gradients (m, d) at V (m, d) from the sums over the shared rows (m, d) and of the pulls (m,)."""

    @abc.abstractmethod
    def replaced(self, V: Array, members: Members) -> Array:
        """What the weight of the replaced row of every neighbor is proportional to, (m,)."""

    def sweep(self, V: Array, members: Members) -> tuple[Array, Array]:
        """Gradients (m, d) and the sums that weights are divided by (m,)."""
        moment, sums = self._sums(_AtPoints(self.terms, V, members.index, len(self.base)))
        total = sums[:, 1] + self.replaced(V, members)
        return self.gradient(V, members, moment, sums[:, 0]), total

    def read(self, V: Array, members: Members, total: Array, reading: Reading) -> tuple[Array, Array, Array]:
        """One pass over the records: the reading of the weights at V (m, d), where f adds up to ``total``.

        Sums (m, s), maxima (m, t), and the weights of the replaced rows (m,).
        """
        weighed = self._weighed(V, members, total)
        parts = self._map(partial(_read, weighed=weighed, reading=reading.alone()), *reading.beside)
        sums, largest = zip(*parts, strict=True)
        return tree_sum(sums), np.maximum.reduce(largest), weighed.own * weighed.scale

    def weights(self, V: Array, members: Members, total: Array) -> Array:
        """The weights (m, n) that :meth:`read` reads."""
        parts = self._map(partial(_weights, weighed=self._weighed(V, members, total)))
        return np.concatenate(parts, axis=1)

    def at_base(self) -> tuple[Array, float]:
        """The sums over all shared rows at the base solution: of pulls times rows (d,), and of pulls."""
        with np.errstate(all="ignore"):  # what overflows is not usable
            moment, sums = self._sums(
                _AtPoints(self.terms, self.point[None, :], np.array([-1]), len(self.base))
            )
        return moment[0], float(sums[0, 0])

    def _sums(self, asked: _AtPoints) -> tuple[Array, Array]:
        moments, sums = zip(*self._map(partial(_swept, asked=asked)), strict=True)
        return tree_sum(moments), tree_sum(sums)

    def _weighed(self, V: Array, members: Members, total: Array) -> _Weighed:
        own = self.replaced(V, members)
        return _Weighed(self.terms, V, members.index, len(self.base), own, self.n / total)

    def _map(self, ask: Any, *more: Array) -> list[Any]:
        return self.blocks.map(ask, range(self.n), *self.base, *more)

    @abc.abstractmethod
    def rounding(self, V: Array, members: Members) -> Array:
        """Bound on the 2-norm of the floating-point error of every gradient, (m,)."""

    @abc.abstractmethod
    def kept(self, index: Index, old: Array, rows: Array) -> Array:
        """Shares (m,) s with ``H_k >= s H`` at the base solution; at most 1, useless where not positive."""

    def gather(self, index: Index, old: Array, rows: Array, target: Array | None) -> Members:
        """The m neighbors with these rows (m, d), in place of old ones, and targets (m, d)."""
        lengths, reach = norms(rows), np.full(len(index), np.inf)
        kept = np.full(len(index), -np.inf)
        if self.metric.definite:
            reach = np.maximum(self.metric.lengths(rows), self.reach)
            kept = self.kept(index, old, rows)
        spread = np.maximum(lengths, self.longest)
        return Members(
            index, old, rows, np.zeros_like(rows) if target is None else target, spread, kept, reach
        )

    @abc.abstractmethod
    def updates(self, members: Members) -> list[tuple[Array, Array]]:
        """Vectors (m, d) and coefficients (m,) that turn the base Hessian into a neighbor's, nearly."""

    @abc.abstractmethod
    def concordance(self, members: Members) -> Array:
        """Self-concordance of every neighbor, (m,)."""

    @abc.abstractmethod
    def smoothness(self, members: Members) -> Array:
        """Bound on the largest eigenvalue of every neighbor's Hessian, (m,)."""

    @abc.abstractmethod
    def output_radius(self, V: Array, members: Members, radius: Array, kappa: Array) -> Array:
        """Bound on the l1 error of the weights: the points err by ``radius``, the scores by ``kappa``."""

    def sum_error(self) -> float:
        """Relative error of a sum over rows: in any order within a tile, then in pairs."""
        count = min(self.n, _TALLEST) + self._heights()
        return float(count * UNIT / (1 - count * UNIT))

    def weights_error(self, kappa: Array, error: Array) -> Array:
        """Bound on the l1 error of weights whose log f move by ``kappa`` (m,) and are computed to ``error``.

        The tilt lemma for both together. What f is divided by was added up in another pass, where each f was
        computed anew, to the same error.
        """
        moved = 2 * self.n * np.tanh((kappa + error) / 2)
        bound: Array = moved + self.n * (np.expm1(np.minimum(2 * error, 150.0)) + 2 * self.total_error())
        return bound

    def total_error(self) -> float:
        """The same of a total of weights, which numpy adds pairwise within a tile."""
        return (64 + self._heights()) * UNIT

    def _heights(self) -> int:
        # what an addend goes through in the trees of tiles and of blocks, and beside the replaced row
        return 2 * math.ceil(math.log2(self.n / _SHORTEST + 2)) + 4


def dot(A: Array, B: Array) -> Array:
    """Inner products of the rows of A and B (m, d), (m,)."""
    product: Array = np.einsum("ij,ij->i", A, B)
    return product


def clipped(score: Array) -> Array:
    """Scores whose exponential is finite; the judge certifies nothing where this changes any."""
    return np.clip(score, -2 * LARGEST_SCORE, 2 * LARGEST_SCORE)


def norms(V: Array) -> Array:
    """Norms of the rows of V (m, d), rounded up: (m,)."""
    norm: Array = np.sqrt(dot(V, V)) * (1 + 1e-12) + 1e-150
    return norm


def _swept(Z: Array, numbers: range, *base: Array, asked: _AtPoints) -> tuple[Array, Array]:
    """Sums over the shared rows of a block: of what pulls times the rows (m, d), and of two totals (m, 2)."""
    room, found = Room(len(asked.V)), []
    for part, held, place in asked.tiles(numbers):
        pull, f = asked.terms.tilted(asked.V, Z[part], tuple(one[part] for one in base), room)
        for one in (pull, f):
            one[held, place] = 0.0
        total = pull.sum(axis=1)
        totals = total if f is pull else f.sum(axis=1)
        found.append((pull @ Z[part], np.stack([total, totals], axis=1)))
    moments, sums = zip(*found, strict=True)
    return tree_sum(moments), tree_sum(sums)


def _read(
    Z: Array, numbers: range, *beside: Array, weighed: _Weighed, reading: Reading
) -> tuple[Array, Array]:
    parts = [
        reading.of(f, *(one[part] for one in beside[weighed.n_base :]))
        for part, f in weighed.parts(Z, numbers, beside)
    ]
    sums, largest = zip(*parts, strict=True)
    return tree_sum(sums), np.maximum.reduce(largest)


def _weights(Z: Array, numbers: range, *beside: Array, weighed: _Weighed) -> Array:
    weights = np.empty((len(weighed.own), len(numbers)))
    for part, f in weighed.parts(Z, numbers, beside):
        weights[:, part] = f
    return weights


def _extent(Z: Array, *, metric: _Metric) -> tuple[float, float, float, float]:
    length = np.sqrt(dot(Z, Z)) * (1 + 1e-12)
    reach = float(np.max(metric.lengths(Z))) if metric.definite else np.inf
    return reach, float(np.max(length)), float(np.sum(length)), float(np.sum(length**2))
