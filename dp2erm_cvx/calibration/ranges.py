"""Private quantiles of every column whose range is not declared: which levels, at what noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from dp2erm_cvx.calibration.base import Noise
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget

#: Quantiles are no farther out than this where the noise allows it, for covariates and for the outcome.
_FARTHEST = (0.02, 0.01)
#: Farther in than this they say little about the range.
_NEAREST = 0.25
#: All candidates beyond the records together are as likely as exp(-8) of one good one; at least exp(-5).
_MARGIN, _LEAST_MARGIN = 8.0, 5.0
#: Released ranges reach to this many standard deviations of a normal column, for covariates and the outcome.
_REACH = (2.0, 3.0)
_ROUND_DOWN = 1.0 - 1e-12


@dataclass(frozen=True)
class RangeNoise:
    """Two private choices for every column whose range is released: ``each`` at an epsilon of its own.

    ``levels`` have, for every covariate and then the outcome, q of the quantiles q and 1 - q that are chosen,
    None where the range is public. The range between them is widened about its middle by ``factors``, at
    least 1.
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
        """Scale of the exponential noise of every candidate, in records."""
        return 2.0 * self.sensitivity / self.each


def calibrate_ranges(n_samples: int, sizes: Sequence[int | None], budget: Budget) -> RangeNoise:
    """Divide epsilon over the columns, and choose the levels of their quantiles.

    ``sizes`` are the numbers of candidates, for every covariate and then the outcome, None where the range is
    public. A candidate beyond all records is q n records worse than a good one: q grows until the noise hides
    no such lead; the range is then widened to what a normal column would need. Raises DeclarationError where
    every range is public, CalibrationError where epsilon is too small for the columns.
    """
    known = [size for size in sizes if size is not None]
    if not known:
        raise DeclarationError("private ranges: every range is declared, so that a Domain can say it all")
    each = budget.epsilon / (2 * len(known)) * _ROUND_DOWN
    unit = 2.0 / (n_samples * each)
    needed = budget.epsilon * unit * (math.log(max(known)) + _LEAST_MARGIN) / _NEAREST
    if needed > budget.epsilon:
        raise CalibrationError(
            f"private ranges of {len(known)} columns need an epsilon of {needed:.3g} at n_samples = "
            f"{n_samples}, and have {budget.epsilon:.3g}: declare some of them, choose fewer covariates or "
            "a larger share"
        )
    levels: list[float | None] = []
    factors = []
    for place, size in enumerate(sizes):
        kind = int(place == len(sizes) - 1)
        if size is None:
            levels.append(None)
            factors.append(1.0)
            continue
        level = min(max(unit * (math.log(size) + _MARGIN), _FARTHEST[kind]), _NEAREST)
        levels.append(level)
        factors.append(max(1.0, -_REACH[kind] / float(special.ndtri(level))))
    return RangeNoise(budget.epsilon, each, tuple(levels), tuple(factors))
