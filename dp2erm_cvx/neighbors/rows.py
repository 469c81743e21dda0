"""Neighbors of one dataset, what is asked of their weights, and passes over rows they share."""

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

from dp2erm_cvx.arrays import ROUND_UP, ROUND_UP_SUMS, SQUARES_UNDERFLOW, UNIT, Array
from dp2erm_cvx.curves.curves import Curve, CurvesByArm, by_arm
from dp2erm_cvx.curves.log_weights import LogWeight, LogWeightsByArm
from dp2erm_cvx.data.blocks import Blocks, tree_sum, views
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.margin_rows import MarginRows

#: Distance of two records whose difference is a derivative, in units of the bound of covariates.
#: What a row or a target is of a record is smooth at this scale, and costs no solve.
VARIATION = 1e-6

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
        columns = {part.name: getattr(self, part.name)[chosen] for part in fields(self)}
        return type(self)(**columns)

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
        n = self.base.n_samples
        space = self.base.space
        columns = self.base.n_features
        if space.intercept:
            columns += 1
        if not (self._whole_numbers_within(n) and self._rows_within(columns)):
            raise DeclarationError(
                f"replacements: index must be (m,) from 0 to {n - 1}, a (m,) 0 or 1, X (m, "
                f"{columns}) rows of norm at most {space.covariate_bound:g} that begin with the "
                "intercept, if any"
            )

    def _whole_numbers_within(self, n: int) -> bool:
        """True if numbers and treatments are whole and in their ranges."""
        m = len(self.index)
        for values in (self.index, self.a):
            if not np.issubdtype(values.dtype, np.integer) or values.shape != (m,):
                return False
        numbers = (self.index >= 0) & (self.index < n)
        treatments = (self.a == 0) | (self.a == 1)
        return bool(np.all(numbers & treatments))

    def _rows_within(self, columns: int) -> bool:
        """True if covariates have so many columns and lie in their space."""
        space = self.base.space
        if self.X.shape != (len(self.index), columns):
            return False
        if not np.all(np.linalg.norm(self.X, axis=1) <= space.covariate_bound * ROUND_UP):
            return False
        return not (space.intercept and np.any(self.X[:, 0] != space.intercept))

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
        n_treated = int(sum(base.blocks.map(_n_treated))) + moved
        keeps_floor = (floor <= n_treated) & (n_treated <= base.n_samples - floor)
        return np.asarray(keeps_floor & (universe.flips | (moved == 0)))

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

    def varied(self) -> Replacements:
        """Every neighbor, then d more in each of which one covariate is a little larger.

        These m (d + 1) stay within the ball of the covariates, as all of them are shortened alike.
        """
        d = self.base.n_features
        m = len(self)
        covariates = slice(self.X.shape[1] - d, None)
        X = np.repeat(self.X[:, None, :], d + 1, axis=1)
        X[:, :, covariates] *= 1.0 - 2.0 * VARIATION
        X[:, 1:, covariates] += VARIATION * self.base.space.features_bound * np.eye(d)
        each = np.repeat(np.arange(m), d + 1)
        X = X.reshape(m * (d + 1), -1)
        return replace(self, index=self.index[each], X=X, a=self.a[each])

    def neighbor(self, k: int) -> Records:
        """The dataset with replacement ``k`` made."""
        return self.base.replaced(int(self.index[k]), self.X[k], int(self.a[k]))


def _n_treated(records: Records) -> int:
    return int(np.sum(records.a))


