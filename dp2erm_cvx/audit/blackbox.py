"""Runs of any mechanism on two neighbors against its guarantee, and the search for the worst pair."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.audit.events import Choice, CountBound, EpsilonBound, Event, MuBound, bound_of
from dp2erm_cvx.audit.finding import Columns, Declared, Direction, SavedPair, WorstPair
from dp2erm_cvx.audit.pairs import KindPair, Maker, RecordPath, far_record, opposed
from dp2erm_cvx.audit.runs import FAMILIES, Observations, Runner, run_all, scores
from dp2erm_cvx.audit.search import Gain, Searcher, SearchPlan, Task, explore
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.mechanism import random_source
from dp2erm_cvx.parallel import whole_workers
from dp2erm_cvx.public import public_fraction, whole_number
from dp2erm_cvx.universe import Universe

#: What each family is called in a report.
_NAMES = {
    "values": "marks and repeated values",
    "tails": "tails of coordinates and norms",
    "learned": "learned scores",
    "bits": "the lowest bits of coordinates",
}


@dataclass(frozen=True)
class Attack:
    """Runs of a mechanism on each of two datasets, and the events that are looked for in its outputs.

    Parameters
    ----------
    runs
        On each dataset, at least 40.
    confidence
        Probability at least which the bound is right with, in (0, 1).
    events
        Families to look at: "values", "tails", "learned", "bits"; may be empty if there are ``statistics``.
    statistics
        Functions from an output to a number of your own, whose tails are looked at as well.
    takes_rng
        Whether the mechanism takes a ``numpy.random.Generator`` after the dataset.
    seed
        Seeds the generators of a mechanism that takes one; drawn and reported if None.
    workers
        Processes, -1 for all cores, or what ``joblib.parallel_config`` says. They do not change the result.

    Raises DeclarationError for anything else.
    """

    runs: int = 2000
    confidence: float = 0.99
    events: Sequence[str] = FAMILIES
    statistics: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    takes_rng: bool = False
    seed: int | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", whole_number("runs", self.runs, at_least=40))
        object.__setattr__(self, "confidence", public_fraction("confidence", self.confidence))
        object.__setattr__(self, "events", _families(self.events, own=bool(self.statistics)))
        object.__setattr__(self, "statistics", dict(self.statistics))
        if self.seed is not None:
            object.__setattr__(self, "seed", whole_number("seed", self.seed, at_least=0))
        object.__setattr__(self, "workers", whole_workers(self.workers))

    @property
    def names(self) -> list[str]:
        """What is looked at, in words."""
        own = [f"{len(self.statistics)} own statistics"] if self.statistics else []
        return [_NAMES[family] for family in self.events] + own


def _families(events: Sequence[str], *, own: bool) -> tuple[str, ...]:
    chosen = (events,) if isinstance(events, str) else tuple(events)
    for family in chosen:
        if family not in FAMILIES:
            raise DeclarationError(f"events: {family!r} is unknown: choose from {', '.join(FAMILIES)}")
    if not chosen and not own:
        raise DeclarationError("events: choose at least one family, or give statistics")
    return tuple(family for family in FAMILIES if family in chosen)


@dataclass(frozen=True)
class Counted:
    """An event that was chosen first and then counted in ``runs`` other runs of each dataset.

    P is the law of the output on the dataset named first in ``direction``, Q that on the other. With the
    confidence of the audit P(event) is at least ``low`` and Q(event) at most ``high``, so that epsilon is at
    least ``epsilon_low`` = log((low - delta) / high), or 0, and mu at least ``mu_low`` = Phi^-1(low) -
    Phi^-1(high), or 0.
    """

    direction: Direction
    event: str
    hits: int
    other_hits: int
    runs: int
    low: float
    high: float
    epsilon_low: float
    mu_low: float

    def __str__(self) -> str:
        return (
            f"{self.direction}: {self.hits} against {self.other_hits} of {self.runs} runs with {self.event}, "
            f"epsilon >= {self.epsilon_low:.3g}, mu >= {self.mu_low:.3g}"
        )


@dataclass(frozen=True)
class BlackBoxAudit:
    """What runs of a mechanism on one pair of datasets say about its declared (``epsilon``, ``delta``).

    ``epsilon_low`` is a lower bound on the epsilon that the mechanism has at ``delta``, and ``mu_low`` on its
    mu, right with probability at least ``confidence`` if the runs are independent; ``counted`` holds both
    directions. Where ``mu`` is declared, ``epsilon`` is None, and the other way round. Events were chosen for
    the bound on what is declared, and ``ceiling`` is the most that so many runs can show of it, whatever the
    mechanism: a quiet audit says nothing about anything above it. ``runs`` are those of each dataset, half of
    which chose the events; ``raised`` counts, for both datasets, those that ended in an exception.
    ``looked_at`` events were compared, of what ``searched`` says. ``seed`` repeats the runs of a mechanism
    that takes a generator.
    """

    epsilon: float | None
    delta: float
    mu: float | None
    epsilon_low: float
    mu_low: float
    ceiling: float
    confidence: float
    counted: tuple[Counted, Counted]
    runs: int
    raised: tuple[int, int]
    looked_at: int
    searched: str
    seed: int
    private: bool = field(default=False, init=False)

    @property
    def declared(self) -> Declared:
        """What is declared."""
        return Declared(self.epsilon, self.delta, self.mu)

    @property
    def low(self) -> float:
        """The bound on what is declared."""
        return self.epsilon_low if self.mu is None else self.mu_low

    @property
    def best(self) -> Counted:
        """The direction and event with the larger bound."""
        return max(self.counted, key=lambda way: way.epsilon_low if self.mu is None else way.mu_low)

    @property
    def exceeds(self) -> bool:
        """Whether the declared guarantee is violated; wrong with probability at most 1 - ``confidence``."""
        return self.low > self.declared.number

    @property
    def able(self) -> bool:
        """Whether so many runs could show any violation at all."""
        return self.ceiling > self.declared.number

    def __str__(self) -> str:
        best = self.best
        name = self.declared.name
        bound = f"{name} >= {self.low:.4g} with confidence {self.confidence:g}, {self.declared}"
        if self.exceeds:
            verdict = f"VIOLATED by {best.event} ({best.hits} against {best.other_hits} of {best.runs} runs)"
        else:
            verdict = "no violation found, which is no proof"
        limit = f"{self.runs} runs a dataset can show at most {self.ceiling:.4g}"
        if not self.able:
            limit += f", hence NO violation of this {name}: more runs are needed"
        return f"{bound}: {verdict}; {limit}; looked at {self.searched}; not private"


def audit_blackbox(
    mechanism: Callable[..., Any],
    first: Any,
    second: Any,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    mu: float | None = None,
    attack: Attack | None = None,
) -> BlackBoxAudit:
    """Run ``mechanism`` on two neighboring datasets, and bound the epsilon or mu that it has from below.

    The mechanism is anything: of this package, of another, of yours. What it returns (numbers, arrays,
    text, None, or lists and dicts of those) or raises is the output, all of which an attacker is taken to
    see. A quarter of the runs learns scores that separate the datasets, a quarter picks the event with
    the largest bound for each direction, and half counts these two events. Epsilon is at least ``log((p -
    delta)/q)`` for the lower Clopper-Pearson bound p of one probability and the upper bound q of the other
    (Ding et al. 2018; Jagielski et al. 2020), and mu at least ``Phi^-1(p) - Phi^-1(q)`` (Dong, Roth and Su
    2022); four bounds share the risk ``1 - attack.confidence``.

    Parameters
    ----------
    mechanism
        ``mechanism(dataset)``, or ``mechanism(dataset, rng)`` where the attack says so. Its runs must be
        independent. It is given to worker processes by pickling.
    first, second
        Neighboring datasets, of whatever the mechanism takes; that they are neighbors is not checked.
    epsilon, delta, mu
        The guarantee that is declared: epsilon >= 0 and 0 <= delta < 1, or mu >= 0 alone.
    attack
        How often the mechanism runs, and what is looked at; default: ``Attack()``.

    Raises DeclarationError for an invalid argument, for an output of another type, and where every run
    raised.
    """
    declared = Declared(epsilon, delta, mu)
    attack = Attack() if attack is None else attack
    seed = random_source().getrandbits(53) if attack.seed is None else attack.seed
    runner = Runner(mechanism, (first, second), attack.takes_rng, seed, attack.statistics)
    one, other = run_all(runner, attack.runs, attack.workers)
    raised = _raised(one), _raised(other)
    if raised == (attack.runs, attack.runs):
        raise DeclarationError(f"mechanism: every run {one[0].key!s}")
    learned, picked = attack.runs // 4, attack.runs // 2
    risk = (1.0 - attack.confidence) / 4
    choice = Choice(one[learned:picked], other[learned:picked], bound_of(declared, picked - learned, risk))
    if "values" in attack.events:
        choice.offer_values()
    for score in scores(one[:learned], other[:learned], attack.events):
        choice.offer_tails(score)
    bounds = EpsilonBound(attack.runs - picked, declared.delta, risk), MuBound(attack.runs - picked, risk)
    counted = (
        _count(Direction.FIRST, choice.events[0], one[picked:], other[picked:], *bounds),
        _count(Direction.SECOND, choice.events[1], other[picked:], one[picked:], *bounds),
    )
    return BlackBoxAudit(
        epsilon=declared.epsilon,
        delta=declared.delta,
        mu=declared.mu,
        epsilon_low=max(way.epsilon_low for way in counted),
        mu_low=max(way.mu_low for way in counted),
        ceiling=bounds[0 if declared.mu is None else 1].ceiling,
        confidence=attack.confidence,
        counted=counted,
        runs=attack.runs,
        raised=raised,
        looked_at=choice.looked_at,
        searched=f"{choice.looked_at} events: {', '.join(attack.names)}",
        seed=seed,
    )


def _count(
    direction: Direction, event: Event, mine: Observations, theirs: Observations, *bounds: CountBound
) -> Counted:
    hits, other_hits = event.count(mine), event.count(theirs)
    low, high = float(bounds[0].low[hits]), float(bounds[0].high[other_hits])
    lows = [bound.of(hits, other_hits) for bound in bounds]
    return Counted(direction, event.description, hits, other_hits, bounds[0].runs, low, high, *lows)


def _raised(observations: Observations) -> int:
    return sum("the mechanism raised" in observation.marks for observation in observations)


#: Runs on each dataset of a pair that is screened, and of one that is looked at again.
_SHORT, _LONG = 40, 200
#: Shares of the looks that change one of the best pairs, and that go along a path.
_CHANGED, _PATHS = 0.3, 0.2
#: Risk of the bounds of a few runs: pairs are only put into an order by them.
_RISK = 0.25


@dataclass(frozen=True, eq=False)
class _Screening(Searcher):
    """Pairs in the order of how far a few runs on both sides are apart."""

    mechanism: Callable[..., Any]
    maker: Maker
    attack: Attack
    declared: Declared
    seed: int

    def look(self, task: Task) -> Gain:
        """Meet a new pair, a change of one of the best, or where a path is steepest."""
        rng = np.random.default_rng([self.seed, task.spent])
        chance, looks, best = rng.random(), 0, task.best.get("distance", ())
        if best and chance < _CHANGED:
            pair = self.maker.change(best[min(int(rng.geometric(0.5)), len(best)) - 1][1], rng)
        else:
            pair = self._drawn(rng)
        if chance > 1 - _PATHS:
            path = RecordPath(pair, self.maker, rng)
            steepest, looks = path.steepest(lambda *ends: self._distance(ends, _SHORT, rng))
            pair = pair if steepest is None else steepest
        return Gain(looks + 1, [({"distance": self._distance(self._raw(pair), _SHORT, rng)}, pair)])

    def worst(self, best: Sequence[tuple[Any, KindPair]]) -> tuple[Columns, Columns]:
        """The best of those kept, by more runs: the highest of many short looks is partly luck."""
        heights = [
            self._distance(self._raw(pair), _LONG, np.random.default_rng([self.seed, rank, 1]))
            for rank, (_, pair) in enumerate(best)
        ]
        return self._raw(best[int(np.argmax(heights))][1])

    def _raw(self, pair: KindPair) -> tuple[Columns, Columns]:
        return pair.raw(self.maker.domain)

    def _drawn(self, rng: np.random.Generator) -> KindPair:
        drawn = self.maker.draw(rng)
        if rng.random() < 0.5:
            drawn = opposed(drawn, self.maker.domain.outcome_bound, rng)
        return far_record(drawn, rng) if rng.random() < 0.5 else drawn

    def _distance(self, datasets: tuple[Columns, Columns], runs: int, rng: np.random.Generator) -> float:
        seed = int(rng.integers(2**53))
        runner = Runner(self.mechanism, datasets, self.attack.takes_rng, seed, self.attack.statistics)
        one, other = run_all(runner, runs, self.attack.workers)
        choice = Choice(one, other, bound_of(self.declared, runs, _RISK))
        choice.offer_values()
        gap = 0.0
        # learned scores would separate the very runs that they learned from
        for score in scores(one, other, ("tails",)):
            choice.offer_tails(score)
            gap = max(gap, _separation(score(one), score(other)))
        # bounds of so few runs are 0 for small shifts, which ranks see, and ranks miss what is rare
        return max(choice.heights) + gap


def _separation(one: Array, other: Array) -> float:
    """Distance of two samples by ranks, and by medians where the ranks are apart; 0 without values."""
    one, other = np.sort(one[~np.isnan(one)]), np.sort(other[~np.isnan(other)])
    if not (one.size and other.size):
        return 0.0
    below = np.searchsorted(other, one, side="left") + np.searchsorted(other, one, side="right")
    ranks = abs(below.mean() / len(other) - 1.0)
    spread = max(float(np.subtract(*np.quantile(part, [0.75, 0.25]))) for part in (one, other))
    gap = abs(float(np.median(one) - np.median(other)))
    return float(2 * ranks + (np.log1p(min(gap / spread, 1e9)) if spread > 0 else 10.0 * (gap > 0)))


def search_blackbox(
    mechanism: Callable[..., Any],
    universe: Universe,
    declared: Declared,
    *,
    attack: Attack | None = None,
    search: SearchPlan | None = None,
) -> WorstPair[BlackBoxAudit]:
    """Look for neighbors on which runs of ``mechanism`` differ most, and audit the worst of them.

    A few runs on each of two datasets put pairs into an order. Some are new ones of structured families:
    clusters, ends, antipodes, nearly empty arms, one record far from all others. Others are small changes of
    the best met so far, and the steepest places on paths between datasets far apart. The best are looked at
    with more runs, and one is audited by runs that had no part in the choice: its bound is right with its
    stated confidence however the pair was found.

    Parameters
    ----------
    mechanism
        ``mechanism((X, a, y))``, or ``mechanism((X, a, y), rng)`` where the attack says so: X (n, k) and y
        (n,) in the units of the data, a (n,) of 0 and 1. What it returns is as for :func:`audit_blackbox`.
    universe
        The datasets that the guarantee is declared for; its domain says which of them are neighbors.
    declared
        The guarantee, as epsilon with delta, or as mu.
    attack
        How the worst pair is audited; default: ``Attack()``.
    search
        Its evaluations are screened pairs; default: 60. Its workers are those of the attack.

    Raises what :func:`audit_blackbox` raises, and DeclarationError where an arm floor leaves no pair.
    """
    search = SearchPlan(evaluations=60) if search is None else search
    attack = Attack() if attack is None else attack
    maker = Maker(universe.domain, universe.n_samples, universe.n_features)
    screening = _Screening(mechanism, maker, attack, declared, search.seed)
    state = explore(screening, dataclasses.replace(search, checkpoint=None))
    first, second = screening.worst(state.best["distance"])
    audit = audit_blackbox(mechanism, first, second, **asdict(declared), attack=attack)
    facts = {
        "mechanism": named(mechanism),
        "violated": audit.exceeds,
        "attack": {name: getattr(attack, name) for name in ("runs", "confidence", "events", "takes_rng")},
        "audit": asdict(audit),
        "search_seed": search.seed,
    }
    counts = {"screened": state.spent}
    return WorstPair(named(mechanism), "blackbox", universe.domain, first, second, audit, counts, facts)


def named(mechanism: Callable[..., Any]) -> str:
    """What a mechanism is called."""
    return str(getattr(mechanism, "__name__", type(mechanism).__name__))


def replay_blackbox(
    path: str | Path, mechanism: Callable[..., Any], *, attack: Attack | None = None
) -> BlackBoxAudit:
    """Audit ``mechanism`` on a pair that a search saved, by new runs that choose an event of their own.

    ``attack`` overrides the saved one. Raises DataError for files without a pair of a black-box audit, and
    what :func:`audit_blackbox` raises.
    """
    pair = SavedPair.load(path, "blackbox")
    try:
        saved, known = Attack(**pair.finding["attack"]), pair.finding["audit"]
        declared = {"epsilon": known["epsilon"], "delta": known["delta"], "mu": known.get("mu")}
    except (KeyError, TypeError) as wrong:
        raise DataError(f"{path}: no finding of a black-box audit ({wrong})") from None
    return audit_blackbox(mechanism, *pair.raw(), attack=saved if attack is None else attack, **declared)
