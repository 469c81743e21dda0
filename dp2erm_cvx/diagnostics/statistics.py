"""The statistics that diagnostics share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.diagnostics.checks import Array, nonnegative


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
