"""Looks of a stability audit: neighbors of given data, or of datasets of few kinds of records.

One record of a dataset is replaced, weights are solved for side by side, and the worst pairs in
full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.changes import Base, Changes, Moves, Replacement, Strategy
from dp2erm_cvx.audit.climbs import evolved, slopes_followed
from dp2erm_cvx.audit.movement import (
    Claim,
    NeighborPair,
    Quantity,
    SolverCheck,
    Verdict,
    check,
    resolve,
)
from dp2erm_cvx.audit.pairs import Pairs
from dp2erm_cvx.audit.search import Deadline, Gain, SearchPlan, State, explore
from dp2erm_cvx.audit.surrogates import Surrogate
from dp2erm_cvx.audit.weighing import Weighed, Weighing
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DataError

#: Ways to choose a neighbor of given data, and the search over base datasets.
STRATEGIES, BASE = ("random", "held-out", "extreme", "flips", "each", "ascent"), "base"
#: Neighbors of one dataset in a strategy's first attempt, and in any, where neighbors have common
#: steps.
CHUNK, LARGEST_CHUNK = 100, 1024
#: Weights that are read in one attempt at most, but for those of its first ``CHUNK`` neighbors.
_WEIGHTS = 2**24
#: Neighbors among which an ascent begins, and those that it tries; attempts per drawn dataset.
SCREENED, CLIMB, STAY = 20, 200, 4
#: Where V has gradients, one in so many neighbors of an attempt is one among which ascents begin,
#: and one in so many of these begins one.
SCREENED_OF, CLIMBS_OF = 3, 3
#: Of neighbors that are solved one by one, one in so many is solved again by the named solver.
CHECKED = 100
#: Of neighbors that have common steps one in so many times sqrt(n): one solve through CVXPY takes
#: as long as 1,000 of them at n = 100 and 5,000 at n = 10,000.
CHECKED_TOGETHER = 1000
#: Pairs by which a fast surrogate is compared.
_SAMPLE = 7
#: Pairs that are kept by every quantity, no less than so far apart.
KEPT, APART = 10, 1e-9
#: Share of a limit in seconds that the search takes; the rest is for what is reported. Of what is
#: left then the second solver has this share, a tenth of the whole.
SEARCHING, CHECKING = 0.75, 0.4

#: Origin of a pair that no given data are part of.
_SEARCHED = "search over base datasets"

#: A pair that is kept: of few kinds of records, or a change of one dataset.
Kept = Pairs | Replacement


def _few_covariates(universe: MappedUniverse) -> MappedUniverse:
    """The universe of base datasets, which need no more than three covariates.

    Where every covariate has a range of its own, they have all of them.
    """
    if isinstance(universe.space.upper, tuple):
        return universe
    return MappedUniverse(universe.space, universe.n_samples, min(universe.n_features, 3))


@dataclass(eq=False)
class Rounds:
    """Looks of one strategy each, in turns of their ``names``.

    ``source`` is the dataset whose neighbors are tried, or draws them, None for the search over
    base datasets alone. ``pool`` are covariates of held-out records (m, d), None for those of the
    data. ``solver`` solves one in so many neighbors again, within ``solver_seconds``. ``few``
    records are those that the declared problem takes. Looks end soon after ``until``. ``own`` are
    strategies of the auditor by their names.
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
        small = _few_covariates(self.universe)
        # a surrogate that is off wastes a search, but what is reported is solved in full
        sample = Pairs.starts(small, _SAMPLE, np.random.default_rng([self.seed, 1]))
        self.surrogate = Surrogate.of(self.weighing, small, sample) if BASE in self.names else None
        self._base: Base | None = None

    def __getstate__(self) -> dict[str, Any]:
        # a worker draws its own: the weights of a dataset are cheaper than sending them
        return {**self.__dict__, "_base": None}

    def explored(self, plan: SearchPlan, digest: str | None) -> State:
        """The whole search, of data by this ``digest``.

        Raises DataError for the checkpoint of another audit.
        """

        def most(number: int) -> int:
            turn, place = divmod(number, len(self.names))
            if self.surrogate is not None and self.names[place] == BASE:
                return self.surrogate.most
            return self._size(turn)

        def highest(state: State) -> float:
            return max((ratio for ratio, _ in self._ranked(state)), default=0.0)

        universe, weighing = self.universe, self.weighing
        call = [
            weighing.name,
            weighing.settings(),
            universe.domain.to_dict(),
            digest,
            self.seed,
            self.solver,
        ]
        call += [universe.n_samples, universe.n_features, *self.names, *map(asdict, self.claims)]
        limits: dict[str, Any] = {
            "keep": KEPT,
            "apart": APART,
            "wave": 4,
            "kinds": (Pairs, Replacement),
        }
        return explore(
            self.attempt, plan, most=most, highest=highest, call=call, until=self.until, **limits
        )

    def _ranked(self, state: State) -> list[tuple[float, Kept]]:
        """The pairs that were kept, by movement over bound.

        The movement of one weight counts where nothing else is claimed.
        """
        moving = [
            claim for claim in self.claims if claim.quantity is not Quantity.LARGEST
        ] or self.claims
        ranked = [
            (height / max(claim.bound, 1e-300), pair)
            for claim in moving
            for height, pair in state.best.get(claim.quantity, ())
        ]
        return sorted(ranked, key=lambda item: -item[0])

    def attempt(self, state: State, number: int, room: int) -> Gain:
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
        heights = [
            {name.value: float(moved[name][k]) for name in Quantity} for k in range(len(ends))
        ]
        solved = [k for k, values in enumerate(heights) if np.isfinite(list(values.values())).all()]
        pairs = [(heights[k], ends.take(np.array([k]))) for k in solved]
        return Gain(spent, pairs, {"scouted": spent}, cut=self.until.passed)

    def _search_data(
        self, name: str, number: int, state: State, room: int, rng: np.random.Generator
    ) -> Gain:
        # of one dataset all attempts, of those that are drawn a few each
        index, turn = (0, number) if isinstance(self.source, Records) else divmod(number, STAY)
        base = self.base(index)
        if name == "ascent":
            found = self._ascended(base, turn, state, room, rng)
        else:
            found = self._proposed(base, name, turn, room, rng)
        moves, tried, solved = found
        first = number == 0 and name == self.names[0]
        chosen = self._sample(base, tried, len(moves), first, rng)
        alone, apart, known = (
            list[NeighborPair](),
            [0.0],
            {id(base.records): (base.weights, base.radius)},
        )
        for k in chosen:
            for pair in resolve(
                self.weighing, [base.pair(moves.changes.one(k, name, index))], known=known
            ):
                alone.append(pair)
                apart.append(pair.movements[Quantity.V].apart(moves.movements[Quantity.V][k]))
        # the dataset itself is solved with the pairs that verdicts rest on
        drawn = [pair.datasets[1] for pair in alone]
        again = check(
            self.weighing, drawn, self.solver, until=self.until, seconds=self.solver_seconds
        )
        counts = {"resolved": solved, "datasets": again.datasets, "unsolved": again.unsolved}
        largest = {
            "disagreement": float(np.max([again.disagreement, *apart])),
            "radius": again.radius,
        }
        pairs = moves.kept(name, index, KEPT, APART)
        return Gain(tried, pairs, counts, largest, cut=self.until.passed)

    def _proposed(
        self, base: Base, name: str, turn: int, room: int, rng: np.random.Generator
    ) -> tuple[Moves, int, int]:
        """Neighbors of one strategy, the number tried, and that of those solved."""
        size = min(self._size(turn), room)
        own = self.own.get(name)
        if own is None:
            proposed = base.propose(name, sum(map(self._size, range(turn))), size, rng)
        else:
            proposed = base.proposed_by(own, name, size, rng)
        moves = base.moved(proposed, self.until)
        return moves, size, len(moves)

    def _ascended(
        self, base: Base, turn: int, state: State, room: int, rng: np.random.Generator
    ) -> tuple[Moves, int, int]:
        """Ends of ascents side by side, the number of neighbors tried, and that of those solved."""
        room = min(self._size(turn), room)
        step = 0.3
        if base.knows_gradients:
            screened_before = sum(map(self._size, range(turn))) // SCREENED_OF
            candidates = base.centered(screened_before, math.ceil(room / SCREENED_OF))
            climbs = max(len(candidates) // CLIMBS_OF, 1)
            goes_on = turn % 2 == 1
        else:
            climbs = max(room // CLIMB, 1)
            candidates = base.propose("extreme", 0, min(SCREENED * climbs, room), rng)
            goes_on = turn % STAY > 0
        known = [one for one in state.pairs(Quantity.V) if isinstance(one, Replacement)]
        elite = [one for one in known if one.base == base.index]
        tried = len(candidates)
        if elite and goes_on:
            step = 0.1
            best = Changes.of(elite)
            candidates = best.and_those(base.carried(best, tried, rng)).take(slice(tried))
        screened = base.moved(candidates, self.until)
        starts = screened.take(screened.highest(climbs))
        # the ends are solved once more, each as it is kept
        left = room - tried - len(starts)
        if not len(starts) or left <= 0 or self.until.passed:
            return screened, tried, len(screened)
        if base.knows_gradients or (base.shares and turn % 2 == 0):
            climbed = slopes_followed(base, starts, left, self.until)
        else:
            solves = left // len(starts)
            climbed = evolved(base, starts.changes, step, solves, rng, self.until)
        moves = base.moved(climbed.ends, self.until)
        tried += climbed.tried + len(climbed.ends)
        return moves, tried, len(screened) + climbed.solved + len(moves)

    def _sample(
        self, base: Base, tried: int, solved: int, first: bool, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Numbers of the neighbors that are solved once more, and by the second solver.

        They are drawn publicly.
        """
        if not base.shares:
            count = math.ceil(tried / CHECKED)
        else:
            one_in = CHECKED_TOGETHER * math.sqrt(base.records.n_samples)
            count = max(int(rng.binomial(tried, 1.0 / one_in)), int(first))
        return rng.permutation(solved)[:count]

    def _size(self, turn: int) -> int:
        """Neighbors in the attempts of one turn.

        There are more from turn to turn where many are solved together.
        """
        if not isinstance(self.source, Records) or not self.base(0).shares:
            return CHUNK
        most = max(min(_WEIGHTS // self.source.n_samples, LARGEST_CHUNK), CHUNK)
        return min(CHUNK * (1 + turn), most)

    def base(self, index: int) -> Base:
        """Dataset ``index`` of the generator, or the only one, with its weights."""
        source = self.source
        if self._base is None or self._base.index != index:
            drawn = (
                source(np.random.default_rng([self.seed, index])) if callable(source) else source
            )
            assert drawn is not None
            self._base = Base(self.weighing, self.universe, drawn, self.pool, index)
        return self._base

    def pair(self, known: Kept) -> NeighborPair | None:
        """The two datasets of a kept pair in full, or None outside of the universe."""
        if isinstance(known, Replacement):
            return self.base(known.base).pair(known)
        inside = known.admissible(self.universe.space)
        records = known.records(self.universe.space)
        return NeighborPair(*records, 0, _SEARCHED) if inside else None

    def reported(
        self, state: State, until: Deadline
    ) -> tuple[tuple[Verdict, ...], tuple[NeighborPair, ...], SolverCheck]:
        """A verdict per claim, and the pairs that they rest on, solved again.

        Among the pairs is the worst. Raises DataError.

        After the deadline no further pair is solved again, nor compared with the other solver.
        """
        chosen = [best[0][1] for claim in self.claims if (best := state.best.get(claim.quantity))]
        # two datasets each: of many records only those that verdicts rest on
        chosen += [pair for _, pair in self._ranked(state)] if self.few else []
        resolving = until.part(0.5)
        resolved = resolve(
            self.weighing, map(self.pair, state.distinct(chosen)[:KEPT]), until=resolving
        )
        if not resolved:
            raise DataError(
                "the search found no neighbors inside of the universe: give it a larger budget"
            )
        verdicts = []
        for claim in self.claims:
            worst = max(resolved, key=lambda item: item.movements[claim.quantity].low)
            verdicts.append(Verdict(claim, worst.movements[claim.quantity], worst, state.spent))
        resting = {id(verdict.worst) for verdict in verdicts}
        datasets = list[tuple[Records, Weighed]]()
        for pair in resolved:
            # of neighbors of given data a sample is checked as well, of what is searched for
            # nothing else; above few records the solver is that which has just solved them
            if self.few and (id(pair) in resting or pair.origin == _SEARCHED):
                datasets += pair.datasets
        checking = until.part(CHECKING)
        last = check(
            self.weighing, datasets, self.solver, until=checking, seconds=self.solver_seconds
        )
        checked = SolverCheck(
            self.solver,
            int(state.counts.get("datasets", 0)) + last.datasets,
            float(np.maximum(state.largest.get("disagreement", 0.0), last.disagreement)),
            float(np.maximum(state.largest.get("radius", 0.0), last.radius)),
            int(state.counts.get("unsolved", 0)) + last.unsolved,
        )
        return tuple(verdicts), tuple(resolved), checked
