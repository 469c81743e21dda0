"""Numbers computed from observations, whose tails are events."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from dp2erm_cvx.audit.blackbox.observation import Observation, lowest_bits
from dp2erm_cvx.domain import Array

#: Standardized numbers are cut off here before a classifier sees them.
_FAR = 20.0
#: Bins of a coordinate, of equal shares of the learning runs.
_BINS = 12
#: Directions of a relative spread below this are taken to have none.
_FLAT = 1e-13


@dataclass(frozen=True)
class Statistic:
    """``name`` of a function of the numbers (m, q) of observations of one ``kind``, giving (m,)."""

    name: str
    kind: str
    function: Callable[[Array], Array]

    def __call__(self, observations: Sequence[Observation]) -> Array:
        """Values (m,), NaN where the observation is of another kind or the value is not finite."""
        mine = np.array([observation.kind == self.kind for observation in observations], dtype=bool)
        values = np.full(len(observations), np.nan)
        if mine.any():
            with np.errstate(all="ignore"):
                values[mine] = self.function(numbers_of(observations, self.kind))
        values[~np.isfinite(values)] = np.nan
        return values


def numbers_of(observations: Sequence[Observation], kind: str) -> Array:
    """The numbers (m, q) of the observations of ``kind``."""
    return np.array([observation.numbers for observation in observations if observation.kind == kind])


def tails(first: Array, second: Array, kind: str, names: Sequence[str]) -> Iterator[Statistic]:
    """Every coordinate, its distance from the middle, and norms; ``first`` and ``second`` are learning runs.

    Both are (m, q).
    """
    with np.errstate(all="ignore"):
        middle, scale = _standard(np.concatenate([first, second]))
    for j, name in enumerate(names):
        yield Statistic(name, kind, partial(_coordinate, j))
        yield Statistic(f"|{name} - {middle[j]:.6g}|", kind, partial(_distance, j, float(middle[j])))
    if len(names) > 1:
        for order, label in ((1, "l1"), (2, "l2"), (np.inf, "largest")):
            yield Statistic(
                f"{label} norm of the standardized output", kind, partial(_length, order, middle, scale)
            )


def learned(first: Array, second: Array, kind: str, names: Sequence[str]) -> Iterator[Statistic]:
    """Scores that separate the learning runs: of each coordinate, Fisher's, a logistic regression's."""
    if min(len(first), len(second)) < 5:
        return
    for j, name in enumerate(names):
        yield Statistic(
            f"log odds of {name} in bins", kind, partial(_in_bins, j, *_bins(first[:, j], second[:, j]))
        )
    with np.errstate(all="ignore"):  # outputs may be as large as floats get
        direction = _fisher(first, second)
    if np.all(np.isfinite(direction)):
        yield Statistic("Fisher's direction of the output", kind, partial(_along, direction))
    pooled = np.concatenate([first, second])
    with np.errstate(all="ignore"):
        middle, scale = _standard(pooled)
        centers = [np.median(_put(part, middle, scale), axis=0) for part in (first, second)]

    def features(x: Array) -> Array:
        z = _put(x, middle, scale)
        with np.errstate(all="ignore"):
            ends = [z - center for center in centers]
            lengths = [np.linalg.norm(v, order, axis=1) for v in (z, *ends) for order in (1, 2)]
        cut = np.clip(np.column_stack([z, np.abs(z), *lengths]), -_FAR, _FAR)
        return np.asarray(np.nan_to_num(cut), dtype=np.float64)

    labels = np.repeat([1, 0], [len(first), len(second)])
    model = LogisticRegression(max_iter=300)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # a score that is not quite converged is a worse guess, not a wrong one
        warnings.simplefilter("ignore")
        model.fit(features(pooled), labels)
    yield Statistic(
        "log odds of a logistic regression on the output, its absolute values and distances",
        kind,
        lambda x: np.asarray(model.decision_function(features(x)), dtype=np.float64),
    )


def bits(kind: str, names: Sequence[str]) -> Iterator[Statistic]:
    """How fine the grid is that a coordinate lies on: naive floating-point noise leaks through it."""
    for j, name in enumerate(names):
        yield Statistic(f"lowest set bit of {name}", kind, partial(_lowest_bit, j))


def _bins(first: Array, second: Array) -> tuple[Array, Array]:
    """Edges (e,), and the log odds (2 e + 1,) of the values below, on, between and above them."""
    pooled = np.concatenate([first, second])
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, _BINS + 1), method="lower"))
    counts = [np.bincount(_places(part, edges), minlength=2 * len(edges) + 1) for part in (first, second)]
    return edges, np.log((counts[0] + 0.5) / (counts[1] + 0.5))


def _places(values: Array, edges: Array) -> NDArray[np.intp]:
    # a value on an edge, such as a bound that outputs are clipped to, is a place of its own
    return np.searchsorted(edges, values, side="left") + np.searchsorted(edges, values, side="right")


def _in_bins(j: int, edges: Array, odds: Array, x: Array) -> Array:
    return np.asarray(odds[_places(x[:, j], edges)], dtype=np.float64)


def _coordinate(j: int, x: Array) -> Array:
    return x[:, j]


def _distance(j: int, middle: float, x: Array) -> Array:
    return np.abs(x[:, j] - middle)


def _length(order: float, middle: Array, scale: Array, x: Array) -> Array:
    return np.asarray(np.linalg.norm(_put(x, middle, scale), order, axis=1), dtype=np.float64)


def _along(direction: Array, x: Array) -> Array:
    return np.asarray(x @ direction, dtype=np.float64)


def _lowest_bit(j: int, x: Array) -> Array:
    return lowest_bits(x[:, j])


def _standard(x: Array) -> tuple[Array, Array]:
    low, middle, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    spread = np.where(high > low, high - low, np.std(x, axis=0))
    return middle, np.where(spread > 0, spread, 1.0)


def _put(x: Array, middle: Array, scale: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray((x - middle) / scale, dtype=np.float64)


def _fisher(first: Array, second: Array) -> Array:
    """``S^+ (m_1 - m_2)`` (q,), S the spread within a dataset, of learning runs (m, q).

    It comes from singular values, so that a direction that is nearly flat, because the same noise came twice
    along it, keeps its digits.
    """
    _, scale = _standard(np.concatenate([first, second]))
    one, other = first / scale, second / scale
    between = one.mean(axis=0) - other.mean(axis=0)
    within = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
    if not np.all(np.isfinite(within)):
        return np.full(within.shape[1], np.nan)
    _, spread, axes = np.linalg.svd(within, full_matrices=False)
    if spread[0] == 0.0:
        return np.asarray(between / scale, dtype=np.float64)
    relative = np.maximum(spread / spread[0], _FLAT)
    direction = axes.T @ (axes @ between / relative**2)
    length = float(np.linalg.norm(direction))
    return np.asarray(direction / scale / (length if length > 0 else 1.0), dtype=np.float64)
