"""Where things stand on the pictures of a page: in percent of its width, so that it fits any screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dp2erm_cvx.release.story import Span


def picture(spans: Sequence[Span], caption: str) -> dict[str, Any] | None:
    """Spans over an axis that holds 0 and every finite end, and what a page draws: None beyond doubles.

    ``drawn`` has each span with its left end, dot and right end in percent, ``ticks`` places and labels,
    ``zero`` the place of 0.
    """
    ends = [0.0, *(end for span in spans for end in (span.at, span.low, span.high) if end is not None)]
    low, high = min(ends), max(ends)
    if not spans or not math.isfinite(4.0 * high - 4.0 * low) or high - low < 1e-300:
        return None
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return round(100.0 * (value - low) / (high - low), 3)

    drawn = tuple(
        (
            span,
            0.0 if span.low is None else place(span.low),
            place(span.at),
            100.0 if span.high is None else place(span.high),
        )
        for span in spans
    )
    ticks = [(place(tick), f"{tick:.4g}") for tick in _round_numbers(low, high) if 4.0 < place(tick) < 96.0]
    return {"drawn": drawn, "ticks": ticks, "zero": place(0.0), "caption": caption}


def bars(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float, float]]:
    """For each value on an axis centered at 0: where its bar and its noise start and end, in percent."""
    drawn = [(row["value"] or 0.0, row.get("noise_half_width") or 0.0) for row in rows]
    largest = max((abs(value) + noise for value, noise in drawn), default=0.0)
    if not 0.0 < largest < 1e300:
        return [(50.0, 50.0, 50.0, 50.0)] * len(rows)

    def place(value: float) -> float:
        return round(50.0 + 48.0 * value / largest, 3)

    return [
        (place(min(value, 0.0)), place(max(value, 0.0)), place(value - noise), place(value + noise))
        for value, noise in drawn
    ]


def _round_numbers(low: float, high: float) -> list[float]:
    """Four to eight multiples of 1, 2 or 5 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 4.0))
    step = next(unit * size for size in (1, 2, 5, 10) if (high - low) / (unit * size) <= 5.0)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [step * number + 0.0 for number in range(first, last + 1)]
