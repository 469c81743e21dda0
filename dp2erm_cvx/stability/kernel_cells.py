"""Ranges of arm sizes over which the bound for MMD weights is maximized."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_EXACT = 2**14


@dataclass(frozen=True)
class Cells:
    """Intervals [low, high] of whole numbers, as floats."""

    low: Array
    high: Array


def size_cells(first: int, last: int) -> Cells:
    """Cells that cover the sizes first, ..., last of one arm; each size its own up to a few thousand.

    Beyond, sizes are grouped by ratio from both ends, because the bound varies with the ratio of the size
    of the smaller arm.
    """
    if last - first < _EXACT:
        size = np.arange(first, last + 1, dtype=np.float64)
        return Cells(size, size)
    middle = (first + last) // 2
    up = np.unique(np.rint(np.geomspace(first, middle, _EXACT)))
    down = first + last + 1 - up[::-1]
    low = np.unique(np.concatenate([up, down[down > middle]]))
    low = low[low <= last]
    return Cells(low, np.append(low[1:] - 1, float(last)))
