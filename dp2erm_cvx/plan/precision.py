"""What floating point costs: the part of the budget that pays for computing instead of proving.

The theorems speak of an exact minimizer and of ideal noise. Here both are within a public distance of what is
computed, and discrete Laplace noise on a public grid hides that distance (numerical error, page of the
guarantee).
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from dp2erm_cvx.calibration import Calibration, GridNoise, Noise, OutputCalibration, calibrate_grid
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.public import public_number

#: Share of epsilon that covers the arithmetic where none is declared.
NUMERICAL_SHARE = 0.005
#: Error of the sampled noise, relative to its scale, before it is rounded to doubles.
SAMPLING_ERROR = 2.0**-60
#: Above this, exp(epsilon) is no longer small against the probability of noise beyond its reach.
LARGEST_COUNTED = 500.0
# keeps parts of a budget from adding up to more than the whole by a rounding
_ROUND_DOWN = 1.0 - 1e-12
_ROUND_UP = 1.0 + 1e-9


class Arithmetic(enum.StrEnum):
    """Whether a guarantee counts its floating-point error.

    ``COUNTED``: it does; needs the extra ``secure``. ``ASSUMED``: exact arithmetic is assumed, and the
    release says so. ``AUTO``: counted where the extra is installed and the programs state what they are
    certified to.
    """

    AUTO = "auto"
    COUNTED = "counted"
    ASSUMED = "assumed"


def arithmetic_by_name(value: Arithmetic | str) -> Arithmetic:
    """Raises DeclarationError naming the known ones."""
    try:
        return Arithmetic(value)
    except ValueError:
        known = ", ".join(kind.value for kind in Arithmetic)
        raise DeclarationError(f"arithmetic = {value!r}: must be one of {known}") from None


@dataclass(frozen=True)
class Precision:
    """Public bounds on the numerical error of one perturbed solve, and the noise that hides it.

    ``sampling_error`` is asked of the noise sampler; ``radius`` of the certificate, which reaches it on every
    dataset for noise no longer than ``reach``; ``tolerance`` bounds ``||theta_hat - theta||_2``, the error of
    the noise included. ``grid`` covers the tolerance at its own epsilon on either side.
    """

    sampling_error: float
    reach: float
    radius: float
    tolerance: float
    grid: GridNoise


def reserve(budget: Budget, share: float) -> tuple[Budget, float]:
    """What is left for the exact mechanism, and the epsilon_2 of the grid noise on either side.

    An (epsilon_1, delta_1) mechanism released within the tolerance is
    ``(epsilon_1 + 2 epsilon_2, exp(epsilon_2) delta_1)``-differentially private. Raises DeclarationError
    unless ``share`` is between 0 and 1.
    """
    part = public_number("numerical_share", share, above=0.0)
    if part >= 1.0:
        raise DeclarationError(f"numerical_share = {share!r}: must be between 0 and 1")
    epsilon = 0.5 * part * budget.epsilon * _ROUND_DOWN
    left = (budget.epsilon - 2.0 * epsilon) * _ROUND_DOWN
    # the last factor also pays for Gaussian noise beyond the reach, of probability below exp(-1800)
    # where exp(-epsilon) is 0 no delta is left, and Gaussian noise is refused by name
    return Budget(left, budget.delta * math.exp(-epsilon) * _ROUND_DOWN), epsilon


def set_aside(budget: Budget, share: float) -> tuple[Budget, float]:
    """What is left for theta, and the epsilon of the value of the rule, which spends no delta.

    Raises DeclarationError unless ``share`` is between 0 and 1.
    """
    part = public_number("value_share", share, above=0.0)
    if part >= 1.0:
        raise DeclarationError(f"value_share = {share!r}: must be between 0 and 1")
    epsilon = part * budget.epsilon * _ROUND_DOWN
    return Budget((budget.epsilon - epsilon) * _ROUND_DOWN, budget.delta), epsilon


def noise_reach(calibration: Calibration) -> float:
    """A norm that the noise exceeds with probability less than ``exp(-1500)``.

    ``P(Gamma(p) >= p + x) <= exp(-x + p log(1 + x/p))`` and ``P(chi_p >= sqrt(p) + x) <= exp(-x^2 / 2)``.
    """
    p = calibration.n_parameters
    lengths = 2.0 * p + 2000.0 if calibration.noise is Noise.GAMMA else math.sqrt(p) + 60.0
    return calibration.scale * lengths


def coefficient_reach(
    calibration: Calibration, loss: LossConstants, n_samples: int, grid: GridNoise | None
) -> float:
    """A norm that a private coefficient exceeds with probability less than ``exp(-1500)`` for either noise.

    The noise b moves the minimizer by at most ``||b|| / (n (mu + gamma))``; that on the grid is added to it.
    """
    if loss.theta_bound is None:
        return math.inf
    curvature = n_samples * (loss.strong_convexity + calibration.gamma)
    norm = loss.theta_bound + noise_reach(calibration) / curvature
    if grid is not None:
        # the l1 norm of p discrete Laplace variables has the tail of Gamma(p), a step of the grid apart
        p = grid.n_parameters
        norm += grid.scale * (2.0 * p + 2000.0) + 2.0 * p * math.ldexp(1.0, grid.exponent)
    return norm


def precision(calibration: Calibration, strong_convexity: float, radius: float, epsilon: float) -> Precision:
    """Bounds for objective perturbation of a program that is certified to ``radius`` within the reach.

    ``strong_convexity`` is that of the perturbed objective times n, in which the minimizer moves by at most
    ``||b - b'|| / strong_convexity``.
    """
    reach = noise_reach(calibration)
    sampling_error = SAMPLING_ERROR * calibration.scale
    sampled = (sampling_error + 2.0**-52 * reach) / strong_convexity
    tolerance = _finite((radius + sampled) * _ROUND_UP)
    p = calibration.n_parameters
    grid = calibrate_grid(math.sqrt(p) * tolerance * _ROUND_UP, p, epsilon)
    return Precision(sampling_error, reach, radius, tolerance, grid)


def output_precision(calibration: OutputCalibration, radius: float) -> Precision:
    """The same for output perturbation: one discrete Laplace draw covers the statistic and its error."""
    tolerance = _finite(radius * _ROUND_UP)
    grid = calibrate_grid(calibration.sensitivity + 2.0 * tolerance, 1, calibration.epsilon)
    return Precision(0.0, 0.0, radius, tolerance, grid)


def _finite(tolerance: float) -> float:
    if not math.isfinite(tolerance):
        raise CalibrationError("the numerical error is out of floating-point range: rescale the outcome")
    return tolerance
