"""Runs of any mechanism on neighbors against its guarantee: events, and bounds from their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from dp2erm_cvx.audit.finding import DIRECTIONS, Columns, Declared, Finding
from dp2erm_cvx.audit.pairs import next_pair
from dp2erm_cvx.audit.runs import Attack, Observation, Observations, Score, run_all, scores
from dp2erm_cvx.audit.search import Gain, Search, SearchPlan, State
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.mechanism import random_source
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class Counted:
    """An event that was chosen first and then counted in ``runs`` other runs of each dataset.

    P is the law of the output on the dataset named first in ``direction``, Q that on the other. With the
    confidence of the audit P(event) is at least ``low`` and Q(event) at most ``high``, so that epsilon is at
    least ``epsilon_low`` = log((low - delta) / high), or 0, and mu at least ``mu_low`` = Phi^-1(low) -
    Phi^-1(high), or 0.
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
    declared, attack = Declared(epsilon, delta, mu), attack or Attack()
    seed = random_source().getrandbits(53) if attack.seed is None else attack.seed
    one, other = run_all(mechanism, (first, second), attack, attack.runs, seed)
    raised = _raised(one), _raised(other)
    if raised == (attack.runs, attack.runs):
        raise DeclarationError(f"mechanism: every run {one[0].key!s}")
    learned, picked = attack.runs // 4, attack.runs // 2
    risk, runs = (1.0 - attack.confidence) / 4, attack.runs - picked
    choice = _Choice(one[learned:picked], other[learned:picked], _bound_of(declared, picked - learned, risk))
    if "values" in attack.events:
        choice.offer_values()
    for score in scores(one[:learned], other[:learned], attack.events):
        choice.offer_tails(score)
    bounds = {"epsilon_low": CountBound(runs, risk, declared.delta), "mu_low": CountBound(runs, risk, None)}

    def counted(way: int, mine: Observations, theirs: Observations) -> Counted:
        name, test = choice.best[way][1]
        hits, others = int(np.sum(test(mine))), int(np.sum(test(theirs)))
        low, high = float(bounds["mu_low"].low[hits]), float(bounds["mu_low"].high[others])
        lows = {name: bound.of(hits, others) for name, bound in bounds.items()}
        return Counted(DIRECTIONS[way], name, hits, others, runs, low, high, **lows)

    both = (counted(0, one[picked:], other[picked:]), counted(1, other[picked:], one[picked:]))
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


def _bound_of(declared: Declared, runs: int, risk: float) -> CountBound:
    """On the number that is declared."""
    return CountBound(runs, risk, declared.delta if declared.mu is None else None)


#: A set of outputs: in words, and a test of which observations are in it.
_Event = tuple[str, Callable[[Observations], NDArray[np.bool_]]]

#: No output is in it, and nothing follows from counting it.
_NOTHING: _Event = ("no event", lambda observations: np.zeros(len(observations), dtype=bool))


class _Choice:
    """The events with the largest lower bound in the picking runs: one per direction.

    ``best[0]`` is for P = first over Q = second, ``best[1]`` for the opposite: the bound that chose an event
    and the event, which must be counted in other runs than those.
    """

    def __init__(self, first: Observations, second: Observations, bound: CountBound) -> None:
        self.looked_at = 0
        self._pick = (first, second)
        self._bound = bound
        self.best: list[tuple[float, _Event]] = [(0.0, _NOTHING), (0.0, _NOTHING)]

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

        def over(i: int) -> _Event:
            return f"{score.name} > {cuts[i]:.9g}", lambda them: score(them) > cuts[i]

        def up_to(i: int) -> _Event:
            return f"{score.name} <= {cuts[i]:.9g}", lambda them: score(them) <= cuts[i]

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

        def make(i: int) -> _Event:
            key = keys[i]
            return describe(key), lambda them: np.array([key in read(one) for one in them], dtype=bool)

        mine, theirs = (np.array([count[key] for key in keys], dtype=np.float64) for count in counts)
        self._offer(mine, theirs, make)

    def _offer(self, mine: Array, theirs: Array, make: Callable[[int], _Event]) -> None:
        self.looked_at += len(mine)
        for way, lows in enumerate((self._bound(mine, theirs), self._bound(theirs, mine))):
            top = int(np.argmax(lows))
            if lows[top] > self.best[way][0]:
                self.best[way] = (float(lows[top]), make(top))