class Reading(abc.ABC):
    """Sums and maxima over the weights of a neighbor, which parts in any order make up.

    A reading has to be picklable.
    """

    #: Arrays (n,), of which :meth:`of` is given the part that belongs to its weights.
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
    """A chunk of m neighbors with their solutions. It is private where the records are.

    Parameters
    ----------
    first
        Number of the first of them among all.
    radius
        Bounds (m,) on ``||w_hat - w||_1``, infinite where nothing was proved.
    certified
        Whether the radius (m,) is within ``tolerance * n``.
    iterations
        Iterations (m,) of the solver.
    by_single
        Whether a neighbor (m,) was solved by itself.
    values
        The weights (m, n), nan where a neighbor has no solution; or of a reading the sums (m, s),
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

    Parameters
    ----------
    points
        Points (m, d) of the models.
    radius
        Bounds (m,) on the l1 errors of their weights.
    iterations
        Iterations (m,) of the solver.
    weights
        Makes the weights (., n) of a slice of the neighbors.
    read
        Makes what a reading says of all: sums, maxima, and the weights of the replaced records.
    gradients
        Maps the weights (n,) of the dataset to the gradients (m, p) of V in the covariates of the
        new records; None where the path has none.
    """

    points: Array
    radius: Array
    iterations: Index
    weights: Callable[[slice], Array]
    read: Callable[[Reading], tuple[Array, Array, Array]]
    gradients: Callable[[Array], Array] | None = None

    @classmethod
    def held(
        cls, weights: Array, radius: Array, iterations: Index, points: Array, index: Index
    ) -> Self:
        """Claims of ``weights`` (m, n) in memory; ``index`` (m,) numbers the replaced records."""

        def read(reading: Reading) -> tuple[Array, Array, Array]:
            sums, largest = reading.of(weights, *reading.beside)
            return sums, largest, weights[np.arange(len(index)), index]

        def chosen(of: slice) -> Array:
            return weights[of]

        return cls(points, radius, iterations, chosen, read)

    @classmethod
    def nothing(cls, part: Replacements) -> Self:
        """Nothing known about any of them."""
        m = len(part)
        unknown = np.full((m, part.base.n_samples), np.nan)
        iterations = np.zeros(m, dtype=np.int64)
        return cls.held(unknown, np.full(m, np.inf), iterations, unknown, part.index)


@dataclass(frozen=True, eq=False)
class FastPath:
    """Common steps of the neighbors of one dataset.

    Parameters
    ----------
    solve
        Makes claims about replacements, from them and the l1 error to aim at.
    holds_weights
        Whether it holds the weights of all neighbors that are solved at a time.
    knows_gradients
        Whether its claims come with gradients.
    """

    solve: Callable[[Replacements, float], Claims]
    holds_weights: bool
    knows_gradients: bool = False


#: Scores in one tile of a sweep: half a megabyte, which stays in the cache of a core.
_TILE = 2**16
#: The most shared rows in a tile, a power of 2: sums over more of them would round worse.
_TALLEST = 512
#: The least shared rows in a tile, a power of 2, as those of views.
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
        """Pulls and weights (m, k) of rows Z (k, d) of these arms (k,)."""
        tilt: Array = -V @ Z.T
        return self._at_tilts(np.exp(tilt, out=tilt), arm)

    def own(self, V: Array, rows: Array, arm: Index) -> tuple[Array, Array]:
        """Pulls and weights (m,) of one row (d,) at every point, of these arms (m,)."""
        margins = np.clip(dot(V, rows), -CLIP, CLIP)
        return self._at_tilts(np.exp(-margins), arm)

    def curvature(self, s: Array, arm: Index) -> Array:
        """Second derivatives (m,) of the loss at margins (m,) of records of these arms."""
        if isinstance(self.loss, CurvesByArm):
            return self.loss.along(arm).curvature(s)
        return self.loss.curvature(s)

    def log_slope(self, s: Array, arm: Index | None) -> Array:
        """Slopes h'(s) of log weights at margins of records of these arms.

        At a kink it is the mean of the slopes on both sides.
        """
        enclosed = self.weight.along(arm).enclose(s, s)
        return np.asarray(0.5 * (enclosed.down + enclosed.up))

    def steepest(self, reach: float) -> float:
        """Bound on the slopes of log weights at margins up to a reach, which may be infinite.

        Of one weight for all it is that of all margins; by arm that of the reach, as a bounded
        weight of an arm is known far better near 0.
        """
        if isinstance(self.weight, LogWeightsByArm):
            return self.weight.steepest(reach)
        return self.weight.lipschitz

    def _at_tilts(self, tilt: Array, arm: Index | None) -> tuple[Array, Array]:
        """Pulls and weights at ``exp(-s)`` of margins s."""
        loss = self.loss
        weight = self.weight
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
    one_more = 1.0 + tilt
    return loss.descent(tilt, one_more), weight.of(tilt, one_more)


