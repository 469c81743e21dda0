"""The looks of a stability audit: each tries one kind of neighbor; the worst pairs are solved in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dp2erm_cvx.audit.movement import Claim, NeighborPair, Quantity, SolverCheck, check, resolve
from dp2erm_cvx.audit.neighbors import CLUSTERS, Base, Groups, Replacement
from dp2erm_cvx.audit.scouts import Scout
from dp2erm_cvx.audit.search import Gain, Search, SearchPlan, State, evolve
from dp2erm_cvx.audit.verdicts import Verdict
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.universe import Universe

#: The name of the search over base datasets.
BASE = "base"
#: Neighbors of one dataset in a look; those among which an ascent begins; looks per drawn dataset.
CHUNK, SCREENED, STAY = 100, 20, 4
#: One in so many neighbors is solved again by the named solver.
CHECKED = 100
_SAMPLE = 7
#: Pairs that are kept by every quantity.
KEPT = 10

#: Draws a dataset.
Source = Callable[[np.random.Generator], Records]


@dataclass(frozen=True)
class KeptPair:
    """A pair in few numbers, and its movements ``values`` by quantity.

    ``what`` is one pair of groups, or a replacement in dataset ``base`` of the data or the generator.
    """

    values: dict[str, float]
    origin: str
    what: Groups | Replacement = field(compare=False)
    base: int = 0

    def plain(self) -> dict[str, Any]:
        """In plain JSON types."""
        what = {name: np.asarray(value).tolist() for name, value in vars(self.what).items()}
        return {**vars(self), "what": what}

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> KeptPair:
        """What :meth:`plain` wrote."""
        held: dict[str, Any] = {
            name: np.asarray(v) if isinstance(v, list) else v for name, v in plain["what"].items()
        }
        what = Groups(**held) if "points" in held else Replacement(**held)
        return cls(**{**plain, "what": what})

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
        self.small = Universe(universe.domain, universe.n_samples, min(universe.n_features, 3))
        self.scout: Scout | None = None
        if BASE in self.names:
            # a scout that is off wastes a search, but what is reported is solved in full
            rng = np.random.default_rng([self.seed, 1])
            sample = Groups.starts(self.small, _SAMPLE, rng) if self.compare else None
            self.scout = Scout.of(self.program, self.small, sample)
        self._base: tuple[int, Base] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # a worker draws its own: the weights of a dataset are cheaper than sending them
        return {**self.__dict__, "_base": None}

    def explored(self, plan: SearchPlan) -> State:
        """The whole search. Raises DataError for a checkpoint of another audit."""
        call = {
            "program": [self.program.name, self.program.settings()],
            "domain": self.universe.domain.to_dict(),
            "size": [self.universe.n_samples, self.universe.n_features],
            "claims": [asdict(claim) for claim in self.claims],
            "search": [*self.names, self.seed, self.solver],
            "data": self.digest,
        }
        return Search(self.look, self._most, self._highest, KEPT, 1e-9, 4, call, KeptPair.of_plain).run(plan)

    def _highest(self, state: State) -> float:
        return max((pair.ratio(self.claims) for best in state.best.values() for _, pair in best), default=0.0)

    def _most(self, number: int) -> int:
        if self.names[number % len(self.names)] != BASE:
            return CHUNK
        assert self.scout is not None
        starts, refined, evaluations = COSTLY if self.scout.exact else CHEAP
        return starts + (refined + 1) * evaluations

    def look(self, state: State, number: int, room: int) -> Gain:
        """One strategy."""
        rng = np.random.default_rng([self.seed, 2, number])
        number, turn = divmod(number, len(self.names))
        if self.names[turn] == BASE:
            return self._search_base(number, state, room, rng)
        return self._search_data(self.names[turn], number, state, min(CHUNK, room), rng)

    def _search_base(self, number: int, state: State, room: int, rng: np.random.Generator) -> Gain:
        assert self.scout is not None
        quantity = self._aim(number)
        known = [pair.what for pair in state.pairs(quantity) if isinstance(pair.what, Groups)]
        elite = Groups.joined(known) if known else None
        with np.errstate(all="ignore"):
            ends, spent = _climb(self.scout, quantity, elite, room, rng)
            moved = self.scout.movements(ends)
        gain = Gain(spent, counts={"scouted": spent})
        for index in range(len(ends)):
            values = {name.value: float(moved[name][index]) for name in Quantity}
            if np.isfinite(list(values.values())).all():
                end = ends.take(np.array([index]))
                gain.pairs.append((values, KeptPair(values, "search over base datasets", end)))
        return gain

    def _aim(self, number: int) -> Quantity:
        """Mostly V, which every release consumes; the other quantities claimed in turn."""
        claimed = list(dict.fromkeys(claim.quantity for claim in self.claims))
        if Quantity.V in claimed and number % 4 < 3:
            return Quantity.V
        return claimed[(number // 4 if Quantity.V in claimed else number) % len(claimed)]

    def _search_data(self, name: str, number: int, state: State, room: int, rng: np.random.Generator) -> Gain:
        index = 0 if self._given else number // STAY
        base = self.base(index)
        elite = [pair.what for pair in state.pairs(Quantity.V) if pair.base == index]
        known = [change for change in elite if isinstance(change, Replacement)] if name == "ascent" else []
        tried, step = 0, 0.1
        start: Replacement | None = None
        moved = []
        if known and number % 4:  # mostly on from one of the best
            start = known[min(int(rng.geometric(0.5)), len(known)) - 1]
        else:
            tried, step = min(SCREENED if name == "ascent" else CHUNK, room), 0.3
            changes = base.propose(name, number if self._given else number % STAY, tried, rng)
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
            gain.pairs.append((values, KeptPair(values, change.origin, change, index)))
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
        if isinstance(kept.what, Replacement):
            return self.base(kept.base).pair(kept.what)
        first, second = kept.what.expand(0, self.small)
        floor = self.universe.domain.arm_floor or 0
        inside = all(min(r.a.sum(), r.n_samples - r.a.sum()) >= floor for r in (first, second))
        return NeighborPair(first, second, first.n_samples - 1, kept.origin) if inside else None

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


#: Starts of a round, how many of the best are refined, and pairs tried in each refinement: where movements
#: are cheap, and where each takes two full solves.
CHEAP, COSTLY = (280, 3, 1500), (35, 1, 150)


def _climb(
    scout: Scout, quantity: Quantity, elite: Groups | None, budget: int, rng: np.random.Generator
) -> tuple[Groups, int]:
    """The pairs at the ends of the ascents of one round, and how many pairs were tried, at most ``budget``.

    ``elite`` are pairs of earlier rounds, one of which is refined again with small steps.
    """
    number, refined, evaluations = COSTLY if scout.exact else CHEAP
    starts = Groups.starts(scout.universe, min(number, budget), rng)
    spent = len(starts)
    values = np.nan_to_num(scout.movements(starts)[quantity], nan=-np.inf, posinf=-np.inf)
    highest = np.argsort(-values, kind="stable")[:refined]
    chosen = [starts.take(np.array([index])) for index in highest]
    steps = [0.3] * len(chosen)
    if elite is not None and len(elite):
        pick = int(rng.integers(len(elite)))
        chosen.append(_mutated(scout.universe, elite.take(np.array([pick])), rng))
        steps.append(0.1)
    ends = []
    for start, step in zip(chosen, steps, strict=True):
        end, tried = _refined(scout, quantity, start, step, min(evaluations, budget - spent), rng)
        spent += tried
        ends.append(end)
    return Groups.joined([starts.take(np.array([int(np.argmax(values))])), *ends]), spent


def _refined(
    scout: Scout, quantity: Quantity, start: Groups, step: float, evaluations: int, rng: np.random.Generator
) -> tuple[Groups, int]:
    universe = scout.universe
    active = np.flatnonzero(np.nan_to_num(start.count[0]) > 0)
    rows = np.concatenate([active, [CLUSTERS, CLUSTERS + 1]]).astype(np.int64)
    d = universe.n_features

    def pairs(u: Array) -> Groups:
        points = np.repeat(start.points, len(u), axis=0)
        points[:, rows] = u[:, : len(rows) * d].reshape(len(u), len(rows), d) * universe.domain.features_bound
        share = np.zeros((len(u), CLUSTERS))
        share[:, active] = np.exp(np.clip(u[:, len(rows) * d :], -30.0, 30.0))
        return Groups.admitted(universe, points, np.repeat(start.arm, len(u), axis=0), share)

    points = start.points[0, rows].ravel() / universe.domain.features_bound
    first = np.concatenate([points, np.log(np.maximum(start.count[0, active], 0.3))])
    best, largest, tried = evolve(
        lambda u: scout.movements(pairs(u))[quantity], first, step, evaluations, rng
    )
    return (pairs(best[None]) if np.isfinite(largest) else start), tried


def _mutated(universe: Universe, pair: Groups, rng: np.random.Generator) -> Groups:
    """The same pair with, half of the time, one arm changed."""
    arm = pair.arm.copy()
    if rng.random() < 0.5:
        place = int(rng.integers(CLUSTERS + 2))
        arm[0, place] = 1 - arm[0, place]
    return Groups.admitted(universe, pair.points, arm, pair.count)
