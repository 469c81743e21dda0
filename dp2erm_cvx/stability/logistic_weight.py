"""How large the weights of a regularized logistic fit can be."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dp2erm_cvx.stability.universal import overlap_weight

Array = NDArray[np.float64]

#: The maximum of s sigma(-s) is W(1/e), at s = 1 + W(1/e); rounded up.
PEAK_VALUE = 0.27846454276107385
PEAK_AT = 1.0 + PEAK_VALUE
_CELLS = 1000


#: A plan, a fit and an audit ask for the same few.
@lru_cache(maxsize=256)
def largest_logistic_weight(n: int, mu: float, margin: float, trim: float = math.inf) -> float:
    """Upper bound of every weight of Theorem 3-IPW (its w_max refinement, carried over to trimming).

    ``mu = ridge / M^2`` (>= 0), ``margin`` a bound on ``M ||lam||``; weights sum to ``n``.

    With phi(s) = s sigma(-s) and m = M ||lam||, optimality at 0 gives n mu m^2 <= phi(s_j) + sum of the
    other phi(s_i), all |s_i| <= m. As a function of exp(-s), phi is concave for s >= 0 and negative for s <
    0. So the mean of exp(-s) over the others is at least exp(-s_o), s_o the largest s with (n-1) phi(s) +
    phi(s_j) >= n mu max(s, |s_j|)^2, and the weight is at most n f_j / (f_j + (n-1) f_o), f = 1 + exp(-s).
    Trimming at F >= 1 + W(1/e) keeps this: a trimmed record has exp(-s) > F - 1, beyond the maximum of phi,
    where phi falls, so the tangent at exp(-s_o) bounds its phi even when it is read off at F - 1.

    The supremum over s_j is taken over cells, each with its most favorable ends; the cells that may hold it
    are split until they agree to about 1e-4.
    """
    crude = overlap_weight(n, margin, trim)
    if trim < PEAK_AT * (1.0 + 1e-12):
        return crude
    certain = math.log(n) + 40.0
    deepest = min(margin, certain)
    if deepest == certain and _others(n, mu, margin, np.array([-certain]), np.array([-certain]))[1][0]:
        return crude
    top = min(margin, PEAK_AT)
    edge = np.append(np.linspace(-deepest, top, _CELLS + 1), margin)
    low, high = edge[:-1], edge[1:]
    largest = crude
    for _ in range(4):
        above = _weight(n, mu, margin, trim, low, high)
        attained = float(np.max(_weight(n, mu, margin, trim, low, low)))
        largest = float(np.max(above))
        if largest <= attained * (1.0 + 1e-4):
            break
        keep = above >= attained
        part = np.linspace(low[keep], high[keep], 33)
        low, high = part[:-1].ravel(), part[1:].ravel()
    return min(crude, largest)


def _weight(n: int, mu: float, margin: float, trim: float, low: Array, high: Array) -> Array:
    """Bound of the weight for s_j in [low, high]; 0 where no dataset has such a record."""
    others, possible = _others(n, mu, margin, low, high)
    own = np.minimum(1.0 + np.exp(-low), trim)
    other = np.minimum(1.0 + np.exp(-others), trim)
    return np.where(possible, n * own / (own + (n - 1) * other), 0.0)


def _others(n: int, mu: float, margin: float, low: Array, high: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Largest s of the other records for s_j in [low, high], and whether there is any."""
    # phi grows up to its peak, so its largest value on the cell is taken there or at the cell's end
    nearest = np.minimum(high, PEAK_AT)
    own = nearest * expit(-nearest)
    depth = np.maximum(0.0, np.maximum(low, -high))

    def slack(s: Array) -> Array:
        return (n - 1) * s * expit(-s) + own - n * mu * np.maximum(s, depth) ** 2

    def rising(s: Array) -> NDArray[np.bool_]:
        share = expit(-s)
        slope = (n - 1) * share * (1.0 - s * (1.0 - share))
        return np.asarray(slope > np.where(s > depth, 2.0 * n * mu * s, 0.0))

    # slack rises to one peak and falls after it (phi is concave up to s = 2.4 and falls from 1.28 on);
    # beyond s = 45 the weight no longer changes in floating point
    end = np.full_like(low, min(margin, 45.0))
    peak, beyond = np.zeros_like(low), np.minimum(end, PEAK_AT)
    for _ in range(60):
        middle = (peak + beyond) / 2
        up = rising(middle)
        peak, beyond = np.where(up, middle, peak), np.where(up, beyond, middle)
    possible = np.asarray(slack(beyond) >= -1e-9 * n)
    inside = np.where(slack(end) >= 0.0, end, beyond)
    for _ in range(60):
        middle = (inside + end) / 2
        ok = slack(middle) >= 0.0
        inside, end = np.where(ok, middle, inside), np.where(ok, end, middle)
    return end, possible
