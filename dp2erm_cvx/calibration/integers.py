"""Noise for a few exact integers: discrete Laplace, or a Gaussian rounded to integers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.curvature import MARGIN
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import one_of, whole_number

#: Released integers lie in [-LARGEST_INTEGER, LARGEST_INTEGER] before their noise: half of what 64 bits hold.
LARGEST_INTEGER = 2**62
_SMALLEST_DELTA = 1e-290

#: Relative accuracy asked of scaled complementary error functions, far above what they are computed to.
_ROUNDING = 1e-13
_ROUND_UP = 1.0 + 1e-9


@dataclass(frozen=True)
class IntegerNoise:
    """Independent noise on every integer of a vector that moves by at most ``sensitivity`` between neighbors.

    Attributes
    ----------
    sensitivity
        Bound on the movement: in the l1 norm for Laplace, in the l2 norm for Gaussian noise.
    scale
        ``GAMMA``: discrete Laplace, ``P(k)`` proportional to ``exp(-|k| / scale)``. ``GAUSSIAN``: a normal
        variable of this standard deviation, rounded to the nearest integer.
    noise
        Which of the two.
    epsilon, delta
        What all integers of the vector cost together; delta is 0 for Laplace noise.
    unit
        What one of the integers stands for, in the units in which a release states the noise.
    """

    sensitivity: int
    scale: float
    noise: Noise
    epsilon: float
    delta: float
    unit: float = 1.0

    @property
    def variance(self) -> float:
        """Of the noise on one integer, in squared units; that of the continuous law."""
        square = (self.unit * self.scale) ** 2
        return 2.0 * square if self.noise is Noise.GAMMA else square

    @property
    def coupling(self) -> float:
        """Largest distance, in integers, to a variable of the continuous law in a common coupling."""
        return 1.0 if self.noise is Noise.GAMMA else 0.5


def calibrate_integers(sensitivity: int, budget: Budget, noise: Noise | str = Noise.GAMMA) -> IntegerNoise:
    """The least noise for a vector of integers.

    Laplace: ``scale = sensitivity / epsilon``, pure whatever the delta of the budget; box noise is Laplace
    noise here. Gaussian: the analytic
    calibration of Balle and Wang (2018). Adding an integer and rounding commute, so that rounded noise is
    the Gaussian mechanism, rounded afterwards.

    Raises DeclarationError for an invalid argument, CalibrationError where Gaussian noise has no delta or
    the noise is out of the range of 64-bit integers.
    """
    shift = whole_number("sensitivity", sensitivity, at_least=1)
    kind, epsilon, delta = one_of("noise", noise, Noise).on_numbers, budget.epsilon, budget.delta
    if kind is Noise.GAMMA:
        scale, delta = shift / epsilon, 0.0
    elif delta < _SMALLEST_DELTA:
        raise CalibrationError(f"delta = {delta:g}: Gaussian noise needs a delta of at least 1e-290")
    else:
        scale = shift / analytic_ratio(epsilon, delta)
    if not scale <= LARGEST_INTEGER:
        raise CalibrationError(f"epsilon = {epsilon:g}: the noise is out of the range of 64-bit integers")
    return IntegerNoise(shift, scale * (1.0 + MARGIN), kind, epsilon, delta)


def analytic_delta(ratio: float, epsilon: float) -> float:
    """Upper bound on the delta of Gaussian noise at ``ratio = sensitivity / sigma`` > 0 and ``epsilon`` > 0.

    Balle and Wang (2018): ``sf(c) - exp(epsilon) sf(c + ratio)``, ``c = epsilon / ratio - ratio / 2``, sf the
    normal survival function; no smaller delta holds. With Mills' ratio ``m = sf / pdf`` that is
    ``pdf(c) (m(c) - m(c + ratio))``, to which the rounding of both ratios is added.
    """
    c = epsilon / ratio - ratio / 2.0
    if c < -30.0:
        return 1.0
    here, there = _mills(c), _mills(c + ratio)
    density = math.exp(-0.5 * c * c) / math.sqrt(2.0 * math.pi) if c < 40.0 else 0.0
    # beyond 40 the density is below 1e-300, where its own digits end
    return density * (max(here - there, 0.0) + _ROUNDING * here) * _ROUND_UP + 1e-300


def analytic_ratio(epsilon: float, delta: float) -> float:
    """The largest ``sensitivity / sigma`` that bisection finds to be (epsilon, delta)-private, to 1e-12.

    ``epsilon`` > 0 and 1e-299 < ``delta`` < 1. The private end of the bracket is returned.
    """
    # at c = u the survival function is at most exp(-u^2 / 2) / 2
    u = math.sqrt(-2.0 * math.log(delta))
    low = 2.0 * epsilon / (u + math.sqrt(u * u + 2.0 * epsilon))
    high = 2.0 * low
    while analytic_delta(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    for _ in range(42):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if analytic_delta(middle, epsilon) <= delta else (low, middle)
    return low


def _mills(x: float) -> float:
    return math.sqrt(0.5 * math.pi) * float(special.erfcx(x / math.sqrt(2.0)))
