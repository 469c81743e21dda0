"""Theorem 3-IPW: the bound in closed form for weights from a logistic propensity."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.stability.base import (
    EXACT,
    coupled_variation,
    largest_minimum,
    last_true,
    outward,
    overlap_weight,
    positive_ridge,
    stated_bound,
)

Array = NDArray[np.float64]

#: Cells of the search; the bound exceeds the supremum by a few times the width of a cell.
_MASS_CELLS = 20_000


@lru_cache(maxsize=256)
def overlap_constant(low: float, high: float) -> float:
    """Upper bound of ``C_2 = sup 4 E[f (f - 1) c^2] E[1/f]`` (Theorem 3-IPW); ``inf`` where it overflows.

    Over laws q of f on ``[low, high]`` (1 <= low <= high) and events A, c = 1 - Q on A and -Q off it, Q =
    q(A). Given Q and the mean of f on A and off it, f sits on the endpoints: with alpha = q(high | A) and
    beta = q(high | not A) the value is 4 Q (1-Q) (g + dg ((1-Q) alpha + Q beta)) (u - du (Q alpha + (1-Q)
    beta)), g = f(f-1), u = 1/f at the low end. Swapping A and its complement allows Q <= 1/2; then alpha buys
    the first factor at a lower price, so beta = 0 or alpha = 1, and a concave quadratic in one variable is
    left. On a cell of Q every occurrence takes its most favorable end.
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


#: The maximum of s sigma(-s) is W(1/e), at s = 1 + W(1/e); rounded up.
PEAK_VALUE = 0.27846454276107385
PEAK_AT = 1.0 + PEAK_VALUE
_CELLS = 1000


#: A plan, a fit and an audit ask for the same few.
@lru_cache(maxsize=256)
def largest_logistic_weight(n: int, mu: float, margin: float, trim: float = math.inf) -> float:
    """Upper bound of every weight of Theorem 3-IPW (its w_max refinement, carried over to trimming).

    ``mu = ridge / M^2`` (>= 0), ``margin`` a bound on ``M ||lam||``; weights sum to ``n``. With phi(s) = s
    sigma(-s) and m = M ||lam||, optimality at 0 gives n mu m^2 <= phi(s_j) + sum of the other phi(s_i), all
    |s_i| <= m. As a function of exp(-s), phi is concave for s >= 0 and negative for s < 0, so the mean of
    exp(-s) over the others is at least exp(-s_o), s_o the largest s with (n-1) phi(s) + phi(s_j) >= n mu
    max(s, |s_j|)^2, and the weight at most n f_j / (f_j + (n-1) f_o), f = 1 + exp(-s). Trimming at F >= 1 +
    W(1/e) keeps this: a trimmed record has exp(-s) > F - 1, where phi falls, so the tangent at exp(-s_o)
    bounds its phi even when it is read off at F - 1. The supremum over s_j is taken over cells with their
    most favorable ends; those that may hold it are split until they agree to about 1e-4.
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


def logistic_propensity(
    n: int, covariate_bound: float, ridge: float, radius: float = math.inf, trim: float = math.inf
) -> StabilityBound:
    """Bound for weights from a regularized logistic propensity (Theorem 3-IPW); treatment flips are covered.

    With ``z = (2a - 1) x``, ``||x|| <= covariate_bound`` = M, the coefficient minimizes over ``||lam|| <=
    radius`` the mean of ``log(1 + exp(-<z_i, lam>))`` plus ``(ridge / 2) ||lam||^2``, and ``w_i`` is
    proportional to ``min(1 + exp(-<z_i, lam>), trim)``, trim > 1, with sum ``n``. V is bounded in n and of
    order ``ridge ** -0.5``. Raises DeclarationError for an invalid number and CalibrationError for ``ridge =
    0``.
    """
    n = whole_number("n", n, at_least=2)
    bound = public_number("covariate_bound", covariate_bound, above=0.0)
    ball = public_number("radius", radius, above=0.0, infinite=True)
    cap = public_number("trim", trim, above=1.0, infinite=True)
    # in units where M = 1; a ridge rounded down, even to 0, only enlarges the bound
    mu = min(positive_ridge(ridge) / bound / bound, 1e280)
    margin = min(bound * ball, largest_margin(mu))

    low = 1.0 + math.exp(-margin)
    high = 1.0 + math.exp(min(margin, 700.0))
    w_max = largest_logistic_weight(n, mu, margin, cap)
    if cap <= low:
        law_change = 0.0
    else:
        law_change = logistic_law_change(n, mu, margin, overlap_constant(low, min(high, cap)))
    V = coupled_variation(n, w_max, law_change)
    return stated_bound(n, V, w_max, "Theorem 3-IPW", (f"covariate norm at most {bound:g}", EXACT))


def largest_margin(mu: float) -> float:
    """Bound on ``M ||lam||`` from the ridge alone; ``mu = ridge / M^2``.

    The optimality condition at 0 gives mu m^2 <= max over |s| <= m of s sigma(-s), m the margin.
    """
    if mu == 0.0:
        return math.inf
    if mu * PEAK_AT > expit(-PEAK_AT):
        end = min(PEAK_AT, 0.5 / mu)
        return outward(last_true(lambda m: mu * m <= float(expit(-m)), 0.0, end))
    return outward(math.sqrt(PEAK_VALUE / mu))


def logistic_diameter(margin: float) -> float:
    """``D_psi / M``: diameter bound of ``{sigma(-<z, lam>) z : ||z|| <= M}`` where ``M ||lam|| <= margin``.

    In units of M the maximum over phi of 2 cos(phi) sigma(margin sin(phi)), whose logarithm is concave: the
    sign change of its derivative brackets the maximizer, and each factor takes its larger end.
    """
    if margin > 1e15:
        return 2.0

    def still_rising(phi: float) -> bool:
        return math.tan(phi) <= margin * math.cos(phi) * float(expit(-margin * math.sin(phi)))

    above = last_true(still_rising, 0.0, math.pi / 2)
    below = max(0.0, above - 1e-12)
    return min(2.0, outward(2.0 * math.cos(below) * float(expit(margin * math.sin(above)))))


def logistic_law_change(n: int, mu: float, margin: float, constant: float) -> float:
    """Bound on ``||q - q'||_1``, the laws on the common records: ell of Theorem 3-IPW.

    Maximizes over the movement delta of the coefficient (units of 1/M, at most 2 margin) the smaller of ``2
    tanh(D delta / 4)`` and ``sqrt(C (D delta / n - mu delta^2))``, C = ``constant`` n/(n-1).
    """
    diameter = logistic_diameter(margin)
    inflated = constant * n / (n - 1)
    reach = diameter / n / mu if mu > 0.0 else math.inf
    end = min(reach, 2.0 * margin)
    if not math.isfinite(end) or not math.isfinite(inflated):
        return 2.0 * math.tanh(diameter * end / 4.0)

    def by_range(delta: float) -> float:
        return 2.0 * math.tanh(diameter * delta / 4.0)

    def by_curvature(delta: float) -> float:
        return math.sqrt(inflated * delta * max(0.0, diameter / n - mu * delta))

    return largest_minimum(by_range, by_curvature, reach / 2.0, end)
