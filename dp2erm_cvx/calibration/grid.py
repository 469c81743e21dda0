"""Discrete Laplace noise on a public grid: what covers a shift that floating point cannot avoid."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from dp2erm_cvx.calibration.curvature import MARGIN
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.public import public_number, whole_number

#: Of a release that does not count its arithmetic: it is floating point, and the noise is sampled in it.
EXACT_ARITHMETIC = "exact arithmetic assumed"

#: The grid is finer than the shift by this factor, so that rounding to it costs next to nothing.
_FINER = 64.0
_SMALLEST, _LARGEST = 1e-280, 1e280

#: The noise of a released number leaves its half width with at most this probability.
NOISE_MISS = 1 / 20


class Arithmetic(enum.StrEnum):
    """Whether a guarantee counts its floating-point error.

    ``COUNTED``: it does; needs the extra ``secure``. ``ASSUMED``: exact arithmetic is assumed, and the
    release says so. ``AUTO``: counted where the extra is installed and the programs state what they are
    certified to.
    """

    AUTO = "auto"
    COUNTED = "counted"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class GridNoise:
    """Round to the grid ``2^exponent Z^p``, then add independent discrete Laplace noise of this ``scale``.

    Pure ``epsilon``-differential privacy between any two vectors whose l1 distance is at most
    ``l1_sensitivity``. ``scale`` and ``l1_sensitivity`` are in units of the vector.
    """

    l1_sensitivity: float
    exponent: int
    scale: float
    epsilon: float
    n_parameters: int


def calibrate_grid(l1_sensitivity: float, n_parameters: int, epsilon: float) -> GridNoise:
    """Smallest noise for shifts of ``l1_sensitivity`` in the l1 norm: ``(shift + p 2^k) / epsilon``.

    Rounding to the nearest point moves every coordinate by at most half a step, so the shift on the grid is
    at most ``p 2^k`` larger. k, the ``exponent``, makes that a 64th of the shift.

    Raises DeclarationError for an invalid argument, CalibrationError where floating point gives out.
    """
    shift = public_number("l1_sensitivity", l1_sensitivity, above=0.0)
    p = whole_number("n_parameters", n_parameters, at_least=1)
    level = public_number("epsilon", epsilon, above=0.0)
    if not _SMALLEST <= shift <= _LARGEST:
        raise CalibrationError(
            f"l1_sensitivity = {shift:g} is out of floating-point range: rescale the outcome"
        )
    exponent = math.floor(math.log2(shift / (_FINER * p)))
    scale = (shift + p * math.ldexp(1.0, exponent)) / level * (1.0 + MARGIN)
    if not _SMALLEST <= scale <= _LARGEST:
        raise CalibrationError(
            f"noise scale = {scale:g} is out of floating-point range at epsilon = {level:g}: change the "
            "budget"
        )
    return GridNoise(shift, exponent, scale, level, p)


def noise_half_width(noise: GridNoise) -> float:
    """What a released number misses its noiseless value by, except with probability NOISE_MISS.

    ``P(|noise| > k g) <= exp(-k g / scale)`` on a grid of step g: one step rounds ``scale log 20`` up to the
    grid, half a step is the rounding of the number and another half its floating-point error.
    """
    return noise.scale * math.log(1.0 / NOISE_MISS) + math.ldexp(2.0, noise.exponent)
