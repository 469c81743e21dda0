"""From a stability bound to a noise calibration: pure functions of public quantities.

``sharp`` holds Theorem 1 (pure), 2 and 16 (approximate), ``renyi`` Theorem 7, ``output`` Theorem 8,
``saturating`` Theorem 15 and ``paper`` the paper's own formulas. Each is a :class:`Calibrator` that says
where it applies; ``registry`` lists them and ranks those that are valid. ``sums`` holds the private means of
Theorem 12, ``ranges`` the private quantiles of columns whose range is not declared.
"""

from dp2erm_cvx.calibration.calibrator import Calibrator, Objective
from dp2erm_cvx.calibration.constants import Calibration, Noise, OutputCalibration, Perturbed
from dp2erm_cvx.calibration.grid import EXACT_ARITHMETIC, GridNoise, calibrate_grid
from dp2erm_cvx.calibration.integers import IntegerNoise, calibrate_integers
from dp2erm_cvx.calibration.margin_gaussian import MarginCalibration, margin_delta, margin_divergence
from dp2erm_cvx.calibration.output import calibrate_output
from dp2erm_cvx.calibration.paper import PaperCalibration, calibrate_paper
from dp2erm_cvx.calibration.ranges import RangeNoise, calibrate_ranges
from dp2erm_cvx.calibration.registry import CALIBRATORS, NAMES, RankedCalibration, Ranking, calibrator, rank
from dp2erm_cvx.calibration.renyi import RenyiCalibration, calibrate_renyi, renyi_divergence, renyi_epsilon
from dp2erm_cvx.calibration.saturating import calibrate_saturating, saturating_epsilon
from dp2erm_cvx.calibration.sharp import calibrate, privacy_loss
from dp2erm_cvx.calibration.sums import GridSums, SumLaw, calibrate_sums
from dp2erm_cvx.calibration.utility import PaperUtility, noise_tail, predicted_error, utility_bound
from dp2erm_cvx.calibration.value import calibrate_value

__all__ = [
    "CALIBRATORS",
    "EXACT_ARITHMETIC",
    "NAMES",
    "Calibration",
    "Calibrator",
    "GridNoise",
    "GridSums",
    "IntegerNoise",
    "MarginCalibration",
    "Noise",
    "Objective",
    "OutputCalibration",
    "PaperCalibration",
    "PaperUtility",
    "Perturbed",
    "RangeNoise",
    "RankedCalibration",
    "Ranking",
    "RenyiCalibration",
    "SumLaw",
    "calibrate",
    "calibrate_grid",
    "calibrate_integers",
    "calibrate_output",
    "calibrate_paper",
    "calibrate_ranges",
    "calibrate_renyi",
    "calibrate_saturating",
    "calibrate_sums",
    "calibrate_value",
    "calibrator",
    "margin_delta",
    "margin_divergence",
    "noise_tail",
    "predicted_error",
    "privacy_loss",
    "rank",
    "renyi_divergence",
    "renyi_epsilon",
    "saturating_epsilon",
    "utility_bound",
]
