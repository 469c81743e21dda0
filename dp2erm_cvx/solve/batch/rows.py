"""Passes over the rows that many neighbors of one model share: sums, weights and readings of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from dp2erm_cvx.blocks import ArrayBlocks, Blocks, tree_sum
from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.log_weights import LogWeight
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.solve.batch.replacements import Index, Reading

#: Scores in one tile of a sweep: half a megabyte, which stays in the cache of a core.
_TILE = 2**16
#: The most shared rows in a tile: sums over more of them would round worse. Powers of 2, as those of views.
_TALLEST = 512
_SHORTEST = 128
#: Larger scores are left to the solver of single instances, which shifts them before the exponential.
LARGEST_SCORE = 300.0
#: Scores are clipped to it, so that exponentials stay finite; the judge certifies nothing where one is.
CLIP = 2 * LARGEST_SCORE
#: Numbers in the shared rows up to which they are held: 64 MB.
_HELD = 2**23
#: Parts of rows that are numbered, with what is beside them, their pulls and weights.
Tiles = Callable[[Array, range, tuple[Array, ...]], Iterator[tuple[slice, Array, Array]]]


@dataclass(frozen=True, eq=False)
class Terms:
    """Contributions of rows at points V (m, d), few numbers that workers return.

    Of a margin loss phi with a weight f the pull at the gradient is ``-phi'(<z, v>)``. Without a loss it is
    ``exp(<b, v>)``, rows b shifted by ``center`` (d,), times a base measure: the weight is the same, or no
    larger than a cap, ``log_cap`` less the common shift in the score.
    """

    center: Array
    loss: Curve | None = None
    weight: LogWeight | None = None
    log_cap: float = math.inf

    def tilted(self, V: Array, Z: Array, base: tuple[Array, ...]) -> tuple[Array, Array]:
        """How rows Z (k, d) pull at the gradient and what their weights are proportional to, both (m, k).

        The two may be one array. ``base`` holds the log base measure (k,), if there is one.
        """
        if self.loss is None or self.weight is None:
            u, cap = V @ Z.T, self._caps(V)
            for log_base in base:
                u += log_base
            np.exp(u, out=u)
            return u, u if cap is None else np.minimum(u, cap[:, None])
        # one exponential serves the loss and the weight: no margin is beyond LARGEST_SCORE
        tilt = -V @ Z.T
        np.exp(tilt, out=tilt)
        total = tilt + 1.0
        return self.loss.descent(tilt, total), self.weight.of(tilt, total)

    def own(self, V: Array, rows: Array, log_base: Array) -> tuple[Array, Array]:
        """Contributions (m,) each, of one row (d,) at every point."""
        score = np.clip(dot(V, rows), -CLIP, CLIP)
        if self.loss is None or self.weight is None:
            pull, cap = np.exp(score + log_base), self._caps(V)
            return pull, pull if cap is None else np.minimum(pull, cap)
        tilt = np.exp(-score)
        return self.loss.descent(tilt, 1 + tilt), self.weight.of(tilt, 1 + tilt)

    def _caps(self, V: Array) -> Array | None:
        """The largest tilts (m,), None for none."""
        if math.isinf(self.log_cap):
            return None
        return np.asarray(np.exp(np.minimum(self.log_cap - V @ self.center, 700.0)))


class SharedRows:
    """The n rows (n, d) of a model in passes, wherever they are, with ``base`` (n,) beside them.

    They are made in every pass, but of few records only once.
    """

    def __init__(
        self, blocks: Blocks[MarginRows], dimension: int, terms: Terms, base: tuple[Array, ...]
    ) -> None:
        self.n, self.terms, self.base = blocks.n_samples, terms, base
        self._blocks: Blocks[Array] = blocks.then(attrgetter("Z"))
        if blocks.here and self.n * dimension <= _HELD:
            self._blocks = ArrayBlocks((np.concatenate(self._blocks.each()),)).then(itemgetter(0))

    def extent(self, inverse_root: Array | None) -> tuple[float, float, float, float]:
        """Largest norm in a metric (``inf`` without one) and as it is, the sum of norms and of squares."""
        parts = np.array(self._blocks.map(partial(_extent, inverse_root=inverse_root)))
        (reach, longest), sums = np.max(parts[:, :2], axis=0), np.sum(parts[:, 2:], axis=0) * (1 + 1e-9)
        return float(reach), float(longest), float(sums[0]), float(sums[1])

    def sums(self, V: Array, index: Index) -> tuple[Array, Array]:
        """Sums at V of what pulls times the rows (m, d), and of two totals (m, 2): of pulls, of weights.

        The records ``index`` (m,) are left out.
        """
        moments, sums = zip(*self._map(partial(_swept, tiles=self._tiles(V, index))), strict=True)
        return tree_sum(moments), tree_sum(sums)

    def read(self, V: Array, index: Index, own: Array, scale: Array, reading: Reading) -> tuple[Array, Array]:
        """Sums and maxima of a reading of weights ``scale`` f, f being ``own`` at ``index``."""
        ask = partial(_read, tiles=self._tiles(V, index, own, scale), n_base=len(self.base))
        parts = self._map(partial(ask, reading=reading.alone()), *reading.beside)
        sums, largest = zip(*parts, strict=True)
        return tree_sum(sums), np.maximum.reduce(largest)

    def weights(self, V: Array, index: Index, own: Array, scale: Array) -> Array:
        """These weights (m, n)."""
        parts = self._map(partial(_weights, tiles=self._tiles(V, index, own, scale)))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _tiles(self, V: Array, index: Index, *weighed: Array) -> Tiles:
        return partial(_tiles, self.terms, V, index, weighed)

    def _map(self, ask: Any, *more: Array) -> list[Any]:
        return self._blocks.map(ask, range(self.n), *self.base, *more)

    def sum_error(self) -> float:
        """Relative error of a sum over rows: in any order within a tile, then in pairs."""
        count = min(self.n, _TALLEST) + self._heights()
        return float(count * UNIT / (1 - count * UNIT))

    def total_error(self) -> float:
        """Error of a total of weights, which numpy adds pairwise within a tile."""
        return (64 + self._heights()) * UNIT

    def _heights(self) -> int:
        # what an addend goes through in the trees of tiles and of blocks, and beside the replaced row
        return 2 * math.ceil(math.log2(self.n / _SHORTEST + 2)) + 4


def dot(A: Array, B: Array) -> Array:
    """Inner products of the rows of A and B (m, d), (m,)."""
    return np.asarray(np.einsum("ij,ij->i", A, B))


def norms(V: Array) -> Array:
    """Norms of the rows of V (m, d), rounded up: (m,)."""
    return np.asarray(np.sqrt(dot(V, V)) * (1 + 1e-12) + 1e-150)


def _tiles(
    terms: Terms,
    V: Array,
    index: Index,
    weighed: tuple[Array, ...],
    Z: Array,
    numbers: range,
    base: tuple[Array, ...],
) -> Iterator[tuple[slice, Array, Array]]:
    """Parts of the rows Z (k, d), their pulls and what weights are proportional to, (m, .) each.

    The records ``index`` (m,) of the neighbors are not among the shared rows: they count nothing, or where
    ``weighed`` holds what their weights are proportional to and a scale (m,), weights are made, scaled by it.
    """
    here = np.flatnonzero((index >= numbers.start) & (index < numbers.stop))
    place = index[here] - numbers.start
    size = min(max(_TILE // max(len(index), 1), _SHORTEST), _TALLEST)
    height = 2 ** (size.bit_length() - 1)
    for low in range(0, len(numbers), height):
        part = slice(low, min(low + height, len(numbers)))
        inside = (place >= low) & (place < low + height)
        held, at = here[inside], place[inside] - low
        pull, f = terms.tilted(V, Z[part], tuple(column[part] for column in base))
        if weighed:
            own, scale = weighed
            f[held, at] = own[held]
            f *= scale[:, None]
        else:
            pull[held, at] = f[held, at] = 0.0
        yield part, pull, f


def _swept(Z: Array, numbers: range, *base: Array, tiles: Tiles) -> tuple[Array, Array]:
    moments, sums = [], []
    for part, pull, f in tiles(Z, numbers, base):
        total = pull.sum(axis=1)
        sums.append(np.stack([total, total if f is pull else f.sum(axis=1)], axis=1))
        moments.append(pull @ Z[part])
    return tree_sum(moments), tree_sum(sums)


def _read(
    Z: Array, numbers: range, *beside: Array, tiles: Tiles, reading: Reading, n_base: int
) -> tuple[Array, Array]:
    base, own = beside[:n_base], beside[n_base:]
    parts = [reading.of(f, *(column[part] for column in own)) for part, _, f in tiles(Z, numbers, base)]
    sums, largest = zip(*parts, strict=True)
    return tree_sum(sums), np.maximum.reduce(largest)


def _weights(Z: Array, numbers: range, *base: Array, tiles: Tiles) -> Array:
    return np.concatenate([f for _, _, f in tiles(Z, numbers, base)], axis=1)


def _extent(Z: Array, *, inverse_root: Array | None) -> tuple[float, float, float, float]:
    length = np.sqrt(dot(Z, Z)) * (1 + 1e-12)
    reach = math.inf if inverse_root is None else float(np.max(norms(Z @ inverse_root) * (1 + 1e-9)))
    return reach, float(np.max(length)), float(np.sum(length)), float(np.sum(length**2))
