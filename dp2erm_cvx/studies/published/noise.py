"""Noise of a simulation for a stated sensitivity: pure, or Gaussian where delta > 0."""

from __future__ import annotations

import math

from dp2erm_cvx.audit.additive import Noised
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.integers import analytic_ratio
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import Budget


def noisy(value: float | Array, sensitivity: float, budget: Budget) -> Noised:
    """For a Euclidean sensitivity: noise of density ``exp(-epsilon |b| / sensitivity)``, or Gaussian.

    For a number that is Laplace noise. Gaussian noise is of the smallest scale (Balle and Wang 2018), which
    is mu-GDP for the mu that has this delta at this epsilon.
    """
    if budget.delta == 0.0:
        return Noised(value, sensitivity / budget.epsilon, Noise.GAMMA, sensitivity)
    scale = sensitivity / analytic_ratio(budget.epsilon, budget.delta)
    return Noised(value, scale, Noise.GAUSSIAN, sensitivity)


def deviation(noised: Noised) -> float:
    """Root mean square of a coordinate of the noise, which is public."""
    pure = noised.noise is Noise.GAMMA
    return noised.scale * (math.sqrt(noised.center.size + 1.0) if pure else 1.0)
