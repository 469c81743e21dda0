"""Whether the errors and the least curvature that a loss states are large, or small, enough."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.program import MarginLoss

#: How wrong a margin may be, 0 for what rounds in the loss itself.
_WRONG = (0.0, 1e-12, 1e-6, 1e-2)
_REACHES = (1e-3, 0.1, 1.0)


def understated(loss: MarginLoss, s: Array) -> str:
    """What is wrong about the errors and the least curvature that a loss states at margins s, or nothing.

    Certificates rest on ``slope_error``, ``curvature_error`` and ``least_curvature``.
    """
    for name in ("slope", "curvature"):
        for size in _WRONG:
            if wrong := _understated_error(loss, name, s, size):
                return wrong
    for size in _REACHES:
        least = loss.least_curvature(s, np.full(len(s), size))
        for low, high in ((-1.0, 1.0), (-1.0, -0.5), (-0.5, 0.5), (0.5, 1.0)):
            # just inside, where a curvature that jumps has not jumped yet
            start, end = s + 0.999 * low * size, s + 0.999 * high * size
            between = (loss.slope(end) - loss.slope(start)) / (end - start)
            if not np.all(least <= between + 1e-6 * (1.0 + np.abs(between))):
                return f"least_curvature is more than the curvature within {size:g} of a margin"
    return ""


def _understated_error(loss: MarginLoss, name: str, s: Array, size: float) -> str:
    at = getattr(loss, name)
    stated = getattr(loss, f"{name}_error")(s, np.full(len(s), size))
    if not np.all(stated >= 0.0):
        return f"{name}_error is negative or not a number somewhere"
    true = _extended(at, s)
    for move in (-size, size):
        moved = at(s + move)
        # what s + move rounds by, and what is lost below the extended precision
        slack = 1e-9 * stated + 2.0**-62 * np.abs(moved) + 2.0**-52 * (size > 0.0) * (1.0 + np.abs(s))
        slack = slack * (1.0 + loss.largest_curvature(float(np.max(np.abs(s)))))
        if not np.all(np.abs(moved - true) <= stated + slack):
            return (
                f"{name}_error is less than the error of a computed {name} where the margin is off by "
                f"{size:g}: certificates would claim too much"
            )
    return ""


def _extended(function: Callable[[Array], Array], s: Array) -> Array:
    """In extended precision; in double where the loss cannot do better."""
    try:
        found = np.asarray(function(s.astype(np.longdouble)))
    except TypeError:  # of a compiled function
        return function(s)
    return found if found.dtype == np.longdouble else function(s)
