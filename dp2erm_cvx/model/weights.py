"""Computed weights on a public grid, where their sum is n without any rounding."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import UNIT

#: Weights are multiples of 2^-30, so that n of them up to 8 million add up exactly in doubles.
_EXPONENT = 30
#: What the step to the grid moves weights in the l1 norm, relative to n, up to 8 million records.
GRID_ERROR = 2.0 ** (1 - _EXPONENT)


def weights_on_grid(weights: Array) -> tuple[Array, float]:
    """Nonnegative multiples of ``2^-30`` near ``weights`` (n,) whose sum is exactly n, and the l1 distance.

    The theorems assume weights of equal sums on both datasets; here the sum is n on every dataset, whatever
    was computed: what is no finite nonnegative number counts as 0, and a vector without any weight as
    uniform.
    The remainder goes to the largest weight. Beyond 8 million records the grid is coarser.
    """
    n = len(weights)
    exponent = min(_EXPONENT, 52 - math.ceil(math.log2(n)))
    unit = math.ldexp(1.0, exponent)
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
    found: Array = steps / unit
    with np.errstate(over="ignore", invalid="ignore"):
        distance = float(np.sum(np.abs(found - weights))) * (1 + 2 * n * UNIT)
    return found, distance
