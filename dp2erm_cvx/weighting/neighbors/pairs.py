"""Squares of kernel features at many neighbors of one dataset, by pairs of records.

A new record adds one row to the products of the others. Its features are not in their span, and
need not be.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.forms.form import Arms
from dp2erm_cvx.weighting.neighbors.many_datasets import Numbers
from dp2erm_cvx.weighting.neighbors.records import NeighboringRecords, ReplacedRecords
from dp2erm_cvx.weighting.solving.dataset import (
    MEAN_TARGETS,
    PUBLIC_TARGET,
    SUM_TARGETS,
    Similarities,
    WeightingData,
    kernel_of,
    push_size,
    rows_of_records,
    vectors_of_records,
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
        self.arm_sums: dict[tuple[str, int], Array] = {}
        for squares in data.similarities:
            for arm in _arms_of_means(squares):
                self.arm_sums[squares.features.name, arm] = self._sums_over(squares, arm)

    def replaced(self, index: Numbers, new_records: Records) -> ReplacedPairs:
        """What m new records change, each in the place of one of the dataset.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        new_records
            The m new records.
        """
        vectors = vectors_of_records(self.form, new_records)
        common = self.replaced_records(index, new_records, vectors)
        products = self._of_vectors(common, rows_of_records(self.form, vectors, new_records.a))
        for squares in self.data.similarities:
            products = products.plus(self._of_kernel(squares, index, new_records))
        # The record that leaves has no weight: its place is that of the new one.
        products.across[common.places] = 0.0
        products.pulled[common.places] = products.own_pulled
        largest = np.maximum(self.pairs.largest, products.own * ROUND_UP)
        units = self.pairs.units + _MORE_UNITS * UNIT
        shared = common.by_field()
        # Prices of squares are made of products of rows, and no column of an imbalance is left.
        shared["targets"] = np.zeros((len(index), 0))
        shared["target_errors"] = np.zeros((len(index), 0))
        return ReplacedPairs(
            **shared,
            across=products.across,
            own=products.own,
            pulled=products.pulled,
            largest=largest,
            entry_error=units * largest * ROUND_UP,
            target_error=(units * products.target_size + products.target_error) * ROUND_UP,
        )

    def arguments(self, weights: Array, multipliers: Array, part: ReplacedPairs) -> Array:
        """Arguments (m, n) of inverse slopes, at weights (m, n) and multipliers (m, B)."""
        new_weight = weights[part.places]
        staying = weights.copy()
        staying[part.places] = 0.0
        argument = part.pulled - staying @ self.pairs.Q
        argument -= new_weight[:, None] * part.across
        argument -= self.data.linear
        argument -= self.levels(multipliers, part)
        own_product = np.sum(part.across * staying, axis=1) + part.own * new_weight
        own_argument = part.pulled[part.places] - own_product - part.linear
        argument[part.places] = own_argument - self.own_levels(multipliers, part)
        return np.asarray(argument)

    def argument_sizes(self, prices: Array, multipliers: Array, part: ReplacedPairs) -> Array:
        size = np.tile(np.abs(self.data.linear), (len(part), 1))
        size[part.places] = np.abs(part.linear)
        return np.asarray(size + self.levels(multipliers, part))

    def price_errors(self, weights: Array, part: ReplacedPairs) -> Array:
        mass = np.sum(weights, axis=1) * ROUND_UP
        return np.asarray((part.entry_error * mass + part.target_error)[:, None] * ROUND_UP)

    def row_norms(self, columns: slice, part: ReplacedPairs) -> Array:
        return np.zeros((len(part), self.n))

    def reached(self, weights: Array, part: ReplacedPairs) -> tuple[Array, Array]:
        no_columns = np.zeros((len(part), 0))
        return no_columns, no_columns

    @property
    def reached_units(self) -> float:
        return 0.0

    def row_sizes(self, part: ReplacedPairs) -> tuple[Array, Array]:
        row = np.sqrt(part.largest) * ROUND_UP
        return row, 2.0 * row

    def kink_widths(self, place: int, part: ReplacedPairs) -> Array:
        return np.zeros(len(part))

    def _of_vectors(self, common: ReplacedRecords, rows: Array) -> _Products:
        """The products of vectors, beside what all records are pulled by in the dataset itself."""
        scaled = rows * self.root
        base = self.data.targets[: self.data.vector_columns] * self.root
        targets = common.targets * self.root
        lengths = np.linalg.norm(scaled, axis=1)
        longest = np.maximum(self.longest, lengths) * ROUND_UP
        moved = targets - base
        sizes = 2.0 * np.linalg.norm(np.abs(base) + np.abs(targets), axis=1)
        target_errors = np.linalg.norm(self.root * common.target_errors, axis=1)
        return _Products(
            across=scaled @ self.rows.T,
            own=np.square(lengths),
            pulled=self.pairs.b + moved @ self.rows.T,
            own_pulled=np.sum(scaled * targets, axis=1),
            target_size=longest * sizes,
            target_error=longest * target_errors * ROUND_UP,
        )

    def _of_kernel(self, squares: Similarities, index: Numbers, new_records: Records) -> _Products:
        """What features of a kernel add to the products of new records."""
        rows = self._kernel_rows(squares, index, new_records)
        arms = rows.arms
        pulled = self._pulled_by_records(squares.push, rows)
        own_pulled = self._own_pulled_by_records(squares.push, rows)
        largest = np.maximum(squares.largest, rows.diagonal)
        points = squares.features.points
        if points is not None:
            kernel = kernel_of(squares.features)
            at_points = np.mean(kernel.cross(new_records.covariates, points), axis=1)
            own_pulled += squares.push[arms, PUBLIC_TARGET] * self.n * at_points
            largest = np.maximum(largest, float(np.max(squares.at_points)))
        for arm in _arms_of_means(squares):
            factors = squares.push[:, MEAN_TARGETS][:, arm]
            moved, n_per_record = self._moved_mean(squares.features.name, arm, rows)
            pulled += factors[self.arms] * moved
            own_pulled += factors[arms] * n_per_record * self._own_arm_sums(arm, rows)
        return _Products(
            across=squares.pull[arms][:, self.arms] * rows.new,
            own=squares.pull[arms, arms] * rows.diagonal,
            pulled=pulled,
            own_pulled=own_pulled,
            target_size=self._target_terms(squares.push) * largest,
            target_error=np.zeros(len(index)),
        )

    def _kernel_rows(
        self, squares: Similarities, index: Numbers, new_records: Records
    ) -> _KernelRows:
        """The kernel of the records that come and go."""
        kernel = kernel_of(squares.features)
        X = self.records.covariates
        return _KernelRows(
            index=index,
            new=kernel.cross(new_records.covariates, X),
            replaced=kernel.cross(X[index], X),
            diagonal=kernel.diagonal(new_records.covariates),
            arms=new_records.a,
            replaced_arms=self.arms[index],
        )

    def _pulled_by_records(self, push: Array, rows: _KernelRows) -> Array:
        """Changes (m, n) of the products of rows and targets of records.

        ``b_i' - b_i = p'_{a_i a'} K(x_i, x') - p'_{a_i a_j} K(x_i, x_j)`` for the new record x' and
        the record j that it replaces.
        """
        factors = push[self.arms]
        comes = factors[:, rows.arms].T * rows.new
        goes = factors[:, rows.replaced_arms].T * rows.replaced
        return np.asarray(comes - goes)

    def _own_pulled_by_records(self, push: Array, rows: _KernelRows) -> Array:
        """Products (m,) of the rows of the new records and of the targets of records."""
        arms = rows.arms
        terms = push[arms][:, self.arms] * rows.new
        terms[rows.places] = push[arms, arms] * rows.diagonal
        return np.asarray(np.sum(terms, axis=1))

    def _moved_mean(self, name: str, arm: int, rows: _KernelRows) -> tuple[Array, Array]:
        """Movement (m, n) of n times the mean of the kernel over an arm, and n over its size (m,).

        Parameters
        ----------
        name
            Name of the features of the kernel.
        arm
            The arm.
        rows
            The kernel of the records that come and go.
        """
        sums = self.arm_sums[name, arm]
        comes = rows.arms == arm
        goes = rows.replaced_arms == arm
        change = comes[:, None] * rows.new - goes[:, None] * rows.replaced
        size = float(np.sum(self.arms == arm))
        sizes = size + comes - goes
        n_per_record = self.n / np.maximum(sizes, 1.0)
        moved = n_per_record[:, None] * (sums + change) - self.n / max(size, 1.0) * sums
        return np.asarray(moved), np.asarray(n_per_record)

    def _own_arm_sums(self, arm: int, rows: _KernelRows) -> Array:
        """Sums (m,) of the kernel of the new record and of all of an arm, itself among them."""
        of_arm = (self.arms == arm) * rows.new
        of_arm[rows.places] = (rows.arms == arm) * rows.diagonal
        return np.asarray(np.sum(of_arm, axis=1))

    def _target_terms(self, push: Array) -> float:
        """Bound of the sum of the sizes of the factors of a kernel in a product with targets.

        Beside those of the dataset, two records come and go in the targets of records, and four
        sums are made into means.
        """
        sizes = np.abs(push)
        terms = push_size(push) * self.n + 2.0 * float(np.max(sizes[:, SUM_TARGETS]))
        return terms + 4.0 * self.n * float(np.max(np.sum(sizes[:, MEAN_TARGETS], axis=1)))

    def _sums_over(self, squares: Similarities, arm: int) -> Array:
        """Sums (n,) of the kernel of a record and all of an arm."""
        X = self.records.covariates
        of_arm = kernel_of(squares.features).cross(X, X[self.arms == arm])
        return np.asarray(np.sum(of_arm, axis=1))


def _arms_of_means(squares: Similarities) -> list[int]:
    """The arms whose mean of the kernel is a target."""
    means = squares.push[:, MEAN_TARGETS]
    return [arm for arm in (0, 1) if np.any(means[:, arm] != 0.0)]


@dataclass(frozen=True)
class _KernelRows:
    """The kernel of the records that come and go, in m neighbors of a dataset.

    Parameters
    ----------
    index
        Numbers of the replaced records (m,).
    new, replaced
        The kernel (m, n) of the new and of the replaced records, and all of the dataset.
    diagonal
        The kernel (m,) of every new record and itself.
    arms, replaced_arms
        Treatment (m,) of the new and of the replaced records.
    """

    index: Numbers
    new: Array
    replaced: Array
    diagonal: Array
    arms: Arms
    replaced_arms: Arms

    @property
    def places(self) -> tuple[Numbers, Numbers]:
        """Where the new records stand in numbers (m, n) of all records."""
        return np.arange(len(self.index)), self.index


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