@dataclass(frozen=True)
class Extent:
    """Sizes of rows z_i, rounded up.

    Parameters
    ----------
    reach
        The largest norm in a metric.
    longest
        The largest norm.
    norms
        The sum of the norms.
    squares
        The sum of the squared norms.
    """

    reach: float
    longest: float
    norms: float
    squares: float


class SharedRows:
    """The n rows (n, d) of a model, made in every pass, but of few records only once."""

    def __init__(self, blocks: Blocks[MarginRows], dimension: int, terms: Terms) -> None:
        self.n = blocks.n_samples
        self.terms = terms
        self._blocks = blocks
        if blocks.here and self.n * dimension <= _HELD:
            self._blocks = views(self.n, partial(_part_of, MarginRows.whole(blocks)))

    def extent(self, inverse_root: Array) -> Extent:
        """The sizes of all rows, in the metric of an inverse root (d, d) and as they are."""
        parts = np.array(self._blocks.map(partial(_extent, inverse_root=inverse_root)))
        reach, longest = np.max(parts[:, :2], axis=0)
        norms_sum, squares = np.sum(parts[:, 2:], axis=0) * ROUND_UP_SUMS
        return Extent(float(reach), float(longest), float(norms_sum), float(squares))

    def sums(self, V: Array, index: Index) -> tuple[Array, Array]:
        """Sums at V of pulls times the rows (m, d), and of the weights (m,).

        The records ``index`` (m,) are left out.
        """
        parts = self._map(partial(_swept, tiles=self._tiles(V, index)))
        moments, sums = zip(*parts, strict=True)
        return tree_sum(moments), tree_sum(sums)

    def read(
        self, V: Array, index: Index, own: Array, scale: Array, reading: Reading
    ) -> tuple[Array, Array]:
        """Sums and maxima of a reading of weights ``scale`` f, f being ``own`` at ``index``."""
        tiles = self._tiles(V, index, own, scale)
        parts = self._map(partial(_read, tiles=tiles, reading=reading.alone()), *reading.beside)
        sums, largest = zip(*parts, strict=True)
        return tree_sum(sums), np.maximum.reduce(largest)

    def derivatives(
        self,
        V: Array,
        index: Index,
        weighed: tuple[Array, Array],
        base: Array,
        mean_sign: Array,
    ) -> tuple[Array, Array]:
        """Derivatives of the movement V, and of the sums of losses, without the records ``index``.

        Parameters
        ----------
        V
            Points v (m, d).
        index
            Numbers of the records that are left out, (m,).
        weighed
            Weights f of these records, and the factors of all: as of :meth:`read`.
        base
            Weights (n,) from which the weights move.
        mean_sign
            Means (m,) of the signs of the movements, by the weights.

        Returns
        -------
        gradients
            Sums (m, d) of ``(c_i - mean_sign) w_i h'(s_i) z_i`` with the sign c_i of a movement.
        hessians
            Sums (m, d, d) of ``phi''(s_i) z_i z_i'``.
        """
        tiles = self._tiles(V, index, *weighed)
        parts = self._map(_Derivatives(tiles, self.terms, V, index, mean_sign), base)
        gradients, hessians = zip(*parts, strict=True)
        return tree_sum(gradients), tree_sum(hessians)

    def weights(self, V: Array, index: Index, own: Array, scale: Array) -> Array:
        """These weights (m, n)."""
        parts = self._map(partial(_weights, tiles=self._tiles(V, index, own, scale)))
        if len(parts) == 1:
            return np.asarray(parts[0])
        return np.concatenate(parts, axis=1)

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
    arm = None if rows.arm is None else rows.arm[part]
    return MarginRows(rows.Z[part], arm=arm)


def dot(A: Array, B: Array) -> Array:
    """Inner products of the rows of A and B (m, d), (m,)."""
    return np.asarray(np.einsum("ij,ij->i", A, B))


def norms(V: Array) -> Array:
    """Norms of the rows of V (m, d), rounded up: (m,)."""
    return np.asarray(np.sqrt(dot(V, V)) * ROUND_UP + SQUARES_UNDERFLOW)


