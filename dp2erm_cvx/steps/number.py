"""Noise on exact integers: nothing is solved. The number of treated records, where no more is known."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dp2erm_cvx.calibration import IntegerNoise, Noise, Perturbed, RangeNoise, calibrate_integers
from dp2erm_cvx.calibration.grid_sums import GridSums
from dp2erm_cvx.calibration.joint import LossLaw
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.mechanism import perturb_integers
from dp2erm_cvx.privacy import Budget, StabilityBound
from dp2erm_cvx.stability import own_factors
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult, divide
from dp2erm_cvx.universe import Universe

#: K, the whole number that a record adds to sums where it may add a share; a power of two: K-ths are exact.
UNIT = 2**20


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
        """That of weights 1, or of sampling weights."""
        factored = self.universe.domain.sampling is not None
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

    With sampling weights those of the treated and those of the untreated are added up, in K-ths of their
    bound: the same as cells, of which there is one.
    """

    name: ClassVar[str] = "propensity"

    share: float
    noise: Noise | str = Noise.GAMMA
    exact: bool = True

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        return divide(budget, self.share, self.noise)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> TreatmentRatePlan:
        if universe.domain.sampling is None:
            noise = calibrate_integers(1, budget, self.noise)
        else:
            noise = split_noise(self.noise, budget)
        return TreatmentRatePlan(universe, noise, None, None, self.exact)


@dataclass(frozen=True)
class TreatmentRatePlan(SumsPlan):
    """The calibrated count."""

    name: ClassVar[str] = "propensity"

    calibration: IntegerNoise

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the treated share."""
        return self.calibration.variance / self.universe.n_samples**2

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The number of treated records, or both sums of sampling weights, treated first."""
        if records.domain.sampling is None:
            return (sum(records.blocks.map(_treated)),)
        found = records.blocks.map(_sums_by_arm)
        return sum(treated for treated, _ in found), sum(untreated for _, untreated in found)

    @staticmethod
    def stated(released: Array) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        """What was released: of what, the name of every number, and the numbers."""
        if len(released) == 1:
            return "treated records", ("number",), (float(released[0]),)
        both = float(released[0]) / UNIT, float(released[1]) / UNIT
        return "sampling weights over their bound", ("treated", "untreated"), both

    @staticmethod
    def rate(released: Array, n_samples: int) -> float:
        """The treated share from what was released: of the records, or of both sums; 1/2 of nothing."""
        if len(released) == 1:
            return float(released[0]) / n_samples
        treated, untreated = (max(float(one), 0.0) for one in released)
        return treated / (treated + untreated) if treated + untreated > 0.0 else 0.5


def _treated(block: Records) -> int:
    return int(block.a.sum())


def _sums_by_arm(block: Records) -> tuple[int, int]:
    """Sampling weights in K-ths of their bound, the treated first."""
    whole = np.rint(UNIT * block.counts).astype(np.int64)
    return int(whole[block.a == 1].sum()), int(whole[block.a == 0].sum())
