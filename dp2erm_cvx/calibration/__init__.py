"""From a stability bound to a noise calibration: pure functions of public quantities.

``objective`` holds Theorems 1, 15, 17 and 19 (pure), 2 and 16 (approximate), ``renyi`` Theorem 7,
``numbers`` Theorem 8, noise on a grid and private quantiles of columns whose range is not declared.
``sums`` holds the private means of Theorem 12.
"""

from dp2erm_cvx.calibration.base import (
    Calibration,
    Noise,
    Objective,
    Perturbed,
    predicted_error,
    utility_bound,
)
from dp2erm_cvx.calibration.numbers import (
    EXACT_ARITHMETIC,
    IntegerNoise,
    calibrate_output,
    calibrate_ranges,
)
from dp2erm_cvx.calibration.objective import (
    calibrate,
    calibrate_saturating,
    privacy_loss,
    saturating_epsilon,
)
from dp2erm_cvx.calibration.profiles import MarginCalibration, margin_delta, margin_divergence
from dp2erm_cvx.calibration.renyi import (
    RenyiCalibration,
    calibrate_renyi,
    renyi_divergence,
    renyi_epsilon,
)
from dp2erm_cvx.calibration.sums import GridSums, SumLaw, calibrate_sums

__all__ = [
    "EXACT_ARITHMETIC",
    "Calibration",
    "GridSums",
    "IntegerNoise",
    "MarginCalibration",
    "Noise",
    "Objective",
    "Perturbed",
    "RenyiCalibration",
    "SumLaw",
    "calibrate",
    "calibrate_output",
    "calibrate_ranges",
    "calibrate_renyi",
    "calibrate_saturating",
    "calibrate_sums",
    "margin_delta",
    "margin_divergence",
    "predicted_error",
    "privacy_loss",
    "renyi_divergence",
    "renyi_epsilon",
    "saturating_epsilon",
    "utility_bound",
]
