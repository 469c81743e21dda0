"""Privacy profiles of Gaussian noise, rounded to the private side (Theorems 2 and 16), and steps in
a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import LARGEST_EPSILON, MARGIN, Calibration, bracketed
from dp2erm_cvx.privacy import RENYI_ORDERS, Budget, RenyiCurve

#: Cells of the grid in a guarantee; 64 are plenty where only a prediction is needed.
CELLS = 512
_SPAN = 14.0

# scipy's survival function and density are accurate to about 1e-12 relative; rounding the hazard
# down, and the survival function and the sum up, by far more than that leaves every term an upper
# bound.
_ROUNDING = 1e-9
# Below this the survival function may underflow; it is then replaced by this upper bound.
_TINY = 1e-306


def gaussian_delta(
    ratio: ArrayLike, epsilon: ArrayLike, n_parameters: int, cells: int = CELLS
) -> Array:
    """Upper bound on ``E[(1 - exp(epsilon - s chi_p - s^2/2))_+]`` (Theorem 2), elementwise.

    ``ratio`` is ``s = zeta_c V / sigma`` > 0, ``epsilon`` what the Jacobian leaves of the budget.
    With ``c = epsilon/s - s/2``, ``x_0 = max(c, 0)`` and S the survival function of chi_p it is ``1
    - exp(-s (x_0 - c))
    + int_{x_0} s exp(-s (x - c)) S(x) dx``, on every grid bounded by the tangents of log S, which
      is concave.
    """
    s = np.asarray(ratio, dtype=np.float64)[..., None]
    with np.errstate(over="ignore", under="ignore"):
        # Lowering epsilon or c only raises the expectation. The caps keep squares finite and the
        # rounding error of the difference, at most 1e-16 s where c is near 0, far below _ROUNDING.
        left = np.minimum(np.asarray(epsilon, dtype=np.float64)[..., None], LARGEST_EPSILON)
        c = np.minimum(left / s - s / 2.0, 1e150)
        nodes, widths = _grid(np.maximum(c, 0.0), n_parameters, cells)
        survival, hazard = _survival_and_hazard(nodes, n_parameters)
        rate = s + hazard
        cell = s / rate * survival * np.exp(-s * (nodes - c)) * -np.expm1(-rate * widths)
        atom = -np.expm1(-s * (nodes[..., :1] - c))
        total = (atom[..., 0] + cell.sum(axis=-1)) * (1.0 + _ROUNDING)
    result: Array = np.minimum(total, 1.0)
    return result


def _grid(start: Array, n_parameters: int, cells: int) -> tuple[Array, Array]:
    """One cell up to where chi_p begins to matter, ``cells`` equal ones, and an infinite one."""
    body = np.maximum(start, math.sqrt(n_parameters) - 6.0)
    nodes = np.concatenate([start, body + np.linspace(0.0, _SPAN, cells + 1)], axis=-1)
    widths = np.append(np.diff(nodes), np.full_like(start, np.inf), axis=-1)
    return nodes, widths


def _survival_and_hazard(x: Array, p: int) -> tuple[Array, Array]:
    half_square = 0.5 * x * x
    survival = special.gammaincc(p / 2.0, half_square)
    log_constant = (p / 2.0 - 1.0) * math.log(2.0) + math.lgamma(p / 2.0)
    density = np.exp(special.xlogy(p - 1.0, x) - half_square - log_constant)
    known = survival > _TINY
    hazard = np.where(known, density / np.where(known, survival, 1.0), 0.0) * (1.0 - _ROUNDING)
    return np.minimum(survival * (1.0 + _ROUNDING), 1.0) + _TINY, hazard


#: What a calibration by it is called.
MARGIN_THEOREM = "Theorem 16 (one dimension)"

# the fixed point that they approach is the least bound, and every one of them is a bound
_STEPS = 8


@dataclass(frozen=True)
class MarginCalibration(Calibration):
    """Calibration of Theorem 16. ``sensitivity`` is V times the bound on one gradient.

    ``jacobian`` is J, added to the privacy loss; ``curvature`` K of a loss that saturates; one of
    them is 0.
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

    ``ratio`` is ``s = V G / sigma`` > 0 with G the largest norm of a gradient, ``epsilon`` what J
    leaves of the budget, ``curvature`` K. For ``l = s |N| + s^2/2``, N standard normal, every y >=
    0 with ``t = epsilon
    + log(1 + y) - y >= 0`` gives the bound ``(E(max(l, K) - t)_+ + E(l - t)_+) / (2 (1 + y))``,
      least at ``y
    = E(l - t | l > t)``.
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


