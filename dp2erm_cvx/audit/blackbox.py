"""Runs of any mechanism on two neighbors against its guarantee: events, and bounds from their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from dp2erm_cvx.audit.finding import Declared, Direction
from dp2erm_cvx.audit.runs import FAMILIES, Observation, Observations, Runner, Score, run_all, scores
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.mechanism import random_source
from dp2erm_cvx.parallel import whole_workers
from dp2erm_cvx.public import public_fraction, whole_number

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
    risk, runs = (1.0 - attack.confidence) / 4, attack.runs - picked
    choice = Choice(one[learned:picked], other[learned:picked], bound_of(declared, picked - learned, risk))
    if "values" in attack.events:
        choice.offer_values()
    for score in scores(one[:learned], other[:learned], attack.events):
        choice.offer_tails(score)
    bounds = {"epsilon_low": CountBound(runs, risk, declared.delta), "mu_low": CountBound(runs, risk, None)}

    def counted(way: Direction, event: Event, mine: Observations, theirs: Observations) -> Counted:
        hits, others = event.count(mine), event.count(theirs)
        low, high = float(bounds["mu_low"].low[hits]), float(bounds["mu_low"].high[others])
        lows = {name: bound.of(hits, others) for name, bound in bounds.items()}
        return Counted(way, event.description, hits, others, runs, low, high, **lows)

    both = (
        counted(Direction.FIRST, choice.events[0], one[picked:], other[picked:]),
        counted(Direction.SECOND, choice.events[1], other[picked:], one[picked:]),
    )
    return BlackBoxAudit(
        epsilon=declared.epsilon,
        delta=declared.delta,
        mu=declared.mu,
        epsilon_low=max(way.epsilon_low for way in both),
        mu_low=max(way.mu_low for way in both),
        ceiling=bounds["epsilon_low" if declared.mu is None else "mu_low"].ceiling,
        confidence=attack.confidence,
        counted=both,
        runs=attack.runs,
        raised=raised,
        looked_at=choice.looked_at,
        searched=f"{choice.looked_at} events: {', '.join(attack.names)}",
        seed=seed,
    )


def _raised(observations: Observations) -> int:
    return sum("the mechanism raised" in observation.marks for observation in observations)


#: Larger than the relative error of the inverse of the incomplete beta function.
_SLACK = 1e-10


def lower(hits: Array, runs: int, risk: float) -> Array:
    """A bound below the probability, wrong with probability at most ``risk``; hits are counts of ``runs``."""
    inner = np.maximum(hits, 1)
    bound = betaincinv(inner, runs - inner + 1, risk) * (1 - _SLACK)
    return np.where(hits > 0, bound, 0.0)


def upper(hits: Array, runs: int, risk: float) -> Array:
    """A bound above the probability, wrong with probability at most ``risk``."""
    # from the other end, where a risk near 0 keeps its digits
    return np.minimum(1.0, (1.0 - lower(runs - hits, runs, risk)) * (1 + _SLACK))


class CountBound:
    """Lower confidence bounds on a parameter of privacy from counts of one event in ``runs`` runs a dataset.

    On epsilon at ``delta``: P <= exp(epsilon) Q + delta, hence epsilon >= log((P - delta) / Q). Without a
    delta on mu: P <= Phi(Phi^-1(Q) + mu), hence mu >= Phi^-1(P) - Phi^-1(Q), Phi the normal distribution.

    With probability at least 1 - 2 ``risk`` the bound is right: the probability P of the event on one
    dataset and Q on the other each get ``risk``. At least 0, and increasing in P and decreasing in Q.
    """

    def __init__(self, runs: int, risk: float, delta: float | None) -> None:
        counts = np.arange(runs + 1, dtype=np.float64)
        self.runs = runs
        self.low, self.high = lower(counts, runs, risk), upper(counts, runs, risk)
        with np.errstate(divide="ignore"):
            if delta is None:
                self._above, self._below = ndtri(self.low), ndtri(self.high)
            else:
                self._above, self._below = np.log(np.maximum(self.low - delta, 0.0)), np.log(self.high)

    def __call__(self, mine: Array, theirs: Array) -> Array:
        """The bound for counts ``mine`` of the event under P and ``theirs`` under Q, whole numbers."""
        # never counted under P: -inf; perhaps certain under Q: +inf, at worst; a bound on Q is never 0
        bound = self._above[mine.astype(np.intp)] - self._below[theirs.astype(np.intp)]
        return np.maximum(bound * (1 - _SLACK), 0.0)

    def of(self, hits: int, other_hits: int) -> float:
        """The bound for one pair of counts."""
        return float(self(np.array([hits]), np.array([other_hits]))[0])

    @property
    def ceiling(self) -> float:
        """The most that any counts of this many runs give: always under P, never under Q."""
        return self.of(self.runs, 0)


def bound_of(declared: Declared, runs: int, risk: float) -> CountBound:
    """On the number that is declared."""
    return CountBound(runs, risk, declared.delta if declared.mu is None else None)


@dataclass(frozen=True)
class Event:
    """A set of outputs: ``description`` in words, and ``test`` giving which observations are in it."""

    description: str
    test: Callable[[Observations], NDArray[np.bool_]]

    def count(self, observations: Observations) -> int:
        """How many of the observations are in it."""
        return int(np.sum(self.test(observations)))


#: No output is in it, and nothing follows from counting it.
NOTHING = Event("no event", lambda observations: np.zeros(len(observations), dtype=bool))


class Choice:
    """The events with the largest lower bound in the picking runs: one per direction.

    ``events[0]`` is for P = first over Q = second, ``events[1]`` for the opposite. Once chosen, they must be
    counted in other runs than those.
    """

    def __init__(self, first: Observations, second: Observations, bound: CountBound) -> None:
        self.looked_at = 0
        self._pick = (first, second)
        self._bound = bound
        self._best: list[tuple[float, Event]] = [(0.0, NOTHING), (0.0, NOTHING)]

    @property
    def events(self) -> tuple[Event, Event]:
        """One per direction."""
        return self._best[0][1], self._best[1][1]

    @property
    def height(self) -> float:
        """The larger bound that chose one, which the same runs gave: it orders pairs and proves nothing."""
        return max(self._best[0][0], self._best[1][0])

    def offer_tails(self, score: Score) -> None:
        """Both tails of ``score``, from every threshold that separates picking runs."""
        values = [np.sort(part[~np.isnan(part)]) for part in map(score, self._pick)]
        pooled = np.unique(np.concatenate(values))
        if not pooled.size:
            return
        # a score may have no value: "above all" is an event, too
        cuts = np.concatenate([[np.nextafter(pooled[0], -np.inf)], pooled[:-1] / 2 + pooled[1:] / 2])
        below = [np.searchsorted(part, cuts, side="right").astype(np.float64) for part in values]
        above = [len(part) - count for part, count in zip(values, below, strict=True)]

        def over(i: int) -> Event:
            return Event(f"{score.name} > {cuts[i]:.9g}", lambda them: score(them) > cuts[i])

        def up_to(i: int) -> Event:
            return Event(f"{score.name} <= {cuts[i]:.9g}", lambda them: score(them) <= cuts[i])

        self._offer(above[0], above[1], over)
        self._offer(below[0], below[1], up_to)

    def offer_values(self) -> None:
        """Every mark of an observation, and every number that came more than once."""
        self._offer_shared(lambda one: one.marks, str)
        self._offer_shared(_numbers, lambda key: f"{key[0]} == {float.fromhex(key[1])!r}", fewest=2)

    def _offer_shared(
        self,
        read: Callable[[Observation], frozenset[Hashable]],
        describe: Callable[..., str],
        fewest: int = 1,
    ) -> None:
        counts = [Counter(key for observation in part for key in read(observation)) for part in self._pick]
        known = counts[0].keys() | counts[1].keys()
        # sorted, because the order of a set changes from process to process
        keys = sorted((key for key in known if counts[0][key] + counts[1][key] >= fewest), key=repr)
        if not keys:
            return

        def make(i: int) -> Event:
            key = keys[i]
            return Event(describe(key), lambda them: np.array([key in read(one) for one in them], dtype=bool))

        mine, theirs = (np.array([count[key] for key in keys], dtype=np.float64) for count in counts)
        self._offer(mine, theirs, make)

    def _offer(self, mine: Array, theirs: Array, make: Callable[[int], Event]) -> None:
        self.looked_at += len(mine)
        for way, lows in enumerate((self._bound(mine, theirs), self._bound(theirs, mine))):
            top = int(np.argmax(lows))
            if lows[top] > self._best[way][0]:
                self._best[way] = (float(lows[top]), make(top))


def _numbers(observation: Observation) -> frozenset[Hashable]:
    values = map(float.hex, observation.numbers.tolist())
    return frozenset(zip(observation.names, values, strict=True))
