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
#: Share of a size below which a difference may be a rounding of sums over records.
_ROUNDING = 1e-9
#: The least size that a column is measured by: of zeros alone it would be 0.
_LEAST_SIZE = 1e-300
#: Eigenvalues of correlations below this share of the largest are those of collinear columns.
_COLLINEAR = 1e-8
#: The same of sums of products, which are not scaled by the numbers of records.
_DEPENDENT = 1e-10


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
        """The correlations of columns (m, q), in any units.

        Parameters
        ----------
        columns
            The columns.
        n
            Independent records; default: m.
        """
        if n is None:
            n = len(columns)
        centered = columns - columns.mean(axis=0)
        deviation = np.sqrt(np.einsum("ij,ij->j", centered, centered) / len(columns))
        largest = np.maximum(np.abs(columns).max(axis=0), _LEAST_SIZE)
        varies = deviation > _ROUNDING * largest
        centered *= np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
        return cls(centered.T @ centered / len(columns), varies, n)

    def explained(self, columns: Sequence[int], target: int) -> tuple[float, int]:
        """Share of the variance of a target that a line in the columns explains, and their rank.

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
        varying = [column for column in columns if self.varies[column]]
        if not varying or not self.varies[target]:
            return 0.0, 0
        with_target = self.correlation[varying, target]
        if len(varying) == 1:
            rank = 1
            share = float(with_target[0]) ** 2
        else:
            # R^2 = r' C^-1 r on the eigenvectors v of the correlations C: the sum of (v'r)^2/lambda
            eigenvalues, eigenvectors = np.linalg.eigh(self.correlation[np.ix_(varying, varying)])
            is_used = eigenvalues > _COLLINEAR * eigenvalues[-1]
            rank = int(is_used.sum())
            projections = eigenvectors[:, is_used].T @ with_target
            share = float(np.sum(projections**2 / eigenvalues[is_used]))
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
    float
        ``sqrt(R^2 / ((1 - R^2) p (1 - p)))``, of the combination of columns that predicts the arm
        best; infinite where the arm is decided.
    """
    share = min(max(share, 0.0), 1.0)
    if share > 1.0 - _ROUNDING:
        return math.inf
    return math.sqrt(share / ((1.0 - share) * treated * (1.0 - treated)))


def pooled_within(declared: float, treated: float) -> float:
    """A distance in standard deviations of all records, as it is declared, in those within arms.

    Infinite from ``1 / sqrt(p (1 - p))`` on, which no distance of two arms reaches.
    """
    share_within = 1.0 - treated * (1.0 - treated) * declared**2
    if share_within <= 0.0:
        return math.inf
    return declared / math.sqrt(share_within)


@dataclass(frozen=True)
class Values:
    """The values of a column.

    Parameters
    ----------
    distinct, times
        The different values in increasing order, and how many records have each.
    """

    distinct: Array
    times: NDArray[np.int64]

    @classmethod
    def of(cls, column: Array) -> Values:
        """The values of a column (m,)."""
        return cls(*np.unique(column, return_counts=True))

    @property
    def most_frequent(self) -> tuple[float, float]:
        """The most frequent value, and the share of records that have it."""
        place = int(np.argmax(self.times))
        return float(self.distinct[place]), float(self.times[place]) / float(self.times.sum())

    @property
    def never_repeat(self) -> bool:
        """Whether each of the values is a whole number that stands there once, as line numbers."""
        once = len(self.distinct) > 2 and int(self.times.max()) == 1
        return once and bool(np.all(self.distinct == np.round(self.distinct)))

    @property
    def collision(self) -> float:
        """Chance that two records have the same value."""
        n = float(self.times.sum())
        return float(np.sum(self.times * (self.times - 1.0))) / (n * (n - 1.0))


def ordered(column: Array, target: Array, frequent: float) -> float:
    """Share of the pairs of records that a column orders as the target, or the other way.

    Pairs that are tied in either do not count.

    Parameters
    ----------
    column, target
        Their values (m,).
    frequent
        The most frequent value of the column.

    Returns
    -------
    float
        nan where fewer than 500 pairs are compared, or fewer than 20 records lie off the most
        frequent value.
    """
    is_off = column != frequent
    order = _shuffled(len(column))
    off_value = order[is_off[order]]
    if len(off_value) < 20:
        return math.nan
    at_value = order[~is_off[order]]
    first_share, _ = _compared(column, target, _rows(off_value, at_value, _FIRST))
    if first_share < 0.9:  # which saves the others
        return first_share
    share, n_pairs = _compared(column, target, _rows(off_value, at_value, COMPARED))
    return share if n_pairs >= 500 else math.nan


