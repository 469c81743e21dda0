"""How far columns decide an arm, or follow an outcome: figures of a sample, for the data holder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array

#: Records whose pairs are compared by their order, half of them at the most frequent value of a
#: column.
COMPARED = 300
#: Records that are compared first.
_FIRST = 60
#: Values of a column beyond which it is cut into bins, and the number of bins.
_MOST_VALUES = 50
_BINS = 20
#: A value that as large a share of records has keeps a bin of its own.
_SPIKE = 0.02


@dataclass(frozen=True)
class SampleMoments:
    """Correlations of the columns of a sample, from its sums alone.

    Parameters
    ----------
    correlation
        (q, q), 0 where a column is constant.
    varies
        (q,) whether a column varies.
    n
        Independent records: persons where the rows are of fewer of them.
    """

    correlation: Array
    varies: NDArray[np.bool_]
    n: int

    @classmethod
    def of(cls, columns: Array, n: int | None = None) -> SampleMoments:
        """The correlations of columns (m, q), in any units."""
        centered = columns - columns.mean(axis=0)
        size = np.sqrt(np.einsum("ij,ij->j", centered, centered) / len(columns))
        varies = size > 1e-9 * np.maximum(np.abs(columns).max(axis=0), 1e-300)
        centered *= np.where(varies, 1.0 / np.where(varies, size, 1.0), 0.0)
        return cls(centered.T @ centered / len(columns), varies, len(columns) if n is None else n)

    def explained(self, columns: Sequence[int], target: int) -> tuple[float, int]:
        """Share of the variance of a target that a line in the columns explains.

        The rank of the columns comes with it.

        Parameters
        ----------
        columns, target
            Their numbers: collinear and constant columns cost nothing.

        Returns
        -------
        share
            R^2, adjusted for the rank: 0 on average where there is no relation. nan where there are
            fewer than ``2 rank + 10`` records.
        rank
            k, of the centered columns.
        """
        kept = [column for column in columns if self.varies[column]]
        if not kept or not self.varies[target]:
            return 0.0, 0
        towards = self.correlation[kept, target]
        if len(kept) == 1:
            rank = 1
            share = float(towards[0]) ** 2
        else:
            values, vectors = np.linalg.eigh(self.correlation[np.ix_(kept, kept)])
            inside = values > 1e-8 * values[-1]
            rank = int(inside.sum())
            share = float(np.sum((vectors[:, inside].T @ towards) ** 2 / values[inside]))
        if self.n < 2 * rank + 10:
            return math.nan, rank
        share = min(share, 1.0)
        return 1.0 - (1.0 - share) * (self.n - 1) / (self.n - rank - 1), rank


def distance(share: float, treated: float) -> float:
    """How many standard deviations within arms the means of two arms lie apart.

    Parameters
    ----------
    share
        R^2 of the line that predicts the arm.
    treated
        p in (0, 1), the share of records in it.

    Returns
    -------
    ``sqrt(R^2 / ((1 - R^2) p (1 - p)))``, of the combination of columns that predicts the arm best;
    infinite where the arm is decided.
    """
    share = min(max(share, 0.0), 1.0)
    if share > 1.0 - 1e-9:
        return math.inf
    return math.sqrt(share / ((1.0 - share) * treated * (1.0 - treated)))


def pooled_within(declared: float, treated: float) -> float:
    """A distance in standard deviations of all records, as it is declared, in those within arms.

    Infinite from ``1 / sqrt(p (1 - p))`` on, which no distance of two arms reaches.
    """
    room = 1.0 - treated * (1.0 - treated) * declared**2
    return declared / math.sqrt(room) if room > 0.0 else math.inf


@dataclass(frozen=True)
class Values:
    """The values of a column.

    Parameters
    ----------
    known, times
        The different values in increasing order, and how many records have each.
    """

    known: Array
    times: NDArray[np.int64]

    @classmethod
    def of(cls, column: Array) -> Values:
        """The values of a column (m,)."""
        return cls(*np.unique(column, return_counts=True))

    @property
    def most_frequent(self) -> tuple[float, float]:
        """The most frequent value, and the share of records that have it."""
        place = int(np.argmax(self.times))
        return float(self.known[place]), float(self.times[place]) / float(self.times.sum())

    @property
    def never_repeat(self) -> bool:
        """Whether each of the values is a whole number that stands there once, as line numbers."""
        once = len(self.known) > 2 and int(self.times.max()) == 1
        return once and bool(np.all(self.known == np.round(self.known)))

    @property
    def collision(self) -> float:
        """Chance that two records have the same value."""
        n = float(self.times.sum())
        return float(np.sum(self.times * (self.times - 1.0))) / (n * (n - 1.0))


def ordered(column: Array, target: Array, frequent: float) -> float:
    """Share of the pairs of records that a column orders as the target, or the other way.

    Pairs that are tied in either do not count. nan where fewer than 500 pairs are compared, or
    fewer than 20 records lie off the column's most ``frequent`` value.
    """
    off = column != frequent
    order = _shuffled(len(column))
    apart = order[off[order]]
    if len(apart) < 20:
        return math.nan
    alike = order[~off[order]]
    first, _ = _compared(column, target, _rows(apart, alike, _FIRST))
    if first < 0.9:  # which saves the others
        return first
    share, pairs = _compared(column, target, _rows(apart, alike, COMPARED))
    return share if pairs >= 500 else math.nan


def _rows(apart: NDArray[np.intp], alike: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Some records, at most half of them at the most frequent value."""
    alike = alike[: most // 2]
    return np.concatenate([apart[: most - len(alike)], alike])


def _compared(column: Array, target: Array, rows: NDArray[np.intp]) -> tuple[float, int]:
    """Share of the pairs of records that both order alike, or the other way, and their number."""
    rows = rows[np.argsort(target[rows], kind="stable")]
    own = column[rows]
    other = target[rows]
    later = other[:, None] < other[None, :]
    up = int(np.sum((own[:, None] < own[None, :]) & later))
    down = int(np.sum((own[:, None] > own[None, :]) & later))
    return max(up, down) / max(up + down, 1), up + down


@lru_cache(maxsize=4)
def _shuffled(m: int) -> NDArray[np.intp]:
    """The numbers of m records in an order that has nothing to do with them."""
    return np.random.default_rng(0).permutation(m)


def by_value(column: Array, target: Array) -> float:
    """Adjusted share of the variance of a target that lies between the values of a column.

    Of more than 50 values between bins: each value that 2 % of records have, and twentieths of the
    rest.
    """
    _, codes = np.unique(column, return_inverse=True)
    if codes.max() >= _MOST_VALUES:
        values, times = np.unique(column, return_counts=True)
        spikes = values[times > _SPIKE * len(column)]
        rest = ~np.isin(column, spikes)
        codes = np.searchsorted(spikes, column) + _BINS
        if rest.any():
            cuts = np.unique(np.quantile(column[rest], np.linspace(0.0, 1.0, _BINS + 1)[1:-1]))
            codes[rest] = np.searchsorted(cuts, column[rest], side="right")
    members = np.bincount(codes)
    used = members > 0
    means = np.bincount(codes, target)[used] / members[used]
    groups = int(used.sum())
    total = float(target.var()) * len(target)
    if total == 0.0 or len(target) <= groups + 1:
        return 0.0
    share = float(np.sum(members[used] * (means - target.mean()) ** 2)) / total
    return 1.0 - (1.0 - share) * (len(target) - 1) / (len(target) - groups)


def bent(columns: Array, arm: Array, outcome: Array) -> list[tuple[int, int]]:
    """Pairs of columns whose product matters for the arm and for the outcome.

    The square of a column is a product too, and all lines are there beside it.

    Parameters
    ----------
    columns
        (m, p) numbers, at most some ten.
    arm, outcome
        (m,), the arm as 0 or 1.

    Returns
    -------
    Pairs of numbers of columns, of equal ones for a square: the partial R^2 of the product with
    either is above .02, and above what chance gives.
    """
    m = len(arm)
    size = columns.std(axis=0)
    standardized = (columns - columns.mean(axis=0)) / np.where(size > 0.0, size, 1.0)
    first, second = np.triu_indices(columns.shape[1])
    products = standardized[:, first] * standardized[:, second]
    lines = np.column_stack([np.ones(m), standardized])
    scales, vectors = np.linalg.eigh(lines.T @ lines)
    inside = scales > 1e-10 * scales[-1]
    basis = lines @ (vectors[:, inside] / np.sqrt(scales[inside]))

    def left(values: Array) -> Array:
        return np.asarray(values - basis @ (basis.T @ values))

    rest = left(products)
    own_arm = left(arm)
    own_outcome = left(outcome)
    arm_size = float(own_arm @ own_arm)
    if arm_size > 1e-9 * m:  # the outcome given the arm
        own_outcome = own_outcome - own_arm * (float(own_arm @ own_outcome) / arm_size)
    sizes = np.einsum("ij,ij->j", rest, rest)
    limit = 0.02 + 10.0 / m
    found = np.ones(len(first), dtype=np.bool_)
    for target in (own_arm, own_outcome):
        scale = float(target @ target) * sizes
        squared = (target @ rest) ** 2
        found &= squared > limit * np.maximum(scale, 1e-9 * m)
    return [(int(first[place]), int(second[place])) for place in np.flatnonzero(found)]
