"""The looks of a stability audit: each tries one kind of neighbor; the worst pairs are solved in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.audit.movement import (
    Claim,
    NeighborPair,
    Quantity,
    SolverCheck,
    Verdict,
    check,
    resolve,
)
from dp2erm_cvx.audit.neighbors import Base, Replacement
from dp2erm_cvx.audit.pairs import CLUSTERS, Pairs, _directions
from dp2erm_cvx.audit.search import Gain, SearchPlan, State, evolve, explore, in_json
from dp2erm_cvx.audit.surrogates import Surrogate
from dp2erm_cvx.domain import Array, Records, Universe
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.program import FirstStage

#: The name of the search over base datasets.
BASE = "base"
#: Neighbors of one dataset in a look; those among which an ascent begins; looks per drawn dataset.
CHUNK, SCREENED, STAY = 100, 20, 4
#: One in so many neighbors is solved again by the named solver; pairs by which a fast surrogate is compared.
CHECKED, _SAMPLE = 100, 7
#: Pairs that are kept by every quantity.
KEPT = 10
#: Starts of a round, how many of the best are refined, and pairs tried in each refinement: where movements
#: are cheap, and where each takes two full solves.
CHEAP, COSTLY = (280, 2, 1500), (35, 1, 150)
#: Pairs of earlier rounds that are refined again, and whether a part of them is drawn anew.
_AGAIN = (False, True)

#: Draws a dataset.
Source = Callable[[np.random.Generator], Records]
#: A pair that is kept: of few kinds of records, or a change of one dataset.
Kept = Pairs | Replacement


@dataclass(eq=False)
class Rounds:
    """Looks of one strategy each, in turns of their ``names``.

    ``source`` draws the datasets whose neighbors are tried, None for the search over base datasets alone.
    ``pool`` are covariates of held-out records (m, d), None for those of the data. ``solver`` solves one in
    so many neighbors again. ``few`` records are those that the declared problem takes. ``digest`` is by what
    a checkpoint knows the data.
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
    digest: str | None = None

    def __post_init__(self) -> None:
        universe = self.universe
        # so many covariates as are given data, but a base dataset needs no more than three
        small = Universe(universe.domain, universe.n_samples, min(universe.n_features, 3))
        # a surrogate that is off wastes a search, but what is reported is solved in full
        sample = Pairs.starts(small, _SAMPLE, np.random.default_rng([self.seed, 1]))
        self.surrogate = Surrogate.of(self.program, small, sample) if BASE in self.names else None
        self._base: tuple[int, Base] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # a worker draws its own: the weights of a dataset are cheaper than sending them
        return {**self.__dict__, "_base": None}

    def explored(self, plan: SearchPlan) -> State:
        """The whole search. Raises DataError for a checkpoint of another audit."""

        def most(number: int) -> int:
            if self.surrogate is None or self.names[number % len(self.names)] != BASE:
                return CHUNK
            starts, refined, evaluations = COSTLY if self.surrogate.exact else CHEAP
            return starts + (refined + len(_AGAIN)) * evaluations

        call = {
            "program": [self.program.name, self.program.settings()],
            "domain": self.universe.domain.to_dict(),
            "size": [self.universe.n_samples, self.universe.n_features],
            "claims": [asdict(claim) for claim in self.claims],
            "search": [*self.names, self.seed, self.solver],
            "data": self.digest,
        }
        limits: dict[str, Any] = {"keep": KEPT, "apart": 1e-9, "wave": 4, "kinds": (Pairs, Replacement)}
        return explore(self.look, plan, most=most, highest=self._highest, call=call, **limits)

    def _ranked(self, state: State) -> list[tuple[float, Kept]]:
        """The pairs kept, by movement over bound; that of one weight counts where nothing else is claimed."""
        moving = [claim for claim in self.claims if claim.quantity is not Quantity.LARGEST] or self.claims
        ranked = [
            (height / max(claim.bound, 1e-300), pair)
            for claim in moving
            for height, pair in state.best.get(claim.quantity, ())
        ]
        return sorted(ranked, key=lambda item: -item[0])

    def _highest(self, state: State) -> float:
        return max((ratio for ratio, _ in self._ranked(state)), default=0.0)

    def look(self, state: State, number: int, room: int) -> Gain:
        """One strategy."""
        rng = np.random.default_rng([self.seed, 2, number])
        number, turn = divmod(number, len(self.names))
        if self.names[turn] == BASE:
            return self._search_base(number, state, room, rng)
        return self._search_data(self.names[turn], number, state, min(CHUNK, room), rng)

    def _search_base(self, number: int, state: State, room: int, rng: np.random.Generator) -> Gain:
        assert self.surrogate is not None
        # mostly V, which every release consumes; the other quantities claimed in turn
        claimed = list(dict.fromkeys(claim.quantity for claim in self.claims))
        turns = [*[Quantity.V] * 3, None] if Quantity.V in claimed else [None]
        quantity = turns[number % len(turns)] or claimed[number // len(turns) % len(claimed)]
        known = [pair for pair in state.pairs(quantity) if isinstance(pair, Pairs)]
        with np.errstate(all="ignore"):
            ends, spent = _climb(self.surrogate, quantity, known, room, rng)
            moved = self.surrogate.movements(ends)
        gain = Gain(spent, counts={"scouted": spent})
        for k in range(len(ends)):
            values = {name.value: float(moved[name][k]) for name in Quantity}
            if np.isfinite(list(values.values())).all():
                gain.pairs.append((values, ends.take(np.array([k]))))
        return gain

    def _search_data(self, name: str, number: int, state: State, room: int, rng: np.random.Generator) -> Gain:
        index = 0 if self._fixed else number // STAY
        base, ascent = self.base(index), name == "ascent"
        elite = [one for one in state.pairs(Quantity.V) if isinstance(one, Replacement) and one.base == index]
        tried, step, moved, start = 0, 0.1, [], None
        if ascent and elite and number % 4:  # mostly on from one of the best
            start = elite[min(int(rng.geometric(0.5)), len(elite)) - 1]
        else:
            tried, step = min(SCREENED if ascent else CHUNK, room), 0.3
            moved = base.moved(base.propose(name, number if self._fixed else number % STAY, tried, rng))
            start = max(moved, key=lambda item: item[1][Quantity.V].low)[0] if moved else None
        if ascent and start is not None and tried < room:
            end, solves = base.ascend(start, step, room - tried - 1, rng)
            moved += base.moved([end])  # once more, on its own
            tried += solves + 1
        # the last ones, because a batch has its first judged by itself
        some = moved[len(moved) - min(len(moved), -(-tried // CHECKED)) :]
        alone = base.resolved([change for change, _ in some])
        again = check(self.program, alone, self.solver, base=number == 0 and name == self.names[0])
        apart = [
            pair.movements[Quantity.V].apart(movement[Quantity.V])
            for (_, movement), pair in zip(some, alone, strict=False)
        ]
        counts = {"resolved": tried, "datasets": again.datasets, "unsolved": again.unsolved}
        largest = {"disagreement": max([again.disagreement, *apart]), "radius": again.radius}
        gain = Gain(tried, counts=counts, largest=largest)
        for change, movement in moved:
            gain.pairs.append(({what.value: interval.low for what, interval in movement.items()}, change))
        return gain

    @property
    def _fixed(self) -> bool:
        """True if every draw is the same dataset."""
        return self.source is not None and self._drawn(0) is self._drawn(1)

    def _drawn(self, index: int) -> Records:
        """Dataset ``index`` of the data or the generator."""
        assert self.source is not None
        return self.source(np.random.default_rng([self.seed, index]))

    def base(self, index: int) -> Base:
        """Dataset ``index`` with its weights."""
        if self._base is None or self._base[0] != index:
            records = self._drawn(index)
            self._base = (index, Base(self.program, self.universe, records, self.pool, index))
        return self._base[1]

    def pair(self, known: Kept) -> NeighborPair | None:
        """The two datasets of a kept pair in full, or None outside of the universe."""
        if isinstance(known, Replacement):
            return self.base(known.base).pair(known)
        inside = known.admissible(self.universe.domain)
        records = known.records(self.universe.domain)
        return NeighborPair(*records, 0, "search over base datasets") if inside else None

    def reported(self, state: State) -> tuple[tuple[Verdict, ...], tuple[NeighborPair, ...], SolverCheck]:
        """A verdict per claim, and the pairs they rest on with the ten worst, all solved again.

        Raises DataError where the search found no neighbor inside of the universe.
        """
        tops = [best[0][1] for claim in self.claims if (best := state.best.get(claim.quantity))]
        # two datasets each: of many records only those that verdicts rest on
        rest = [pair for _, pair in self._ranked(state)] if self.few else []
        chosen = {in_json(one): one for one in tops}
        for one in rest:
            if len(chosen) < KEPT:
                chosen.setdefault(in_json(one), one)
        pairs = [pair for one in chosen.values() if (pair := self.pair(one)) is not None]
        if not pairs:
            raise DataError("the search found no neighbors inside of the universe: give it a larger budget")
        resolved = resolve(self.program, pairs)
        verdicts = []
        for claim in self.claims:
            worst = max(resolved, key=lambda item: item.movements[claim.quantity].low)
            verdicts.append(Verdict(claim, worst.movements[claim.quantity], worst, state.spent))
        # above few records the solver is that which has just solved them
        last = check(self.program, resolved if self.few else [], self.solver)
        checked = SolverCheck(
            self.solver,
            int(state.counts.get("datasets", 0)) + last.datasets,
            max(state.largest.get("disagreement", 0.0), last.disagreement),
            max(state.largest.get("radius", 0.0), last.radius),
            int(state.counts.get("unsolved", 0)) + last.unsolved,
        )
        return tuple(verdicts), tuple(resolved), checked


def _climb(
    surrogate: Surrogate, quantity: Quantity, known: Sequence[Pairs], budget: int, rng: np.random.Generator
) -> tuple[Pairs, int]:
    """The pairs at the ends of the ascents of one round, and how many pairs were tried, at most ``budget``.

    Some of the ``known`` pairs of earlier rounds are refined again, with small steps.
    """
    universe = surrogate.universe
    number, refined, evaluations = COSTLY if surrogate.exact else CHEAP
    starts = Pairs.starts(universe, min(number, budget), rng)
    spent = len(starts)
    values = np.nan_to_num(surrogate.movements(starts)[quantity], nan=-np.inf, posinf=-np.inf)
    highest = np.argsort(-values, kind="stable")[:refined]
    steps = rng.choice([0.1, 0.3], refined)  # small ones stay on a narrow hill
    chosen = [(starts.take(np.array([index])), step) for index, step in zip(highest, steps, strict=False)]
    for anew in _AGAIN if known else ():
        pair = known[int(rng.integers(len(known)))]
        X, a, count = pair.X.copy(), pair.a.copy(), pair.count.copy()
        if anew:  # another hill: one common kind, and one end of the change, are drawn again
            kind = int(rng.integers(CLUSTERS))
            rows = [2 + kind, int(rng.integers(2))]
            X[0, rows] = universe.domain.features_bound * _directions(rng, 2, X.shape[2])
            a[0, rows], count[0, kind] = rng.integers(2, size=2), np.max(count) * rng.random()
        elif rng.random() < 0.5:
            place = int(rng.integers(CLUSTERS + 2))
            a[0, place] = 1 - a[0, place]
        chosen.append((Pairs.admitted(universe, X, a, count), 0.1))
    climbs, left = [], budget - spent
    free = [_free(universe, start) for start, _ in chosen]
    for (first, _), (_, step) in zip(free, chosen, strict=True):
        climbs.append((first, step, min(evaluations, left)))
        left -= climbs[-1][2]

    def heights(points: list[tuple[int, Array]]) -> list[Array]:
        moved = surrogate.movements(Pairs.joined([free[k][1](u) for k, u in points]))[quantity]
        return np.split(moved, np.cumsum([len(u) for _, u in points])[:-1])

    ends = [starts.take(np.array([int(np.argmax(values))]))]
    for k, (best, largest, tried) in enumerate(evolve(heights, climbs, rng)):
        spent += tried
        ends.append(free[k][1](best[None]) if np.isfinite(largest) else chosen[k][0])
    return Pairs.joined(ends), spent


def _free(universe: Universe, start: Pairs) -> tuple[Array, Callable[[Array], Pairs]]:
    """Free numbers of a pair: points of the kinds that are there, logs of their shares; and pairs by them."""
    active = np.flatnonzero(np.nan_to_num(start.count[0]) > 0)
    rows = np.concatenate([2 + active, [0, 1]]).astype(np.int64)
    d, bound = universe.n_features, universe.domain.features_bound

    def pairs(u: Array) -> Pairs:
        X = np.repeat(start.X, len(u), axis=0)
        X[:, rows] = u[:, : len(rows) * d].reshape(len(u), len(rows), d) * bound
        share = np.zeros((len(u), CLUSTERS))
        share[:, active] = np.exp(np.clip(u[:, len(rows) * d :], -30.0, 30.0))
        return Pairs.admitted(universe, X, np.repeat(start.a, len(u), axis=0), share)

    logs = np.log(np.maximum(start.count[0, active], 0.3))
    return np.append(start.X[0, rows].ravel() / bound, logs), pairs
