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
from dp2erm_cvx.public import public_size


@dataclass(frozen=True)
class ArmNoise(GridSums):
    """Noise of the sums of ``k_1``, ``k_0``, ``(k_1 - k_0)^2``, ``(k_1 + k_0)^2`` and ``k_1^2 - k_0^2``.

    The score of the record's own arm is clipped to ``largest`` = K steps, that of the other arm, which is
    its predicted outcome there, to ``largest_other`` = L <= K steps.
    """

    degrees: ClassVar[tuple[int, ...]] = (1, 1, 2, 2, 2)

    largest_other: int

    @property
    def multipliers(self) -> tuple[int, ...]:
        """``(18K, 18K, 4, 4, 1)``; Gaussian noise: ``(16K, 16K, w, w, v)``, w, v of 16K and 8K over K + L."""
        top, both = self.largest, self.largest + self.largest_other
        if self.noise is Noise.GAMMA:
            return 18 * top, 18 * top, 4, 4, 1
        return 16 * top, 16 * top, 16 * top // both, 16 * top // both, 8 * top // both

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
    """Calibrate the noise of both arm means and of their second moments.

    The l1 sensitivity is ``2 (K + L) (19 K - L)``, the l2 sensitivity ``32 K (K + L)``. Scores bounded by B
    each would cost twice the noise of one score. Here a record has one score within ``score_bound`` and one
    within ``other_bound``, and the noise is at most ``1.06 (1 + G/B)`` times that of one score. Proof on the
    page "Private effects".

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

    def make(step_exponent: int, largest: int, n: int, kind: Noise) -> ArmNoise:
        small = math.ceil(math.ldexp(other, -step_exponent))
        both = largest + small
        moved = 2 * both * (19 * largest - small) if kind is Noise.GAMMA else 32 * largest * both
        return ArmNoise(step_exponent, largest, n, calibrate_integers(moved, budget, kind), small)

    return finest_sums(bound, n_samples, noise, make)
