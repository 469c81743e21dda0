"""What a step is run with, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.solve import Solution, Solver


@dataclass(frozen=True)
class Execution:
    """How a plan is run: public, and none of it chosen after seeing the records.

    Parameters
    ----------
    solver
        What solves the programs.
    tolerance
        The relative radius that weights are certified to, which V counts.
    seed
        For tests and experiments only: what was run with one is not private.
    """

    solver: str | Solver
    tolerance: float
    seed: int | str | None = None

    def label(self, name: str) -> str | None:
        """The seed of one draw of the run; None for fresh entropy.

        No two draws may share their bits.
        """
        return None if self.seed is None else f"{name} {self.seed}"


@dataclass(frozen=True, repr=False)
class Inputs:
    """Records and weights that the data holder hands to a step: nothing of them is released.

    Parameters
    ----------
    dataset
        The dataset as it was given.
    records
        Its records, as the steps before this one mapped them.
    weights
        Those of a first stage with a stability theorem are private, and enter the steps that use
        them through V. Those at a released coefficient are a function of each record and one
        normalization. None before the first step that uses them.
    """

    dataset: Dataset | BlockedDataset
    records: Records
    weights: Solution | None = None


@dataclass(frozen=True, repr=False)
class StepResult:
    """What a step released, and what must stay with the data holder.

    Parameters
    ----------
    released
        Released numbers (p,).
    certified
        Whether what the theorem speaks of is within its public tolerance.
    by_gap
        Whether this rests on a duality gap alone.
    solution
        The minimizer before it is released. Private.
    noise
        The noise (p,). Private.
    """

    released: NDArray[Any]
    certified: bool = True
    by_gap: bool = False
    solution: Solution | None = None
    noise: Array | None = None