def _rows(off_value: NDArray[np.intp], at_value: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """At most so many records, of which at most half lie at the most frequent value."""
    at_value = at_value[: most // 2]
    return np.concatenate([off_value[: most - len(at_value)], at_value])


def _compared(column: Array, target: Array, rows: NDArray[np.intp]) -> tuple[float, int]:
    """Share of the pairs of records that both order alike, or the other way, and their number."""
    rows = rows[np.argsort(target[rows], kind="stable")]
    values = column[rows]
    targets = target[rows]
    target_rises = targets[:, None] < targets[None, :]
    n_alike = int(np.sum((values[:, None] < values[None, :]) & target_rises))
    n_opposed = int(np.sum((values[:, None] > values[None, :]) & target_rises))
    n_pairs = n_alike + n_opposed
    return max(n_alike, n_opposed) / max(n_pairs, 1), n_pairs


@lru_cache(maxsize=4)
def _shuffled(m: int) -> NDArray[np.intp]:
    """The numbers of m records in an order that has nothing to do with them."""
    return np.random.default_rng(0).permutation(m)


def by_value(column: Array, target: Array) -> float:
    """Adjusted share of the variance of a target that lies between the values of a column.

    Parameters
    ----------
    column, target
        Their values (m,).

    Returns
    -------
    float
        1 - (1 - S) (m - 1)/(m - g), where S is the share of the variance between the means of the g
        values. More than 50 values are cut into bins: each value that 2 % of records have, and
        twentieths of the others.
    """
    codes = _codes(column)
    n_members = np.bincount(codes)
    is_used = n_members > 0
    means = np.bincount(codes, target)[is_used] / n_members[is_used]
    n_values = int(is_used.sum())
    n_records = len(target)
    total = float(target.var()) * n_records
    if total == 0.0 or n_records <= n_values + 1:
        return 0.0
    share = float(np.sum(n_members[is_used] * (means - target.mean()) ** 2)) / total
    return 1.0 - (1.0 - share) * (n_records - 1) / (n_records - n_values)


def _codes(column: Array) -> NDArray[np.intp]:
    """The number (m,) of the value of every record, or of its bin where there are many values."""
    values, codes, times = np.unique(column, return_inverse=True, return_counts=True)
    if len(values) <= _MOST_VALUES:
        return codes
    spikes = values[times > _SPIKE * len(column)]
    is_other = ~np.isin(column, spikes)
    codes = np.searchsorted(spikes, column) + _BINS
    if is_other.any():
        others = column[is_other]
        cuts = np.unique(np.quantile(others, np.linspace(0.0, 1.0, _BINS + 1)[1:-1]))
        codes[is_other] = np.searchsorted(cuts, others, side="right")
    return codes


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
    list of pairs
        Numbers of two columns, equal ones for a square: the partial R^2 of the product with either
        is above .02, and above what chance gives.
    """
    m = len(arm)
    deviation = columns.std(axis=0)
    centered = columns - columns.mean(axis=0)
    standardized = centered / np.where(deviation > 0.0, deviation, 1.0)
    first, second = np.triu_indices(columns.shape[1])
    lines = np.column_stack([np.ones(m), standardized])
    basis = _basis(lines)

    def beyond_lines(values: Array) -> Array:
        return np.asarray(values - basis @ (basis.T @ values))

    products = beyond_lines(standardized[:, first] * standardized[:, second])
    arm_residual = beyond_lines(arm)
    outcome_residual = beyond_lines(outcome)
    arm_square = float(arm_residual @ arm_residual)
    if arm_square > _ROUNDING * m:  # the outcome given the arm
        slope = float(arm_residual @ outcome_residual) / arm_square
        outcome_residual = outcome_residual - arm_residual * slope
    product_squares = np.einsum("ij,ij->j", products, products)
    limit = 0.02 + 10.0 / m
    matters = np.ones(len(first), dtype=np.bool_)
    for residual in (arm_residual, outcome_residual):
        # the partial R^2 is (r'q)^2/(r'r q'q) of the residual r and the product q beyond lines
        scale = float(residual @ residual) * product_squares
        squared = (residual @ products) ** 2
        matters &= squared > limit * np.maximum(scale, _ROUNDING * m)
    return [(int(first[place]), int(second[place])) for place in np.flatnonzero(matters)]


def _basis(columns: Array) -> Array:
    """An orthonormal basis (m, rank) of what columns (m, q) span."""
    eigenvalues, eigenvectors = np.linalg.eigh(columns.T @ columns)
    is_used = eigenvalues > _DEPENDENT * eigenvalues[-1]
    return np.asarray(columns @ (eigenvectors[:, is_used] / np.sqrt(eigenvalues[is_used])))
