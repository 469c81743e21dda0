"""Laplace noise for the value of a released rule against treating all and treating none."""

from __future__ import annotations

import enum

from dp2erm_cvx.calibration.calibrator import refuse_uncovered
from dp2erm_cvx.calibration.constants import Noise, in_range
from dp2erm_cvx.calibration.curvature import MARGIN
from dp2erm_cvx.calibration.grid import GridNoise, calibrate_grid
from dp2erm_cvx.privacy import Budget, Neighboring, StabilityBound
from dp2erm_cvx.public import one_of, public_number, whole_number

#: Bound on the l1 error of the computed numbers, relative to their largest contribution: every term, every
#: sum and every division is rounded once, by 2^-53 relative at most; the fourth unit covers what compensated
#: sums lose.
SUM_ERROR = 4.0 * 2.0**-53


class ValueStatistic(enum.StrEnum):
    """What is released about the value of a rule, see the page "The value of the learned rule".

    ``CELLS``: weighted outcomes and masses of the four cells (choice, treatment), whatever the arms weigh.
    ``CONTRASTS``: the two differences at once, with about half of the noise; biased unless each arm weighs
    one half.
    """

    CELLS = "cells"
    CONTRASTS = "contrasts"

    @property
    def n_numbers(self) -> int:
        """How many numbers are released."""
        return 8 if self is ValueStatistic.CELLS else 2

    @property
    def radius(self) -> float:
        """Largest l1 norm of the contribution of one record of weight 1, in units of M'."""
        return 1.5 if self is ValueStatistic.CELLS else 2.0


def calibrate_value(
    bound: StabilityBound,
    outcome_bound: float,
    n_samples: int,
    epsilon: float,
    *,
    statistic: ValueStatistic | str = ValueStatistic.CELLS,
    relation: Neighboring = Neighboring.REPLACE_ONE,
) -> GridNoise:
    """Calibrate the noise of ``T = (1/n) sum w_i t_i`` for a rule that is already public.

    Every contribution has ``||t_i||_1 <= r M'``, r the ``radius`` of the statistic and M' the
    ``outcome_bound`` of the centered outcome. Hence ``||T - T'||_1 <= r M' V / n`` between neighbors,
    treatment flips included (the argument of Theorem 1 (i); proof on the page "The value of the learned
    rule"). The l1 sensitivity adds twice the error with which T is computed, and the noise covers rounding
    to a grid. All numbers together are (epsilon, 0)-differentially private, in units of the outcome.

    Raises CalibrationError where the bound does not cover what is declared or a quantity is out of
    floating-point range; DeclarationError for an invalid argument.
    """
    kind = one_of("value statistic", statistic, ValueStatistic)
    largest = public_number("outcome_bound", outcome_bound, above=0.0)
    n = whole_number("n_samples", n_samples, at_least=2)
    budget = Budget(epsilon)
    refuse_uncovered(bound, relation, budget, Noise.GAMMA)
    setting = f"n_samples = {n}, V = {bound.V:g}, outcome_bound = {largest:g}"
    in_range("largest weighted sum", kind.radius * largest * n, setting)
    movement = in_range("value sensitivity", kind.radius * largest * (bound.V / n) * (1.0 + MARGIN), setting)
    shift = movement + 2.0 * SUM_ERROR * (kind.radius * largest)
    return calibrate_grid(shift * (1.0 + MARGIN), kind.n_numbers, budget.epsilon)
