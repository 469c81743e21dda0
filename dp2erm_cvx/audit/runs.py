"""Runs of any mechanism on neighbors against its guarantee: events, and bounds from their
counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.events import (
    CountBound,
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


@dataclass(frozen=True)
class Attack:
    """Runs of a mechanism on each of two datasets, and the events that are looked for in its
    outputs.

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

    Raises DeclarationError for anything else.
    """

    runs: int = setting(2000, whole_number, at_least=40)
    confidence: float = setting(0.99, public_fraction)
    events: Sequence[str] = tuple(FAMILIES)
    statistics: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    takes_rng: bool = False
    seed: int | None = setting(None, whole_number, at_least=0)
    workers: int = 1

    def __post_init__(self) -> None:
        put, events = (
            object.__setattr__,
            (self.events,) if isinstance(self.events, str) else self.events,
        )
        for family in events:
            if family not in FAMILIES:
                raise DeclarationError(
                    f"events: {family!r} is unknown: choose from {', '.join(FAMILIES)}"
                )
        if not events and not self.statistics:
            raise DeclarationError("events: choose at least one family, or give statistics")
        check_settings(self)
        put(self, "events", tuple(family for family in FAMILIES if family in events))
        put(self, "statistics", dict(self.statistics))
        put(self, "workers", whole_workers(self.workers))


@dataclass(frozen=True)
class Counted:
    """An event that was chosen first and then counted in ``runs`` other runs of each dataset.

    P is the law of the output on the dataset named first in ``direction``, Q that on the other.
    With the confidence of the audit P(event) is at least ``low`` and Q(event) at most ``high``, so
    that epsilon is at least ``epsilon_low`` = log((low - delta) / high), or 0, and mu at least
    ``mu_low`` = Phi^-1(low) - Phi^-1(high), or 0.
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
    """Lower bounds from runs of a mechanism on one pair of datasets, against what is ``declared``.

    ``epsilon_low`` is a lower bound on the epsilon that the mechanism has at the declared delta,
    and ``mu_low`` on its mu, right with probability at least ``confidence`` if the runs are
    independent; ``counted`` holds both directions. ``ceiling`` is the most that so many runs can
    show, whatever the mechanism. ``runs`` are those of each dataset, half of which chose the
    events; ``raised`` counts those that ended in an exception. ``seed`` repeats the runs of a
    mechanism that takes a generator.
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
        name = f"{self.declared.name}_low"
        return max(self.counted, key=lambda way: float(getattr(way, name)))

    @property
    def exceeds(self) -> bool:
        """True if the declared guarantee is violated; wrong with probability at most 1 -
        ``confidence``.
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
        best, name = self.best, self.declared.name
        bound = f"{name} >= {self.low:.4g} with confidence {self.confidence:g}, {self.declared}"
        if self.exceeds:
            verdict = (
                f"VIOLATED by {best.event} ({best.hits} against {best.other_hits} of {best.runs} "
                "runs)"
            )
        else:
            verdict = "no violation found, which is no proof"
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
    """Run ``mechanism`` on two neighboring datasets, and bound the epsilon or mu that it has from
    below.

    What it returns (numbers, arrays, text, None, or lists and dicts of those) or raises is the
    output, all of which an attacker is taken to see. A quarter of the runs learns scores that
    separate the datasets, a quarter picks an event for each direction, and half counts them. For
    the lower Clopper-Pearson bound p of one probability and the upper one q of the other, epsilon
    is at least ``log((p - delta)/q)`` (Ding et al. 2018; Jagielski et al. 2020) and mu at least
    ``Phi^-1(p) - Phi^-1(q)`` (Dong, Roth and Su 2022); four bounds share the risk ``1 -
    attack.confidence``.

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

    Raises DeclarationError for an invalid argument, for an output of another type, and where every
    run raised.
    """
    attack = attack or Attack()
    seed = random_source().getrandbits(53) if attack.seed is None else attack.seed
    one, other = _run_all(mechanism, (first, second), attack, attack.runs, seed, Deadline())
    raised = sum(run.raised for run in one), sum(run.raised for run in other)
    if raised == (attack.runs, attack.runs):
        raise DeclarationError(f"mechanism: every run {one[0].key!s}")
    learned, picked = attack.runs // 4, attack.runs // 2
    risk, runs = (1.0 - attack.confidence) / 4, attack.runs - picked
    known = scores(one[:learned], other[:learned], attack.events)
    pick, bound = (
        (one[learned:picked], other[learned:picked]),
        CountBound.of(declared, picked - learned, risk),
    )
    best, looked_at = best_events(pick, known, bound, values="values" in attack.events)
    bounds = {
        "epsilon_low": CountBound(runs, risk, declared.delta),
        "mu_low": CountBound(runs, risk, None),
    }

    def counted(way: int, mine: Observations, theirs: Observations) -> Counted:
        name, test = best[way][1]
        hits, misses = int(np.sum(test(mine))), int(np.sum(test(theirs)))
        low, high = float(bounds["mu_low"].low[hits]), float(bounds["mu_low"].high[misses])
        lows = {name: bound.one(hits, misses) for name, bound in bounds.items()}
        return Counted(DIRECTIONS[way], name, hits, misses, runs, low, high, **lows)

    both = (counted(0, one[picked:], other[picked:]), counted(1, other[picked:], one[picked:]))
    names = [FAMILIES[family] for family in attack.events]
    names += [f"{len(attack.statistics)} own statistics"] if attack.statistics else []
    low, mu = (max(getattr(way, name) for way in both) for name in bounds)
    ceiling, searched = (
        bounds[f"{declared.name}_low"].ceiling,
        f"{looked_at} events: {', '.join(names)}",
    )
    return RunsAudit(
        declared, low, mu, ceiling, attack.confidence, both, attack.runs, raised, searched, seed
    )


