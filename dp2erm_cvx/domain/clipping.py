"""Arrays clipped to what is declared: in every number, and in the norm of every row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: An array of double precision.
Array = NDArray[np.float64]

#: Bounds of the universe lie between this and its inverse, so that products of several stay finite.
LARGEST = 1e30

#: Relative slack that keeps a clipped norm at or below its bound in floating point.
_SLACK = 1.0 - 1e-12


def cleaned(values: Array, bound: float | Array) -> Array:
    """``values`` clipped to ``[-bound, bound]``; what is no number counts as 0."""
    clipped: Array = np.clip(np.where(np.isnan(values), 0.0, values), -bound, bound)
    return clipped


def clip_norm(X: Array, bound: float) -> Array:
    """Shrink each row (..., k) radially so that its Euclidean norm is at most ``bound``."""
    largest = np.max(np.abs(X), axis=-1, keepdims=True, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    unit = X / safe
    length = np.linalg.norm(unit, axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        norm = safe * length
    # a norm that rounds to the bound may exceed it: clip from just below
    outside = norm > bound * (1.0 - 5e-13)
    divisor = np.where(outside, length, 1.0)
    return np.where(outside, unit * (bound * _SLACK / divisor), X)
