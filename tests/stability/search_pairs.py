"""A search for the worst neighbors of any scheme: many starts, then steps uphill. Without the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tests.stability.movement import Fit, Pair, movement

Array = NDArray[np.float64]
Shape = TypeVar("Shape")


def uphill(
    value: Callable[[Shape], float],
    starts: list[Shape],
    near: Callable[[Shape, float], Shape],
    steps: int,
    step: float = 0.5,
) -> tuple[float, Shape]:
    """Largest value found, and where: the best of the starts, then random steps that shrink as they fail."""
    values = [value(start) for start in starts]
    found, best = max(values), starts[int(np.argmax(values))]
    for _ in range(steps):
        trial = near(best, step)
        moved = value(trial)
        if moved > found:
            best, found = trial, moved
        else:
            step = max(0.02, 0.97 * step)
    return found, best


def treated(points: Array, count: Array) -> float:
    """Number of treated records; column 0 is the treatment."""
    return float(count @ points[:, 0])


def largest_movement(
    fit: Fit, n: int, floor: int, rng: np.random.Generator, starts: int, steps: int
) -> tuple[float, Pair]:
    """Largest movement found over neighbors of n records (a, x), ``||x|| <= 1``, and where.

    Both arms have at least ``floor`` records in both datasets.
    """

    def value(pair: Pair) -> float:
        for end in (pair.before, pair.after):
            size = treated(pair.common, pair.count) + end[0]
            if min(size, n - size) < floor:
                return 0.0
        return movement(fit, pair)

    pairs = [random_pair(n, rng) for _ in range(starts)]
    return uphill(value, pairs, lambda pair, step: near(pair, rng, step), steps)


def random_pair(n: int, rng: np.random.Generator) -> Pair:
    """One to four clusters, on one axis or not, of very unequal sizes; the changed record at the ends."""
    k = int(min(rng.integers(1, 5), n - 1))
    along = rng.choice([-1.0, 1.0], k + 2) * rng.choice([1.0, rng.uniform()], k + 2)
    across = rng.normal(size=k + 2) * rng.choice([0.0, 0.5])
    points = np.column_stack([rng.integers(0, 2, k + 2), along, across])
    share = rng.dirichlet(np.full(k, 10 ** rng.uniform(-1, 1)))
    return assembled(points, share, n)


def near(pair: Pair, rng: np.random.Generator, step: float) -> Pair:
    """Some points moved, sizes changed, now and then a treatment flipped."""
    points = np.vstack([pair.common, pair.before, pair.after])
    where = rng.random(points[:, 1:].shape) < 0.4
    points[:, 1:] += step * rng.normal(size=where.shape) * where
    if rng.random() < 0.15:
        points[rng.integers(len(points)), 0] = rng.integers(0, 2)
    share = pair.count * np.exp(step * rng.normal(size=len(pair.count)) * (rng.random() < 0.5))
    return assembled(points, share / share.sum(), round(pair.count.sum()) + 1)


def assembled(points: Array, share: Array, n: int) -> Pair:
    """Whole counts that sum to n - 1, points in the unit ball."""
    x = points[:, 1:]
    points = np.column_stack([points[:, 0], x / np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]])
    count = np.maximum(1.0, np.rint(share * (n - 1)))
    count[np.argmax(count)] += n - 1 - count.sum()
    if count.min() < 1:  # more clusters than records
        count = np.ones(len(count))
        count[0] += n - 1 - count.sum()
    return Pair(points[:-2], count, points[-2], points[-1])


def on_margins(fit: Fit) -> Fit:
    """A fit on z = (2a - 1) x, for points (a, x)."""

    def fitted(points: Array, count: Array) -> Array:
        return fit((2 * points[:, :1] - 1) * points[:, 1:], count)

    return fitted


def of_each_record(unnormalized: Callable[[Array], Array]) -> Fit:
    """Weights proportional to a function of each record."""

    def fitted(points: Array, count: Array) -> Array:
        f = unnormalized(points)
        weights: Array = count.sum() * f / (count @ f)
        return weights

    return fitted
