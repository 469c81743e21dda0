"""Squares of kernel features at many neighbors of one dataset, by pairs of records.

A new record adds one row to the products of the others. Its features are not in their span, and
need not be.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.forms.form import Arms
from dp2erm_cvx.weighting.neighbors.many_datasets import Numbers
from dp2erm_cvx.weighting.neighbors.records import NeighboringRecords, ReplacedRecords
from dp2erm_cvx.weighting.solving.dataset import (
    OUTWARD,
    Similarities,
    WeightingData,
    push_size,
    rows_of_records,
)
from dp2erm_cvx.weighting.solving.pairs import PairsProblem

#: Further units of roundoff of a price: for the terms of a new record, and of its sum with others.
_MORE_UNITS = 24.0


@dataclass(frozen=True)
class ReplacedPairs(ReplacedRecords):
    """Neighbors that differ from one dataset in one record each, with the products of its row.

    Parameters
    ----------
    across
        Products (m, n) of the row of the new record and of those that stay; 0 at the one that
        leaves.
    own
        Square (m,) of the norm of the row of the new record.
    pulled
        Products (m, n) of the rows of all records and of the sum of the targets.
    largest
        Bound (m,) of the squares of the norms of all rows.
    entry_error, target_error
        Errors (m,) of a price per unit of ``|w|_1``, and of the targets in it.
    """

    across: Array
    own: Array
    pulled: Array
    largest: Array
    entry_error: Array
    target_error: Array


class NeighboringPairs(NeighboringRecords[ReplacedPairs]):
    """A dataset with features of kernels, of which neighbors differ in one record each.

    Parameters
    ----------
    data
        The dataset; all its prices are squares.
    pairs
        Products of the rows of its records.
    records
        Its records.
    """

    def __init__(self, data: WeightingData, pairs: PairsProblem, records: Records) -> None:
        super().__init__(data, records, ())
        self.pairs = pairs
        columns = slice(0, data.vector_columns)
        #: Roots (K,) of the smoothness of the prices of vectors.
        self.root: Array = np.sqrt(data.smoothness[columns])
        self.rows: Array = data.rows[:, columns] * self.root
        self.longest = float(np.max(np.linalg.norm(self.rows, axis=1), initial=0.0))
        #: Sums (n,) of a kernel over the records of an arm whose mean is a target, by kernel and
        #: arm.
        self.arm_sums = {
            (one.features.name, arm): self._sums_over(one, arm)
            for one in data.similarities
            for arm in _arms_of_means(one)
        }

    def replaced(self, index: Numbers, new_records: Records) -> ReplacedPairs:
        """What m new records change, each in the place of one of the dataset.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        new_records
            The m new records.
        """
        vectors = self.vectors_of(new_records)
        common = self.replaced_records(index, new_records, vectors)
        products = self._of_vectors(common, rows_of_records(self.form, vectors, new_records.a))
        for one in self.data.similarities:
            products = products.plus(self._of_kernel(one, index, new_records))
        # The record that leaves has no weight: its place is that of the new one.
        products.across[common.places] = 0.0
        products.pulled[common.places] = products.own_pulled
        largest = np.maximum(self.pairs.largest, products.own * OUTWARD)
        units = self.pairs.units + _MORE_UNITS * UNIT
        known = common.known()
        # Prices of squares are made of products of rows, and no column of an imbalance is left.
        known["targets"] = np.zeros((len(index), 0))
        known["target_errors"] = np.zeros((len(index), 0))
        return ReplacedPairs(
            **known,
            across=products.across,
            own=products.own,
            pulled=products.pulled,
            largest=largest,
            entry_error=units * largest * OUTWARD,
            target_error=(units * products.target_size + products.target_error) * OUTWARD,
        )

    def _of_kernel(self, one: Similarities, index: Numbers, new_records: Records) -> _Products:
        """What features of a kernel add to the products of new records."""
        kernel = one.features.kernel
        assert kernel is not None
        X = self.records.covariates
        come = kernel.cross(new_records.covariates, X)
        gone = kernel.cross(X[index], X)
        own = kernel.diagonal(new_records.covariates)
        arms = new_records.a
        left = self.arms[index]
        pulled = one.push[self.arms][:, arms].T * come - one.push[self.arms][:, left].T * gone
        towards = one.push[arms][:, self.arms] * come
        towards[np.arange(len(index)), index] = one.push[arms, arms] * own
        own_pulled = np.sum(towards, axis=1)
        largest = np.maximum(one.largest, own)
        if one.features.points is not None:
            at_points = np.mean(kernel.cross(new_records.covariates, one.features.points), axis=1)
            own_pulled += one.push[arms, 4] * self.n * at_points
            largest = np.maximum(largest, float(np.max(one.at_points)))
        for arm in _arms_of_means(one):
            factors = one.push[:, 2 + arm]
            change = (arms == arm)[:, None] * come - (left == arm)[:, None] * gone
            sums = self.arm_sums[one.features.name, arm]
            moved, own_mean = self._of_mean(sums, arm, index, arms, change)
            pulled += factors[self.arms] * moved
            inside = (self.arms == arm) * come
            inside[np.arange(len(index)), index] = (arms == arm) * own
            own_pulled += factors[arms] * own_mean * np.sum(inside, axis=1)
        sizes = np.abs(one.push)
        terms = push_size(one.push) * self.n + 2.0 * float(np.max(sizes[:, :2]))
        terms += 4.0 * self.n * float(np.max(np.sum(sizes[:, 2:4], axis=1)))
        return _Products(
            across=one.pull[arms][:, self.arms] * come,
            own=one.pull[arms, arms] * own,
            pulled=pulled,
            own_pulled=own_pulled,
            target_size=terms * largest,
            target_error=np.zeros(len(index)),
        )

    def _sums_over(self, one: Similarities, arm: int) -> Array:
        """Sums (n,) of the kernel of a record and all of an arm."""
        kernel = one.features.kernel
        assert kernel is not None
        X = self.records.covariates
        return np.asarray(np.sum(kernel.cross(X, X[self.arms == arm]), axis=1))

    def _of_mean(
        self, sums: Array, arm: int, index: Numbers, arms: Arms, change: Array
    ) -> tuple[Array, Array]:
        """Movement (m, n) of n times the mean of the kernel over an arm, and n over its size (m,).

        Parameters
        ----------
        sums
            Sums (n,) of the kernel over the arm in the dataset.
        arm
            The arm.
        index, arms
            Numbers (m,) of the replaced records, and arms (m,) of the new ones.
        change
            Changes (m, n) of the sums.
        """
        size = float(np.sum(self.arms == arm))
        sizes = size + (arms == arm) - (self.arms[index] == arm)
        factors = self.n / np.maximum(sizes, 1.0)
        moved = factors[:, None] * (sums + change) - self.n / max(size, 1.0) * sums
        return np.asarray(moved), np.asarray(factors)

    def _of_vectors(self, common: ReplacedRecords, rows: Array) -> _Products:
        """The products of vectors, beside what all records are pulled by in the dataset itself."""
        scaled = rows * self.root
        base = self.data.targets[: self.data.vector_columns] * self.root
        targets = common.targets * self.root
        lengths = np.linalg.norm(scaled, axis=1)
        longest = np.maximum(self.longest, lengths) * OUTWARD
        moved = targets - base
        sizes = 2.0 * np.linalg.norm(np.abs(base) + np.abs(targets), axis=1)
        return _Products(
            across=scaled @ self.rows.T,
            own=np.square(lengths),
            pulled=self.pairs.b + moved @ self.rows.T,
            own_pulled=np.sum(scaled * targets, axis=1),
            target_size=longest * sizes,
            target_error=longest
            * np.linalg.norm(self.root * common.target_errors, axis=1)
            * OUTWARD,
        )

    def arguments(self, weights: Array, multipliers: Array, part: ReplacedPairs) -> Array:
        """Arguments (m, n) of inverse slopes, at weights (m, n) and multipliers (m, B)."""
        own = weights[part.places]
        shared = weights.copy()
        shared[part.places] = 0.0
        argument = part.pulled - shared @ self.pairs.Q
        argument -= own[:, None] * part.across
        argument -= self.data.linear
        argument -= self.levels(multipliers, part)
        towards = np.sum(part.across * shared, axis=1) + part.own * own
        own_price = part.pulled[part.places] - towards - part.linear
        argument[part.places] = own_price - self.own_levels(multipliers, part)
        return np.asarray(argument)

    def argument_sizes(self, prices: Array, multipliers: Array, part: ReplacedPairs) -> Array:
        size = np.tile(np.abs(self.data.linear), (len(part), 1))
        size[part.places] = np.abs(part.linear)
        return np.asarray(size + self.levels(multipliers, part))

    def price_errors(self, weights: Array, part: ReplacedPairs) -> Array:
        mass = np.sum(weights, axis=1) * OUTWARD
        return np.asarray((part.entry_error * mass + part.target_error)[:, None] * OUTWARD)

    def row_norms(self, columns: slice, part: ReplacedPairs) -> Array:
        return np.zeros((len(part), self.n))

    def reached(self, weights: Array, part: ReplacedPairs) -> tuple[Array, Array]:
        nothing = np.zeros((len(part), 0))
        return nothing, nothing

    @property
    def reached_units(self) -> float:
        return 0.0

    def row_sizes(self, part: ReplacedPairs) -> tuple[Array, Array]:
        row = np.sqrt(part.largest) * OUTWARD
        return row, 2.0 * row

    def kink_widths(self, place: int, part: ReplacedPairs) -> Array:
        return np.zeros(len(part))


def _arms_of_means(one: Similarities) -> list[int]:
    """The arms whose mean of the kernel is a target."""
    means = one.push[:, 2:4]
    return [arm for arm in (0, 1) if np.any(means[:, arm] != 0.0)]


@dataclass(frozen=True)
class _Products:
    """Products of the rows of new records with those of others and with targets.

    Parameters
    ----------
    across, own
        As of :class:`ReplacedPairs`, before the record that leaves is taken out.
    pulled, own_pulled
        What they add to the products of rows and targets of the records (m, n), and of the new one
        (m,).
    target_size
        Sizes (m,) of all terms of a product with targets.
    target_error
        What rounding of the targets themselves may move it by (m,).
    """

    across: Array
    own: Array
    pulled: Array
    own_pulled: Array
    target_size: Array
    target_error: Array

    def plus(self, other: _Products) -> _Products:
        """The products of both."""
        return _Products(
            *(getattr(self, part.name) + getattr(other, part.name) for part in fields(self))
        )
