"""Whole-number scores of candidates for a quantile, which a private choice takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantile_counts(
    values: NDArray[np.float64], candidates: NDArray[np.float64], *, above: bool
) -> NDArray[np.int64]:
    """How many values (n,) stand for each of the increasing ``candidates`` (m,). Not private.

    Every value stands for the next candidate: above it or below it, the outermost one where there is none.
    Counts of all records are sums of those of any parts of them.
    """
    if above:
        place = np.searchsorted(candidates, values, side="left")
    else:
        place = np.searchsorted(candidates, values, side="right") - 1
    return np.bincount(np.clip(place, 0, len(candidates) - 1), minlength=len(candidates))


def quantile_scores(counts: NDArray[np.int64], rank: int) -> list[int]:
    """Minus the distance, in records, of ``rank`` to the ranks of each candidate. Not private.

    ``counts`` (m,) are those of :func:`quantile_counts`. Candidate c has the ranks from the number of values
    below it to that of values up to it. Replacing one record moves both of these numbers by at most 1, in the
    same direction, and so every score by at most 1.
    """
    up_to = np.cumsum(counts)
    missed = np.maximum(up_to - counts - rank, 0) + np.maximum(rank - up_to, 0)
    return [-int(number) for number in missed]
