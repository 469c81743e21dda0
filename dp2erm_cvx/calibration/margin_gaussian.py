"""The privacy profile of Theorem 16, its inverse and its Renyi curve: Gaussian noise for losses of a margin.

The gradient of a record then has one direction, whatever theta: one normal variable takes the place of chi_p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dp2erm_cvx.calibration.constants import Calibration
from dp2erm_cvx.calibration.gaussian import LARGEST_EPSILON, private_end
from dp2erm_cvx.privacy import RENYI_ORDERS, RenyiCurve

Array = NDArray[np.float64]

#: What a calibration by it is called.
MARGIN_THEOREM = "Theorem 16 (one dimension)"

# scipy's erfcx, log_ndtr and the exponential are accurate to 1e-12 relative where they are used; each bound
# is raised by far more
_ROUNDING = 1e-9
_TINY = 1e-306
# the fixed point that they approach is the least bound, and every one of them is a bound
_STEPS = 8


@dataclass(frozen=True)
class MarginCalibration(Calibration):
    """Calibration of Theorem 16. ``sensitivity`` is V times the bound on one gradient.

    ``jacobian`` is J, added to the privacy loss whatever the noise; ``curvature`` is K, the curvature's part
    of a loss that saturates, which takes its place (the other one is 0).
    """

    jacobian: float
    curvature: float

    def curve(self) -> RenyiCurve:
        """Bounds on the Renyi divergence at the public orders (:func:`margin_divergence`)."""
        ratio = self.sensitivity / self.scale
        bounds = margin_divergence(RENYI_ORDERS, ratio, self.jacobian, self.curvature)
        return RenyiCurve(RENYI_ORDERS, tuple(bounds.tolist()))


def margin_delta(ratio: ArrayLike, epsilon: ArrayLike, curvature: float = 0.0) -> Array:
    """Upper bound on the delta of Theorem 16, elementwise.

    ``ratio`` is ``s = V G / sigma`` > 0 with G the largest norm of a gradient, ``epsilon`` what J leaves of
    the budget (any sign), ``curvature`` K. For ``l = s |N| + s^2/2``, N standard normal, every y >= 0 with
    ``t = epsilon + log(1 + y) - y >= 0`` gives the bound ``(E(max(l, K) - t)_+ + E(l - t)_+) / (2 (1 + y))``.
    The least is at the fixed point of ``y = E(l - t | l > t)``, which a few steps come near.
    """
    s = np.asarray(ratio, dtype=np.float64)
    left = np.minimum(np.asarray(epsilon, dtype=np.float64), LARGEST_EPSILON)
    s, left = np.broadcast_arrays(s, left)
    best, y = np.ones(s.shape), np.zeros(s.shape)
    for _ in range(_STEPS):
        t = _offset(left, y)
        beyond, chance = _excess(s, t)
        total = beyond
        if curvature > 0.0:
            level = np.maximum(t, curvature)
            total = 0.5 * (level - t + _excess(s, level)[0] + beyond)
        delta = (total / (1.0 + y)) * (1.0 + _ROUNDING) + _TINY
        best = np.where(t >= 0.0, np.minimum(best, delta), best)
        # at most this: then y - log(1 + y) <= y^2/2 <= epsilon
        y = np.minimum(beyond / np.maximum(chance, _TINY), np.sqrt(2.0 * np.maximum(left, 0.0)))
    return best


def private_margin_ratio(epsilon: ArrayLike, delta: float) -> Array:
    """A ratio ``s`` that was found to be private at ``epsilon`` > 0 and ``delta``.

    That is, :func:`~dp2erm_cvx.calibration.margin_delta` was evaluated there as at most delta.
    """
    eps = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))
    u = 1.0 + math.sqrt(-2.0 * math.log(delta))
    start = 2.0 * eps / (u + np.sqrt(u * u + 2.0 * eps))
    found = private_end(start, lambda s: margin_delta(s, eps) <= delta)
    return np.asarray(found.reshape(np.shape(epsilon)), dtype=np.float64)


def curvature_left(ratio: float, epsilon: float) -> float:
    """The largest K, rounded down, that leaves :func:`margin_delta` what it is without."""
    y = 0.0
    for _ in range(_STEPS - 1):
        beyond, chance = _excess(np.array(ratio), _offset(np.array(epsilon), np.array(y)))
        y = min(float(beyond / max(float(chance), _TINY)), math.sqrt(2.0 * epsilon))
    return float(_offset(np.array(epsilon), np.array(y))) * (1.0 - _ROUNDING)


def margin_divergence(order: ArrayLike, ratio: float, jacobian: float, curvature: float) -> Array:
    """Upper bound on the Renyi divergence of every ``order`` alpha > 1 between neighbors, in both directions.

    ``J + log((E exp(a max(l, K)) + E exp(a l)) / 2) / a`` with a = alpha - 1 and l of :func:`margin_delta`.
    """
    a = np.asarray(order, dtype=np.float64) - 1.0
    s = ratio
    square = a * (a + 1.0) * (0.5 * s * s)
    plain = math.log(2.0) + special.log_ndtr(a * s) + square
    c = (curvature - 0.5 * s * s) / s
    raised = plain
    if c > 0.0:
        below = a * curvature + np.log(special.erf(c / math.sqrt(2.0)))
        raised = np.logaddexp(below, math.log(2.0) + special.log_ndtr(a * s - c) + square)
    mean = np.logaddexp(raised, plain) - math.log(2.0)
    rounding = 1e-13 * (1.0 + np.abs(mean) + square)
    result: Array = jacobian * (1.0 + 1e-12) + (np.maximum(mean, 0.0) + rounding) / a
    return result


def excess_over(ratio: float, t: Array) -> Array:
    """Upper bound on ``E(l - t)_+``, l of :func:`margin_delta`, at any t."""
    found: Array = _excess(np.full(np.shape(t), ratio), np.asarray(t))[0] * (1.0 + _ROUNDING) + _TINY
    return found


def _offset(left: Array, y: Array) -> Array:
    """``t``, rounded down, which only raises a bound."""
    found: Array = left - (y - np.log1p(y)) - 1e-14 * (np.abs(left) + y)
    return found


def _excess(s: Array, t: Array) -> tuple[Array, Array]:
    """``E(l - t)_+`` up to its relative rounding, and about ``P(l > t)``."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        c = np.minimum(t / s - 0.5 * s, 1e150) - 1e-14 * (np.abs(t) / s + s)
        near = np.clip(c, 0.0, 1e8)
        density = np.exp(-0.5 * near * near) * math.sqrt(2.0 / math.pi)
        tail = special.erfcx(near / math.sqrt(2.0))
        # 1 - c tail is about 1/c^2, and its rounding 1e-16
        far = s * density * (1.0 - near * math.sqrt(math.pi / 2.0) * tail + 1e-15)
        chance = density * tail * math.sqrt(math.pi / 2.0)
    before = s * (math.sqrt(2.0 / math.pi) - np.minimum(c, 0.0))
    return np.where(c > 0.0, far, before), np.where(c > 0.0, chance, 1.0)
