"""Few features of a kernel, with a proved bound of what they lack.

No matrix of all pairs of records is formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.weighting.forms.features import KernelOfRecords

#: What a diagonal entry may lack after the last pivot, of the largest one.
_LEFT = 1e-12
#: Largest error of a similarity, of the largest one, that features are used for: a public number.
SIMILARITY_ERROR = 2e-10
#: Records whose errors are measured at a time, so that a part of all features stays in the cache.
_RECORDS = 2048
#: Pivots that are summed at a time.
_BLOCK = 32


@dataclass(frozen=True)
class FewFeatures:
    """Features (n, r) whose inner products are the kernel, up to a proved error.

    Parameters
    ----------
    values
        The features of all records (n, r).
    entry_errors
        Bounds (n,) of ``|K(x_i, x_j) - <f_i, f_j>|`` over all records j, in units of the kernel.
    """

    values: Array
    entry_errors: Array


def few_features(
    kernel: KernelOfRecords, X: Array, most: int, entry_units: float
) -> FewFeatures | None:
    """Features of a kernel: its own where they are few, else by a pivoted Cholesky factor.

    Parameters
    ----------
    kernel
        The kernel.
    X
        Covariates (n, p).
    most
        Public number of features that are tried.
    entry_units
        Units of roundoff of ``sqrt(K_ii K_jj)`` by which an entry of the kernel, also of a product
        of its own features, may be off.

    Returns
    -------
    FewFeatures or None
        None where the public number of features does not reach a public error.
    """
    diagonal = kernel.diagonal(X)
    largest = float(np.max(diagonal, initial=0.0))
    if largest <= 0.0:
        return FewFeatures(np.zeros((len(X), 0)), np.zeros(len(X)))
    count = kernel.n_features(X.shape[1])
    if count is not None and count <= most:
        found = _own_features(kernel, X, diagonal, entry_units)
    else:
        pivoted = _pivoted(kernel, X, most, diagonal)
        if pivoted is None:
            return None
        found = _measured(*pivoted, diagonal, entry_units)
    if not float(np.max(found.entry_errors)) <= SIMILARITY_ERROR * largest:
        return None
    return found


def _own_features(
    kernel: KernelOfRecords, X: Array, diagonal: Array, entry_units: float
) -> FewFeatures:
    """The features that define a kernel; an entry is off by the rounding of their product."""
    values = np.ascontiguousarray(kernel.features(X))
    units = entry_units + values.shape[1] + 4.0
    sizes = np.sqrt(np.maximum(diagonal, 0.0))
    return FewFeatures(values, units * UNIT * sizes * float(np.max(sizes)) * ROUND_UP)


def _columns_of(kernel: KernelOfRecords, X: Array) -> Callable[[int], Array]:
    """The function from a record to its column (n,) of the kernel."""
    if kernel.n_features(X.shape[1]) is None:

        def of_kernel(pivot: int) -> Array:
            return np.asarray(kernel.cross(X[pivot : pivot + 1], X)[0])

        return of_kernel
    own = kernel.features(X)

    def of_features(pivot: int) -> Array:
        return np.asarray(own @ own[pivot])

    return of_features


def _pivoted(
    kernel: KernelOfRecords, X: Array, most: int, diagonal: Array
) -> tuple[Array, Array, list[int]] | None:
    """A pivoted Cholesky factor (r, n), the columns of its pivots (r, n) and the pivots.

    It is None for too many.

    There is one row per pivot, so that records stand side by side in memory.
    """
    n = len(X)
    column_of = _columns_of(kernel, X)
    largest = float(np.max(diagonal))
    left = diagonal.copy()
    factor = np.zeros((most, n))
    columns = np.zeros((most, n))
    pivots: list[int] = []
    while float(np.max(left)) > _LEFT * largest:
        if len(pivots) == most:
            return None
        pivot = int(np.argmax(left))
        done = len(pivots)
        columns[done] = column_of(pivot)
        rest = columns[done] - factor[:done, pivot] @ factor[:done]
        factor[done] = rest / np.sqrt(left[pivot])
        # Earlier pivots have nothing left but rounding.
        factor[done, pivots] = 0.0
        left -= np.square(factor[done])
        np.maximum(left, 0.0, out=left)
        left[pivot] = 0.0
        pivots.append(pivot)
    rank = len(pivots)
    return factor[:rank], columns[:rank], pivots


@dataclass(frozen=True)
class _Parts:
    """Measured parts of the error of an entry, of m records (Theorem 35).

    Parameters
    ----------
    sums
        Sums (m,) of the sizes of the coefficients, ``|c_i|_1``.
    across
        Bounds (m,) of ``|<phi_k, psi_i>|`` over all pivots k.
    remainders
        Bounds (m,) of ``|psi_i|``.
    lengths
        Bounds (m,) of ``|f_i|``.
    distances
        Bounds (m,) of ``|f_i - sum_k c_ik f_k|``.
    """

    sums: Array
    across: Array
    remainders: Array
    lengths: Array
    distances: Array


def _measured(
    factor: Array, columns: Array, pivots: list[int], diagonal: Array, entry_units: float
) -> FewFeatures:
    """The features of a factor (r, n), with the measured error of their products.

    Any coefficients c_i write the feature of the kernel as ``phi_i = sum_k c_ik phi_k + psi_i``
    over the pivots k. What that leaves is computed from the columns (r, n) of the pivots, and so is
    the distance of f_i from ``sum_k c_ik f_k``. The bound is the sum of all products of the parts
    (Theorem 35).
    """
    n = len(diagonal)
    units = _product_units(len(pivots))
    largest = float(np.max(diagonal))
    entry = entry_units * UNIT * largest
    triangle = factor[:, pivots].T
    among = columns[:, pivots]
    # What an entry is off, and what it adds to the rounding of a sum of products over the pivots.
    off = entry + units * UNIT * largest
    parts = []
    for begin in range(0, n, _RECORDS):
        some = slice(begin, begin + _RECORDS)
        parts.append(
            _parts(factor[:, some], columns[:, some], triangle, among, diagonal[some], off)
        )
    sums = np.concatenate([part.sums for part in parts])
    across = np.concatenate([part.across for part in parts])
    remainders = np.concatenate([part.remainders for part in parts])
    lengths = np.concatenate([part.lengths for part in parts])
    distances = np.concatenate([part.distances for part in parts])
    longest = float(np.max(lengths))
    farthest = float(np.max(distances))
    apart = float(np.max(np.abs(among - _products(triangle, triangle.T))))
    apart += entry + units * UNIT * longest**2
    # Every error is that of the worst record j beside record i.
    errors = sums * float(np.max(across)) + across * float(np.max(sums))
    errors += remainders * float(np.max(remainders))
    errors += sums * float(np.max(sums)) * apart
    errors += distances * (longest + farthest) + farthest * (lengths + distances)
    return FewFeatures(np.ascontiguousarray(factor.T), errors * (1.0 + 1e-6))


def _parts(
    factor: Array, columns: Array, triangle: Array, among: Array, diagonal: Array, off: float
) -> _Parts:
    """Parts of m records, from columns (r, m) of the factor and of the kernel at pivots.

    ``triangle`` (r, r) are the features of the pivots and ``among`` (r, r) their kernel; ``off``
    bounds the error of an entry of the kernel in a sum of products over the pivots.
    """
    units = _product_units(len(among)) * UNIT
    coefficients = scipy.linalg.solve_triangular(triangle, factor, lower=True, trans="T")
    sums = np.sum(np.abs(coefficients), axis=0) * (1.0 + 2.0 * len(among) * UNIT)
    across = np.max(np.abs(columns - _products(among, coefficients)), axis=0) + (1.0 + sums) * off
    # |psi_i|^2 = <phi_i, psi_i> - sum_k c_ik <phi_k, psi_i>.
    own = diagonal - _inner_products(coefficients, columns)
    squares = np.maximum(own, 0.0) + (1.0 + sums) * off + sums * across
    lengths = np.sqrt(_inner_products(factor, factor)) * (1.0 + units)
    pivot_length = math.sqrt(float(np.max(np.sum(np.square(triangle), axis=1)))) * ROUND_UP
    apart = factor - _products(triangle.T, coefficients)
    distances = np.sqrt(_inner_products(apart, apart)) * (1.0 + units)
    distances += units * (lengths + sums * pivot_length)
    return _Parts(sums, across, np.sqrt(squares), lengths, distances)


def _product_units(rank: int) -> float:
    """Units of roundoff of the sum of sizes for a sum of products over so many pivots."""
    return min(rank, _BLOCK) + math.ceil(rank / _BLOCK) + 4.0


def _products(left: Array, right: Array) -> Array:
    """``left right`` (k, m) of (k, r) and (r, m), summed in blocks of pivots, which rounds less."""
    total = left[:, :_BLOCK] @ right[:_BLOCK]
    for begin in range(_BLOCK, len(right), _BLOCK):
        some = slice(begin, begin + _BLOCK)
        total += left[:, some] @ right[some]
    return np.asarray(total)


def _inner_products(left: Array, right: Array) -> Array:
    """Inner products (m,) of the columns of two matrices (r, m), summed in blocks of pivots."""
    total = np.einsum("ij,ij->j", left[:_BLOCK], right[:_BLOCK])
    for begin in range(_BLOCK, len(right), _BLOCK):
        some = slice(begin, begin + _BLOCK)
        total += np.einsum("ij,ij->j", left[some], right[some])
    return np.asarray(total)
