"""Few features of a kernel, with a proved bound of what they lack.

No matrix of all pairs of records is formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import scipy

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.weighting.forms.features import KernelOfRecords

#: What a diagonal entry may lack after the last pivot, of the largest one.
_UNEXPLAINED = 1e-12
#: Largest error of a similarity, of the largest one, that features are used for: a public number.
SIMILARITY_ERROR = 2e-10
#: Records whose errors are measured at a time, so that a part of all features stays in the cache.
_RECORDS = 2048
#: Pivots that are summed at a time.
_BLOCK = 32
#: The same where an error is a sum of measured parts, each of which may be small beside another.
_MEASURED = 1.0 + 1e-6


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
    n_features = kernel.n_features(X.shape[1])
    if n_features is not None and n_features <= most:
        features = _own_features(kernel, X, diagonal, entry_units)
    else:
        factored = _pivoted(kernel, X, most, diagonal)
        if factored is None:
            return None
        features = _measured(factored, diagonal, entry_units)
    if not float(np.max(features.entry_errors)) <= SIMILARITY_ERROR * largest:
        return None
    return features


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
    features = kernel.features(X)

    def of_features(pivot: int) -> Array:
        return np.asarray(features @ features[pivot])

    return of_features


@dataclass(frozen=True)
class _Factored:
    """A pivoted Cholesky factor of the kernel of n records.

    Parameters
    ----------
    factor
        The factor (r, n), whose columns are the features of the records. There is one row per
        pivot, so that records stand side by side in memory.
    columns
        Columns (r, n) of the kernel at the pivots.
    pivots
        The r pivots.
    """

    factor: Array
    columns: Array
    pivots: list[int]


def _pivoted(kernel: KernelOfRecords, X: Array, most: int, diagonal: Array) -> _Factored | None:
    """A pivoted Cholesky factor; None where it takes too many pivots."""
    n = len(X)
    column_of = _columns_of(kernel, X)
    largest = float(np.max(diagonal))
    remainder = diagonal.copy()
    factor = np.zeros((most, n))
    columns = np.zeros((most, n))
    pivots: list[int] = []
    while float(np.max(remainder)) > _UNEXPLAINED * largest:
        if len(pivots) == most:
            return None
        pivot = int(np.argmax(remainder))
        done = len(pivots)
        columns[done] = column_of(pivot)
        unexplained = columns[done] - factor[:done, pivot] @ factor[:done]
        factor[done] = unexplained / np.sqrt(remainder[pivot])
        # Earlier pivots have nothing left but rounding.
        factor[done, pivots] = 0.0
        remainder -= np.square(factor[done])
        np.maximum(remainder, 0.0, out=remainder)
        remainder[pivot] = 0.0
        pivots.append(pivot)
    rank = len(pivots)
    return _Factored(factor[:rank], columns[:rank], pivots)


@dataclass(frozen=True)
class _Parts:
    """Measured parts of the error of an entry, of m records (Theorem 35).

    Parameters
    ----------
    sums
        Sums S_i (m,) of the sizes of the coefficients, ``|c_i|_1``.
    across
        Bounds alpha_i (m,) of ``|<phi_k, psi_i>|`` over all pivots k.
    remainders
        Bounds rho_i (m,) of ``|psi_i|``.
    lengths
        Bounds (m,) of ``|f_i|``.
    distances
        Bounds delta_i (m,) of ``|f_i - sum_k c_ik f_k|``.
    """

    sums: Array
    across: Array
    remainders: Array
    lengths: Array
    distances: Array

    @classmethod
    def joined(cls, parts: list[_Parts]) -> _Parts:
        """The parts of all records, in their order."""
        joined = {}
        for field in fields(cls):
            joined[field.name] = np.concatenate([getattr(part, field.name) for part in parts])
        return cls(**joined)


def _measured(factored: _Factored, diagonal: Array, entry_units: float) -> FewFeatures:
    """The features of a factor, with the measured error of their products.

    Any coefficients c_i write the feature of the kernel as ``phi_i = sum_k c_ik phi_k + psi_i``
    over the pivots k. What that leaves is computed from the columns (r, n) of the pivots, and so is
    the distance of f_i from ``sum_k c_ik f_k``. The bound is the sum of all products of the parts
    (Theorem 35).
    """
    factor = factored.factor
    pivots = factored.pivots
    units = _product_units(len(pivots))
    largest = float(np.max(diagonal))
    entry_error = entry_units * UNIT * largest
    triangle = factor[:, pivots].T
    pivot_kernel = factored.columns[:, pivots]
    # What an entry is off, and what it adds to the rounding of a sum of products over the pivots.
    term_error = entry_error + units * UNIT * largest
    chunks = []
    for begin in range(0, len(diagonal), _RECORDS):
        chunk = slice(begin, begin + _RECORDS)
        chunks.append(
            _parts(
                factor[:, chunk],
                factored.columns[:, chunk],
                triangle,
                pivot_kernel,
                diagonal[chunk],
                term_error,
            )
        )
    parts = _Parts.joined(chunks)
    longest = float(np.max(parts.lengths))
    # gamma bounds |K_kl - <f_k, f_l>| over the pivots k and l.
    gamma = float(np.max(np.abs(pivot_kernel - _products(triangle, triangle.T))))
    gamma += entry_error + units * UNIT * longest**2
    # S_i alpha_j + alpha_i S_j + rho_i rho_j + S_i S_j gamma + delta_i |f_j|
    # + (|f_i| + delta_i) delta_j, where the worst record j stands beside every record i.
    largest_sum = float(np.max(parts.sums))
    farthest = float(np.max(parts.distances))
    errors = parts.sums * float(np.max(parts.across)) + parts.across * largest_sum
    errors += parts.remainders * float(np.max(parts.remainders))
    errors += parts.sums * largest_sum * gamma
    errors += parts.distances * (longest + farthest) + farthest * (parts.lengths + parts.distances)
    return FewFeatures(np.ascontiguousarray(factor.T), errors * _MEASURED)


def _parts(
    factor: Array,
    columns: Array,
    triangle: Array,
    pivot_kernel: Array,
    diagonal: Array,
    term_error: float,
) -> _Parts:
    """Parts of m records.

    Parameters
    ----------
    factor, columns
        Columns (r, m) of the factor, and of the kernel at the pivots.
    triangle
        Features (r, r) of the pivots.
    pivot_kernel
        Kernel (r, r) of the pivots.
    diagonal
        Diagonal entries (m,) of the kernel.
    term_error
        Bound of the error of an entry of the kernel in a sum of products over the pivots.
    """
    rank = len(pivot_kernel)
    units = _product_units(rank) * UNIT
    coefficients = scipy.linalg.solve_triangular(triangle, factor, lower=True, trans="T")
    sums = np.sum(np.abs(coefficients), axis=0) * (1.0 + 2.0 * rank * UNIT)
    entry_errors = (1.0 + sums) * term_error
    # <phi_k, psi_i> = K_ki - sum_l K_kl c_il.
    left = np.abs(columns - _products(pivot_kernel, coefficients))
    across = np.max(left, axis=0) + entry_errors
    # |psi_i|^2 = K_ii - sum_k c_ik K_ki - sum_k c_ik <phi_k, psi_i>.
    squares = np.maximum(diagonal - _inner_products(coefficients, columns), 0.0)
    squares = squares + entry_errors + sums * across
    lengths = np.sqrt(_inner_products(factor, factor)) * (1.0 + units)
    # f_i - sum_k c_ik f_k.
    differences = factor - _products(triangle.T, coefficients)
    distances = np.sqrt(_inner_products(differences, differences)) * (1.0 + units)
    pivot_length = math.sqrt(float(np.max(np.sum(np.square(triangle), axis=1)))) * ROUND_UP
    distances += units * (lengths + sums * pivot_length)
    return _Parts(sums, across, np.sqrt(squares), lengths, distances)


def _product_units(rank: int) -> float:
    """Units of roundoff of the sum of sizes for a sum of products over so many pivots."""
    return min(rank, _BLOCK) + math.ceil(rank / _BLOCK) + 4.0


def _products(first: Array, second: Array) -> Array:
    """The product (k, m) of (k, r) and (r, m), summed in blocks of pivots, which rounds less."""
    total = first[:, :_BLOCK] @ second[:_BLOCK]
    for begin in range(_BLOCK, len(second), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        total += first[:, block] @ second[block]
    return np.asarray(total)


def _inner_products(first: Array, second: Array) -> Array:
    """Inner products (m,) of the columns of two matrices (r, m), summed in blocks of pivots."""
    total = np.einsum("ij,ij->j", first[:_BLOCK], second[:_BLOCK])
    for begin in range(_BLOCK, len(second), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        total += np.einsum("ij,ij->j", first[block], second[block])
    return np.asarray(total)
