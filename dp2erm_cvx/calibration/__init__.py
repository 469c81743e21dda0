"""From a stability bound to a noise calibration: pure functions of public quantities.

``sharp`` holds Theorem 1 (pure) and Theorem 2 (approximate), ``renyi`` Theorem 7, ``output`` Theorem 8
and ``paper`` the paper's own formulas; ``auto`` compares those that are valid. Another family of
calibrations is one more module beside them that returns a :class:`Calibration`.
"""

from dp2erm_cvx.calibration.auto import Candidate, Comparison, Family, Option, compare
from dp2erm_cvx.calibration.constants import Calibration, Noise, Perturbed
from dp2erm_cvx.calibration.grid import EXACT_ARITHMETIC, GridNoise, calibrate_grid
from dp2erm_cvx.calibration.output import OutputCalibration, calibrate_output
from dp2erm_cvx.calibration.paper import PaperCalibration, calibrate_paper
from dp2erm_cvx.calibration.planning import PlanRow, plan, predicted_error
from dp2erm_cvx.calibration.renyi import (
    RenyiCalibration,
    SquaredLoss,
    calibrate_renyi,
    renyi_divergence,
    renyi_epsilon,
)
from dp2erm_cvx.calibration.sharp import calibrate, privacy_loss
from dp2erm_cvx.calibration.utility import PaperUtility, noise_tail, utility_bound, utility_tail
from dp2erm_cvx.calibration.value import calibrate_value

__all__ = [
    "EXACT_ARITHMETIC",
    "Calibration",
    "Candidate",
    "Comparison",
    "Family",
    "GridNoise",
    "Noise",
    "Option",
    "OutputCalibration",
    "PaperCalibration",
    "PaperUtility",
    "Perturbed",
    "PlanRow",
    "RenyiCalibration",
    "SquaredLoss",
    "calibrate",
    "calibrate_grid",
    "calibrate_output",
    "calibrate_paper",
    "calibrate_renyi",
    "calibrate_value",
    "compare",
    "noise_tail",
    "plan",
    "predicted_error",
    "privacy_loss",
    "renyi_divergence",
    "renyi_epsilon",
    "utility_bound",
    "utility_tail",
]