def curvature_left(ratio: float, epsilon: float) -> float:
    """The largest K, rounded down, that leaves :func:`margin_delta` what it is without."""
    y = 0.0
    for _ in range(_STEPS - 1):
        beyond, chance = _excess(np.array(ratio), _offset(np.array(epsilon), np.array(y)))
        y = min(float(beyond / max(float(chance), _TINY)), math.sqrt(2.0 * epsilon))
    return float(_offset(np.array(epsilon), np.array(y))) * (1.0 - _ROUNDING)


def margin_divergence(order: ArrayLike, ratio: float, jacobian: float, curvature: float) -> Array:
    """Upper bound on the Renyi divergence of every ``order`` alpha > 1 between neighbors, in both
    directions.

    ``J + log((E exp(a max(l, K)) + E exp(a l)) / 2) / a`` with a = alpha - 1 and l of
    :func:`margin_delta`.
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
    excess: Array = (
        _excess(np.full(np.shape(t), ratio), np.asarray(t))[0] * (1.0 + _ROUNDING) + _TINY
    )
    return excess


def _offset(left: Array, y: Array) -> Array:
    """``t``, rounded down, which only raises a bound."""
    offset: Array = left - (y - np.log1p(y)) - 1e-14 * (np.abs(left) + y)
    return offset


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


#: What is kept of K, the curvature's part of a loss, where steps compose: two of them would leave
#: the noise nothing. Less noise for more gamma, which a rule's sign does not feel.
CURVATURE_KEPT = 0.7

_CELLS = 1500  # rounding losses up to one of them costs .2 % of the noise
_TANGENTS = 12
_ROUND_UP = 1.0 + 1e-9  # above the rounding of special functions, their differences and long sums
_DOUBLINGS, _HALVINGS = 2, 13


@dataclass(frozen=True)
class LossLaw:
    """A random number that the privacy loss of one Gaussian step is an average of, whatever came
    before.

    ``max(s |N| + s^2/2, K)`` and ``s |N| + s^2/2`` in equal parts for an objective (``folded``),
    ``s N + s^2/2`` for a number; s is ``ratio`` > 0 and K ``curvature``.
    """

    ratio: float
    curvature: float = 0.0
    folded: bool = True

    def relieved(self, relief: float) -> LossLaw:
        """The law for noise that is smaller by this factor, with a gamma that makes up for it."""
        if not self.folded:
            return self
        return replace(self, ratio=self.ratio * relief, curvature=self.curvature * CURVATURE_KEPT)


def joint_delta(laws: Sequence[LossLaw], epsilon: float) -> float:
    """Upper bound on the delta at ``epsilon`` of steps with these laws, one after the other.

    ``e^{-x} E(Z - t)_+`` with Z the sum of independent losses and ``t = epsilon + x + 1 - e^x``,
    the least of a few x >= 0. One folded law is integrated exactly, the others are rounded up to a
    grid.
    """
    *rest, last = sorted(laws, key=lambda law: (law.folded, law.ratio))
    if epsilon <= 0.0 or not last.folded:
        return 1.0
    reach = 9.0 + math.sqrt(2.0 * min(epsilon, 500.0))
    cell = sum(law.ratio * (reach + 0.5 * law.ratio) + law.curvature for law in rest) / _CELLS
    start, chances, beyond = 0, np.ones(1), 0.0
    for law in rest:
        first, own, excess = _rounded_up(law, cell, reach)
        start, chances, beyond = start + first, np.convolve(chances, own), beyond + excess
    before = (start + np.arange(len(chances))) * cell
    before += (_ROUND_UP - 1.0) * np.abs(before)
    best = 1.0
    for y in np.linspace(0.0, min(math.sqrt(2.0 * epsilon), 4.0), _TANGENTS):
        t = (epsilon - (y - math.log1p(y))) * (1.0 - 1e-12) - before
        raised = np.maximum(t, last.curvature)
        # the difference first: added to t, a small excess would be lost
        mean = 0.5 * ((raised - t) + excess_over(last.ratio, t) + excess_over(last.ratio, raised))
        total = float(np.sum(chances * mean)) + beyond
        best = min(best, total / (1.0 + y) * _ROUND_UP)
    return best


def joint_relief(laws: Sequence[LossLaw], budget: Budget) -> float:
    """How much smaller the noise of the folded laws may be; 1 where nothing is gained."""

    def private(relief: float) -> bool:
        return joint_delta([law.relieved(relief) for law in laws], budget.epsilon) <= budget.delta

    if budget.delta <= 0.0 or not private(1.0):
        return 1.0
    low, high = 1.0, 2.0
    for _ in range(_DOUBLINGS):
        if not private(high):
            break
        low, high = high, 2.0 * high
    return bracketed(private, low, high, _HALVINGS)


def relieved(
    calibration: MarginCalibration, relief: float, strong_convexity: float = 0.0
) -> MarginCalibration:
    """``calibration`` with less noise and more gamma; its epsilon is what it costs alone at its
    delta.
    """
    curvature = calibration.curvature * CURVATURE_KEPT
    gamma = (calibration.gamma + strong_convexity) / CURVATURE_KEPT * (
        1.0 + MARGIN
    ) - strong_convexity
    scale = calibration.scale / relief * (1.0 + MARGIN)
    ratio, low, high = calibration.sensitivity / scale, 0.0, calibration.epsilon

    def alone(epsilon: float) -> bool:
        return bool(margin_delta(ratio, epsilon, curvature) <= calibration.delta)

    while not alone(high):
        low, high = high, 2.0 * high
    epsilon = bracketed(alone, high, low, _HALVINGS)
    return replace(calibration, scale=scale, gamma=gamma, curvature=curvature, epsilon=epsilon)


def _rounded_up(law: LossLaw, cell: float, reach: float) -> tuple[int, Array, float]:
    """Chances of ``first, first + 1, ...`` cells, and what losses beyond the last of them add on
    average.
    """
    # for X beyond c, (X + Y - t)_+ <= (X - c)_+ + (c + Y - t)_+
    s = law.ratio
    last = math.ceil((s * (reach + 0.5 * s) + law.curvature) / cell)
    first = 0 if law.folded else math.floor(-s * reach / cell)
    steps = np.arange(first, last + 1)
    # normal variables below which the loss is at most so many cells
    normal = steps * (cell / s) - 0.5 * s
    tail = special.ndtr(-np.maximum(normal, 0.0)) * 2.0 if law.folded else special.ndtr(-normal)
    plain = _chances(tail)
    beyond = float(excess_over(s, np.array(steps[-1] * cell)))
    if law.curvature > 0.0:
        plain = 0.5 * (plain + _chances(np.where(steps * cell < law.curvature, 1.0, tail)))
    return first, plain, beyond


def _chances(tail: Array) -> Array:
    """Probability of every cell from tail probabilities; the last cell includes the tail."""
    mass = -np.diff(tail, prepend=1.0)
    mass[-1] += tail[-1]
    return np.maximum(mass, 0.0) + 1e-15 * tail
