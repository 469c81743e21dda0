"""Sums of whole numbers that records contribute, released together with noise on each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.integers import LARGEST_INTEGER, IntegerNoise
from dp2erm_cvx.calibration.sums import sum_quantile
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.public import one_of, public_size, whole_number

#: Scores are rounded to a grid of 2^19 to 2^20 steps on either side of their center, fewer for huge n.
_FINEST, _COARSEST = 20, 15
#: Noise beyond this many of its scales has probability below exp(-60).
_TAIL = 64.0


@dataclass(frozen=True)
class GridSums:
    """Sums over the records of whole numbers k, each times a whole factor, with noise on each product.

    The score of a record, less its public center, is ``step * k`` with ``|k| <= largest``.

    Attributes
    ----------
    step_exponent
        e of the ``step`` 2^e of the grid, in units of the outcome.
    largest
        K, an integer.
    n_samples
        n, public.
    integers
        The noise on the released integers.
    """

    #: Power of the step, and of the outcome's unit, that each released mean has.
    degrees: ClassVar[tuple[int, ...]]

    step_exponent: int
    largest: int
    n_samples: int
    integers: IntegerNoise

    @property
    def multipliers(self) -> tuple[int, ...]:
        """Whole factors of the sums."""
        raise NotImplementedError

    @property
    def noise(self) -> Noise:
        """Laplace (``GAMMA``) or Gaussian."""
        return self.integers.noise

    @property
    def epsilon(self) -> float:
        """What all released numbers cost together."""
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
    def units(self) -> tuple[float, ...]:
        """What one unit of each released integer is worth in the mean over the records."""
        pairs = zip(self.multipliers, self.degrees, strict=True)
        return tuple(self.step**degree / (float(factor) * self.n_samples) for factor, degree in pairs)

    @property
    def scales(self) -> tuple[float, ...]:
        """Scale of the noise of each mean over the records."""
        return tuple(self.integers.scale * unit for unit in self.units)

    def margin(self, tail: float, *which: int) -> float:
        """What the noise of a mean, or of the sum of two, exceeds in one direction with probability ``tail``.

        ``which`` are their places among ``multipliers``. The law is the continuous one; what the noise on
        integers may differ from it is added.
        """
        scales = [self.scales[place] for place in which]
        apart = self.integers.coupling * sum(self.units[place] for place in which)
        return sum_quantile(self.noise, tail, 0.0, *scales) + apart

    def means(self, released: Sequence[int]) -> tuple[float, ...]:
        """The means over the records that the ``released`` integers stand for."""
        return tuple(number * unit for number, unit in zip(released, self.units, strict=True))


Sums = TypeVar("Sums", bound=GridSums)


def finest_sums(
    score_bound: float, n_samples: int, noise: Noise | str, make: Callable[[int, int, int, Noise], Sums]
) -> Sums:
    """``make(step_exponent, largest, n, noise)`` on the finest grid that fits into 64-bit integers.

    Raises DeclarationError for an invalid argument, CalibrationError where the sums or their noise fit on no
    grid.
    """
    bound, kind = public_size("score_bound", score_bound), one_of("noise", noise, Noise).on_numbers
    n = whole_number("n_samples", n_samples, at_least=2)
    mantissa, exponent = math.frexp(bound)
    if mantissa == 0.5:
        exponent -= 1
    for bits in range(_FINEST, _COARSEST - 1, -1):
        found = make(exponent - bits, math.ceil(math.ldexp(bound, bits - exponent)), n, kind)
        pairs = zip(found.multipliers, found.degrees, strict=True)
        most = max(factor * found.largest**degree for factor, degree in pairs)
        if n * most <= LARGEST_INTEGER and _TAIL * found.integers.scale <= LARGEST_INTEGER:
            return found
    raise CalibrationError(f"n_samples = {n}: the sums of a score or their noise are beyond 64-bit integers")
