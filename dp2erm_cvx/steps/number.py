"""Noise on exact integers: nothing is solved. The number of treated records, where no more is known."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import IntegerNoise, Noise, Perturbed, RangeNoise, calibrate_integers
from dp2erm_cvx.calibration.profiles import LossLaw
from dp2erm_cvx.calibration.sums import GridSums
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.mechanism import perturb_integers
from dp2erm_cvx.privacy import Budget, StabilityBound
from dp2erm_cvx.stability import own_factors
from dp2erm_cvx.steps.record_map import UNIT, Rows
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult, divide
from dp2erm_cvx.universe import Universe


def split_noise(noise: Noise | str, budget: Budget) -> IntegerNoise:
    """Noise of sums to which a record adds whole numbers, not negative, of at most K together, in K-ths.

    A replacement takes such a vector v away and adds another one, v': ``||v|| + ||v'|| <= 2K`` in the l1
    norm, and ``||v - v'||^2 <= ||v||^2 + ||v'||^2 <= 2 K^2`` in the l2 norm, as no entry is negative.
    """
    shift = 2 * UNIT if Noise(noise).pure else math.isqrt(2 * UNIT * UNIT) + 1
    return replace(calibrate_integers(shift, budget, noise), unit=1.0 / UNIT)


@dataclass(frozen=True)
class NumberPlan(StepPlan):
    """Calibrated noise of a few sums over records; ``exact`` where it is drawn without floating point."""

    weighted: ClassVar[bool] = False

    calibration: IntegerNoise | GridSums | RangeNoise
    exact: bool

    @property
    def bound(self) -> StabilityBound:
        """That of weights 1, or of what every record counts by itself."""
        factored = self.universe.domain.weighted
        return own_factors(self.universe.n_samples, factored=factored)

    @property
    def theorem(self) -> str:
        """Laplace or Gaussian noise on integers."""
        return f"{self.calibration.noise.mechanism} noise on integers"

    @property
    def guarantee(self) -> Budget:
        """All numbers together; nothing is rounded after the noise."""
        return Budget(self.calibration.epsilon, self.calibration.delta)

    @property
    def perturbed(self) -> Perturbed:
        """The statistic itself."""
        return Perturbed.OUTPUT

    @property
    def counted(self) -> bool:
        """Whether the noise is exact."""
        return self.exact


@dataclass(frozen=True)
class SumsPlan(NumberPlan):
    """Exact integers, each with noise of the same law."""

    calibration: IntegerNoise | GridSums

    @property
    def integers(self) -> IntegerNoise:
        """The noise on each of them."""
        return self.calibration if isinstance(self.calibration, IntegerNoise) else self.calibration.integers

    @property
    def loss_law(self) -> LossLaw | None:
        """That of Gaussian noise, which rounding to integers only lowers."""
        noise = self.integers
        if noise.noise is not Noise.GAUSSIAN:
            return None
        return LossLaw(noise.sensitivity / noise.scale, folded=False)

    @abc.abstractmethod
    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The integers before their noise. Private."""

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the integers with their noise, in int64."""
        sums, seed = self.exact_sums(inputs.records, released), execution.label(self.name)
        found = perturb_integers(sums, self.integers, exact=self.exact, seed=seed)
        return StepResult(np.array(found, dtype=np.int64))


@dataclass(frozen=True)
class TreatmentRate(Step):
    """The number of treated records, from a ``share`` of the budget: one replacement moves it by 1.

    Where records may count less than 1, what the treated and the untreated count is added up, in K-ths, in
    every group: the same as cells, of which there is one per group.
    """

    name: ClassVar[str] = "rate"

    share: float
    noise: Noise | str = Noise.GAMMA
    exact: bool = True

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        return divide(budget, self.share, self.noise)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> TreatmentRatePlan:
        if not universe.domain.weighted:
            noise = calibrate_integers(1, budget, self.noise)
        else:
            noise = split_noise(self.noise, budget)
        return TreatmentRatePlan(universe, noise, None, None, self.exact)


@dataclass(frozen=True)
class TreatmentRatePlan(SumsPlan):
    """The calibrated count."""

    name: ClassVar[str] = "rate"

    calibration: IntegerNoise

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the treated share."""
        return self.calibration.variance / self.universe.n_samples**2

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The number of treated records, or what the records of both arms count, treated first, by group."""
        if not records.domain.weighted:
            return (sum(records.blocks.map(_treated)),)
        return tuple(int(one) for one in np.sum(records.blocks.map(_sums_by_arm), axis=0).ravel())

    def stated(self, released: Array) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        """What was released: of what, the name of every number, and the numbers."""
        if len(released) == 1:
            return "treated records", ("number",), (float(released[0]),)
        both = tuple(float(one) / UNIT for one in released)
        sampled, domain = self.universe.domain.sampling is not None, self.universe.domain
        arms, book = ("treated", "untreated"), domain.codebook
        names: tuple[str, ...] = arms
        if book is not None and domain.groups:
            levels = [level or "missing" for level in domain.groups]
            names = tuple(f"{arm} | {book.group}={level}" for arm in arms for level in levels)
        return "sampling weights over their bound" if sampled else "records", names, both

    @staticmethod
    def mass(released: Array) -> float:
        """What all records count together, where the sums of both arms were released; at least 0."""
        return float(np.maximum(np.sum(np.reshape(released, (2, -1)), axis=1), 0.0).sum()) / UNIT


@dataclass(frozen=True)
class SideCounts(Step):
    """The records on either side of a released rule by arm, from a ``share`` of the budget: four counts.

    A record adds what it counts to one of them, as to a cell, whatever its side and arm are.
    """

    name: ClassVar[str] = "sides"

    share: float
    noise: Noise | str = Noise.GAMMA
    exact: bool = True

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        return divide(budget, self.share, self.noise)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> SideCountsPlan:
        return SideCountsPlan(universe, split_noise(self.noise, budget), None, None, self.exact)


@dataclass(frozen=True)
class SideCountsPlan(SumsPlan):
    """The calibrated counts: where the rule does not treat, then where it does, the untreated first."""

    name: ClassVar[str] = "sides"
    #: What the counts are of.
    parameters: ClassVar[tuple[str, ...]] = tuple(
        f"{arm}, rule {'treats' if side else 'does not treat'}"
        for side in (0, 1)
        for arm in ("untreated", "treated")
    )

    calibration: IntegerNoise
    rule: str = "rule"

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of one count, in squared records."""
        return self.calibration.variance

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """What the records of every side and arm count, in K-ths."""
        found = records.blocks.map(partial(_sums_by_side, rule=released[self.rule]))
        return [sum(column) for column in zip(*found, strict=True)]

    def shares(self, released: Mapping[str, Array]) -> Array:
        """Their shares (2, 2) of all records, by side and arm, at least 0, from what was released."""
        counts = np.maximum(np.asarray(released[self.name], dtype=np.float64), 0.0) * self.calibration.unit
        found: Array = counts.reshape(2, 2) / self.universe.n_samples
        return found


def _sums_by_side(block: Records, rule: Array) -> list[int]:
    side = Rows.POOLED.predict(rule, block.covariates, 0.0) > 0.0
    whole = np.rint(UNIT * block.counts).astype(np.int64)
    return [
        int(whole[(side == treats) & (block.a == arm)].sum()) for treats in (False, True) for arm in (0, 1)
    ]


def _treated(block: Records) -> int:
    return int(block.a.sum())


def _sums_by_arm(block: Records) -> NDArray[np.int64]:
    """What records count in K-ths (2, G), the treated first, by group."""
    whole = np.rint(UNIT * block.group_counts).astype(np.int64)
    return np.array([whole[block.a == arm].sum(axis=0) for arm in (1, 0)])
