"""Numerical searches whose result is never below the exact value."""

from __future__ import annotations

from collections.abc import Callable

#: Relative margin for the rounding of a bound's own arithmetic, which is orders of magnitude smaller.
ROUNDING = 1e-10


def outward(value: float) -> float:
    """Add the rounding margin to a nonnegative bound."""
    return value * (1.0 + ROUNDING)


def last_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Upper end of a bracket around the last point of [low, high] where ``holds``.

    ``holds`` must be true up to some point and false from there on. Returns ``high`` if it holds there.
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

    ``rising`` must not decrease; ``humped`` must not decrease up to ``peak`` nor increase after it.
    Before the peak the minimum of both does not decrease, so only [min(peak, end), end] matters;
    there the supremum lies at their crossing, of which the upper end of the bracket is used.
    """
    start = min(peak, end)
    if rising(start) >= humped(start):
        return humped(start)
    if start == end:
        return rising(end)
    return rising(last_true(lambda point: rising(point) <= humped(point), start, end))
