"""Noise for a few exact integers: discrete Laplace, or a Gaussian rounded to integers."""

from __future__ import annotations

from dataclasses import dataclass

from dp2erm_cvx.calibration.analytic import analytic_ratio
from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.curvature import MARGIN
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import one_of, whole_number

#: Released integers lie in [-LARGEST_INTEGER, LARGEST_INTEGER] before their noise: half of what 64 bits hold.
LARGEST_INTEGER = 2**62
_SMALLEST_DELTA = 1e-290


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
    """

    sensitivity: int
    scale: float
    noise: Noise
    epsilon: float
    delta: float

    @property
    def coupling(self) -> float:
        """Largest distance, in integers, to a variable of the continuous law in a common coupling."""
        return 1.0 if self.noise is Noise.GAMMA else 0.5


def calibrate_integers(sensitivity: int, budget: Budget, noise: Noise | str = Noise.GAMMA) -> IntegerNoise:
    """The least noise for a vector of integers.

    Laplace: ``scale = sensitivity / epsilon``, pure whatever the delta of the budget. Gaussian: the analytic
    calibration of Balle and Wang (2018). Adding an integer and rounding commute, so that rounded noise is
    the Gaussian mechanism, rounded afterwards.

    Raises DeclarationError for an invalid argument, CalibrationError where Gaussian noise has no delta or
    the noise is out of the range of 64-bit integers.
    """
    shift = whole_number("sensitivity", sensitivity, at_least=1)
    kind, epsilon, delta = one_of("noise", noise, Noise), budget.epsilon, budget.delta
    if kind is Noise.GAMMA:
        scale, delta = shift / epsilon, 0.0
    elif delta < _SMALLEST_DELTA:
        raise CalibrationError(f"delta = {delta:g}: Gaussian noise needs a delta of at least 1e-290")
    else:
        scale = shift / analytic_ratio(epsilon, delta)
    if not scale <= LARGEST_INTEGER:
        raise CalibrationError(f"epsilon = {epsilon:g}: the noise is out of the range of 64-bit integers")
    return IntegerNoise(shift, scale * (1.0 + MARGIN), kind, epsilon, delta)
