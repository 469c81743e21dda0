"""Noise of a simulation for a stated sensitivity: pure, or Gaussian where delta > 0."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.calibration.integers import analytic_ratio
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import Budget


def noisy(value: float, sensitivity: float, budget: Budget, rng: np.random.Generator) -> float:
    """Laplace noise, or Gaussian noise of the smallest scale where delta > 0 (Balle and Wang 2018)."""
    if budget.delta == 0.0:
        return value + float(rng.laplace(scale=sensitivity / budget.epsilon))
    return value + sensitivity / analytic_ratio(budget.epsilon, budget.delta) * float(rng.standard_normal())


def noisy_vector(value: Array, sensitivity: float, budget: Budget, rng: np.random.Generator) -> Array:
    """Noise for a Euclidean sensitivity: of density ``exp(-epsilon |b| / sensitivity)``, or Gaussian."""
    direction = rng.standard_normal(value.size)
    if budget.delta > 0.0:
        return value + sensitivity / analytic_ratio(budget.epsilon, budget.delta) * direction
    length = rng.gamma(value.size, sensitivity / budget.epsilon)
    return value + length / math.sqrt(float(np.sum(direction**2))) * direction


def deviation(sensitivity: float, size: int, budget: Budget) -> float:
    """Root mean square of a coordinate of the noise of :func:`noisy_vector`, which is public."""
    if budget.delta > 0.0:
        return sensitivity / analytic_ratio(budget.epsilon, budget.delta)
    return sensitivity / budget.epsilon * math.sqrt(size + 1.0)
