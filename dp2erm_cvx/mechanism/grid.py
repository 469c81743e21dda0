"""Round to a public grid and add discrete Laplace noise, which covers a numerical error exactly."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.calibration.grid import GridNoise
from dp2erm_cvx.errors import CalibrationError, CertificateError, DeclarationError
from dp2erm_cvx.mechanism.uniform import require


def perturb_on_grid(
    values: ArrayLike, noise: GridNoise, *, seed: int | str | None = None
) -> NDArray[np.float64]:
    """Round ``values``, shape (p,), to the grid ``2^exponent Z^p`` and add discrete Laplace noise.

    The sampler and its privacy map are OpenDP's (``make_laplace``, after Canonne, Kamath and Steinke 2020),
    in exact integers. The sum is rounded to doubles at the end, and what lies beyond their range becomes the
    largest one: both are post-processing. The result is finite.

    With a seed the noise comes from a repeatable generator in floating point, without OpenDP: the caller
    must record the result as not private.

    Raises DeclarationError where the length is not p or OpenDP is not installed, CalibrationError where
    OpenDP's map does not confirm ``noise.epsilon`` at ``noise.l1_sensitivity``, and CertificateError where
    a value is not finite, which no certified solution is.
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (noise.n_parameters,):
        raise DeclarationError(f"values of shape {vector.shape}: the noise is for ({noise.n_parameters},)")
    # OpenDP would take "not a number" for 0 and infinity for the largest double
    if not np.all(np.isfinite(vector)):
        raise CertificateError("a value to be perturbed is not finite")
    point = [float(value) for value in vector]
    result = _by_opendp(point, noise) if seed is None else _repeatable(point, noise, random.Random(seed))
    limit = sys.float_info.max
    return np.array([min(max(value, -limit), limit) for value in result])


def _by_opendp(point: Sequence[float], noise: GridNoise) -> list[float]:
    require("opendp")
    # not opendp.prelude, which imports far more
    from opendp import domains, measurements, metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    measurement: Any = measurements.make_laplace(
        domains.vector_domain(domains.atom_domain(T=float, nan=False), size=noise.n_parameters),
        metrics.l1_distance(T=float),
        noise.scale,
        k=noise.exponent,
    )
    if not measurement.map(noise.l1_sensitivity) <= noise.epsilon:
        raise CalibrationError(
            f"OpenDP does not confirm epsilon = {noise.epsilon:g} for noise of scale {noise.scale:g}"
        )
    return [float(value) for value in measurement(list(point))]


def _repeatable(point: Sequence[float], noise: GridNoise, source: random.Random) -> list[float]:
    """The same law, to the accuracy of doubles: the difference of two geometric variables on the grid."""
    step = Fraction(2) ** noise.exponent
    rate = math.ldexp(1.0, noise.exponent) / noise.scale

    def geometric() -> int:
        return math.floor(source.expovariate(rate))

    return [_double((round(Fraction(value) / step) + geometric() - geometric()) * step) for value in point]


def _double(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
