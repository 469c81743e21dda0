"""A weighting form at many neighbors of one dataset: what they share, and what one new record changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.weighting.dataset import (
    CHUNK,
    OUTWARD,
    WeightingData,
    boxes_of_records,
    rows_of_records,
    sum_units,
    targets_of_records,
    values_of_records,
)
from dp2erm_cvx.weighting.form import SumKind
from dp2erm_cvx.weighting.inverse_slope import UNIT_ROUNDOFF
from dp2erm_cvx.weighting.many_datasets import (
    MARGIN,
    OUTSIDE,
    DatasetsPart,
    ManyDatasets,
    Numbers,
    block_of_records,
    totals_of_blocks,
)
from dp2erm_cvx.weighting.means_of_arms import MeansOfArms

#: Numbers in the table of products of rows, up to which it is made: 64 MB.
_MOST_PRODUCTS = 2**23


@dataclass(frozen=True)
class ReplacedRecords(DatasetsPart):
    """Neighbors that differ from one dataset in one record each.

    Parameters
    ----------
    index
        Number of the replaced record (m,).
    rows
        Row of the new record (m, K).
    linear
        Number (m,) that is added to the slope of the new record.
    block
        Block (m,) of the new record, or ``OUTSIDE``.
    """

    index: Numbers
    rows: Array
    linear: Array
    block: Numbers


class NeighboringData(ManyDatasets[ReplacedRecords]):
    """A dataset, of which neighbors differ in one record each.

    Parameters
    ----------
    data
        The dataset; without features of kernels.
    records
        Its records.
    """

    def __init__(self, data: WeightingData, records: Records) -> None:
        super().__init__(data.form, data.priced)
        self.data = data
        self.records = records
        self.arms = data.arms
        self.rows = data.rows
        self.sizes: Array = np.abs(data.rows)
        self.block = block_of_records(self.form, self.arms)
        self.members = [np.flatnonzero(self.block == number) for number in range(self.n_blocks)]
        #: Whether a record (n, B) is in a block.
        self.inside: Array = (self.block[:, None] == np.arange(self.n_blocks)).astype(np.float64)
        #: Rows with the blocks as further columns (n, K + B).
        self.lined: Array = np.hstack([data.rows, self.inside])
        self._upper = np.triu_indices(self.lined.shape[1])
        self._products: Array | None = None
        if len(self.lined) * len(self._upper[0]) <= _MOST_PRODUCTS:
            self._products = self.lined[:, self._upper[0]] * self.lined[:, self._upper[1]]
        vectors = {one.name: values_of_records(one, records) for one in self.form.features}
        self.boxes = boxes_of_records(self.form, self.arms, vectors)
        self.record_targets = targets_of_records(self.form, vectors, self.arms)
        self.means: MeansOfArms | None = None
        if self.form.arms_of_means:
            self.means = MeansOfArms(self.form, vectors, self.arms)
        self._shared = _SharedSizes(self)

    @property
    def tabled(self) -> bool:
        """Whether products of rows are held in a table, by which a Jacobian of a neighbor is cheap."""
        return self._products is not None

    def replaced(self, index: Numbers, new_records: Records) -> ReplacedRecords:
        """What m new records change, each in the place of one of the dataset.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        new_records
            The m new records.
        """
        form = self.form
        arms = new_records.a
        vectors = {one.name: values_of_records(one, new_records) for one in form.features}
        come, come_errors = targets_of_records(form, vectors, arms)
        gone = self.record_targets[0][index]
        gone_errors = self.record_targets[1][index]
        targets = self.data.targets + (come - gone)
        size = np.abs(self.data.targets) + np.abs(come) + np.abs(gone)
        errors = self.data.target_errors + come_errors + gone_errors + 4.0 * UNIT_ROUNDOFF * size
        present = np.ones(len(index), dtype=bool)
        if self.means is not None:
            moved, of_rounding, present = self.means.moved(index, vectors, arms)
            targets = targets + moved
            errors = errors + of_rounding + 2.0 * UNIT_ROUNDOFF * np.abs(targets)
        linear = np.zeros(len(index))
        if form.linear is not None:
            linear = form.linear.row(vectors[form.linear.features.name], arms)[:, 0]
        base = None
        if form.base is not None:
            base = vectors[form.base.name][:, 0]
        block = block_of_records(form, arms)
        treated = np.asarray(np.sum(self.arms) + arms - self.arms[index], dtype=np.float64)
        totals = totals_of_blocks(form, treated)
        low, cap = self._boxes(index, boxes_of_records(form, arms, vectors), block, totals)
        return ReplacedRecords(
            targets=targets,
            target_errors=errors,
            totals=totals,
            low=low,
            cap=cap,
            base=self._bases(index, base),
            feasible=self._feasible(index, block, totals, low, cap) & present,
            index=index,
            rows=rows_of_records(form, vectors, arms),
            linear=linear,
            block=block,
        )

    def arguments(self, prices: Array, multipliers: Array, part: ReplacedRecords) -> Array:
        argument = -(prices @ self.rows.T)
        argument -= self.data.linear
        argument -= self._levels(multipliers, part)
        own = -np.sum(prices * part.rows, axis=1) - part.linear - self._own_levels(multipliers, part)
        argument[np.arange(len(part)), part.index] = own
        return np.asarray(argument)

    def argument_sizes(self, prices: Array, multipliers: Array, part: ReplacedRecords) -> Array:
        size = prices @ self.sizes.T
        size += np.abs(self.data.linear)
        own = np.sum(prices * np.abs(part.rows), axis=1) + np.abs(part.linear)
        size[np.arange(len(part)), part.index] = own
        size += self._levels(multipliers, part)
        return np.asarray(size)

    def price_errors(self, weights: Array, part: ReplacedRecords) -> float:
        return 0.0

    def row_norms(self, columns: slice, part: ReplacedRecords) -> Array:
        shared = np.linalg.norm(self.rows[:, columns], axis=1)
        norms = np.tile(shared, (len(part), 1))
        norms[np.arange(len(part)), part.index] = np.linalg.norm(part.rows[:, columns], axis=1)
        return norms

    def _levels(self, multipliers: Array, part: ReplacedRecords) -> Array:
        """The multiplier (m, n) of the block of every record, 0 outside of blocks; (m, 1) for one block."""
        if self.n_blocks == 1 and self.form.sums.kind is SumKind.ALL:
            return multipliers
        levels = multipliers @ self.inside.T
        levels[np.arange(len(part)), part.index] = self._own_levels(multipliers, part)
        return np.asarray(levels)

    def _own_levels(self, multipliers: Array, part: ReplacedRecords) -> Array:
        """The multiplier (m,) of the block of the new record."""
        own = multipliers[np.arange(len(part)), np.maximum(part.block, 0)]
        return np.where(part.block == OUTSIDE, 0.0, own)

    def reached(self, weights: Array, part: ReplacedRecords) -> tuple[Array, Array]:
        places = np.arange(len(part)), part.index
        own = weights[places]
        weights[places] = 0.0
        total = own[:, None] * part.rows
        size = own[:, None] * np.abs(part.rows)
        for begin in range(0, self.n, CHUNK):
            some = slice(begin, begin + CHUNK)
            total += weights[:, some] @ self.rows[some]
            size += weights[:, some] @ self.sizes[some]
        weights[places] = own
        return total - part.targets, size

    def imbalances(self, weights: Array, part: ReplacedRecords) -> Array:
        own = weights[np.arange(len(part)), part.index]
        change = part.rows - self.rows[part.index]
        return np.asarray(weights @ self.rows + own[:, None] * change - part.targets)

    @property
    def reached_units(self) -> float:
        return sum_units(self.n) + 2.0

    def sums(self, numbers: Array, part: ReplacedRecords) -> Array:
        if self.n_blocks == 1 and self.form.sums.kind is SumKind.ALL:
            return np.asarray(np.sum(numbers, axis=1, keepdims=True))
        rows = np.arange(len(part))
        own = numbers[rows, part.index]
        numbers[rows, part.index] = 0.0
        columns = [np.sum(np.ascontiguousarray(numbers[:, members]), axis=1) for members in self.members]
        numbers[rows, part.index] = own
        sums = np.stack(columns, axis=1)
        counted = part.block != OUTSIDE
        sums[rows[counted], part.block[counted]] += own[counted]
        return np.asarray(sums)

    @property
    def summed_units(self) -> float:
        # numpy adds contiguous rows pairwise, from blocks of 128
        return 66.0 + float(np.log2(self.n))

    def total(self, numbers: Array, part: ReplacedRecords) -> Array:
        return np.asarray(np.sum(numbers, axis=1))

    def counts(self, part: ReplacedRecords) -> Array:
        return np.ones((1, 1))

    def summed(self, part: ReplacedRecords) -> NDArray[np.bool_]:
        summed = np.tile(self.block != OUTSIDE, (len(part), 1))
        summed[np.arange(len(part)), part.index] = part.block != OUTSIDE
        return summed

    def moments(self, rates: Array, part: ReplacedRecords) -> Array:
        places = np.arange(len(part)), part.index
        own = rates[places]
        rates[places] = 0.0
        size = self.lined.shape[1]
        moments = np.empty((len(part), size, size))
        if self._products is not None:
            upper = rates @ self._products
            moments[:, self._upper[0], self._upper[1]] = upper
            moments[:, self._upper[1], self._upper[0]] = upper
        else:
            for k, rate in enumerate(rates):
                moments[k] = (self.lined * rate[:, None]).T @ self.lined
        new = np.hstack([part.rows, part.block[:, None] == np.arange(self.n_blocks)])
        moments += (own[:, None] * new)[:, :, None] * new[:, None, :]
        return moments

    def row_sizes(self, part: ReplacedRecords) -> tuple[Array, Array]:
        places = np.arange(len(part)), part.index
        free = part.cap[places] > part.low[places]
        shared = self._shared
        own = np.where(free, np.linalg.norm(part.rows * self.scale, axis=1), 0.0)
        apart = np.zeros(len(part))
        for number, middle in enumerate(shared.middles):
            inside = free & (part.block == number)
            apart[inside] = shared.distances(part.rows[inside], middle)
        row = np.maximum(own, shared.row) * OUTWARD
        return row, 2.0 * np.maximum(apart, shared.distance) * OUTWARD

    def kink_widths(self, place: int, part: ReplacedRecords) -> Array:
        one = self.priced[place]
        own = one.width_at_kink(part.rows[:, one.columns])
        return np.maximum(own, self._shared.kinks[place])

    def _bases(self, index: Numbers, base: Array | None) -> Array:
        if base is None:
            return np.zeros((len(index), 0))
        assert self.data.curve.base is not None
        bases = np.tile(self.data.curve.base, (len(index), 1))
        bases[np.arange(len(index)), index] = base
        return bases

    def _boxes(
        self, index: Numbers, own: tuple[Array, Array], block: Numbers, totals: Array
    ) -> tuple[Array, Array]:
        """Ends of the boxes (m, n), which a sum bounds as in the data of one dataset."""
        rows = np.arange(len(index))
        own_low, own_cap = own
        low = np.tile(self.boxes[0], (len(index), 1))
        cap = np.tile(self.boxes[1], (len(index), 1))
        low[rows, index] = own_low
        cap[rows, index] = own_cap
        most = 2.0 * totals[:, np.maximum(self.block, 0)] + 1.0
        most[:, self.block == OUTSIDE] = np.inf
        most[rows, index] = np.where(block == OUTSIDE, np.inf, 2.0 * totals[rows, np.maximum(block, 0)] + 1.0)
        return low, np.maximum(np.minimum(cap, most), low)

    def _feasible(
        self, index: Numbers, block: Numbers, totals: Array, low: Array, cap: Array
    ) -> NDArray[np.bool_]:
        """Whether the boxes hold the sums of all blocks by more than rounding (m,)."""
        rows = np.arange(len(index))
        feasible = np.ones(len(index), dtype=bool)
        for number, members in enumerate(self.members):
            left = self.block[index] == number
            comes = block == number
            least = np.sum(low[:, members], axis=1)
            least += np.where(comes, low[rows, index], 0.0) - np.where(left, low[rows, index], 0.0)
            most = np.sum(cap[:, members], axis=1)
            most += np.where(comes, cap[rows, index], 0.0) - np.where(left, cap[rows, index], 0.0)
            total = totals[:, number]
            feasible &= (least <= total * (1.0 - MARGIN)) & (total <= most * (1.0 - MARGIN))
        return feasible


class _SharedSizes:
    """Sizes of the rows of one dataset, which all of its neighbors have but for one record.

    Parameters
    ----------
    neighboring
        The dataset.
    """

    def __init__(self, neighboring: NeighboringData) -> None:
        self.scale = neighboring.scale
        low, cap = neighboring.boxes
        free = cap > low
        rows = neighboring.rows
        self.middles = [self._middle(rows[members]) for members in neighboring.members]
        #: Largest norm of a free row, and its largest distance to the middle of its block.
        self.row = float(np.max(np.linalg.norm(rows * self.scale, axis=1)[free], initial=0.0))
        self.distance = 0.0
        for number, members in enumerate(neighboring.members):
            apart = self.distances(rows[members[free[members]]], self.middles[number])
            self.distance = max(self.distance, float(np.max(apart, initial=0.0)))
        #: What prices of every kink move the argument of a free row by, at most.
        self.kinks = [
            float(np.max(one.width_at_kink(rows[free][:, one.columns]), initial=0.0))
            for one in neighboring.priced
        ]

    def _middle(self, rows: Array) -> Array:
        """A point (K,) that distances of rows in a block are measured from; any one will do."""
        if not len(rows):
            return np.zeros(len(self.scale))
        return np.asarray(np.mean(rows * self.scale, axis=0))

    def distances(self, rows: Array, middle: Array) -> Array:
        """Bounds of the distances of rows (.., K) to a point, with the rounding of the rows."""
        return distances_of_rows(rows * self.scale, middle)


def distances_of_rows(scaled: Array, middle: Array) -> Array:
    """Bounds (..,) of the distances of rows (.., K) to a point (.., K), with the rounding of the rows."""
    slack = 8.0 * UNIT_ROUNDOFF * np.linalg.norm(scaled, axis=-1)
    return np.asarray(np.linalg.norm(scaled - middle, axis=-1) + slack)
