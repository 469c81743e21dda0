"""Private quantiles of every column whose range is not declared: which levels, at what noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget

#: Quantiles are no farther out than this where the noise allows it, for covariates and for the outcome.
_FARTHEST = (0.02, 0.01)
#: Farther in than this they say little about the range.
_NEAREST = 0.25
#: A candidate beyond all records is as likely as exp(-3) of a good one.
_MARGIN = 3.0
#: Released ranges reach to this many standard deviations of a normal column, for covariates and the outcome.
_REACH = (2.0, 3.0)
_ROUND_DOWN = 1.0 - 1e-12


@dataclass(frozen=True)
class RangeNoise:
    """Two private choices for every column whose range is released.

    Attributes
    ----------
    epsilon
        Of all choices together; ``each`` is that of one.
    levels
        For every covariate, then the outcome: q of the quantiles q and 1 - q that are chosen, None where the
        range is public.
    factors
        The range between them is widened about its middle by these factors, at least 1.
    """

    epsilon: float
    each: float
    levels: tuple[float | None, ...]
    factors: tuple[float, ...]
    noise: Noise = Noise.GAMMA
    delta: float = 0.0
    sensitivity: int = 1

    @property
    def scale(self) -> float:
        """Of the exponential noise of every candidate, in records."""
        return 2.0 * self.sensitivity / self.each


def calibrate_ranges(n_samples: int, sizes: Sequence[int | None], budget: Budget) -> RangeNoise:
    """Divide epsilon over the columns, and choose the levels of their quantiles.

    ``sizes`` are the numbers of candidates, for every covariate and then the outcome, None where the range is
    public. A candidate beyond all records is q n records worse than a good one. q grows until the noise hides
    no such lead; the range is then widened to what a normal column would need.

    Raises DeclarationError where every range is public, CalibrationError where epsilon is too small for the
    columns: declare some of them, or give the ranges a larger share.
    """
    released = sum(size is not None for size in sizes)
    if not released:
        raise DeclarationError("private ranges: every range is declared, so that a Domain can say it all")
    each = budget.epsilon / (2 * released) * _ROUND_DOWN
    least = [
        None if size is None else 2.0 * (math.log(size) + _MARGIN) / (n_samples * each) for size in sizes
    ]
    worst = max(level for level in least if level is not None)
    if worst > _NEAREST:
        needed = budget.epsilon * worst / _NEAREST
        raise CalibrationError(
            f"private ranges of {released} columns need an epsilon of {needed:.3g} at n_samples = "
            f"{n_samples}, and have {budget.epsilon:.3g}: declare some of them, choose fewer covariates or "
            "a larger share"
        )
    ends = [_FARTHEST[0]] * (len(sizes) - 1) + [_FARTHEST[1]]
    levels = [None if level is None else max(level, end) for level, end in zip(least, ends, strict=True)]
    reaches = [_REACH[0]] * (len(sizes) - 1) + [_REACH[1]]
    factors = [
        1.0 if level is None else max(1.0, -reach / float(special.ndtri(level)))
        for level, reach in zip(levels, reaches, strict=True)
    ]
    return RangeNoise(budget.epsilon, each, tuple(levels), tuple(factors))
