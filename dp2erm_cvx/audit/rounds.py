"""Looks of a stability audit: neighbors of given data, or of datasets of few kinds of records.

One record of a dataset is replaced, weights are solved for side by side, and the worst pairs in full.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.movement import (
    Claim,
    Interval,
    Movement,
    NeighborPair,
    Quantity,
    SolverCheck,
    Verdict,
    check,
    resolve,
)
from dp2erm_cvx.audit.pairs import Pairs, records_at
from dp2erm_cvx.audit.search import Deadline, Gain, SearchPlan, State, evolve, explore
from dp2erm_cvx.audit.surrogates import Surrogate
from dp2erm_cvx.audit.weighing import Weighing
from dp2erm_cvx.data.blocks import tree_sum
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.neighbors import Replacements
from dp2erm_cvx.solve.solving import TOLERANCE

#: Ways to choose a neighbor of given data, and the search over base datasets.
STRATEGIES, BASE = ("random", "held-out", "extreme", "flips", "each", "ascent"), "base"
#: Neighbors of one dataset in a look; those among which an ascent begins; looks per drawn dataset.
CHUNK, SCREENED, STAY = 100, 20, 4
#: One in so many neighbors is solved again by the named solver; pairs by which a fast surrogate is compared.
CHECKED, _SAMPLE = 100, 7
#: Pairs that are kept by every quantity.
KEPT = 10
#: Share of a limit in seconds that the search takes; the rest is for what is reported.
SEARCHING = 0.75


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
        self, weighing: Weighing, universe: MappedUniverse, records: Records, pool: Any = None, index: int = 0
    ) -> None:
        self.universe, self.records, self.pool, self.index = universe, records, pool, index
        #: Treatments (n,): of every record what is asked in any order, held like its weight.
        self.arms: NDArray[Any] = np.concatenate(records.blocks.map(attrgetter("a")))
        begun = weighing.begun(records)
        self.neighbors = begun.neighbors
        self.weights = begun.weights
        self.radius = begun.radius
        #: The records, lightest first.
        self.by_weight = np.argsort(self.weights)
        self.directions = self._directions(begun.point)

    def _directions(self, point: Array) -> list[Array]:
        """Coefficients of the fitted ``point`` that have one entry per covariate, and axes of the data."""
        n, k, treated = self.records.n_samples, self.records.n_features, int(np.sum(self.arms))
        some = self.records.at(np.arange(min(n, 100_000))).covariates  # to take the largest spread from
        directions = []
        if len(point) in (k, k + 1, 2 * (k + 1)):
            # one coefficient or one per arm, behind that of a constant if there is one
            parts = point.reshape(1 + len(point) // (2 * (k + 1)), -1)[:, -k:]
            directions = [*parts, *([parts[0] - parts[1]] if len(parts) == 2 else [])]
        if 0 < treated < n:
            sums = tree_sum(self.records.blocks.map(_sums_by_arm))
            directions.append(sums[1] / treated - sums[0] / (n - treated))
        directions.append(np.linalg.svd(some - some.mean(axis=0), full_matrices=False)[2][0])
        return [u / np.linalg.norm(u) for u in directions if np.linalg.norm(u) > 1e-12]

    def pair(self, change: Replacement) -> NeighborPair | None:
        """The two datasets, or None where the neighbor leaves the universe."""
        inside, one = self._replacements([change])
        return NeighborPair(self.records, one.neighbor(0), change.index, change.origin) if inside else None

    def moved(
        self, changes: list[Replacement], until: Deadline | None = None
    ) -> list[tuple[Replacement, dict[Quantity, Interval]]]:
        """Changes that stay in the universe with their certified movements, if any; no weights are held.

        Those that are solved alone are left out after the deadline.
        """
        inside, replacements = self._replacements(changes)
        reading = Movement(self.weights, self.radius, TOLERANCE * self.records.n_samples)
        until = until or Deadline()
        moves = []
        for part in self.neighbors.solve(replacements, reading, stopped=lambda: until.passed):
            sums, largest, own = part.values
            for k in np.flatnonzero(np.isfinite(part.radius)):
                change = inside[part.first + int(k)]
                ends = float(self.weights[change.index]), float(own[k])
                read = reading.intervals(sums[k], largest[k], ends, float(part.radius[k]))
                moves.append((change, read))
        return moves

    def _replacements(self, changes: list[Replacement]) -> tuple[list[Replacement], Replacements]:
        """The changes that stay in the universe."""
        points = [self.universe.space.inside(change.covariates) for change in changes]
        X = np.array(points).reshape(len(changes), self.universe.n_features)
        arms = np.array([change.arm for change in changes], dtype=np.int64)
        new = records_at(self.universe.space, X, arms)
        index = np.array([change.index for change in changes], dtype=np.int64)
        drawn = Replacements(self.records, index, new.X, new.a)
        admitted = drawn.admitted
        return [changes[k] for k in np.flatnonzero(admitted)], drawn[admitted]

    def proposed_by(
        self, strategy: Strategy, name: str, size: int, rng: np.random.Generator
    ) -> list[Replacement]:
        """At most ``size`` replacements that a function of the auditor's own chooses.

        Raises DeclarationError where it returns anything but replacements of these records.
        """
        chosen = strategy(self.records, rng)
        if not isinstance(chosen, Replacements) or chosen.base is not self.records:
            raise DeclarationError(
                f"strategy {name!r}: must return Replacements of the records that it is given, such as "
                "Replacements.by_records(records, index, new)"
            )
        some = chosen.take(0, size)
        rows = some.records().covariates
        return [
            Replacement(int(j), row, int(arm), name, self.index)
            for j, row, arm in zip(some.index, rows, some.a, strict=True)
        ]

    def propose(self, strategy: str, chunk: int, size: int, rng: np.random.Generator) -> list[Replacement]:
        """``size`` replacements of one strategy; ``chunk`` counts how often it was asked before."""
        drawn = [_drawn(self, strategy, chunk * size + k, rng) for k in range(size)]
        # the records that points are made of are read in one pass
        rows = self.records.at(np.array([source for _, source, _ in drawn], dtype=np.int64)).covariates
        return [
            Replacement(j, point(row), arm, strategy, self.index)
            for ((j, arm), _, point), row in zip(drawn, rows, strict=True)
        ]

    def ascend(
        self, start: Replacement, step: float, solves: int, rng: np.random.Generator, until: Deadline
    ) -> tuple[Replacement, int]:
        """Where an evolution strategy on the covariates of the record ends, and the solves it took.

        After the deadline nothing is tried any more.
        """
        space = self.universe.space

        def placed(u: Array) -> list[Replacement]:
            points = (space.inside(space.features_bound * point) for point in u)
            return [dataclasses.replace(start, covariates=point, origin="ascent") for point in points]

        def height(u: Array) -> Array:
            if until.passed:
                return np.full(len(u), np.nan)
            changes = placed(u)
            moved = self.moved(changes, until)
            reached = {id(change): movement[Quantity.V].low for change, movement in moved}
            return np.array([reached.get(id(change), np.nan) for change in changes])

        climb = start.covariates / space.features_bound, step, solves
        ((best, _, spent),) = evolve(lambda tried: [height(u) for _, u in tried], [climb], rng)
        return placed(best[None])[0], spent


def _sums_by_arm(records: Records) -> Array:
    return np.array([records.covariates[records.a == arm].sum(axis=0) for arm in (0, 1)])


#: Which record becomes of which arm, the record whose covariates are asked for, and the point they make.
_Drawn = tuple[tuple[int, int], int, Callable[[Array], Array]]


def _drawn(base: Base, strategy: str, number: int, rng: np.random.Generator) -> _Drawn:
    n, d = base.records.n_samples, base.universe.n_features
    a, r, some = base.arms, base.universe.space.features_bound, max(1, n // 20)
    heavy = base.by_weight[-1 - int(rng.integers(some))]
    light = base.by_weight[int(rng.integers(some))]
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
    elif strategy == "each":  # in turn, to the far end of a coefficient, with the other treatment
        j, sign = number % n, -1 if base.universe.flips else 1
        arm = 1 - int(a[j]) if base.universe.flips else int(a[j])
        return (j, arm), j, lambda row: (r if sign * float(row @ u) < 0 else -r) * u
    elif rng.random() < 0.3:
        point = rng.choice([-1.0, 1.0], d) * r / np.sqrt(d)
    elif rng.random() < 0.3:
        return (j, arm), j, lambda row: -row * r / np.linalg.norm(row) if np.any(row) else point
    return (j, arm), j, lambda row: point


#: A function of the auditor's own that chooses neighbors of a dataset.
Strategy = Callable[[Records, np.random.Generator], Replacements]

#: A pair that is kept: of few kinds of records, or a change of one dataset.
Kept = Pairs | Replacement


@dataclass(eq=False)
class Rounds:
    """Looks of one strategy each, in turns of their ``names``.

    ``source`` is the dataset whose neighbors are tried, or draws them, None for the search over base datasets
    alone. ``pool`` are covariates of held-out records (m, d), None for those of the data. ``solver`` solves
    one in so many neighbors again, within ``solver_seconds``. ``few`` records are those that the declared
    problem takes. Looks end soon after ``until``. ``own`` are strategies of the auditor by their names.
    """

    weighing: Weighing
    universe: Universe
    claims: Sequence[Claim]
    names: Sequence[str]
    source: Records | Callable[[np.random.Generator], Records] | None = None
    pool: Array | None = None
    seed: int = 0
    solver: str = ""
    few: bool = True
    until: Deadline = field(default_factory=Deadline)
    solver_seconds: float | None = None
    own: Mapping[str, Strategy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        universe = self.universe
        # so many covariates as are given data, but a base dataset needs no more than three
        small = MappedUniverse(universe.space, universe.n_samples, min(universe.n_features, 3))
        # a surrogate that is off wastes a search, but what is reported is solved in full
        sample = Pairs.starts(small, _SAMPLE, np.random.default_rng([self.seed, 1]))
        self.surrogate = Surrogate.of(self.weighing, small, sample) if BASE in self.names else None
        self._base: Base | None = None

    def __getstate__(self) -> dict[str, Any]:
        # a worker draws its own: the weights of a dataset are cheaper than sending them
        return {**self.__dict__, "_base": None}

    def explored(self, plan: SearchPlan, digest: str | None) -> State:
        """The whole search, of data by this ``digest``. Raises DataError for another audit's checkpoint."""

        def most(number: int) -> int:
            based = self.surrogate if self.names[number % len(self.names)] == BASE else None
            return based.most if based is not None else CHUNK

        def highest(state: State) -> float:
            return max((ratio for ratio, _ in self._ranked(state)), default=0.0)

        universe, weighing = self.universe, self.weighing
        call = [weighing.name, weighing.settings(), universe.domain.to_dict(), digest, self.seed, self.solver]
        call += [universe.n_samples, universe.n_features, *self.names, *map(asdict, self.claims)]
        limits: dict[str, Any] = {"keep": KEPT, "apart": 1e-9, "wave": 4, "kinds": (Pairs, Replacement)}
        return explore(self.look, plan, most=most, highest=highest, call=call, until=self.until, **limits)

    def _ranked(self, state: State) -> list[tuple[float, Kept]]:
        """The pairs kept, by movement over bound; that of one weight counts where nothing else is claimed."""
        moving = [claim for claim in self.claims if claim.quantity is not Quantity.LARGEST] or self.claims
        ranked = [
            (height / max(claim.bound, 1e-300), pair)
            for claim in moving
            for height, pair in state.best.get(claim.quantity, ())
        ]
        return sorted(ranked, key=lambda item: -item[0])

    def look(self, state: State, number: int, room: int) -> Gain:
        """One strategy."""
        rng = np.random.default_rng([self.seed, 2, number])
        number, turn = divmod(number, len(self.names))
        if self.names[turn] == BASE:
            return self._search_base(number, state, room, rng)
        return self._search_data(self.names[turn], number, state, room, rng)

    def _search_base(self, number: int, state: State, room: int, rng: np.random.Generator) -> Gain:
        assert self.surrogate is not None
        # mostly V, which every release consumes; the other quantities claimed in turn
        claimed = list(dict.fromkeys(claim.quantity for claim in self.claims))
        turns = [*[Quantity.V] * 3, None] if Quantity.V in claimed else [None]
        quantity = turns[number % len(turns)] or claimed[number // len(turns) % len(claimed)]
        known = [pair for pair in state.pairs(quantity) if isinstance(pair, Pairs)]
        with np.errstate(all="ignore"):
            ends, spent = self.surrogate.climb(quantity, known, room, rng, self.until)
            moved = self.surrogate.movements(ends)
        heights = [{name.value: float(moved[name][k]) for name in Quantity} for k in range(len(ends))]
        solved = [k for k, values in enumerate(heights) if np.isfinite(list(values.values())).all()]
        pairs = [(heights[k], ends.take(np.array([k]))) for k in solved]
        return Gain(spent, pairs, {"scouted": spent}, cut=self.until.passed)

    def _search_data(self, name: str, number: int, state: State, room: int, rng: np.random.Generator) -> Gain:
        # of one dataset all looks, of those that are drawn a few each
        index, chunk = (0, number) if isinstance(self.source, Records) else divmod(number, STAY)
        base, ascent, room = self.base(index), name == "ascent", min(CHUNK, room)
        elite = [one for one in state.pairs(Quantity.V) if isinstance(one, Replacement) and one.base == index]
        tried, step, moved, start = 0, 0.1, [], None
        if ascent and elite and number % 4:  # mostly on from one of the best
            start = elite[min(int(rng.geometric(0.5)), len(elite)) - 1]
        else:
            tried, step = min(SCREENED if ascent else CHUNK, room), 0.3
            own = self.own.get(name)
            if own is None:
                proposed = base.propose(name, chunk, tried, rng)
            else:
                proposed = base.proposed_by(own, name, tried, rng)
            moved = base.moved(proposed, self.until)
            start = max(moved, key=lambda item: item[1][Quantity.V].low)[0] if moved else None
        if ascent and start is not None and tried < room and not self.until.passed:
            end, solves = base.ascend(start, step, room - tried - 1, rng, self.until)
            moved += base.moved([end], self.until)  # once more, on its own
            tried += solves + 1
        alone, apart, known = list[NeighborPair](), [0.0], {id(base.records): (base.weights, base.radius)}
        # the last ones, because a batch has its first judged by itself
        for change, movement in moved[-math.ceil(tried / CHECKED) :]:
            for pair in resolve(self.weighing, [base.pair(change)], known=known):
                alone.append(pair)
                apart.append(pair.movements[Quantity.V].apart(movement[Quantity.V]))
        first = number == 0 and name == self.names[0]
        again = check(self.weighing, alone, self.solver, base=first, seconds=self.solver_seconds)
        counts = {"resolved": tried, "datasets": again.datasets, "unsolved": again.unsolved}
        largest = {"disagreement": float(np.max([again.disagreement, *apart])), "radius": again.radius}
        heights = [{what.value: end.low for what, end in movement.items()} for _, movement in moved]
        pairs = [*zip(heights, (change for change, _ in moved), strict=True)]
        return Gain(tried, pairs, counts, largest, cut=self.until.passed)

    def base(self, index: int) -> Base:
        """Dataset ``index`` of the generator, or the only one, with its weights."""
        source = self.source
        if self._base is None or self._base.index != index:
            drawn = source(np.random.default_rng([self.seed, index])) if callable(source) else source
            assert drawn is not None
            self._base = Base(self.weighing, self.universe, drawn, self.pool, index)
        return self._base

    def pair(self, known: Kept) -> NeighborPair | None:
        """The two datasets of a kept pair in full, or None outside of the universe."""
        if isinstance(known, Replacement):
            return self.base(known.base).pair(known)
        inside = known.admissible(self.universe.space)
        records = known.records(self.universe.space)
        return NeighborPair(*records, 0, "search over base datasets") if inside else None

    def reported(
        self, state: State, until: Deadline
    ) -> tuple[tuple[Verdict, ...], tuple[NeighborPair, ...], SolverCheck]:
        """A verdict per claim, and the pairs they rest on with the worst, solved again. Raises DataError.

        After the deadline no further pair is solved again, nor compared with the other solver.
        """
        chosen = [best[0][1] for claim in self.claims if (best := state.best.get(claim.quantity))]
        # two datasets each: of many records only those that verdicts rest on
        chosen += [pair for _, pair in self._ranked(state)] if self.few else []
        resolving = until.part(0.5)
        resolved = resolve(self.weighing, map(self.pair, state.distinct(chosen)[:KEPT]), until=resolving)
        if not resolved:
            raise DataError("the search found no neighbors inside of the universe: give it a larger budget")
        verdicts = []
        for claim in self.claims:
            worst = max(resolved, key=lambda item: item.movements[claim.quantity].low)
            verdicts.append(Verdict(claim, worst.movements[claim.quantity], worst, state.spent))
        # above few records the solver is that which has just solved them
        checked_pairs = resolved if self.few else []
        last = check(self.weighing, checked_pairs, self.solver, until=until, seconds=self.solver_seconds)
        checked = SolverCheck(
            self.solver,
            int(state.counts.get("datasets", 0)) + last.datasets,
            float(np.maximum(state.largest.get("disagreement", 0.0), last.disagreement)),
            float(np.maximum(state.largest.get("radius", 0.0), last.radius)),
            int(state.counts.get("unsolved", 0)) + last.unsolved,
        )
        return tuple(verdicts), tuple(resolved), checked
