"""Both arm means by two scores of a record, of which one alone carries a factor (Theorem 12, arms)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.grid_sums import GridSums, finest_sums
from dp2erm_cvx.calibration.integers import calibrate_integers
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import one_of, public_size, whole_number


@dataclass(frozen=True)
class ArmNoise(GridSums):
    """Noise of ``4K sum k_1``, ``4K sum k_0``, ``w sum (k_1 - k_0)^2`` and ``w sum (k_1 + k_0)^2``.

    The score of the record's own arm is clipped to ``largest`` = K steps, that of the other arm, which is
    its predicted outcome there, to ``largest_other`` = L <= K steps.
    """

    degrees: ClassVar[tuple[int, ...]] = (1, 1, 2, 2)

    largest_other: int

    @property
    def multipliers(self) -> tuple[int, ...]:
        """Whole factors of the four sums; w is 1 for Laplace noise and ``floor(4.7 K / (K + L))`` else."""
        own = 4 * self.largest
        squares = 1
        if self.noise is Noise.GAUSSIAN:
            squares = 47 * self.largest // (10 * (self.largest + self.largest_other))
        return own, own, squares, squares

    @property
    def other_bound(self) -> float:
        """G, which the score of the other arm is clipped to, in units of the outcome."""
        return math.ldexp(float(self.largest_other), self.step_exponent)


def calibrate_arms(
    score_bound: float,
    other_bound: float,
    n_samples: int,
    budget: Budget,
    noise: Noise | str = Noise.GAMMA,
) -> ArmNoise:
    """Calibrate the noise of both arm means and two second moments: sensitivity ``8 K (K + L)``.

    Scores bounded by B each would cost twice the noise of one score. Here a record has one score within
    ``score_bound`` and one within ``other_bound``, and the noise is ``1 + G/B`` times that of one score.
    Proof on the page "Private effects"; the second moments are free.

    Parameters
    ----------
    score_bound
        B, of the score of the record's own arm, less its public center.
    other_bound
        G, of the score of the other arm, the prediction less its public center; at most B.
    n_samples, budget, noise
        As in :func:`calibrate_score`.

    Raises DeclarationError for an invalid argument, and CalibrationError where n is too large, epsilon too
    small, or Gaussian noise has no delta.
    """
    bound, other = public_size("score_bound", score_bound), public_size("other_bound", other_bound)
    if other > bound:
        raise DeclarationError(f"other_bound = {other:g}: must be at most score_bound = {bound:g}")
    n = whole_number("n_samples", n_samples, at_least=2)
    kind = one_of("noise", noise, Noise)

    def make(step_exponent: int, largest: int) -> ArmNoise:
        small = math.ceil(math.ldexp(other, -step_exponent))
        integers = calibrate_integers(8 * largest * (largest + small), budget, kind)
        return ArmNoise(step_exponent, largest, n, integers, small)

    return finest_sums(bound, n, make)