def _tiles(
    terms: Terms,
    V: Array,
    index: Index,
    weighed: tuple[Array, ...],
    rows: MarginRows,
    numbers: range,
) -> Iterator[tuple[slice, Array, Array]]:
    """Parts of k rows, their pulls and their weights, (m, k) each.

    Parameters
    ----------
    terms
        What rows contribute.
    V
        Points (m, d).
    index
        Numbers (m,) of the replaced records, which count nothing.
    weighed
        Empty; or the unnormalized weights (m,) that the replaced records are given, and the factors
        (m,) of all weights.
    rows
        The shared rows here.
    numbers
        Their numbers among all.
    """
    # which neighbors have a replaced record here, and its place
    here = np.flatnonzero((index >= numbers.start) & (index < numbers.stop))
    place = index[here] - numbers.start
    size = min(max(_TILE // max(len(index), 1), _SHORTEST), _TALLEST)
    height = 2 ** (size.bit_length() - 1)
    for low in range(0, len(numbers), height):
        part = slice(low, min(low + height, len(numbers)))
        inside = (place >= low) & (place < low + height)
        neighbor = here[inside]
        column = place[inside] - low
        tile = _part_of(rows, part)
        pull, weight = terms.tilted(V, tile.Z, tile.arm)
        if weighed:
            own, scale = weighed
            weight[neighbor, column] = own[neighbor]
            weight *= scale[:, None]
        else:
            pull[neighbor, column] = 0.0
            weight[neighbor, column] = 0.0
        yield part, pull, weight


def _swept(rows: MarginRows, numbers: range, *, tiles: Tiles) -> tuple[Array, Array]:
    moments = []
    sums = []
    for part, pull, weight in tiles(rows, numbers):
        sums.append(weight.sum(axis=1))
        moments.append(pull @ rows.Z[part])
    return tree_sum(moments), tree_sum(sums)


def _read(
    rows: MarginRows, numbers: range, *beside: Array, tiles: Tiles, reading: Reading
) -> tuple[Array, Array]:
    sums = []
    largest = []
    for part, _, weight in tiles(rows, numbers):
        of_part = reading.of(weight, *(column[part] for column in beside))
        sums.append(of_part[0])
        largest.append(of_part[1])
    return tree_sum(sums), np.maximum.reduce(largest)


@dataclass(frozen=True, eq=False)
class _Derivatives:
    """Asks rows for the sums of :meth:`SharedRows.derivatives`.

    Parameters
    ----------
    tiles
        Parts of rows with the weights of neighbors.
    terms
        Contributions of rows.
    V
        Points v (m, d).
    index
        Numbers (m,) of the records that are left out.
    mean_sign
        Means (m,) of the signs of the movements.
    """

    tiles: Tiles
    terms: Terms
    V: Array
    index: Index
    mean_sign: Array

    def __call__(self, rows: MarginRows, numbers: range, base: Array) -> tuple[Array, Array]:
        """Gradients (m, d) and Hessians (m, d, d) of these rows."""
        gradients = []
        hessians = []
        for part, _, weights in self.tiles(rows, numbers):
            tile = _part_of(rows, part)
            margins = np.clip(self.V @ tile.Z.T, -CLIP, CLIP)
            arm = None if tile.arm is None else np.broadcast_to(tile.arm, margins.shape)
            signs = np.sign(weights - base[part])
            slopes = (signs - self.mean_sign[:, None]) * weights
            slopes *= self.terms.log_slope(margins, arm)
            curvatures = self.terms.loss.along(arm).curvature(margins)
            left_out = self.index[:, None] == numbers.start + np.arange(part.start, part.stop)
            slopes[left_out] = 0.0
            curvatures[left_out] = 0.0
            gradients.append(slopes @ tile.Z)
            hessians.append(np.stack([(tile.Z.T * row) @ tile.Z for row in curvatures]))
        return tree_sum(gradients), tree_sum(hessians)


def _weights(rows: MarginRows, numbers: range, *, tiles: Tiles) -> Array:
    return np.concatenate([weight for _, _, weight in tiles(rows, numbers)], axis=1)


def _extent(rows: MarginRows, *, inverse_root: Array) -> tuple[float, float, float, float]:
    """Reach, longest, and the sums of norms and squares of some rows, as in :class:`Extent`."""
    Z = rows.Z
    length = np.sqrt(dot(Z, Z)) * ROUND_UP
    reach = float(np.max(norms(Z @ inverse_root) * ROUND_UP_SUMS))
    return reach, float(np.max(length)), float(np.sum(length)), float(np.sum(length**2))
