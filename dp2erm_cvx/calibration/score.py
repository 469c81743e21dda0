"""One private mean of a bounded score, and its second moment for nothing (Theorem 12)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.integers import LARGEST_INTEGER, IntegerNoise, calibrate_integers
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import one_of, public_size, whole_number

#: The score is rounded to a grid of 2^19 to 2^20 steps on either side of its center, fewer for huge n.
_FINEST, _COARSEST = 20, 15
#: Noise beyond this many of its scales has probability below exp(-60).
_TAIL = 64.0


@dataclass(frozen=True)
class ScoreNoise:
    """Noise of the mean and of the second moment of a score, which are released together.

    The score of record i, less its public center, is ``step * k_i`` with an integer ``|k_i| <= largest``.
    Released are ``multipliers[0] * sum k_i`` and ``multipliers[1] * sum k_i^2``, with ``integers`` as noise.

    Attributes
    ----------
    step_exponent
        e of the ``step`` 2^e of the grid, in units of the outcome.
    largest
        K, an integer.
    n_samples
        n, public.
    integers
        The noise on the two integers.
    """

    step_exponent: int
    largest: int
    n_samples: int
    integers: IntegerNoise

    @property
    def noise(self) -> Noise:
        """Laplace (``GAMMA``) or Gaussian."""
        return self.integers.noise

    @property
    def epsilon(self) -> float:
        """What both numbers cost together."""
        return self.integers.epsilon

    @property
    def delta(self) -> float:
        """0 for Laplace noise."""
        return self.integers.delta

    @property
    def step(self) -> float:
        """Step of the grid, in units of the outcome."""
        return math.ldexp(1.0, self.step_exponent)

    @property
    def bound(self) -> float:
        """B, which the score less its center is clipped to: ``largest`` steps, in units of the outcome."""
        return math.ldexp(float(self.largest), self.step_exponent)

    @property
    def multipliers(self) -> tuple[int, int]:
        """Whole factors of the two sums: (2K, 1), with Gaussian noise (2K, 3)."""
        return 2 * self.largest, 1 if self.noise is Noise.GAMMA else 3

    @property
    def mean_step(self) -> float:
        """The mean per unit of the first integer, in units of the outcome."""
        return self.step / (float(self.multipliers[0]) * self.n_samples)

    @property
    def second_moment_step(self) -> float:
        """The second moment per unit of the second integer, in squared units of the outcome."""
        return self.step * self.step / (float(self.multipliers[1]) * self.n_samples)

    @property
    def mean_scale(self) -> float:
        """Scale of the noise of the mean, in units of the outcome: ``2B / (n epsilon)`` for Laplace."""
        return self.integers.scale * self.mean_step

    @property
    def second_moment_scale(self) -> float:
        """Scale of the noise of the second moment, in squared units of the outcome."""
        return self.integers.scale * self.second_moment_step


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
    bound = public_size("score_bound", score_bound)
    n = whole_number("n_samples", n_samples, at_least=2)
    kind = one_of("noise", noise, Noise)
    mantissa, exponent = math.frexp(bound)
    if mantissa == 0.5:
        exponent -= 1
    for bits in range(_FINEST, _COARSEST - 1, -1):
        step_exponent = exponent - bits
        largest = math.ceil(math.ldexp(bound, -step_exponent))
        if 3 * n * largest**2 > LARGEST_INTEGER:
            continue
        integers = calibrate_integers(4 * largest**2, budget, kind)
        if _TAIL * integers.scale <= LARGEST_INTEGER:
            return ScoreNoise(step_exponent, largest, n, integers)
    raise CalibrationError(
        f"n_samples = {n}, epsilon = {budget.epsilon:g}: the sums of a score are out of the range of 64-bit "
        "integers"
    )
