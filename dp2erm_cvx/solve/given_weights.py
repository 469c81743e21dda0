"""Weights that were computed elsewhere: how far they provably are from the exact weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.arrays import ROUND_UP_SUMS
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.solve.solving import solve


@dataclass(frozen=True)
class GivenWeights:
    """What is known of weights that were computed elsewhere.

    It is private: the numbers depend on the records.

    Parameters
    ----------
    n
        Number of records.
    total
        Sum of the weights; those of a program have the sum n.
    least, largest
        Least and largest weight.
    distance
        Distance ``|w - w_hat|_1`` to the weights that this package finds.
    radius
        Proved bound of the distance ``|w - w*|_1`` to the exact weights; infinite where nothing is
        proved.
    """

    n: int
    total: float
    least: float
    largest: float
    distance: float
    radius: float

    @property
    def relative(self) -> float:
        """The proved bound over n: the mean error of a weight."""
        return self.radius / self.n

    @property
    def other_total(self) -> bool:
        """Whether the sum is not n to six digits, so that these are weights on another scale."""
        return not math.isclose(self.total, self.n, rel_tol=1e-6)


def certify_weights(program: FirstStage, records: Records, weights: ArrayLike) -> GivenWeights:
    """Certify weights that another solver or package computed for a program.

    The program is solved, and its certificate bounds how far the weights that are found are from
    the exact ones. By the triangle inequality the given weights are within this bound and their own
    distance to those that are found. Nothing is asked of whoever computed them.

    Parameters
    ----------
    program
        The first stage.
    records
        The records that the weights are of, in the same order.
    weights
        Weights (n,), of sum n as a program has them.

    Returns
    -------
    GivenWeights

    Raises
    ------
    DataError
        For another number of weights, and for those that are no finite numbers.
    """
    w = np.asarray(weights, dtype=np.float64)
    n = records.n_samples
    if w.shape != (n,):
        raise DataError(
            f"weights: must be {n} numbers, one for each record, not an array of {w.shape}"
        )
    wrong = np.flatnonzero(~np.isfinite(w))
    if len(wrong):
        raise DataError(f"weights: record {int(wrong[0]) + 1} has the weight {w[wrong[0]]:g}")
    instance = program.resolve(records.space).instance(records)
    found = solve(instance, throw=False)
    distance = float(np.sum(np.abs(w - found.value))) * ROUND_UP_SUMS
    radius = (distance + found.certificate.output_radius) * ROUND_UP_SUMS
    return GivenWeights(n, float(np.sum(w)), float(np.min(w)), float(np.max(w)), distance, radius)
