"""What a step is run with, and what comes of it: records, how they are solved, and released
numbers.
"""

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

    ``tolerance`` is the relative radius that weights are certified to, which V counts. ``seed`` is
    for tests and experiments only: what was run with one is not private.
    """

    solver: str | Solver
    tolerance: float
    seed: int | str | None = None

    def label(self, name: str) -> str | None:
        """The seed of one draw of the run: no two draws may share their bits. None for fresh
        entropy.
        """
        return None if self.seed is None else f"{name} {self.seed}"


@dataclass(frozen=True, repr=False)
class Inputs:
    """Records and weights that the data holder hands to a step: nothing of them is released.

    ``weights`` of a first stage with a stability theorem are private, and enter the steps that use
    them through V. Those at a released coefficient are a function of each record and one
    normalization. None before the first step that uses them.
    """

    dataset: Dataset | BlockedDataset
    records: Records
    weights: Solution | None = None


@dataclass(frozen=True, repr=False)
class StepResult:
    """Numbers (p,) that a step released, and what must stay with the data holder.

    ``certified`` says that what the theorem speaks of is within its public tolerance, ``by_gap``
    that this rests on a duality gap alone. ``noise`` (p,) and ``solution``, the minimizer before it
    is released, are private.
    """

    released: NDArray[Any]
    certified: bool = True
    by_gap: bool = False
    solution: Solution | None = None
    noise: Array | None = None
