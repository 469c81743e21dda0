"""What every diagnostic asks of its arrays, and the words that its tables share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.errors import DataError
from dp2erm_cvx.tables import as_array

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: The arms in the order of a = 0, 1.
ARMS = ("control", "treated")

#: Stands in the first line of every text of this package.
NOT_PRIVATE = "not private: for the data holder only"


def numbers(values: Any, name: str) -> Array:
    """The values as float64 of any shape; DataError where they are no numbers."""
    array = as_array(values, name)
    # numpy would turn dates into counts and complex numbers into their real parts
    if array.dtype.kind not in "buifO":
        raise DataError(f"{name}: must hold numbers")
    try:
        with np.errstate(over="ignore"):
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{name}: must hold numbers") from None


def same_length(shape: str, **arrays: Array) -> None:
    """DataError unless X is (n, p), every other array is (n,), and there are records."""
    given = list(arrays.values())
    n = given[0].shape[0] if given[0].ndim else 0
    right = [array.ndim == (2 if name == "X" else 1) and len(array) == n for name, array in arrays.items()]
    if not all(right):
        names, shapes = list(arrays), [str(array.shape) for array in given]
        raise DataError(f"{_listed(names)} have shapes {_listed(shapes)}: must be {shape}")
    if n == 0:
        raise DataError(f"{_listed(list(arrays))} hold no records")


def finite(values: Array, name: str) -> Array:
    """The values; DataError at the first that is nan or infinite."""
    return _all(np.isfinite(values), values, name, "finite")


def nonnegative(weights: Any, name: str = "weights") -> Array:
    """Weights of any shape; DataError at the first that is negative or not finite."""
    weight = numbers(weights, name)
    return _all(np.isfinite(weight) & (weight >= 0), weight, name, "finite and at least 0")


def probabilities(values: Array, name: str) -> Array:
    """The values; DataError at the first outside [0, 1]."""
    return _all((values >= 0) & (values <= 1), values, name, "in [0, 1]")


def arms(a: Array) -> tuple[Mask, Mask]:
    """(n,) masks of the controls and of the treated; DataError at the first a that is neither 0 nor 1."""
    _all((a == 0) | (a == 1), a, "a", "0 or 1")
    return a == 0, a == 1


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line per row: the first column to the left, the others to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _all(fine: Mask, values: Array, name: str, must: str) -> Array:
    wrong = np.argwhere(~fine)
    if len(wrong):
        place = tuple(int(k) for k in wrong[0])
        raise DataError(f"{name}[{', '.join(map(str, place))}] = {values[place]}: must be {must}")
    return values


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
