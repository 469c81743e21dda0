"""How close two independent draws of a law with a bounded density can come by chance."""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import gammaln

from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.domain import Array


def log_peak_density(calibration: Calibration) -> float:
    """Log of the largest density of the noise vector b (p,), which is that at 0."""
    p = calibration.n_parameters
    if calibration.noise is Noise.GAUSSIAN:
        return -p * (0.5 * math.log(2 * math.pi) + math.log(calibration.scale))
    # radius Gamma(p), direction uniform: Gamma(p/2) / (2 pi^(p/2) Gamma(p) scale^p)
    shape = float(gammaln(p / 2)) - math.log(2) - p / 2 * math.log(math.pi) - float(gammaln(p))
    return shape - p * math.log(calibration.scale)


def closest(draws: Array, *, mirrored: bool) -> float:
    """Smallest distance between two of the rows (m, p); ``mirrored`` also between one and minus another."""
    distances = np.asarray(cKDTree(draws).query(draws, k=2)[0], dtype=np.float64)
    near = float(np.min(distances[:, 1]))
    if not mirrored:
        return near
    across, whose = cKDTree(-draws).query(draws, k=2)
    # a row and its own mirror image are no pair
    pairs = np.asarray(whose) != np.arange(len(draws))[:, None]
    return min(near, float(np.min(np.asarray(across, dtype=np.float64)[pairs])))


def chance_of_pair(distance: float, log_density: float, draws: int, dimension: int, ways: int) -> float:
    """Bound on the probability that any two of ``draws`` vectors (p,) are within ``distance``.

    Given one vector, another is in a ball of that radius with probability at most its volume times the
    largest density; ``ways`` counts the balls of a pair, and the union bound runs over all pairs.
    """
    if draws < 2 or math.isinf(distance):
        return 1.0
    if distance == 0.0:
        return 0.0
    volume = dimension / 2 * math.log(math.pi) - float(gammaln(dimension / 2 + 1))
    volume += dimension * math.log(distance)
    pairs = math.log(ways * draws * (draws - 1) / 2)
    return math.exp(min(0.0, volume + log_density + pairs))
