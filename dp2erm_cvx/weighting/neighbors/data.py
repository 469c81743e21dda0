"""A weighting form at many neighbors of one dataset, of which one record is new."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.neighbors.many_datasets import DatasetsOfRows, Numbers
from dp2erm_cvx.weighting.neighbors.records import NeighboringRecords, ReplacedRecords
from dp2erm_cvx.weighting.solving.dataset import (
    CHUNK,
    WeightingData,
    rows_of_records,
    sum_units,
    vectors_of_records,
)

#: Numbers in the table of products of rows, up to which it is made: 64 MB.
_MOST_PRODUCTS = 2**23


@dataclass(frozen=True)
class ReplacedRows(ReplacedRecords):
    """Neighbors that differ from one dataset in one record each, with its row.

    Parameters
    ----------
    rows
        Row of the new record (m, K).
    """

    rows: Array


class NeighboringData(NeighboringRecords[ReplacedRows], DatasetsOfRows[ReplacedRows]):
    """A dataset, of which neighbors differ in one record each.

    Parameters
    ----------
    data
        The dataset; without features of kernels.
    records
        Its records.
    """

    def __init__(self, data: WeightingData, records: Records) -> None:
        super().__init__(data, records, data.priced)
        self.rows = data.rows
        self.sizes: Array = np.abs(data.rows)
        #: Rows with the blocks as further columns (n, K + B).
        self.lined: Array = np.hstack([data.rows, self.inside])
        self._upper = np.triu_indices(self.lined.shape[1])
        self._products: Array | None = None
        if len(self.lined) * len(self._upper[0]) <= _MOST_PRODUCTS:
            self._products = self.lined[:, self._upper[0]] * self.lined[:, self._upper[1]]
        self._shared = _SharedSizes(self)

    @property
    def tabled(self) -> bool:
        """Whether products of rows are held in a table, which makes Jacobians cheap."""
        return self._products is not None

    def replaced(self, index: Numbers, new_records: Records) -> ReplacedRows:
        """What m new records change, each in the place of one of the dataset.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        new_records
            The m new records.
        """
        vectors = vectors_of_records(self.form, new_records)
        shared = self.replaced_records(index, new_records, vectors).by_field()
        return ReplacedRows(**shared, rows=rows_of_records(self.form, vectors, new_records.a))

    def lined_of(self, part: ReplacedRows) -> Array:
        """Rows of new records with the blocks as further columns, (m, K + B)."""
        return np.hstack([part.rows, part.block[:, None] == np.arange(self.n_blocks)])

    def arguments(self, prices: Array, multipliers: Array, part: ReplacedRows) -> Array:
        argument = -(prices @ self.rows.T)
        argument -= self.data.linear
        argument -= self.levels(multipliers, part)
        of_new = -np.sum(prices * part.rows, axis=1) - part.linear
        argument[part.places] = of_new - self.own_levels(multipliers, part)
        return np.asarray(argument)

    def argument_sizes(self, prices: Array, multipliers: Array, part: ReplacedRows) -> Array:
        size = prices @ self.sizes.T
        size += np.abs(self.data.linear)
        size[part.places] = np.sum(prices * np.abs(part.rows), axis=1) + np.abs(part.linear)
        size += self.levels(multipliers, part)
        return np.asarray(size)

    def price_errors(self, weights: Array, part: ReplacedRows) -> float:
        return 0.0

    def row_norms(self, columns: slice, part: ReplacedRows) -> Array:
        shared = np.linalg.norm(self.rows[:, columns], axis=1)
        norms = np.tile(shared, (len(part), 1))
        norms[part.places] = np.linalg.norm(part.rows[:, columns], axis=1)
        return norms

    def reached(self, weights: Array, part: ReplacedRows) -> tuple[Array, Array]:
        places = part.places
        new_weight = weights[places]
        weights[places] = 0.0
        total = new_weight[:, None] * part.rows
        size = new_weight[:, None] * np.abs(part.rows)
        for begin in range(0, self.n, CHUNK):
            chunk = slice(begin, begin + CHUNK)
            total += weights[:, chunk] @ self.rows[chunk]
            size += weights[:, chunk] @ self.sizes[chunk]
        weights[places] = new_weight
        return total - part.targets, size

    def imbalances(self, weights: Array, part: ReplacedRows) -> Array:
        new_weight = weights[part.places]
        change = part.rows - self.rows[part.index]
        return np.asarray(weights @ self.rows + new_weight[:, None] * change - part.targets)

    @property
    def reached_units(self) -> float:
        return sum_units(self.n) + 2.0

    def moments(self, rates: Array, part: ReplacedRows) -> Array:
        places = part.places
        new_rate = rates[places]
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
        new_lined = self.lined_of(part)
        moments += (new_rate[:, None] * new_lined)[:, :, None] * new_lined[:, None, :]
        return moments

    def row_sizes(self, part: ReplacedRows) -> tuple[Array, Array]:
        places = part.places
        free = part.cap[places] > part.low[places]
        shared = self._shared
        new_norm = np.where(free, np.linalg.norm(part.rows * self.scale, axis=1), 0.0)
        new_distance = np.zeros(len(part))
        for number, middle in enumerate(shared.middles):
            inside = free & (part.block == number)
            new_distance[inside] = shared.distances(part.rows[inside], middle)
        row = np.maximum(new_norm, shared.row) * ROUND_UP
        return row, 2.0 * np.maximum(new_distance, shared.distance) * ROUND_UP

    def kink_widths(self, place: int, part: ReplacedRows) -> Array:
        priced = self.priced[place]
        of_new = priced.width_at_kink(part.rows[:, priced.columns])
        return np.maximum(of_new, self._shared.kinks[place])


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
        #: Points (K,), one per block, that distances are measured from.
        self.middles = [self._middle(rows[members]) for members in neighboring.members]
        #: Largest norm of a free row, and its largest distance to the middle of its block.
        self.row = float(np.max(np.linalg.norm(rows * self.scale, axis=1)[free], initial=0.0))
        self.distance = 0.0
        for number, members in enumerate(neighboring.members):
            free_rows = rows[members[free[members]]]
            distances = self.distances(free_rows, self.middles[number])
            self.distance = max(self.distance, float(np.max(distances, initial=0.0)))
        #: What prices of every kink move the argument of a free row by, at most.
        self.kinks: list[float] = []
        for priced in neighboring.priced:
            widths = priced.width_at_kink(rows[free][:, priced.columns])
            self.kinks.append(float(np.max(widths, initial=0.0)))

    def distances(self, rows: Array, middle: Array) -> Array:
        """Bounds of the distances of rows (.., K) to a point, with the rounding of the rows."""
        return distances_of_rows(rows * self.scale, middle)

    def _middle(self, rows: Array) -> Array:
        """A point (K,) that distances of rows in a block are measured from; any one will do."""
        if not len(rows):
            return np.zeros(len(self.scale))
        return np.asarray(np.mean(rows * self.scale, axis=0))


def distances_of_rows(scaled: Array, middle: Array) -> Array:
    """Bounds (..,) of the distances of rows (.., K) to a point (.., K), with their rounding."""
    slack = 8.0 * UNIT * np.linalg.norm(scaled, axis=-1)
    return np.asarray(np.linalg.norm(scaled - middle, axis=-1) + slack)
