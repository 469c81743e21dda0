"""Records inside a domain, held in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.blocks import VIEW, ArrayBlocks, Blocks, whole
from dp2erm_cvx.domain.clipping import Array

if TYPE_CHECKING:
    from dp2erm_cvx.domain.domain import Domain

T = TypeVar("T")

#: A number (n,) of every record by itself.
NumbersOf = Callable[["Records"], Array]
#: Other records, each made of one by itself.
Make = Callable[["Records"], "Records"]


@dataclass(frozen=True)
class Records:
    """Records inside a domain: what both stages compute on.

    ``X`` is (n, p) with row norms at most ``domain.covariate_bound`` (its first column is the
    intercept where the domain declares one), ``a`` is (n,) in {0, 1}, ``y`` is (n,) and already
    centered, so ``|y| <= domain.outcome_bound``. ``sampling`` (n,) holds sampling weights over their
    bound, in [0, 1]; None where all records count alike.
    """

    X: Array
    a: NDArray[np.int64]
    y: Array
    domain: Domain
    sampling: Array | None = None

    def __post_init__(self) -> None:
        # whatever reads records must not be able to move them out of the universe
        for name in ("X", "a", "y", *([] if self.sampling is None else ["sampling"])):
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    def __repr__(self) -> str:
        # the records are private
        return f"Records(n_samples={self.n_samples})"

    @property
    def n_samples(self) -> int:
        """Number of records."""
        return len(self.a)

    @property
    def n_features(self) -> int:
        """Number of covariates without the intercept."""
        return int(self.X.shape[1]) - (1 if self.domain.intercept else 0)

    @property
    def counts(self) -> Array:
        """What every record counts (n,), in [0, 1]: its sampling weight over the bound, or 1."""
        return np.ones(self.n_samples) if self.sampling is None else self.sampling

    @property
    def covariates(self) -> Array:
        """The (n, p) covariates without the intercept column."""
        return self.X[:, 1:] if self.domain.intercept else self.X

    @property
    def blocks(self) -> Blocks[Records]:
        """Views of these records."""
        arrays = (self.X, self.a, self.y, *([] if self.sampling is None else [self.sampling]))
        return ArrayBlocks(arrays).then(partial(_records, self.domain))

    def mapped(self, make: Make, outcomes: NumbersOf, domain: Domain, n_columns: int) -> Records:
        """What ``make`` makes of every record with its ``outcomes`` (n,): n_columns columns in ``domain``.

        Outcomes are held.
        """
        return make(Records(self.X, self.a, self.each(outcomes), self.domain, self.sampling))

    def each(self, function: Callable[[Records], Array]) -> Array:
        """The numbers (n,) that ``function`` makes of every record by itself."""
        return np.concatenate(self.rows(function).each())

    def rows(self, function: Callable[[Records], T]) -> Blocks[T]:
        """What ``function`` makes of every record by itself: held, or of many made in every pass."""
        n = self.n_samples
        return whole(function(self), n) if n <= VIEW else self.blocks.then(function)


def _records(domain: Domain, arrays: Sequence[NDArray[Any]]) -> Records:
    X, a, y, *sampling = arrays
    return Records(X, a, y, domain, *sampling)
