"""One private mean of a bounded score, and its second moment for nothing (Theorem 12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.grid_sums import GridSums, finest_sums
from dp2erm_cvx.calibration.integers import calibrate_integers
from dp2erm_cvx.privacy import Budget


@dataclass(frozen=True)
class ScoreNoise(GridSums):
    """Noise of the mean and of the second moment of a score: of ``2K sum k`` and ``w sum k^2``."""

    degrees: ClassVar[tuple[int, ...]] = (1, 2)

    @property
    def multipliers(self) -> tuple[int, ...]:
        """Whole factors of the two sums: (2K, 1), with Gaussian noise (2K, 3)."""
        return 2 * self.largest, 1 if self.noise is Noise.GAMMA else 3

    @property
    def mean_scale(self) -> float:
        """Scale of the noise of the mean, in units of the outcome: ``2B / (n epsilon)`` for Laplace."""
        return self.scales[0]

    @property
    def second_moment_scale(self) -> float:
        """Scale of the noise of the second moment, in squared units of the outcome."""
        return self.scales[1]


def calibrate_score(
    score_bound: float, n_samples: int, budget: Budget, noise: Noise | str = Noise.GAMMA
) -> ScoreNoise:
    """Calibrate the noise of ``(2K sum k_i, w sum k_i^2)``, ``|k_i| <= K``, by Theorem 12.

    Its sensitivity is ``4 K^2``. With ``d = |k - k'|`` and ``|k + k'| <= 2K - d`` one record moves the two
    by at most ``2K d`` and ``w d (2K - d)``. For w = 1 their sum is ``4 K d - d^2 <= 4 K^2``. For w = 3 the
    sum of their squares is ``16 K^4 u^2 (1 + 9 (1 - u)^2)`` with ``u = d / 2K``, and at most ``16 K^4``, as
    ``(1 + u) / (u^2 (1 - u)) >= 11.09 > 9``. The mean alone attains both at ``d = 2K``.

    Parameters
    ----------
    score_bound
        Bound of the score less its center, in units of the outcome; the bound in force, ``ScoreNoise.bound``,
        is the next number on the grid, larger by at most ``2^-19`` of it (``2^-14`` beyond 1.3 million
        records).
    n_samples
        n, public, at most about 1.4e9.
    budget
        What the two numbers may spend together.
    noise
        ``GAMMA``: discrete Laplace, which spends no delta. ``GAUSSIAN``: needs a delta.

    Raises DeclarationError for an invalid argument, and CalibrationError where n is too large, epsilon too
    small, or Gaussian noise has no delta.
    """

    def make(step_exponent: int, largest: int, n: int, kind: Noise) -> ScoreNoise:
        integers = calibrate_integers(4 * largest**2, budget, kind)
        return ScoreNoise(step_exponent, largest, n, integers)

    return finest_sums(score_bound, n_samples, noise, make)
