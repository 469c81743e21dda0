"""What stability bounds share: checks of what is declared, searches from one side, and the tilt lemma."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.public import one_of, public_number

BOTH_RELATIONS = frozenset(Neighboring)
EXACT = "the weights are those of the exact minimizer"
#: Relative margin for the rounding of a bound's own arithmetic, which is orders of magnitude smaller.
ROUNDING = 1e-10


@dataclass(frozen=True)
class Cells:
    """Intervals [low, high] that cover a range of numbers."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


def sample_size(n: int, *, name: str = "n", at_least: int = 2) -> int:
    """Check a whole number of records; raises DeclarationError below ``at_least``."""
    try:
        whole = operator.index(n)
    except TypeError:
        whole = -1
    if isinstance(n, bool) or whole < at_least:
        raise DeclarationError(f"{name} = {n!r}: must be a whole number of at least {at_least}")
    return whole


def positive_ridge(ridge: float) -> float:
    """Check a ridge; raises CalibrationError at 0, where these bounds do not exist."""
    number = public_number("ridge", ridge, at_least=0.0)
    if number == 0.0:
        raise CalibrationError(
            "ridge = 0: without strong convexity one record can move the weights arbitrarily; "
            "declare a positive ridge"
        )
    return number


def declared_floor(n: int, arm_floor: int | None, at_least: int = 1) -> int:
    """A public floor on both arm sizes; raises CalibrationError without one, DeclarationError beyond n/2."""
    if arm_floor is None:
        raise CalibrationError(
            "arm_floor is not declared: this program depends on the arm sizes, which are private; declare a "
            "public floor on both arm sizes"
        )
    floor = sample_size(arm_floor, name="arm_floor", at_least=at_least)
    if 2 * floor > n:
        raise DeclarationError(f"arm_floor = {arm_floor}: must be at most n/2 = {n / 2:g}")
    return floor


def treatment_may_flip(relation: Neighboring) -> bool:
    """Whether neighbors may differ in a treatment. Raises DeclarationError on an unknown relation."""
    return one_of("relation", relation, Neighboring) is Neighboring.REPLACE_ONE


def outward(value: float) -> float:
    """Add the rounding margin to a nonnegative bound."""
    return value * (1.0 + ROUNDING)


def last_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Upper end of a bracket around the last point of [low, high] where ``holds``, or ``high``.

    ``holds`` must be true up to some point and false from there on.
    """
    if holds(high):
        return high
    for _ in range(200):
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return high


def largest_minimum(
    rising: Callable[[float], float], humped: Callable[[float], float], peak: float, end: float
) -> float:
    """Upper bound of ``sup over [0, end] of min(rising, humped)``.

    ``rising`` does not decrease; ``humped`` does not decrease up to ``peak`` nor increase after it, so that
    only [min(peak, end), end] matters; there the supremum lies at their crossing, of which the upper end of
    the bracket is used.
    """
    start = min(peak, end)
    if rising(start) >= humped(start):
        return humped(start)
    if start == end:
        return rising(end)
    return rising(last_true(lambda point: rising(point) <= humped(point), start, end))


def largest_weight(n: int, log_ratio: float) -> float:
    """Largest of ``n`` positive weights summing to ``n`` whose logs range over ``log_ratio`` >= 0.

    ``n / (1 + (n - 1) exp(-log_ratio))``; attained by one large weight among equal small ones.
    """
    return n / (1.0 + (n - 1) * math.exp(-log_ratio))


def coupled_variation(n: int, w_max: float, law_change: float) -> float:
    """``min(2 n, 2 w_max + (n - w_max) law_change)``.

    ``law_change`` in [0, 2] bounds ``||q - q'||_1`` of the laws that the weights induce on the n - 1 common
    records, ``w_max`` both weights of the changed record. (With p = w/n and p_j >= p'_j: sum over the common
    records of |p_i - p'_i| <= (1 - p_j) ||q - q'||_1 + p_j - p'_j.) ``2 n`` bounds V of any two nonnegative
    weight vectors with sum n.
    """
    return min(2.0 * n, 2.0 * w_max + (n - min(w_max, n)) * law_change)


def tilt_lemma(n: int, log_change_range: float, w_max: float) -> float:
    """Bound V for weights ``w_i`` proportional to ``exp(h_i)`` whose logs move (tilt lemma).

    ``2 w_max + 2 (n - w_max) tanh(kappa / 2)``, at most ``2 n``: ``log_change_range`` = 2 kappa bounds the
    range of ``h_i - h'_i`` over the common records, ``w_max`` both weights of the changed one. Raises
    DeclarationError.
    """
    n = sample_size(n)
    spread = public_number("log_change_range", log_change_range, at_least=0.0, infinite=True)
    weight = public_number("w_max", w_max, above=0.0)
    return coupled_variation(n, weight, 2.0 * math.tanh(spread / 4.0))


def stated_bound(
    n: int, V: float, w_max: float, theorem: str, assumptions: tuple[str, ...]
) -> StabilityBound:
    """Put a computed bound into a statement, rounded outward and capped at its universal values."""
    return StabilityBound(
        V=min(2.0 * n, outward(V)),
        theorem=theorem,
        assumptions=assumptions,
        relations=BOTH_RELATIONS,
        w_max=min(float(n), outward(w_max)),
    )
