"""Many neighbors of one model that is a sum over rows: what a sweep over the shared rows needs."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.solve.batch.reading import Reading, Tally

Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Scores in one tile of a sweep: half a megabyte, which stays in the cache of a core.
_TILE = 2**16
#: The most shared rows in a tile: sums over more of them would round worse.
_TALLEST = 512
_SHORTEST = 128
#: Larger scores are left to the solver of single instances, which shifts them before the exponential.
LARGEST_SCORE = 300.0


@dataclass(frozen=True, eq=False)
class Members:
    """m neighbors: row ``index[k]`` of the shared rows is replaced by ``rows[k]``, (m, d).

    ``target`` is (m, d), 0 where the model has none; ``spread`` (m,) bounds the norms of all rows, ``reach``
    (m,) those in the metric of the base Hessian H. At the base solution a neighbor's Hessian is at least
    ``kept`` (m,) times H, which says nothing where that is not positive.
    """

    index: Index
    rows: Array
    target: Array
    spread: Array
    kept: Array
    reach: Array

    def take(self, chosen: Index) -> Self:
        """Those neighbors alone."""
        parts = (self.index, self.rows, self.target, self.spread, self.kept, self.reach)
        return type(self)(*(part[chosen] for part in parts))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"Members({len(self.index)})"


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


class Metric:
    """The Hessian of the base model at its solution: preconditioner, and yardstick of every neighbor."""

    def __init__(self, model: Composite, point: Array) -> None:
        H = model.hessian(point)
        values, self.vectors = np.linalg.eigh(H)
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


class Tree:
    """Adds arrays in pairs of equal size: none goes through more sums than there are levels, twice."""

    def __init__(self, start: Array) -> None:
        self.start, self.levels = start, list[Array | None]()

    def add(self, term: Array) -> None:
        """One more."""
        for level, held in enumerate(self.levels):
            if held is None:
                self.levels[level] = term
                return
            self.levels[level], term = None, held + term
        self.levels.append(term)

    def sum(self) -> Array:
        """Of all so far, and of the start."""
        return sum((held for held in self.levels if held is not None), self.start)


class RowBatch(abc.ABC):
    """Neighbors of one model: gradients, weights and error bounds of m points at once.

    ``Z`` (n, d) are the shared rows, ``point`` (d,) the solution of the base model, ``radius`` that of the
    ball (or inf), ``ridge`` the declared quadratic coefficient.
    """

    def __init__(self, model: Composite, Z: Array, point: Array) -> None:
        self.model, self.Z, self.point = model, Z, point
        self.n, self.dimension = Z.shape
        self.ridge = model.ridge
        ball = model.penalty.set
        self.radius = ball.radius if isinstance(ball, L2Ball) else np.inf
        self.norms: Array = np.sqrt(dot(Z, Z)) * (1 + 1e-12)
        self.longest = float(np.max(self.norms, initial=0.0))
        self.metric = Metric(model, point)
        #: Largest ``||z_i||`` in the metric.
        self.reach = self._reach() if self.metric.definite else np.inf
        self._scratch: dict[str, Array] = {}

    def _reach(self) -> float:
        parts = (self.Z[low : low + _TILE] for low in range(0, self.n, _TILE))
        return max((float(np.max(self.metric.lengths(part))) for part in parts), default=0.0)

    @property
    def usable(self) -> bool:
        """Whether the base solution offers a metric and scores that do not overflow."""
        return self.metric.definite and self.longest * float(np.linalg.norm(self.point)) <= LARGEST_SCORE

    @abc.abstractmethod
    def first_gradient(self, members: Members) -> Array:
        """Gradients (m, d) of the neighbors at the base solution, without a sweep."""

    @abc.abstractmethod
    def sweep(self, V: Array, members: Members, weights: Array | None) -> Array:
        """Gradients (m, d) at V (m, d); also the weights (m, n), where there is room for them."""

    @abc.abstractmethod
    def unnormalized(self, V: Array, rows: Array, part: slice) -> Array:
        """What weights at V (m, d) are proportional to, (m, k): shared rows (k, d), the records ``part``."""

    @abc.abstractmethod
    def replaced(self, V: Array, members: Members) -> Array:
        """The same of the replaced row of every neighbor, (m,)."""

    def read(self, V: Array, members: Members, reading: Reading) -> Tally:
        """Two passes over the records: the totals of the weights at V (m, d), then the reading."""
        tally, own = Tally(reading, len(V)), self.replaced(V, members)
        total = Tree(np.zeros(len(V)))
        for _, f in self._each(V, members, own):
            total.add(f.sum(axis=1))
        scale = self.n / total.sum()
        for part, f in self._each(V, members, own):
            f *= scale[:, None]
            tally.add(f, part)
        tally.own = own * scale
        return tally

    def _each(self, V: Array, members: Members, own: Array) -> Iterator[tuple[slice, Array]]:
        for part, held in self.blocks(members.index):
            f = self.unnormalized(V, self.Z[part], part)
            f[held, members.index[held] - part.start] = own[held]
            yield part, f

    @abc.abstractmethod
    def rounding(self, V: Array, members: Members) -> Array:
        """Bound on the 2-norm of the floating-point error of every gradient, (m,)."""

    @abc.abstractmethod
    def kept(self, index: Index, rows: Array) -> Array:
        """Shares (m,) s with ``H_k >= s H`` at the base solution; at most 1, useless where not positive."""

    def gather(self, index: Index, rows: Array, target: Array | None) -> Members:
        """The m neighbors with these rows (m, d) and targets (m, d)."""
        lengths, reach = norms(rows), np.full(len(index), np.inf)
        kept = np.full(len(index), -np.inf)
        if self.metric.definite:
            reach = np.maximum(self.metric.lengths(rows), self.reach)
            kept = self.kept(index, rows)
        spread = np.maximum(lengths, self.longest)
        return Members(index, rows, np.zeros_like(rows) if target is None else target, spread, kept, reach)

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
        """Relative error of a sum over rows: in any order within a block, then by a :class:`Tree`."""
        count = min(self.n, _TALLEST) + self._heights()
        return float(count * UNIT / (1 - count * UNIT))

    def total_error(self) -> float:
        """The same of a total of weights, which numpy adds pairwise within a block or a row."""
        return (64 + self._heights()) * UNIT

    def _heights(self) -> int:
        # what an addend goes through in the tree, and then in the sum of its levels
        return 2 * math.ceil(math.log2(self.n / _SHORTEST + 2)) + 4

    def blocks(self, index: Index) -> Iterator[tuple[slice, Index]]:
        """Blocks of the shared rows, each with the members whose replaced row lies in it."""
        height = min(max(_TILE // len(index), _SHORTEST), _TALLEST)
        for low in range(0, self.n, height):
            high = min(low + height, self.n)
            yield slice(low, high), np.flatnonzero((index >= low) & (index < high))

    def scratch(self, name: str, m: int, width: int) -> Array:
        """An (m, width) array that is reused from block to block."""
        if name not in self._scratch or self._scratch[name].size < m * width:
            self._scratch[name] = np.empty(m * width)
        return self._scratch[name][: m * width].reshape(m, width)
