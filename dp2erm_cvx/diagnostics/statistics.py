"""Checks of what diagnostics are given, and the statistics that they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def effective_sample_size(weights: ArrayLike) -> float:
    """(sum w)^2 / sum w^2 (Kish 1965) of (n,) nonnegative weights; 0 where no weight is positive.

    Raises DataError where a weight is negative or not finite.
    """
    unit = scaled(nonnegative(weights))
    return float(np.sum(unit) ** 2 / np.sum(unit**2)) if unit.any() else 0.0


def scaled(weight: Array) -> Array:
    """The weights in units of the largest, so that no sum or square of them over- or underflows."""
    largest = float(np.max(weight, initial=0.0))
    return weight / largest if largest > 0 else weight


def mean(X: Array, w: Array) -> Array:
    """Weighted means (p,) of X (n, p); nan where there is no weight."""
    total = np.sum(w)
    return w @ X / total if total > 0 else np.full(X.shape[1], np.nan)


def variance(X: Array, w: Array) -> Array:
    """Weighted variances (p,) of X (n, p); nan where the weight is on fewer than two records.

    With u = w / sum w this is sum_i u_i (x_i - m)^2 / (1 - sum_i u_i^2): unbiased where weights say how
    reliable a record is, the usual n - 1 for equal ones, and what cobalt divides by.
    """
    held = w > 0
    X, w = X[held], w[held]
    undefined = np.full(X.shape[1], np.nan)
    if len(X) < 2:
        return undefined
    unit = w / np.sum(w)
    rest = 1.0 - float(unit @ unit)
    if rest < 1e-12:  # all but rounding is on one record
        return undefined
    found: Array = unit @ (X - unit @ X) ** 2 / rest
    # rounding of the mean would leave a constant column a little variance
    return np.where(np.ptp(X, axis=0) == 0, 0.0, found)


def ks_distance(X: Array, w: Array, v: Array) -> Array:
    """Kolmogorov-Smirnov distances (p,): the largest difference of the ECDFs of X under w and under v.

    nan where one of them has no weight.
    """
    totals = np.sum(w), np.sum(v)
    if min(totals) <= 0:
        return np.full(X.shape[1], np.nan)
    order = np.argsort(X, axis=0, kind="stable")
    values = np.take_along_axis(X, order, axis=0)
    gap = np.abs(np.cumsum((w / totals[0] - v / totals[1])[order], axis=0))
    # within a run of equal values neither ECDF is defined before the last of them
    last = np.vstack([values[1:] != values[:-1], np.zeros((1, X.shape[1]), dtype=bool)])
    largest: Array = np.max(np.where(last, gap, 0.0), axis=0)
    return np.minimum(largest, 1.0)
