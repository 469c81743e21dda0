"""The Gaussian mechanism of a public sensitivity: the privacy profile of Balle and Wang (2018), inverted."""

from __future__ import annotations

import math

from scipy import special

#: Relative accuracy asked of scaled complementary error functions, far above what they are computed to.
_ROUNDING = 1e-13
_ROUND_UP = 1.0 + 1e-9


def analytic_delta(ratio: float, epsilon: float) -> float:
    """Upper bound on the delta of Gaussian noise at ``ratio = sensitivity / sigma`` > 0 and ``epsilon`` > 0.

    ``sf(c) - exp(epsilon) sf(c + ratio)``, ``c = epsilon / ratio - ratio / 2``, sf the normal survival
    function; no smaller delta holds. With Mills' ratio ``m = sf / pdf`` that is
    ``pdf(c) (m(c) - m(c + ratio))``, to which the rounding of both ratios is added.
    """
    c = epsilon / ratio - ratio / 2.0
    if c < -30.0:
        return 1.0
    here, there = _mills(c), _mills(c + ratio)
    density = math.exp(-0.5 * c * c) / math.sqrt(2.0 * math.pi) if c < 40.0 else 0.0
    # beyond 40 the density is below 1e-300, where its own digits end
    return density * (max(here - there, 0.0) + _ROUNDING * here) * _ROUND_UP + 1e-300


def analytic_ratio(epsilon: float, delta: float) -> float:
    """The largest ``sensitivity / sigma`` that bisection finds to be (epsilon, delta)-private, to 1e-12.

    ``epsilon`` > 0 and 1e-299 < ``delta`` < 1. The private end of the bracket is returned.
    """
    # at c = u the survival function is at most exp(-u^2 / 2) / 2
    u = math.sqrt(-2.0 * math.log(delta))
    low = 2.0 * epsilon / (u + math.sqrt(u * u + 2.0 * epsilon))
    high = 2.0 * low
    while analytic_delta(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    for _ in range(42):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if analytic_delta(middle, epsilon) <= delta else (low, middle)
    return low


def _mills(x: float) -> float:
    return math.sqrt(0.5 * math.pi) * float(special.erfcx(x / math.sqrt(2.0)))
