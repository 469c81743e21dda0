"""Movement of separable weights by arm between neighbors, found by a search of its own.

Rows are numbers of [-1, 1] or points of the disk; datasets are clusters of records, and the changed
record is alone. Nothing here is shared with the bounds: curves are functions of NumPy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]
Map = Callable[[Array, NDArray[np.bool_]], Array]
INF = math.inf

#: Steps of bisection, and of the search.
_HALVINGS = 70
#: Clusters of common records.
_CLUSTERS = 5


@dataclass(frozen=True)
class Scheme:
    """A scheme with rows of one number: slope and log weight at margins, by arm.

    Attributes
    ----------
    slope, log_weight : functions of the margin and of whether the record is treated
    ridge, radius : of the mean objective
    offset, factor, base : intervals of o, c and b
    tied : whether b is c
    l1, box, target : price of ``|v|``, bound on it, and a public linear term ``-target v``
    normalization : weights of sum n over "all" records, or n/2 by "arm"
    total : saturation of a normalization by arm, as a share of n
    """

    slope: Map
    log_weight: Map
    ridge: float
    radius: float = INF
    offset: tuple[float, float] = (0.0, 0.0)
    factor: tuple[float, float] = (1.0, 1.0)
    base: tuple[float, float] = (1.0, 1.0)
    tied: bool = False
    l1: float = 0.0
    target: float = 0.0
    normalization: str = "all"
    total: float = 0.0


#: Columns of a record: treated if positive, row, and where o, c and b lie in their intervals, all
#: in [-1, 1].
Dataset = Array


def movements(
    scheme: Scheme, common: Array, shares: Array, before: Array, after: Array, n: int
) -> Array:
    """Coupled variation of many pairs of neighbors.

    ``common`` (m, clusters, 5) and ``shares`` (m, clusters) are the others, ``before`` and
    ``after`` (m, 5) the record that is replaced.
    """
    counts = _counts(shares, n - 1)
    first, own = _weights(scheme, common, counts, before, n)
    second, other = _weights(scheme, common, counts, after, n)
    moved: Array = np.sum(counts * np.abs(first - second), axis=1) + own + other
    return moved


def _counts(shares: Array, total: int) -> Array:
    """Whole numbers of records in every cluster."""
    parts = np.cumsum(np.exp(shares), axis=1)
    edges = np.round(parts / parts[:, -1:] * total)
    return np.diff(edges, prepend=0.0, axis=1)


def _between(position: Array, ends: tuple[float, float]) -> Array:
    return ends[0] + 0.5 * (position + 1.0) * (ends[1] - ends[0])


def _weights(
    scheme: Scheme, common: Array, counts: Array, record: Array, n: int
) -> tuple[Array, Array]:
    """Weights of a record of every cluster, and of the single record."""
    rows = np.concatenate([common, record[:, None]], axis=1)
    count = np.concatenate([counts, np.ones((len(counts), 1))], axis=1)
    treated, z = rows[..., 0] > 0, rows[..., 1]
    offset, factor = _between(rows[..., 2], scheme.offset), _between(rows[..., 3], scheme.factor)
    base = factor if scheme.tied else _between(rows[..., 4], scheme.base)

    def gradient(v: Array) -> Array:
        slopes = factor * scheme.slope(z * v[:, None] + offset, treated) * z
        smooth: Array = np.sum(count * slopes, axis=1) / n + scheme.ridge * v - scheme.target
        return smooth

    reach = min(scheme.radius, 50.0 / math.sqrt(scheme.ridge))
    low, high = np.full(len(rows), -reach), np.full(len(rows), reach)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        falling = gradient(middle) + scheme.l1 * np.sign(middle) < 0
        low, high = np.where(falling, middle, low), np.where(falling, high, middle)
    v = 0.5 * (low + high)
    v = np.where(np.abs(gradient(np.zeros_like(v))) <= scheme.l1, 0.0, v)
    f = base * np.exp(scheme.log_weight(z * v[:, None] + offset, treated))
    weights = n * f / _divisors(scheme, treated, count * f, n)
    return weights[:, :-1], weights[:, -1]


def _divisors(scheme: Scheme, treated: NDArray[np.bool_], sums: Array, n: int) -> Array:
    """What n f is divided by, for every record."""
    if scheme.normalization == "all":
        return np.broadcast_to(np.sum(sums, axis=1, keepdims=True), sums.shape)
    arms = [np.sum(np.where(own, sums, 0.0), axis=1, keepdims=True) for own in (~treated, treated)]
    if not scheme.total:
        return 2.0 * np.where(treated, arms[1], arms[0])
    floors = [np.maximum(arm, n * scheme.total) for arm in arms]
    whole = arms[0] / floors[0] + arms[1] / floors[1]
    return np.where(treated, floors[1], floors[0]) * whole


@dataclass
class Search:
    """Evolution of pairs of neighbors with a fixed seed.

    Attributes
    ----------
    scheme, n : what moves, and the number of records
    floor : least number of records of an arm, on both sides
    keep : whether the changed record stays in its arm
    of_weights : whether the weight of the single record is sought in place of the movement
    """

    scheme: Scheme
    n: int
    floor: int = 0
    keep: bool = False
    seed: int = 0
    of_weights: bool = False
    best: float = field(default=0.0, init=False)

    def run(self, generations: int = 60, population: int = 400) -> float:
        """Largest movement found."""
        rng = np.random.default_rng(self.seed)
        size = (_CLUSTERS + 2) * 5 + _CLUSTERS
        found = rng.uniform(-1, 1, (population, size))
        at_ends = rng.random(found.shape) < 0.5
        found = np.where(at_ends, np.sign(found), found)
        found[:, -_CLUSTERS:] *= 6.0
        value = self.values(found)
        for generation in range(generations):
            parents = found[np.argsort(-value)[: population // 8]]
            picks = rng.integers(len(parents), size=(2, population))
            mixed = np.where(rng.random(found.shape) < 0.3, parents[picks[1]], parents[picks[0]])
            step = 0.5 * 0.9**generation
            noise = step * rng.standard_normal(found.shape) * (rng.random(found.shape) < 0.3)
            noise[:, -_CLUSTERS:] *= 4.0
            children = mixed + noise
            children[:, :-_CLUSTERS] = np.clip(children[:, :-_CLUSTERS], -1.0, 1.0)
            children[0] = found[np.argmax(value)]
            found, value = children, self.values(children)
        self.best = float(np.max(value))
        return self.best

    def values(self, found: Array) -> Array:
        """Movements of pairs; -inf where an arm is below its floor."""
        records = found[:, :-_CLUSTERS].reshape(len(found), _CLUSTERS + 2, 5).copy()
        shares = found[:, -_CLUSTERS:]
        if self.keep:
            records[:, -1, 0] = records[:, -2, 0]
        common, before, after = records[:, :-2], records[:, -2], records[:, -1]
        counts = _counts(shares, self.n - 1)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self.of_weights:
                _, moved = _weights(self.scheme, common, counts, before, self.n)
            else:
                moved = movements(self.scheme, common, shares, before, after, self.n)
        enough = np.ones(len(found), dtype=bool)
        for record in (before, after):
            treated = np.sum(counts * (common[..., 0] > 0), axis=1) + (record[:, 0] > 0)
            enough &= np.minimum(treated, self.n - treated) >= self.floor
        return np.where(enough & np.isfinite(moved), moved, -INF)


def logistic(s: Array, treated: Any) -> Array:
    """Slope of the logistic loss of the margin of the own arm, at ``u = <x, v> + o``."""
    slope: Array = np.where(treated, -expit(-s), expit(s))
    return slope


def own(s: Array, treated: Any) -> Array:
    """The margin of the own arm."""
    return np.where(treated, s, -s)
