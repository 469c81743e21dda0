"""Looks of a stability audit: neighbors of given data, or of datasets of few kinds of records.

One record of a dataset is replaced, weights are solved for side by side, and the worst pairs in
full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

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

#: Ways to choose a neighbor of given data.
STRATEGIES = ("random", "held-out", "extreme", "flips", "each", "ascent")
#: The search over base datasets.
BASE = "base"
#: Neighbors of one dataset in a strategy's first attempt.
CHUNK = 100
#: The most neighbors in an attempt, where neighbors have common steps.
LARGEST_CHUNK = 1024
#: Weights that are read in one attempt at most, but for those of its first ``CHUNK`` neighbors.
_WEIGHTS = 2**24
#: Neighbors among which an ascent begins.
SCREENED = 20
#: Neighbors that an ascent tries.
CLIMB = 200
#: Attempts on a dataset that is drawn.
STAY = 4
#: Size of the first changes of an ascent from new neighbors, and from the best known pairs.
FIRST_STEP = 0.3
LATER_STEP = 0.1
#: Where V has gradients, one in so many neighbors of an attempt is one among which ascents begin.
SCREENED_OF = 3
#: Of these one in so many begins an ascent.
CLIMBS_OF = 3
#: Of neighbors that are solved one by one, one in so many is solved again by the named solver.
CHECKED = 100
#: Of neighbors that have common steps one in so many times sqrt(n): one solve through CVXPY takes
#: as long as 1,000 of them at n = 100 and 5,000 at n = 10,000.
CHECKED_TOGETHER = 1000
#: Pairs by which a fast surrogate is compared.
_SAMPLE = 7
#: Pairs that are kept by every quantity.
KEPT = 10
#: The least distance of the heights of pairs that are kept.
APART = 1e-9
#: Share of a limit in seconds that the search takes; the rest is for what is reported.
SEARCHING = 0.75
#: Share of what is left then that the second solver has, a tenth of the whole.
CHECKING = 0.4

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


class _Attempted(NamedTuple):
    """Neighbors of one attempt.

    Attributes
    ----------
    moves
        Those that are kept, with their movements.
    tried
        How many neighbors were tried.
    solved
        How many of them were solved.
    """

    moves: Moves
    tried: int
    solved: int


class _Screening(NamedTuple):
    """Neighbors among which ascents begin.

    Attributes
    ----------
    candidates
        The neighbors.
    climbs
        How many of them begin an ascent.
    goes_on
        Whether neighbors near the best known pairs take their place, where some are known.
    """

    candidates: Changes
    climbs: int
    goes_on: bool


@dataclass(eq=False)
class Rounds:
    """Attempts of one strategy each, in turns of their names.

    Parameters
    ----------
    weighing
        The program or the function whose weights move.
    universe
        The datasets among which neighbors lie.
    claims
        The bounds that are audited.
    names
        The strategies.
    source
        The dataset whose neighbors are tried, or what draws one; None for the search over base
        datasets alone.
    pool
        Covariates (m, d) of held-out records; None for those of the data.
    seed
        Repeats the search.
    solver
        Solves one in so many neighbors again.
    few
        Whether the records are so few that the declared problem takes them.
    until
        Attempts end soon after this.
    solver_seconds
        The limit of the solver for each dataset.
    functions
        Strategies of the auditor's own, by their names.
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
    functions: Mapping[str, Strategy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        small = _few_covariates(self.universe)
        # a surrogate that is off wastes a search, but what is reported is solved in full
        sample = Pairs.starts(small, _SAMPLE, np.random.default_rng([self.seed, 1]))
        self.surrogate: Surrogate | None = None
        if BASE in self.names:
            self.surrogate = Surrogate.of(self.weighing, small, sample)
        self._base: Base | None = None

    def __getstate__(self) -> dict[str, Any]:
        # a worker draws its own: the weights of a dataset are cheaper than sending them
        return {**self.__dict__, "_base": None}

    def explored(self, plan: SearchPlan, digest: str | None) -> State:
        """The whole search.

        Parameters
        ----------
        plan
            Its limits.
        digest
            The digest of the data, by which a checkpoint knows them; None without data.

        Raises
        ------
        DataError
            For the checkpoint of another audit.
        """

        def most(number: int) -> int:
            """How many neighbors an attempt tries at most."""
            turn, place = divmod(number, len(self.names))
            if self.surrogate is not None and self.names[place] == BASE:
                return self.surrogate.most
            return self._size(turn)

        def highest(state: State) -> float:
            """The largest movement over its bound."""
            return max((ratio for ratio, _ in self._ranked(state)), default=0.0)

        return explore(
            self.attempt,
            plan,
            most=most,
            highest=highest,
            keep=KEPT,
            apart=APART,
            wave=4,
            call=self._call(digest),
            kinds=(Pairs, Replacement),
            until=self.until,
        )

    def _call(self, digest: str | None) -> list[Any]:
        """What a checkpoint belongs to."""
        return [
            self.weighing.name,
            self.weighing.settings(),
            self.universe.domain.to_dict(),
            digest,
            self.seed,
            self.solver,
            self.universe.n_samples,
            self.universe.n_features,
            *self.names,
            *map(asdict, self.claims),
        ]

    def _ranked(self, state: State) -> list[tuple[float, Kept]]:
        """The pairs that were kept, by movement over bound.

        The movement of one weight counts where nothing else is claimed.
        """
        moving = [claim for claim in self.claims if claim.quantity is not Quantity.LARGEST]
        ranked = []
        for claim in moving or self.claims:
            for height, pair in state.best.get(claim.quantity, ()):
                ranked.append((height / max(claim.bound, 1e-300), pair))
        return sorted(ranked, key=lambda item: -item[0])

    def attempt(self, state: State, number: int, room: int) -> Gain:
        """One strategy."""
        rng = np.random.default_rng([self.seed, 2, number])
        number, turn = divmod(number, len(self.names))
        if self.names[turn] == BASE:
            return self._search_base(number, state, room, rng)
        return self._search_data(self.names[turn], number, state, room, rng)

    def _search_base(self, number: int, state: State, room: int, rng: np.random.Generator) -> Gain:
        """Ascents among datasets of few kinds of records."""
        assert self.surrogate is not None
        quantity = self._quantity(number)
        best = [pair for pair in state.pairs(quantity) if isinstance(pair, Pairs)]
        with np.errstate(all="ignore"):
            ends, spent = self.surrogate.climb(quantity, best, room, rng, self.until)
            moved = self.surrogate.movements(ends)
        pairs = []
        for k in range(len(ends)):
            heights = {name.value: float(moved[name][k]) for name in Quantity}
            if np.isfinite(list(heights.values())).all():
                pairs.append((heights, ends.take(np.array([k]))))
        return Gain(spent, pairs, {"scouted": spent}, cut=self.until.passed)

    def _quantity(self, number: int) -> Quantity:
        """What an attempt among base datasets makes large.

        Mostly it is V, which every release consumes; else the quantities claimed in turn.
        """
        claimed = list(dict.fromkeys(claim.quantity for claim in self.claims))
        period = 1
        if Quantity.V in claimed:
            period = 4
            if number % period < 3:
                return Quantity.V
        return claimed[number // period % len(claimed)]

    def _search_data(
        self, name: str, number: int, state: State, room: int, rng: np.random.Generator
    ) -> Gain:
        """Neighbors of given data by one strategy, some of which are solved again."""
        index = 0
        turn = number
        if not isinstance(self.source, Records):
            # of datasets that are drawn a few attempts each
            index, turn = divmod(number, STAY)
        base = self.base(index)
        if name == "ascent":
            attempted = self._ascended(base, turn, state, room, rng)
        else:
            attempted = self._proposed(base, name, turn, room, rng)
        moves = attempted.moves
        is_first = number == 0 and name == self.names[0]
        sample = self._sample(base, attempted.tried, len(moves), is_first, rng)
        alone, disagreement = self._solved_alone(base, moves, sample, name)
        # the dataset itself is solved with the pairs that verdicts rest on
        neighbors = [pair.datasets[1] for pair in alone]
        checked = check(
            self.weighing, neighbors, self.solver, until=self.until, seconds=self.solver_seconds
        )
        return Gain(
            spent=attempted.tried,
            pairs=moves.kept(name, index, KEPT, APART),
            counts={
                "resolved": attempted.solved,
                "datasets": checked.datasets,
                "unsolved": checked.unsolved,
            },
            largest={
                "disagreement": float(np.maximum(checked.disagreement, disagreement)),
                "radius": checked.radius,
            },
            cut=self.until.passed,
        )

    def _proposed(
        self, base: Base, name: str, turn: int, room: int, rng: np.random.Generator
    ) -> _Attempted:
        """Neighbors of one strategy."""
        size = min(self._size(turn), room)
        function = self.functions.get(name)
        if function is None:
            proposed_before = sum(map(self._size, range(turn)))
            proposed = base.propose(name, proposed_before, size, rng)
        else:
            proposed = base.proposed_by(function, name, size, rng)
        moves = base.moved(proposed, self.until)
        return _Attempted(moves, size, len(moves))

    def _ascended(
        self, base: Base, turn: int, state: State, room: int, rng: np.random.Generator
    ) -> _Attempted:
        """Ends of ascents side by side, from the best of some candidates.

        Now and then the candidates are near the best pairs that are known of the dataset.
        """
        room = min(self._size(turn), room)
        if base.knows_gradients:
            screening = self._screening_by_gradients(base, turn, room)
        else:
            screening = _screening_of_extremes(base, turn, room, rng)
        candidates = screening.candidates
        tried = len(candidates)
        step = FIRST_STEP
        best_pairs = []
        for pair in state.pairs(Quantity.V):
            if isinstance(pair, Replacement) and pair.base == base.index:
                best_pairs.append(pair)
        if best_pairs and screening.goes_on:
            step = LATER_STEP
            best = Changes.of(best_pairs)
            candidates = best.and_those(base.carried(best, tried, rng)).take(slice(tried))
        screened = base.moved(candidates, self.until)
        starts = screened.take(screened.highest(screening.climbs))
        # the ends are solved once more, each as it is kept
        room_left = room - tried - len(starts)
        if not len(starts) or room_left <= 0 or self.until.passed:
            return _Attempted(screened, tried, len(screened))
        if base.knows_gradients or (base.shares and turn % 2 == 0):
            climbed = slopes_followed(base, starts, room_left, self.until)
        else:
            solves = room_left // len(starts)
            climbed = evolved(base, starts.changes, step, solves, rng, self.until)
        moves = base.moved(climbed.ends, self.until)
        tried += climbed.tried + len(climbed.ends)
        return _Attempted(moves, tried, len(screened) + climbed.solved + len(moves))

    def _screening_by_gradients(self, base: Base, turn: int, room: int) -> _Screening:
        """Candidates where V has gradients: one in so many neighbors of the attempt."""
        screened_before = sum(map(self._size, range(turn))) // SCREENED_OF
        candidates = base.centered(screened_before, math.ceil(room / SCREENED_OF))
        climbs = max(len(candidates) // CLIMBS_OF, 1)
        return _Screening(candidates, climbs, goes_on=turn % 2 == 1)

    def _solved_alone(
        self, base: Base, moves: Moves, sample: NDArray[np.int64], name: str
    ) -> tuple[list[NeighborPair], float]:
        """Neighbors of a sample solved one by one, and how far V is from that of all together."""
        pairs: list[NeighborPair] = []
        disagreement = 0.0
        known_weights = {id(base.records): (base.weights, base.radius)}
        for k in sample:
            neighbors = base.pair(moves.changes.one(k, name, base.index))
            together = moves.movements[Quantity.V][k]
            for pair in resolve(self.weighing, [neighbors], known=known_weights):
                pairs.append(pair)
                apart = pair.movements[Quantity.V].apart(together)
                disagreement = float(np.maximum(disagreement, apart))
        return pairs, disagreement

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
            records = source
            if callable(source):
                records = source(np.random.default_rng([self.seed, index]))
            assert isinstance(records, Records)
            self._base = Base(self.weighing, self.universe, records, self.pool, index)
        return self._base

    def pair(self, kept: Kept) -> NeighborPair | None:
        """The two datasets of a kept pair in full, or None outside of the universe."""
        if isinstance(kept, Replacement):
            return self.base(kept.base).pair(kept)
        if not kept.admissible(self.universe.space):
            return None
        first, second = kept.records(self.universe.space)
        return NeighborPair(first, second, 0, _SEARCHED)

    def reported(
        self, state: State, until: Deadline
    ) -> tuple[tuple[Verdict, ...], tuple[NeighborPair, ...], SolverCheck]:
        """Verdicts on the claims, from pairs that are solved again.

        After the deadline no further pair is solved again, nor compared with the other solver.

        Returns
        -------
        verdicts
            One on every claim.
        pairs
            The pairs that were solved again, the worst among them.
        checked
            How far the other solver disagrees, over the whole search.

        Raises
        ------
        DataError
            If the search found no neighbors inside of the universe.
        """
        pairs = map(self.pair, state.distinct(self._candidates(state))[:KEPT])
        resolved = resolve(self.weighing, pairs, until=until.part(0.5))
        if not resolved:
            raise DataError(
                "the search found no neighbors inside of the universe: give it a larger budget"
            )
        verdicts = []
        for claim in self.claims:
            worst = max(resolved, key=lambda pair: pair.movements[claim.quantity].low)
            verdicts.append(Verdict(claim, worst.movements[claim.quantity], worst, state.spent))
        last = check(
            self.weighing,
            self._compared(resolved, verdicts),
            self.solver,
            until=until.part(CHECKING),
            seconds=self.solver_seconds,
        )
        return tuple(verdicts), tuple(resolved), self._checked_in_all(state, last)

    def _candidates(self, state: State) -> list[Kept]:
        """The pairs that verdicts may rest on: the best of every claim, and others if affordable.

        Each is two datasets to be solved; of many records only the best are.
        """
        candidates = []
        for claim in self.claims:
            best = state.best.get(claim.quantity)
            if best:
                _, pair = best[0]
                candidates.append(pair)
        if self.few:
            candidates += [pair for _, pair in self._ranked(state)]
        return candidates

    def _checked_in_all(self, state: State, last: SolverCheck) -> SolverCheck:
        """What the other solver found over the whole search, the last check included."""
        disagreement = state.largest.get("disagreement", 0.0)
        radius = state.largest.get("radius", 0.0)
        return SolverCheck(
            solver=self.solver,
            datasets=int(state.counts.get("datasets", 0)) + last.datasets,
            disagreement=float(np.maximum(disagreement, last.disagreement)),
            radius=float(np.maximum(radius, last.radius)),
            unsolved=int(state.counts.get("unsolved", 0)) + last.unsolved,
        )

    def _compared(
        self, resolved: Sequence[NeighborPair], verdicts: Sequence[Verdict]
    ) -> list[tuple[Records, Weighed]]:
        """The datasets that are solved once more, by the other solver.

        Of neighbors of given data a sample was compared before, of what is searched for nothing
        else; above few records the solver is that which has just solved them.
        """
        if not self.few:
            return []
        resting = {id(verdict.worst) for verdict in verdicts}
        datasets = list[tuple[Records, Weighed]]()
        for pair in resolved:
            if id(pair) in resting or pair.origin == _SEARCHED:
                datasets += pair.datasets
        return datasets


def _screening_of_extremes(
    base: Base, turn: int, room: int, rng: np.random.Generator
) -> _Screening:
    """Candidates where V has no gradients: extreme neighbors, some for every ascent."""
    climbs = max(room // CLIMB, 1)
    candidates = base.propose("extreme", 0, min(SCREENED * climbs, room), rng)
    return _Screening(candidates, climbs, goes_on=turn % STAY > 0)
