"""The effect among the treated: a score, the number of treated, and what their ratio's interval needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.grid_sums import GridSums, finest_sums
from dp2erm_cvx.calibration.integers import calibrate_integers
from dp2erm_cvx.privacy import Budget


@dataclass(frozen=True)
class TreatedNoise(GridSums):
    """Noise of ``sum k``, ``sum a``, ``sum k^2`` and ``sum (2a - 1) k``, each times its factor."""

    degrees: ClassVar[tuple[int, ...]] = (1, 0, 2, 1)

    @property
    def multipliers(self) -> tuple[int, ...]:
        """``(14 K, 4 K^2, 6, 2 K)``, with Gaussian noise ``(8 K, 4 K^2, 11, 2 K)``."""
        top = self.largest
        if self.noise is Noise.GAMMA:
            return 14 * top, 4 * top**2, 6, 2 * top
        return 8 * top, 4 * top**2, 11, 2 * top


def calibrate_treated(
    score_bound: float, n_samples: int, budget: Budget, noise: Noise | str = Noise.GAMMA
) -> TreatedNoise:
    """Calibrate the noise of the four sums: l1 sensitivity ``32 K^2``, l2 sensitivity ``sqrt(272) K^2``.

    The noise of the mean score is 8/7 of that of a mean alone (Laplace; 1.03 with Gaussian noise), that of
    the number of treated has scale ``8 / epsilon``. Proof on the page "Private effects".

    Parameters
    ----------
    score_bound
        B, of the score less its center, in units of the outcome.
    n_samples
        n, public, at most about 3e8.
    budget, noise
        As in :func:`calibrate_score`.

    Raises DeclarationError for an invalid argument, and CalibrationError where n is too large, epsilon too
    small, or Gaussian noise has no delta.
    """

    def make(step_exponent: int, largest: int, n: int, kind: Noise) -> TreatedNoise:
        square = largest**2
        moved = 32 * square if kind is Noise.GAMMA else math.isqrt(272 * square**2 - 1) + 1
        return TreatedNoise(step_exponent, largest, n, calibrate_integers(moved, budget, kind))

    return finest_sums(score_bound, n_samples, noise, make)
