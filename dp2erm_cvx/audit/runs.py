"""Runs of any mechanism on neighbors against its guarantee, by counts of events."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.events import (
    CountBound,
    Event,
    Observation,
    Observations,
    best_events,
    of_exception,
    of_output,
    scores,
)
from dp2erm_cvx.audit.finding import DIRECTIONS, REPLAYS, Columns, Declared, Finding
from dp2erm_cvx.audit.pairs import Pairs, next_pair
from dp2erm_cvx.audit.search import Deadline, Gain, OutOfTime, SearchPlan, State, explore
from dp2erm_cvx.checks import check_settings, public_fraction, setting, whole_number
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.display import Shown
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.noise import random_source
from dp2erm_cvx.parallel import run_tasks, whole_workers

#: Families of events, and what each is called in a report.
FAMILIES = {
    "values": "marks and repeated values",
    "tails": "tails of coordinates and norms",
    "learned": "learned scores",
    "bits": "the lowest bits of coordinates",
}


#: Observations of the first and of the second dataset, as many of each.
RunsOfBoth = tuple[Observations, Observations]


@dataclass(frozen=True)
class Attack:
    """How often a mechanism runs on each of two datasets, and which events are looked for.

    Parameters
    ----------
    runs
        On each dataset, at least 40.
    confidence
        Probability at least which the bound is right with, in (0, 1).
    events
        Families to look at: "values", "tails", "learned", "bits"; may be empty if there are
        ``statistics``.
    statistics
        Functions from an output to a number of your own, whose tails are looked at as well.
    takes_rng
        Whether the mechanism takes a ``numpy.random.Generator`` after the dataset.
    seed
        Seeds the generators of a mechanism that takes one; drawn and reported if None.
    workers
        Processes, -1 for all cores, or what ``joblib.parallel_config`` says. They do not change the
        result.

    Raises
    ------
    DeclarationError
        For anything else.
    """

    runs: int = setting(2000, whole_number, at_least=40)
    confidence: float = setting(0.99, public_fraction)
    events: Sequence[str] = tuple(FAMILIES)
    statistics: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    takes_rng: bool = False
    seed: int | None = setting(None, whole_number, at_least=0)
    workers: int = 1

    def __post_init__(self) -> None:
        events = self.events
        if isinstance(events, str):
            events = (events,)
        for family in events:
            if family not in FAMILIES:
                raise DeclarationError(
                    f"events: {family!r} is unknown: choose from {', '.join(FAMILIES)}"
                )
        if not events and not self.statistics:
            raise DeclarationError("events: choose at least one family, or give statistics")
        check_settings(self)
        in_order = tuple(family for family in FAMILIES if family in events)
        object.__setattr__(self, "events", in_order)
        object.__setattr__(self, "statistics", dict(self.statistics))
        object.__setattr__(self, "workers", whole_workers(self.workers))


@dataclass(frozen=True)
class Counted:
    """An event that was chosen first and then counted in other runs of each dataset.

    P is the law of the output on one dataset, Q that on the other.

    Parameters
    ----------
    direction
        Which dataset has the law P; it is named first.
    event
        The event in words.
    hits, other_hits
        How many runs under P and under Q met the event.
    runs
        Runs of each dataset in which the event was counted.
    low
        With the confidence of the audit P(event) is at least this.
    high
        With the confidence of the audit Q(event) is at most this.
    epsilon_low
        Hence epsilon is at least ``log((low - delta) / high)``, or 0.
    mu_low
        Hence mu is at least ``Phi^-1(low) - Phi^-1(high)``, or 0.
    """

    direction: str
    event: str
    hits: int
    other_hits: int
    runs: int
    low: float
    high: float
    epsilon_low: float
    mu_low: float


@dataclass(frozen=True)
class RunsAudit(Shown):
    """Lower bounds from runs of a mechanism on one pair of datasets, against what is declared.

    Parameters
    ----------
    declared
        The guarantee.
    epsilon_low, mu_low
        Lower bounds on the epsilon that the mechanism has at the declared delta, and on its mu.
    ceiling
        The most that so many runs can show, whatever the mechanism.
    confidence
        Probability at least with which the bounds are right, if the runs are independent.
    counted
        The events that were counted, in both directions.
    runs
        Runs of each dataset, half of which chose the events.
    raised
        How many runs of each dataset ended in an exception.
    searched
        How many events were looked at, and of which families.
    seed
        Repeats the runs of a mechanism that takes a generator.
    private
        False: the audit reads the datasets.
    """

    declared: Declared
    epsilon_low: float
    mu_low: float
    ceiling: float
    confidence: float
    counted: tuple[Counted, Counted]
    runs: int
    raised: tuple[int, int]
    searched: str
    seed: int
    private: bool = field(default=False, init=False)

    @property
    def low(self) -> float:
        """The bound on what is declared."""
        return float(getattr(self, f"{self.declared.name}_low"))

    @property
    def best(self) -> Counted:
        """The direction and event with the larger bound."""
        return max(self.counted, key=attrgetter(f"{self.declared.name}_low"))

    @property
    def exceeds(self) -> bool:
        """True if the declared guarantee is violated.

        That is wrong with probability at most ``1 - confidence``.
        """
        return self.low > self.declared.number

    @property
    def able(self) -> bool:
        """True if so many runs could show any violation at all."""
        return self.ceiling > self.declared.number

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self.declared), **asdict(self), "violated": self.exceeds}

    def __str__(self) -> str:
        name = self.declared.name
        bound = f"{name} >= {self.low:.4g} with confidence {self.confidence:g}, {self.declared}"
        verdict = "no violation found, which is no proof"
        if self.exceeds:
            best = self.best
            counts = f"{best.hits} against {best.other_hits} of {best.runs} runs"
            verdict = f"VIOLATED by {best.event} ({counts})"
        limit = f"{self.runs} runs a dataset can show at most {self.ceiling:.4g}"
        if not self.able:
            limit += f", hence NO violation of this {name}: more runs are needed"
        return f"{bound}: {verdict}; {limit}; looked at {self.searched}; not private"


def audit_runs(
    mechanism: Callable[..., Any],
    first: Any,
    second: Any,
    declared: Declared,
    *,
    attack: Attack | None = None,
) -> RunsAudit:
    """Lower bounds on the epsilon or mu of ``mechanism``, from its runs on two neighbors.

    What the mechanism returns (numbers, arrays, text, None, or lists and dicts of those) or raises
    is the output, all of which an attacker is taken to see. A quarter of the runs learns scores
    that separate the datasets, a quarter picks an event for each direction, and half counts them.
    For the lower Clopper-Pearson bound p of one probability and the upper one q of the other,
    epsilon is at least ``log((p - delta)/q)`` (Ding et al. 2018; Jagielski et al. 2020) and mu at
    least ``Phi^-1(p) - Phi^-1(q)`` (Dong, Roth and Su 2022). Four bounds share the risk
    ``1 - attack.confidence``.

    Parameters
    ----------
    mechanism
        ``mechanism(dataset)``, or ``mechanism(dataset, rng)`` where the attack says so. Its runs
        must be independent. It is given to worker processes by pickling.
    first, second
        Neighboring datasets, of whatever the mechanism takes; that they are neighbors is not
        checked.
    declared
        The guarantee, as epsilon with delta, or as mu.
    attack
        How often the mechanism runs, and what is looked at; default: ``Attack()``.

    Returns
    -------
    audit
        The lower bounds, and the events that they come from.

    Raises
    ------
    DeclarationError
        For an invalid argument, for an output of another type, and where every run raised.
    """
    attack = attack or Attack()
    seed = attack.seed
    if seed is None:
        seed = random_source().getrandbits(53)
    runs = _run_all(mechanism, (first, second), attack, attack.runs, seed, Deadline())
    raised = _numbers_raised(runs)
    if raised == (attack.runs, attack.runs):
        of_first, _ = runs
        raise DeclarationError(f"mechanism: every run {of_first[0].key!s}")
    # four bounds share the risk: in either direction one on P(event) and one on Q(event)
    risk = (1.0 - attack.confidence) / 4
    learning, picking, counting = _parts_of_runs(runs)
    learned_scores = scores(*learning, attack.events)
    n_picking = len(picking[0])
    bound = CountBound.of(declared, n_picking, risk)
    (best_forward, best_backward), looked_at = best_events(
        picking, learned_scores, bound, values="values" in attack.events
    )
    mine, theirs = counting
    bounds = _Bounds.of_runs(len(mine), risk, declared.delta)
    forward = bounds.counted(0, best_forward.event, mine, theirs)
    backward = bounds.counted(1, best_backward.event, theirs, mine)
    ceilings = {"epsilon": bounds.epsilon.ceiling, "mu": bounds.mu.ceiling}
    return RunsAudit(
        declared=declared,
        epsilon_low=max(forward.epsilon_low, backward.epsilon_low),
        mu_low=max(forward.mu_low, backward.mu_low),
        ceiling=ceilings[declared.name],
        confidence=attack.confidence,
        counted=(forward, backward),
        runs=attack.runs,
        raised=raised,
        searched=f"{looked_at} events: {_families_in_words(attack)}",
        seed=seed,
    )


def _numbers_raised(runs: RunsOfBoth) -> tuple[int, int]:
    """How many runs of each dataset ended in an exception."""
    of_first, of_second = runs
    return sum(run.raised for run in of_first), sum(run.raised for run in of_second)


def _parts_of_runs(runs: RunsOfBoth) -> tuple[RunsOfBoth, RunsOfBoth, RunsOfBoth]:
    """Runs of both datasets that learn scores, that pick the events, and that count them.

    The first two are a quarter of all runs each.
    """
    of_first, of_second = runs
    n_learning = len(of_first) // 4
    n_choosing = len(of_first) // 2
    learning = (of_first[:n_learning], of_second[:n_learning])
    picking = (of_first[n_learning:n_choosing], of_second[n_learning:n_choosing])
    counting = (of_first[n_choosing:], of_second[n_choosing:])
    return learning, picking, counting


@dataclass(frozen=True)
class _Bounds:
    """Lower bounds from the runs that count an event.

    Parameters
    ----------
    runs
        So many runs of each dataset.
    epsilon, mu
        The bound on either parameter.
    """

    runs: int
    epsilon: CountBound
    mu: CountBound

    @classmethod
    def of_runs(cls, runs: int, risk: float, delta: float) -> _Bounds:
        """The bounds of so many runs, on epsilon at this delta, and on mu."""
        return cls(runs, CountBound(runs, risk, delta), CountBound(runs, risk, None))

    def counted(self, way: int, event: Event, mine: Observations, theirs: Observations) -> Counted:
        """The event of one direction, counted in the runs of both datasets."""
        hits = int(np.sum(event.contains(mine)))
        other_hits = int(np.sum(event.contains(theirs)))
        return Counted(
            direction=DIRECTIONS[way],
            event=event.words,
            hits=hits,
            other_hits=other_hits,
            runs=self.runs,
            low=float(self.mu.low[hits]),
            high=float(self.mu.high[other_hits]),
            epsilon_low=self.epsilon.one(hits, other_hits),
            mu_low=self.mu.one(hits, other_hits),
        )


def _families_in_words(attack: Attack) -> str:
    """The families of events that an attack looks at, as a report names them."""
    names = [FAMILIES[family] for family in attack.events]
    if attack.statistics:
        names.append(f"{len(attack.statistics)} own statistics")
    return ", ".join(names)


#: Runs of each dataset that one worker does at a time. The number is fixed, so that no result
#: depends on the workers.
_CHUNK = 50


def _run_all(
    mechanism: Callable[..., Any],
    datasets: tuple[Any, Any],
    attack: Attack,
    runs: int,
    seed: int,
    until: Deadline,
) -> RunsOfBoth:
    """So many observations of each dataset; raises OutOfTime.

    Each run has a generator of its own.
    """
    chunks = [(start, min(start + _CHUNK, runs)) for start in range(0, runs, _CHUNK)]
    # the workers of an attack are none of those that processes may start
    alone = dataclasses.replace(attack, workers=1)
    run_chunk = partial(_run, mechanism, datasets, alone, seed, until)
    of_first: list[Observation] = []
    of_second: list[Observation] = []
    for chunk in run_tasks(run_chunk, chunks, workers=attack.workers):
        for first, second in chunk:
            of_first.append(first)
            of_second.append(second)
    return of_first, of_second


def _run(
    mechanism: Callable[..., Any],
    datasets: tuple[Any, Any],
    attack: Attack,
    seed: int,
    until: Deadline,
    start: int,
    stop: int,
) -> list[Observations]:
    """Runs ``start`` to ``stop`` on both datasets, in turns; raises OutOfTime."""

    def once(which: int, run: int) -> Any:
        """What an attacker sees of one run, with the values of his own statistics."""
        until.check()
        arguments = [datasets[which]]
        if attack.takes_rng:
            arguments.append(np.random.default_rng([seed, which, run]))
        try:
            output = mechanism(*arguments)
        except Exception as raised:
            return of_exception(raised)
        values = {}
        for name, statistic in attack.statistics.items():
            values[name] = float(statistic(output))
        return dataclasses.replace(of_output(output), statistics=values)

    return [(once(0, run), once(1, run)) for run in range(start, stop)]


#: Runs on each dataset of a pair that is screened.
_SHORT = 40
#: Runs on each dataset of a pair that is looked at again.
_LONG = 200
#: Share of the attempts that change one of the best pairs.
_CHANGED = 0.3
#: Share of the attempts that go along a path.
_PATHS = 0.2
#: Share of a limit in seconds that the search takes, before the best pairs are looked at again.
_SEARCHING = 0.8


def search_runs(
    mechanism: Callable[..., Any],
    universe: Universe,
    declared: Declared,
    *,
    attack: Attack | None = None,
    search: SearchPlan | None = None,
) -> Finding:
    """Look for neighbors on which runs of ``mechanism`` differ most, and audit the worst of them.

    A few runs on each of two datasets put pairs into an order: new ones of structured families,
    small changes of the best so far, and the steepest places on paths between datasets far apart.
    The best are looked at with more runs, and one is audited by runs that had no part in the
    choice: its bound is right with its stated confidence however the pair was found.

    Parameters
    ----------
    mechanism
        ``mechanism((X, a, y))``, or ``mechanism((X, a, y), rng)`` where the attack says so: X (n,
        k) and y (n,) in the units of the data, a (n,) of 0 and 1. What it returns is as for
        :func:`audit_runs`.
    universe
        The datasets that the guarantee is declared for; its domain says which of them are
        neighbors.
    declared
        The guarantee, as epsilon with delta, or as mu.
    attack
        How the worst pair is audited; default: ``Attack()``.
    search
        Its evaluations are screened pairs; default: 60. Its workers are those of the attack. Its
        seconds do not count the runs of the last audit, whose number is declared.

    Returns
    -------
    finding
        The worst pair with its audit.

    Raises
    ------
    DeclarationError
        Where :func:`audit_runs` does, and where an arm floor leaves no pair.
    """
    search = search or SearchPlan(evaluations=60)
    attack = attack or Attack()
    domain = universe.domain
    limit = search.deadline()
    searching = limit.part(_SEARCHING)
    distance = _Distance(mechanism, attack, declared)
    attempt = partial(_attempt, universe, distance, search.seed, searching)
    state = explore(attempt, search, until=searching)
    worst = _worst(state.pairs("distance"), distance, domain, search.seed, limit)
    audit = audit_runs(mechanism, *worst.raw(domain), declared, attack=attack)
    facts: dict[str, Any] = {
        "mechanism": mechanism,
        "attack": {name: getattr(attack, name) for name in _OF_A_REPLAY},
        "search_seed": search.seed,
        "counts": {"screened": state.spent},
    }
    return Finding.of("blackbox", worst, domain, audit, **facts)


#: Fields of an attack that a saved pair needs for a replay.
_OF_A_REPLAY = ("runs", "confidence", "events", "takes_rng")


def _attempt(
    universe: Universe,
    distance: _Distance,
    seed: int,
    searching: Deadline,
    state: State,
    number: int,
    room: int,
) -> Gain:
    """Screen a new pair, a change of one of the best, or the steepest place of a path.

    Parameters
    ----------
    universe
        Where the pairs lie.
    distance
        How far apart the datasets of a pair are.
    seed
        Of the search: an attempt is seeded by this and the evaluations before it.
    searching
        When the search ends.
    state, number, room
        As of :func:`~dp2erm_cvx.audit.search.explore`.
    """
    rng = np.random.default_rng([seed, state.spent])
    chance = rng.random()
    best = None
    if chance < _CHANGED:
        best = state.elite("distance", rng)
    pair = next_pair(universe, best, rng)
    # one pair is looked at in any case
    until = searching if state.best else Deadline()
    short_distance = partial(distance, runs=_SHORT, rng=rng, until=until)
    evaluations = 1
    try:
        if chance > 1 - _PATHS:
            steepest, taken = pair.steepest(universe, short_distance, rng)
            evaluations += taken
            if steepest is not None:
                pair = steepest
        height = short_distance(*pair.raw(universe.domain))
    except OutOfTime:
        return Gain(evaluations, cut=True)
    return Gain(evaluations, [({"distance": height}, pair)])


def _worst(
    pairs: list[Pairs], distance: _Distance, domain: Domain, seed: int, until: Deadline
) -> Pairs:
    """The pair of those kept that more runs put first, of as many as the deadline allows.

    The highest of many short attempts is partly luck.
    """
    heights = list[float]()
    with contextlib.suppress(OutOfTime):
        for rank, pair in enumerate(pairs):
            rng = np.random.default_rng([seed, rank, 1])
            heights.append(distance(*pair.raw(domain), runs=_LONG, rng=rng, until=until))
    if not heights:
        return pairs[0]
    return pairs[int(np.argmax(heights))]


@dataclass(frozen=True)
class _Distance:
    """How far runs of two datasets are apart.

    Bounds from few runs are 0 for small shifts, which ranks see, and ranks miss what is rare: the
    distance is the sum of both.

    Parameters
    ----------
    mechanism
        The mechanism that runs.
    attack
        How it runs.
    declared
        The guarantee that bounds are held against.
    """

    mechanism: Callable[..., Any]
    attack: Attack
    declared: Declared

    def __call__(
        self,
        one: Columns,
        other: Columns,
        *,
        runs: int,
        rng: np.random.Generator,
        until: Deadline,
    ) -> float:
        """The distance by so many runs of each dataset; raises OutOfTime."""
        seed = int(rng.integers(2**53))
        mine, theirs = _run_all(self.mechanism, (one, other), self.attack, runs, seed, until)
        # learned scores would separate the very runs that they learned from
        tails = list(scores(mine, theirs, ("tails",)))
        # The risk may be large: pairs are only put into an order by the bound.
        bound = CountBound.of(self.declared, runs, risk=0.25)
        (forward, backward), _ = best_events((mine, theirs), tails, bound)
        separations = [_separation(score(mine), score(theirs)) for _, score in tails]
        return max(forward.low, backward.low) + max(separations, default=0.0)


def _separation(one: Array, other: Array) -> float:
    """Distance of two samples by their ranks, plus that of their medians; 0 without values.

    Ranks tell apart no samples that do not overlap, medians over the spread do.
    """
    one = np.sort(one[~np.isnan(one)])
    other = np.sort(other[~np.isnan(other)])
    if len(one) == 0 or len(other) == 0:
        return 0.0
    # twice the share of pairs in which the value of the other sample is lower, ties by half
    below = np.searchsorted(other, one, side="left") + np.searchsorted(other, one, side="right")
    ranks = abs(below.mean() / len(other) - 1.0)
    spread = max(_interquartile_range(one), _interquartile_range(other))
    gap = abs(float(np.median(one) - np.median(other)))
    medians = 10.0 * (gap > 0)
    if spread > 0:
        medians = np.log1p(min(gap / spread, 1e9))
    return float(2 * ranks + medians)


def _interquartile_range(values: Array) -> float:
    """The upper quartile less the lower one."""
    upper_quartile, lower_quartile = np.quantile(values, [0.75, 0.25])
    return float(upper_quartile - lower_quartile)


def _again(
    pair: Finding, mechanism: Callable[..., Any], declared: Any, attack: Any, **_: Any
) -> Any:
    """By new runs that choose an event of their own."""
    saved = pair.facts["audit"]
    attack = attack or Attack(**pair.facts["attack"])
    declared = declared or Declared(saved["epsilon"], saved["delta"], saved.get("mu"))
    return partial(audit_runs, mechanism, *pair.raw(), declared, attack=attack)


REPLAYS["blackbox"] = _again