def _numbers(observation: Observation) -> frozenset[Hashable]:
    values = map(float.hex, observation.numbers.tolist())
    return frozenset(zip(observation.names, values, strict=True))


#: Runs on each dataset of a pair that is screened, and of one that is looked at again.
_SHORT, _LONG = 40, 200
#: Shares of the looks that change one of the best pairs, and that go along a path.
_CHANGED, _PATHS = 0.3, 0.2
#: Risk of the bounds of a few runs: pairs are only put into an order by them.
_RISK = 0.25


def search_blackbox(
    mechanism: Callable[..., Any],
    universe: Universe,
    declared: Declared,
    *,
    attack: Attack | None = None,
    search: SearchPlan | None = None,
) -> Finding:
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
    search, attack, domain = search or SearchPlan(evaluations=60), attack or Attack(), universe.domain

    def distance(one: Columns, other: Columns, runs: int, rng: np.random.Generator) -> float:
        mine, theirs = run_all(mechanism, (one, other), attack, runs, int(rng.integers(2**53)))
        choice, gap = _Choice(mine, theirs, _bound_of(declared, runs, _RISK)), 0.0
        choice.offer_values()
        # learned scores would separate the very runs that they learned from
        for score in scores(mine, theirs, ("tails",)):
            choice.offer_tails(score)
            gap = max(gap, _separation(score(mine), score(theirs)))
        # bounds of so few runs are 0 for small shifts, which ranks see, and ranks miss what is rare
        return max(height for height, _ in choice.best) + gap

    def look(state: State, number: int, room: int) -> Gain:
        """A new pair, a change of one of the best, or where a path is steepest."""
        rng = np.random.default_rng([search.seed, state.spent])
        chance, looks = rng.random(), 0
        known = state.elite("distance", rng) if chance < _CHANGED else None
        pair = next_pair(universe, known, rng)
        if chance > 1 - _PATHS:
            steep, looks = pair.steepest(universe, lambda one, other: distance(one, other, _SHORT, rng), rng)
            pair = pair if steep is None else steep
        first, second = pair.raw(domain)
        return Gain(looks + 1, [({"distance": distance(first, second, _SHORT, rng)}, pair)])

    state = Search(look).run(search)
    # the best of those kept, by more runs: the highest of many short looks is partly luck
    heights, pairs = [], [pair.raw(domain) for pair in state.pairs("distance")]
    for rank, (first, second) in enumerate(pairs):
        heights.append(distance(first, second, _LONG, np.random.default_rng([search.seed, rank, 1])))
    first, second = pairs[int(np.argmax(heights))]
    audit = audit_blackbox(mechanism, first, second, **asdict(declared), attack=attack)
    facts = {
        "mechanism": getattr(mechanism, "__name__", type(mechanism).__name__),
        "violated": audit.exceeds,
        "attack": {name: getattr(attack, name) for name in ("runs", "confidence", "events", "takes_rng")},
        "audit": asdict(audit),
        "search_seed": search.seed,
        "counts": {"screened": state.spent},
    }
    return Finding.worst("blackbox", domain, (first, second), facts, audit)


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


def replay_blackbox(
    path: str | Path, mechanism: Callable[..., Any], *, attack: Attack | None = None
) -> BlackBoxAudit:
    """Audit ``mechanism`` on a pair that a search saved, by new runs that choose an event of their own.

    ``attack`` overrides the saved one. Raises DataError for files without a pair of a black-box audit, and
    what :func:`audit_blackbox` raises.
    """
    pair = Finding.load(path, "blackbox")
    try:
        saved, known = Attack(**pair.facts["attack"]), pair.facts["audit"]
        declared = {"epsilon": known["epsilon"], "delta": known["delta"], "mu": known.get("mu")}
    except (KeyError, TypeError) as wrong:
        raise DataError(f"{path}: no finding of a black-box audit ({wrong})") from None
    return audit_blackbox(mechanism, *pair.raw(), attack=saved if attack is None else attack, **declared)
