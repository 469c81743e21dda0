"""Neighbors of one dataset, and passes over the rows that they share.

Here stands what is asked of their weights.
"""

from __future__ import annotations

import abc
import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.curves.curves import Curve, CurvesByArm, by_arm
from dp2erm_cvx.curves.log_weights import LogWeight, LogWeightsByArm
from dp2erm_cvx.data.blocks import Blocks, tree_sum, views
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.margin_rows import MarginRows

#: Numbers of records or of neighbors.
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
Part = Index | slice


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """m neighbors, numbered by the record ``index`` (m,) that is replaced.

    Every field has m rows.
    """

    index: Index

    def take(self, chosen: Part) -> Self:
        """Replacements of those neighbors alone."""
        return type(self)(*(getattr(self, part.name)[chosen] for part in fields(self)))

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, eq=False)
class Replacements:
    """m neighbors of a dataset, each with one record replaced, but for its outcome.

    Parameters
    ----------
    base
        The dataset.
    index
        Number of the record that is replaced, (m,) in 0..n-1.
    X
        Its new covariates (m, p) as in ``Records.X``, with the intercept; within the bound of the
        domain.
    a
        Its new treatment (m,), 0 or 1.

    Raises
    ------
    DeclarationError
        For other shapes or values.
    """

    base: Records
    index: Index
    X: Array
    a: Index

    def __post_init__(self) -> None:
        m, n, space, X = len(self.index), self.base.n_samples, self.base.space, self.X
        columns = self.base.n_features + (1 if space.intercept else 0)
        whole = all(
            np.issubdtype(v.dtype, np.integer) and v.shape == (m,) for v in (self.index, self.a)
        )
        if not (
            whole
            and X.shape == (m, columns)
            and np.all((self.index >= 0) & (self.index < n) & ((self.a == 0) | (self.a == 1)))
            and np.all(np.linalg.norm(X, axis=1) <= space.covariate_bound * ROUND_UP)
            and not (space.intercept and np.any(X[:, 0] != space.intercept))
        ):
            raise DeclarationError(
                f"replacements: index must be (m,) from 0 to {n - 1}, a (m,) 0 or 1, X (m, "
                f"{columns}) rows of norm at most {space.covariate_bound:g} that begin with the "
                "intercept, if any"
            )

    @classmethod
    def by_records(cls, base: Records, index: Index, new: Records) -> Replacements:
        """Neighbors whose replaced records are those of another dataset.

        Parameters
        ----------
        base
            The dataset.
        index
            Number of the record that is replaced, (m,).
        new
            The m records that take their places but for outcomes, as a domain maps them.

        Raises
        ------
        DeclarationError
            For records of another domain, and numbers that are none.
        """
        if new.space != base.space:
            raise DeclarationError("replacements: records of another domain")
        return cls(base, np.asarray(index), new.X, new.a)

    @property
    def admitted(self) -> Mask:
        """True of neighbors (m,) that are in the domain.

        They keep the arm floor, and what is not protected.
        """
        base = self.base
        universe = MappedUniverse(base.space, base.n_samples, base.n_features)
        floor = base.space.arm_floor or 0
        moved = self.a - self.leaving.a
        treated = int(sum(base.blocks.map(_n_treated))) + moved
        kept = (floor <= treated) & (treated <= base.n_samples - floor)
        return np.asarray(kept & (universe.flips | (moved == 0)))

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        # the records are private
        return f"Replacements(n_neighbors={len(self)})"

    def take(self, low: int, high: int) -> Replacements:
        """Neighbors ``low`` to ``high - 1``."""
        part = slice(low, high)
        return replace(self, index=self.index[part], X=self.X[part], a=self.a[part])

    def __getitem__(self, which: Mask | Index) -> Replacements:
        """Those neighbors alone, by a mask or by their numbers."""
        return replace(self, index=self.index[which], X=self.X[which], a=self.a[which])

    @cached_property
    def leaving(self) -> Records:
        """The m records that are replaced, as a dataset of their own."""
        return self.base.at(self.index)

    def records(self) -> Records:
        """The m new records as a dataset of their own."""
        return Records(self.X, self.a, self.leaving.y, self.base.space)

    def neighbor(self, k: int) -> Records:
        """The dataset with replacement ``k`` made."""
        return self.base.replaced(int(self.index[k]), self.X[k], int(self.a[k]))


