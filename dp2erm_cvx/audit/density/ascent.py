"""Where two laws differ most, searched from many starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dp2erm_cvx.audit.density.law import Outputs, ReleaseLaw, log_ratio, regular
from dp2erm_cvx.domain import Array

#: The best starts that are improved, per direction and region.
ASCENTS = 4
_EVALUATIONS = 120  # per coordinate and ascent


@dataclass(frozen=True)
class Peak:
    """The largest ratio that was met beyond its ``error``, and where.

    ``outputs`` is None where the region holds no point that was met.
    """

    ratio: float
    error: float
    outputs: Outputs | None

    @property
    def certain(self) -> float:
        """The ratio less its error."""
        return self.ratio - self.error


#: Nothing was met.
NOWHERE = Peak(-np.inf, 0.0, None)


def largest_ratio(one: ReleaseLaw, other: ReleaseLaw, starts: list[Array], *, inside: bool) -> Peak:
    """Largest log ratio of ``one`` over ``other`` met; ``inside`` keeps to where theta determines v."""
    best = NOWHERE

    def height(u: Array) -> float:
        nonlocal best
        outputs = one.place(u)
        if inside and not regular(outputs):
            return -np.inf
        ratio = log_ratio(one, other, outputs)
        if ratio > best.certain:
            # far out, a ratio can be larger by nothing but its rounding
            found = Peak(ratio, one.error(outputs) + other.error(outputs), outputs)
            best = found if found.certain > best.certain else best
        return ratio

    heights = np.array([height(u) for u in starts])
    for index in np.argsort(-heights)[:ASCENTS] if one.dimension else ():
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
