"""Neighbors of a given dataset: one record is replaced, and weights are solved for side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.audit.movement import Interval, Movement, NeighborPair, Quantity
from dp2erm_cvx.audit.pairs import records_at
from dp2erm_cvx.audit.search import evolve
from dp2erm_cvx.blocks import tree_sum
from dp2erm_cvx.domain import Array, Records, Universe
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import solve
from dp2erm_cvx.solve.batch import Neighborhood, Replacements
from dp2erm_cvx.solve.solving import TOLERANCE

#: Records that the direction of largest spread is taken from.
_SPREAD = 100_000
#: Ways to choose a neighbor of given data.
STRATEGIES = ("random", "held-out", "extreme", "flips", "each", "ascent")


@dataclass(frozen=True, eq=False)
class Replacement:
    """Record ``index`` of dataset ``base`` gets scaled ``covariates`` (d,), no intercept, and an ``arm``."""

    index: int
    covariates: Array
    arm: int
    origin: str
    base: int = 0


class Base:
    """One dataset, its weights, and the directions in which its fitted coefficient points."""

    def __init__(
        self,
        program: FirstStage,
        universe: Universe,
        records: Records,
        pool: Array | None = None,
        index: int = 0,
    ) -> None:
        self.program, self.universe, self.records, self.pool = program, universe, records, pool
        self.index = index
        #: Treatments (n,): of every record what is asked in any order, held like its weight.
        self.arms: NDArray[Any] = np.concatenate(records.blocks.map(attrgetter("a")))
        self.treated = int(np.sum(self.arms))
        instance = program.instance(records)
        solution = solve(instance, throw=False)
        self.neighborhood = Neighborhood(program, records, (instance, solution.point))
        self.weights = solution.value
        self.radius = solution.certificate.output_radius
        self.directions = self._directions(solution.point)

    def _directions(self, point: Array) -> list[Array]:
        """Coefficients of the fitted ``point`` that have one entry per covariate, and axes of the data."""
        n, k = self.records.n_samples, self.records.n_features
        some = self.records.at(np.arange(min(n, _SPREAD))).covariates
        directions = []
        if len(point) in (k, k + 1, 2 * (k + 1)):
            # one coefficient or one per arm, behind that of a constant if there is one
            parts = point.reshape(1 + len(point) // (2 * (k + 1)), -1)[:, -k:]
            directions = [*parts, *([parts[0] - parts[1]] if len(parts) == 2 else [])]
        if 0 < self.treated < n:
            sums = tree_sum(self.records.blocks.map(_sums_by_arm))
            directions.append(sums[1] / self.treated - sums[0] / (n - self.treated))
        directions.append(np.linalg.svd(some - some.mean(axis=0), full_matrices=False)[2][0])
        return [u / np.linalg.norm(u) for u in directions if np.linalg.norm(u) > 1e-12]

    @cached_property
    def by_weight(self) -> NDArray[np.int64]:
        """The records, lightest first."""
        return np.argsort(self.weights)

    def pair(self, change: Replacement) -> NeighborPair | None:
        """The two datasets, or None where the neighbor leaves the universe."""
        inside, one = self._replacements([change])
        return NeighborPair(self.records, one.neighbor(0), change.index, change.origin) if inside else None

    def moved(self, changes: list[Replacement]) -> list[tuple[Replacement, dict[Quantity, Interval]]]:
        """Changes with their certified movements, solved side by side; no weights are held.

        Without those that leave the universe and those that have no certified weights.
        """
        inside, replacements = self._replacements(changes)
        reading = Movement(self.weights, self.radius, TOLERANCE * self.records.n_samples)
        moves = []
        for part in self.neighborhood.solve(replacements, reading):
            sums, largest, own = part.values
            for k in np.flatnonzero(np.isfinite(part.radius)):
                change = inside[part.first + int(k)]
                ends = float(self.weights[change.index]), float(own[k])
                read = reading.intervals(sums[k], largest[k], ends, float(part.radius[k]))
                moves.append((change, read))
        return moves

    def resolved(self, changes: list[Replacement]) -> list[NeighborPair]:
        """Pairs of those changes with their datasets and weights: for a few."""
        inside, replacements = self._replacements(changes)
        pairs = []
        for part in self.neighborhood.solve(replacements):
            for k in np.flatnonzero(np.isfinite(part.radius)):
                pair = self.pair(inside[part.first + int(k)])
                assert pair is not None
                end = part.values[0][k], float(part.radius[k])
                pairs.append(pair.moved((self.weights, self.radius), end))
        return pairs

    def _replacements(self, changes: list[Replacement]) -> tuple[list[Replacement], Replacements]:
        """The changes that stay in the universe."""
        inside = [change for change in changes if self._stays(change)]
        points = [self.universe.domain.inside(change.covariates) for change in inside]
        X = np.array(points).reshape(len(inside), self.universe.n_features)
        arms = np.array([change.arm for change in inside], dtype=np.int64)
        new = records_at(self.universe.domain, X, arms)
        index = np.array([change.index for change in inside], dtype=np.int64)
        return inside, Replacements(self.records, index, new.X, new.a)

    def _stays(self, change: Replacement) -> bool:
        old = int(self.arms[change.index])
        if not self.universe.flips and change.arm != old:
            return False
        treated = self.treated - old + change.arm
        floor = self.universe.domain.arm_floor or 0
        return min(treated, self.records.n_samples - treated) >= floor

    def propose(self, strategy: str, chunk: int, size: int, rng: np.random.Generator) -> list[Replacement]:
        """``size`` replacements of one strategy; ``chunk`` counts how often it was asked before.

        "each" takes the records in turn and sends each to the far end of a coefficient with the other
        treatment; "ascent" proposes only where to begin. Points are vertices of the ball, antipodes, corners
        or random. The records that points are made of are read in one pass.
        """
        drawn = [_drawn(self, strategy, chunk * size + k, rng) for k in range(size)]
        rows = self.records.at(np.array([source for _, source, _ in drawn], dtype=np.int64)).covariates
        return [
            Replacement(j, point(row), arm, strategy, self.index)
            for ((j, arm), _, point), row in zip(drawn, rows, strict=True)
        ]

    def ascend(
        self, start: Replacement, step: float, solves: int, rng: np.random.Generator
    ) -> tuple[Replacement, int]:
        """Where an evolution strategy on the covariates of the changed record ends, and the solves it took.

        ``step`` is its first one, in radii of the ball.
        """
        domain = self.universe.domain

        def placed(u: Array) -> list[Replacement]:
            points = (domain.inside(domain.features_bound * point) for point in u)
            return [dataclasses.replace(start, covariates=point, origin="ascent") for point in points]

        def height(u: Array) -> Array:
            changes = placed(u)
            reached = {id(change): movement[Quantity.V].low for change, movement in self.moved(changes)}
            return np.array([reached.get(id(change), np.nan) for change in changes])

        climb = start.covariates / domain.features_bound, step, solves
        ((best, _, spent),) = evolve(lambda tried: [height(u) for _, u in tried], [climb], rng)
        return placed(best[None])[0], spent


def _sums_by_arm(records: Records) -> Array:
    return np.array([records.covariates[records.a == arm].sum(axis=0) for arm in (0, 1)])


#: Which record becomes of which arm, the record whose covariates are asked for, and the point they make.
_Drawn = tuple[tuple[int, int], int, Callable[[Array], Array]]


def _drawn(base: Base, strategy: str, number: int, rng: np.random.Generator) -> _Drawn:
    n, d = base.records.n_samples, base.universe.n_features
    a, r, by_weight = base.arms, base.universe.domain.features_bound, base.by_weight
    heavy = by_weight[-1 - int(rng.integers(max(1, n // 20)))]
    light = by_weight[int(rng.integers(max(1, n // 20)))]
    j = int(rng.choice([heavy, light, rng.integers(n)]))
    arm = int(rng.integers(0, 2)) if base.universe.flips else int(a[j])
    u = base.directions[int(rng.integers(len(base.directions)))]
    point = r * rng.choice([-1.0, 1.0]) * u
    if strategy == "random":
        point = rng.normal(size=d)
        point *= r * rng.random() ** (1 / d) / np.linalg.norm(point)
    elif strategy == "held-out":
        k = int(rng.integers(n if base.pool is None else len(base.pool)))
        if base.pool is None:
            return (j, arm), k, np.copy
        point = base.pool[k]
    elif strategy == "flips":
        return (j, 1 - int(a[j])), j, np.copy
    elif strategy == "each":
        j = number % n
        arm = 1 - int(a[j]) if base.universe.flips else int(a[j])
        sign = (2 * int(a[j]) - 1) * (2 * arm - 1)
        return (j, arm), j, lambda row: (r if sign * float(row @ u) < 0 else -r) * u
    elif rng.random() < 0.3:
        point = rng.choice([-1.0, 1.0], d) * r / np.sqrt(d)
    elif rng.random() < 0.3:
        return (j, arm), j, lambda row: -row * r / np.linalg.norm(row) if np.any(row) else point
    return (j, arm), j, lambda row: point
