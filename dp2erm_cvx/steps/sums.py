"""Exact integers with noise: nothing is solved. How many records are treated, and on which side of a rule."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import IntegerNoise, Noise, calibrate_integers
from dp2erm_cvx.calibration.profiles import LossLaw
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.mechanism import perturb_integers
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.steps.record_map import UNIT, Rows
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepResult
from dp2erm_cvx.universe import Universe


def split_noise(noise: Noise | str, budget: Budget) -> IntegerNoise:
    """Noise of sums to which a record adds whole numbers, not negative, of at most K together, in K-ths.

    A replacement takes such a vector v away and adds another one, v': ``||v|| + ||v'|| <= 2K`` in the l1
    norm, and ``||v - v'||^2 <= ||v||^2 + ||v'||^2 <= 2 K^2`` in the l2 norm, as no entry is negative.
    """
    return in_parts(2 * UNIT if Noise(noise).pure else math.isqrt(2 * UNIT * UNIT) + 1, budget, noise)


def in_parts(shift: int, budget: Budget, noise: Noise | str) -> IntegerNoise:
    """Noise of integers that count K-ths, which a replacement moves by at most ``shift`` together."""
    return replace(calibrate_integers(shift, budget, noise), unit=1.0 / UNIT)


@dataclass(frozen=True)
class IntegerSums(Step):
    """Integers that are sums over records, each with noise of the same law."""

    @abc.abstractmethod
    def calibrate(self, universe: Universe, budget: Budget) -> IntegerNoise:
        """The noise: of what one replacement moves all of them by."""

    @abc.abstractmethod
    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The integers before their noise. Private."""

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        """With a delta by Gaussian or by Laplace noise, whichever is predicted to err less."""
        laws = dict.fromkeys([Noise(self.noise).on_numbers, Noise.GAMMA])
        noises = (replace(self, noise=law).calibrate(universe, budget) for law in laws)
        return min((self.planned(universe, noise) for noise in noises), key=lambda plan: plan.predicted_error)

    def planned(self, universe: Universe, noise: IntegerNoise) -> Self:
        """The step with this noise; the bound is that of weights 1, or of what every record counts itself."""
        bound = uniform_weights(universe.n_samples, factored=universe.domain.weighted)
        return replace(self, universe=universe, calibration=noise, bound=bound)

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the integers with their noise, in int64."""
        assert self.integers is not None
        sums, seed = self.exact_sums(inputs.records, released), execution.label(self.name)
        noisy = perturb_integers(sums, self.integers, exact=self.counted, seed=seed)
        return StepResult(np.array(noisy, dtype=np.int64))

    def mapped(self, records: Records, released: Mapping[str, Array]) -> Records:
        """The records that later steps are given, at all that is ``released`` by then: mostly the same."""
        return records

    def hand_on(self, inputs: Inputs, released: Mapping[str, Array]) -> Inputs:
        return replace(inputs, records=self.mapped(inputs.records, released))

    @property
    def theorem(self) -> str:
        return f"{self.calibration.noise.mechanism} noise on integers"

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of one integer, in its own units."""
        variance: float = self.calibration.variance
        return variance

    @property
    def loss_law(self) -> LossLaw | None:
        """Law of Gaussian noise, which rounding to integers only lowers."""
        noise = self.integers
        if noise is None or noise.noise is not Noise.GAUSSIAN:
            return None
        return LossLaw(noise.sensitivity / noise.scale, folded=False)


