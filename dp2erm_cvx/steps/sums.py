"""Steps that solve nothing: exact integers with noise, and ranges that nobody declared."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import IntegerNoise, Noise, calibrate_ranges
from dp2erm_cvx.calibration.numbers import calibrate_integers
from dp2erm_cvx.calibration.profiles import LossLaw
from dp2erm_cvx.data.counts import Unit
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.private_ranges import Known, OpenDomain, Pair, Within, candidates
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.noise import (
    perturb_integers,
    private_choice,
    quantile_places,
    quantile_scores,
    random_source,
)
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.execution import Execution, Inputs, StepResult
from dp2erm_cvx.steps.record_map import UNIT, Rows
from dp2erm_cvx.steps.step import Step


def split_noise(noise: Noise | str, budget: Budget) -> IntegerNoise:
    """Noise of sums to which a record adds whole numbers of K-ths, K of them at most together.

    No number is negative. A replacement takes such a vector v away and adds another one, v':
    ``||v|| + ||v'|| <= 2K`` in the l1 norm, and ``||v - v'||^2 <= ||v||^2 + ||v'||^2 <= 2 K^2`` in
    the l2 norm, as no entry is negative.
    """
    movement = 2 * UNIT if Noise(noise).pure else math.isqrt(2 * UNIT * UNIT) + 1
    return in_parts(movement, budget, noise)


def in_parts(shift: int, budget: Budget, noise: Noise | str, block: int = 1) -> IntegerNoise:
    """Noise of integers that count K-ths, which a replacement moves by at most ``shift`` together.

    They come in blocks of ``block`` integers each, of which the largest movements are added up.
    """
    return replace(calibrate_integers(shift, budget, noise, block), unit=1.0 / UNIT)


@dataclass(frozen=True)
class IntegerSums(Step):
    """Integers that are sums over records, each with noise of the same law."""

    @abc.abstractmethod
    def calibrate(self, universe: MappedUniverse, budget: Budget) -> IntegerNoise:
        """The noise: of what one replacement moves all of them by."""

    @abc.abstractmethod
    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The integers before their noise. Private."""

    def plan(self, universe: MappedUniverse, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        """With a delta by Gaussian or by Laplace noise, whichever is predicted to err less."""
        plans = []
        for law in dict.fromkeys([Noise(self.noise).on_numbers, Noise.GAMMA]):
            noise = replace(self, noise=law).calibrate(universe, budget)
            plans.append(self.planned(universe, noise))
        return min(plans, key=attrgetter("predicted_error"))

    def run(
        self, inputs: Inputs, released: Mapping[str, Array], execution: Execution
    ) -> StepResult:
        """Release the integers with their noise, in int64."""
        assert self.integers is not None
        sums = self.exact_sums(inputs.records, released)
        seed = execution.label(self.name)
        noisy = perturb_integers(sums, self.integers, exact=self.counted, seed=seed)
        return StepResult(np.array(noisy, dtype=np.int64))

    def mapped(self, records: Records, released: Mapping[str, Array]) -> Records:
        """The records that later steps are given, at what is released by then: mostly the same."""
        return records

    def hand_on(self, inputs: Inputs, released: Mapping[str, Array]) -> Inputs:
        return replace(inputs, records=self.mapped(inputs.records, released))

    @property
    def theorem(self) -> str:
        return f"{self.calibration.noise.mechanism} noise on integers"

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise on what one integer stands for, its unit included."""
        return float(self.calibration.variance)

    @property
    def loss_law(self) -> LossLaw | None:
        """Law of Gaussian noise, which rounding to integers only lowers."""
        noise = self.integers
        if noise is None or noise.noise is not Noise.GAUSSIAN:
            return None
        return LossLaw(noise.sensitivity / noise.scale, folded=False)


@dataclass(frozen=True)
class TreatmentRate(IntegerSums):
    """The number of treated records, which one replacement moves by 1.

    Of more than two arms it is the number of records of each. Where records may count less than 1,
    what the treated and the untreated count is added up, in K-ths, in every group: a record adds to
    the sum of one arm and one group.
    """

    name: str = "rate"

    def calibrate(self, universe: MappedUniverse, budget: Budget) -> IntegerNoise:
        if universe.space.weighted:
            return split_noise(self.noise, budget)
        return calibrate_integers(1, budget, self.noise)

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the treated share, among the records that count.

        It is at most this where sums of both arms are released, of which the share is a ratio.
        """
        return super().predicted_error / (self.universe.mass * self.universe.n_samples) ** 2

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The number of treated records, or what the records of all arms count, by group.

        Of two arms the treated come first, of more the arms are in their order.
        """
        return totals(records, _sums_by_arm)

    def stated(
        self, released: Array, domain: Domain
    ) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        """Table of what was released, by the labels of a domain.

        Parameters
        ----------
        released
            What the step released.
        domain
            Its labels of arms and groups.

        Returns
        -------
        tuple
            What the numbers are of, their names, and the numbers.
        """
        if len(released) == 1:
            return "treated records", ("number",), (float(released[0]),)
        numbers = tuple(float(total) / UNIT for total in released)
        arms = domain.arms if len(domain.arms) > 2 else ("treated", "untreated")
        book = domain.codebook
        names = list(arms)
        if domain.groups and book is not None:
            names = []
            for arm in arms:
                for level in domain.groups:
                    names.append(f"{arm} | {book.group}={level or 'missing'}")
        of = "sampling weights over their bound" if domain.uneven else "records"
        return of, tuple(names), numbers


@dataclass(frozen=True)
class SideCounts(IntegerSums):
    """The records on either side of a released ``rule`` by arm: four counts.

    A record adds what it counts to one of them, as to a cell, whatever its side and arm are.
    """

    name: str = "sides"
    rule: str = "rule"

    def calibrate(self, universe: MappedUniverse, budget: Budget) -> IntegerNoise:
        return split_noise(self.noise, budget)

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """Counts of the records of every side and arm, in K-ths."""
        return totals(records, partial(_sums_by_side, rule=released[self.rule]))

    def shares(self, released: Mapping[str, Array]) -> Array:
        """The shares (2, 2) of all records, by side and arm, at least 0, from what was released."""
        counts = np.maximum(np.asarray(released[self.name], dtype=np.float64), 0.0)
        sums = counts * self.calibration.unit
        return np.asarray(sums.reshape(2, 2) / self.universe.n_samples)


#: What counts by side and arm are of: where the rule does not treat, then where it does, the
#: untreated first.
SIDES = tuple(
    f"{arm}, rule {side}"
    for side in ("does not treat", "treats")
    for arm in ("untreated", "treated")
)


def totals(records: Records, function: Callable[[Records], Any]) -> list[int]:
    """Sums over all records of the integers that ``function`` makes of a view.

    A view has all rows of every unit.
    """
    return [int(total) for total in np.sum(records.by_units(function), axis=0).ravel()]


def released_mass(released: Array, n_arms: int = 2) -> float:
    """Mass of all records together, where the sums of all arms were released; at least 0."""
    return float(np.maximum(np.sum(np.reshape(released, (n_arms, -1)), axis=1), 0.0).sum()) / UNIT


def _sums_by_side(block: Records, rule: Array) -> list[int]:
    treats = Rows.POOLED.predict(rule, block.covariates, 0.0) > 0.0
    columns = []
    for side in (~treats, treats):
        for arm in (0, 1):
            columns.append(block.counts * (side & (block.a == arm)))
    return _in_cells(block, columns)


def _sums_by_arm(block: Records) -> list[int]:
    """The number of treated records; where some may count less than 1, sums of all arms.

    These are in K-ths, by arm and then by group.
    """
    if not block.space.weighted:
        return [int(block.a.sum())]
    n_arms = block.space.n_arms
    order = (1, 0) if n_arms == 2 else range(n_arms)
    sums = []
    for arm in order:
        columns = [own * (block.a == arm) for own in block.group_counts.T]
        sums.extend(_in_cells(block, columns))
    return sums


def _in_cells(block: Records, columns: Sequence[Array]) -> list[int]:
    """Sums in K-ths of ``columns`` (n,), what records add to disjoint cells.

    A unit adds at most K to all of them. What it adds to a cell is rounded down where it may have
    several records.
    """
    nearest = np.rint if block.unit is None else np.floor
    return [int(nearest(UNIT * total).astype(np.int64).sum()) for total in block.by_unit(*columns)]


#: Records of a block at every candidate, of two roundings.
Counts = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, kw_only=True)
class ColumnRanges(Step):
    """Two quantiles of every column whose range ``public`` does not declare (Theorem 10).

    Each of them is a private choice on a public grid; ranges follow by a public rule. A person
    stands for one record: its values share that, in whole parts of K.

    Parameters
    ----------
    public
        What is declared of the columns: their ranges, or bounds within which these are.
    """

    name: str = "ranges"
    public: OpenDomain

    @property
    def grids(self) -> list[Array | None]:
        """The candidates of every column; None where its range is public."""
        grids: list[Array | None] = []
        for known in self.public.known:
            grids.append(None if isinstance(known, tuple) else candidates(known))
        return grids

    def plan(self, universe: MappedUniverse, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        sizes = [None if grid is None else len(grid) for grid in self.grids]
        noise = calibrate_ranges(universe.n_samples, sizes, budget, 1 + len(self.public.others))
        return self.planned(universe, noise)

    @property
    def counted(self) -> bool:
        return True  # private choices draw integers alone

    @property
    def theorem(self) -> str:
        return "permute-and-flip on ranks (OpenDP)"

    @property
    def predicted_error(self) -> float:
        """Mean square of the error of a rank by the noise of one candidate, over n squared."""
        return float((self.calibration.scale / self.universe.n_samples) ** 2)

    def run(
        self, inputs: Inputs, released: Mapping[str, Array], execution: Execution
    ) -> StepResult:
        """Release two candidates (c, 2) of every column, the outcome last.

        Public ranges are released as they are declared.
        """
        grids = self.grids
        count: Callable[[Dataset], list[Counts]] = partial(_counts, grids=grids)
        book = self.public.codebook
        if book is not None and book.unit is not None:
            count = partial(_counts_of_persons, unit=replace(book.unit, count=1), grids=grids)
        blocks = inputs.dataset.by_units(count)
        chosen: list[Any] = []
        for place, grid in enumerate(grids):
            if grid is None:
                chosen.append(self.public.known[place])
            else:
                own = [block[place] for block in blocks]
                chosen.append(self._chosen(place, grid, own, execution))
        return StepResult(np.array(chosen))

    def _chosen(
        self, place: int, grid: Array, blocks: Sequence[Counts], execution: Execution
    ) -> tuple[float, float]:
        """The private choices of both quantiles of a column."""
        noise = self.calibration
        n = self.universe.n_samples
        middles = (*self.public.middles(self.universe.n_features), self.public.outcome_middle)
        parts = 1 if self.universe.space.units is None else UNIT
        level = noise.levels[place]
        assert level is not None
        inward = int(np.ceil(level * n))
        ends = []
        for above, rank in ((False, inward), (True, n - inward)):
            counts = np.sum([block[above] for block in blocks], axis=0)
            counts = _filled(counts, grid, middles[place], above, parts * n)
            seed = execution.label(f"{self.name} {place} {above}")
            source = None if seed is None else random_source(seed)
            choose = private_choice(parts * noise.sensitivity, noise.each, source)
            chosen = choose(quantile_scores(counts, parts * rank))
            ends.append(float(grid[chosen]))
        return ends[0], ends[1]

    def ranges(self, released: Array) -> list[Pair]:
        """The range of every column, from what was released: public arithmetic."""
        ranges = []
        columns = zip(released, self.calibration.factors, self.public.known, strict=True)
        for (low, high), factor, known in columns:
            if isinstance(known, tuple):
                ranges.append(known)
            else:
                ranges.append(widened(float(low), float(high), factor, known))
        return ranges


def _placed(values: Array, grid: Array, above: bool) -> NDArray[np.int64]:
    return np.bincount(quantile_places(values, grid, above=above), minlength=len(grid))


def _counts(
    data: Dataset,
    *,
    grids: Sequence[Array | None],
    count: Callable[..., NDArray[np.int64]] = _placed,
) -> list[Counts]:
    """Values at every column's candidates, rounded down and up; nothing where a range is public."""
    counts: list[Counts] = []
    for values, grid in zip((*data.X.T, data.y), grids, strict=True):
        if grid is None:
            counts.append(())
        else:
            counts.append((count(values, grid, False), count(values, grid, True)))
    return counts


def _counts_of_persons(data: Dataset, unit: Unit, grids: Sequence[Array | None]) -> list[Counts]:
    """Counts in parts of a person, at most K each: by the rows that count."""
    counted = np.ones(len(data.a))
    if data.sampling is not None:
        counted = np.asarray(data.sampling)
    if counted.ndim > 1:  # a row counts in every group that it is of
        counted = np.sum(counted, axis=1)
    present = counted > 0.0
    shares, person = unit.shared(present.astype(np.float64), data.person)

    def counts(values: Array, grid: Array, above: bool) -> NDArray[np.int64]:
        place = quantile_places(values, grid, above=above)[present]
        keys, index = np.unique(person[present] * len(grid) + place, return_inverse=True)
        parts = np.floor(UNIT * np.bincount(index, shares[present]))
        return np.bincount(keys % len(grid), parts, minlength=len(grid)).astype(np.int64)

    return _counts(data, grids=grids, count=counts)


def _filled(counts: NDArray[np.int64], grid: Array, middle: float, above: bool, total: int) -> Any:
    """The counts with what is left of persons at the middle: they add up to the ``total``."""
    place = quantile_places(np.array([middle]), grid, above=above)[0]
    left = total - counts.sum()
    return counts + left * (np.arange(len(grid)) == place)


def widened(low: float, high: float, factor: float, known: Known) -> tuple[float, float]:
    """The range from two released numbers, by a public rule.

    It is at least as wide, and inside of declared wide bounds. Where low is not below high, as for
    a constant column, it reaches as far from the middle as the middle is from 0, and at least by 1.
    """
    middle = 0.5 * (low + high)
    half = 0.5 * (high - low)
    if half <= 0.0:
        half = max(1.0, abs(middle), -half)
    least = middle - factor * half
    largest = middle + factor * half
    if not isinstance(known, Within):
        return least, largest
    least = max(least, known.low)
    largest = min(largest, known.high)
    if least < largest:
        return least, largest
    return known.low, known.high
