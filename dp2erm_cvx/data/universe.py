"""The public set that datasets come from, and its covariates with terms of second degree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import check_settings, chosen_columns, setting, whole_number
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.privacy import Neighboring

#: Rows of a table of persons at most, by which rounding errors are bounded: their number is not public.
MOST_ROWS = 2**40


@dataclass(frozen=True)
class Universe:
    """All datasets of ``n_samples`` records of a domain with ``n_features`` covariates each.

    Parameters
    ----------
    domain
        What one record may look like, and which datasets are neighbors.
    n_samples
        Number of records, at least 2; of persons where they are units, of any number of records.
    n_features
        Number of covariates without the intercept, at least 1.

    Raises DeclarationError for anything else.
    """

    domain: Domain
    n_samples: int = setting(check=whole_number, at_least=2)
    n_features: int = setting(check=whole_number, at_least=1)

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise DeclarationError(f"domain = {brief(self.domain)}: must be a Domain")
        check_settings(self)
        if self.domain.units not in (None, self.n_samples):
            raise DeclarationError(
                f"n_samples = {self.n_samples}: the domain declares {self.domain.units} persons"
            )

    @property
    def n_columns(self) -> int:
        """Number of columns of ``Records.X``, the intercept included."""
        return self.n_features + (1 if self.domain.intercept else 0)

    @property
    def widths(self) -> tuple[float, ...] | None:
        """The bound on every column of ``Records.X``, the intercept included; None where none is declared."""
        own = self.domain.widths(self.n_features)
        return None if own is None else (*filter(None, [self.domain.intercept]), *own)

    def shrunk(self, norm: float) -> Universe:
        """The universe of covariates that are shrunk radially to this norm, around what scales to 0."""
        if norm >= self.domain.features_bound * (1.0 - 1e-12):
            return self
        bound = math.hypot(self.domain.intercept, norm)
        return replace(self, domain=replace(self.domain, covariate_bound=bound))

    def examples(self) -> Iterator[Records]:
        """Public records all over the domain, with arms of one size, and then records alike but for arms."""
        domain, n, k = self.domain, self.n_samples, self.n_features
        rng = np.random.default_rng(k)
        widths = domain.widths(k) or (np.inf,) * k
        inside = np.minimum(widths, domain.features_bound / np.sqrt(k)) * rng.uniform(-1, 1, (n, k))
        y = domain.outcome_bound * rng.uniform(-1, 1, n)
        for X, outcomes in ((inside, y), (np.zeros((n, k)), np.zeros(n))):
            rows = np.hstack([np.full((n, 1), domain.intercept), X]) if domain.intercept else X
            yield Records(rows, np.arange(n) % 2, outcomes, domain)

    @property
    def most_rows(self) -> int:
        """Rows that a table has at most: n; of persons what no memory holds more of."""
        return self.n_samples if self.domain.units is None else MOST_ROWS

    @property
    def mass(self) -> float:
        """Mean weight of records, by public guesses, see :attr:`~dp2erm_cvx.data.domain.Domain.mass`."""
        return self.domain.mass

    @property
    def flips(self) -> bool:
        """True if the treatment of the replaced record may change."""
        return self.domain.relation is Neighboring.REPLACE_ONE


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
