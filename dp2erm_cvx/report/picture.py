"""Where things stand on the pictures of a page: in percent of its width, so that it fits any screen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """An interval to draw: ``low`` and ``high`` are None where it is unbounded, ``at`` is its estimate.

    ``wide`` is for the interval itself, the others are parts of it.
    """

    name: str
    at: float
    low: float | None
    high: float | None
    wide: bool = True

    @classmethod
    def around(cls, name: str, at: float, half: float | None) -> Span:
        """A part of an interval."""
        low, high = (None, None) if half is None else (at - half, at + half)
        return cls(name, at, low, high, wide=False)


@dataclass(frozen=True)
class Placed:
    """A span on the picture: from ``left`` to ``right``, its estimate at ``dot``, all in percent."""

    span: Span
    left: float
    right: float
    dot: float


@dataclass(frozen=True)
class Picture:
    """Spans over one axis: ``ticks`` are places with labels, ``zero`` is the place of 0."""

    drawn: tuple[Placed, ...]
    ticks: tuple[tuple[float, str], ...]
    zero: float
    caption: str


def picture(spans: Sequence[Span], caption: str) -> Picture | None:
    """Spans over an axis that holds 0 and every finite end; None where they do not fit doubles."""
    ends = [0.0, *(end for one in spans for end in (one.at, one.low, one.high) if end is not None)]
    low, high = min(ends), max(ends)
    if not spans or not math.isfinite(4.0 * high - 4.0 * low) or high - low < 1e-300:
        return None
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return round(100.0 * (value - low) / (high - low), 3)

    drawn = tuple(
        Placed(
            one,
            0.0 if one.low is None else place(one.low),
            100.0 if one.high is None else place(one.high),
            place(one.at),
        )
        for one in spans
    )
    ticks = tuple((place(value), f"{value:.4g}") for value in _round_numbers(low, high))
    return Picture(drawn, tuple(one for one in ticks if 4.0 < one[0] < 96.0), place(0.0), caption)


def bars(values: Sequence[float], widths: Sequence[float | None]) -> list[tuple[float, float, float, float]]:
    """For each number on an axis centered at 0: where its bar starts and ends, and its noise, in percent."""
    reach = [abs(value) + (width or 0.0) for value, width in zip(values, widths, strict=True)]
    largest = max(reach, default=0.0)
    if not 0.0 < largest < 1e300:
        return [(50.0, 50.0, 50.0, 50.0)] * len(values)

    def place(value: float) -> float:
        return round(50.0 + 48.0 * value / largest, 3)

    return [
        (place(min(value, 0.0)), place(max(value, 0.0)), place(value - noise), place(value + noise))
        for value, noise in zip(values, (width or 0.0 for width in widths), strict=True)
    ]


def _round_numbers(low: float, high: float) -> list[float]:
    """Four to eight multiples of 1, 2 or 5 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 4.0))
    step = next(unit * size for size in (1, 2, 5, 10) if (high - low) / (unit * size) <= 5.0)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [step * number + 0.0 for number in range(first, last + 1)]
