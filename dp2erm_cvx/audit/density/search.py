"""A search for the largest log density ratio of two output laws: many starts, then steps uphill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dp2erm_cvx.audit.density.law import Law, Place, log_ratio
from dp2erm_cvx.domain import Array

#: The best starts that are improved, per direction and region.
ASCENTS = 4
_EVALUATIONS = 120  # per coordinate and ascent


@dataclass(frozen=True)
class Peak:
    """The largest ratio that was met beyond its ``error``, and where.

    ``place`` is None where the region holds no point that was met.
    """

    ratio: float
    error: float
    place: Place | None

    @property
    def certain(self) -> float:
        """The ratio less its error."""
        return self.ratio - self.error


#: Nothing was met.
NOWHERE = Peak(-np.inf, 0.0, None)


def largest_ratio(one: Law, other: Law, starts: list[Array], *, regular: bool) -> Peak:
    """Largest log ratio of ``one`` over ``other`` met; ``regular`` keeps to where theta determines v."""
    best = NOWHERE

    def height(u: Array) -> float:
        nonlocal best
        place = one.place(u)
        if regular and not place.regular:
            return -np.inf
        ratio = log_ratio(one, other, place)
        if ratio > best.certain:
            # far out, a ratio can be larger by nothing but its rounding
            found = Peak(ratio, one.error(place) + other.error(place), place)
            best = found if found.certain > best.certain else best
        return ratio

    heights = np.array([height(u) for u in starts])
    for index in np.argsort(-heights)[:ASCENTS]:
        if np.isfinite(heights[index]):
            _climb(height, starts[index], one.units)
    return best


def _climb(height: Callable[[Array], float], start: Array, units: Array) -> None:
    # a simplex, because the ratio jumps where Pi does and has kinks where a noise vanishes
    p = len(start)
    reach = 0.1 * (float(np.linalg.norm(start / units)) + 1.0) * units
    simplex = np.vstack([start, start + np.diag(reach)])
    limits: Any = {"initial_simplex": simplex, "maxfev": _EVALUATIONS * p, "xatol": 1e-9, "fatol": 1e-9}

    def depth(u: Array) -> float:
        return min(-height(u), 1e300)

    minimize(depth, start, method="Nelder-Mead", options=limits)
