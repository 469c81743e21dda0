"""The rounds of a search: each tries one kind of neighbor and draws from a generator of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.audit.stability.claims import Claim, Quantity
from dp2erm_cvx.audit.stability.climb import climb, most
from dp2erm_cvx.audit.stability.fast import known_scout, scout_for
from dp2erm_cvx.audit.stability.given import BASE, Source
from dp2erm_cvx.audit.stability.groups import joined, structured_starts
from dp2erm_cvx.audit.stability.neighbors import Base, ascend, propose
from dp2erm_cvx.audit.stability.resolve import NeighborPair, SolverCheck, check, variations_apart
from dp2erm_cvx.audit.stability.scout import InFull, Scout
from dp2erm_cvx.audit.stability.state import Gain, KeptPair, State
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.universe import Universe

#: Rounds that start from the same state, whoever runs them: so no result depends on the number of workers.
WAVE = 4
#: Neighbors of one dataset in a round; ascents and solves of each; rounds of a strategy per drawn dataset.
CHUNK, ASCENTS, ASCENT_SOLVES, STAY = 100, 4, 15, 4
#: One in so many neighbors is solved again by the named solver.
CHECKED = 100
_SAMPLE = 7


@dataclass(frozen=True)
class Task:
    """Round ``number`` of at most ``room`` neighbors, which may start from the pairs ``elite``.

    It tries nothing after ``deadline`` (seconds since the epoch, on any machine).
    """

    number: int
    room: int
    elite: tuple[KeptPair, ...]
    deadline: float


@dataclass(eq=False)
class Searcher:
    """Runs rounds. A round depends on the arguments and its task, and on nothing else.

    Parameters
    ----------
    names
        Strategies, taken in turns.
    source
        Draws the datasets whose neighbors are tried; None for the search over base datasets alone.
    pool
        Covariates of held-out records (m, d); None for those of the data.
    solver
        Solves one in so many neighbors again.
    few
        Whether the records are few enough for the declared problem, and for keeping pairs of datasets.
    compare
        Whether a fast scout has to agree with full solves on a sample before it is used.
    """

    program: FirstStage
    universe: Universe
    claims: Sequence[Claim]
    names: Sequence[str]
    source: Source | None = None
    pool: Array | None = None
    seed: int = 0
    solver: str = ""
    few: bool = True
    compare: bool = True

    def __post_init__(self) -> None:
        universe = self.universe
        # so many covariates as are given data, but a base dataset needs no more than three
        self.small = Universe(universe.domain, universe.n_samples, min(universe.n_features, 3))
        self.scout = self._scout() if BASE in self.names else None
        self._base: tuple[int, Base] | None = None

    def _scout(self) -> Scout:
        if not self.compare:  # a scout that is off wastes a search, but what is reported is solved in full
            return known_scout(self.program, self.small) or InFull(self.program, self.small)
        sample = structured_starts(self.small, _SAMPLE, np.random.default_rng([self.seed, 1]))
        return scout_for(self.program, self.small, sample)

    def __getstate__(self) -> dict[str, Any]:
        # a worker draws its own: the weights of a dataset are cheaper than sending them
        return {**self.__dict__, "_base": None}

    def wave(self, state: State, left: int | None, deadline: float) -> Iterator[Task]:
        """The next rounds of the search, of at most ``left`` neighbors together."""
        for number in range(state.rounds, state.rounds + WAVE):
            room = self._most(number)
            if left is not None:
                room, left = min(room, left), left - room
            if room > 0:
                known = state.kept.get(self._aim(number // len(self.names)), [])
                elite = tuple(pair for pair in known if pair.groups is not None)
                # the first round of all finds something however little time there is
                yield Task(number, room, elite, deadline if number else math.inf)

    def run(self, task: Task) -> Gain:
        """One round."""
        number, turn = divmod(task.number, len(self.names))
        if time.time() >= task.deadline:
            return Gain(False, SolverCheck(self.solver))
        rng = np.random.default_rng([self.seed, 2, task.number])
        if self.names[turn] == BASE:
            gain = self._search_base(number, task, rng)
        else:
            gain = self._search_data(self.names[turn], number, task.room, rng)
        gain.whole = task.room >= self._most(task.number)
        return gain

    def highest(self, state: State) -> float:
        """The largest movement over its bound so far."""
        return max((c.ratio(self.claims) for best in state.kept.values() for c in best), default=0.0)

    def _most(self, number: int) -> int:
        """Neighbors that a round tries at most."""
        if self.names[number % len(self.names)] == BASE:
            assert self.scout is not None
            return most(self.scout)
        return max(CHUNK, ASCENTS * ASCENT_SOLVES)

    def _search_base(self, number: int, task: Task, rng: np.random.Generator) -> Gain:
        assert self.scout is not None
        quantity = self._aim(number)
        elite = joined([known.as_groups() for known in task.elite]) if task.elite else None
        with np.errstate(all="ignore"):
            ends, spent = climb(self.scout, lambda moved: moved[quantity], elite, task.room, rng)
            moved = self.scout.movements(ends)
        gain = Gain(True, SolverCheck(self.solver), scouted=spent)
        for index in range(len(ends)):
            values = {name.value: float(moved[name][index]) for name in Quantity}
            if np.isfinite(list(values.values())).all():
                gain.kept.append(KeptPair.of_groups(ends, index, values, "search over base datasets"))
        return gain

    def _aim(self, number: int) -> Quantity:
        """Mostly V, which every release consumes; the other quantities claimed in turn."""
        claimed = list(dict.fromkeys(claim.quantity for claim in self.claims))
        if Quantity.V in claimed and number % 4 < 3:
            return Quantity.V
        return claimed[(number // 4 if Quantity.V in claimed else number) % len(claimed)]

    def _search_data(self, name: str, number: int, room: int, rng: np.random.Generator) -> Gain:
        index = 0 if self._given else number // STAY
        base = self.base(index)
        size = ASCENTS if name == "ascent" else min(CHUNK, room)
        changes = propose(base, name, number if self._given else number % STAY, size, rng)
        tried = size
        if name == "ascent":
            tried, ends = 0, []
            for change in changes:
                if room - tried > 0:
                    end, solves = ascend(base, change, min(ASCENT_SOLVES, room - tried))
                    ends.append(end)
                    tried += solves
            changes = ends
        moved = base.moved(changes)
        # the last ones, because a batch has its first judged by itself
        some = moved[len(moved) - min(len(moved), -(-tried // CHECKED)) :]
        alone = base.resolved([change for change, _ in some])
        again = check(self.program, alone, self.solver, base=number == 0 and name == self.names[0])
        for (_, movement), item in zip(some, alone, strict=False):
            again = again.plus(SolverCheck(self.solver, 0, variations_apart(movement, item.movements)))
        gain = Gain(True, again, resolved=tried)
        for change, movement in moved:
            values = {quantity.value: interval.low for quantity, interval in movement.items()}
            gain.kept.append(KeptPair.of_replacement(change, index, values))
        return gain

    @property
    def _given(self) -> bool:
        """Whether every draw is the same dataset."""
        return self.source is not None and self.base_records(0) is self.base_records(1)

    def base_records(self, index: int) -> Records:
        """Dataset ``index`` of the data or the generator."""
        assert self.source is not None
        return self.source(np.random.default_rng([self.seed, index]))

    def base(self, index: int) -> Base:
        """The same, with its weights."""
        if self._base is None or self._base[0] != index:
            records = self.base_records(index)
            self._base = (index, Base(self.program, self.universe, records, self.pool))
        return self._base[1]

    def pair(self, kept: KeptPair) -> NeighborPair | None:
        """The two datasets of a kept pair in full, or None outside of the universe."""
        if kept.replacement is not None:
            return self.base(kept.base).pair(kept.as_replacement())
        first, second = kept.as_groups().expand(0, self.small)
        floor = self.universe.domain.arm_floor or 0
        inside = all(min(r.a.sum(), r.n_samples - r.a.sum()) >= floor for r in (first, second))
        return NeighborPair(first, second, first.n_samples - 1, kept.origin) if inside else None
