"""Theorem 15: pure noise for losses without curvature at full slope, the whole epsilon in the noise."""

from __future__ import annotations

from dp2erm_cvx.calibration.calibrator import Calibrator, Objective, refuse_uncovered
from dp2erm_cvx.calibration.constants import Calibration, Noise, check_loss, in_range
from dp2erm_cvx.calibration.curvature import GAMMA_FLOOR, MARGIN
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.saturation import Saturation


def calibrate_saturating(objective: Objective, budget: Budget) -> Calibration:
    """Calibrate gamma noise to a loss of a margin that saturates (Theorem 15).

    With the slope S, the curvature kappa, the row norm M and the shape h of the loss: ``scale = M S V /
    epsilon``, and gamma is the smallest with ``a u + k h(u) <= a`` for all u in [0, 1], where ``a = epsilon /
    V`` and ``k = kappa M^2 / (n (gamma + mu_R))``. That is ``gamma + mu_R >= -h'(1) kappa M^2 V / (n
    epsilon)``, and gamma is at least ``1e-8`` of the bound on trace Hess l. The guarantee is (epsilon, 0)
    also where the budget allows a positive delta.

    Every rounding goes to more noise. ``split`` is 1: none of epsilon is set aside for the Jacobian.

    Raises CalibrationError where the loss is no such loss, the bound does not cover what is declared or a
    quantity is out of floating-point range; DeclarationError for an invalid constant.
    """
    bound, loss, n = objective.bound, objective.loss, objective.n_samples
    found = _saturation(objective.name, loss)
    check_loss(loss)
    refuse_uncovered(bound, objective.relation, budget, Noise.GAMMA)
    epsilon = budget.epsilon
    sensitivity = found.row_norm * found.slope * bound.V
    # the scale is rounded up, which lowers a: gamma by more
    curvature = found.shape.steepness * found.curvature * found.row_norm**2 / n * (bound.V / epsilon)
    needed = curvature * (1.0 + 4.0 * MARGIN) - loss.strong_convexity
    setting = f"epsilon = {epsilon:g}, V = {bound.V:g}, slope = {found.slope:g}, M = {found.row_norm:g}"
    return Calibration(
        noise=Noise.GAMMA,
        scale=in_range("noise scale", sensitivity / epsilon * (1.0 + MARGIN), setting),
        gamma=in_range("gamma", max(needed, GAMMA_FLOOR * loss.hessian_trace), setting),
        split=1.0,
        n_parameters=loss.n_parameters,
        V=bound.V,
        sensitivity=sensitivity,
        epsilon=epsilon,
        delta=0.0,
        theorem="Theorem 15 (saturating loss)",
    )


def saturating_epsilon(calibration: Calibration, loss: LossConstants, n_samples: int) -> float:
    """The pure epsilon that Theorem 15 gives for gamma noise as it stands, whatever calibrated it.

    ``(V/2) (a + max over 0 <= u <= 1 of (a u + k h(u)))``, ``a = M S / scale``,
    ``k = kappa M^2 / (n (gamma + mu_R))``. Raises CalibrationError where the loss does not saturate or the
    noise is not gamma noise.
    """
    found = _saturation("the loss", loss)
    if calibration.noise is not Noise.GAMMA:
        raise CalibrationError("Theorem 15 is about gamma noise")
    n = whole_number("n_samples", n_samples, at_least=2)
    a = found.row_norm * found.slope / calibration.scale
    k = found.curvature * found.row_norm**2 / (n * (calibration.gamma + loss.strong_convexity))
    return calibration.V / 2.0 * (a + found.shape.largest(a, k))


def _saturation(name: str, loss: LossConstants) -> Saturation:
    found = loss.saturation
    if found is None:
        raise CalibrationError(f"{name} states no saturation of its loss, which Theorem 15 needs")
    for fact in ("slope", "curvature", "row_norm"):
        public_number(fact, getattr(found, fact), above=0.0)
    return found


class Saturating(Calibrator):
    """Theorem 15: the linear term of an objective whose loss saturates, in gamma noise."""

    laws = (Noise.GAMMA,)

    def applies(self, objective: Objective) -> None:
        _saturation(objective.name, objective.loss)

    def calibrate(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> Calibration:
        return calibrate_saturating(objective, budget)