#: Runs of each dataset that one worker does at a time: fixed, so that no result depends on the
#: workers.
_CHUNK = 50


def _run_all(
    mechanism: Callable[..., Any],
    datasets: tuple[Any, Any],
    attack: Attack,
    runs: int,
    seed: int,
    until: Deadline,
) -> tuple[Observations, Observations]:
    """``runs`` observations of each dataset, each run with a generator of its own. Raises
    OutOfTime.
    """
    chunks = [(start, min(start + _CHUNK, runs)) for start in range(0, runs, _CHUNK)]
    # the workers of an attack are none of those that processes may start
    once = partial(_run, mechanism, datasets, dataclasses.replace(attack, workers=1), seed, until)
    pairs = [pair for part in run_tasks(once, chunks, workers=attack.workers) for pair in part]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _run(
    mechanism: Callable[..., Any],
    datasets: tuple[Any, Any],
    attack: Attack,
    seed: int,
    until: Deadline,
    start: int,
    stop: int,
) -> list[Observations]:
    """Runs ``start`` to ``stop`` on the first and the second dataset, in turns. Raises
    OutOfTime.
    """

    def once(which: int, run: int) -> Any:
        until.check()
        settings = (np.random.default_rng([seed, which, run]),) if attack.takes_rng else ()
        try:
            output = mechanism(datasets[which], *settings)
        except Exception as raised:
            return of_exception(raised)
        own = {name: float(statistic(output)) for name, statistic in attack.statistics.items()}
        return dataclasses.replace(of_output(output), own=own)

    return [(once(0, run), once(1, run)) for run in range(start, stop)]


