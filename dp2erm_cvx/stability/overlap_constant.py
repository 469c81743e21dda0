"""The constant C_2 that turns movement of a logistic fit into movement of its weights."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dp2erm_cvx.stability.logistic_weight import Array
from dp2erm_cvx.stability.one_sided import outward

#: Cells of the search; the bound exceeds the supremum by a few times the width of a cell.
_MASS_CELLS = 20_000


@lru_cache(maxsize=256)
def overlap_constant(low: float, high: float) -> float:
    """Upper bound of ``C_2 = sup 4 E[f (f - 1) c^2] E[1/f]`` (Theorem 3-IPW).

    The supremum is over laws q of f on ``[low, high]`` (1 <= low <= high) and events A, with c = 1 - Q on A
    and -Q off it, Q = q(A). Returns ``inf`` where the square of ``high`` overflows.

    Given Q and the mean of f on A and off it, both expectations are largest when f sits on the two
    endpoints: the variables are Q, alpha = q(high | A) and beta = q(high | not A), and the value is
    4 Q (1-Q) (g + dg ((1-Q) alpha + Q beta)) (u - du (Q alpha + (1-Q) beta)), g = f(f-1), u = 1/f at the low
    end. Swapping A and its complement allows Q <= 1/2; then alpha buys the first factor at a lower price
    than beta, so beta = 0 or alpha = 1, and a concave quadratic in one variable is left. Over a cell
    [Q_k, Q_k+1] every occurrence of Q takes its most favorable end, which makes the result a bound.
    """
    if high > 1e150:
        return math.inf
    edge = np.linspace(0.0, 0.5, _MASS_CELLS + 1)
    below, above = edge[:-1], edge[1:]
    g, g_rise = low * (low - 1.0), high * (high - 1.0) - low * (low - 1.0)
    u, u_fall = 1.0 / low, (high - low) / (low * high)
    only_alpha = _largest_product(g, g_rise * (1.0 - below), u, u_fall * below)
    with_beta = _largest_product(
        g + g_rise * (1.0 - below), g_rise * above, u - u_fall * below, u_fall * (1.0 - above)
    )
    searched = np.max(4.0 * above * (1.0 - above) * np.maximum(only_alpha, with_beta))
    # E[c^2] <= 1/4 and E[1/f] <= 1/low bound the same supremum
    return outward(min(float(searched), high * (high - 1.0) / low))


def _largest_product(first: Array | float, gain: Array, second: Array | float, price: Array) -> Array:
    """Maximum over t in [0, 1] of (first + gain t)(second - price t), all arguments nonnegative."""
    curvature = 2.0 * gain * price
    slope = gain * second - first * price
    t = np.clip(np.divide(slope, curvature, out=np.where(slope > 0, 1.0, 0.0), where=curvature > 0), 0.0, 1.0)
    return np.asarray((first + gain * t) * (second - price * t), dtype=np.float64)
