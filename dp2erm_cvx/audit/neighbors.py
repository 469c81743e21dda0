"""Neighbors of a stability audit: datasets of few distinct records, and replacements in a given one."""

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
from dp2erm_cvx.audit.search import evolve
from dp2erm_cvx.blocks import tree_sum
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import solve
from dp2erm_cvx.solve.batch import Neighborhood, Replacements
from dp2erm_cvx.solve.solve import TOLERANCE
from dp2erm_cvx.universe import Universe

#: Distinct values of the common records.
CLUSTERS = 4


def records_at(universe: Universe, covariates: Array, arm: NDArray[np.int64]) -> Records:
    """Records of the universe with scaled ``covariates`` (n, n_features) and zero outcomes."""
    X, domain = covariates, universe.domain
    if domain.intercept:
        X = np.column_stack([np.full(len(X), domain.intercept), X])
    return Records(X, arm, np.zeros(len(arm)), domain)


@dataclass(frozen=True)
class Groups:
    """b pairs of neighbors: CLUSTERS common values, then the changed record before and after.

    ``points`` (b, CLUSTERS + 2, d), ``arm`` (b, CLUSTERS + 2) in {0, 1}, ``count`` (b, CLUSTERS) whole
    numbers that sum to n - 1, some of them 0. Pairs outside of the universe have a count that is NaN.
    """

    points: Array
    arm: NDArray[np.int64]
    count: Array

    def __len__(self) -> int:
        return len(self.points)

    def take(self, index: NDArray[np.int64] | slice) -> Groups:
        """The pairs chosen."""
        return Groups(self.points[index], self.arm[index], self.count[index])

    def dataset(self, after: bool) -> tuple[Array, NDArray[np.int64], Array]:
        """Distinct rows (b, m, d), arms and counts (b, m) of one of the two datasets, m = CLUSTERS + 1."""
        rows = [*range(CLUSTERS), CLUSTERS + int(after)]
        count = np.column_stack([self.count, np.ones(len(self))])
        return self.points[:, rows], self.arm[:, rows], count

    def expand(self, index: int, universe: Universe) -> tuple[Records, Records]:
        """All n records of both datasets of one pair; they differ in the last one."""
        repeats = np.append(self.count[index], 1.0).astype(np.int64)
        first, second = (
            records_at(universe, rows[index].repeat(repeats, axis=0), arm[index].repeat(repeats, axis=0))
            for rows, arm, _ in (self.dataset(False), self.dataset(True))
        )
        return first, second

    @classmethod
    def joined(cls, parts: list[Groups]) -> Groups:
        """All pairs of all parts."""
        columns = zip(*((part.points, part.arm, part.count) for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    @classmethod
    def admitted(cls, universe: Universe, points: Array, arm: NDArray[np.int64], share: Array) -> Groups:
        """The pairs of the universe nearest to a proposal: points clipped, shares (b, CLUSTERS) rounded.

        Where an arm floor is declared, records are moved between the clusters of the two arms to meet it; a
        pair that cannot meet it is marked.
        """
        if not universe.flips:
            arm = np.column_stack([arm[:, :-1], arm[:, -2]])
        n, floor = universe.n_samples, universe.domain.arm_floor or 0
        share = np.maximum(share, 0.0)
        treated = arm[:, :CLUSTERS] == 1
        ends = arm[:, CLUSTERS:]
        low = np.maximum(floor - ends.min(axis=1), 0)
        high = np.minimum(n - floor - ends.max(axis=1), n - 1)
        total = share.sum(axis=1)
        part = np.where(treated, share, 0.0).sum(axis=1)
        wished = np.rint(part / np.maximum(total, 1e-300) * (n - 1))
        size = np.clip(wished, low, np.maximum(low, high))
        count = np.zeros_like(share)
        for side, amount in ((treated, size), (~treated, n - 1 - size)):
            count += _whole(np.where(side, share, 0.0), amount)
        valid = (count.sum(axis=1) == n - 1) & (low <= high)
        count[~valid] = np.nan
        return cls(universe.domain.inside(points), arm, count)

    @classmethod
    def starts(cls, universe: Universe, number: int, rng: np.random.Generator) -> Groups:
        """``number`` pairs drawn from all families in turn."""
        makers = _FAMILIES
        raw = [makers[index % len(makers)](rng, universe.n_features) for index in range(number)]
        if (universe.domain.arm_floor or 0) > 1:
            raw = [_with_both_arms(*each) for each in raw]
        points, arm, share = map(np.stack, zip(*raw, strict=True))
        return cls.admitted(universe, points * universe.domain.features_bound, arm, share)


def _whole(share: Array, amount: Array) -> Array:
    """Whole numbers (b, m) near ``share`` that sum to ``amount`` (b,); zeros where all shares are 0."""
    total = share.sum(axis=1, keepdims=True)
    exact = share / np.maximum(total, 1e-300) * amount[:, None]
    count = np.floor(exact + 1e-9)
    rest = np.where(total[:, 0] > 0, amount - count.sum(axis=1), 0.0)
    # the remainder, fewer than m records, goes to the largest fractions
    order = np.argsort(-(exact - count), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    whole: Array = count + (rank < rest[:, None])
    return whole


_Raw = tuple[Array, NDArray[np.int64], Array]


def _direction(rng: np.random.Generator, d: int) -> Array:
    u = rng.normal(size=d)
    return u / np.linalg.norm(u)


def _sizes(rng: np.random.Generator, least: int = 1) -> Array:
    """Shares of ``least`` to CLUSTERS clusters, even or very uneven; the others 0."""
    k = int(rng.integers(least, CLUSTERS + 1))
    share = np.zeros(CLUSTERS)
    share[:k] = rng.dirichlet(np.full(k, 10.0 ** rng.uniform(-1.0, 1.0)))
    return share


def _arms(rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(0, 2, CLUSTERS + 2)


def _anywhere(rng: np.random.Generator, d: int) -> _Raw:
    """Clusters anywhere, most on the sphere."""
    points = np.stack([_direction(rng, d) for _ in range(CLUSTERS + 2)])
    points *= np.where(rng.random((CLUSTERS + 2, 1)) < 0.6, 1.0, rng.random((CLUSTERS + 2, 1)))
    return points, _arms(rng), _sizes(rng)


def _collinear(rng: np.random.Generator, d: int) -> _Raw:
    """All records on one axis."""
    side = rng.choice([-1.0, 1.0], CLUSTERS + 2)
    at = side * np.where(rng.random(CLUSTERS + 2) < 0.5, 1.0, rng.random(CLUSTERS + 2))
    return at[:, None] * _direction(rng, d), _arms(rng), _sizes(rng)


def _one_sided(rng: np.random.Generator, d: int) -> _Raw:
    """All common records in a half-space; the changed one crosses."""
    points, arm, share = _anywhere(rng, d)
    u = _direction(rng, d)
    points *= np.where(points @ u < 0, -1.0, 1.0)[:, None]
    points[-2:] = np.array([[1.0], [-1.0]]) * u
    return points, arm, share


def _separable(rng: np.random.Generator, d: int) -> _Raw:
    """Treated and untreated on either side of a hyperplane; the changed record anywhere."""
    points, arm, share = _anywhere(rng, d)
    side = np.where((points @ _direction(rng, d)) * (2 * arm - 1) < 0, -1.0, 1.0)
    side[-2:] = 1.0
    return points * side[:, None], arm, share


def _nearly_empty(rng: np.random.Generator, d: int) -> _Raw:
    """One arm with hardly any records."""
    points, arm, share = _anywhere(rng, d) if rng.random() < 0.5 else _collinear(rng, d)
    side = int(rng.integers(0, 2))
    arm[:CLUSTERS] = side
    if rng.random() < 0.5:
        arm[CLUSTERS - 1] = 1 - side
        share[CLUSTERS - 1] = 10.0 ** rng.uniform(-4.0, -1.0)
    return points, arm, share


def _jump(rng: np.random.Generator, d: int) -> _Raw:
    """A record that jumps from +u to -u with a flip, u along the coefficient the others ask for."""
    points, arm, share = _one_sided(rng, d) if rng.random() < 0.5 else _anywhere(rng, d)
    pull = (share * (2 * arm[:CLUSTERS] - 1)) @ points[:CLUSTERS]
    size = float(np.linalg.norm(pull))
    u = pull / size if size > 0 else _direction(rng, d)
    points[-2:] = rng.choice([-1.0, 1.0]) * np.array([[1.0], [-1.0]]) * u
    points[-2:] += 0.3 * rng.random() * rng.normal(size=(2, d))
    arm[-1] = 1 - arm[-2]
    return points, arm, share


def _across(rng: np.random.Generator, d: int) -> _Raw:
    """Records along u and a few against it, both split sideways; one jumps between the sides."""
    u, v = _direction(rng, d), _direction(rng, d)
    along, against, split, spread = rng.random(4)
    points = np.stack([along * u + split * v, along * u - split * v, spread * v - against * u])
    points = np.vstack([points, -spread * v - against * u, v - rng.random() * u, -v - rng.random() * u])
    part = rng.random()
    arm = np.full(CLUSTERS + 2, int(rng.integers(0, 2)))
    swapped = rng.random(CLUSTERS + 2) < 0.5
    # (x, a) and (-x, 1 - a) are alike to a logistic coefficient
    return (
        np.where(swapped[:, None], -points, points),
        np.where(swapped, 1 - arm, arm),
        np.array([part, part, 1 - part, 1 - part]) / 2,
    )


def _with_both_arms(points: Array, arm: NDArray[np.int64], share: Array) -> _Raw:
    """The same, where no arm of the common records is empty."""
    present = np.flatnonzero(share > 0)
    if len(np.unique(arm[present])) == 1:
        place = present[-1] if len(present) > 1 else (present[0] + 1) % CLUSTERS
        arm[place] = 1 - arm[present[0]]
        share[place] = max(share[place], 1e-3)
    return points, arm, share


#: Families of starts, in turns.
_FAMILIES = (_anywhere, _collinear, _one_sided, _separable, _nearly_empty, _jump, _across)


#: Records that the direction of largest spread is taken from.
_SPREAD = 100_000
#: Ways to choose a neighbor of given data.
STRATEGIES = ("random", "held-out", "extreme", "flips", "each", "ascent")


@dataclass(frozen=True)
class Replacement:
    """Record ``index`` becomes ``covariates`` (d,), scaled and without the intercept, in arm ``arm``."""

    index: int
    covariates: Array
    arm: int
    origin: str


class Base:
    """One dataset, its weights, and the directions in which its fitted coefficient points."""

    def __init__(
        self, program: FirstStage, universe: Universe, records: Records, pool: Array | None = None
    ) -> None:
        self.program, self.universe, self.records, self.pool = program, universe, records, pool
        #: Treatments (n,): of every record what is asked in any order, held like its weight.
        self.arms: NDArray[Any] = np.concatenate(records.blocks.map(attrgetter("a")))
        self.treated = int(np.sum(self.arms))
        instance = program.instance(records)
        solution = solve(instance, solver=program.usual_solver, throw=False)
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
        if not self._stays(change):
            return None
        _, one = self._replacements([change])
        return NeighborPair(self.records, one.neighbor(0), change.index, change.origin)

    def moved(self, changes: list[Replacement]) -> list[tuple[Replacement, dict[Quantity, Interval]]]:
        """Changes with their certified movements, solved side by side; no weights are held.

        Without those that leave the universe and those that have no certified weights.
        """
        inside, replacements = self._replacements(changes)
        reading = Movement.within(self.weights, self.radius, TOLERANCE * self.records.n_samples)
        found = []
        for part in self.neighborhood.read(replacements, reading):
            sums, largest, own = part.values
            for k in np.flatnonzero(np.isfinite(part.radius)):
                change = inside[part.first + int(k)]
                ends = float(self.weights[change.index]), float(own[k])
                read = reading.intervals(sums[k], largest[k], ends, float(part.radius[k]))
                found.append((change, read))
        return found

    def resolved(self, changes: list[Replacement]) -> list[NeighborPair]:
        """The same with the datasets and their weights: for a few."""
        inside, replacements = self._replacements(changes)
        found = []
        for part in self.neighborhood.solve(replacements):
            for k in np.flatnonzero(np.isfinite(part.radius)):
                pair = self.pair(inside[part.first + int(k)])
                assert pair is not None
                end = part.values[0][k], float(part.radius[k])
                found.append(pair.moved((self.weights, self.radius), end))
        return found

    def _replacements(self, changes: list[Replacement]) -> tuple[list[Replacement], Replacements]:
        """The changes that stay in the universe."""
        inside = [change for change in changes if self._stays(change)]
        points = [self.universe.domain.inside(change.covariates) for change in inside]
        X = np.array(points).reshape(len(inside), self.universe.n_features)
        arms = np.array([change.arm for change in inside], dtype=np.int64)
        new = records_at(self.universe, X, arms)
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
            Replacement(j, point(row), arm, strategy)
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

        best, _, spent = evolve(height, start.covariates / domain.features_bound, step, solves, rng)
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
