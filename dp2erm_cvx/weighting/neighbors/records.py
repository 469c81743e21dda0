"""What neighbors of one dataset share beside their rows: boxes, blocks and sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.forms.form import Arms, SumKind
from dp2erm_cvx.weighting.forms.proximal import PricedColumns
from dp2erm_cvx.weighting.neighbors.many_datasets import (
    MARGIN,
    OUTSIDE,
    DatasetsPart,
    ManyDatasets,
    Numbers,
    block_of_records,
    totals_of_blocks,
)
from dp2erm_cvx.weighting.neighbors.means_of_arms import MeansOfArms
from dp2erm_cvx.weighting.solving.dataset import (
    WeightingData,
    boxes_of_records,
    linear_terms,
    targets_of_records,
    vectors_of_records,
)


@dataclass(frozen=True)
class ReplacedRecords(DatasetsPart):
    """Neighbors that differ from one dataset in one record each.

    Parameters
    ----------
    index
        Number of the replaced record (m,).
    linear
        Number (m,) that is added to the slope of the new record.
    block
        Block (m,) of the new record, or ``OUTSIDE``.
    """

    index: Numbers
    linear: Array
    block: Numbers

    @property
    def places(self) -> tuple[Numbers, Numbers]:
        """Where the new records stand in numbers (m, n) of all records."""
        return np.arange(len(self)), self.index

    def by_field(self) -> dict[str, Any]:
        """All fields by name, to which a part of another kind adds its own."""
        return {part.name: getattr(self, part.name) for part in fields(self)}


Replaced = TypeVar("Replaced", bound=ReplacedRecords)


class NeighboringRecords(ManyDatasets[Replaced]):
    """A dataset, of which neighbors differ in one record each, but for its rows.

    Parameters
    ----------
    data
        The dataset.
    records
        Its records.
    priced
        Imbalances that prices are known of by their columns.
    """

    def __init__(
        self, data: WeightingData, records: Records, priced: tuple[PricedColumns, ...]
    ) -> None:
        super().__init__(data.form, priced)
        self.data = data
        self.records = records
        self.arms = data.arms
        self.block = block_of_records(self.form, self.arms)
        self.members = [np.flatnonzero(self.block == number) for number in range(self.n_blocks)]
        #: Whether a record (n, B) is in a block.
        self.inside: Array = (self.block[:, None] == np.arange(self.n_blocks)).astype(np.float64)
        #: Features (n, width) of the records that are no kernel's, by name.
        self.vectors = vectors_of_records(self.form, records)
        self.boxes = boxes_of_records(self.form, self.arms, self.vectors)
        self.record_targets = targets_of_records(self.form, self.vectors, self.arms)
        self.means: MeansOfArms | None = None
        if self.form.arms_of_means:
            self.means = MeansOfArms(self.form, self.vectors, self.arms)

    def multipliers_of(self, of_blocks: Array) -> Array:
        """Multipliers (B,) of all blocks, from those of the dataset; 0 of an empty block."""
        multipliers = np.zeros(self.n_blocks)
        for number, block in enumerate(self.data.blocks):
            members = np.arange(self.n)[block.members]
            if len(members):
                multipliers[self.block[members[0]]] = of_blocks[number]
        return multipliers

    def replaced_records(
        self, index: Numbers, new_records: Records, vectors: Mapping[str, Array]
    ) -> ReplacedRecords:
        """What m new records change but for rows, each in the place of one of the dataset.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        new_records
            The m new records.
        vectors
            Their features (m, width) that are no kernel's, by name.
        """
        form = self.form
        arms = new_records.a
        targets, target_errors, have_means = self.targets_of(index, vectors, arms)
        block = block_of_records(form, arms)
        treated = np.asarray(np.sum(self.arms) + arms - self.arms[index], dtype=np.float64)
        totals = totals_of_blocks(form, treated)
        low, cap = self._boxes(index, boxes_of_records(form, arms, vectors), block, totals)
        return ReplacedRecords(
            targets=targets,
            target_errors=target_errors,
            totals=totals,
            low=low,
            cap=cap,
            base=self._bases(index, vectors),
            feasible=self._feasible(index, block, totals, low, cap) & have_means,
            index=index,
            linear=linear_terms(form, vectors, arms),
            block=block,
        )

    def levels(self, multipliers: Array, part: ReplacedRecords) -> Array:
        """The multiplier (m, n) of the block of every record.

        It is 0 outside of blocks, and (m, 1) for one block.
        """
        if self._has_one_sum:
            return multipliers
        levels = multipliers @ self.inside.T
        levels[part.places] = self.own_levels(multipliers, part)
        return np.asarray(levels)

    def own_levels(self, multipliers: Array, part: ReplacedRecords) -> Array:
        """The multiplier (m,) of the block of the new record."""
        of_block = multipliers[np.arange(len(part)), np.maximum(part.block, 0)]
        return np.where(part.block == OUTSIDE, 0.0, of_block)

    def sums(self, numbers: Array, part: ReplacedRecords) -> Array:
        if self._has_one_sum:
            return np.asarray(np.sum(numbers, axis=1, keepdims=True))
        rows = np.arange(len(part))
        of_new = numbers[part.places]
        numbers[part.places] = 0.0
        columns = []
        for members in self.members:
            columns.append(np.sum(np.ascontiguousarray(numbers[:, members]), axis=1))
        numbers[part.places] = of_new
        sums = np.stack(columns, axis=1)
        in_block = part.block != OUTSIDE
        sums[rows[in_block], part.block[in_block]] += of_new[in_block]
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
        summed[part.places] = part.block != OUTSIDE
        return summed

    def targets_of(
        self, index: Numbers, vectors: Mapping[str, Array], arms: Arms
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Targets (m, K) of vectors, bounds of their rounding, and whether arms have means (m,)."""
        columns = slice(0, self.data.vector_columns)
        base = self.data.targets[columns]
        base_errors = self.data.target_errors[columns]
        new, new_errors = targets_of_records(self.form, vectors, arms)
        replaced = self.record_targets[0][index]
        replaced_errors = self.record_targets[1][index]
        targets = base + (new - replaced)
        sizes = np.abs(base) + np.abs(new) + np.abs(replaced)
        errors = base_errors + new_errors + replaced_errors + 4.0 * UNIT * sizes
        if self.means is None:
            return targets, errors, np.ones(len(index), dtype=bool)
        moved, moved_errors, have_means = self.means.moved(index, vectors, arms)
        targets = targets + moved
        errors = errors + moved_errors + 2.0 * UNIT * np.abs(targets)
        return targets, errors, have_means

    def _boxes(
        self, index: Numbers, new_boxes: tuple[Array, Array], block: Numbers, totals: Array
    ) -> tuple[Array, Array]:
        """Ends of the boxes (m, n), which a sum bounds as in the data of one dataset.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        new_boxes
            Ends (m,) of the boxes of the new records, before a sum bounds them.
        block
            Block (m,) of the new records, or ``OUTSIDE``.
        totals
            Sums (m, B) of the blocks.
        """
        rows = np.arange(len(index))
        low = np.tile(self.boxes[0], (len(index), 1))
        cap = np.tile(self.boxes[1], (len(index), 1))
        low[rows, index], cap[rows, index] = new_boxes
        # No weight exceeds the sum of its block, so that a box twice as wide changes no solution.
        twice_total = 2.0 * totals[:, np.maximum(self.block, 0)] + 1.0
        twice_total[:, self.block == OUTSIDE] = np.inf
        of_new = 2.0 * totals[rows, np.maximum(block, 0)] + 1.0
        twice_total[rows, index] = np.where(block == OUTSIDE, np.inf, of_new)
        return low, np.maximum(np.minimum(cap, twice_total), low)

    def _bases(self, index: Numbers, vectors: Mapping[str, Array]) -> Array:
        """Base weights (m, n) of all records; of no columns where the form has none."""
        if self.form.base is None:
            return np.zeros((len(index), 0))
        assert self.data.curve.base is not None
        bases = np.tile(self.data.curve.base, (len(index), 1))
        bases[np.arange(len(index)), index] = vectors[self.form.base.name][:, 0]
        return bases

    def _feasible(
        self, index: Numbers, block: Numbers, totals: Array, low: Array, cap: Array
    ) -> NDArray[np.bool_]:
        """Whether the boxes hold the sums of all blocks by more than rounding (m,)."""
        rows = np.arange(len(index))
        new_low = low[rows, index]
        new_cap = cap[rows, index]
        feasible = np.ones(len(index), dtype=bool)
        for number, members in enumerate(self.members):
            # Members are those of the dataset: the new record is in the place of one that leaves.
            leaves = self.block[index] == number
            comes = block == number
            least = np.sum(low[:, members], axis=1)
            least += np.where(comes, new_low, 0.0) - np.where(leaves, new_low, 0.0)
            most = np.sum(cap[:, members], axis=1)
            most += np.where(comes, new_cap, 0.0) - np.where(leaves, new_cap, 0.0)
            total = totals[:, number]
            feasible &= (least <= total * (1.0 - MARGIN)) & (total <= most * (1.0 - MARGIN))
        return feasible

    @property
    def _has_one_sum(self) -> bool:
        """Whether all records are in one block."""
        return self.n_blocks == 1 and self.form.sums.kind is SumKind.ALL