#: Runs on each dataset of a pair that is screened, and of one that is looked at again.
_SHORT, _LONG = 40, 200
#: Shares of the looks that change one of the best pairs, and that go along a path.
_CHANGED, _PATHS = 0.3, 0.2
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

    Raises what :func:`audit_runs` raises, and DeclarationError where an arm floor leaves no pair.
    """
    search, attack, domain = (
        search or SearchPlan(evaluations=60),
        attack or Attack(),
        universe.domain,
    )

    limit = search.deadline()
    searching = limit.part(_SEARCHING)

    def distance(
        one: Columns, other: Columns, runs: int, rng: np.random.Generator, until: Deadline
    ) -> float:
        """How far runs of both datasets are apart. Raises OutOfTime."""
        seed = int(rng.integers(2**53))
        mine, theirs = _run_all(mechanism, (one, other), attack, runs, seed, until)
        # learned scores would separate the very runs that they learned from
        known = list(scores(mine, theirs, ("tails",)))
        # of much risk: pairs are only put into an order by it
        best, _ = best_events((mine, theirs), known, CountBound.of(declared, runs, risk=0.25))
        gaps = [_separation(score(mine), score(theirs)) for _, score in known]
        # bounds of so few runs are 0 for small shifts, which ranks see, and ranks miss what is rare
        return max(height for height, _ in best) + max(gaps, default=0.0)

    def look(state: State, number: int, room: int) -> Gain:
        """A new pair, a change of one of the best, or where a path is steepest."""
        rng = np.random.default_rng([search.seed, state.spent])
        chance, looks = rng.random(), 0
        known = state.elite("distance", rng) if chance < _CHANGED else None
        pair = next_pair(universe, known, rng)
        # one pair is looked at in any case
        until = searching if state.best else Deadline()
        try:
            if chance > 1 - _PATHS:
                apart = partial(distance, runs=_SHORT, rng=rng, until=until)
                steep, looks = pair.steepest(universe, apart, rng)
                pair = pair if steep is None else steep
            height = distance(*pair.raw(domain), _SHORT, rng, until)
        except OutOfTime:
            return Gain(looks + 1, cut=True)
        return Gain(looks + 1, [({"distance": height}, pair)])

    state = explore(look, search, until=searching)
    # the best of those kept, by more runs: the highest of many short looks is partly luck
    pairs: list[Pairs] = state.pairs("distance")
    heights = list[float]()
    with contextlib.suppress(OutOfTime):
        for rank, pair in enumerate(pairs):
            rng = np.random.default_rng([search.seed, rank, 1])
            heights.append(distance(*pair.raw(domain), _LONG, rng, limit))
    worst = pairs[int(np.argmax(heights))] if heights else pairs[0]
    audit = audit_runs(mechanism, *worst.raw(domain), declared, attack=attack)
    how = {name: getattr(attack, name) for name in ("runs", "confidence", "events", "takes_rng")}
    more: dict[str, Any] = {"search_seed": search.seed, "counts": {"screened": state.spent}}
    return Finding.of("blackbox", worst, domain, audit, mechanism=mechanism, attack=how, **more)


def _separation(one: Array, other: Array) -> float:
    """Distance of two samples by ranks, and by medians where the ranks are apart; 0 without
    values.
    """
    one, other = np.sort(one[~np.isnan(one)]), np.sort(other[~np.isnan(other)])
    if not (one.size and other.size):
        return 0.0
    below = np.searchsorted(other, one, side="left") + np.searchsorted(other, one, side="right")
    ranks = abs(below.mean() / len(other) - 1.0)
    spread = max(float(np.subtract(*np.quantile(part, [0.75, 0.25]))) for part in (one, other))
    gap = abs(float(np.median(one) - np.median(other)))
    return float(2 * ranks + (np.log1p(min(gap / spread, 1e9)) if spread > 0 else 10.0 * (gap > 0)))


def _again(
    pair: Finding, mechanism: Callable[..., Any], declared: Any, attack: Any, **_: Any
) -> Any:
    """By new runs that choose an event of their own."""
    known, attack = pair.facts["audit"], attack or Attack(**pair.facts["attack"])
    declared = declared or Declared(known["epsilon"], known["delta"], known.get("mu"))
    return partial(audit_runs, mechanism, *pair.raw(), declared, attack=attack)


REPLAYS["blackbox"] = _again
