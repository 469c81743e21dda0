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
    """Noise of ``sum k``, ``sum h`` and ``sum k^2``, each times its factor; ``0 <= h <= 1/2`` on its grid.

    Where records are ``whole``, h is 0 or 1/2, and a record of h = 0 has k = 0. Where they are in disjoint
    ``groups``, every group has three such sums of its own, and the noise covers those of all groups.
    """

    degrees: ClassVar[tuple[int, ...]] = (1, 0, 2)

    whole: bool = False
    groups: bool = False

    @property
    def multipliers(self) -> tuple[int, ...]:
        """``(2 K, w 2^20, 1)``, w about ``2^-19 K^2``.

        With Gaussian noise twice that w, ``sqrt(3)`` times where records are whole, and 3 at the end. In
        groups ``(8 K, w 2^20, 1)``, with Gaussian noise ``(10 K, 7 w 2^20, 7)``.
        """
        pure = self.noise is Noise.GAMMA
        if self.groups:
            step = self.largest**2 >> (SHARE_BITS - 1) << SHARE_BITS
            return (8 * self.largest, step, 1) if pure else (10 * self.largest, 7 * step, 7)
        factor = share_factor(self.largest, self.noise, whole=self.whole)
        return 2 * self.largest, factor << SHARE_BITS, 1 if pure else 3


def share_factor(largest: int, noise: Noise, *, whole: bool) -> int:
    """w, the whole factor of a share in steps of its grid."""
    if noise is not Noise.GAMMA and whole:
        return math.isqrt(3 * largest**4) >> (SHARE_BITS - 1)
    return (1 if noise is Noise.GAMMA else 2) * (largest**2 >> (SHARE_BITS - 1))


def calibrate_overlap(
    score_bound: float,
    n_samples: int,
    budget: Budget,
    noise: Noise | str = Noise.GAMMA,
    *,
    within: bool = False,
    whole: bool = False,
) -> OverlapNoise:
    """Calibrate the noise of the three sums: sensitivity ``5 K^2`` (l1), ``sqrt(20) K^2`` (l2).

    One record moves the first and the last by at most ``4 K^2`` together (:func:`calibrate_score`), and
    ``w 2^20 h`` by ``w 2^19``. The noise of the mean score is 5/4 of that of a mean alone (1.12 with Gaussian
    noise), whatever h has to do with the score. Where no score exceeds 2 h B, as with sampling weights, the
    three move by ``17/4 K^2`` or ``sqrt(17) K^2``, for 17/16 (1.03) of that noise. Where a record counts in
    full or not at all they move by ``4 K^2`` in either norm, as a mean alone. Proof on the page "Private
    effects".

    Parameters
    ----------
    score_bound
        B, of the score less its center, in units of the outcome.
    n_samples, budget, noise
        As in :func:`calibrate_score`.
    within
        Whether no score exceeds 2 h B in size.
    whole
        Whether beyond that every h is 0 or 1/2.

    Raises DeclarationError for an invalid argument, and CalibrationError where n is too large, epsilon too
    small, or Gaussian noise has no delta.
    """

    def make(step_exponent: int, largest: int, n: int, kind: Noise) -> OverlapNoise:
        square = largest**2
        score, share = 4 * square, share_factor(largest, kind, whole=whole) << (SHARE_BITS - 1)
        moved = score + share if kind is Noise.GAMMA else math.isqrt(score**2 + share**2 - 1) + 1
        if within:  # beside 12 K for what is rounded
            least = 17 * square // 4 if kind is Noise.GAMMA else math.isqrt(17 * square**2)
            moved = min(moved, least + 1 + 12 * largest)
        integers = calibrate_integers(score if whole else moved, budget, kind)
        return OverlapNoise(step_exponent, largest, n, integers, whole)

    return finest_sums(score_bound, n_samples, noise, make)


def calibrate_groups(
    score_bound: float,
    n_samples: int,
    budget: Budget,
    noise: Noise | str = Noise.GAMMA,
    *,
    whole: bool = False,
) -> OverlapNoise:
    """Calibrate the noise of the three sums of every group, however many: sensitivity ``20 K^2``.

    A record in a group has ``|k| <= 2 h K``, which :func:`~dp2erm_cvx.mechanism.overlap_sums` sees to. With
    ``u = |k| / K`` it adds ``(8 u, 2 h, u^2) K^2`` in size to its group, at most 10 together: one that
    changes its group moves the sums of both by as much. One that stays moves less. The noise of the mean of
    a score is 5/4 of that of one mean (Laplace). With Gaussian noise the squares of ``(10 u, 14 h, 7 u^2)``
    add up to at most 198, those of both groups to less than 400, and 20 is what a change of sign within a
    group moves: the noise of one mean. Proof on the page "Private effects". Arguments and errors are those
    of :func:`calibrate_overlap`.
    """

    def make(step_exponent: int, largest: int, n: int, kind: Noise) -> OverlapNoise:
        integers = calibrate_integers(20 * largest**2, budget, kind)
        return OverlapNoise(step_exponent, largest, n, integers, whole, groups=True)

    return finest_sums(score_bound, n_samples, noise, make)
