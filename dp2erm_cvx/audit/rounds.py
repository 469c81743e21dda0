"""The looks of a stability audit: each tries one kind of neighbor; the worst pairs are solved in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dp2erm_cvx.audit.movement import Claim, NeighborPair, Quantity, SolverCheck, Verdict, check, resolve
from dp2erm_cvx.audit.neighbors import Base, Replacement
from dp2erm_cvx.audit.pairs import CLUSTERS, Pairs
from dp2erm_cvx.audit.scouts import Scout
from dp2erm_cvx.audit.search import Gain, SearchPlan, State, evolve, explore
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.universe import Universe

#: The name of the search over base datasets.
BASE = "base"
#: Neighbors of one dataset in a look; those among which an ascent begins; looks per drawn dataset.
CHUNK, SCREENED, STAY = 100, 20, 4
#: One in so many neighbors is solved again by the named solver; pairs by which a fast scout is compared.
CHECKED, _SAMPLE = 100, 7
#: Pairs that are kept by every quantity.
KEPT = 10
#: Starts of a round, how many of the best are refined, and pairs tried in each refinement: where movements
#: are cheap, and where each takes two full solves.
CHEAP, COSTLY = (280, 3, 1500), (35, 1, 150)

#: Draws a dataset.
Source = Callable[[np.random.Generator], Records]


@dataclass(frozen=True)
class KeptPair:
    """A pair in few numbers, and its movements ``values`` by quantity.

    ``what`` is one pair of kinds, or a replacement in dataset ``base`` of the data or the generator.
    """

    values: dict[str, float]
    what: Pairs | Replacement = field(compare=False)
    base: int = 0

    @property
    def origin(self) -> str:
        """The search that met it."""
        return self.what.origin if isinstance(self.what, Replacement) else "search over base datasets"

    def plain(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {**vars(self), "what": self.what.plain()}

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> KeptPair:
        """What :meth:`plain` wrote."""
        kind = Replacement if "origin" in plain["what"] else Pairs
        return cls(**{**plain, "what": kind.of_plain(plain["what"])})

    def ratio(self, claims: Sequence[Claim]) -> float:
        """The largest movement over its bound; that of one weight counts where nothing else is claimed."""
        moving = [claim for claim in claims if claim.quantity is not Quantity.LARGEST] or claims
        return max(self.values[claim.quantity] / max(claim.bound, 1e-300) for claim in moving)


@dataclass(eq=False)
class Rounds:
    """Looks of one strategy each, in turns.

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
    digest
        A fingerprint of the data, by which a checkpoint knows them.
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
    digest: str | None = None

    def __post_init__(self) -> None:
        universe = self.universe
        # so many covariates as are given data, but a base dataset needs no more than three
        small = Universe(universe.domain, universe.n_samples, min(universe.n_features, 3))
        # a scout that is off wastes a search, but what is reported is solved in full
        sample = Pairs.starts(small, _SAMPLE, np.random.default_rng([self.seed, 1])) if self.compare else None
        self.scout = Scout.of(self.program, small, sample) if BASE in self.names else None
        self._base: tuple[int, Base] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # a worker draws its own: the weights of a dataset are cheaper than sending them
        return {**self.__dict__, "_base": None}

    def explored(self, plan: SearchPlan) -> State:
        """The whole search. Raises DataError for a checkpoint of another audit."""

        def most(number: int) -> int:
            if self.scout is None or self.names[number % len(self.names)] != BASE:
                return CHUNK
            starts, refined, evaluations = COSTLY if self.scout.exact else CHEAP
            return starts + (refined + 1) * evaluations

        def highest(state: State) -> float:
            return max(
                (pair.ratio(self.claims) for best in state.best.values() for _, pair in best), default=0.0
            )

        call = {
            "program": [self.program.name, self.program.settings()],
            "domain": self.universe.domain.to_dict(),
            "size": [self.universe.n_samples, self.universe.n_features],
            "claims": [asdict(claim) for claim in self.claims],
            "search": [*self.names, self.seed, self.solver],
            "data": self.digest,
        }
        kept: dict[str, Any] = {
            "keep": KEPT,
            "apart": 1e-9,
            "wave": 4,
            "call": call,
            "read": KeptPair.of_plain,
        }
        return explore(self.look, plan, most=most, highest=highest, **kept)

    def look(self, state: State, number: int, room: int) -> Gain:
        """One strategy."""
        rng = np.random.default_rng([self.seed, 2, number])
        number, turn = divmod(number, len(self.names))
        if self.names[turn] == BASE:
            return self._search_base(number, state, room, rng)
        return self._search_data(self.names[turn], number, state, min(CHUNK, room), rng)

    def _search_base(self, number: int, state: State, room: int, rng: np.random.Generator) -> Gain:
        assert self.scout is not None
        # mostly V, which every release consumes; the other quantities claimed in turn
        claimed = list(dict.fromkeys(claim.quantity for claim in self.claims))
        with_v = Quantity.V in claimed
        quantity = claimed[(number // 4 if with_v else number) % len(claimed)]
        quantity = Quantity.V if with_v and number % 4 < 3 else quantity
        known = [pair.what for pair in state.pairs(quantity) if isinstance(pair.what, Pairs)]
        with np.errstate(all="ignore"):
            ends, spent = _climb(self.scout, quantity, known, room, rng)
            moved = self.scout.movements(ends)
        gain = Gain(spent, counts={"scouted": spent})
        for index in range(len(ends)):
            values = {name.value: float(moved[name][index]) for name in Quantity}
            if np.isfinite(list(values.values())).all():
                gain.pairs.append((values, KeptPair(values, ends.take(np.array([index])))))
        return gain

    def _search_data(self, name: str, number: int, state: State, room: int, rng: np.random.Generator) -> Gain:
        index = 0 if self._fixed else number // STAY
        base = self.base(index)
        elite = [pair.what for pair in state.pairs(Quantity.V) if pair.base == index]
        known = [change for change in elite if isinstance(change, Replacement)] if name == "ascent" else []
        tried, step, moved, start = 0, 0.1, [], None
        if known and number % 4:  # mostly on from one of the best
            start = known[min(int(rng.geometric(0.5)), len(known)) - 1]
        else:
            tried, step = min(SCREENED if name == "ascent" else CHUNK, room), 0.3
            changes = base.propose(name, number if self._fixed else number % STAY, tried, rng)
            moved = base.moved(changes)
            start = max(moved, key=lambda item: item[1][Quantity.V].low)[0] if moved else None
        if name == "ascent" and start is not None and tried < room:
            end, solves = base.ascend(start, step, room - tried - 1, rng)
            moved += base.moved([end])  # once more, on its own
            tried += solves + 1
        # the last ones, because a batch has its first judged by itself
        some = moved[len(moved) - min(len(moved), -(-tried // CHECKED)) :]
        alone = base.resolved([change for change, _ in some])
        again = check(self.program, alone, self.solver, base=number == 0 and name == self.names[0])
        apart = [pair.apart(movement) for (_, movement), pair in zip(some, alone, strict=False)]
        counts = {"resolved": tried, "datasets": again.datasets, "unsolved": again.unsolved}
        largest = {"disagreement": max([again.disagreement, *apart]), "radius": again.radius}
        gain = Gain(tried, counts=counts, largest=largest)
        for change, movement in moved:
            values = {quantity.value: interval.low for quantity, interval in movement.items()}
            gain.pairs.append((values, KeptPair(values, change, index)))
        return gain

    @property
    def _fixed(self) -> bool:
        """Whether every draw is the same dataset."""
        return self.source is not None and self._drawn(0) is self._drawn(1)

    def _drawn(self, index: int) -> Records:
        """Dataset ``index`` of the data or the generator."""
        assert self.source is not None
        return self.source(np.random.default_rng([self.seed, index]))

    def base(self, index: int) -> Base:
        """The same, with its weights."""
        if self._base is None or self._base[0] != index:
            self._base = (index, Base(self.program, self.universe, self._drawn(index), self.pool))
        return self._base[1]

    def pair(self, kept: KeptPair) -> NeighborPair | None:
        """The two datasets of a kept pair in full, or None outside of the universe."""
        if isinstance(kept.what, Replacement):
            return self.base(kept.base).pair(kept.what)
        inside = kept.what.admissible(self.universe.domain)
        return NeighborPair(*kept.what.records(self.universe.domain), 0, kept.origin) if inside else None

    def reported(self, state: State) -> tuple[tuple[Verdict, ...], tuple[NeighborPair, ...], SolverCheck]:
        """A verdict per claim, and the pairs they rest on with the ten worst, all solved again.

        Raises DataError where the search met no neighbor inside of the universe.
        """
        claims = self.claims
        everything = [pair for best in state.best.values() for _, pair in best]
        everything.sort(key=lambda pair: -pair.ratio(claims))
        tops = [best[0][1] for claim in claims if (best := state.best.get(claim.quantity))]
        # two datasets each: of many records only those that verdicts rest on
        kept, chosen = KEPT if self.few else 0, list[KeptPair]()
        for candidate in [*tops, *everything]:
            if candidate not in chosen and (len(chosen) < kept or candidate in tops):
                chosen.append(candidate)
        pairs = [pair for candidate in chosen if (pair := self.pair(candidate)) is not None]
        if not pairs:
            raise DataError("the search met no neighbors inside of the universe: give it a larger budget")
        resolved = resolve(self.program, pairs)
        verdicts = []
        for claim in claims:
            worst = max(resolved, key=lambda item: item.movements[claim.quantity].low)
            verdicts.append(Verdict(claim, worst.movements[claim.quantity], worst, state.spent))
        datasets, unsolved = (int(state.counts.get(name, 0)) for name in ("datasets", "unsolved"))
        disagreement, radius = (state.largest.get(name, 0.0) for name in ("disagreement", "radius"))
        checked = SolverCheck(self.solver, datasets, disagreement, radius, unsolved)
        if self.few:  # else the solver is that which has just solved them
            checked = checked.plus(check(self.program, resolved, self.solver))
        return tuple(verdicts), tuple(resolved), checked


def _climb(
    scout: Scout, quantity: Quantity, known: Sequence[Pairs], budget: int, rng: np.random.Generator
) -> tuple[Pairs, int]:
    """The pairs at the ends of the ascents of one round, and how many pairs were tried, at most ``budget``.

    One of the ``known`` pairs of earlier rounds is refined again with small steps.
    """
    universe = scout.universe
    number, refined, evaluations = COSTLY if scout.exact else CHEAP
    starts = Pairs.starts(universe, min(number, budget), rng)
    spent = len(starts)
    values = np.nan_to_num(scout.movements(starts)[quantity], nan=-np.inf, posinf=-np.inf)
    highest = np.argsort(-values, kind="stable")[:refined]
    chosen = [(starts.take(np.array([index])), 0.3) for index in highest]
    if known:
        pair = known[int(rng.integers(len(known)))]
        a = pair.a.copy()
        if rng.random() < 0.5:
            place = (int(rng.integers(CLUSTERS + 2)) + 2) % (CLUSTERS + 2)
            a[0, place] = 1 - a[0, place]
        chosen.append((Pairs.admitted(universe, pair.X, a, pair.count), 0.1))
    ends = [starts.take(np.array([int(np.argmax(values))]))]
    for start, step in chosen:
        end, tried = _refined(scout, quantity, start, step, min(evaluations, budget - spent), rng)
        spent += tried
        ends.append(end)
    return Pairs.joined(ends), spent


def _refined(
    scout: Scout, quantity: Quantity, start: Pairs, step: float, evaluations: int, rng: np.random.Generator
) -> tuple[Pairs, int]:
    """Where CMA-ES on the points of the kinds that are there, and on their shares, ends."""
    universe = scout.universe
    active = np.flatnonzero(np.nan_to_num(start.count[0]) > 0)
    rows = np.concatenate([2 + active, [0, 1]]).astype(np.int64)
    d, bound = universe.n_features, universe.domain.features_bound

    def pairs(u: Array) -> Pairs:
        X = np.repeat(start.X, len(u), axis=0)
        X[:, rows] = u[:, : len(rows) * d].reshape(len(u), len(rows), d) * bound
        share = np.zeros((len(u), CLUSTERS))
        share[:, active] = np.exp(np.clip(u[:, len(rows) * d :], -30.0, 30.0))
        return Pairs.admitted(universe, X, np.repeat(start.a, len(u), axis=0), share)

    first = np.append(start.X[0, rows].ravel() / bound, np.log(np.maximum(start.count[0, active], 0.3)))
    best, largest, tried = evolve(
        lambda u: scout.movements(pairs(u))[quantity], first, step, evaluations, rng
    )
    return (pairs(best[None]) if np.isfinite(largest) else start), tried
