"""A scheme of margins, and cells of the margins of its records for Theorems 22 and 23."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.stability.arm_curves import FARTHEST, ArmCurves
from dp2erm_cvx.stability.base import ROUNDING

#: What upper bounds on cells are multiplied by, and lower bounds divided by.
OUTWARD = 1.0 + ROUNDING
#: How often cells are cut where the result rests on them.
ROUNDS = 5
#: Cells of the margins of an arm before any is cut, and the most after it.
_CELLS = 1500
_MOST_CELLS = 20_000
#: Parts that a cell is cut into.
_PARTS = 8


class MarginCells(NamedTuple):
    """Cells of margins, each with the number of its arm.

    Attributes
    ----------
    arm
        Number of the arm (m,), 0 or 1.
    low, high
        Ends of the margins (m,).
    """

    arm: NDArray[np.int64]
    low: Array
    high: Array

    def cut(self, chosen: NDArray[np.int64]) -> MarginCells:
        """Cells of which the chosen are cut into eighths, unless they are many."""
        if len(self.low) + (_PARTS - 1) * len(chosen) > _MOST_CELLS:
            return self
        edges = np.linspace(self.low[chosen], self.high[chosen], _PARTS + 1)
        rest = np.delete(np.arange(len(self.low)), chosen)
        return MarginCells(
            np.append(self.arm[rest], np.tile(self.arm[chosen], _PARTS)),
            np.append(self.low[rest], edges[:-1]),
            np.append(self.high[rest], edges[1:]),
        )


class LogWeightsOnCells(NamedTuple):
    """Bounds of h on cells.

    Attributes
    ----------
    least, largest
        Ends of h (m,).
    steepest
        Largest ``|h'|`` (m,).
    """

    least: Array
    largest: Array
    steepest: Array

    def weights(self) -> tuple[Array, Array]:
        """Least and largest f = exp(h) on cells, rounded outward."""
        return np.exp(self.least) / OUTWARD, np.exp(self.largest) * OUTWARD


@dataclass(frozen=True)
class MarginScheme:
    """What Theorems 22 and 23 ask of a separable scheme with rows of norm 1.

    Parameters
    ----------
    n
        Number of records.
    mu
        Ridge of the mean objective, in squared units of the rows.
    reach
        Bound on ``|<z, v>|`` at a minimizer.
    arms
        Curves by arm; one entry where both are alike.
    beside
        Bound on the rows of a linear term beside the loss.
    by_arm
        Whether rows are ``e_a (x) g`` and those of the linear term a multiple of g in the other
        arm.
    public
        Norm of the public linear term less the price of ``||v||_1``.
    least_share
        Least share of an arm among n - 1 records.
    """

    n: int
    mu: float
    reach: float
    arms: tuple[ArmCurves, ...]
    beside: float
    by_arm: bool
    public: float
    least_share: float

    def cells(self) -> MarginCells:
        """Cells of the margins of every arm.

        They end where ``<z, v>`` is 0 at an end of the offset, so that no cell has both signs.
        """
        numbers = []
        lows = []
        highs = []
        for number, arm in enumerate(self.arms):
            edges = self._edges(arm)
            numbers.append(np.full(len(edges) - 1, number))
            lows.append(edges[:-1])
            highs.append(edges[1:])
        return MarginCells(np.concatenate(numbers), np.concatenate(lows), np.concatenate(highs))

    def _edges(self, arm: ArmCurves) -> Array:
        """Ends of the cells of one arm, rising."""
        half = np.linspace(0.0, self.reach, _CELLS // 2 + 1)
        least_offset, largest_offset = arm.offset
        below = least_offset - half[:0:-1]
        if least_offset == largest_offset:
            return np.concatenate([below, largest_offset + half])
        between = np.linspace(least_offset, largest_offset, _CELLS // 8 + 1)
        return np.concatenate([below, between, largest_offset + half[1:]])

    @property
    def is_near(self) -> bool:
        """True if margins and weights are within floating point."""
        return self.reach <= FARTHEST and self.log_size <= FARTHEST

    @property
    def log_size(self) -> float:
        """Largest size of log f on cells; infinite where f or a slope of phi leaves all numbers."""
        for arm in self.arms:
            ends = np.array(arm.margins(self.reach))
            if not np.all(np.isfinite(arm.loss.slope(ends))):
                return math.inf
        bounds = self.log_weights(self.cells())
        return float(np.max(np.abs([bounds.least, bounds.largest])))

    def log_weights(self, cells: MarginCells) -> LogWeightsOnCells:
        """Bounds of h and of its slope on cells."""
        least = np.empty(len(cells.low))
        largest = np.empty(len(cells.low))
        steepest = np.empty(len(cells.low))
        for number, arm in enumerate(self.arms):
            of_arm = cells.arm == number
            enclosure = arm.weight.enclose(cells.low[of_arm], cells.high[of_arm])
            least[of_arm] = enclosure.low
            largest[of_arm] = enclosure.high
            steepest[of_arm] = enclosure.steepest
        return LogWeightsOnCells(least, largest, steepest)
