"""Cells instead of lines: counts and outcomes in a public partition, and nuisances from a tree on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import IntegerNoise
from dp2erm_cvx.domain import Array, Domain, Records, Universe, cleaned
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.steps.nuisances import Nuisances, Predicted
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.sums import IntegerSums, split_noise, totals

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

    @classmethod
    def declared(cls, declared: Any, universe: Universe) -> Partition:
        """The grid that ``declared`` describes: cuts in raw units, or a number of cells, of every covariate.

        A mapping from the name of a covariate, or its number among those of the ``universe``, to increasing
        cuts or to a number of cells of equal width. Cells go from end to end of its range; without ranges
        from the least to the largest value that the norm bound permits.

        Raises DeclarationError unless every covariate is named once, with valid cuts, and the cells are at
        most ``MOST_CELLS``.
        """
        domain, k = universe.domain, universe.n_features
        if not isinstance(declared, Mapping):
            raise DeclarationError(f"cells = {brief(declared)}: must be cuts by covariate")
        known = {str(name): index for index, name in enumerate(domain.columns or range(k))}
        edges: dict[int, tuple[float, ...]] = {}
        for name, cuts in declared.items():
            if str(name) not in known:
                text = f"unknown covariate {brief(name)}; known: {', '.join(known)}"
                raise DeclarationError(f"cells: {text}")
            index = known[str(name)]
            if index in edges:
                raise DeclarationError(f"cells: {name} is cut twice")
            edges[index] = _cuts(str(name), cuts, index, domain, k)
        for name, index in known.items():
            if index not in edges:
                raise DeclarationError(
                    f"cells: {name} is adjusted for, and has no cuts; name fewer covariates"
                )
        partition = cls(tuple(edges[index] for index in range(k)))
        if partition.size > MOST_CELLS:
            raise DeclarationError(f"cells: {partition.size} of them: at most {MOST_CELLS}")
        return partition

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
        k = len(self.cuts)
        pairs, lefts = domain.range_pairs or ((-1.0, 1.0),) * k, domain.range_ends(k)[0].tolist()
        return [
            [low + (cut - left) * (high / 2 - low / 2) for cut in own]
            for own, (low, high), left in zip(self.cuts, pairs, lefts, strict=True)
        ]

    def names(self, boxes: Sequence[Box], columns: Sequence[str], domain: Domain) -> tuple[str, ...]:
        """Description of each box, in raw units."""
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

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> list[int]:
        """P and Q of every cell and arm, (4 cells,)."""
        return totals(records, partial(self._block_sums, bound=self.universe.domain.outcome_bound))

    def _block_sums(self, records: Records, bound: float) -> NDArray[np.int64]:
        first = 4 * self.partition.index(records.covariates) + 2 * records.a
        share = (cleaned(records.y / bound, 1.0) + 1.0) / 2.0
        sums = np.zeros(4 * self.partition.size, dtype=np.int64)
        if records.unit is None:
            whole = np.rint(UNIT * records.counts)
            half = np.rint(2.0 * share * (whole / 2)).astype(np.int64)
            np.add.at(sums, first, half)
            np.add.at(sums, first + 1, whole.astype(np.int64) - half)
            return sums
        # of all that a unit adds to an entry, rounded down: at most K to all of them together
        key, place = np.unique(np.stack([records.unit, first]), axis=1, return_inverse=True)
        for entry, part in ((0, share), (1, 1.0 - share)):
            added = np.floor(UNIT * np.bincount(place.ravel(), records.counts * part, key.shape[1]))
            np.add.at(sums, key[1] + entry, added.astype(np.int64))
        return sums

    def table(self, released: Mapping[str, Array]) -> Array:
        """Released numbers, in records: (cells, 2, 2) by cell, by arm, P and Q."""
        return np.reshape(released[self.name], (-1, 2, 2)) / UNIT


def _cuts(name: str, declared: Any, index: int, domain: Domain, k: int) -> tuple[float, ...]:
    if isinstance(declared, (str, Mapping)) or not isinstance(declared, (Sequence, np.ndarray)):
        count = whole_number(f"cells[{name}]", declared, at_least=1)
        if count > MOST_CELLS:
            raise DeclarationError(f"cells[{name}] = {count}: at most {MOST_CELLS}")
        end = domain.features_bound
        left, right = (-end, end) if domain.ranges is None else np.array(domain.range_ends(k))[:, index]
        return tuple(np.linspace(left, right, count + 1)[1:-1].tolist())
    raw = [public_number(f"cells[{name}]", cut) for cut in declared]
    if any(left >= right for left, right in pairwise(raw)):
        raise DeclarationError(f"cells[{name}] = {brief(declared)}: cuts must increase")
    if domain.ranges is None:
        return tuple(raw)
    middle, half = domain.scale(k)  # so that both are rounded alike
    return tuple(((np.array(raw) / 2 - middle[index]) / half[index]).tolist())


def _named(box: Box, raw: list[list[float]], columns: Sequence[str]) -> str:
    texts = []
    for column, cuts, part in zip(columns, raw, box, strict=True):
        low = f"{cuts[part.start - 1]:.6g} <= " if part.start > 0 else ""
        high = f" < {cuts[part.stop - 1]:.6g}" if part.stop <= len(cuts) else ""
        if low or high:
            texts.append(f"{low}{column}{high}")
    return ", ".join(texts) or "all"


#: What follows from released cells, see :meth:`CellNuisances.leaves`.
Leaves = tuple[Sequence[Box], NDArray[np.int64], Array, Array, Array]
#: A leaf has at least this many records, by its noisy count.
LEAST = 40.0
#: A split needs a gain above this: twice 1 is expected where two sides are alike, more of the best of many.
GAIN = 8.0


@dataclass(frozen=True)
class CellNuisances(Nuisances):
    """m_a and e by the leaf of a record's cell, from what :class:`~dp2erm_cvx.steps.cells.CellSums` released.

    ``scale`` is a public guess of the standard deviation of the outcome in a cell, in its units. ``known`` is
    the probability of treatment where that is public, None where it is estimated as well. ``cells`` is the
    planned step, ``grown`` what follows from its release.
    """

    scale: float
    known: float | None = None
    cells: Any = None
    grown: Leaves | None = None

    def planned(self, earlier: Mapping[str, Any]) -> CellNuisances:
        return replace(self, cells=earlier["cells"])

    def leaves(self, released: Mapping[str, Array]) -> Leaves:
        """The l leaves of the tree, a function of the released integers and of public numbers.

        Their boxes, and the number (cells,) of that of each cell. Of every leaf: its noisy number of records
        (l,), outcomes by arm (l, 2), centered and in units of the outcome bound, and treated share (l,).
        """
        cells = self.cells
        table, shape, noise = cells.table(released), cells.partition.shape, cells.calibration.variance
        spread = self.scale / cells.universe.domain.outcome_bound
        boxes = grow(table.reshape(*shape, 2, 2), spread, noise)
        of_cell = np.empty(shape, dtype=np.int64)
        for leaf, box in enumerate(boxes):
            of_cell[box] = leaf
        sums = np.zeros((len(boxes), 2, 2))
        np.add.at(sums, of_cell.ravel(), table)
        sizes = np.bincount(of_cell.ravel(), minlength=len(boxes)).astype(np.float64)
        return (boxes, of_cell.ravel(), *leaf_means(sums, sizes, spread, noise))

    def worked_out(self, released: Mapping[str, Array], n_samples: int) -> CellNuisances:
        return replace(self, grown=self.leaves(released))

    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        (_, of_cell, _, outcome, treated), cells = self.grown or self.leaves(released), self.cells
        leaf = of_cell[cells.partition.index(x)]
        m_0, m_1 = (cells.universe.domain.outcome_bound * outcome[leaf, arm] for arm in (0, 1))
        e = treated[leaf] if self.known is None else np.full(len(x), self.known)
        return m_0, m_1, e, None


def grow(table: Array, spread: float, noise: float) -> list[Box]:
    """The leaves of a tree that is grown on noisy cells, greedily: boxes that partition the grid.

    Parameters
    ----------
    table
        Cells by covariate, then by arm, then P and Q, in records: (c_1, ..., c_k, 2, 2).
    spread
        Public guess of the standard deviation of one outcome in a cell, over the outcome bound.
    noise
        Variance of the noise of one entry, in squared records.

    A split gains the squared difference of both sides over its variance, of their outcomes less the arm means
    of the box, and of their shares of treated records. That variance counts sampling and noise. Every box is
    cut where most is gained, as long as that is more than ``GAIN`` with ``LEAST`` records on either side.
    """
    boxes, leaves = [tuple(slice(0, size) for size in table.shape[:-2])], []
    while boxes:
        box = boxes.pop()
        cut = _best_cut(table[box], spread, noise)
        if cut is None:
            leaves.append(box)
        else:
            axis, middle = cut[0], box[cut[0]].start + cut[1]
            for part in (slice(middle, box[axis].stop), slice(box[axis].start, middle)):
                boxes.append((*box[:axis], part, *box[axis + 1 :]))
    return leaves


def _best_cut(table: Array, spread: float, noise: float) -> tuple[int, int] | None:
    """The axis and the number of cells left of the best cut, None where nothing is gained."""
    best, cut = GAIN, None
    axes = range(table.ndim - 2)
    for axis in axes:
        line = table.sum(axis=tuple(other for other in axes if other != axis))
        if len(line) < 2:
            continue
        gains = _gains(line, math.prod(table.shape[:-2]) / len(line), spread, noise)
        middle = int(np.argmax(gains))
        if gains[middle] > best:
            best, cut = float(gains[middle]), (axis, middle + 1)
    return cut


def _gains(line: Array, depth: float, spread: float, noise: float) -> Array:
    """The gain (w - 1,) of every cut of a line (w, 2, 2) whose entries add up ``depth`` cells each."""
    total = line.sum(axis=0)
    arms = np.maximum(total.sum(axis=1), 1.0)
    means = np.clip((total[:, 0] - total[:, 1]) / arms, -1.0, 1.0)
    share = float(np.clip(arms[1] / arms.sum(), 0.05, 0.95))
    left = np.cumsum(line, axis=0)[:-1]
    cells = depth * np.arange(1, len(line))
    differences, variances = np.zeros((2, len(left))), np.zeros((2, len(left)))
    enough = np.ones(len(left), dtype=bool)
    for sign, side, size in ((1.0, left, cells), (-1.0, total - left, depth * len(line) - cells)):
        arm = side.sum(axis=2)
        count = arm.sum(axis=1)
        enough &= count >= LEAST
        # a count below its own noise says nothing
        count = np.maximum(count, 4.0 * np.sqrt(noise * size))
        outcome = (side[:, :, 0] - side[:, :, 1] - means * arm).sum(axis=1)
        treated = arm[:, 1] - share * arm.sum(axis=1)
        differences += sign * np.stack([outcome, treated]) / count
        variances += np.stack(
            [
                spread**2 / count + 2.0 * noise * size * (2.0 + float(np.sum(means**2))) / count**2,
                share * (1.0 - share) / count
                + 2.0 * noise * size * (share**2 + (1.0 - share) ** 2) / count**2,
            ]
        )
    return np.asarray(np.where(enough, np.sum(differences**2 / np.maximum(variances, 1e-200), axis=0), 0.0))


def leaf_means(sums: Array, cells: Array, spread: float, noise: float) -> tuple[Array, Array, Array]:
    """Counts, outcomes and treated shares of leaves: empirical Bayes means, which is post-processing.

    ``sums`` (l, 2, 2) are by leaf, by arm, P and Q, in records; ``cells`` (l,) are added up in each leaf;
    ``spread`` and ``noise`` are those of :func:`grow`. A leaf's outcome is shrunk to that of all leaves, net
    of an effect common to all, then that of either arm to both; a treated share to that of all.
    """
    arms = sums.sum(axis=2)
    totals = sums[:, :, 0] - sums[:, :, 1]
    held = np.maximum(arms, 0.0)
    own = 2.0 * noise * cells
    effect = _common_effect(totals, arms, own, spread)
    level = _ratio(float(totals.sum() - effect * arms[:, 1].sum()), float(arms.sum()))
    deviation = totals.sum(axis=1) - effect * arms[:, 1] - level * arms.sum(axis=1)
    variance = spread**2 * held.sum(axis=1) + own * (2.0 + level**2 + (level + effect) ** 2)
    common = level + _shrunk(deviation, arms.sum(axis=1), variance, 2.0 * own)
    outcome = np.empty_like(arms)
    for arm in (0, 1):
        base = np.clip(common + arm * effect, -1.0, 1.0)
        variance = spread**2 * held[:, arm] + own * (1.0 + base**2)
        outcome[:, arm] = base + _shrunk(totals[:, arm] - base * arms[:, arm], arms[:, arm], variance, own)
    count = arms.sum(axis=1)
    share = max(_ratio(float(arms[:, 1].sum()), float(count.sum())), 0.0)
    variance = share * (1.0 - share) * np.maximum(count, 0.0) + own * (share**2 + (1.0 - share) ** 2)
    treated = share + _shrunk(arms[:, 1] - share * count, count, variance, 2.0 * own)
    return count, np.clip(outcome, -1.0, 1.0), np.clip(treated, 0.0, 1.0)


def _common_effect(totals: Array, arms: Array, noise: Array, spread: float) -> float:
    """The mean difference of the arms within leaves, by the inverse of its variance, in [-2, 2].

    Leaves with an arm whose count is within its noise are left out; 0 where this leaves none.
    """
    floor = 2.0 * np.sqrt(noise)[:, None]
    counts = np.maximum(arms, np.maximum(floor, 1.0))
    means = np.clip(totals / counts, -1.0, 1.0)
    variances = spread**2 / counts + noise[:, None] * (1.0 + means**2) / counts**2
    weights = np.where((arms > floor).all(axis=1), 1.0 / np.maximum(variances.sum(axis=1), 1e-200), 0.0)
    total = float(weights.sum())
    return float(np.sum(weights * (means[:, 1] - means[:, 0]))) / total if total > 0.0 else 0.0


def _shrunk(deviation: Array, mass: Array, variance: Array, mass_noise: Array) -> Array:
    """``deviation / mass`` of every leaf, shrunk to 0 as its ``variance`` asks for.

    The variance of what is estimated between leaves is that of the deviations beyond their own, by moments.
    """
    between = max(float(np.sum(deviation**2 - variance)), 0.0)
    between /= max(float(np.sum(mass**2 - mass_noise)), 1e-300)
    if not 0.0 < between < np.inf:
        return np.zeros_like(deviation)
    held = np.maximum(mass, 0.0)
    return np.asarray(held * deviation / (held**2 + variance / between))


def _ratio(total: float, count: float) -> float:
    """A mean of values in [-1, 1]."""
    return min(max(total / max(count, 1.0), -1.0), 1.0)
