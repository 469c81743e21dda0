"""What floating point costs, and draws within it: the part of the budget that pays for computing.

The theorems speak of an exact minimizer and of ideal noise. Here both are within a public distance of what is
computed, and discrete Laplace noise on a public grid hides that distance (numerical error, page of the
guarantee).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.calibration import (
    Calibration,
    GridNoise,
    Perturbed,
    calibrate_grid,
)
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.mechanism import Draw, draw, draw_within, perturb_on_grid
from dp2erm_cvx.privacy import Budget, LossConstants, RenyiCurve

#: Error of the sampled noise, relative to its scale, before it is rounded to doubles.
SAMPLING_ERROR = 2.0**-60
_ROUND_UP = 1.0 + 1e-9


@dataclass(frozen=True)
class Precision:
    """Public bounds on the numerical error of one perturbed solve, and the noise that hides it.

    ``sampling_error`` is asked of the noise sampler; ``radius`` of the certificate, which reaches it on every
    dataset for noise no longer than ``noise_bound``; ``tolerance`` bounds ``||theta_hat - theta||_2``, the
    error of the noise included. ``grid`` covers the tolerance at its own epsilon on either side.
    """

    sampling_error: float
    noise_bound: float
    radius: float
    tolerance: float
    grid: GridNoise


def noise_bound(calibration: Calibration) -> float:
    """A norm that the noise exceeds with probability less than ``exp(-1500)``.

    ``P(Gamma(p) >= p + x) <= exp(-x + p log(1 + x/p))`` and ``P(chi_p >= sqrt(p) + x) <= exp(-x^2 / 2)``. The
    norm of box noise in its box is Gamma(p) as well.
    """
    p = calibration.n_parameters
    lengths = 2.0 * p + 2000.0 if calibration.noise.pure else math.sqrt(p) + 60.0
    return calibration.unit * lengths


def coefficient_bound(
    calibration: Calibration, loss: LossConstants, n_samples: int, grid: GridNoise | None
) -> float:
    """A norm that a private coefficient exceeds with probability less than ``exp(-1500)`` for either noise.

    The noise b moves the minimizer by at most ``||b|| / (n (mu + gamma))``; that on the grid is added to it.
    """
    if loss.theta_bound is None:
        return math.inf
    curvature = n_samples * (loss.strong_convexity + calibration.gamma)
    norm = loss.theta_bound + noise_bound(calibration) / curvature
    if grid is not None:
        # the l1 norm of p discrete Laplace variables has the tail of Gamma(p), a step of the grid apart
        p = grid.n_parameters
        norm += grid.scale * (2.0 * p + 2000.0) + 2.0 * p * math.ldexp(1.0, grid.exponent)
    return norm


def precision(calibration: Calibration, strong_convexity: float, radius: float, epsilon: float) -> Precision:
    """Bounds for objective perturbation of a program that is certified to ``radius`` for such noise.

    ``strong_convexity`` is that of the perturbed objective times n, in which the minimizer moves by at most
    ``||b - b'|| / strong_convexity``.
    """
    longest = noise_bound(calibration)
    sampling_error = SAMPLING_ERROR * calibration.unit
    sampled = (sampling_error + 2.0**-52 * longest) / strong_convexity
    tolerance = _finite((radius + sampled) * _ROUND_UP)
    p = calibration.n_parameters
    grid = calibrate_grid(math.sqrt(p) * tolerance * _ROUND_UP, p, epsilon)
    return Precision(sampling_error, longest, radius, tolerance, grid)


def output_precision(calibration: Calibration, radius: float) -> Precision:
    """The same for output perturbation: one discrete Laplace draw covers the statistic and its error."""
    tolerance = _finite(radius * _ROUND_UP)
    grid = calibrate_grid(calibration.sensitivity + 2.0 * tolerance, 1, calibration.epsilon)
    return Precision(0.0, 0.0, radius, tolerance, grid)


def covering(
    calibration: Calibration,
    loss: LossConstants,
    n_samples: int,
    radius: float | None,
    hidden: float | None,
) -> Precision | None:
    """What covers, by ``hidden`` of epsilon, the arithmetic of a release that is certified to ``radius``.

    None where one of them is: exact arithmetic is then assumed.
    """
    if hidden is None or radius is None:
        return None
    if calibration.perturbed is Perturbed.OUTPUT:
        return output_precision(calibration, radius)
    curvature = n_samples * (calibration.gamma + loss.strong_convexity)
    return precision(calibration, curvature, radius, hidden)


def spent_by(calibration: Calibration, precision: Precision | None) -> Budget:
    """What a step spends, with twice the epsilon of the grid that covers the arithmetic of an objective.

    The discrete noise of an output covers its own rounding.
    """
    if precision is None or calibration.perturbed is Perturbed.OUTPUT:
        return Budget(calibration.epsilon, calibration.delta)
    hidden = precision.grid.epsilon
    delta = calibration.delta * math.exp(hidden) if calibration.delta else 0.0
    return Budget(calibration.epsilon + 2 * hidden, delta)


def curve_of(calibration: object, precision: Precision | None) -> RenyiCurve | None:
    """Renyi divergences of a perturbed objective with its grid, where a theorem states them.

    Of a release that differs from the computed one only where noise is longer than :func:`noise_bound`, of
    probability below ``exp(-1800)``: whoever converts them pays for that event out of delta.
    """
    curve = calibration.curve() if isinstance(calibration, Calibration) else None
    return curve if precision is None or curve is None else curve.shifted(precision.grid.epsilon)


def _finite(tolerance: float) -> float:
    if not math.isfinite(tolerance):
        raise CalibrationError("the numerical error is out of floating-point range: rescale the outcome")
    return tolerance


def sample(calibration: Calibration, precision: Precision | None, seed: int | str | None) -> Draw:
    """Draw the linear term, within the sampling error of the ``precision`` or as if arithmetic were exact."""
    if precision is None:
        return Draw(draw(calibration, seed=seed), 0.0)
    return draw_within(calibration, precision.sampling_error, seed=seed)


def on_grid(values: Array, noise: GridNoise, seed: int | str | None) -> Array:
    """``values`` (p,) on the grid with discrete Laplace noise; what is no finite number counts as 0.

    A solver that failed may leave anything; its release is conditional, and still has to be made.
    """
    finite = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    return perturb_on_grid(finite, noise, seed=seed)