def _n_treated(records: Records) -> int:
    return int(np.sum(records.a))


class Reading(abc.ABC):
    """Sums and maxima over the weights of a neighbor.

    Records in any order make up the whole of them.

    ``beside`` holds arrays (n,), of which :meth:`of` is given the part that belongs to its weights.
    A reading has to be picklable.
    """

    beside: tuple[Array, ...] = ()

    @abc.abstractmethod
    def of(self, weights: Array, *beside: Array) -> tuple[Array, Array]:
        """Sums (m, s) and maxima (m, t) of weights (m, k) of some records.

        Neither reads ``self.beside``.
        """

    def alone(self) -> Self:
        """A copy without the arrays beside it, which is sent to whoever makes the pass."""
        alone = copy.copy(self)
        alone.beside = ()
        return alone


@dataclass(frozen=True, eq=False)
class NeighborSolutions:
    """A chunk of m neighbors, the first of them number ``first`` among all.

    It is private where the records are.

    ``radius`` (m,) bounds ``||w_hat - w||_1``, inf where nothing was proved; ``certified`` says
    whether it is within ``tolerance * n``; ``by_single`` marks what was solved alone. ``values``
    are the weights (m, n), nan where a neighbor has no solution; or of a reading the sums (m, s),
    the maxima (m, t) and the weights of the replaced records (m,).
    """

    first: int
    radius: Array = field(repr=False)
    certified: Mask = field(repr=False)
    iterations: Index = field(repr=False)
    by_single: Mask = field(repr=False)
    values: tuple[Array, ...] = field(repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Claims:
    """Claims of a fast path about m neighbors.

    They are ``points`` (m, d) of the models, with a ``radius`` (m,) in l1.

    ``weights`` makes those (., n) of a slice, ``read`` what a reading says of all.
    """

    points: Array
    radius: Array
    iterations: Index
    weights: Callable[[slice], Array]
    read: Callable[[Reading], tuple[Array, Array, Array]]

    @classmethod
    def held(
        cls, weights: Array, radius: Array, iterations: Index, points: Array, index: Index
    ) -> Self:
        """Claims of ``weights`` (m, n) in memory; ``index`` (m,) numbers the replaced records."""

        def read(reading: Reading) -> tuple[Array, Array, Array]:
            return *reading.of(weights, *reading.beside), weights[np.arange(len(index)), index]

        return cls(points, radius, iterations, lambda of: weights[of], read)

    @classmethod
    def nothing(cls, part: Replacements) -> Self:
        """Nothing known about any of them."""
        m, nan = len(part), np.full((len(part), part.base.n_samples), np.nan)
        return cls.held(nan, np.full(m, np.inf), np.zeros(m, dtype=np.int64), nan, part.index)


#: A function of replacements and of the l1 error to aim at.
FastPath = Callable[[Replacements, float], Claims]


#: Scores in one tile of a sweep: half a megabyte, which stays in the cache of a core.
_TILE = 2**16
#: The most shared rows in a tile: sums over more of them would round worse. Powers of 2, as those
#: of views.
_TALLEST = 512
_SHORTEST = 128
#: Larger scores are left to the solver of single instances, which shifts them before the
#: exponential.
LARGEST_SCORE = 300.0
#: Scores are clipped to it, so that exponentials stay finite; the judge certifies nothing where one
#: is.
CLIP = 2 * LARGEST_SCORE
#: Numbers in the shared rows up to which they are held: 64 MB.
_HELD = 2**23
#: Parts of rows that are numbered, their pulls and weights.
Tiles = Callable[[MarginRows, range], Iterator[tuple[slice, Array, Array]]]


@dataclass(frozen=True, eq=False)
class Terms:
    """Contributions of rows at points V (m, d).

    They are pulls at the gradient, and weights before normalization.

    Parameters
    ----------
    loss
        phi, of which a pull is ``-phi'(<z, v>)``; of every record, or by its arm.
    weight
        The weight, as a function of the same margin; by the arm where the loss is.
    """

    loss: Curve | CurvesByArm
    weight: LogWeight | LogWeightsByArm

    def tilted(self, V: Array, Z: Array, arm: Index | None) -> tuple[Array, Array]:
        """Both of rows Z (k, d) of these arms (k,), (m, k) each."""
        tilt: Array = -V @ Z.T
        return self._both(np.exp(tilt, out=tilt), arm)

    def own(self, V: Array, rows: Array, arm: Index) -> tuple[Array, Array]:
        """Both of one row (d,) at every point, of these arms (m,): (m,) each."""
        return self._both(np.exp(-np.clip(dot(V, rows), -CLIP, CLIP)), arm)

    def curvature(self, s: Array, arm: Index) -> Array:
        """Second derivatives (m,) of the loss at margins (m,) of records of these arms."""
        if isinstance(self.loss, CurvesByArm):
            return self.loss.along(arm).curvature(s)
        return self.loss.curvature(s)

    def steepest(self, reach: float) -> float:
        """Bound on the slopes of log weights at margins up to a reach, which may be infinite.

        Of one weight for all it is that of all margins; by arm that of the reach, as a bounded
        weight of an arm is known far better near 0.
        """
        if isinstance(self.weight, LogWeightsByArm):
            return self.weight.steepest(reach)
        return self.weight.lipschitz

    def _both(self, tilt: Array, arm: Index | None) -> tuple[Array, Array]:
        loss, weight = self.loss, self.weight
        if isinstance(loss, Curve) and isinstance(weight, LogWeight):
            return _pulls_and_weights(loss, weight, tilt)
        assert isinstance(loss, CurvesByArm)
        assert isinstance(weight, LogWeightsByArm)
        assert arm is not None

        def of_arm(which: int, of: Mask) -> tuple[Array, Array]:
            return _pulls_and_weights(loss.each[which], weight.each[which], tilt[of])

        pulls, weights = by_arm(np.broadcast_to(arm, tilt.shape), of_arm)
        return pulls, weights


def _pulls_and_weights(loss: Curve, weight: LogWeight, tilt: Array) -> tuple[Array, Array]:
    # one exponential serves the loss and the weight: no margin is beyond LARGEST_SCORE
    whole = 1.0 + tilt
    return loss.descent(tilt, whole), weight.of(tilt, whole)


class SharedRows:
    """The n rows (n, d) of a model, made in every pass, but of few records only once."""

    def __init__(self, blocks: Blocks[MarginRows], dimension: int, terms: Terms) -> None:
        self.n = blocks.n_samples
        self.terms = terms
        self._blocks = blocks
        if blocks.here and self.n * dimension <= _HELD:
            self._blocks = views(self.n, partial(_part_of, MarginRows.whole(blocks)))

    def extent(self, inverse_root: Array) -> tuple[float, float, float, float]:
        """Largest norm in a metric and as it is, the sum of norms and of squares."""
        parts = np.array(self._blocks.map(partial(_extent, inverse_root=inverse_root)))
        (reach, longest), sums = (
            np.max(parts[:, :2], axis=0),
            np.sum(parts[:, 2:], axis=0) * (1 + 1e-9),
        )
        return float(reach), float(longest), float(sums[0]), float(sums[1])

    def sums(self, V: Array, index: Index) -> tuple[Array, Array]:
        """Sums at V of pulls times the rows (m, d), and of the weights (m,).

        The records ``index`` (m,) are left out.
        """
        moments, sums = zip(*self._map(partial(_swept, tiles=self._tiles(V, index))), strict=True)
        return tree_sum(moments), tree_sum(sums)

    def read(
        self, V: Array, index: Index, own: Array, scale: Array, reading: Reading
    ) -> tuple[Array, Array]:
        """Sums and maxima of a reading of weights ``scale`` f, f being ``own`` at ``index``."""
        ask = partial(_read, tiles=self._tiles(V, index, own, scale))
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
        return self._blocks.map(ask, range(self.n), *more)

    def sum_error(self) -> float:
        """Relative error of a sum over rows: in any order within a tile, then in pairs."""
        count = min(self.n, _TALLEST) + self._heights()
        return float(count * UNIT / (1 - count * UNIT))

    def total_error(self) -> float:
        """Error of a total of weights, which numpy adds pairwise within a tile."""
        return (64 + self._heights()) * UNIT

    def _heights(self) -> int:
        # what an addend goes through in the trees of tiles and of blocks, and beside the replaced
        # row
        return 2 * math.ceil(math.log2(self.n / _SHORTEST + 2)) + 4


def _part_of(rows: MarginRows, part: slice) -> MarginRows:
    return MarginRows(rows.Z[part], arm=None if rows.arm is None else rows.arm[part])


def dot(A: Array, B: Array) -> Array:
    """Inner products of the rows of A and B (m, d), (m,)."""
    return np.asarray(np.einsum("ij,ij->i", A, B))


def norms(V: Array) -> Array:
    """Norms of the rows of V (m, d), rounded up: (m,)."""
    return np.asarray(np.sqrt(dot(V, V)) * ROUND_UP + 1e-150)


def _tiles(
    terms: Terms,
    V: Array,
    index: Index,
    weighed: tuple[Array, ...],
    rows: MarginRows,
    numbers: range,
) -> Iterator[tuple[slice, Array, Array]]:
    """Parts of k rows, their pulls and unnormalized weights, (m, .) each.

    The records ``index`` (m,) count nothing, or are given ``weighed[0]``, and all are scaled by the
    other.
    """
    here = np.flatnonzero((index >= numbers.start) & (index < numbers.stop))
    place = index[here] - numbers.start
    size = min(max(_TILE // max(len(index), 1), _SHORTEST), _TALLEST)
    height = 2 ** (size.bit_length() - 1)
    for low in range(0, len(numbers), height):
        part = slice(low, min(low + height, len(numbers)))
        inside = (place >= low) & (place < low + height)
        held, at = here[inside], place[inside] - low
        tile = _part_of(rows, part)
        pull, f = terms.tilted(V, tile.Z, tile.arm)
        if weighed:
            own, scale = weighed
            f[held, at] = own[held]
            f *= scale[:, None]
        else:
            pull[held, at] = f[held, at] = 0.0
        yield part, pull, f


def _swept(rows: MarginRows, numbers: range, *, tiles: Tiles) -> tuple[Array, Array]:
    moments = []
    sums = []
    for part, pull, f in tiles(rows, numbers):
        sums.append(f.sum(axis=1))
        moments.append(pull @ rows.Z[part])
    return tree_sum(moments), tree_sum(sums)


def _read(
    rows: MarginRows, numbers: range, *beside: Array, tiles: Tiles, reading: Reading
) -> tuple[Array, Array]:
    parts = [
        reading.of(f, *(column[part] for column in beside)) for part, _, f in tiles(rows, numbers)
    ]
    sums, largest = zip(*parts, strict=True)
    return tree_sum(sums), np.maximum.reduce(largest)


def _weights(rows: MarginRows, numbers: range, *, tiles: Tiles) -> Array:
    return np.concatenate([f for _, _, f in tiles(rows, numbers)], axis=1)


def _extent(rows: MarginRows, *, inverse_root: Array) -> tuple[float, float, float, float]:
    Z = rows.Z
    length, reach = (
        np.sqrt(dot(Z, Z)) * ROUND_UP,
        float(np.max(norms(Z @ inverse_root) * (1 + 1e-9))),
    )
    return reach, float(np.max(length)), float(np.sum(length)), float(np.sum(length**2))
