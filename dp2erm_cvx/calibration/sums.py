"""The sum of a normal and a Laplace variable: sampling error and noise of a private mean."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import special

_ROUND_UP = 1.0 + 1e-9
_ROOT_2 = math.sqrt(2.0)


def laplace_sum_tail(x: float, deviation: float, scale: float) -> float:
    """``P(N + L > x)`` for x >= 0, N normal of this standard ``deviation`` and L Laplace of this ``scale``.

    Either may be 0. With ``v = x / deviation`` and ``r = deviation / scale``: ``sf(v)`` and half of
    ``exp(r^2/2 - r v) Phi(v - r) - exp(r^2/2 + r v) Phi(-v - r)``.
    """
    if deviation == 0.0:
        return 0.5 * math.exp(-x / scale)
    v = x / deviation
    plain = float(special.ndtr(-v))
    if scale == 0.0:
        return plain
    r = deviation / scale
    # exp(-v^2/2) = exp(r^2/2 - r v) exp(-(v - r)^2/2), and erfcx(t / sqrt(2)) / 2 = exp(t^2/2) Phi(-t)
    density = math.exp(-0.5 * v * v)
    if v <= r:
        above = 0.5 * density * float(special.erfcx((r - v) / _ROOT_2))
    else:
        above = math.exp(r * (0.5 * r - v)) * float(special.ndtr(v - r))
    below = 0.5 * density * float(special.erfcx((r + v) / _ROOT_2))
    return plain + 0.5 * (above - below)


def laplace_sum_quantile(deviation: float, scale: float, tail: float) -> float:
    """The x >= 0 with ``P(N + L > x) = tail``, 0 < tail < 1/2, rounded up; rises with both widths.

    For deviation 0 it is ``scale log(1 / (2 tail))``, for scale 0 the normal quantile.
    """
    high = -deviation * float(special.ndtri(0.5 * tail)) - scale * math.log(tail)
    return bracketed(lambda x: laplace_sum_tail(x, deviation, scale) * _ROUND_UP <= tail, high)


def bracketed(holds: Callable[[float], bool], high: float) -> float:
    """The least x in [0, high] from which ``holds``, to 1e-15 of ``high``; the end where it holds.

    ``high`` itself is taken to hold.
    """
    low = 0.0
    for _ in range(52):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
