"""Pairs of neighboring datasets, whose records are of a few kinds.

Two samplers draw them. :meth:`Pairs.starts` draws a batch of pairs without outcomes (all 0), from
the families of ``_FAMILIES`` in turn. From these the search of stability audits for surrogates
starts. :func:`draw_pair` draws one pair with outcomes by ``_drawn``, and :func:`next_pair` changes
one a little or draws a new one. Audits of densities, of runs and of additive noise search with
them, and so do conformance tests.
"""

from __future__ import annotations

import itertools
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
    """Records in the units of their space.

    Parameters
    ----------
    space
        Where the records lie.
    X
        Scaled covariates (n, k), without an intercept.
    a
        Treatments (n,).
    y
        Net outcomes (n,); default: 0.
    """
    if space.intercept:
        X = np.column_stack([np.full(len(X), space.intercept), X])
    if y is None:
        y = np.zeros(len(a))
    return Records(X, a, y, space)


@dataclass(frozen=True, eq=False)
class Pairs:
    """b pairs of neighbors by the kinds of their records, in the units of the universe.

    Of the m kinds the first two are the changed record before and after; the others are common to
    both datasets.

    Parameters
    ----------
    X
        Scaled covariates (b, m, k) of the kinds.
    a
        Treatments (b, m) of the kinds.
    y
        Net outcomes (b, m) of the kinds.
    count
        How many records of each common kind there are, (b, m - 2): n - 1 in all, some 0. NaN marks
        a pair outside of the universe.
    order
        The common records (n - 1,) of a single pair one by one, by their kinds from 2 on.
    lists
        Where persons with several records are units, the kinds of all records that a person of each
        kind has. The number n is then that of persons.
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
        return cls(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.a for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.count for part in parts]),
        )

    def kinds(self) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
        """Copies of X (m, k), a (m,), y (m,) and the order (n - 1,) of a single pair."""
        order = self.order
        if order is None:
            order = 2 + np.repeat(np.arange(self.count.shape[1]), self.count[0].astype(np.int64))
        return self.X[0].copy(), self.a[0].copy(), self.y[0].copy(), order.copy()

    def distinct(self, after: bool) -> tuple[Array, NDArray[np.int64], Array]:
        """The distinct records of one of both datasets, the changed record last.

        Returns
        -------
        X, a, count
            Rows (b, m - 1, k), treatments (b, m - 1), and how many records are alike, (b, m - 1).
        """
        rows = [*range(2, self.a.shape[1]), int(after)]
        count = np.column_stack([self.count, np.ones(len(self))])
        return self.X[:, rows], self.a[:, rows], count

    def datasets(self) -> tuple[Columns, Columns]:
        """All scaled records of a single pair before and after.

        They differ in the first record, or in the first person.
        """
        return self._dataset(0), self._dataset(1)

    def _dataset(self, changed: int) -> Columns:
        """The scaled records of the dataset whose first record is of the kind ``changed``."""
        X, a, y, order = self.kinds()
        rows = np.append(changed, order)
        if self.lists is None:
            return X[rows], a[rows], y[rows]
        lists = [self.lists[kind] for kind in rows]
        person = np.repeat(np.arange(len(rows)), [len(kinds) for kinds in lists])
        rows = np.array(list(itertools.chain.from_iterable(lists)), dtype=np.int64)
        return X[rows], a[rows], y[rows], person

    def raw(self, domain: Domain) -> tuple[Columns, Columns]:
        """Both datasets in the units of the data."""
        first, second = self.datasets()
        return _raw(domain, first), _raw(domain, second)

    def records(self, space: Space) -> tuple[Records, Records]:
        """Both datasets as records of the space."""
        first, second = self.datasets()
        return records_at(space, *first), records_at(space, *second)

    def admissible(self, space: Space) -> bool:
        """True if both datasets of a single pair keep the arm floor."""
        n = int(self.count[0].sum()) + 1
        floor = space.arm_floor or 0
        common = int(self.count[0] @ self.a[0, 2:])
        treated = [common + int(arm) for arm in self.a[0, :2]]
        return floor <= min(treated) and max(treated) <= n - floor

    def steepest(
        self,
        universe: Universe,
        distance: Callable[[Columns, Columns], float],
        rng: np.random.Generator,
    ) -> tuple[Pairs | None, int]:
        """Where datasets of two kinds of records change fastest with their numbers.

        A threshold that no random pair meets lies between two datasets that random draws meet. Of
        two halves the search goes on in that whose ends are farther apart.

        Parameters
        ----------
        universe
            The datasets among which the pair lies.
        distance
            How far apart two datasets are, in the units of the data.
        rng
            Draws whether both kinds have the same covariates.

        Returns
        -------
        steepest
            The pair, or None where no pair of both kinds keeps the arm floor.
        taken
            How many distances it took.
        """
        path = self._path(universe, rng)
        n = universe.n_samples
        counts = []
        for count in range(n):
            if path.neighbors(count).admissible(universe.domain.space):
                counts.append(count)
        if not counts:
            return None, 0
        low = counts[0]
        high = counts[-1] + 1
        taken = 0
        while high - low > 1:
            middle = (low + high) // 2
            center = path.dataset(middle)
            taken += 2
            if distance(path.dataset(low), center) > distance(center, path.dataset(high)):
                high = middle
            else:
                low = middle
        return path.neighbors(low), taken

    def _path(self, universe: Universe, rng: np.random.Generator) -> _Path:
        """Datasets from n records like the changed one before to n records like it after."""
        # the changed record before and after, and common kinds like both
        kinds = [0, 1, 0, 1]
        X = self.X[0, kinds]
        lists = None
        if self.lists is not None:
            lists = [[kind] * _MOST for kind in range(4)]
        if rng.random() < 0.5:
            # only the arm and the outcome tell them apart
            X[:] = X[0] * (rng.random() < 0.5)
        return _Path(universe, X, self.a[0, kinds], self.y[0, kinds], lists)

    def by_groups(self, groups: list[NDArray[np.int64]], rng: np.random.Generator) -> Pairs:
        """A pair with few kinds of records in every group of rows.

        Records are alike within the group of the changed one, but for a few, and alike within all
        other groups, of which some have a few rare ones.
        """
        X, a, y, order = self.kinds()
        inside, rare_inside, outside, rare_outside = rng.choice(np.arange(2, len(a)), 4)
        share = float(rng.choice([0.1, 0.5]))
        for rows in groups:
            places = rows[rows > 0] - 1
            chosen = places[rng.random(len(places)) < share]
            if 0 in rows:
                order[places] = inside
                order[chosen] = rare_inside
            else:
                order[places] = outside
                if rng.random() < 0.3:
                    order[chosen] = rare_outside
        return Pairs.single(X, a, y, order, self.lists)

    @classmethod
    def admitted(
        cls, universe: MappedUniverse, X: Array, a: NDArray[np.int64], share: Array
    ) -> Pairs:
        """The pairs of the universe nearest to a proposal, with outcomes 0.

        Points are clipped, and shares are rounded to numbers of records. Where an arm floor is
        declared, records are moved between the kinds of the two arms to meet it; a pair that cannot
        meet it is marked.

        Parameters
        ----------
        universe
            Where the pairs lie.
        X
            Scaled covariates (b, m, k) of the kinds.
        a
            Treatments (b, m) of the kinds.
        share
            Shares (b, m - 2) of the common kinds, of any sum.
        """
        if not universe.flips:
            a = a.copy()
            a[:, 1] = a[:, 0]
        others = universe.n_samples - 1
        floor = universe.space.arm_floor or 0
        share = np.maximum(share, 0.0)
        treated = a[:, 2:] == 1
        ends = a[:, :2]
        # how many of the common records may be treated at least and at most
        low = np.maximum(floor - ends.min(axis=1), 0)
        high = np.minimum(universe.n_samples - floor - ends.max(axis=1), others)
        treated_share = np.where(treated, share, 0.0)
        part = treated_share.sum(axis=1) / np.maximum(share.sum(axis=1), 1e-300)
        size = np.clip(np.rint(part * others), low, np.maximum(low, high))
        count = np.zeros_like(share)
        count += _whole(treated_share, size)
        count += _whole(np.where(treated, 0.0, share), others - size)
        outside = (count.sum(axis=1) != others) | (low > high)
        count[outside] = np.nan
        return cls(universe.space.inside(X), a, np.zeros(a.shape), count)

    @classmethod
    def starts(cls, universe: MappedUniverse, number: int, rng: np.random.Generator) -> Pairs:
        """``number`` pairs with outcomes 0, drawn from the families of ``_FAMILIES`` in turn."""
        drawn = list[_Start]()
        for index in range(number):
            family = _FAMILIES[index % len(_FAMILIES)]
            drawn.append(_start(family, rng, universe.n_features))
        # under a floor of more than one record, no arm of the common records may be empty
        if (universe.space.arm_floor or 0) > 1:
            for start in drawn:
                start.fill_both_arms()
        points = np.stack([start.points for start in drawn])
        arm = np.stack([start.arm for start in drawn])
        share = np.stack([start.share for start in drawn])
        return cls.admitted(universe, points * universe.space.features_bound, arm, share)


@dataclass(frozen=True, eq=False)
class _Path:
    """Datasets of two kinds of records, by the number of records of the second kind.

    Parameters
    ----------
    universe
        Where the datasets lie.
    X, a, y
        Covariates (4, k), treatments (4,) and outcomes (4,) of both kinds, as those of the changed
        record and of the common ones.
    lists
        Where persons are units, the kinds of the records of a person of each kind.
    """

    universe: Universe
    X: Array
    a: NDArray[np.int64]
    y: Array
    lists: list[list[int]] | None

    def neighbors(self, count: int) -> Pairs:
        """The dataset with ``count`` records of the second kind, and the one with one more."""
        order = np.where(np.arange(self.universe.n_samples - 1) < count, 3, 2)
        return Pairs.single(self.X, self.a, self.y, order, self.lists)

    def dataset(self, count: int) -> Columns:
        """The dataset with ``count`` records of the second kind, of which n is the most."""
        if count == self.universe.n_samples:
            _, second = self.neighbors(count - 1).raw(self.universe.domain)
            return second
        first, _ = self.neighbors(count).raw(self.universe.domain)
        return first


def _raw(domain: Domain, columns: Columns) -> Columns:
    """Scaled columns of a dataset in the units of the data; persons stay as they are."""
    return *unscaled(domain, *columns[:3]), *columns[3:]


def _whole(share: Array, amount: Array) -> Array:
    """Whole numbers near shares, of a given sum.

    Parameters
    ----------
    share
        Shares (b, m) of any sum.
    amount
        The sum (b,) of the whole numbers, which are all 0 where all shares are.
    """
    total = share.sum(axis=1, keepdims=True)
    exact = share / np.maximum(total, 1e-300) * amount[:, None]
    count = np.floor(exact + 1e-9)
    remainder = np.where(total[:, 0] > 0, amount - count.sum(axis=1), 0.0)
    # the remainder, fewer than m records, goes to the largest fractions
    order = np.argsort(-(exact - count), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return np.asarray(count + (rank < remainder[:, None]))


@dataclass(frozen=True, eq=False)
class _Start:
    """A pair as it is drawn: the changed record before and after, then all common kinds.

    Parameters
    ----------
    points
        Points (CLUSTERS + 2, d) in the unit ball, of the changed record first.
    arm
        Treatments (CLUSTERS + 2,), of the changed record first.
    share
        Shares (CLUSTERS,) of the common kinds, some 0.
    """

    points: Array
    arm: NDArray[np.int64]
    share: Array

    def fill_both_arms(self) -> None:
        """Turn one common kind to the other arm where all common records are in one."""
        present = np.flatnonzero(self.share > 0)
        if len(np.unique(self.arm[2 + present])) > 1:
            return
        place = present[-1]
        if len(present) == 1:
            place = (present[0] + 1) % CLUSTERS
        self.arm[2 + place] = 1 - self.arm[2 + present[0]]
        self.share[place] = max(self.share[place], 1e-3)


def directions(rng: np.random.Generator, m: int, d: int) -> Array:
    """Random unit vectors (m, d)."""
    return _unit(rng.normal(size=(m, d)))


#: Families of :meth:`Pairs.starts`, in turns.
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
#: Places of the changed record before and after, along a direction.
_OPPOSITE = np.array([[1.0], [-1.0]])


def _start(family: str, rng: np.random.Generator, d: int) -> _Start:
    """A draw of one family, of one to all clusters, even or very uneven."""
    if family == "across":
        return _across(rng, d)
    m = CLUSTERS + 2
    cloud = _cloud_of(family, rng)
    points = _points(cloud, rng, m, d)
    arm = rng.integers(0, 2, m)
    present = int(rng.integers(1, CLUSTERS + 1))
    share = np.zeros(CLUSTERS)
    share[:present] = rng.dirichlet(np.full(present, 10.0 ** rng.uniform(-1.0, 1.0)))
    # the common kinds were drawn first, and come last
    start = _Start(np.roll(points, 2, axis=0), np.roll(arm, 2), share)
    if cloud == "one-sided":
        _to_one_side(start, rng)
    if family == "separable":
        _separate(start, rng)
    elif family == "nearly empty":
        _empty_an_arm(start, rng)
    elif family == "jump":
        _jump(start, rng)
    return start


def _cloud_of(family: str, rng: np.random.Generator) -> str:
    """The cloud that the points of a family are drawn from."""
    clouds = {"nearly empty": ("anywhere", "collinear"), "jump": ("one-sided", "anywhere")}
    if family not in clouds:
        return family
    first, second = clouds[family]
    return first if rng.random() < 0.5 else second


def _points(cloud: str, rng: np.random.Generator, m: int, d: int) -> Array:
    """Points (m, d) in the unit ball: on a line, at corners of a cube, or anywhere."""
    if cloud == "collinear":
        sign = rng.choice([-1.0, 1.0], m)
        length = np.where(rng.random(m) < 0.5, 1.0, rng.random(m))
        return np.asarray((sign * length)[:, None] * directions(rng, 1, d))
    if cloud == "corners":
        # orthogonal corners are alike to no kernel
        corners = rng.integers(-1, 2, (m, d)).astype(np.float64)
        corners /= np.maximum(np.linalg.norm(corners, axis=1, keepdims=True), 1.0)
        return np.asarray(corners)
    ends = directions(rng, m, d)
    length = np.where(rng.random((m, 1)) < 0.6, 1.0, rng.random((m, 1)))
    return np.asarray(ends * length)


def _to_one_side(start: _Start, rng: np.random.Generator) -> None:
    """Move the common records into a half-space; the changed one crosses its border."""
    points = start.points
    (normal,) = directions(rng, 1, points.shape[1])
    points *= np.where(points @ normal < 0, -1.0, 1.0)[:, None]
    points[:2] = _OPPOSITE * normal


def _separate(start: _Start, rng: np.random.Generator) -> None:
    """Move the common records of the arms to the two sides of a hyperplane."""
    (normal,) = directions(rng, 1, start.points.shape[1])
    margin = (start.points @ normal) * (2 * start.arm - 1)
    side = np.where(margin < 0, -1.0, 1.0)
    start.points[2:] *= side[2:, None]


def _empty_an_arm(start: _Start, rng: np.random.Generator) -> None:
    """Move all common records to one arm, or all but a few of one kind."""
    start.arm[2:] = int(rng.integers(0, 2))
    if rng.random() < 0.5:
        start.arm[-1] = 1 - start.arm[-1]
        start.share[-1] = 10.0 ** rng.uniform(-4.0, -1.0)


def _jump(start: _Start, rng: np.random.Generator) -> None:
    """Let the changed record jump, with a flip, along the coefficient that the others ask for."""
    points = start.points
    d = points.shape[1]
    pull = (start.share * (2 * start.arm[2:] - 1)) @ points[2:]
    size = float(np.linalg.norm(pull))
    if size > 0:
        along = pull / size
    else:
        (along,) = directions(rng, 1, d)
    points[:2] = rng.choice([-1.0, 1.0]) * _OPPOSITE * along
    points[:2] += 0.3 * rng.random() * rng.normal(size=(2, d))
    start.arm[1] = 1 - start.arm[0]


def _across(rng: np.random.Generator, d: int) -> _Start:
    """Records along u and a few against it, both split sideways; one jumps between the sides."""
    u, v = directions(rng, 2, d)
    along, against, split, spread = rng.random(4)
    many = np.array([[split], [-split]]) * v + along * u
    few = np.array([[spread], [-spread]]) * v - against * u
    before = v - rng.random() * u
    after = -v - rng.random() * u
    points = np.array([before, after, *many, *few])
    part = rng.random()
    arm = np.full(CLUSTERS + 2, int(rng.integers(0, 2)))
    # (x, a) and (-x, 1 - a) are alike to a logistic coefficient
    swapped = np.roll(rng.random(CLUSTERS + 2) < 0.5, 2)
    points = np.where(swapped[:, None], -points, points)
    arm = np.where(swapped, 1 - arm, arm)
    share = np.array([part, part, 1 - part, 1 - part]) / 2
    return _Start(points, arm, share)


def draw_pair(universe: MappedUniverse, rng: np.random.Generator) -> Pairs:
    """A single pair with outcomes, drawn by ``_drawn`` and then changed at random.

    It has nothing to do with ``_FAMILIES``, from which :meth:`Pairs.starts` draws without outcomes.

    Raises
    ------
    DeclarationError
        If the arm floor leaves no pair.
    """
    space = universe.space
    X, a, y, order = _admissible(universe, rng).kinds()
    if rng.random() < 0.5:
        # from one end to the other, often within its arm
        y[:2] = space.outcome_bound * rng.choice([-1.0, 1.0]) * np.array([1.0, -1.0])
        if rng.random() < 0.5:
            a[1] = a[0]
    if rng.random() < 0.5:
        # everybody but the changed record nearer to 0
        X[2:] *= 10.0 ** rng.uniform(-4, 0)
        if rng.random() < 0.5:
            y[2:] *= 10.0 ** rng.uniform(-4, 0)
    elif rng.random() < 0.4:
        # every kind at a distance from 0 of its own
        X *= 10.0 ** rng.uniform(-3, 0, size=(len(a), 1))
        if rng.random() < 0.5:
            X[1] = X[0]
    if space.n_arms > 2:
        a = rng.integers(space.n_arms, size=len(a))
        if not universe.flips:
            a[1] = a[0]
    lists = None
    if space.units is not None:
        lists = [_list(kind, len(a), rng) for kind in range(len(a))]
    return Pairs.single(X, a, y, order, lists)


def _admissible(universe: MappedUniverse, rng: np.random.Generator) -> Pairs:
    """A random pair that keeps the arm floor; raises DeclarationError where none is found."""
    for _ in range(_TRIES):
        pair = _drawn(universe, rng)
        if pair.admissible(universe.space):
            return pair
    raise DeclarationError(
        f"arm_floor = {universe.space.arm_floor}: no pair of {universe.n_samples} records was found"
    )


def _list(kind: int, kinds: int, rng: np.random.Generator) -> list[int]:
    """The records of a person of a kind, by their kinds.

    Mostly these are as many as can be, of this kind; now and then there are others.
    """
    size = _MOST
    if rng.random() < 0.3:
        size = int(rng.integers(_MOST + 1))
    chosen = list[int]()
    for _ in range(size):
        member = kind
        if rng.random() >= 0.8:
            member = int(rng.integers(kinds))
        chosen.append(member)
    return chosen


def next_pair(universe: MappedUniverse, pair: Pairs | None, rng: np.random.Generator) -> Pairs:
    """A new pair, or one near a given one by one or two changes, of sizes from 0.001 to 1."""
    if pair is None:
        return draw_pair(universe, rng)
    for _ in range(_TRIES):
        nearby = pair
        for _ in range(int(rng.integers(1, 3))):
            nearby = _changed(universe, nearby, rng)
        if nearby.admissible(universe.space):
            return nearby
    return pair


def _drawn(universe: MappedUniverse, rng: np.random.Generator) -> Pairs:
    """A pair along one direction of the covariates or none; nothing is said of the arm floor."""
    n = universe.n_samples
    # now and then every common record is of a kind of its own
    common_kinds = n - 1
    if rng.random() >= 0.1:
        common_kinds = int(rng.integers(1, min(4, n - 1) + 1))
    m = common_kinds + 2
    (u,) = directions(rng, 1, universe.n_features)
    sign = rng.choice([-1.0, 1.0], size=m)
    place = rng.random(m)
    share_treated = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    a = (place < share_treated).astype(np.int64)
    X = _drawn_covariates(u, sign, a, universe.space.features_bound, rng)
    if rng.random() < 0.15:
        a = (X @ u > 0).astype(np.int64)
    a[1] = a[0]
    if universe.flips and rng.random() < 0.7:
        a[1] = 1 - a[0]
    y = universe.space.outcome_bound * _drawn_outcomes(X @ u, a, rng)
    return Pairs.single(universe.space.inside(X), a, y, rng.integers(2, m, size=n - 1))


def _drawn_covariates(
    u: Array, sign: Array, a: NDArray[np.int64], bound: float, rng: np.random.Generator
) -> Array:
    """Scaled covariates (m, k) of all kinds.

    Parameters
    ----------
    u
        A direction (k,).
    sign
        A random sign (m,) of every kind.
    a
        Treatments (m,).
    bound
        The largest norm of covariates.
    rng
        Draws the covariates.
    """
    m = len(a)
    k = len(u)
    anywhere = directions(rng, m, k)
    on_a_line = rng.uniform(-1, 1, size=(m, 1)) * u
    at_both_ends = sign[:, None] * u
    at_zero = np.zeros((m, k))
    by_arm = (2.0 * a[:, None] - 1) * u
    at_one_end = np.tile(u, (m, 1))
    places = (anywhere, on_a_line, at_both_ends, at_zero, by_arm, at_one_end)
    X = bound * places[int(rng.integers(len(places)))]
    # the changed record before and after
    before = (X[0], bound * u, -bound * u, X[-1])
    X[0] = before[int(rng.integers(len(before)))]
    after = (-X[0], X[0], np.zeros(k), bound * u)
    X[1] = after[int(rng.integers(len(after)))]
    return X


def _drawn_outcomes(along: Array, a: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """Outcomes (m,) in [-1, 1] of all kinds, at places ``along`` a direction and in arms ``a``."""
    m = len(a)
    side = float(rng.choice([-1.0, 1.0]))
    by_arm = side * (2.0 * a - 1)
    alike = np.full(m, side)
    at_both_ends = rng.choice([-1.0, 1.0], size=m)
    anywhere = rng.uniform(-1, 1, size=m)
    by_arm_and_place = side * np.sign(along + 1e-300) * (2.0 * a - 1)
    outcomes = (by_arm, alike, at_both_ends, anywhere, by_arm_and_place)
    y = outcomes[int(rng.integers(len(outcomes)))]
    if rng.random() < 0.5:
        y[:2] = rng.choice([-1.0, 1.0], size=2)
    return np.asarray(y)


#: What one change of a pair is made to.
_CHANGES = (
    "covariates of one kind",
    "covariates of all kinds",
    "place of one kind",
    "arm of one kind",
    "outcome of one kind",
    "kinds of some records",
    "signs of all outcomes",
)


def _changed(universe: MappedUniverse, pair: Pairs, rng: np.random.Generator) -> Pairs:
    """The pair after one change of a random kind, of a size from 0.001 to 1."""
    X, a, y, order = pair.kinds()
    space = universe.space
    kinds = len(X)
    # half of the changes are to the changed record, before or after, the others to any kind
    kinds_in_reach = 2
    if rng.random() < 0.5:
        kinds_in_reach = kinds
    row = int(rng.integers(kinds_in_reach))
    size = 10.0 ** rng.uniform(-3, 0)
    change = _CHANGES[int(rng.integers(len(_CHANGES)))]
    if change == "covariates of one kind":
        X[row] += space.features_bound * size * rng.normal(size=X.shape[1])
    elif change == "covariates of all kinds":
        X += space.features_bound * size * rng.normal(size=X.shape)
    elif change == "place of one kind":
        X[row] = _other_covariates(X, row, space.features_bound, rng)
    elif change == "arm of one kind":
        a[row] = _other_arm(int(a[row]), space.n_arms, rng)
    elif change == "outcome of one kind":
        y[row] = _other_outcome(float(y[row]), space.outcome_bound, size, rng)
    elif change == "kinds of some records":
        some = rng.random(len(order)) < rng.choice([0.1, 0.5])
        order[some] = rng.integers(2, kinds)
    else:
        y = -y
    if not universe.flips:
        a[1] = a[0]
    y = np.clip(y, -space.outcome_bound, space.outcome_bound)
    lists = pair.lists
    if lists is not None and rng.random() < 0.3:
        lists = [*lists[:row], _list(row, kinds, rng), *lists[row + 1 :]]
    return Pairs.single(space.inside(X), a, y, order, lists)


def _other_arm(arm: int, n_arms: int, rng: np.random.Generator) -> int:
    """The other one of two arms, or any of several."""
    if n_arms == 2:
        return 1 - arm
    return int(rng.integers(n_arms))


def _other_covariates(X: Array, row: int, bound: float, rng: np.random.Generator) -> Array:
    """Covariates (k,) at the end of their direction, at 0, of another kind, or opposite to it."""
    target = int(rng.integers(len(X)))
    at_the_end = bound * _unit(X[[row]])[0]
    places = (at_the_end, np.zeros(X.shape[1]), -X[target], X[target])
    return np.asarray(places[int(rng.integers(len(places)))])


def _other_outcome(y: float, bound: float, size: float, rng: np.random.Generator) -> float:
    """An outcome at either end, with its sign turned, or a little off."""
    outcomes = (bound, -bound, -y, y + bound * size * rng.normal())
    return float(outcomes[int(rng.integers(len(outcomes)))])


def _unit(rows: Array) -> Array:
    """Rows of norm 1 in the directions of the given ones; rows of 0 stay 0."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))
