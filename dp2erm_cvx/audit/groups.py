"""Neighbors as a few distinct records with multiplicities, many side by side, and an evolution strategy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.universe import Universe

#: Distinct values of the common records.
CLUSTERS = 4


def records_at(universe: Universe, covariates: Array, arm: NDArray[np.int64]) -> Records:
    """Records of the universe with scaled ``covariates`` (n, n_features) and zero outcomes."""
    X, domain = covariates, universe.domain
    if domain.intercept:
        X = np.column_stack([np.full(len(X), domain.intercept), X])
    return Records(X, arm, np.zeros(len(arm)), domain)


@dataclass(frozen=True)
class Groups:
    """b pairs of neighbors: CLUSTERS common values, then the changed record before and after.

    ``points`` (b, CLUSTERS + 2, d), ``arm`` (b, CLUSTERS + 2) in {0, 1}, ``count`` (b, CLUSTERS) whole
    numbers that sum to n - 1, some of them 0. Pairs outside of the universe have a count that is NaN.
    """

    points: Array
    arm: NDArray[np.int64]
    count: Array

    def __len__(self) -> int:
        return len(self.points)

    def take(self, index: NDArray[np.int64] | slice) -> Groups:
        """The pairs chosen."""
        return Groups(self.points[index], self.arm[index], self.count[index])

    def dataset(self, after: bool) -> tuple[Array, NDArray[np.int64], Array]:
        """Distinct rows (b, m, d), arms and counts (b, m) of one of the two datasets, m = CLUSTERS + 1."""
        rows = [*range(CLUSTERS), CLUSTERS + int(after)]
        count = np.column_stack([self.count, np.ones(len(self))])
        return self.points[:, rows], self.arm[:, rows], count

    def expand(self, index: int, universe: Universe) -> tuple[Records, Records]:
        """All n records of both datasets of one pair; they differ in the last one."""
        repeats = np.append(self.count[index], 1.0).astype(np.int64)
        first, second = (
            records_at(universe, rows[index].repeat(repeats, axis=0), arm[index].repeat(repeats, axis=0))
            for rows, arm, _ in (self.dataset(False), self.dataset(True))
        )
        return first, second


def joined(parts: list[Groups]) -> Groups:
    """All pairs of all parts."""
    columns = zip(*((part.points, part.arm, part.count) for part in parts), strict=True)
    return Groups(*map(np.concatenate, columns))


def admitted(universe: Universe, points: Array, arm: NDArray[np.int64], share: Array) -> Groups:
    """The pairs of the universe nearest to what is proposed: points clipped, shares (b, CLUSTERS) rounded.

    Where an arm floor is declared, records are moved between the clusters of the two arms to meet it; a pair
    that cannot meet it is marked.
    """
    if not universe.flips:
        arm = np.column_stack([arm[:, :-1], arm[:, -2]])
    n, floor = universe.n_samples, universe.domain.arm_floor or 0
    share = np.maximum(share, 0.0)
    treated = arm[:, :CLUSTERS] == 1
    ends = arm[:, CLUSTERS:]
    low = np.maximum(floor - ends.min(axis=1), 0)
    high = np.minimum(n - floor - ends.max(axis=1), n - 1)
    total = share.sum(axis=1)
    part = np.where(treated, share, 0.0).sum(axis=1)
    wished = np.rint(part / np.maximum(total, 1e-300) * (n - 1))
    size = np.clip(wished, low, np.maximum(low, high))
    count = np.zeros_like(share)
    for side, amount in ((treated, size), (~treated, n - 1 - size)):
        count += _whole(np.where(side, share, 0.0), amount)
    valid = (count.sum(axis=1) == n - 1) & (low <= high)
    count[~valid] = np.nan
    return Groups(universe.domain.inside(points), arm, count)


def _whole(share: Array, amount: Array) -> Array:
    """Whole numbers (b, m) near ``share`` that sum to ``amount`` (b,); zeros where all shares are 0."""
    total = share.sum(axis=1, keepdims=True)
    exact = share / np.maximum(total, 1e-300) * amount[:, None]
    count = np.floor(exact + 1e-9)
    rest = np.where(total[:, 0] > 0, amount - count.sum(axis=1), 0.0)
    # the remainder, fewer than m records, goes to the largest fractions
    order = np.argsort(-(exact - count), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    whole: Array = count + (rank < rest[:, None])
    return whole


_Raw = tuple[Array, NDArray[np.int64], Array]


def _direction(rng: np.random.Generator, d: int) -> Array:
    u = rng.normal(size=d)
    return u / np.linalg.norm(u)


def _sizes(rng: np.random.Generator, least: int = 1) -> Array:
    """Shares of ``least`` to CLUSTERS clusters, even or very uneven; the others 0."""
    k = int(rng.integers(least, CLUSTERS + 1))
    share = np.zeros(CLUSTERS)
    share[:k] = rng.dirichlet(np.full(k, 10.0 ** rng.uniform(-1.0, 1.0)))
    return share


def _arms(rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(0, 2, CLUSTERS + 2)


def _anywhere(rng: np.random.Generator, d: int) -> _Raw:
    """Clusters anywhere, most on the sphere."""
    points = np.stack([_direction(rng, d) for _ in range(CLUSTERS + 2)])
    points *= np.where(rng.random((CLUSTERS + 2, 1)) < 0.6, 1.0, rng.random((CLUSTERS + 2, 1)))
    return points, _arms(rng), _sizes(rng)


def _collinear(rng: np.random.Generator, d: int) -> _Raw:
    """All records on one axis."""
    side = rng.choice([-1.0, 1.0], CLUSTERS + 2)
    at = side * np.where(rng.random(CLUSTERS + 2) < 0.5, 1.0, rng.random(CLUSTERS + 2))
    return at[:, None] * _direction(rng, d), _arms(rng), _sizes(rng)


def _one_sided(rng: np.random.Generator, d: int) -> _Raw:
    """All common records in a half-space; the changed one crosses."""
    points, arm, share = _anywhere(rng, d)
    u = _direction(rng, d)
    points *= np.where(points @ u < 0, -1.0, 1.0)[:, None]
    points[-2:] = np.array([[1.0], [-1.0]]) * u
    return points, arm, share


def _separable(rng: np.random.Generator, d: int) -> _Raw:
    """Treated and untreated on either side of a hyperplane; the changed record anywhere."""
    points, arm, share = _anywhere(rng, d)
    side = np.where((points @ _direction(rng, d)) * (2 * arm - 1) < 0, -1.0, 1.0)
    side[-2:] = 1.0
    return points * side[:, None], arm, share


def _nearly_empty(rng: np.random.Generator, d: int) -> _Raw:
    """One arm with hardly any records."""
    points, arm, share = _anywhere(rng, d) if rng.random() < 0.5 else _collinear(rng, d)
    side = int(rng.integers(0, 2))
    arm[:CLUSTERS] = side
    if rng.random() < 0.5:
        arm[CLUSTERS - 1] = 1 - side
        share[CLUSTERS - 1] = 10.0 ** rng.uniform(-4.0, -1.0)
    return points, arm, share


def _jump(rng: np.random.Generator, d: int) -> _Raw:
    """A record that jumps from +u to -u with a flip, u along the coefficient the others ask for."""
    points, arm, share = _one_sided(rng, d) if rng.random() < 0.5 else _anywhere(rng, d)
    pull = (share * (2 * arm[:CLUSTERS] - 1)) @ points[:CLUSTERS]
    size = float(np.linalg.norm(pull))
    u = pull / size if size > 0 else _direction(rng, d)
    points[-2:] = rng.choice([-1.0, 1.0]) * np.array([[1.0], [-1.0]]) * u
    points[-2:] += 0.3 * rng.random() * rng.normal(size=(2, d))
    arm[-1] = 1 - arm[-2]
    return points, arm, share


def _across(rng: np.random.Generator, d: int) -> _Raw:
    """Records along u and a few against it, both split sideways; one jumps between the sides."""
    u, v = _direction(rng, d), _direction(rng, d)
    along, against, split, spread = rng.random(4)
    points = np.stack([along * u + split * v, along * u - split * v, spread * v - against * u])
    points = np.vstack([points, -spread * v - against * u, v - rng.random() * u, -v - rng.random() * u])
    part = rng.random()
    arm = np.full(CLUSTERS + 2, int(rng.integers(0, 2)))
    swapped = rng.random(CLUSTERS + 2) < 0.5
    # (x, a) and (-x, 1 - a) are alike to a logistic coefficient
    return (
        np.where(swapped[:, None], -points, points),
        np.where(swapped, 1 - arm, arm),
        np.array([part, part, 1 - part, 1 - part]) / 2,
    )


def _with_both_arms(points: Array, arm: NDArray[np.int64], share: Array) -> _Raw:
    """The same, where no arm of the common records is empty."""
    present = np.flatnonzero(share > 0)
    if len(np.unique(arm[present])) == 1:
        place = present[-1] if len(present) > 1 else (present[0] + 1) % CLUSTERS
        arm[place] = 1 - arm[present[0]]
        share[place] = max(share[place], 1e-3)
    return points, arm, share


#: Families of starts by name.
FAMILIES: dict[str, Callable[[np.random.Generator, int], _Raw]] = {
    "anywhere": _anywhere,
    "collinear": _collinear,
    "one-sided": _one_sided,
    "separable": _separable,
    "nearly empty arm": _nearly_empty,
    "jump along the coefficient": _jump,
    "across": _across,
}


def structured_starts(universe: Universe, number: int, rng: np.random.Generator) -> Groups:
    """``number`` pairs drawn from all families in turn."""
    makers = list(FAMILIES.values())
    raw = [makers[index % len(makers)](rng, universe.n_features) for index in range(number)]
    if (universe.domain.arm_floor or 0) > 1:
        raw = [_with_both_arms(*each) for each in raw]
    points, arm, share = map(np.stack, zip(*raw, strict=True))
    return admitted(universe, points * universe.domain.features_bound, arm, share)


def evolve(
    objective: Callable[[Array], Array],
    start: Array,
    step: float,
    evaluations: int,
    rng: np.random.Generator,
    *,
    patience: int = 30,
) -> tuple[Array, float, int]:
    """The best candidate (d,) met, its value, and how many were tried, at most ``evaluations``.

    ``objective`` maps candidates (b, d) to values (b,); NaN where one is not admitted.

    (mu/mu_w, lambda)-CMA-ES from ``start`` (d,) with initial ``step`` (Hansen 2016, The CMA evolution
    strategy: a tutorial, with its default constants). It ends early after ``patience`` generations that gain
    less than 1e-6 of the value.
    """
    d = len(start)
    size = 4 + int(3 * math.log(d))
    parents = size // 2
    weights = math.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    weights /= weights.sum()
    mass = 1.0 / float(np.sum(weights**2))
    c_path = (4 + mass / d) / (d + 4 + 2 * mass / d)
    c_step = (mass + 2) / (d + mass + 5)
    c_one = 2 / ((d + 1.3) ** 2 + mass)
    c_many = min(1 - c_one, 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass))
    damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (d + 1)) - 1) + c_step
    expected = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2))
    mean, covariance = start.copy(), np.eye(d)
    path, step_path = np.zeros(d), np.zeros(d)
    best, largest, spent, gained, generation = start, -math.inf, 0, 0, 0
    while spent + size <= evaluations and generation - gained < patience and 1e-9 < step < 1e4:
        generation += 1
        scale, basis = np.linalg.eigh(covariance)
        root = basis * np.sqrt(np.maximum(scale, 1e-20))
        normal = rng.standard_normal((size, d))
        moves = normal @ root.T
        values = np.nan_to_num(objective(mean + step * moves), nan=-np.inf, posinf=-np.inf)
        spent += size
        order = np.argsort(-values, kind="stable")[:parents]
        top = float(values[order[0]])
        if top > largest:
            if not top <= largest + 1e-6 * abs(largest):
                gained = generation
            best, largest = mean + step * moves[order[0]], top
        shift = weights @ moves[order]
        mean = mean + step * shift
        turned = basis @ (weights @ normal[order])
        step_path = (1 - c_step) * step_path + math.sqrt(c_step * (2 - c_step) * mass) * turned
        length = float(np.linalg.norm(step_path))
        usual = length / math.sqrt(1 - (1 - c_step) ** (2 * generation)) < (1.4 + 2 / (d + 1)) * expected
        path = (1 - c_path) * path + usual * math.sqrt(c_path * (2 - c_path) * mass) * shift
        chosen = moves[order]
        covariance = (
            (1 - c_one - c_many) * covariance
            + c_one * (np.outer(path, path) + (1 - usual) * c_path * (2 - c_path) * covariance)
            + c_many * (chosen.T * weights) @ chosen
        )
        covariance = 0.5 * (covariance + covariance.T)
        step *= math.exp(min(1.0, c_step / damping * (length / expected - 1)))
    return best, largest, spent
