"""A weighting form at many neighbors of one dataset: what they share, and what one new record changes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.weighting.dataset import (
    CHUNK,
    WeightingData,
    boxes_of_records,
    rows_of_records,
    sum_units,
    targets_of_records,
    values_of_records,
)
from dp2erm_cvx.weighting.form import Arms, SumKind, WeightingForm
from dp2erm_cvx.weighting.inverse_slope import UNIT_ROUNDOFF, InverseSlope

#: Relative distance of a sum to the ends of what boxes hold, below which a neighbor is left alone.
_MARGIN = 1e-12
#: Block of a record whose weight has no sum.
OUTSIDE = -1

#: Numbers of records, of neighbors or of blocks.
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ReplacedRecords:
    """What one replaced record changes, for m neighbors.

    Parameters
    ----------
    index
        Number of the replaced record (m,).
    rows
        Row of the new record (m, K).
    targets, target_errors
        Sum of targets and shift (m, K), and bounds of their rounding.
    linear
        Number (m,) that is added to the slope of the new record.
    block
        Block (m,) of the new record, or ``OUTSIDE``.
    totals
        Sums of the blocks (m, B).
    low, cap
        Ends of the boxes of all records (m, n).
    base
        Base weights (m, n); of no columns where the form has none.
    feasible
        Whether the boxes hold the sums by more than rounding (m,).
    """

    index: Numbers
    rows: Array
    targets: Array
    target_errors: Array
    linear: Array
    block: Numbers
    totals: Array
    low: Array
    cap: Array
    base: Array
    feasible: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.index)

    def take(self, chosen: NDArray[np.bool_] | Numbers) -> Self:
        """Those neighbors alone."""
        return type(self)(*(getattr(self, part.name)[chosen] for part in fields(self)))


class NeighboringData:
    """A dataset, of which neighbors differ in one record each.

    Parameters
    ----------
    data
        The dataset; without features of kernels.
    records
        Its records.
    """

    def __init__(self, data: WeightingData, records: Records) -> None:
        self.data = data
        self.form = data.form
        self.records = records
        self.n = data.form.n
        self.arms = data.arms
        self.rows = data.rows
        self.sizes: Array = np.abs(data.rows)
        self.n_blocks = 1 if self.form.sums.kind in _OF_ONE_BLOCK else 2
        self.block = block_of_records(self.form, self.arms)
        self.members = [np.flatnonzero(self.block == number) for number in range(self.n_blocks)]
        #: Whether a record (n, B) is in a block.
        self.inside: Array = (self.block[:, None] == np.arange(self.n_blocks)).astype(np.float64)
        self.boxes = boxes_of_records(self.form, self.arms, data.curve.base)
        vectors = {one.name: values_of_records(one, records) for one in self.form.features}
        self.record_targets = targets_of_records(self.form, vectors, self.arms)

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
        linear = np.zeros(len(index))
        if form.linear is not None:
            linear = form.linear.row(vectors[form.linear.features.name], arms)[:, 0]
        base = None
        if form.base is not None:
            base = vectors[form.base.name][:, 0]
        block = block_of_records(form, arms)
        totals = self._totals(index, arms)
        low, cap = self._boxes(index, arms, base, block, totals)
        return ReplacedRecords(
            index,
            rows_of_records(form, vectors, arms),
            targets,
            errors,
            linear,
            block,
            totals,
            low,
            cap,
            self._bases(index, base),
            self._feasible(index, block, totals, low, cap),
        )

    def curve(self, part: ReplacedRecords) -> InverseSlope:
        """Inverse slopes of the weights of all neighbors, one neighbor after the other."""
        base = part.base.ravel() if part.base.size else None
        return InverseSlope(self.form.dispersion, part.low.ravel(), part.cap.ravel(), base)

    def scores(self, prices: Array, part: ReplacedRecords) -> Array:
        """Products (m, n) of rows and prices (m, K)."""
        scores = prices @ self.rows.T
        scores[np.arange(len(part)), part.index] = np.sum(prices * part.rows, axis=1)
        return np.asarray(scores)

    def levels(self, multipliers: Array, part: ReplacedRecords) -> Array:
        """The multiplier (m, n) of the block of every record, 0 outside of blocks; (m, 1) for one block."""
        if self.n_blocks == 1 and self.form.sums.kind is SumKind.ALL:
            return multipliers
        levels = multipliers @ self.inside.T
        levels[np.arange(len(part)), part.index] = self.own_levels(multipliers, part)
        return np.asarray(levels)

    def own_levels(self, multipliers: Array, part: ReplacedRecords) -> Array:
        """The multiplier (m,) of the block of the new record."""
        own = multipliers[np.arange(len(part)), np.maximum(part.block, 0)]
        return np.where(part.block == OUTSIDE, 0.0, own)

    def reached(self, weights: Array, part: ReplacedRecords) -> tuple[Array, Array]:
        """Imbalances (m, K) of weights (m, n), and the sums (m, K) of the sizes that they are made of.

        Sums are off by ``reached_units`` of roundoff of these sizes, less what targets are off.
        """
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
        """Imbalances (m, K) of weights (m, n), for steps: in any order of summation."""
        own = weights[np.arange(len(part)), part.index]
        change = part.rows - self.rows[part.index]
        return np.asarray(weights @ self.rows + own[:, None] * change - part.targets)

    @property
    def reached_units(self) -> float:
        """Units of roundoff of :meth:`reached`."""
        return sum_units(self.n) + 2.0

    def sums(self, numbers: Array, part: ReplacedRecords) -> Array:
        """Sums (m, B) over blocks of numbers (m, n), off by ``summed_units`` of the sums of their sizes."""
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
        """Units of roundoff of :meth:`sums`: numpy adds contiguous rows pairwise, from blocks of 128."""
        return 66.0 + float(np.log2(self.n))

    def _totals(self, index: Numbers, arms: Arms) -> Array:
        """Sums of the blocks (m, B)."""
        kind = self.form.sums.kind
        treated = float(np.sum(self.arms)) + arms - self.arms[index]
        if kind is SumKind.TREATED:
            return np.asarray(treated[:, None], dtype=np.float64)
        if kind is SumKind.COUNTS:
            return np.stack([self.n - treated, treated], axis=1)
        if kind is SumKind.PUBLIC:
            assert self.form.sums.public is not None
            return np.tile(np.asarray(self.form.sums.public, dtype=np.float64), (len(index), 1))
        return np.full((len(index), 1), float(self.n))

    def _bases(self, index: Numbers, base: Array | None) -> Array:
        if base is None:
            return np.zeros((len(index), 0))
        assert self.data.curve.base is not None
        bases = np.tile(self.data.curve.base, (len(index), 1))
        bases[np.arange(len(index)), index] = base
        return bases

    def _boxes(
        self, index: Numbers, arms: Arms, base: Array | None, block: Numbers, totals: Array
    ) -> tuple[Array, Array]:
        """Ends of the boxes (m, n), which a sum bounds as in the data of one dataset."""
        rows = np.arange(len(index))
        own_low, own_cap = boxes_of_records(self.form, arms, base)
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
            feasible &= (least <= total * (1.0 - _MARGIN)) & (total <= most * (1.0 - _MARGIN))
        return feasible


_OF_ONE_BLOCK = (SumKind.ALL, SumKind.CONTROLS, SumKind.TREATED)


def block_of_records(form: WeightingForm, arms: Arms) -> Numbers:
    """The block (m,) of records with treatments (m,), or ``OUTSIDE``."""
    kind = form.sums.kind
    if kind is SumKind.ALL:
        return np.zeros(len(arms), dtype=np.int64)
    if kind in (SumKind.CONTROLS, SumKind.TREATED):
        return np.where(arms == 0, 0, OUTSIDE)
    return np.asarray(arms, dtype=np.int64)
