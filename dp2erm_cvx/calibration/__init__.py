"""From a stability bound to a noise calibration: pure functions of public quantities.

``sharp`` holds Theorem 1 (pure) and Theorem 2 (approximate). Another family of calibrations is one
more module beside it that returns a :class:`Calibration`.
"""

from dp2erm_cvx.calibration.constants import Calibration, Noise
from dp2erm_cvx.calibration.sharp import calibrate, privacy_loss
from dp2erm_cvx.calibration.utility import utility_bound

__all__ = ["Calibration", "Noise", "calibrate", "privacy_loss", "utility_bound"]
