"""Pairs of neighbors in the order of how far a few runs on both sides are apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dp2erm_cvx.audit.blackbox.attack import Attack
from dp2erm_cvx.audit.blackbox.events import Choice, EpsilonBound
from dp2erm_cvx.audit.blackbox.observation import Runner, run_all
from dp2erm_cvx.audit.blackbox.scores import scores
from dp2erm_cvx.audit.density.pair_makers import KindPair, Maker
from dp2erm_cvx.domain import Array

#: Runs on each dataset of a pair that is screened, and of one that is looked at again.
_SHORT, _LONG = 40, 200
#: Share of the screened pairs that are new ones, pairs that are kept and refined, and those looked at again.
_FRESH, _KEPT = 0.6, 6
#: Risk of the bounds of a few runs: pairs are only put into an order by them.
_RISK = 0.25


class Screening:
    """The pairs that were met, best first, by how far a few runs on both sides are apart."""

    def __init__(self, mechanism: Callable[..., Any], maker: Maker, attack: Attack, delta: float) -> None:
        self.mechanism, self.maker, self.attack = mechanism, maker, attack
        self._short, self._long = (EpsilonBound(runs, delta, _RISK) for runs in (_SHORT, _LONG))
        self.best: list[tuple[float, KindPair]] = []

    def next_pair(self, rng: np.random.Generator) -> KindPair:
        """A new pair, or a change of one of the best."""
        if self.best and rng.random() >= _FRESH:
            rank = min(int(rng.geometric(0.5)), len(self.best)) - 1
            return self.maker.change(self.best[rank][1], rng)
        drawn = self.maker.draw(rng)
        if rng.random() < 0.5:
            drawn = _opposed(drawn, self.maker.domain.outcome_bound, rng)
        return _apart(drawn, rng) if rng.random() < 0.5 else drawn

    def meet(self, pair: KindPair, rng: np.random.Generator) -> None:
        """Look at a pair, and keep it where it is among the best."""
        self.best.append((self._height(pair, self._short, rng), pair))
        self.best.sort(key=lambda one: -one[0])
        del self.best[_KEPT:]

    def worst(self, seed: int) -> KindPair:
        """The best of those kept, by more runs: the highest of many short looks is partly luck."""
        heights = [
            self._height(pair, self._long, np.random.default_rng([seed, rank, 1]))
            for rank, (_, pair) in enumerate(self.best)
        ]
        return self.best[int(np.argmax(heights))][1]

    def _height(self, pair: KindPair, bound: EpsilonBound, rng: np.random.Generator) -> float:
        attack, datasets = self.attack, pair.raw(self.maker.domain)
        seed = int(rng.integers(2**53))
        runner = Runner(self.mechanism, datasets, attack.takes_rng, seed, attack.statistics)
        one, other = run_all(runner, bound.runs, attack.workers)
        choice = Choice(one, other, bound)
        choice.offer_values()
        ranks = 0.0
        # learned scores would separate the very runs that they learned from
        for score in scores(one, other, ("tails",)):
            choice.offer_tails(score)
            ranks = max(ranks, _rank_distance(score(one), score(other)))
        # bounds of so few runs are 0 for small shifts, which ranks see, and ranks miss what is rare
        return max(choice.heights) + 2 * ranks


def _rank_distance(one: Array, other: Array) -> float:
    """``|2 P(one > other) - 1|`` of two samples, 0 where either has no values."""
    one, other = one[~np.isnan(one)], np.sort(other[~np.isnan(other)])
    if not (one.size and other.size):
        return 0.0
    below = np.searchsorted(other, one, side="left") + np.searchsorted(other, one, side="right")
    return float(abs(below.mean() / len(other) - 1.0))


def _opposed(pair: KindPair, bound: float, rng: np.random.Generator) -> KindPair:
    """The outcome of the changed record goes from one end to the other, often within its arm."""
    y, a = pair.y.copy(), pair.a.copy()
    y[:2] = bound * rng.choice([-1.0, 1.0]) * np.array([1.0, -1.0])
    if rng.random() < 0.5:
        a[1] = a[0]
    return replace(pair, a=a, y=y)


def _apart(pair: KindPair, rng: np.random.Generator) -> KindPair:
    """Everybody but the changed record nearer to 0, so that one record is far from all others."""
    X, y = pair.X.copy(), pair.y.copy()
    X[2:] *= 10.0 ** rng.uniform(-4, 0)
    if rng.random() < 0.5:
        y[2:] *= 10.0 ** rng.uniform(-4, 0)
    return replace(pair, X=X, y=y)
