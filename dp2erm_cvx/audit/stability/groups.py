"""Neighbors as a few distinct records with multiplicities, many of them side by side."""

from __future__ import annotations

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


def clipped(universe: Universe, points: Array) -> Array:
    """Points (..., d) pulled into the ball of the covariates."""
    norm = np.linalg.norm(points, axis=-1, keepdims=True)
    inside = universe.domain.features_bound * (1.0 - 1e-12)
    pulled: Array = points * np.minimum(1.0, inside / np.maximum(norm, 1e-300))
    return pulled


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
        ends = []
        for after in (False, True):
            rows, arm, _ = self.dataset(after)
            ends.append(
                records_at(
                    universe, np.repeat(rows[index], repeats, axis=0), np.repeat(arm[index], repeats, axis=0)
                )
            )
        return ends[0], ends[1]


def joined(parts: list[Groups]) -> Groups:
    """All pairs of all parts."""
    return Groups(
        np.concatenate([part.points for part in parts]),
        np.concatenate([part.arm for part in parts]),
        np.concatenate([part.count for part in parts]),
    )


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
    return Groups(clipped(universe, points), arm, count)


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
