"""Small regressions with a ridge, fitted many times."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array


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
