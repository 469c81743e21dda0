"""From a stability bound to a noise calibration: pure functions of public quantities.

``objective`` holds Theorems 1, 15, 17 and 19 (pure), 2 and 16 (approximate) and the paper's own formulas,
``renyi`` Theorem 7, ``numbers`` Theorem 8, noise on a grid and private quantiles of columns whose range is
not declared; ``registry`` lists them. ``sums`` holds the private means of Theorem 12.
"""

from dp2erm_cvx.calibration.base import (
    Calibration,
    Noise,
    Objective,
    Perturbed,
    predicted_error,
    utility_bound,
)
from dp2erm_cvx.calibration.numbers import EXACT_ARITHMETIC, IntegerNoise, calibrate_output, calibrate_ranges
from dp2erm_cvx.calibration.objective import (
    calibrate,
    calibrate_paper,
    calibrate_saturating,
    privacy_loss,
    saturating_epsilon,
)
from dp2erm_cvx.calibration.profiles import MarginCalibration, margin_delta, margin_divergence
from dp2erm_cvx.calibration.registry import CALIBRATORS, NAMES, Calibrator, calibrator
from dp2erm_cvx.calibration.renyi import RenyiCalibration, calibrate_renyi, renyi_divergence, renyi_epsilon
from dp2erm_cvx.calibration.sums import GridSums, SumLaw, calibrate_sums

__all__ = [
    "CALIBRATORS",
    "EXACT_ARITHMETIC",
    "NAMES",
    "Calibration",
    "Calibrator",
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
    "calibrate_paper",
    "calibrate_ranges",
    "calibrate_renyi",
    "calibrate_saturating",
    "calibrate_sums",
    "calibrator",
    "margin_delta",
    "margin_divergence",
    "predicted_error",
    "privacy_loss",
    "renyi_divergence",
    "renyi_epsilon",
    "saturating_epsilon",
    "utility_bound",
]
