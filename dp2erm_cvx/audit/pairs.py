"""Neighboring datasets of a few kinds of records: drawn from structured families, and changed a little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.audit.finding import Columns, unscaled
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.universe import Universe

#: Draws without an admissible pair before giving up.
_TRIES = 200


@dataclass(frozen=True, eq=False)
class KindPair:
    """Kinds of records in the units of the universe: scaled covariates X (m, k), a (m,), net outcome y (m,).

    Kind 0 is the changed record before, kind 1 after; ``others`` (n - 1,) are the kinds of the rest, from 2
    on. Only the first of ``n`` records differs.
    """

    X: Array
    a: NDArray[np.int64]
    y: Array
    others: NDArray[np.int64]

    def raw(self, domain: Domain) -> tuple[Columns, Columns]:
        """Both datasets (X, a, y) in the units of the data."""
        X, a, y = unscaled(domain, self.X, self.a, self.y)
        first, second = (np.concatenate([[changed], self.others]) for changed in (0, 1))
        return (X[first], a[first], y[first]), (X[second], a[second], y[second])

    def plain(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {name: value.tolist() for name, value in vars(self).items()}

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> KindPair:
        """Inverse of :meth:`plain`."""
        X, y = (np.array(plain[name], dtype=np.float64) for name in ("X", "y"))
        a, others = (np.array(plain[name], dtype=np.int64) for name in ("a", "others"))
        return cls(X.reshape(len(a), -1), a, y, others)

    def admissible(self, domain: Domain) -> bool:
        """True if both datasets keep the arm floor."""
        treated, floor = int(self.a[self.others].sum()), domain.arm_floor or 0
        n = len(self.others) + 1
        return all(floor <= treated + int(self.a[kind]) <= n - floor for kind in (0, 1))

    def steepest(
        self, universe: Universe, distance: Callable[[Columns, Columns], float], rng: np.random.Generator
    ) -> tuple[KindPair | None, int]:
        """Where datasets of two kinds of records change fastest with their numbers; the distances it took.

        Two neighbors on the way from one kind to the other move an output at least as much, on average, as
        its ends do: a threshold that no random pair meets lies between two datasets that random draws meet.
        Of two halves the search goes on in that whose ends are farther apart.
        """
        X, n, domain = self.X[[0, 1, 0, 1]], universe.n_samples, universe.domain
        if rng.random() < 0.5:  # only the arm and the outcome tell them apart
            X[[1, 3]] = X[[0, 2]] = X[0] * (rng.random() < 0.5)
        kinds = replace(self, X=X, a=self.a[[0, 1, 0, 1]], y=self.y[[0, 1, 0, 1]])

        def neighbors(count: int) -> KindPair:
            """The dataset with ``count`` records of the second kind, and the one with one more."""
            return replace(kinds, others=np.where(np.arange(n - 1) < count, 3, 2))

        def dataset(count: int) -> Columns:
            return neighbors(min(count, n - 1)).raw(domain)[count > n - 1]

        counts = [count for count in range(n) if neighbors(count).admissible(domain)]
        if not counts:
            return None, 0
        low, high, taken = counts[0], counts[-1] + 1, 0
        while high - low > 1:
            middle = (low + high) // 2
            center = dataset(middle)
            left, right = distance(dataset(low), center), distance(center, dataset(high))
            low, high = (low, middle) if left > right else (middle, high)
            taken += 2
        return neighbors(low), taken

    def by_groups(self, groups: list[np.ndarray], rng: np.random.Generator) -> KindPair:
        """Records alike within the group of the changed one, but for a few, and alike within all others."""
        kinds, others = np.arange(2, len(self.a)), self.others.copy()
        inside, few, outside, rare = rng.choice(kinds, 4)
        share = float(rng.choice([0.1, 0.5]))
        for rows in groups:
            mine, places = 0 in rows, rows[rows > 0] - 1
            others[places] = inside if mine else outside
            chosen = places[rng.random(len(places)) < share]
            if mine or rng.random() < 0.3:
                others[chosen] = few if mine else rare
        return replace(self, others=others)


def draw_pair(universe: Universe, rng: np.random.Generator) -> KindPair:
    """A pair of a family chosen at random. Raises DeclarationError where the arm floor leaves none.

    Covariates are in one to four clusters, or all different: on the sphere, on a line, at its ends, at 0, on
    the side of their arm. Arms are random, nearly empty, or separated by a direction. Extreme outcomes follow
    the arm, agree, or alternate; the changed record jumps to its antipode, stays, or leaves 0.
    """
    for _ in range(_TRIES):
        if (pair := _drawn(universe, rng)).admissible(universe.domain):
            return pair
    raise DeclarationError(
        f"arm_floor = {universe.domain.arm_floor}: no pair of {universe.n_samples} records was found"
    )


def extreme_pair(universe: Universe, rng: np.random.Generator) -> KindPair:
    """A pair that often has opposite outcomes of the changed record, or this record far from all others."""
    pair = draw_pair(universe, rng)
    if rng.random() < 0.5:  # from one end to the other, often within its arm
        y, a = pair.y.copy(), pair.a.copy()
        y[:2] = universe.domain.outcome_bound * rng.choice([-1.0, 1.0]) * np.array([1.0, -1.0])
        a[1] = a[0] if rng.random() < 0.5 else a[1]
        pair = replace(pair, a=a, y=y)
    if rng.random() < 0.5:
        return far_record(pair, rng)
    if rng.random() < 0.4:  # every kind at a distance from 0 of its own
        X = pair.X * 10.0 ** rng.uniform(-3, 0, size=(len(pair.a), 1))
        X[1] = X[0] if rng.random() < 0.5 else X[1]
        pair = replace(pair, X=X)
    return pair


def far_record(pair: KindPair, rng: np.random.Generator) -> KindPair:
    """Everybody but the changed record nearer to 0, so that one record is far from all others."""
    X, y = pair.X.copy(), pair.y.copy()
    X[2:] *= 10.0 ** rng.uniform(-4, 0)
    if rng.random() < 0.5:
        y[2:] *= 10.0 ** rng.uniform(-4, 0)
    return replace(pair, X=X, y=y)


def change_pair(universe: Universe, pair: KindPair, rng: np.random.Generator) -> KindPair:
    """A pair nearby: one or two changes, of sizes from 0.001 to 1."""
    for _ in range(_TRIES):
        nearby = pair
        for _ in range(int(rng.integers(1, 3))):
            nearby = _changed(universe, nearby, rng)
        if nearby.admissible(universe.domain):
            return nearby
    return pair


def next_pair(universe: Universe, known: KindPair | None, rng: np.random.Generator) -> KindPair:
    """A new pair, or a change of a known one."""
    return extreme_pair(universe, rng) if known is None else change_pair(universe, known, rng)


def _drawn(universe: Universe, rng: np.random.Generator) -> KindPair:
    n, k = universe.n_samples, universe.n_features
    R, B = universe.domain.features_bound, universe.domain.outcome_bound
    kinds = n - 1 if rng.random() < 0.1 else int(rng.integers(1, min(4, n - 1) + 1))
    m = kinds + 2
    u = _unit(rng.normal(size=(1, k)))[0]
    sign = rng.choice([-1.0, 1.0], size=m)
    a = (rng.random(m) < rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])).astype(np.int64)
    where = (
        _unit(rng.normal(size=(m, k))),
        rng.uniform(-1, 1, size=(m, 1)) * u,
        sign[:, None] * u,
        np.zeros((m, k)),
        (2.0 * a[:, None] - 1) * u,
        np.tile(u, (m, 1)),
    )
    X = R * where[int(rng.integers(len(where)))]
    # the changed record
    X[0] = (X[0], R * u, -R * u, X[-1])[int(rng.integers(4))]
    X[1] = (-X[0], X[0], np.zeros(k), R * u)[int(rng.integers(4))]
    if rng.random() < 0.15:
        a = (X @ u > 0).astype(np.int64)
    a[1] = 1 - a[0] if universe.flips and rng.random() < 0.7 else a[0]
    side = float(rng.choice([-1.0, 1.0]))
    outcomes = (
        side * (2.0 * a - 1),
        np.full(m, side),
        rng.choice([-1.0, 1.0], size=m),
        rng.uniform(-1, 1, size=m),
        side * np.sign(X @ u + 1e-300) * (2.0 * a - 1),
    )
    y = outcomes[int(rng.integers(len(outcomes)))]
    if rng.random() < 0.5:
        y[:2] = rng.choice([-1.0, 1.0], size=2)
    return KindPair(universe.domain.inside(X), a, B * y, rng.integers(2, m, size=n - 1))


def _changed(universe: Universe, pair: KindPair, rng: np.random.Generator) -> KindPair:
    X, a, y, others = pair.X.copy(), pair.a.copy(), pair.y.copy(), pair.others.copy()
    R, B, k, m = universe.domain.features_bound, universe.domain.outcome_bound, X.shape[1], len(a)
    row = int(rng.integers(m)) if rng.random() < 0.5 else int(rng.integers(2))
    size = 10.0 ** rng.uniform(-3, 0)
    move = int(rng.integers(7))
    if move == 0:
        X[row] += R * size * rng.normal(size=k)
    elif move == 1:
        X += R * size * rng.normal(size=X.shape)
    elif move == 2:
        target = int(rng.integers(m))
        places = (R * _unit(X[[row]])[0], np.zeros(k), -X[target], X[target])
        X[row] = places[int(rng.integers(len(places)))]
    elif move == 3:
        a[row] = 1 - a[row]
    elif move == 4:
        y[row] = (B, -B, -y[row], y[row] + B * size * rng.normal())[int(rng.integers(4))]
    elif move == 5:
        some = rng.random(len(others)) < rng.choice([0.1, 0.5])
        others[some] = rng.integers(2, m)
    else:
        y = -y
    if not universe.flips:
        a[1] = a[0]
    return KindPair(universe.domain.inside(X), a, np.clip(y, -B, B), others)


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))
