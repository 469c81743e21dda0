"""Slopes in log-log coordinates."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import linregress, t


def slope(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Least-squares slope of log y in log x, and the half width of its 95 % interval (inf for two points)."""
    log_x, log_y = np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    fit = linregress(log_x, log_y)
    free = len(log_x) - 2
    half = float(t.ppf(0.975, free) * fit.stderr) if free > 0 else float("inf")
    return float(fit.slope), half
