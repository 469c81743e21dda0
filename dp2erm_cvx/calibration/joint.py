"""Gaussian steps that follow each other: one delta for the sum of their privacy losses (Theorem 16)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp2erm_cvx.calibration.curvature import MARGIN
from dp2erm_cvx.calibration.margin_gaussian import MarginCalibration, excess_over, margin_delta
from dp2erm_cvx.privacy import Budget

Array = NDArray[np.float64]

#: What is kept of K, the curvature's part of a loss, where steps compose: two of them would leave the noise
#: nothing. Less noise for more gamma, which a rule's sign does not feel.
CURVATURE_KEPT = 0.7

_CELLS = 1500  # rounding losses up to one of them costs .2 % of the noise
_TANGENTS = 12
_ROUND_UP = 1.0 + 1e-9  # above the rounding of special functions, their differences and long sums
_DOUBLINGS, _HALVINGS = 2, 13


@dataclass(frozen=True)
class LossLaw:
    """A random number that the privacy loss of one Gaussian step is an average of, whatever came before.

    ``max(s |N| + s^2/2, K)`` and ``s |N| + s^2/2`` in equal parts where it perturbs an objective
    (``folded``), ``s N + s^2/2`` where it is added to a number; s is ``ratio`` > 0 and K ``curvature``.
    """

    ratio: float
    curvature: float = 0.0
    folded: bool = True

    def relieved(self, relief: float) -> LossLaw:
        """The same for noise that is smaller by this, with a gamma that makes up for it; numbers stay."""
        if not self.folded:
            return self
        return replace(self, ratio=self.ratio * relief, curvature=self.curvature * CURVATURE_KEPT)


def saturating_law(calibration: object) -> LossLaw | None:
    """That of Gaussian noise for a loss of a margin whose curvature falls with its slope; None for others."""
    if not isinstance(calibration, MarginCalibration) or calibration.jacobian > 0.0:
        return None
    return LossLaw(calibration.sensitivity / calibration.scale, calibration.curvature)


def joint_delta(laws: Sequence[LossLaw], epsilon: float) -> float:
    """Upper bound on the delta at ``epsilon`` of steps with these laws, one after the other.

    ``e^{-x} E(Z - t)_+`` with Z the sum of independent losses and ``t = epsilon + x + 1 - e^x``, the least
    of a few x >= 0. One folded law is integrated exactly, the others are rounded up to a grid.
    """
    *others, last = sorted(laws, key=lambda law: (law.folded, law.ratio))
    if epsilon <= 0.0 or not last.folded:
        return 1.0
    reach = 9.0 + math.sqrt(2.0 * min(epsilon, 500.0))
    cell = sum(law.ratio * (reach + 0.5 * law.ratio) + law.curvature for law in others) / _CELLS
    start, chances, beyond = 0, np.ones(1), 0.0
    for law in others:
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
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if private(middle) else (low, middle)
    return low


def relieved(
    calibration: MarginCalibration, relief: float, strong_convexity: float = 0.0
) -> MarginCalibration:
    """The same step with less noise and more gamma; its epsilon is what it costs alone at its delta.

    ``strong_convexity`` is that of the public regularizer.
    """
    kept = calibration.curvature * CURVATURE_KEPT
    gamma = (calibration.gamma + strong_convexity) / CURVATURE_KEPT * (1.0 + MARGIN) - strong_convexity
    scale = calibration.scale / relief * (1.0 + MARGIN)
    ratio, low, high = calibration.sensitivity / scale, 0.0, calibration.epsilon
    while not margin_delta(ratio, high, kept) <= calibration.delta:
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        alone = margin_delta(ratio, middle, kept) <= calibration.delta
        low, high = (low, middle) if alone else (middle, high)
    return replace(calibration, scale=scale, gamma=gamma, curvature=kept, epsilon=high)


def _rounded_up(law: LossLaw, cell: float, reach: float) -> tuple[int, Array, float]:
    """Chances of ``first, first + 1, ...`` cells, and what losses beyond the last of them add on average.

    For X beyond c, ``(X + Y - t)_+ <= (X - c)_+ + (c + Y - t)_+``.
    """
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
    """Of every cell from the chances of more; the last one has what is beyond as well."""
    found = -np.diff(tail, prepend=1.0)
    found[-1] += tail[-1]
    return np.maximum(found, 0.0) + 1e-15 * tail
