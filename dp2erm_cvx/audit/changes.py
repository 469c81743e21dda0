"""Neighbors of given data: which record gives way to which, and how far the weights move.

Many are proposed, solved and read side by side, as columns; only what a search keeps becomes an
object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.movement import Intervals, Movement, NeighborPair, Quantity
from dp2erm_cvx.audit.pairs import records_at
from dp2erm_cvx.audit.search import Deadline
from dp2erm_cvx.audit.weighing import Weighing
from dp2erm_cvx.data.blocks import tree_sum
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.neighbors import Replacements
from dp2erm_cvx.neighbors.rows import Batch, Index
from dp2erm_cvx.solve.solving import TOLERANCE

#: A function of the auditor's own that chooses neighbors of a dataset.
Strategy = Callable[[Records, np.random.Generator], Replacements]

#: Share of the "extreme" ends that are corners of a cube.
_CORNERS = 0.3
#: Share of the other ends that are antipodes of a record.
_ANTIPODES = 0.3


@dataclass(frozen=True, eq=False)
class Replacement:
    """One record of a dataset that is replaced by another.

    Parameters
    ----------
    index
        The number of the record in its dataset.
    covariates
        The scaled covariates (d,) that it gets, without an intercept.
    arm
        The treatment that it gets.
    origin
        The strategy that proposed it.
    base
        The number of the dataset.
    """

    index: int
    covariates: Array
    arm: int
    origin: str
    base: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class Changes(Batch):
    """m replacements of one record each, side by side.

    Parameters
    ----------
    index
        Numbers (m,) of the records.
    covariates
        The scaled covariates (m, d) that each gets.
    arms
        The treatment (m,) that each gets.
    """

    covariates: Array
    arms: Index

    def one(self, k: int, origin: str, base: int) -> Replacement:
        """Change ``k`` as it is kept, of dataset number ``base``."""
        return Replacement(int(self.index[k]), self.covariates[k], int(self.arms[k]), origin, base)

    def and_those(self, others: Changes) -> Changes:
        """These, then others."""
        return Changes(
            np.concatenate([self.index, others.index]),
            np.concatenate([self.covariates, others.covariates]),
            np.concatenate([self.arms, others.arms]),
        )

    @classmethod
    def of(cls, kept: Sequence[Replacement]) -> Changes:
        """Those that were kept, at least one."""
        index = np.array([one.index for one in kept], dtype=np.int64)
        arms = np.array([one.arm for one in kept], dtype=np.int64)
        return cls(index, np.stack([one.covariates for one in kept]), arms)


@dataclass(frozen=True, eq=False, repr=False)
class Moves:
    """Changes that were solved, with their movements.

    Parameters
    ----------
    changes
        The changes.
    number
        Their numbers (m,) among those that were asked for.
    movements
        Certified movements of the weights by quantity, m intervals each.
    """

    changes: Changes
    number: Index
    movements: dict[Quantity, Intervals]

    def __len__(self) -> int:
        return len(self.number)

    def take(self, chosen: Index) -> Moves:
        """Those changes alone, with their movements."""
        movements = {
            quantity: Intervals(intervals.low[chosen], intervals.high[chosen])
            for quantity, intervals in self.movements.items()
        }
        return Moves(self.changes.take(chosen), self.number[chosen], movements)

    def highest(self, count: int) -> Index:
        """The ``count`` that are largest in V, one of every record, largest first."""
        order = np.argsort(-self.movements[Quantity.V].low, kind="stable")
        _, first = np.unique(self.changes.index[order], return_index=True)
        return order[np.sort(first)[:count]]

    def kept(
        self, origin: str, base: int, count: int, apart: float
    ) -> list[tuple[dict[str, float], Replacement]]:
        """The ``count`` largest by every quantity, each behind its heights by name.

        Heights by one quantity are no less than ``apart`` from each other.
        """
        heights: dict[int, dict[str, float]] = {}
        for quantity, intervals in self.movements.items():
            for k in _tallest(intervals.low, count, apart):
                heights.setdefault(k, {})[quantity.value] = float(intervals.low[k])
        return [(heights[k], self.changes.one(k, origin, base)) for k in sorted(heights)]


def _tallest(heights: Array, count: int, apart: float) -> list[int]:
    """Numbers of the ``count`` largest heights (m,) no less than ``apart`` from each other."""
    values, first = np.unique(heights, return_index=True)
    chosen = list[int]()
    last = math.inf
    for value, k in zip(values[::-1].tolist(), first[::-1].tolist(), strict=True):
        if last - value < apart:
            continue
        chosen.append(k)
        last = value
        if len(chosen) == count:
            break
    return chosen


class Base:
    """One dataset, its weights, and the directions in which its fitted coefficient points.

    Parameters
    ----------
    weighing
        The program or the function whose weights move.
    universe
        The datasets among which neighbors lie.
    records
        The dataset.
    pool
        Scaled covariates (n, d) that neighbors may get; None for those of the dataset.
    index
        The number of the dataset.
    """

    def __init__(
        self,
        weighing: Weighing,
        universe: MappedUniverse,
        records: Records,
        pool: Any = None,
        index: int = 0,
    ) -> None:
        self.weighing = weighing
        self.universe = universe
        self.records = records
        self.pool = pool
        self.index = index
        #: Treatments (n,): of every record what is asked in any order, held like its weight.
        self.arms: NDArray[Any] = np.concatenate(records.blocks.map(attrgetter("a")))
        begun = weighing.begun(records)
        self.neighbors = begun.neighbors
        #: Whether neighbors are solved together, asked once: what is tried does not depend on how
        #: they went.
        self.shares = begun.neighbors.shares
        #: Whether V has gradients that cost one solve.
        self.knows_gradients = self.shares and begun.neighbors.knows_gradients
        self.weights = begun.weights
        self.radius = begun.radius
        #: The records, lightest first.
        self.by_weight = np.argsort(self.weights)
        self.directions = self._directions(begun.point)

    def _directions(self, point: Array) -> Array:
        """Unit vectors (m, d): coefficients of the fitted ``point``, and axes of the data."""
        n = self.records.n_samples
        d = self.records.n_features
        directions = list[Array]()
        if len(point) in (d, d + 1, 2 * (d + 1)):
            # one coefficient or one per arm, behind that of a constant if there is one
            n_parts = 1 + len(point) // (2 * (d + 1))
            parts = point.reshape(n_parts, -1)[:, -d:]
            directions += list(parts)
            if n_parts == 2:
                directions.append(parts[0] - parts[1])
        treated = int(np.sum(self.arms))
        if 0 < treated < n:
            sums = tree_sum(self.records.blocks.map(_sums_by_arm))
            directions.append(sums[1] / treated - sums[0] / (n - treated))
        # some records tell the direction of the largest spread
        some = self.records.at(np.arange(min(n, 100_000))).covariates
        _, _, axes = np.linalg.svd(some - some.mean(axis=0), full_matrices=False)
        directions.append(axes[0])
        lengths = [np.linalg.norm(direction) for direction in directions]
        pairs = zip(directions, lengths, strict=True)
        return np.array([direction / length for direction, length in pairs if length > 1e-12])

    def pair(self, change: Replacement) -> NeighborPair | None:
        """The two datasets, or None where the neighbor leaves the universe."""
        inside, replacements = self._replacements(Changes.of([change]))
        if not len(inside):
            return None
        return NeighborPair(self.records, replacements.neighbor(0), change.index, change.origin)

    def moved(self, changes: Changes, until: Deadline | None = None) -> Moves:
        """Changes that stay in the universe with their certified movements, if there are any.

        No weights are held. Those that are solved alone are left out after the deadline.
        """
        inside, replacements = self._replacements(changes)
        reading = Movement(self.weights, self.radius, TOLERANCE * self.records.n_samples)
        until = until or Deadline()
        solved = self.neighbors.solve(replacements, reading, stopped=lambda: until.passed)
        places = [np.zeros(0, dtype=np.int64)]
        radii = [np.zeros(0)]
        sums = [np.zeros((0, 3))]
        largest = [np.zeros((0, 3))]
        changed_weights = [np.zeros(0)]
        # a neighbor at which a function has no weights is in no part
        for part in solved:
            of_sums, of_largest, of_changed = part.values
            places.append(part.first + np.arange(len(part.radius)))
            radii.append(part.radius)
            sums.append(of_sums)
            largest.append(of_largest)
            changed_weights.append(of_changed)
        radius = np.concatenate(radii)
        proved = np.isfinite(radius)
        number = inside[np.concatenate(places)[proved]]
        moved = changes.take(number)
        after = np.concatenate(changed_weights)[proved]
        ends = np.column_stack([self.weights[moved.index], after])
        movements = reading.intervals(
            np.concatenate(sums)[proved], np.concatenate(largest)[proved], ends, radius[proved]
        )
        return Moves(moved, number, movements)

    def _replacements(self, changes: Changes) -> tuple[Index, Replacements]:
        """Numbers of the changes that stay in the universe, and their neighbors."""
        space = self.universe.space
        new = records_at(space, space.inside(changes.covariates), changes.arms)
        drawn = Replacements(self.records, changes.index, new.X, new.a)
        inside = np.flatnonzero(drawn.admitted)
        return inside, drawn[inside]

    def proposed_by(
        self, strategy: Strategy, name: str, size: int, rng: np.random.Generator
    ) -> Changes:
        """At most ``size`` changes that a function of the auditor's own chooses.

        Raises DeclarationError where it returns anything but replacements of these records.
        """
        chosen = strategy(self.records, rng)
        if not isinstance(chosen, Replacements) or chosen.base is not self.records:
            raise DeclarationError(
                f"strategy {name!r}: must return Replacements of the records that it is given, "
                "such as Replacements.by_records(records, index, new)"
            )
        some = chosen.take(0, size)
        return Changes(some.index, some.records().covariates, some.a)

    def propose(self, strategy: str, first: int, size: int, rng: np.random.Generator) -> Changes:
        """``size`` changes of one strategy, of which ``first`` were proposed before."""
        if strategy == "each":
            index = (first + np.arange(size)) % self.records.n_samples
            return self._to_far_ends(index, rng)
        index = self._places(size, rng)
        if strategy == "flips":
            return Changes(index, self._covariates(index), 1 - self.arms[index])
        arms = self.arms[index]
        if self.universe.flips:
            arms = rng.integers(0, 2, size)
        return Changes(index, self._points(strategy, index, rng), arms)

    def _to_far_ends(self, index: Index, rng: np.random.Generator) -> Changes:
        """Changes of the records ``index`` to the far end of a coefficient.

        They get the other treatment where that may change, and then the far end is that on their
        own side.
        """
        ends = self._ends(len(index), rng)
        along = np.sum(self._covariates(index) * ends, axis=1)
        arms = self.arms[index]
        if self.universe.flips:
            along = -along
            arms = 1 - arms
        far = along < 0
        return Changes(index, np.where(far[:, None], ends, -ends), arms)

    def centered(self, first: int, size: int) -> Changes:
        """Changes of the heaviest records, of which ``first`` were proposed before, to the center.

        At most n, in the other arm where that may change. How far such a change moves the weights
        tells best how far they move once its slopes are followed.
        """
        n = self.records.n_samples
        places = (first + np.arange(min(size, n))) % n
        index = self.by_weight[n - 1 - places]
        arms = self.arms[index]
        if self.universe.flips:
            arms = 1 - arms
        return Changes(index, np.zeros((len(index), self.universe.n_features)), arms)

    def carried(self, kept: Changes, size: int, rng: np.random.Generator) -> Changes:
        """``size`` changes of other records to what was kept.

        A few of them become the antipode in the other arm. What a record becomes moves the weights
        of all others much alike, whichever record it is.
        """
        source = rng.integers(len(kept), size=size)
        index = self._places(size, rng)
        points = kept.covariates[source]
        if not self.universe.flips:
            return Changes(index, points, self.arms[index])
        arms = kept.arms[source]
        turned = rng.random(size) < _ANTIPODES
        points = np.where(turned[:, None], -points, points)
        return Changes(index, points, np.where(turned, 1 - arms, arms))

    def _places(self, size: int, rng: np.random.Generator) -> Index:
        """Records to replace: among the heaviest, among the lightest, or any."""
        n = self.records.n_samples
        some = max(1, n // 20)
        heavy = self.by_weight[n - 1 - rng.integers(some, size=size)]
        light = self.by_weight[rng.integers(some, size=size)]
        kind = rng.integers(3, size=size)
        anywhere = rng.integers(n, size=size)
        return np.choose(kind, [heavy, light, anywhere])

    def _points(self, strategy: str, index: Index, rng: np.random.Generator) -> Array:
        """Scaled covariates (m, d) that the records ``index`` get."""
        size = len(index)
        d = self.universe.n_features
        bound = self.universe.space.features_bound
        if strategy == "random":
            normal = rng.normal(size=(size, d))
            radius = bound * rng.random((size, 1)) ** (1 / d)
            return np.asarray(normal * radius / np.linalg.norm(normal, axis=1, keepdims=True))
        if strategy == "held-out":
            if self.pool is None:
                return self._covariates(rng.integers(self.records.n_samples, size=size))
            return np.asarray(self.pool[rng.integers(len(self.pool), size=size)])
        points = self._ends(size, rng)
        rows = self._covariates(index)
        lengths = np.linalg.norm(rows, axis=1)
        antipodes = (rng.random(size) < _ANTIPODES) & (lengths > 0.0)
        points[antipodes] = -bound * rows[antipodes] / lengths[antipodes, None]
        corners = rng.random(size) < _CORNERS
        signs = rng.choice([-1.0, 1.0], (int(np.sum(corners)), d))
        points[corners] = signs * bound / np.sqrt(d)
        return points

    def _ends(self, size: int, rng: np.random.Generator) -> Array:
        """Ends of the ball along one of the directions, (m, d)."""
        length = self.universe.space.features_bound * rng.choice([-1.0, 1.0], size)
        chosen = rng.integers(len(self.directions), size=size)
        return np.asarray(length[:, None] * self.directions[chosen])

    def _covariates(self, index: Index) -> Array:
        """Scaled covariates of the records ``index``, read in one pass."""
        return self.records.at(index).covariates

    def heights(self, changes: Changes, points: Array, until: Deadline) -> Array:
        """V (m,) where the records of changes get other ``points`` (m, d), or NaN."""
        reached = np.full(len(changes), np.nan)
        if not until.passed:
            points = self.universe.space.inside(points)
            moves = self.moved(Changes(changes.index, points, changes.arms), until)
            reached[moves.number] = moves.movements[Quantity.V].low
        return reached

    def gradients(self, changes: Changes, points: Array, until: Deadline) -> Array:
        """Gradients (m, d) of V at other ``points`` (m, d) of the changes, or NaN.

        Those that neighbors have, of which nothing is proved.
        """
        found = np.full(points.shape, np.nan)
        if not until.passed:
            moved = Changes(changes.index, points, changes.arms)
            inside, replacements = self._replacements(moved)
            found[inside] = self.neighbors.gradients(replacements, self.weights)
        return found


def _sums_by_arm(records: Records) -> Array:
    """Sums (2, d) of the covariates of both arms."""
    return np.array([records.covariates[records.a == arm].sum(axis=0) for arm in (0, 1)])