@dataclass(frozen=True)
class TreatmentRate(IntegerSums):
    """The number of treated records: one replacement moves it by 1. Of more than two arms, those of each.

    Where records may count less than 1, what the treated and the untreated count is added up, in K-ths, in
    every group: the same as cells, of which there is one per group.
    """

    name: str = "rate"

    def calibrate(self, universe: Universe, budget: Budget) -> IntegerNoise:
        if universe.domain.weighted:
            return split_noise(self.noise, budget)
        return calibrate_integers(1, budget, self.noise)

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the treated share."""
        return super().predicted_error / self.universe.n_samples**2

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The number of treated records, or what the records of all arms count, by group.

        Of two arms the treated come first, of more the arms are in their order.
        """
        return totals(records, _sums_by_arm if records.domain.weighted else _treated)

    def stated(self, released: Array) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        """Table of what was released: of what, the name of every number, and the numbers."""
        if len(released) == 1:
            return "treated records", ("number",), (float(released[0]),)
        both = tuple(float(total) / UNIT for total in released)
        domain = self.universe.domain
        arms: tuple[str, ...] = ("treated", "untreated")
        book = domain.codebook
        if len(domain.arms) > 2:
            arms = domain.arms
        names: tuple[str, ...] = arms
        if book is not None and domain.groups:
            levels = [level or "missing" for level in domain.groups]
            names = tuple(f"{arm} | {book.group}={level}" for arm in arms for level in levels)
        return "records" if not domain.uneven else "sampling weights over their bound", names, both


def totals(records: Records, function: Callable[[Records], Any]) -> list[int]:
    """Sums over all records of the integers that ``function`` makes of views with all rows of every unit."""
    return [int(total) for total in np.sum(records.by_units(function), axis=0).ravel()]


def released_mass(released: Array, n_arms: int = 2) -> float:
    """Mass of all records together, where the sums of all arms were released; at least 0."""
    return float(np.maximum(np.sum(np.reshape(released, (n_arms, -1)), axis=1), 0.0).sum()) / UNIT


@dataclass(frozen=True)
class SideCounts(IntegerSums):
    """The records on either side of a released ``rule`` by arm: four counts.

    A record adds what it counts to one of them, as to a cell, whatever its side and arm are.
    """

    name: str = "sides"
    rule: str = "rule"

    def calibrate(self, universe: Universe, budget: Budget) -> IntegerNoise:
        return split_noise(self.noise, budget)

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """Counts of the records of every side and arm, in K-ths."""
        return totals(records, partial(_sums_by_side, rule=released[self.rule]))

    def shares(self, released: Mapping[str, Array]) -> Array:
        """The shares (2, 2) of all records, by side and arm, at least 0, from what was released."""
        sums = np.maximum(np.asarray(released[self.name], dtype=np.float64), 0.0) * self.calibration.unit
        shares: Array = sums.reshape(2, 2) / self.universe.n_samples
        return shares


#: What counts by side and arm are of: where the rule does not treat, then where it does, the untreated first.
SIDES = tuple(
    f"{arm}, rule {'treats' if side else 'does not treat'}"
    for side in (0, 1)
    for arm in ("untreated", "treated")
)


def _sums_by_side(block: Records, rule: Array) -> list[int]:
    side = Rows.POOLED.predict(rule, block.covariates, 0.0) > 0.0
    cells = [(side == treats) & (block.a == arm) for treats in (False, True) for arm in (0, 1)]
    return _in_cells(block, [block.counts * inside for inside in cells])


def _treated(block: Records) -> list[int]:
    return [int(block.a.sum())]


def _sums_by_arm(block: Records) -> NDArray[np.int64]:
    """Counts of records in K-ths by arm and group: of two arms (2, G), the treated first."""
    groups, n_arms = block.group_counts.T, len(block.domain.arms)
    order = (1, 0) if n_arms == 2 else range(n_arms)
    sums = [_in_cells(block, [counts * (block.a == arm) for counts in groups]) for arm in order]
    return np.array(sums, dtype=np.int64)


def _in_cells(block: Records, columns: Sequence[Array]) -> list[int]:
    """Sums in K-ths of ``columns`` (n,), what records add to disjoint cells: a unit at most K to all of them.

    What a unit adds to a cell is rounded down, as it may add to several.
    """
    totals = block.by_unit(*columns)
    nearest = np.rint if block.unit is None else np.floor
    return [int(nearest(UNIT * total).astype(np.int64).sum()) for total in totals]
