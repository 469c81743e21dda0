"""Noise in floating point, as if arithmetic were exact: figures, predictions, and releases that say so."""

from __future__ import annotations

import math
import random

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import Calibration, Noise

#: Where random numbers come from.
Source = random.Random


def random_source(seed: int | str | None = None) -> Source:
    """The operating system's entropy, or with a seed a repeatable generator, for tests only."""
    return random.SystemRandom() if seed is None else random.Random(seed)


def draw(calibration: Calibration, *, seed: int | str | None = None) -> NDArray[np.float64]:
    """Draw the noise vector ``b`` (p,) for one release, in floating point, as if it were exact.

    Gamma noise: radius Gamma(shape p, scale), direction uniform on the sphere. Box noise of half widths m:
    ``rho m_j U_j``, rho Gamma(shape p + 1, scale), U_j uniform on [-1, 1]. Gaussian noise: independent ``N(0,
    scale^2)``. Without ``seed`` the operating system's entropy is used; with one anyone can repeat the draw
    and subtract it, and the caller must record the result as not private.
    :func:`~dp2erm_cvx.mechanism.draw_within` proves a distance to an exact draw.
    """
    source = random_source(seed)
    p = calibration.n_parameters
    if calibration.noise is Noise.GAUSSIAN:
        return np.array([source.gauss(0.0, calibration.scale) for _ in range(p)])
    if calibration.box is not None:
        length = source.gammavariate(p + 1, calibration.scale)
        return np.array([length * width * (2.0 * source.random() - 1.0) for width in calibration.box])
    norm = 0.0
    while norm == 0.0:
        direction = [source.gauss(0.0, 1.0) for _ in range(p)]
        norm = math.hypot(*direction)
    radius = source.gammavariate(p, calibration.scale)
    return np.array([radius * (coordinate / norm) for coordinate in direction])


def simulate_noise(calibration: Calibration, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw ``size`` noise vectors, shape (size, p), to show publicly what the noise does.

    For figures and predicted ranges only, never for a release: the generator is repeatable.
    """
    shape = (size, calibration.n_parameters)
    if calibration.noise is Noise.GAUSSIAN:
        return rng.normal(scale=calibration.scale, size=shape)
    if calibration.box is not None:
        inside = np.array(calibration.box) * rng.uniform(-1.0, 1.0, shape)
        return inside * rng.gamma(calibration.n_parameters + 1, calibration.scale, size=(size, 1))
    direction = rng.standard_normal(shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return direction * rng.gamma(calibration.n_parameters, calibration.scale, size=(size, 1))
