"""Second-degree terms of a few named columns: squares and products, each a public function of its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import chosen_columns

#: Columns that may be curved: more of them are more noise than any bend is worth.
MOST = 3
#: Half the ranges of the terms, of covariates that spread over a third of half their range.
_SQUARE, _PRODUCT = 0.5, 1.0 / 3.0


@dataclass(frozen=True)
class Curves:
    """The terms that the covariates of a ``domain`` get beside them, of the ``columns`` of these numbers.

    With z scaled to [-1, 1] by its range and around its center: ``(9 z^2 - 1)/8``, of mean 0 where z has a
    standard deviation of 1/3, and ``z_j z_k`` of every two. Each has a range that it is clipped to.
    """

    domain: Domain
    columns: tuple[int, ...]

    @classmethod
    def of(cls, domain: Domain, chosen: object) -> Curves:
        """Curves of columns by name or number. Raises DeclarationError where one has no range of numbers."""
        if domain.ranges is None:
            raise DeclarationError("curved: needs declared ranges, which squares are scaled by")
        names = list(domain.columns or ())
        columns = chosen_columns("curved", chosen, names, len(domain.range_pairs))
        if len(columns) > MOST:
            raise DeclarationError(f"curved: {len(columns)} columns: at most {MOST}")
        for index in columns if names else ():
            if domain.codebook is not None and domain.codebook.origin(names[index])[1] is not None:
                raise DeclarationError(f"curved: {names[index]} is 0 or 1, and its own square")
        return cls(domain, tuple(columns))

    def names(self, known: Sequence[str]) -> tuple[str, ...]:
        """Names of the terms, squares first."""
        own = [known[index] for index in self.columns]
        return (*(f"{name}^2" for name in own), *(f"{a} x {b}" for a, b in combinations(own, 2)))

    def extended(self) -> Domain:
        """The domain of the covariates and the terms."""
        known = self.domain.columns
        ends = [(-_SQUARE, _SQUARE)] * len(self.columns)
        ends += [(-_PRODUCT, _PRODUCT)] * (len(self.columns) * (len(self.columns) - 1) // 2)
        bound = float(np.hypot(self.domain.covariate_bound, np.sqrt(len(ends))))
        if known is None:
            center = self.domain.center and (*self.domain.center, *(0.0 for _ in ends))
            ranges = (*self.domain.range_pairs, *ends)
            return replace(self.domain, ranges=ranges, covariate_bound=bound, center=center)
        named = dict(zip(known, self.domain.range_pairs, strict=True))
        return replace(
            self.domain, ranges=named | dict(zip(self.names(known), ends, strict=True)), covariate_bound=bound
        )

    def terms(self, X: NDArray[np.float64]) -> Array:
        """The terms (n, m) of raw covariates X (n, k), row by row."""
        middle = np.array(self.domain.middles(X.shape[1]))[list(self.columns)]
        low, high = np.array(self.domain.range_pairs).T[:, list(self.columns)]
        half = high / 2 - low / 2
        z = (np.clip(X[:, list(self.columns)], low, high) - middle) / half
        products = [z[:, i] * z[:, j] for i, j in combinations(range(len(self.columns)), 2)]
        return np.column_stack([(9.0 * z * z - 1.0) / 8.0, *products])
