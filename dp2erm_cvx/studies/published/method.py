"""What a published private estimator of an effect is to this library: one call, and a stated guarantee."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp2erm_cvx.calibration.integers import analytic_ratio
from dp2erm_cvx.compare.effect_references import Estimate
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.privacy import Budget


@dataclass(frozen=True)
class PublishedEffect(abc.ABC):
    """An estimator of an average effect that others published, as its public description states it.

    Instances are settings, which are public. A call is a function of the records, the budget and the
    generator alone, so that it can be audited from outside. It simulates: its noise is seeded, in floating
    point, and nothing that it returns may be published.

    Attributes
    ----------
    source
        Whose it is.
    assumes
        What a bound on every record is needed for.
    treated_only
        Ask for the effect among the treated; only where ``serves_treated``.
    """

    source: ClassVar[str]
    assumes: ClassVar[str]
    serves_treated: ClassVar[bool] = False

    treated_only: bool = False

    @abc.abstractmethod
    def __call__(self, records: Records, budget: Budget, rng: np.random.Generator) -> Estimate:
        """The estimate from records inside their domain, neighbors being those with one record replaced.

        With ``budget.delta`` = 0 noise is pure, else Gaussian. The error is nan where no interval is public.
        """


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


def ridge_logistic(X: Array, a: Array, ridge: float | Array) -> Array:
    """The minimizer (p,) of the mean logistic loss and ``ridge/2 |w|^2``, by Newton's method.

    ``ridge`` > 0 is one number, or one per column.
    """
    n, p = X.shape
    sign: Array = 2.0 * a - 1.0
    w: Array = np.zeros(p)

    def objective(w: Array) -> float:
        return float(np.mean(np.logaddexp(0.0, -sign * (X @ w)))) + 0.5 * float(np.sum(ridge * w * w))

    for _ in range(100):
        share = 0.5 * (1.0 - np.tanh(0.5 * sign * (X @ w)))
        gradient = ridge * w - X.T @ (sign * share) / n
        hessian = (X.T * (share * (1.0 - share))) @ X / n + np.diag(np.full(p, ridge))
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


def groups(n: int, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Row numbers of ``count`` random groups whose sizes differ by at most one, whatever the records."""
    return np.array_split(rng.permutation(n), count)


def group_count(n: int, columns: int, per_column: float) -> int:
    """As many groups as leave ``per_column`` records a column, and at least 20, to each; at least two."""
    return max(2, int(n // max(20.0, per_column * columns)))
