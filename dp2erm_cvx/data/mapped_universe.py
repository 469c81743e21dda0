"""All datasets of mapped records of one space.

Programs, steps and their bounds know nothing else of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import check_settings, setting, whole_number
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.privacy import Neighboring

#: Rows of a table of persons at most, by which rounding errors are bounded: their number is not
#: public.
MOST_ROWS = 2**40


@dataclass(frozen=True)
class MappedUniverse:
    """All datasets of ``n_samples`` mapped records in one space.

    Each record has ``n_features`` covariates.

    Parameters
    ----------
    space
        The bounds that hold for every record, and which datasets are neighbors.
    n_samples
        Number of records, at least 2; of persons where they are units, of any number of records.
    n_features
        Number of covariates without the intercept, at least 1.

    Raises
    ------
    DeclarationError
        For anything else.
    """

    space: Space
    n_samples: int = setting(check=whole_number, at_least=2)
    n_features: int = setting(check=whole_number, at_least=1)

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space):
            raise DeclarationError(f"space = {brief(self.space)}: must be a Space")
        check_settings(self)
        self._refuse_other_persons()

    def _refuse_other_persons(self) -> None:
        """Raise DeclarationError unless n is the number of persons, where they are units."""
        if self.space.units not in (None, self.n_samples):
            raise DeclarationError(
                f"n_samples = {self.n_samples}: the domain declares {self.space.units} persons"
            )

    @property
    def n_columns(self) -> int:
        """Number of columns of ``Records.X``, the intercept included."""
        return self.n_features + (1 if self.space.intercept else 0)

    @property
    def widths(self) -> tuple[float, ...] | None:
        """The bound on every column of ``Records.X``, the intercept included; None without any."""
        widths = self.space.widths(self.n_features)
        if widths is None or not self.space.intercept:
            return widths
        return (self.space.intercept, *widths)

    def within(self, space: Space) -> MappedUniverse:
        """As many records with as many covariates in another space."""
        return MappedUniverse(space, self.n_samples, self.n_features)

    def shrunk(self, norm: float) -> MappedUniverse:
        """As many records, with covariates that are shrunk radially to this norm."""
        space = self.space.shrunk(norm)
        if space is self.space:
            return self
        return self.within(space)

    def examples(self) -> Iterator[Records]:
        """Public records all over the space, with arms of one size; then such without covariates.

        Records of the second kind are alike but for their arms.
        """
        space = self.space
        n = self.n_samples
        k = self.n_features
        rng = np.random.default_rng(k)
        widths = space.widths(k) or (np.inf,) * k
        largest = np.minimum(widths, space.features_bound / np.sqrt(k))
        covariates = largest * rng.uniform(-1, 1, (n, k))
        outcomes = space.outcome_bound * rng.uniform(-1, 1, n)
        yield self._example(covariates, outcomes)
        yield self._example(np.zeros((n, k)), np.zeros(n))

    def _example(self, covariates: Array, outcomes: Array) -> Records:
        """Records with these covariates (n, k) and outcomes (n,), every other one treated."""
        n = self.n_samples
        if self.space.intercept:
            covariates = np.hstack([np.full((n, 1), self.space.intercept), covariates])
        return Records(covariates, np.arange(n) % 2, outcomes, self.space)

    @property
    def most_rows(self) -> int:
        """Rows that a table has at most: n; of persons what no memory holds more of."""
        return self.n_samples if self.space.units is None else MOST_ROWS

    @property
    def mass(self) -> float:
        """Mean weight of records, by public guesses, see :class:`~dp2erm_cvx.data.space.Space`."""
        return self.space.mean_count

    @property
    def flips(self) -> bool:
        """True if the treatment of the replaced record may change."""
        return self.space.relation is Neighboring.REPLACE_ONE
