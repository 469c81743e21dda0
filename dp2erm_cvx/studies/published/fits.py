"""What published methods are built of: small regressions with a ridge, and noise for a sensitivity."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.audit.additive import Noised
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.numbers import analytic_ratio
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import Budget


def ridge_logistic(X: Array, a: Array, ridge: float | Array, weight: Array | float = 1.0) -> Array:
    """The minimizer (p,) of the mean logistic loss and ``ridge/2 |w|^2``, by Newton's method.

    ``ridge`` > 0 is one number, or one per column; ``weight`` >= 0 is one number, or one per record.
    """
    n, p = X.shape
    sign: Array = 2.0 * a - 1.0
    w: Array = np.zeros(p)

    def objective(w: Array) -> float:
        return float(np.mean(weight * np.logaddexp(0.0, -sign * (X @ w)))) + 0.5 * float(
            np.sum(ridge * w * w)
        )

    for _ in range(100):
        share = 0.5 * (1.0 - np.tanh(0.5 * sign * (X @ w)))
        gradient = ridge * w - X.T @ (weight * sign * share) / n
        hessian = (X.T * (weight * share * (1.0 - share))) @ X / n + np.diag(np.full(p, ridge))
        step = np.linalg.solve(hessian, gradient)
        decrement, size = float(gradient @ step), 1.0
        # below this the objective is rounding, and a whole step is as good as any
        if decrement > 1e-12:
            at = objective(w)
            while size > 1e-6 and objective(w - size * step) > at - 0.1 * size * decrement:
                size /= 2.0
        w -= size * step
        if decrement < 1e-16:
            break
    return w


def ridge_line(X: Array, y: Array, ridge: float | Array) -> Array:
    """The minimizer (p,) of the mean squared error and ``ridge |w|^2``, as above; 0 without records."""
    squares = X.T @ X + max(len(y), 1) * np.diag(np.full(X.shape[1], ridge))
    return np.asarray(np.linalg.solve(squares, X.T @ y), dtype=np.float64)


def probability(logit: Array, clip: float) -> Array:
    """Of treatment, at least ``clip`` and at most 1 - ``clip``."""
    found: Array = np.clip(0.5 * (1.0 + np.tanh(0.5 * logit)), clip, 1.0 - clip)
    return found


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
