"""Neighbors that a search by runs looks at besides those of every audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dp2erm_cvx.audit.density.pair_makers import KindPair, Maker
from dp2erm_cvx.audit.pair_file import Columns


def opposed(pair: KindPair, bound: float, rng: np.random.Generator) -> KindPair:
    """The outcome of the changed record goes from one end to the other, often within its arm."""
    y, a = pair.y.copy(), pair.a.copy()
    y[:2] = bound * rng.choice([-1.0, 1.0]) * np.array([1.0, -1.0])
    if rng.random() < 0.5:
        a[1] = a[0]
    return replace(pair, a=a, y=y)


def far_record(pair: KindPair, rng: np.random.Generator) -> KindPair:
    """Everybody but the changed record nearer to 0, so that one record is far from all others."""
    X, y = pair.X.copy(), pair.y.copy()
    X[2:] *= 10.0 ** rng.uniform(-4, 0)
    if rng.random() < 0.5:
        y[2:] *= 10.0 ** rng.uniform(-4, 0)
    return replace(pair, X=X, y=y)


def leverages(pair: KindPair, rng: np.random.Generator) -> KindPair:
    """Every kind of records at a distance from 0 of its own, and both of the changed record often alike."""
    X = pair.X * 10.0 ** rng.uniform(-3, 0, size=(len(pair.a), 1))
    if rng.random() < 0.5:
        X[1] = X[0]
    return replace(pair, X=X)


class RecordPath:
    """Datasets of two kinds of records: ``count`` of the second kind, all others of the first.

    Two neighbors on the way move an output at least as much, on average, as its ends do: a threshold that no
    random pair meets lies between two datasets that random draws do meet.
    """

    def __init__(self, drawn: KindPair, maker: Maker, rng: np.random.Generator) -> None:
        X = drawn.X[[0, 1, 0, 1]]
        if rng.random() < 0.5:  # only the arm and the outcome tell them apart
            X[[1, 3]] = X[[0, 2]] = X[0] * (rng.random() < 0.5)
        self._kinds = replace(drawn, X=X, a=drawn.a[[0, 1, 0, 1]], y=drawn.y[[0, 1, 0, 1]])
        self._maker = maker
        counts = [count for count in range(maker.n) if maker.admissible(self.neighbors(count))]
        self.ends = (counts[0], counts[-1] + 1) if counts else None

    def neighbors(self, count: int) -> KindPair:
        """The dataset with ``count`` records of the second kind, and the one with one more."""
        others = np.full(self._maker.n - 1, 2)
        others[:count] = 3
        return replace(self._kinds, others=others)

    def dataset(self, count: int) -> Columns:
        """Records in the units of the data."""
        last = self._maker.n - 1
        pair = self.neighbors(min(count, last)).raw(self._maker.domain)
        return pair[1] if count > last else pair[0]

    def steepest(self, distance: Callable[[Columns, Columns], float]) -> tuple[KindPair | None, int]:
        """The neighbors that are reached by going on in the half that is farther apart; distances taken."""
        if self.ends is None:
            return None, 0
        (low, high), taken = self.ends, 0
        while high - low > 1:
            middle = (low + high) // 2
            center = self.dataset(middle)
            left, right = distance(self.dataset(low), center), distance(center, self.dataset(high))
            low, high = (low, middle) if left > right else (middle, high)
            taken += 2
        return self.neighbors(low), taken


def by_groups(pair: KindPair, groups: list[np.ndarray], rng: np.random.Generator) -> KindPair:
    """Records alike within the group of the changed one, but for a few, and alike within all others."""
    kinds, others = np.arange(2, len(pair.a)), pair.others.copy()
    inside, few, outside, rare = rng.choice(kinds, 4)
    share = float(rng.choice([0.1, 0.5]))
    for rows in groups:
        mine, places = 0 in rows, rows[rows > 0] - 1
        others[places] = inside if mine else outside
        chosen = places[rng.random(len(places)) < share]
        if mine or rng.random() < 0.3:
            others[chosen] = few if mine else rare
    return replace(pair, others=others)
