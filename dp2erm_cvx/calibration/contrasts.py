"""Two private means, of which every record adds to one, at the noise of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.grid_sums import GridSums, finest_sums
from dp2erm_cvx.calibration.integers import calibrate_integers
from dp2erm_cvx.calibration.score import ScoreNoise
from dp2erm_cvx.privacy import Budget


@dataclass(frozen=True)
class ContrastNoise(GridSums):
    """Noise of two means, of which every record adds to one, and of their common second moment.

    Of ``2K`` times the sum of k over the records of the first, the same over the others, ``w sum k^2``.
    """

    degrees: ClassVar[tuple[int, ...]] = (1, 1, 2)

    @property
    def multipliers(self) -> tuple[int, ...]:
        """Whole factors of the three sums: (2K, 2K, 1), with Gaussian noise (2K, 2K, 3)."""
        return 2 * self.largest, 2 * self.largest, 1 if self.noise is Noise.GAMMA else 3

    @property
    def alone(self) -> ScoreNoise:
        """That of one mean with the common second moment, which is at least its own."""
        return ScoreNoise(self.step_exponent, self.largest, self.n_samples, self.integers)


def calibrate_contrasts(
    score_bound: float, n_samples: int, budget: Budget, noise: Noise | str = Noise.GAMMA
) -> ContrastNoise:
    """Calibrate the noise of two means and their second moment: at that of one mean, nothing more.

    A record that stays with its mean moves the three integers by at most ``4 K^2``, as in
    :func:`~dp2erm_cvx.calibration.calibrate_score`. One that changes it moves both sums. With k and k' of
    sizes ``u >= v`` that is ``2K (u + v) + u^2 - v^2`` in the l1 norm, which increases in u and v up to
    ``4 K^2``. In the l2 norm, for w = 3, the square is ``4 K^2 (u^2 + v^2) + 9 (u^2 - v^2)^2``, convex in the
    squares and at most ``13 K^4`` at their ends. Arguments and errors are those of that function.
    """

    def make(step_exponent: int, largest: int, n: int, kind: Noise) -> ContrastNoise:
        integers = calibrate_integers(4 * largest**2, budget, kind)
        return ContrastNoise(step_exponent, largest, n, integers)

    return finest_sums(score_bound, n_samples, noise, make)
