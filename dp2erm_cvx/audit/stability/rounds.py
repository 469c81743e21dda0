"""The rounds of a search: each tries one kind of neighbor and draws from a generator of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dp2erm_cvx.audit.stability.ascent import ascend
from dp2erm_cvx.audit.stability.claims import Claim, Quantity
from dp2erm_cvx.audit.stability.climb import climb, most
from dp2erm_cvx.audit.stability.fast import scout_for
from dp2erm_cvx.audit.stability.groups import Universe, joined
from dp2erm_cvx.audit.stability.neighbors import Base, Replacement, propose
from dp2erm_cvx.audit.stability.resolve import Pair, check, resolve
from dp2erm_cvx.audit.stability.search import Candidate, State
from dp2erm_cvx.audit.stability.starts import structured_starts
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.program import FirstStage

#: The name of the search over base datasets.
BASE = "base"

#: Neighbors of one dataset in a round; ascents and solves of each; rounds of a strategy per drawn dataset.
CHUNK, ASCENTS, ASCENT_SOLVES, STAY = 50, 4, 15, 4
#: One in so many neighbors is solved again by the named solver.
CHECKED = 100
_SAMPLE = 7


class Searcher:
    """Runs rounds. Round r depends on the arguments, r and what was kept so far, and on nothing else."""

    def __init__(
        self,
        program: FirstStage,
        universe: Universe,
        claims: Sequence[Claim],
        names: Sequence[str],
        source: Callable[[np.random.Generator], Records] | None,
        pool: Array | None,
        seed: int,
        solver: str,
    ) -> None:
        self.program, self.universe, self.claims, self.names = program, universe, tuple(claims), names
        self.source, self.pool, self.seed, self.solver = source, pool, seed, solver
        # so many covariates as are given data, but a base dataset needs no more than three
        self.small = Universe(universe.domain, universe.n_samples, min(universe.n_features, 3))
        sample = structured_starts(self.small, _SAMPLE, np.random.default_rng([seed, 1]))
        self.scout = scout_for(program, self.small, sample) if BASE in names else None
        self._base: tuple[int, Base] | None = None

    def run(self, state: State, left: int | None) -> bool:
        """One round of at most ``left`` neighbors; False if that cut it short."""
        number, turn = divmod(state.rounds, len(self.names))
        rng = np.random.default_rng([self.seed, 2, state.rounds])
        state.rounds += 1
        if self.names[turn] == BASE:
            return self._search_base(state, number, left, rng)
        return self._search_data(state, self.names[turn], number, left, rng)

    def highest(self, state: State) -> float:
        """The largest movement over its bound so far."""
        return max((c.ratio(self.claims) for best in state.kept.values() for c in best), default=0.0)

    def _search_base(self, state: State, number: int, left: int | None, rng: np.random.Generator) -> bool:
        assert self.scout is not None
        quantity = self._aim(number)
        elite = [known for known in state.kept.get(quantity, []) if known.groups is not None]
        room = 10**9 if left is None else left
        with np.errstate(all="ignore"):
            ends, spent = climb(
                self.scout,
                lambda moved: moved[quantity],
                joined([known.as_groups() for known in elite]) if elite else None,
                room,
                rng,
            )
            moved = self.scout.movements(ends)
        state.scouted += spent
        for index in range(len(ends)):
            values = {name.value: float(moved[name][index]) for name in Quantity}
            if np.isfinite(list(values.values())).all():
                state.keep(Candidate.of_groups(ends, index, values, "search over base datasets"))
        return left is None or left >= most(self.scout)

    def _aim(self, number: int) -> Quantity:
        """Mostly V, which every release consumes; the other quantities claimed in turn."""
        claimed = list(dict.fromkeys(claim.quantity for claim in self.claims))
        if Quantity.V in claimed and number % 4 < 3:
            return Quantity.V
        return claimed[(number // 4 if Quantity.V in claimed else number) % len(claimed)]

    def _search_data(
        self, state: State, name: str, number: int, left: int | None, rng: np.random.Generator
    ) -> bool:
        index = 0 if self._given else number // STAY
        base = self.base(index)
        size = ASCENTS if name == "ascent" else CHUNK
        changes = propose(base, name, number if self._given else number % STAY, size, rng)
        tried = 0
        if name == "ascent":
            room = ASCENTS * ASCENT_SOLVES if left is None else left
            ends = []
            for change in changes:
                if room - tried > 0:
                    end, solves = ascend(base, change, min(ASCENT_SOLVES, room - tried))
                    ends.append(end)
                    tried += solves
            changes = ends
        elif left is not None:
            changes = changes[:left]
        pairs = [(change, base.pair(change)) for change in changes]
        inside = [(change, pair) for change, pair in pairs if pair is not None]
        state.resolved += max(tried, len(changes))
        self._keep(state, index, inside)
        return left is None or left >= max(CHUNK, ASCENTS * ASCENT_SOLVES)

    def _keep(self, state: State, index: int, pairs: list[tuple[Replacement, Pair]]) -> None:
        found = resolve(self.program, [pair for _, pair in pairs])
        # two datasets a pair
        due = max(0, -(-state.resolved // CHECKED) - state.check.datasets // 2)
        state.check = state.check.plus(check(self.program, found[:due], self.solver))
        changes = {id(pair): change for change, pair in pairs}
        for item in found:
            change = changes[id(item.pair)]
            values = {name.value: interval.low for name, interval in item.movements.items()}
            state.keep(Candidate.of_replacement(change, index, values))

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
            pool = records.covariates if self.pool is None else self.pool
            self._base = (index, Base(self.program, self.universe, records, pool))
        return self._base[1]

    def pair(self, candidate: Candidate) -> Pair | None:
        """The two datasets of a kept pair in full, or None outside of the universe."""
        if candidate.replacement is not None:
            return self.base(candidate.base).pair(candidate.as_replacement())
        first, second = candidate.as_groups().expand(0, self.small)
        floor = self.universe.domain.arm_floor or 0
        inside = all(min(r.a.sum(), r.n_samples - r.a.sum()) >= floor for r in (first, second))
        return Pair(first, second, first.n_samples - 1, candidate.origin) if inside else None
