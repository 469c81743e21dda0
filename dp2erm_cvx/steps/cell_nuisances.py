"""Nuisances that are constant on the leaves of a tree on noisy cells: no line has to be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.steps.cell_means import LeafMeans, leaf_means
from dp2erm_cvx.steps.cell_sums import CellSumsPlan
from dp2erm_cvx.steps.cell_tree import grow
from dp2erm_cvx.steps.nuisances import Nuisances, Predicted
from dp2erm_cvx.steps.partition import Box
from dp2erm_cvx.steps.step import StepPlan


@dataclass(frozen=True, eq=False)
class CellTree:
    """What follows from released cells: ``boxes``, the number (cells,) of that of each cell, and means."""

    boxes: Sequence[Box]
    of_cell: NDArray[np.int64]
    means: LeafMeans


@dataclass(frozen=True)
class CellNuisances(Nuisances):
    """m_a and e by the leaf of a record's cell, from what :class:`~dp2erm_cvx.steps.CellSums` released.

    ``scale`` is a public guess of the standard deviation of the outcome in a cell, in its units. ``known`` is
    the probability of treatment where that is public, None where it is estimated as well. ``cells`` is the
    planned step.
    """

    scale: float
    known: float | None = None
    cells: CellSumsPlan | None = None

    def planned(self, earlier: Mapping[str, StepPlan]) -> CellNuisances:
        cells = earlier[CellSumsPlan.name]
        assert isinstance(cells, CellSumsPlan)
        return replace(self, cells=cells)

    def leaves(self, released: Mapping[str, Array]) -> CellTree:
        """The tree and its means, a function of the released integers and of public numbers."""
        return _leaves(self, np.asarray(released[CellSumsPlan.name], dtype=np.int64).tobytes())

    def outcome(self, x: Array, a: Array, released: Mapping[str, Array]) -> Array:
        bound = self._cells.universe.domain.outcome_bound
        found = self.leaves(released)
        outcome: Array = bound * found.means.outcome[self._leaf(x, found), np.asarray(a, dtype=np.int64)]
        return outcome

    def propensity(self, x: Array, released: Mapping[str, Array]) -> Array:
        if self.known is not None:
            return np.full(len(x), self.known)
        found = self.leaves(released)
        return found.means.treated[self._leaf(x, found)]

    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        found = self.leaves(released)
        means, leaf = found.means, self._leaf(x, found)
        m_0, m_1 = (self._cells.universe.domain.outcome_bound * means.outcome[leaf, arm] for arm in (0, 1))
        e = means.treated[leaf] if self.known is None else np.full(len(x), self.known)
        return Predicted(m_0, m_1, e)

    @property
    def _cells(self) -> CellSumsPlan:
        assert self.cells is not None  # nothing is released before it is planned
        return self.cells

    def _leaf(self, x: Array, found: CellTree) -> NDArray[np.int64]:
        return found.of_cell[self._cells.partition.index(x)]


@lru_cache(maxsize=4)
def _leaves(nuisances: CellNuisances, released: bytes) -> CellTree:
    cells = nuisances.cells
    assert cells is not None
    table = cells.table({cells.name: np.frombuffer(released, dtype=np.int64)})
    shape, noise = cells.partition.shape, cells.calibration.variance
    spread = nuisances.scale / cells.universe.domain.outcome_bound
    boxes = grow(table.reshape(*shape, 2, 2), spread, noise)
    of_cell = np.empty(shape, dtype=np.int64)
    for leaf, box in enumerate(boxes):
        of_cell[box] = leaf
    sums = np.zeros((len(boxes), 2, 2))
    np.add.at(sums, of_cell.ravel(), table)
    sizes = np.bincount(of_cell.ravel(), minlength=len(boxes)).astype(np.float64)
    return CellTree(boxes, of_cell.ravel(), leaf_means(sums, sizes, spread, noise))
