"""Pairs of neighbors in the order of how far a few runs on both sides are apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dp2erm_cvx.audit.blackbox.attack import Attack
from dp2erm_cvx.audit.blackbox.candidates import RecordPath, far_record, opposed
from dp2erm_cvx.audit.blackbox.events import Choice, CountBound, bound_of
from dp2erm_cvx.audit.blackbox.observation import Runner, run_all
from dp2erm_cvx.audit.blackbox.scores import scores
from dp2erm_cvx.audit.declared import Declared
from dp2erm_cvx.audit.density.pair_makers import KindPair, Maker
from dp2erm_cvx.audit.pair_file import Columns
from dp2erm_cvx.domain import Array

#: Runs on each dataset of a pair that is screened, and of one that is looked at again.
_SHORT, _LONG = 40, 200
#: Shares of the steps that change one of the best pairs, and that go along a path; pairs that are kept.
_CHANGED, _PATHS, _KEPT = 0.3, 0.2, 6
#: Risk of the bounds of a few runs: pairs are only put into an order by them.
_RISK = 0.25


class Screening:
    """The pairs that were met, best first, by how far a few runs on both sides are apart."""

    def __init__(
        self, mechanism: Callable[..., Any], maker: Maker, attack: Attack, declared: Declared
    ) -> None:
        self.mechanism, self.maker, self.attack = mechanism, maker, attack
        self._short, self._long = (bound_of(declared, runs, _RISK) for runs in (_SHORT, _LONG))
        self.best: list[tuple[float, KindPair]] = []

    def step(self, rng: np.random.Generator) -> int:
        """Meet a new pair, a change of one of the best, or where a path is steepest; pairs looked at."""
        chance, looks = rng.random(), 0
        if self.best and chance < _CHANGED:
            rank = min(int(rng.geometric(0.5)), len(self.best)) - 1
            pair = self.maker.change(self.best[rank][1], rng)
        else:
            pair = self._drawn(rng)
        if chance > 1 - _PATHS:
            path = RecordPath(pair, self.maker, rng)
            steepest, looks = path.steepest(lambda *ends: self._distance(ends, self._short, rng))
            pair = pair if steepest is None else steepest
        self.best.append((self._distance(pair.raw(self.maker.domain), self._short, rng), pair))
        self.best.sort(key=lambda one: -one[0])
        del self.best[_KEPT:]
        return looks + 1

    def _drawn(self, rng: np.random.Generator) -> KindPair:
        drawn = self.maker.draw(rng)
        if rng.random() < 0.5:
            drawn = opposed(drawn, self.maker.domain.outcome_bound, rng)
        return far_record(drawn, rng) if rng.random() < 0.5 else drawn

    def worst(self, seed: int) -> KindPair:
        """The best of those kept, by more runs: the highest of many short looks is partly luck."""
        heights = [
            self._distance(pair.raw(self.maker.domain), self._long, np.random.default_rng([seed, rank, 1]))
            for rank, (_, pair) in enumerate(self.best)
        ]
        return self.best[int(np.argmax(heights))][1]

    def _distance(
        self, datasets: tuple[Columns, Columns], bound: CountBound, rng: np.random.Generator
    ) -> float:
        seed = int(rng.integers(2**53))
        runner = Runner(self.mechanism, datasets, self.attack.takes_rng, seed, self.attack.statistics)
        one, other = run_all(runner, bound.runs, self.attack.workers)
        choice = Choice(one, other, bound)
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
