"""Events that may separate two datasets, which of them to count, and what the counts say of epsilon or mu."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from dp2erm_cvx.audit.finding import Declared
from dp2erm_cvx.audit.runs import Observation, Observations, Score
from dp2erm_cvx.domain import Array

#: A monotone function of probabilities.
_Of = Callable[[Array], Array]
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

    With probability at least 1 - 2 ``risk`` the bound is right: the probability P of the event on one
    dataset and Q on the other each get ``risk``. At least 0, and increasing in P and decreasing in Q, as
    ``above(P) - below(Q)``.
    """

    def __init__(self, runs: int, risk: float, above: _Of, below: _Of) -> None:
        counts = np.arange(runs + 1, dtype=np.float64)
        self.runs = runs
        self.low, self.high = lower(counts, runs, risk), upper(counts, runs, risk)
        with np.errstate(divide="ignore"):
            self._above, self._below = above(self.low), below(self.high)

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


class EpsilonBound(CountBound):
    """On epsilon at ``delta``: P <= exp(epsilon) Q + delta, hence epsilon >= log((P - delta) / Q)."""

    def __init__(self, runs: int, delta: float, risk: float) -> None:
        super().__init__(runs, risk, lambda low: np.log(np.maximum(low - delta, 0.0)), np.log)


class MuBound(CountBound):
    """On mu: P <= Phi(Phi^-1(Q) + mu), hence mu >= Phi^-1(P) - Phi^-1(Q), Phi the normal distribution."""

    def __init__(self, runs: int, risk: float) -> None:
        super().__init__(runs, risk, ndtri, ndtri)


def bound_of(declared: Declared, runs: int, risk: float) -> CountBound:
    """Of the number that is declared."""
    return EpsilonBound(runs, declared.delta, risk) if declared.mu is None else MuBound(runs, risk)


#: What of an observation others may share.
_Read = Callable[[Observation], frozenset[Hashable]]


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
    def heights(self) -> tuple[float, float]:
        """The bounds that chose them, which the same runs gave: they order pairs and prove nothing."""
        return self._best[0][0], self._best[1][0]

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
        self._offer_shared(_marks, str)
        self._offer_shared(_numbers, lambda key: f"{key[0]} == {float.fromhex(key[1])!r}", fewest=2)

    def _offer_shared(self, read: _Read, describe: Callable[..., str], fewest: int = 1) -> None:
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
        for way, scores in enumerate((self._bound(mine, theirs), self._bound(theirs, mine))):
            top = int(np.argmax(scores))
            if scores[top] > self._best[way][0]:
                self._best[way] = (float(scores[top]), make(top))


def _marks(observation: Observation) -> frozenset[Hashable]:
    return frozenset(observation.marks)


def _numbers(observation: Observation) -> frozenset[Hashable]:
    values = map(float.hex, observation.numbers.tolist())
    return frozenset(zip(observation.names, values, strict=True))
