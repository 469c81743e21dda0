"""Whole-number scores of candidates for a quantile, which a private choice takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantile_scores(
    values: NDArray[np.float64], candidates: NDArray[np.float64], rank: int, *, above: bool
) -> list[int]:
    """Minus the distance, in records, of ``rank`` to the ranks of each candidate. Not private.

    Every value (n,) stands for the next candidate of the increasing ``candidates`` (m,): above it or below
    it, the outermost one where there is none. Candidate c has the ranks from the number of values below it
    to that of values up to it. Replacing one record moves both of these numbers by at most 1, in the same
    direction, and so every score by at most 1.
    """
    if above:
        place = np.searchsorted(candidates, values, side="left")
    else:
        place = np.searchsorted(candidates, values, side="right") - 1
    counts = np.bincount(np.clip(place, 0, len(candidates) - 1), minlength=len(candidates))
    up_to = np.cumsum(counts)
    missed = np.maximum(up_to - counts - rank, 0) + np.maximum(rank - up_to, 0)
    return [-int(number) for number in missed]
