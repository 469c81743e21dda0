"""Neighboring datasets of a few kinds of records: drawn from structured families, and changed a
little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.finding import Columns, unscaled
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError

#: Common kinds of records of the pairs that are drawn by the hundred.
CLUSTERS = 4
#: Draws without an admissible pair before giving up.
_TRIES = 200

#: Records of a person at most, where persons with several are units.
_MOST = 3


def records_at(space: Space, X: Array, a: NDArray[np.int64], y: Array | None = None) -> Records:
    """Records with scaled covariates X (n, k), treatments a (n,) and net outcomes y (n,), default
    0.
    """
    if space.intercept:
        X = np.column_stack([np.full(len(X), space.intercept), X])
    return Records(X, a, np.zeros(len(a)) if y is None else y, space)


@dataclass(frozen=True, eq=False)
class Pairs:
    """b pairs of neighbors by the kinds of their records, in the units of the universe.

    ``X`` (b, m, k) are scaled covariates, ``a`` (b, m) treatments and ``y`` (b, m) net outcomes: of
    the changed record before and after, then of the common kinds. ``count`` (b, m - 2) says how
    many records of each common kind there are, n - 1 in all, some 0; NaN marks a pair outside of
    the universe. A single pair may have an ``order`` (n - 1,) of its common records, by their kinds
    from 2 on. Where persons with several records are units, n is their number, and a person of kind
    j has the records of all kinds in ``lists[j]``.
    """

    X: Array
    a: NDArray[np.int64]
    y: Array
    count: Array
    order: NDArray[np.int64] | None = None
    lists: Sequence[Sequence[int]] | None = None

    @classmethod
    def single(
        cls,
        X: Array,
        a: NDArray[np.int64],
        y: Array,
        order: NDArray[np.int64],
        lists: Sequence[Sequence[int]] | None = None,
    ) -> Pairs:
        """One pair of kinds X (m, k), a (m,), y (m,)."""
        count = np.bincount(order, minlength=len(a))[2:].astype(np.float64)
        return cls(X[None], a[None], y[None], count[None], order, lists)

    def __len__(self) -> int:
        return len(self.X)

    def take(self, index: NDArray[np.int64] | slice) -> Pairs:
        """The pairs chosen."""
        return Pairs(self.X[index], self.a[index], self.y[index], self.count[index])

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """All pairs of all parts, of as many kinds each."""
        columns = zip(*((part.X, part.a, part.y, part.count) for part in parts), strict=True)
        X, a, y, count = map(np.concatenate, columns)
        return cls(X, a, y, count)

    def kinds(self) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
        """Copies of X (m, k), a (m,), y (m,) and the order (n - 1,) of a single pair."""
        order = self.order
        if order is None:
            order = 2 + np.repeat(np.arange(self.count.shape[1]), self.count[0].astype(np.int64))
        return self.X[0].copy(), self.a[0].copy(), self.y[0].copy(), order.copy()

    def distinct(self, after: bool) -> tuple[Array, NDArray[np.int64], Array]:
        """Rows (b, m - 1, k), arms and counts (b, m - 1) of one of the datasets, the changed record
        last.
        """
        rows = [*range(2, self.a.shape[1]), int(after)]
        return self.X[:, rows], self.a[:, rows], np.column_stack([self.count, np.ones(len(self))])

    def datasets(self) -> tuple[Columns, Columns]:
        """All records of a single pair before and after, scaled; the first one, or first person,
        differs.
        """
        X, a, y, order = self.kinds()
        ends = list[Columns]()
        for rows in (np.append(changed, order) for changed in (0, 1)):
            person: Columns = ()
            if self.lists is not None:
                person = (
                    np.repeat(np.arange(len(rows)), [len(self.lists[kind]) for kind in rows]),
                )
                rows = np.array([row for kind in rows for row in self.lists[kind]], dtype=np.int64)
            ends.append((X[rows], a[rows], y[rows], *person))
        return ends[0], ends[1]

    def raw(self, domain: Domain) -> tuple[Columns, Columns]:
        """Both datasets in the units of the data."""
        first, second = ((*unscaled(domain, *end[:3]), *end[3:]) for end in self.datasets())
        return first, second

    def records(self, space: Space) -> tuple[Records, Records]:
        """Both datasets as records of the space."""
        first, second = (records_at(space, *columns) for columns in self.datasets())
        return first, second

    def admissible(self, space: Space) -> bool:
        """True if both datasets of a single pair keep the arm floor."""
        treated, n = int(self.count[0] @ self.a[0, 2:]), int(self.count[0].sum()) + 1
        floor = space.arm_floor or 0
        return all(floor <= treated + int(arm) <= n - floor for arm in self.a[0, :2])

    def steepest(
        self,
        universe: Universe,
        distance: Callable[[Columns, Columns], float],
        rng: np.random.Generator,
    ) -> tuple[Pairs | None, int]:
        """Where datasets of two kinds of records change fastest with their numbers; the distances
        it took.

        A threshold that no random pair meets lies between two datasets that random draws meet. Of
        two halves the search goes on in that whose ends are farther apart.
        """
        n, domain, twice = universe.n_samples, universe.domain, [0, 1, 0, 1]
        X, a, y = self.X[0, twice], self.a[0, twice], self.y[0, twice]
        lists = None if self.lists is None else [[kind] * _MOST for kind in range(4)]
        if rng.random() < 0.5:  # only the arm and the outcome tell them apart
            X[[1, 3]] = X[[0, 2]] = X[0] * (rng.random() < 0.5)

        def neighbors(count: int) -> Pairs:
            """The dataset with ``count`` records of the second kind, and the one with one more."""
            return Pairs.single(X, a, y, np.where(np.arange(n - 1) < count, 3, 2), lists)

        counts = [count for count in range(n) if neighbors(count).admissible(domain.space)]
        if not counts:
            return None, 0
        low, high, taken = counts[0], counts[-1] + 1, 0
        while high - low > 1:
            middle = (low + high) // 2
            ends = [
                neighbors(min(count, n - 1)).raw(domain)[count > n - 1]
                for count in (low, middle, high)
            ]
            nearer = distance(ends[0], ends[1]) > distance(ends[1], ends[2])
            low, high, taken = (low, middle, taken + 2) if nearer else (middle, high, taken + 2)
        return neighbors(low), taken

    def by_groups(self, groups: list[NDArray[np.int64]], rng: np.random.Generator) -> Pairs:
        """Records alike within the group of the changed one, but for a few, and alike within all
        others.
        """
        X, a, y, order = self.kinds()
        inside, few, outside, rare = rng.choice(np.arange(2, len(a)), 4)
        share = float(rng.choice([0.1, 0.5]))
        for rows in groups:
            mine, places = 0 in rows, rows[rows > 0] - 1
            order[places] = inside if mine else outside
            chosen = places[rng.random(len(places)) < share]
            if mine or rng.random() < 0.3:
                order[chosen] = few if mine else rare
        return Pairs.single(X, a, y, order, self.lists)

    @classmethod
    def admitted(
        cls, universe: MappedUniverse, X: Array, a: NDArray[np.int64], share: Array
    ) -> Pairs:
        """The pairs of the universe nearest to a proposal: points clipped, shares (b, m - 2)
        rounded.

        Where an arm floor is declared, records are moved between the kinds of the two arms to meet
        it; a pair that cannot meet it is marked.
        """
        if not universe.flips:
            a = a.copy()
            a[:, 1] = a[:, 0]
        n, floor = universe.n_samples, universe.space.arm_floor or 0
        share, treated, ends = np.maximum(share, 0.0), a[:, 2:] == 1, a[:, :2]
        low = np.maximum(floor - ends.min(axis=1), 0)
        high = np.minimum(n - floor - ends.max(axis=1), n - 1)
        part = np.where(treated, share, 0.0).sum(axis=1) / np.maximum(share.sum(axis=1), 1e-300)
        size = np.clip(np.rint(part * (n - 1)), low, np.maximum(low, high))
        count = np.zeros_like(share)
        for side, amount in ((treated, size), (~treated, n - 1 - size)):
            count += _whole(np.where(side, share, 0.0), amount)
        count[(count.sum(axis=1) != n - 1) | (low > high)] = np.nan
        return cls(universe.space.inside(X), a, np.zeros(a.shape), count)

    @classmethod
    def starts(cls, universe: MappedUniverse, number: int, rng: np.random.Generator) -> Pairs:
        """``number`` pairs with outcomes 0, drawn from all families in turn."""
        raw = [
            _start(_FAMILIES[index % len(_FAMILIES)], rng, universe.n_features)
            for index in range(number)
        ]
        for _, arm, share in raw if (universe.space.arm_floor or 0) > 1 else ():
            present = np.flatnonzero(share > 0)
            if len(np.unique(arm[2 + present])) == 1:  # no arm of the common records may be empty
                place = present[-1] if len(present) > 1 else (present[0] + 1) % CLUSTERS
                arm[2 + place] = 1 - arm[2 + present[0]]
                share[place] = max(share[place], 1e-3)
        X, a, share = map(np.stack, zip(*raw, strict=True))
        return cls.admitted(universe, X * universe.space.features_bound, a, share)


def _whole(share: Array, amount: Array) -> Array:
    """Whole numbers (b, m) near ``share`` that sum to ``amount`` (b,); zeros where all shares are
    0.
    """
    total = share.sum(axis=1, keepdims=True)
    exact = share / np.maximum(total, 1e-300) * amount[:, None]
    count = np.floor(exact + 1e-9)
    rest = np.where(total[:, 0] > 0, amount - count.sum(axis=1), 0.0)
    # the remainder, fewer than m records, goes to the largest fractions
    order = np.argsort(-(exact - count), axis=1, kind="stable")
    whole: Array = count + (np.argsort(order, axis=1, kind="stable") < rest[:, None])
    return whole


#: Points (CLUSTERS + 2, d) in the unit ball and arms, of the changed record first, and shares
#: (CLUSTERS,).
_Raw = tuple[Array, NDArray[np.int64], Array]


def directions(rng: np.random.Generator, m: int, d: int) -> Array:
    """Random unit vectors (m, d)."""
    return _unit(rng.normal(size=(m, d)))


#: Families of starts, in turns.
_FAMILIES = [
    "anywhere",
    "collinear",
    "one-sided",
    "separable",
    "nearly empty",
    "jump",
    "across",
    "corners",
]


def _start(family: str, rng: np.random.Generator, d: int) -> _Raw:
    """A draw of one family, of one to all clusters, even or very uneven."""
    if family == "across":
        return _across(rng, d)
    m, cloud = CLUSTERS + 2, family
    if family == "nearly empty":
        cloud = "anywhere" if rng.random() < 0.5 else "collinear"
    elif family == "jump":
        cloud = "one-sided" if rng.random() < 0.5 else "anywhere"
    if cloud == "collinear":
        at = rng.choice([-1.0, 1.0], m) * np.where(rng.random(m) < 0.5, 1.0, rng.random(m))
        points = at[:, None] * directions(rng, 1, d)
    elif cloud == "corners":  # of a cube: orthogonal ones are alike to no kernel
        points = rng.integers(-1, 2, (m, d)).astype(np.float64)
        points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
    else:
        points = directions(rng, m, d) * np.where(rng.random((m, 1)) < 0.6, 1.0, rng.random((m, 1)))
    arm, k, share = rng.integers(0, 2, m), int(rng.integers(1, CLUSTERS + 1)), np.zeros(CLUSTERS)
    share[:k] = rng.dirichlet(np.full(k, 10.0 ** rng.uniform(-1.0, 1.0)))
    points, arm = np.roll(points, 2, axis=0), np.roll(arm, 2)  # drawn with the common kinds first
    ends = np.array([[1.0], [-1.0]])
    if cloud == "one-sided":  # common records in a half-space; the changed one crosses
        (u,) = directions(rng, 1, d)
        points *= np.where(points @ u < 0, -1.0, 1.0)[:, None]
        points[:2] = ends * u
    if family == "separable":  # arms on either side of a hyperplane
        side = np.where((points @ directions(rng, 1, d)[0]) * (2 * arm - 1) < 0, -1.0, 1.0)
        points[2:] *= side[2:, None]
    elif family == "nearly empty":
        arm[2:] = int(rng.integers(0, 2))
        if rng.random() < 0.5:
            arm[-1], share[-1] = 1 - arm[-1], 10.0 ** rng.uniform(-4.0, -1.0)
    elif family == "jump":  # with a flip, along the coefficient that the others ask for
        pull = (share * (2 * arm[2:] - 1)) @ points[2:]
        size = float(np.linalg.norm(pull))
        u = pull / size if size > 0 else directions(rng, 1, d)[0]
        points[:2] = rng.choice([-1.0, 1.0]) * ends * u
        points[:2] += 0.3 * rng.random() * rng.normal(size=(2, d))
        arm[1] = 1 - arm[0]
    return points, arm, share


def _across(rng: np.random.Generator, d: int) -> _Raw:
    """Records along u and a few against it, both split sideways; one jumps between the sides."""
    u, v = directions(rng, 2, d)
    along, against, split, spread = rng.random(4)
    ends = (
        np.array([[split], [-split]]) * v + along * u,
        np.array([[spread], [-spread]]) * v - against * u,
    )
    points = np.array([*ends[0], *ends[1], v - rng.random() * u, -v - rng.random() * u])
    part = rng.random()
    arm = np.full(CLUSTERS + 2, int(rng.integers(0, 2)))
    swapped = rng.random(CLUSTERS + 2) < 0.5
    # (x, a) and (-x, 1 - a) are alike to a logistic coefficient
    points, arm = np.where(swapped[:, None], -points, points), np.where(swapped, 1 - arm, arm)
    return (
        np.roll(points, 2, axis=0),
        np.roll(arm, 2),
        np.array([part, part, 1 - part, 1 - part]) / 2,
    )


def draw_pair(universe: MappedUniverse, rng: np.random.Generator) -> Pairs:
    """A single pair of a random family, with outcomes. Raises DeclarationError where a floor leaves
    none.
    """
    space, drawn = universe.space, (_drawn(universe, rng) for _ in range(_TRIES))
    pair = next((pair for pair in drawn if pair.admissible(space)), None)
    if pair is None:
        size = universe.n_samples
        raise DeclarationError(
            f"arm_floor = {space.arm_floor}: no pair of {size} records was found"
        )
    X, a, y, order = pair.kinds()
    if rng.random() < 0.5:  # from one end to the other, often within its arm
        y[:2] = space.outcome_bound * rng.choice([-1.0, 1.0]) * np.array([1.0, -1.0])
        a[1] = a[0] if rng.random() < 0.5 else a[1]
    if rng.random() < 0.5:  # everybody but the changed record nearer to 0
        X[2:] *= 10.0 ** rng.uniform(-4, 0)
        if rng.random() < 0.5:
            y[2:] *= 10.0 ** rng.uniform(-4, 0)
    elif rng.random() < 0.4:  # every kind at a distance from 0 of its own
        X *= 10.0 ** rng.uniform(-3, 0, size=(len(a), 1))
        X[1] = X[0] if rng.random() < 0.5 else X[1]
    if (arms := space.n_arms) > 2:
        a = rng.integers(arms, size=len(a))
        a[1] = a[1] if universe.flips else a[0]
    lists = None if space.units is None else [_list(kind, len(a), rng) for kind in range(len(a))]
    return Pairs.single(X, a, y, order, lists)


def _list(kind: int, kinds: int, rng: np.random.Generator) -> list[int]:
    """The records of a person of a kind: mostly as many as can be, of this kind; now and then
    others.
    """
    size = int(rng.integers(_MOST + 1)) if rng.random() < 0.3 else _MOST
    return [kind if rng.random() < 0.8 else int(rng.integers(kinds)) for _ in range(size)]


def next_pair(universe: MappedUniverse, known: Pairs | None, rng: np.random.Generator) -> Pairs:
    """A new pair, or one near a known one by one or two changes, of sizes from 0.001 to 1."""
    if known is None:
        return draw_pair(universe, rng)
    for _ in range(_TRIES):
        nearby = known
        for _ in range(int(rng.integers(1, 3))):
            nearby = _changed(universe, nearby, rng)
        if nearby.admissible(universe.space):
            return nearby
    return known


def _drawn(universe: MappedUniverse, rng: np.random.Generator) -> Pairs:
    n, k = universe.n_samples, universe.n_features
    R, B = universe.space.features_bound, universe.space.outcome_bound
    kinds = n - 1 if rng.random() < 0.1 else int(rng.integers(1, min(4, n - 1) + 1))
    m = kinds + 2
    (u,) = directions(rng, 1, k)
    sign = rng.choice([-1.0, 1.0], size=m)
    a = (rng.random(m) < rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])).astype(np.int64)
    where = (
        directions(rng, m, k),
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
    return Pairs.single(universe.space.inside(X), a, B * y, rng.integers(2, m, size=n - 1))


def _changed(universe: MappedUniverse, pair: Pairs, rng: np.random.Generator) -> Pairs:
    X, a, y, order = pair.kinds()
    R, B, k, m = universe.space.features_bound, universe.space.outcome_bound, X.shape[1], len(a)
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
        a[row] = 1 - a[row] if (arms := universe.space.n_arms) == 2 else rng.integers(arms)
    elif move == 4:
        y[row] = (B, -B, -y[row], y[row] + B * size * rng.normal())[int(rng.integers(4))]
    elif move == 5:
        some = rng.random(len(order)) < rng.choice([0.1, 0.5])
        order[some] = rng.integers(2, m)
    else:
        y = -y
    if not universe.flips:
        a[1] = a[0]
    lists = pair.lists
    if lists is not None and rng.random() < 0.3:
        lists = [*lists[:row], _list(row, m, rng), *lists[row + 1 :]]
    return Pairs.single(universe.space.inside(X), a, np.clip(y, -B, B), order, lists)


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))
