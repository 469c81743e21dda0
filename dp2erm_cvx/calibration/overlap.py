"""The effect where either treatment is likely: a score, the size of that population, and a second moment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.grid_sums import GridSums, finest_sums
from dp2erm_cvx.calibration.integers import calibrate_integers
from dp2erm_cvx.privacy import Budget

#: A record counts by a multiple of ``2^-SHARE_BITS``, and by one half at most.
SHARE_BITS = 20


@dataclass(frozen=True)
class OverlapNoise(GridSums):
    """Noise of ``sum k``, ``sum h`` and ``sum k^2``, each times its factor; ``0 <= h <= 1/2`` on its grid."""

    degrees: ClassVar[tuple[int, ...]] = (1, 0, 2)

    @property
    def multipliers(self) -> tuple[int, ...]:
        """``(2 K, w 2^20, 1)``, w about ``2^-19 K^2``; with Gaussian noise twice that, and 3 at the end."""
        pure = self.noise is Noise.GAMMA
        return 2 * self.largest, share_factor(self.largest, self.noise) << SHARE_BITS, 1 if pure else 3


def share_factor(largest: int, noise: Noise) -> int:
    """w, the whole factor of a share in steps of its grid."""
    return (1 if noise is Noise.GAMMA else 2) * (largest**2 >> (SHARE_BITS - 1))


def calibrate_overlap(
    score_bound: float,
    n_samples: int,
    budget: Budget,
    noise: Noise | str = Noise.GAMMA,
    *,
    within: bool = False,
) -> OverlapNoise:
    """Calibrate the noise of the three sums: sensitivity ``5 K^2`` (l1), ``sqrt(20) K^2`` (l2).

    One record moves the first and the last by at most ``4 K^2`` together (:func:`calibrate_score`), and
    ``w 2^20 h`` by ``w 2^19``. The noise of the mean score is 5/4 of that of a mean alone (1.12 with Gaussian
    noise), whatever h has to do with the score. Where no score exceeds 2 h B, as with sampling weights, the
    three move by ``17/4 K^2`` or ``sqrt(17) K^2``, for 17/16 (1.03) of that noise. Proof on the page "Private
    effects".

    Parameters
    ----------
    score_bound
        B, of the score less its center, in units of the outcome.
    n_samples, budget, noise
        As in :func:`calibrate_score`.
    within
        Whether no score exceeds 2 h B in size.

    Raises DeclarationError for an invalid argument, and CalibrationError where n is too large, epsilon too
    small, or Gaussian noise has no delta.
    """

    def make(step_exponent: int, largest: int, n: int, kind: Noise) -> OverlapNoise:
        score, share = 4 * largest**2, share_factor(largest, kind) << (SHARE_BITS - 1)
        moved = score + share if kind is Noise.GAMMA else math.isqrt(score**2 + share**2 - 1) + 1
        if within:  # beside 12 K for what is rounded
            square = largest**2
            whole = 17 * square // 4 if kind is Noise.GAMMA else math.isqrt(17 * square**2)
            moved = min(moved, whole + 1 + 12 * largest)
        return OverlapNoise(step_exponent, largest, n, calibrate_integers(moved, budget, kind))

    return finest_sums(score_bound, n_samples, noise, make)
