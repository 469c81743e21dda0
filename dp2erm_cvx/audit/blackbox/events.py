"""Events that may tell two datasets apart, and which of them to count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.audit.blackbox.binomial import EpsilonBound
from dp2erm_cvx.audit.blackbox.outcome import Outcome
from dp2erm_cvx.audit.blackbox.scores import Score
from dp2erm_cvx.domain import Array

Outcomes = Sequence[Outcome]


@dataclass(frozen=True)
class Event:
    """A set of outputs: ``description`` in words, and ``test`` giving which of some outcomes are in it."""

    description: str
    test: Callable[[Outcomes], NDArray[np.bool_]]

    def count(self, outcomes: Outcomes) -> int:
        """How many of the outcomes are in it."""
        return int(np.sum(self.test(outcomes)))


#: No output is in it, and nothing follows from counting it.
NOTHING = Event("no event", lambda outcomes: np.zeros(len(outcomes), dtype=bool))


class Choice:
    """The events with the largest lower bound on epsilon in the picking runs: one per direction.

    ``events[0]`` is for P = first over Q = second, ``events[1]`` for the opposite. Once chosen, they must be
    counted in other runs than those.
    """

    def __init__(self, first: Outcomes, second: Outcomes, bound: EpsilonBound) -> None:
        self.looked_at = 0
        self._pick = (first, second)
        self._bound = bound
        self._best: list[tuple[float, Event]] = [(0.0, NOTHING), (0.0, NOTHING)]

    @property
    def events(self) -> tuple[Event, Event]:
        """One per direction."""
        return self._best[0][1], self._best[1][1]

    def offer_tails(self, score: Score) -> None:
        """Both tails of ``score``, from every threshold that separates picking runs."""
        values = [np.sort(found[~np.isnan(found)]) for found in map(score, self._pick)]
        pooled = np.unique(np.concatenate(values))
        if not pooled.size:
            return
        # a score may have no value: "above all" is an event, too
        cuts = np.concatenate([[np.nextafter(pooled[0], -np.inf)], pooled[:-1] / 2 + pooled[1:] / 2])
        below = [np.searchsorted(part, cuts, side="right").astype(np.float64) for part in values]
        above = [len(part) - count for part, count in zip(values, below, strict=True)]
        name = score.name
        self._offer(
            above[0], above[1], lambda i: Event(f"{name} > {cuts[i]:.9g}", lambda them: score(them) > cuts[i])
        )
        self._offer(
            below[0],
            below[1],
            lambda i: Event(f"{name} <= {cuts[i]:.9g}", lambda them: score(them) <= cuts[i]),
        )

    def offer_values(self) -> None:
        """Every mark of an outcome, and every number that came more than once."""
        self._offer_shared(_marks, str)
        self._offer_shared(_numbers, lambda key: f"{key[0]} == {float.fromhex(key[1])!r}", fewest=2)

    def _offer_shared(
        self,
        read: Callable[[Outcome], frozenset[Hashable]],
        tell: Callable[..., str],
        fewest: int = 1,
    ) -> None:
        counts = [Counter(key for outcome in part for key in read(outcome)) for part in self._pick]
        known = counts[0].keys() | counts[1].keys()
        # sorted, because the order of a set changes from process to process
        keys = sorted((key for key in known if counts[0][key] + counts[1][key] >= fewest), key=repr)
        if not keys:
            return

        def make(i: int) -> Event:
            return Event(
                tell(keys[i]), lambda them: np.array([keys[i] in read(one) for one in them], dtype=bool)
            )

        mine, theirs = (np.array([count[key] for key in keys], dtype=np.float64) for count in counts)
        self._offer(mine, theirs, make)

    def _offer(self, mine: Array, theirs: Array, make: Callable[[int], Event]) -> None:
        self.looked_at += len(mine)
        for way, scores in enumerate((self._bound(mine, theirs), self._bound(theirs, mine))):
            top = int(np.argmax(scores))
            if scores[top] > self._best[way][0]:
                self._best[way] = (float(scores[top]), make(top))


def _marks(outcome: Outcome) -> frozenset[Hashable]:
    return frozenset(outcome.marks)


def _numbers(outcome: Outcome) -> frozenset[Hashable]:
    return frozenset(
        (name, value.hex()) for name, value in zip(outcome.names, outcome.numbers.tolist(), strict=True)
    )
