"""Sampling weights of a survey: how many of the population a record stands for, within a public bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import one_line, public_number, public_size
from dp2erm_cvx.tables import numbers_or_nan

#: What every release by sampling weights rests on: the guarantee is about records, weights included.
OWN_RECORD = "a sampling weight is part of its own record: nothing about the other records has entered it"


@dataclass(frozen=True)
class SamplingWeights:
    """The column of the sampling weights, and their public bound.

    Estimates are then of the population in which a record counts by its weight s. It enters as the factor
    ``s / largest`` in [0, 1] on losses and scores (Theorem 13), so that only the ratio ``largest / mean``
    matters for the noise, not the unit of the weights.

    Parameters
    ----------
    column
        Its name.
    largest
        S > 0: a weight beyond it counts as S, a negative one as 0.
    missing
        In [0, S]: what a cell counts as that is no finite number. The default 0 leaves that record out.
    mean
        In (0, S]: a public guess of what the weights average to, 1 for those that are normalized. It is for
        predictions and default settings; no guarantee rests on it.

    Raises DeclarationError naming the entry.
    """

    column: str
    largest: float
    missing: float = 0.0
    mean: float = 1.0

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "column", one_line("sampling_weights: column", self.column))
        put(self, "largest", public_size("sampling_weights: largest", self.largest))
        put(self, "missing", public_number("sampling_weights: missing", self.missing, at_least=0.0))
        put(self, "mean", public_number("sampling_weights: mean", self.mean, above=0.0))
        for name in ("missing", "mean"):
            if getattr(self, name) > self.largest:
                raise DeclarationError(
                    f"sampling_weights: {name} = {getattr(self, name):g}: must be at most "
                    f"largest = {self.largest:g}"
                )
        if not self.mass > 0.0:  # which noise is predicted to grow by
            raise DeclarationError(f"sampling_weights: mean = {self.mean:g}: is nothing beside largest")

    @property
    def mass(self) -> float:
        """Mean factor, by the public guess of the mean weight."""
        return self.mean / self.largest

    def of(self, cells: Any) -> NDArray[np.float64]:
        """The weights (n,) of the cells of the column, in [0, S], each by itself."""
        found = numbers_or_nan(cells, self.column)
        return np.clip(np.where(np.isnan(found), self.missing, found), 0.0, self.largest)

    def factors(self, weights: ArrayLike) -> NDArray[np.float64]:
        """Factors in [0, 1] of records with these ``weights`` (n,); what is no number counts as missing."""
        values = np.asarray(weights, dtype=np.float64)
        inside = np.clip(np.where(np.isnan(values), self.missing, values), 0.0, self.largest)
        # the quotient of two numbers, one of them no larger, rounds to at most 1
        found: NDArray[np.float64] = inside / self.largest
        return found

    def told(self) -> str:
        """The public rule in words."""
        lost = "does not count" if not self.missing else f"counts as {self.missing:g}"
        return (
            f"{self.column} is a sampling weight from 0 to {self.largest:g}, and one that is missing {lost}"
        )


def refuse_sampling(weights: SamplingWeights | None, what: str) -> None:
    """Raise DeclarationError where sampling weights are declared, which ``what`` cannot take."""
    if weights is not None:
        raise DeclarationError(
            f"sampling_weights: {what}; leave them out of the domain to estimate for the sample itself, or "
            "use PrivateEffect or PrivateRule (dp2erm effect, dp2erm rule)"
        )
