"""Sums in blocks with a bound on their error, and weights whose sum has none."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dp2erm_cvx.arrays import UNIT, Array

_BLOCK = 128
#: Rows whose terms stay in the cache of a processor from one sum to the next: a power of 2 of them.
CACHED = 2**12
_FEW = 2**9


def blocked_rmatvec(X: Array, v: Array) -> Array:
    """The product ``X.T @ v`` for X (n, d) and v (n,), in blocks of rows.

    Each entry is within ``sum_error(n) * |X|.T @ |v|``, in whatever order a library adds within a
    block (Higham, Accuracy and Stability, 3.5).
    """
    in_blocks = len(X) // _BLOCK * _BLOCK
    if in_blocks == 0:
        within: Array = X.T @ v
        return within
    factors = v[:in_blocks].reshape(-1, 1, _BLOCK)
    blocks = X[:in_blocks].reshape(-1, _BLOCK, X.shape[1])
    products = np.matmul(factors, blocks)[:, 0, :]
    if in_blocks < len(X):
        rest = v[in_blocks:] @ X[in_blocks:]
        products = np.vstack([products, rest])
    return _pairwise(products)


def sum_error(n: int) -> float:
    """Relative error of :func:`blocked_rmatvec` over n rows, relative to the sum of magnitudes."""
    within_block = min(n, _BLOCK) + 1
    pairs = max(1, int(np.ceil(np.log2(max(n / _BLOCK, 1.0) + 1))))
    operations = within_block + pairs + 1
    return operations * UNIT / (1 - operations * UNIT)


def compensated_sum(terms: Array) -> tuple[Array, Array]:
    """The sum over the first axis of ``terms`` (n, ...) as the rounded one, and what it lost.

    Added pairwise, each addition with its exact error (Knuth's two-sum); errors are added in any
    order. The parts together are within ``2 n log2(2 n) UNIT^2`` of the sum, relative to that of
    magnitudes, where nothing overflows.
    """
    high = terms
    low = np.zeros_like(terms[:1])[0]
    while len(high) > 1:
        half = len(high) // 2
        first = high[:half]
        second = high[half : 2 * half]
        total = first + second
        back = total - first
        lost = (first - (total - back)) + (second - back)
        low = low + np.sum(lost, axis=0)
        if len(high) % 2:
            total = np.concatenate([total, high[2 * half :]])
        high = total
    return high[0], low


def rounded_sum(parts: Sequence[tuple[Array, Array]]) -> Array:
    """The sum of compensated ones, rounded once but for a share of UNIT."""
    high, low = compensated_sum(np.array([part[0] for part in parts]))
    total: Array = high + (low + np.sum([part[1] for part in parts], axis=0))
    return total


def weighted_total(rows: Array | None, weights: Array | None = None) -> tuple[Array, Array] | None:
    """The compensated sum of rows (n, d), times ``weights`` (n,) if there are any; None of none."""
    if rows is None:
        return None
    return compensated_sum(rows if weights is None else weights[:, None] * rows)


def noisy_sum(parts: Sequence[tuple[Array, Array] | None], noise: Array | None) -> Array | None:
    """The sum of compensated ones and of noise, rounded once; None where there is neither."""
    present = [part for part in parts if part is not None]
    if not present:
        return noise
    return rounded_sum(present if noise is None else [*present, (noise, np.zeros_like(noise))])


def exact_sum(terms: Array) -> float:
    """The sum of ``terms`` (n,), rounded once but for a share of UNIT."""
    return float(rounded_sum([compensated_sum(terms)]))


def column_sums(X: Array) -> Array:
    """The sums (d,) of the columns of X (n, d), as :func:`blocked_rmatvec` adds them."""
    return blocked_rmatvec(X, np.ones(len(X)))


def weighted_gram(X: Array, w: Array) -> Array:
    """``X.T @ diag(w) @ X`` for X (n, d), w (n,) within :func:`product_error` and one unit more."""
    d = X.shape[1]
    total = np.zeros((d, d))
    for begin in range(0, len(X), _FEW):
        part = X[begin : begin + _FEW]
        total += (part.T * w[begin : begin + _FEW]) @ part
    return total


def product_error(n: int) -> float:
    """Relative error of an entry of ``A.T @ B`` over n rows, added in any order whatever."""
    return (n + 2) * UNIT / (1 - (n + 2) * UNIT)


def _pairwise(rows: Array) -> Array:
    while len(rows) > 1:
        half = len(rows) // 2
        paired = rows[:half] + rows[half : 2 * half]
        rows = np.vstack([paired, rows[2 * half :]]) if len(rows) % 2 else paired
    total: Array = rows[0]
    return total


#: Weights are multiples of 2^-30, so that n of them up to 8 million add up exactly in doubles.
_EXPONENT = 30


def grid_error(n: int) -> float:
    """What the step to the grid moves n weights in the l1 norm, over n.

    It is beyond what their sum is off.

    Each is rounded by at most half a step, and what these roundings add up to goes to the largest
    weight.
    """
    return math.ldexp(1.0, 1 - grid_exponent(n))


def grid_exponent(n: int) -> int:
    """The q of the grid ``2^-q`` that n weights are put on."""
    return min(_EXPONENT, 52 - math.ceil(math.log2(n)))


def weights_on_grid(weights: Array) -> tuple[Array, float]:
    """Nonnegative multiples of ``2^-30`` near weights (n,), of sum n exactly, and the l1 distance.

    The theorems assume weights of equal sums on both datasets; here the sum is n on every dataset:
    what is no finite nonnegative number counts as 0, a vector without any weight as uniform, and
    the remainder goes to the largest weight. Beyond 8 million records the grid is coarser.
    """
    n = len(weights)
    unit = math.ldexp(1.0, grid_exponent(n))
    sound = np.where(np.isfinite(weights) & (weights > 0), weights, 0.0)
    with np.errstate(over="ignore"):
        total = float(np.sum(sound / n))
    if not abs(total - 1.0) <= 1e-9:
        # no solution of any program: scaled, or else uniform
        sound = sound / total if 1e-200 < total < 1e200 else np.ones(n)
    steps = np.rint(np.minimum(sound, n) * unit).astype(np.int64)
    remainder = n * int(unit) - int(steps.sum())
    while remainder:
        largest = int(np.argmax(steps))
        moved = max(remainder, -int(steps[largest]))
        steps[largest] += moved
        remainder -= moved
    rounded: Array = steps / unit
    with np.errstate(over="ignore", invalid="ignore"):
        distance = float(np.sum(np.abs(rounded - weights))) * (1 + 2 * n * UNIT)
    return rounded, distance
