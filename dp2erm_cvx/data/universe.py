"""The declared set that datasets come from, and its covariates with terms of second degree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import check_settings, chosen_columns, setting
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import DeclarationError, brief


def _a_domain(name: str, value: object) -> Domain:
    """Raise DeclarationError for anything but a domain."""
    if not isinstance(value, Domain):
        raise DeclarationError(f"{name} = {brief(value)}: must be a Domain")
    return value


@dataclass(frozen=True, init=False)
class Universe(MappedUniverse):
    """All datasets of ``n_samples`` records of a domain with ``n_features`` covariates each.

    Programs, steps and bounds read its space and its sizes alone, as of any other mapped universe.

    Parameters
    ----------
    domain
        What one record may look like, and which datasets are neighbors.
    n_samples
        Number of records, at least 2; of persons where they are units, of any number of records.
    n_features
        Number of covariates without the intercept, at least 1.

    Raises
    ------
    DeclarationError
        For anything else.
    """

    space: Space = field(init=False, repr=False, compare=False)
    domain: Domain = setting(check=_a_domain)

    def __init__(self, domain: Domain, n_samples: int, n_features: int) -> None:
        space = _a_domain("domain", domain).space
        declared = {
            "space": space,
            "domain": domain,
            "n_samples": n_samples,
            "n_features": n_features,
        }
        for name, value in declared.items():
            object.__setattr__(self, name, value)
        check_settings(self)
        self._refuse_other_persons()

    def shrunk(self, norm: float) -> Universe:
        """The universe of covariates that are shrunk to this norm, around what scales to 0."""
        space = self.space.shrunk(norm)
        if space is self.space:
            return self
        return replace(self, domain=replace(self.domain, covariate_bound=space.covariate_bound))


#: Columns that may be curved: more of them are more noise than any bend is worth.
MOST = 3
#: Half the range of a square, of a covariate that spreads over a third of half its range.
_SQUARE = 0.5
#: Half the range of a product of two such covariates.
_PRODUCT = 1.0 / 3.0


@dataclass(frozen=True)
class Curves:
    """The terms of second degree that some covariates of a domain get beside them.

    With z scaled to [-1, 1] by its range and around its center these are ``(9 z^2 - 1)/8``, of mean
    0 where z has a standard deviation of 1/3, and ``z_j z_k`` of every two. Each has a range that
    it is clipped to.

    Parameters
    ----------
    domain
        What is declared of the covariates.
    columns
        Numbers of those that get terms.
    """

    domain: Domain
    columns: tuple[int, ...]

    @classmethod
    def of(cls, domain: Domain, chosen: object) -> Curves:
        """Curves of columns by name or number.

        Raises
        ------
        DeclarationError
            Where one has no range of numbers.
        """
        if domain.ranges is None:
            raise DeclarationError("curved: needs declared ranges, which squares are scaled by")
        names = list(domain.columns or ())
        columns = chosen_columns("curved", chosen, names, len(domain.range_pairs))
        if len(columns) > MOST:
            raise DeclarationError(f"curved: {len(columns)} columns: at most {MOST}")
        if names and domain.codebook is not None:
            for index in columns:
                _, level = domain.codebook.origin(names[index])
                if level is not None:
                    raise DeclarationError(f"curved: {names[index]} is 0 or 1, and its own square")
        return cls(domain, tuple(columns))

    def names(self, covariates: Sequence[str]) -> tuple[str, ...]:
        """Names of the terms, squares first, by those of all covariates."""
        curved = [covariates[index] for index in self.columns]
        squares = [f"{name}^2" for name in curved]
        products = [f"{first} x {second}" for first, second in combinations(curved, 2)]
        return (*squares, *products)

    def extended(self) -> Domain:
        """The domain of the covariates and the terms."""
        n_curved = len(self.columns)
        ends = [(-_SQUARE, _SQUARE)] * n_curved
        ends += [(-_PRODUCT, _PRODUCT)] * math.comb(n_curved, 2)
        bound = float(np.hypot(self.domain.covariate_bound, np.sqrt(len(ends))))
        names = self.domain.columns
        if names is None:
            center = self.domain.center
            if center:
                center = (*center, *[0.0] * len(ends))
            ranges = (*self.domain.range_pairs, *ends)
            return replace(self.domain, ranges=ranges, covariate_bound=bound, center=center)
        range_of = dict(zip(names, self.domain.range_pairs, strict=True))
        range_of |= dict(zip(self.names(names), ends, strict=True))
        return replace(self.domain, ranges=range_of, covariate_bound=bound)

    def terms(self, X: NDArray[np.float64]) -> Array:
        """The terms (n, m) of raw covariates X (n, k), row by row."""
        columns = list(self.columns)
        middle = np.array(self.domain.middles(X.shape[1]))[columns]
        low, high = np.array(self.domain.range_pairs).T[:, columns]
        half_width = high / 2 - low / 2
        z = (np.clip(X[:, columns], low, high) - middle) / half_width
        squares = (9.0 * z * z - 1.0) / 8.0
        products = [z[:, j] * z[:, k] for j, k in combinations(range(len(columns)), 2)]
        return np.column_stack([squares, *products])
