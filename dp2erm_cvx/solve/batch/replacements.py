"""Requests about many neighbors of one dataset, and their results."""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DeclarationError

#: Numbers of records or of neighbors.
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
Part = Index | slice


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """m neighbors, numbered by the record ``index`` (m,) that is replaced; every field has m rows."""

    index: Index

    def take(self, chosen: Part) -> Self:
        """Replacements of those neighbors alone."""
        return type(self)(*(getattr(self, part.name)[chosen] for part in fields(self)))

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, eq=False)
class Replacements:
    """m neighbors of ``base``: record ``index[k]`` becomes ``(X[k], a[k])``; its outcome stays.

    ``index`` is (m,) in 0..n-1, ``X`` (m, p) holds rows of the universe as in ``Records.X`` (intercept
    included), ``a`` (m,) treatments. Raises DeclarationError for shapes or values outside of these.
    """

    base: Records
    index: Index
    X: Array
    a: Index

    def __init__(self, base: Records, index: ArrayLike, X: ArrayLike, a: ArrayLike) -> None:
        put = object.__setattr__
        put(self, "base", base)
        put(self, "index", _whole("index", index, base.n_samples))
        put(self, "a", _whole("a", a, 2))
        put(self, "X", np.array(X, dtype=np.float64, ndmin=2))
        m, domain = len(self.index), self.base.domain
        columns = self.base.n_features + (1 if domain.intercept else 0)
        if self.X.shape != (m, columns) or self.a.shape != (m,):
            raise DeclarationError(f"replacements: index, X and a must have {m} rows, X {columns} columns")
        if not np.all(np.isfinite(self.X)):
            raise DeclarationError("replacements: X must be finite")
        if domain.intercept and np.any(self.X[:, 0] != domain.intercept):
            raise DeclarationError(f"replacements: the first column of X must be {domain.intercept:g}")
        longest = float(np.max(np.linalg.norm(self.X, axis=1), initial=0.0))
        if longest > domain.covariate_bound * (1 + 1e-12):
            raise DeclarationError("replacements: a row of X lies outside the universe; clip it first")
        for name in ("index", "X", "a"):
            getattr(self, name).flags.writeable = False

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        # the records are private
        return f"Replacements(n_neighbors={len(self)})"

    def take(self, low: int, high: int) -> Replacements:
        """Neighbors ``low`` to ``high - 1``."""
        part = slice(low, high)
        return Replacements(self.base, self.index[part], self.X[part], self.a[part])

    @cached_property
    def leaving(self) -> Records:
        """The m records that are replaced, as a dataset of their own."""
        return self.base.at(self.index)

    def records(self) -> Records:
        """The m new records as a dataset of their own."""
        return Records(self.X, self.a, self.leaving.y, self.base.domain)

    def neighbor(self, k: int) -> Records:
        """The dataset with replacement ``k`` made."""
        return self.base.replaced(int(self.index[k]), self.X[k], int(self.a[k]))


class Reading(abc.ABC):
    """Sums and maxima over the weights of a neighbor, of which records in any order make up the whole.

    ``beside`` holds arrays (n,), of which :meth:`of` is given the part that belongs to its weights. Where
    records are read in blocks by other processes a reading has to be picklable.
    """

    beside: tuple[Array, ...] = ()

    @abc.abstractmethod
    def of(self, weights: Array, *beside: Array) -> tuple[Array, Array]:
        """Sums (m, s) and maxima (m, t) of weights (m, k) of some records; neither reads ``self.beside``."""

    def alone(self) -> Self:
        """A copy without the arrays beside it, which is sent to whoever makes the pass."""
        alone = copy.copy(self)
        alone.beside = ()
        return alone


@dataclass(frozen=True, eq=False)
class NeighborSolutions:
    """A chunk of m neighbors, the first of them number ``first`` among all. Private where the records are.

    ``radius`` (m,) bounds ``||w_hat - w||_1``, inf where nothing was proved; ``certified`` says whether it is
    within ``tolerance * n``; ``iterations`` counts sweeps, or those of the single solver; ``by_single`` marks
    what the fast path did not certify, which was then solved alone. ``values`` are the weights (m, n), of sum
    n, nan where a neighbor has no solution; or of a reading of them the sums (m, s), the maxima (m, t) and
    the weights of the replaced records (m,).
    """

    first: int
    radius: Array = field(repr=False)
    certified: Mask = field(repr=False)
    iterations: Index = field(repr=False)
    by_single: Mask = field(repr=False)
    values: tuple[Array, ...] = field(repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Claims:
    """Claims of a fast path about m neighbors: ``points`` (m, d) of the models, ``iterations`` (m,).

    ``radius`` (m,) is certified of the l1 error of the weights. ``weights`` makes those (., n) of a slice of
    the neighbors, ``read`` what a reading says of all: sums (m, s), maxima (m, t), and the weights of the
    replaced records (m,).
    """

    points: Array
    radius: Array
    iterations: Index
    weights: Callable[[slice], Array]
    read: Callable[[Reading], tuple[Array, Array, Array]]

    @classmethod
    def held(cls, weights: Array, radius: Array, iterations: Index, points: Array, index: Index) -> Self:
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


def _whole(name: str, values: ArrayLike, limit: int) -> Index:
    index = np.array(values, ndmin=1)
    if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer):
        raise DeclarationError(f"replacements: {name} must be a list of whole numbers")
    if len(index) and not (0 <= int(index.min()) and int(index.max()) < limit):
        raise DeclarationError(f"replacements: {name} must be from 0 to {limit - 1}")
    return index.astype(np.int64)
