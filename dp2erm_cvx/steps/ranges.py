"""Private ranges of columns that nobody declared: quantiles by private choices, before anything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import calibrate_ranges
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.mechanism import (
    private_choice,
    quantile_places,
    quantile_scores,
    random_source,
)
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.private_ranges import Known, PrivateRanges, Within, candidates
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepResult
from dp2erm_cvx.universe import Universe

#: Records of a block at every candidate, of two roundings.
Counts = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, kw_only=True)
class ColumnRanges(Step):
    """The ranges of the columns that ``public`` does not declare.

    It comes first: the steps after it see the records normalized by what it released (Theorem 10). Its
    universe is theirs. A person stands for one record: its values share that, in whole parts of K.
    """

    name: str = "ranges"
    public: PrivateRanges

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        known = self.public.known(universe.n_features)
        sizes = [None if isinstance(pair, tuple) else len(candidates(pair)) for pair in known]
        noise = calibrate_ranges(universe.n_samples, sizes, budget)
        bound = uniform_weights(universe.n_samples, factored=universe.domain.weighted)
        return replace(self, universe=universe, calibration=noise, bound=bound)

    @property
    def counted(self) -> bool:
        return True  # private choices draw integers alone

    @property
    def theorem(self) -> str:
        return "permute-and-flip on ranks (OpenDP)"

    @property
    def predicted_error(self) -> float:
        """Mean square of the error of a rank, as a share of the records, by the noise of one candidate."""
        return float((self.calibration.scale / self.universe.n_samples) ** 2)

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release a range (k + 1, 2) for every covariate, then for the outcome; public ones as declared."""
        known = self.public.known(self.universe.n_features)
        grids = [None if isinstance(pair, tuple) else candidates(pair) for pair in known]
        blocks: list[list[Counts]]
        if (domain := self.universe.domain).units is None:
            blocks = inputs.dataset.blocks.map(partial(_counts, grids=grids))
        else:
            blocks = inputs.dataset.by_person(partial(_counts_of_persons, domain=domain, grids=grids))
        ends = [
            self._range(place, known[place], [block[place] for block in blocks], execution)
            for place in range(len(known))
        ]
        return StepResult(np.array(ends))

    def hand_on(self, inputs: Inputs, released: Mapping[str, Array]) -> Inputs:
        """The records, normalized: whatever was released, they are in the public domain of the plan."""
        domain, ends = self.universe.domain, released[self.name]
        mapped = partial(_normalized, declared=self.public, released=ends, domain=domain)
        return replace(inputs, records=inputs.dataset.records(mapped, domain))

    def _range(
        self, place: int, known: Known, blocks: Sequence[Counts], execution: Execution
    ) -> tuple[float, float]:
        if isinstance(known, tuple):
            return known
        noise, grid, n = self.calibration, candidates(known), self.universe.n_samples
        parts = 1 if self.universe.domain.units is None else UNIT
        level = noise.levels[place]
        assert level is not None
        inward = int(np.ceil(level * n))
        ends = []
        for above, rank in ((False, inward), (True, n - inward)):
            counts = np.sum([block[above] for block in blocks], axis=0)
            middle = (*self.public.middles(self.universe.n_features), self.public.outcome_middle)[place]
            counts = _filled(counts, grid, middle, above, parts * n)
            seed = execution.label(f"{self.name} {place} {above}")
            source = None if seed is None else random_source(seed)
            choose = private_choice(parts * noise.sensitivity, noise.each, source)
            ends.append(float(grid[choose(quantile_scores(counts, parts * rank))]))
        return widened(ends[0], ends[1], noise.factors[place], known)


def _placed(values: Array, grid: Array, above: bool) -> NDArray[np.int64]:
    return np.bincount(quantile_places(values, grid, above=above), minlength=len(grid))


def _counts(
    data: Dataset, *, grids: Sequence[Array | None], count: Callable[..., NDArray[np.int64]] = _placed
) -> list[Counts]:
    """Values at every column's candidates, rounded down and up; nothing where a range is public."""
    return [
        () if grid is None else tuple(count(values, grid, above) for above in (False, True))
        for values, grid in zip((*data.X.T, data.y), grids, strict=True)
    ]


def _counts_of_persons(data: Dataset, domain: Domain, grids: Sequence[Array | None]) -> list[Counts]:
    """Counts in parts of a person, at most K each: by the rows that count."""
    assert domain.codebook is not None
    assert domain.codebook.unit is not None
    unit, counted = replace(domain.codebook.unit, count=1), data.sampling
    counted = np.ones(len(data.a)) if counted is None else np.asarray(counted)
    present = (counted if counted.ndim == 1 else np.sum(counted, axis=1)) > 0.0
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
    return counts + (total - counts.sum()) * (np.arange(len(grid)) == place)


def _normalized(data: Dataset, *, declared: PrivateRanges, released: Array, domain: Domain) -> Records:
    scaled, outcome = declared.scaled(data.X, data.y, released)
    return domain.records(scaled, data.a, outcome, data.sampling, data.person, data.repeats)


def widened(low: float, high: float, factor: float, known: Within | None) -> tuple[float, float]:
    """The range from two released numbers, by a public rule: at least as wide, and inside of wide bounds.

    Where low is not below high, as for a constant column, it reaches as far from the middle as the middle is
    from 0, and at least by 1.
    """
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    if half <= 0.0:
        half = max(1.0, abs(middle), -half)
    low, high = middle - factor * half, middle + factor * half
    if known is None:
        return low, high
    inside = max(low, known.low), min(high, known.high)
    return inside if inside[0] < inside[1] else (known.low, known.high)
