"""Cells instead of lines: counts and outcomes by cell and arm, from one release (Theorem 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import IntegerNoise, Noise
from dp2erm_cvx.domain import Array, Records, cleaned
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.number import SumsPlan, split_noise
from dp2erm_cvx.steps.partition import Partition
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.step import Step, StepPlan, divide
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class CellSums(Step):
    """Every outcome, split in two, by cell of a public ``partition`` and by arm.

    The outcome ``t = (y - c) / M'`` lies in [-1, 1]. A record adds ``p``, the whole number nearest to
    ``K (1 + t) / 2``, to one entry P of its cell and arm, and ``K - p`` to the entry Q beside it. Then
    ``P + Q`` counts records and ``P - Q`` sums outcomes, in K-ths. With a sampling weight s of at most S the
    whole number nearest to ``K s / S`` stands for K, and both sums are of weights.

    The entries of one record are not negative and add up to at most K, whatever its cell, arm, outcome and
    weight: ``split_noise`` hides what they move. Noise of scale ``2K / epsilon`` on every entry, empty or
    not, is private. Counts and sums released apart take twice that.
    """

    name: ClassVar[str] = "cells"

    partition: Partition
    share: float
    noise: Noise | str = Noise.GAMMA
    exact: bool = True

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        """Pure noise leaves delta to the others."""
        return divide(budget, self.share, self.noise)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> CellSumsPlan:
        """Calibrate the noise of one entry: the number of cells does not enter."""
        noise = split_noise(self.noise, budget)
        return CellSumsPlan(universe, noise, None, None, self.exact, self.partition)


@dataclass(frozen=True)
class CellSumsPlan(SumsPlan):
    """The calibrated cells."""

    name: ClassVar[str] = "cells"

    calibration: IntegerNoise
    partition: Partition

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of one entry, in squared records."""
        return self.calibration.variance

    def errors(self, outcome: float, treated: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Root mean squares of what noise, and shrinkage, do to m_a and to e in one cell.

        For records that fill the cells evenly, between which m_a and e have standard deviations ``outcome``
        and ``treated``.
        """
        count = self.universe.mass * self.universe.n_samples / self.partition.size
        noise = math.sqrt(self.calibration.variance) / count
        # variance 2 v M'^2 of the sum of an arm with half of the records, v of (1 - e) N_1 - e N_0 at e = 1/2
        own = math.sqrt(8.0) * noise * self.universe.domain.outcome_bound
        return _shrunk_error(outcome, own), _shrunk_error(treated, noise)

    def sums(self, records: Records) -> NDArray[np.int64]:
        """P and Q of every cell and arm, (cells, 2, 2), exact. Private."""
        found: NDArray[np.int64] = np.sum(records.blocks.map(self._block_sums), axis=0)
        return found.reshape(-1, 2, 2)

    def _block_sums(self, records: Records) -> NDArray[np.int64]:
        bound = self.universe.domain.outcome_bound
        whole = np.rint(UNIT * records.counts)
        half = np.rint((cleaned(records.y / bound, 1.0) + 1.0) * (whole / 2)).astype(np.int64)
        first = 4 * self.partition.index(records.covariates) + 2 * records.a
        found = np.zeros(4 * self.partition.size, dtype=np.int64)
        np.add.at(found, first, half)
        np.add.at(found, first + 1, whole.astype(np.int64) - half)
        return found

    def table(self, released: Mapping[str, Array]) -> Array:
        """What was released, in records: (cells, 2, 2) by cell, by arm, P and Q."""
        return np.reshape(released[self.name], (-1, 2, 2)) / UNIT

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> list[int]:
        """Those of all entries, (4 cells,)."""
        return [int(entry) for entry in self.sums(records).ravel()]


def _shrunk_error(signal: float, noise: float) -> tuple[float, float]:
    """What is left of the noise, and what is lost of the signal, of the best linear shrinkage."""
    lost = 1.0 / (1.0 + (signal / noise) ** 2)
    return (1.0 - lost) * noise, lost * signal
