"""Slopes of prices at stored points, to as many digits as are asked for."""

from __future__ import annotations

import math

import mpmath

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, LogSumExpPenalty, Penalty

Number = mpmath.mpf


def exact_slope(penalty: Penalty, s: Array) -> list[Number]:
    """The slope (K,) of a price at stored numbers (K,), where it has one."""
    entries = [Number(float(one)) for one in s]
    if isinstance(penalty, LogSumExpPenalty):
        largest = max(entries)
        powers = [mpmath.exp(one - largest) for one in entries]
        return [Number(penalty.factor) * power / sum(powers) for power in powers]
    if penalty.envelope:
        return _of_envelope(penalty, entries)
    if penalty.norm is None:
        return [_sign(one) * _by_size(penalty, _size(penalty, one)) for one in entries]
    order = Number(penalty.norm)
    norm = sum(abs(one) ** order for one in entries) ** (1 / order)
    if norm == 0:
        return [Number(0) for _ in entries]
    slope = _by_size(penalty, norm)
    return [_sign(one) * slope * (abs(one) / norm) ** (order - 1) for one in entries]


def _size(penalty: ImbalancePenalty, one: Number) -> Number:
    return max(one, Number(0)) if penalty.sided else abs(one)


def _sign(one: Number) -> int:
    return int(mpmath.sign(one))


def _by_size(penalty: ImbalancePenalty, size: Number) -> Number:
    """Slope of ``factor huber(max(size - tolerance, 0), knee)``, or of a kink beside 0."""
    if math.isinf(penalty.factor):
        return Number(penalty.price) if size > 0 else Number(0)
    beyond = max(size - Number(float(penalty.tolerance)), Number(0))
    if math.isfinite(penalty.knee):
        beyond = min(beyond, Number(penalty.knee))
    return 2 * Number(penalty.factor) * beyond


def _of_envelope(penalty: ImbalancePenalty, entries: list[Number]) -> list[Number]:
    """Of a largest entry: sizes are cut at t, and what is cut off adds up to ``e`` times the slope
    at t.
    """
    assert penalty.norm is not None
    assert math.isinf(penalty.norm)
    e = Number(penalty.envelope)
    kink = math.isinf(penalty.factor)
    cut_off = e * Number(penalty.price) if kink else Number(0)
    bend = Number(0) if kink else 2 * Number(penalty.factor) * e
    sizes = sorted((abs(one) for one in entries), reverse=True)
    threshold = Number(0)
    for count in range(1, len(sizes) + 1):
        threshold = (sum(sizes[:count]) - cut_off) / (count + bend)
        if count == len(sizes) or threshold >= sizes[count]:
            break
    threshold = max(threshold, Number(0))
    return [_sign(one) * max(abs(one) - threshold, Number(0)) / e for one in entries]
