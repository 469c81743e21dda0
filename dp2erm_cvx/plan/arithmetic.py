"""Whether a plan counts its floating-point error, and what covers it in either stage."""

from __future__ import annotations

from dp2erm_cvx.calibration import (
    Calibration,
    Noise,
    Objective,
    OutputCalibration,
    RenyiCalibration,
    calibrate,
)
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.mechanism import secure_available
from dp2erm_cvx.plan.precision import (
    LARGEST_COUNTED,
    Arithmetic,
    Precision,
    noise_reach,
    output_precision,
    precision,
    reserve,
)
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.universe import Universe


def counts(
    arithmetic: Arithmetic,
    first: FirstStage,
    second: SecondStage,
    universe: Universe,
    epsilon: float,
    *,
    printed: bool,
) -> bool:
    """Whether the arithmetic is counted. Raises DeclarationError or CalibrationError where it cannot be."""
    if arithmetic is Arithmetic.ASSUMED:
        return False
    missing = None
    if epsilon > LARGEST_COUNTED:
        missing = f"epsilon = {epsilon:g} is above {LARGEST_COUNTED:g}, where nothing is hidden anyway"
    elif printed:
        missing = "the paper's calibrations assume exact arithmetic"
    elif second.certified_radius(universe, universe.domain.covariate_bound**2, 0.0) is None:
        missing = f"{second.name} does not state what it is certified to"
    elif isinstance(first, PrivateFirstStage) and not _states(first, universe):
        missing = f"{first.name} does not state what it is certified to"
    if arithmetic is Arithmetic.AUTO:
        return missing is None and secure_available()
    if missing is not None:
        raise CalibrationError(f"arithmetic = 'counted': {missing}")
    if not secure_available():
        raise DeclarationError("arithmetic = 'counted' needs the extra: pip install 'dp2erm-cvx[secure]'")
    return True


def _states(first: PrivateFirstStage, universe: Universe) -> bool:
    return first.certified_radius(universe, universe.domain.covariate_bound**2, 0.0) is not None


def calibrate_propensity(
    first: PrivateFirstStage,
    universe: Universe,
    budget: Budget,
    noise: Noise | str,
    share: float | None,
) -> tuple[Calibration, Precision | None]:
    """Calibration of a private first stage, whose weights are uniform, and what covers its arithmetic."""
    constants, n = first.loss_constants(universe), universe.n_samples
    epsilon = 0.0
    if share is not None:
        budget, epsilon = reserve(budget, share)
    objective = Objective(uniform_weights(n), constants, n, universe.domain.relation)
    calibration = calibrate(objective, budget, noise=noise)
    if share is None:
        return calibration, None
    reach = noise_reach(calibration)
    radius = first.certified_radius(universe, calibration.gamma, reach)
    if radius is None:
        return calibration, None
    curvature = n * (calibration.gamma + constants.strong_convexity)
    return calibration, precision(calibration, curvature, radius, epsilon)


def certified_radius(
    calibration: Calibration | OutputCalibration, second: SecondStage, universe: Universe
) -> float | None:
    """Public radius that theta is certified to on every dataset, for noise within its reach."""
    if isinstance(calibration, OutputCalibration):
        return second.unconstrained().certified_radius(universe, 0.0, 0.0)
    program = second.unconstrained() if isinstance(calibration, RenyiCalibration) else second
    return program.certified_radius(universe, calibration.gamma, noise_reach(calibration))


def cover(
    calibration: Calibration | OutputCalibration, loss: LossConstants, n: int, radius: float, epsilon: float
) -> Precision:
    """What covers the arithmetic of the second stage, certified to ``radius``."""
    if isinstance(calibration, OutputCalibration):
        return output_precision(calibration, radius)
    return precision(calibration, n * (calibration.gamma + loss.strong_convexity), radius, epsilon)
