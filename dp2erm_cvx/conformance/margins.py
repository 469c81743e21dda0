"""Whether the loss of a margin is what a certificate takes it for."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dp2erm_cvx.conformance.samples import check_universe, standard_records
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.program import MarginLoss, MarginWeight
from dp2erm_cvx.program.schemes.margin_stage import MarginFirstStage

_STEP = 1e-4
#: How wrong a margin may be, 0 for what rounds in the loss itself.
_WRONG = (0.0, 1e-12, 1e-6, 1e-2)
_REACHES = (1e-3, 0.1, 1.0)


def wrong_margin(program: MarginFirstStage, domain: Domain, radius: float) -> str:
    """What is wrong about the rows, the loss or the weight of a resolved program, or nothing."""
    reach = min(program.row_bound(domain) * radius, 30.0)
    farthest = min(program.weight_row_bound(domain) * radius, 30.0)
    return (
        _wrong_rows(program) or wrong_loss(program.loss, reach) or _wrong_weight(program.log_weight, farthest)
    )


def wrong_loss(loss: MarginLoss, reach: float) -> str:
    """Slope, curvature and their bounds against differences over ``|s| <= reach``."""
    s = np.linspace(-reach, reach, 2001)
    wrong = _not_numbers(loss, s, reach) or _wrong_slope(loss, s, reach) or _wrong_forms(loss, s)
    if wrong or math.isinf(loss.concordance):
        return wrong or _understated(loss, s)
    return _wrong_curvature(loss, s) or _understated(loss, s)


def overflow(loss: MarginLoss, reach: float) -> str:
    """What is wrong where a loss has no finite slope and curvature over ``|s| <= reach``, or nothing."""
    bounds = loss.largest_slope(reach), loss.largest_curvature(reach)
    if all(math.isfinite(bound) for bound in bounds):
        return ""
    name = type(loss).__name__
    if math.isinf(reach):
        return (
            f"{name} overflows without a ball: its slope or curvature is unbounded over all coefficients. "
            "State ball(domain), a radius that no minimizer exceeds, or declare a radius"
        )
    return (
        f"{name} overflows within the ball: at margins up to {reach:.3g} its slope or curvature is {bounds}"
    )


def _not_numbers(loss: MarginLoss, s: Array, reach: float) -> str:
    for name in ("value", "slope", "curvature"):
        if not np.all(np.isfinite(getattr(loss, name)(s))):
            return f"the {name} of the loss is not a finite number somewhere within reach"
    for name in ("largest_slope", "largest_curvature"):
        within, anywhere = (float(getattr(loss, name)(far)) for far in (reach, math.inf))
        if math.isnan(within) or math.isnan(anywhere):
            where = reach if math.isnan(within) else math.inf
            return f"{name}({where:g}) is not a number: without a radius the reach is inf"
        if anywhere < within:
            return f"{name}(inf) is less than {name}({reach:g})"
    return ""


def _wrong_slope(loss: MarginLoss, s: Array, reach: float) -> str:
    slope, curvature = loss.slope(s), loss.curvature(s)
    scale = 1.0 + np.abs(slope)
    differences = (loss.value(s + _STEP) - loss.value(s - _STEP)) / (2 * _STEP)
    if not np.max(np.abs(differences - slope) / scale) <= (1e-3 if math.isinf(loss.concordance) else 1e-5):
        return "the slope of the loss is not the derivative of its value"
    if not np.min(np.diff(slope) / scale[1:]) >= -1e-9:
        return "the loss is not convex"
    if not np.max(np.abs(slope)) <= loss.largest_slope(reach) * (1 + 1e-9):
        return "largest_slope is less than a slope within reach"
    if not np.max(curvature) <= loss.largest_curvature(reach) * (1 + 1e-9):
        return "largest_curvature is less than a curvature within reach"
    return ""


def _wrong_forms(loss: MarginLoss, s: Array) -> str:
    slope, E = loss.slope(s), np.exp(-s)
    missed = np.abs(loss.descent(E, 1 + E, np.empty_like(s)) + slope)
    if not np.max(missed / (1.0 + np.abs(slope))) <= 1e-9:
        return "descent is not minus the slope of the loss"
    if not np.max(-s * slope) <= loss.pull * (1 + 1e-9):
        return "pull is less than -s times the slope at some margin s"
    return ""


def _wrong_weight(weight: MarginWeight, reach: float) -> str:
    """What is wrong about what a weight states over ``|s| <= reach``: V of Theorem 9 rests on it."""
    s = np.linspace(-reach, reach, 2001)
    logs = weight.log(s)
    low, high = float(np.min(logs)), float(np.max(logs))
    if not np.max(np.abs(weight.of(np.exp(-s), 1 + np.exp(-s)) / np.exp(logs) - 1.0)) <= 1e-9:
        return "the weight in its form for batches is not the exponential of its logarithm"
    if not high - low <= weight.log_range(reach) * (1 + 1e-9) + 1e-12:
        return (
            f"log_range is {weight.log_range(reach):.4g}, log weights within reach are {high - low:.4g} apart"
        )
    if not max(-low, high) <= weight.largest_log(reach) * (1 + 1e-9) + 1e-12:
        return "largest_log is less than a log weight within reach"
    for n in (2, 400):
        attained = n / (1.0 + (n - 1) * math.exp(low - high))
        if not attained <= weight.largest_weight(n, reach) * (1 + 1e-9):
            return f"largest_weight({n}) is {weight.largest_weight(n, reach):.4g}, {attained:.4g} is attained"
    return ""


def _wrong_curvature(loss: MarginLoss, s: Array) -> str:
    curvature = loss.curvature(s)
    # |phi'''| <= c phi'': the curvature changes by a factor of at most exp(c h) over h
    factor = np.expm1(loss.concordance * float(s[1] - s[0])) * (1 + 1e-6)
    if np.any(np.abs(np.diff(curvature)) > factor * curvature[1:] + 1e-12):
        return "the curvature changes faster than concordance allows"
    slopes = (loss.slope(s + _STEP) - loss.slope(s - _STEP)) / (2 * _STEP)
    # the difference is a mean of curvatures within the step
    if not np.max(np.abs(slopes - curvature) / (1.0 + curvature)) <= 1e-5 + np.expm1(
        loss.concordance * _STEP
    ):
        return "the curvature of the loss is not the derivative of its slope"
    return ""


def _wrong_rows(program: MarginFirstStage) -> str:
    records = standard_records()
    Z, U = program.rows(records), program.weight_rows(records)
    known = program.n_rows(check_universe(records.domain))
    if known is not None and Z.shape[1] != known:
        return f"rows have {Z.shape[1]} entries, n_rows says {known}"
    if U is not None and U.shape != Z.shape:
        return f"weight_rows have the shape {U.shape}, rows {Z.shape}"
    return ""


def _understated(loss: MarginLoss, s: Array) -> str:
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
        values = np.asarray(function(s.astype(np.longdouble)))
    except TypeError:  # of a compiled function
        return function(s)
    return values if values.dtype == np.longdouble else function(s)
