"""The largest value met of a function over vectors of public sets, against a bound on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from dp2erm_cvx.domain import Array


@dataclass(frozen=True)
class Region:
    """A public set in ``R^dimension``: every point is searched for through its ``project``.

    ``project`` maps any vector (d,) to a point of the set, e.g. by clipping; ``scale`` is the size of
    the set per coordinate; ``vertices`` are points (d,) tried first.
    """

    dimension: int
    project: Callable[[Array], Array]
    scale: float | Array = 1.0
    vertices: tuple[Array, ...] = ()

    def draw(self, rng: np.random.Generator) -> Array:
        """A vertex, or a random point that the projection often puts on the boundary."""
        if self.vertices and rng.random() < 0.4:
            return self.project(self.vertices[rng.integers(len(self.vertices))])
        return self.project(self.scale * rng.normal(size=self.dimension) * 10.0 ** rng.uniform(-1.0, 0.7))

    def near(self, point: Array, rng: np.random.Generator) -> Array:
        """A point moved on some coordinates, by steps of all sizes."""
        moved = self.scale * rng.normal(size=self.dimension) * 10.0 ** rng.uniform(-4.0, 0.3)
        return self.project(point + moved * (rng.random(self.dimension) < (0.3, 1.0)[rng.integers(2)]))


def ball(dimension: int, radius: float) -> Region:
    """The Euclidean ball of ``radius`` > 0 around 0, with the ends of its axes."""
    scale = radius / math.sqrt(dimension)
    return Region(dimension, lambda point: _clipped(point, radius), scale, tuple(_axes(dimension, radius)))


def record_domain(p: int, M: float, outcome_bound: float | None = None) -> Region:
    """Records ``(x_1, ..., x_p, a)`` or, with an outcome bound, ``(x_1, ..., x_p, a, y)``.

    ``||x|| <= M``, a in {0, 1}, ``|y| <= outcome_bound``.
    """
    size = outcome_bound or 0.0

    def project(record: Array) -> Array:
        point = np.clip(record, -size, size)
        point[:p], point[p] = _clipped(record[:p], M), record[p] > 0.5
        return point

    ends: list[list[float]] = [[]] if outcome_bound is None else [[-size], [size]]
    corners = [np.concatenate([x, [a], y]) for x in _axes(p, M) for a in (0.0, 1.0) for y in ends]
    spread = [*np.full(p, M / math.sqrt(p)), 1.0] + ([] if outcome_bound is None else [size])
    return Region(len(spread), project, np.array(spread), tuple(corners))


def _clipped(point: Array, radius: float) -> Array:
    size = math.sqrt(point @ point)
    return point if size <= radius else point * (radius / size * (1.0 - 1e-15))


def _axes(dimension: int, radius: float) -> list[Array]:
    return [sign * radius * row for row in np.eye(dimension) for sign in (1.0, -1.0)]


@dataclass(frozen=True)
class Reached:
    """The largest value of what one ``constant`` bounds that was met, and the ``points`` where.

    ``slack`` is the relative error of the value; where 0 is declared, rounding may exceed it by 1e-7.
    """

    constant: str
    declared: float
    value: float
    points: tuple[Array, ...]
    slack: float = 1e-9

    @property
    def ratio(self) -> float:
        """Value over declared."""
        if self.declared > 0.0:
            return self.value / self.declared
        return math.inf if self.value > 1e-7 else 0.0

    @property
    def violated(self) -> bool:
        """Whether the declared constant is refuted, beyond rounding."""
        return self.ratio > 1.0 + self.slack


def largest(
    constant: str,
    declared: float,
    value: Callable[..., float],
    regions: Sequence[Region],
    *,
    evaluations: int = 2000,
    seed: int = 0,
) -> Reached:
    """The largest ``value(*points)`` met, one point per region, against a declared bound on it.

    Vertices, random points, then local ascent from the best.
    """
    rng = np.random.default_rng(seed)
    kept: list[tuple[float, tuple[Array, ...]]] = []
    for step in range(evaluations):
        if step < evaluations // 3 or rng.random() < 0.05:
            points = tuple(region.draw(rng) for region in regions)
        else:
            start = kept[int(rng.integers(len(kept)))][1]
            chosen = rng.random(len(regions)) < (0.5, 1.0)[rng.integers(2)]
            points = tuple(
                region.near(point, rng) if move else point
                for region, point, move in zip(regions, start, chosen, strict=True)
            )
        reached = float(value(*points))
        if math.isnan(reached) or not declared >= 0.0:
            raise ValueError(f"{constant}: its bound or its value is not a number somewhere")
        if len(kept) < 5 or reached > kept[-1][0]:
            kept = sorted([*kept, (reached, points)], key=lambda pair: -pair[0])[:5]
    return Reached(constant, declared, *kept[0])


_T = TypeVar("_T")


def remembered(function: Callable[[Array], _T]) -> Callable[[Array], _T]:
    """The same function of a vector, for a search that asks for one again and again."""
    known = lru_cache(maxsize=64)(lambda key: function(np.frombuffer(key)))
    return lambda vector: known(vector.tobytes())
