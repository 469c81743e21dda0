"""The declaration that records are public."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import one_line


@dataclass(frozen=True, eq=False, repr=False)
class PublicData:
    """The user's declaration that these records are public and disjoint from the private data.

    Parameters
    ----------
    X, a, y
        (N, k) covariates, (N,) treatments in {0, 1} and (N,) outcomes, in the units of the private data.
    source
        One line of text that says where the records come from; the result repeats it.

    Nobody can check the declaration. A person who is in both data sets is not protected by the release.
    Raises DeclarationError for a missing source, DataError for invalid data.
    """

    X: ArrayLike
    a: ArrayLike
    y: ArrayLike
    source: str = field(kw_only=True)
    columns: tuple[str, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "source", one_line("source", self.source))
        dataset = Dataset.from_arrays(self.X, self.a, self.y)
        put(self, "columns", None if getattr(self.X, "columns", None) is None else dataset.columns)
        for name in ("X", "a", "y"):
            put(self, name, getattr(dataset, name).copy())  # kept for long, whatever becomes of the caller's

    def __repr__(self) -> str:
        return f"PublicData(source={self.source!r}, n_samples={np.shape(self.a)[0]})"

    def within(self, domain: Domain) -> Dataset:
        """The records with the columns of the domain. Raises DeclarationError where they differ."""
        dataset = Dataset.from_arrays(self.X, self.a, self.y, self.columns or domain.columns)
        if domain.columns not in (None, dataset.columns):
            raise DeclarationError(
                f"the domain declares the columns {', '.join(domain.columns or ())}; "
                f"the public data have {', '.join(dataset.columns)}"
            )
        return dataset
