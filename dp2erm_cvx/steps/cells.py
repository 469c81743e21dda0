"""Cells instead of lines: a public partition of covariates, counts and outcomes in it (Theorem 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import IntegerNoise
from dp2erm_cvx.domain import Array, Domain, Records, cleaned
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.step import Planned
from dp2erm_cvx.steps.sums import IntegerSums, split_noise
from dp2erm_cvx.universe import Universe

#: Every cell gets noise of its own, whether or not records are in it.
MOST_CELLS = 2**16

#: One slice per covariate: the cells of a box.
Box = tuple[slice, ...]


@dataclass(frozen=True)
class Partition:
    """The grid of increasing ``cuts`` of each scaled covariate: its cell k holds ``cut_{k-1} <= x < cut_k``.

    The cell of a record is a function of this record alone, and the first and last ones have no ends.
    """

    cuts: tuple[tuple[float, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells per covariate."""
        return tuple(len(own) + 1 for own in self.cuts)

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    def index(self, x: Array) -> NDArray[np.int64]:
        """The cell (n,) of covariates x (n, k), numbered with the last covariate first."""
        places = [np.searchsorted(own, x[:, k], side="right") for k, own in enumerate(self.cuts)]
        return np.ravel_multi_index(places, self.shape).astype(np.int64)

    def raw(self, domain: Domain) -> list[list[float]]:
        """The cuts in raw units of the covariates."""
        return [
            [low + (cut + 1.0) * (high / 2 - low / 2) for cut in own]
            for own, (low, high) in zip(self.cuts, _ranges(domain, len(self.cuts)), strict=True)
        ]

    def names(self, boxes: Sequence[Box], columns: Sequence[str], domain: Domain) -> tuple[str, ...]:
        """What is in each box, in raw units."""
        raw = self.raw(domain)
        return tuple(_named(box, raw, columns) for box in boxes)


@dataclass(frozen=True, kw_only=True)
class CellSums(IntegerSums):
    """Every outcome, split in two, by cell of a public ``partition`` and by arm.

    The outcome ``t = (y - c) / M'`` lies in [-1, 1]. A record adds ``p``, the whole number nearest to
    ``K (1 + t) / 2``, to one entry P of its cell and arm, and ``K - p`` to the entry Q beside it. Then
    ``P + Q`` counts records and ``P - Q`` sums outcomes, in K-ths. With a sampling weight s of at most S the
    whole number nearest to ``K s / S`` stands for K, and both sums are of weights.

    The entries of one record are not negative and add up to at most K, whatever its cell, arm, outcome and
    weight: ``split_noise`` hides what they move. Noise of scale ``2K / epsilon`` on every entry, empty or
    not, is private. Counts and sums released apart take twice that.
    """

    name: str = "cells"
    partition: Partition

    def calibrate(self, universe: Universe, budget: Budget) -> IntegerNoise:
        """The noise of one entry: the number of cells does not enter."""
        return split_noise(self.noise, budget)

    def sums(self, own: Planned, records: Records) -> NDArray[np.int64]:
        """P and Q of every cell and arm, (cells, 2, 2), exact. Private."""
        add = partial(self._block_sums, bound=own.universe.domain.outcome_bound)
        found: NDArray[np.int64] = np.sum(records.blocks.map(add), axis=0)
        return found.reshape(-1, 2, 2)

    def _block_sums(self, records: Records, bound: float) -> NDArray[np.int64]:
        whole = np.rint(UNIT * records.counts)
        half = np.rint((cleaned(records.y / bound, 1.0) + 1.0) * (whole / 2)).astype(np.int64)
        first = 4 * self.partition.index(records.covariates) + 2 * records.a
        found = np.zeros(4 * self.partition.size, dtype=np.int64)
        np.add.at(found, first, half)
        np.add.at(found, first + 1, whole.astype(np.int64) - half)
        return found

    def exact_sums(self, own: Planned, records: Records, released: Mapping[str, Array]) -> list[int]:
        """Those of all entries, (4 cells,)."""
        return [int(entry) for entry in self.sums(own, records).ravel()]

    def table(self, released: Mapping[str, Array]) -> Array:
        """What was released, in records: (cells, 2, 2) by cell, by arm, P and Q."""
        return np.reshape(released[self.name], (-1, 2, 2)) / UNIT


def declared_partition(declared: Any, universe: Universe) -> Partition:
    """The grid that ``declared`` describes: cuts in raw units, or a number of cells, of every covariate.

    A mapping from the name of a covariate, or its number among those of the ``universe``, to increasing cuts
    or to a number of cells of equal width. Cells go from end to end of its range; without ranges from the
    least to the largest value that the norm bound permits.

    Raises DeclarationError unless every covariate is named once, with valid cuts, and the cells are at most
    ``MOST_CELLS``.
    """
    domain, k = universe.domain, universe.n_features
    if not isinstance(declared, Mapping):
        raise DeclarationError(f"cells = {shown(declared)}: must be cuts by covariate")
    known = {str(name): index for index, name in enumerate(domain.columns or range(k))}
    found: dict[int, tuple[float, ...]] = {}
    for name, cuts in declared.items():
        if str(name) not in known:
            raise DeclarationError(f"cells: unknown covariate {shown(name)}; known: {', '.join(known)}")
        index = known[str(name)]
        if index in found:
            raise DeclarationError(f"cells: {name} is cut twice")
        found[index] = _cuts(str(name), cuts, index, domain, k)
    for name, index in known.items():
        if index not in found:
            raise DeclarationError(f"cells: {name} is adjusted for, and has no cuts; name fewer covariates")
    partition = Partition(tuple(found[index] for index in range(k)))
    if partition.size > MOST_CELLS:
        raise DeclarationError(f"cells: {partition.size} of them: at most {MOST_CELLS}")
    return partition


def _cuts(name: str, declared: Any, index: int, domain: Domain, k: int) -> tuple[float, ...]:
    if isinstance(declared, (str, Mapping)) or not isinstance(declared, (Sequence, np.ndarray)):
        count = whole_number(f"cells[{name}]", declared, at_least=1)
        if count > MOST_CELLS:
            raise DeclarationError(f"cells[{name}] = {count}: at most {MOST_CELLS}")
        end = 1.0 if domain.ranges is not None else domain.features_bound
        return tuple(float(cut) for cut in np.linspace(-end, end, count + 1)[1:-1])
    raw = [public_number(f"cells[{name}]", cut) for cut in declared]
    if any(left >= right for left, right in pairwise(raw)):
        raise DeclarationError(f"cells[{name}] = {shown(declared)}: cuts must increase")
    low, high = _ranges(domain, k)[index]
    # as the domain scales a covariate, so that both are rounded alike
    scaled = (np.array(raw) / 2 - (low / 4 + high / 4)) / (high / 4 - low / 4)
    return tuple(float(cut) for cut in scaled)


def _ranges(domain: Domain, k: int) -> tuple[tuple[float, float], ...]:
    return domain.range_pairs or ((-1.0, 1.0),) * k


def _named(box: Box, raw: list[list[float]], columns: Sequence[str]) -> str:
    told = []
    for column, cuts, part in zip(columns, raw, box, strict=True):
        low = f"{cuts[part.start - 1]:.6g} <= " if part.start > 0 else ""
        high = f" < {cuts[part.stop - 1]:.6g}" if part.stop <= len(cuts) else ""
        if low or high:
            told.append(f"{low}{column}{high}")
    return ", ".join(told) or "all"
