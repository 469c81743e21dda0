"""Replaced records, as values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DeclarationError


@dataclass(frozen=True, eq=False)
class Replacements:
    """m neighbors of ``base``: record ``index[k]`` becomes ``(X[k], a[k])``; its outcome stays.

    ``index`` is (m,) in 0..n-1, ``X`` (m, p) holds rows of the universe as in ``Records.X`` (intercept column
    included), ``a`` (m,) treatments in {0, 1}. Raises DeclarationError for shapes or values outside of these.
    """

    base: Records
    index: NDArray[np.int64]
    X: Array
    a: NDArray[np.int64]

    def __init__(self, base: Records, index: ArrayLike, X: ArrayLike, a: ArrayLike) -> None:
        put = object.__setattr__
        put(self, "base", base)
        put(self, "index", _whole("index", index, base.n_samples))
        put(self, "a", _whole("a", a, 2))
        put(self, "X", np.array(X, dtype=np.float64, ndmin=2))
        self._check()

    def _check(self) -> None:
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


def _whole(name: str, values: ArrayLike, limit: int) -> NDArray[np.int64]:
    given = np.array(values, ndmin=1)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
        raise DeclarationError(f"replacements: {name} must be a list of whole numbers")
    if len(given) and not (0 <= int(given.min()) and int(given.max()) < limit):
        raise DeclarationError(f"replacements: {name} must be from 0 to {limit - 1}")
    return given.astype(np.int64)
