"""The public set that datasets come from: what every bound of a plan is about."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.public import check_settings, setting, whole_number

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
        """Mean weight of records, by public guesses, see :attr:`~dp2erm_cvx.domain.Domain.mass`."""
        return self.domain.mass

    @property
    def flips(self) -> bool:
        """True if the treatment of the replaced record may change."""
        return self.domain.relation is Neighboring.REPLACE_ONE
