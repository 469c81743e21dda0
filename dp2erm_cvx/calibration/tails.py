"""Tails and quantiles of noise that is summed with sampling errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from dp2erm_cvx.calibration.base import Noise

_ROUND_UP = 1.0 + 1e-9
_ROOT_2 = math.sqrt(2.0)
#: Laplace scales closer than this have no stable closed form; both are then taken larger.
_APART = 1.002


def sum_tail(noise: Noise, x: float, deviation: float, *scales: float) -> float:
    """``P(N + sum L_j > x)``, rounded up: N normal, the L_j noises of these ``scales``, all independent.

    ``deviation``, that of N, and the scales may be 0. Two Laplace variables of scales b > c have the law
    ``b^2/(b^2 - c^2)`` Laplace(b) less ``c^2/(b^2 - c^2)`` Laplace(c), and are enlarged by 1/500 where they
    are closer than that. For more of them the characteristic function is inverted.
    """
    if x <= 0.0:
        return 1.0 - sum_tail(noise, -x, deviation, *scales) if x < 0.0 else 0.5
    if noise is Noise.GAUSSIAN:
        deviation, scales = math.hypot(deviation, *scales), ()
    if sum(scale > 0.0 for scale in scales) > 2:
        return _many_tail(x, deviation, scales)
    small, large = [0.0, 0.0, *sorted(scales)][-2:]
    if large < _APART * small:
        small, large = large, _APART * large
    ratio = small / large if large else 0.0
    weight = 1.0 / (1.0 - ratio * ratio)
    tail = weight * _one_tail(x, deviation, large)
    if small > 0.0:
        tail -= (weight - 1.0) * _one_tail(x, deviation, small)
    return tail * _ROUND_UP


def sum_quantile(noise: Noise, tail: float, deviation: float, *scales: float) -> float:
    """The x >= 0 with ``sum_tail(noise, x, deviation, *scales) = tail``, 0 < tail < 1/2, rounded up."""
    # an upper end by the union bound: half for N, the other half for all noises alike
    normal, most = -float(special.ndtri(0.5 * tail)), max(len(scales), 2)
    high = (math.hypot(deviation, *scales) + deviation) * normal + sum(scales) * math.log(most / tail)
    return bracketed(lambda x: sum_tail(noise, x, deviation, *scales) <= tail, high * _APART)


def bracketed(holds: Callable[[float], bool], high: float, low: float = 0.0, halvings: int = 52) -> float:
    """Where ``holds`` begins between ``low`` and ``high``, which is taken to hold and may be the smaller."""
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _one_tail(x: float, deviation: float, scale: float) -> float:
    """``P(N + L > x)``, L Laplace.

    With ``v = x / deviation`` and ``r = deviation / scale`` it is ``sf(v)`` plus half of ``exp(r^2/2 - r v)
    Phi(v - r) - exp(r^2/2 + r v) Phi(-v - r)``.
    """
    if deviation == 0.0:
        return 0.5 * math.exp(-x / scale) if scale else 0.0
    v = x / deviation
    if scale == 0.0:
        return float(special.ndtr(-v))
    r = deviation / scale
    # exp(-v^2/2) = exp(r^2/2 - r v) exp(-(v - r)^2/2), and erfcx(t / sqrt(2)) / 2 = exp(t^2/2) Phi(-t)
    density = math.exp(-0.5 * v * v)
    if v <= r:
        above = 0.5 * density * float(special.erfcx((r - v) / _ROOT_2))
    else:
        above = math.exp(0.5 * r * r - x / scale) * float(special.ndtr(v - r))
    below = 0.5 * density * float(special.erfcx((r + v) / _ROOT_2))
    return float(special.ndtr(-v)) + 0.5 * (above - below)


def _many_tail(x: float, deviation: float, scales: Sequence[float]) -> float:
    """Tail of a sum of Laplace variables by a sum for the integral of Gil-Pelaez (Davies 1973), to 1e-12."""
    # scales below a twentieth of the largest are enlarged to it
    largest = max(scales)
    wide = np.array([max(scale, 0.05 * largest) for scale in scales if scale > 0.0])
    reach = x + 10.0 * deviation + 32.0 * largest + 4.0 * float(np.sum(wide))
    step = 2.0 * math.pi / reach
    # where the characteristic function is below 1e-13
    far = min(5e6, np.prod(wide / largest) ** (-1.0 / len(wide)) * 10.0 ** (6.5 / len(wide))) / largest
    if deviation > 0.0:
        far = min(far, 7.8 / deviation)
    t = (np.arange(math.ceil(far / step)) + 0.5) * step
    size = np.exp(-0.5 * (deviation * t) ** 2) / np.prod(1.0 + np.square(wide[:, None] * t), axis=0)
    tail = 0.5 - step / math.pi * float(np.sum(np.sin(t * x) * size / t))
    return max(tail, 0.0) * _ROUND_UP + 2e-12
