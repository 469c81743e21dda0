"""Theorems 15 and 19 (pure) and 16: losses of a margin without curvature at full slope."""

from __future__ import annotations

import math

from dp2erm_cvx.calibration.calibrator import Calibrator, Objective, refuse_uncovered
from dp2erm_cvx.calibration.constants import (
    Calibration,
    Noise,
    box_of,
    check_loss,
    gradient_size,
    in_range,
)
from dp2erm_cvx.calibration.curvature import GAMMA_FLOOR, MARGIN
from dp2erm_cvx.calibration.margin_gaussian import (
    MARGIN_THEOREM,
    MarginCalibration,
    curvature_left,
    margin_delta,
    private_margin_ratio,
)
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.public import one_of, public_number, whole_number
from dp2erm_cvx.saturation import Saturation

#: ``4 k V / 2`` as a share of epsilon for a logistic loss in a ball (Theorem 19), where no gamma is
#: declared: the best share in simulations with five parameters was .2 at n epsilon = 100, .5 at 500 and .65
#: at 2000.
CURVATURE_SHARE = 0.4
_IN_A_BOX = ", box noise"


def calibrate_saturating(
    objective: Objective, budget: Budget, noise: Noise | str = Noise.GAMMA, gamma: float | None = None
) -> Calibration:
    """Calibrate noise to a loss of a margin that saturates.

    With the slope S, the curvature kappa, the row norm M and the shape h of the loss, and ``k = kappa M^2 /
    (n (gamma + mu_R))``:

    - gamma noise, Theorem 15: ``scale = M S V / epsilon``, and gamma is the smallest with ``a u + k h(u) <=
      a`` for all u in [0, 1], where ``a = epsilon / V``. The guarantee is (epsilon, 0) also where the budget
      allows a positive delta;
    - gamma noise where a logistic loss is restricted to a ball, Theorem 19: ``4 k V / 2`` is
      ``CURVATURE_SHARE`` of epsilon, or what a declared ``gamma`` makes it, and the scale is the smallest
      with ``(V/2) sup (a ||g - g'|| + 4 k u (1 - u)) <= epsilon``, ``a = M S / scale``;
    - box noise, Theorem 17: the same with M left out of a and of the scale, as rows have norm 1 in their box;
      in a ball ``u + u'`` stands for ``||g - g'||``;
    - Gaussian noise, Theorem 16: the smallest scale for the whole epsilon, and the smallest gamma with ``K =
      -h'(1) k V`` at most the t of that theorem, a little less than epsilon.

    Without a ball that is ``gamma + mu_R >= -h'(1) kappa M^2 V / (n epsilon)``, t in place of epsilon for
    Gaussian noise, and gamma is at least ``1e-8`` of the bound on trace Hess l. Every rounding goes to more
    noise. ``split`` is 1: none of epsilon is set aside for the Jacobian. A ``gamma`` counts in a ball alone.

    Raises CalibrationError where the loss is no such loss, the bound does not cover what is declared or a
    quantity is out of floating-point range; DeclarationError for an invalid constant.
    """
    kind = one_of("noise", noise, Noise)
    bound, loss, n = objective.bound, objective.loss, objective.n_samples
    found = _saturation(objective.name, loss)
    check_loss(loss)
    refuse_uncovered(bound, objective.relation, budget, kind)
    epsilon = budget.epsilon
    sensitivity = _steepest(loss, found, kind) * bound.V
    if kind.pure and math.isfinite(found.ball):
        chosen = ball_gamma(objective, budget) if gamma is None else gamma
        return _in_a_ball(objective, budget, kind, chosen)
    ratio = left = epsilon
    if kind is Noise.GAUSSIAN:
        ratio = float(private_margin_ratio(epsilon, budget.delta))
        left = curvature_left(ratio, epsilon)
    # the scale is rounded up, which lowers a: gamma by more
    curvature = found.shape.steepness * found.curvature * found.row_norm**2 / n * (bound.V / left)
    needed = curvature * (1.0 + 4.0 * MARGIN) - loss.strong_convexity
    setting = f"epsilon = {epsilon:g}, V = {bound.V:g}, slope = {found.slope:g}, M = {found.row_norm:g}"
    calibration = Calibration(
        noise=kind,
        scale=in_range("noise scale", sensitivity / ratio * (1.0 + MARGIN), setting),
        gamma=in_range("gamma", max(needed, GAMMA_FLOOR * loss.hessian_trace), setting),
        split=1.0,
        n_parameters=loss.n_parameters,
        V=bound.V,
        sensitivity=sensitivity,
        epsilon=epsilon,
        delta=0.0 if kind.pure else budget.delta,
        theorem=f"Theorem 15 (saturating loss{_IN_A_BOX if kind is Noise.BOX else ''})",
        box=box_of(loss, kind),
    )
    if kind.pure:
        return calibration
    whole = vars(calibration) | {"theorem": f"{MARGIN_THEOREM} of a saturating loss"}
    return MarginCalibration(**whole, jacobian=0.0, curvature=_share(calibration, loss, n))


def ball_gamma(objective: Objective, budget: Budget) -> float:
    """The gamma of Theorem 19 where none is declared, from public quantities, at least its floor."""
    found, loss = _saturation(objective.name, objective.loss), objective.loss
    steep = 2.0 * found.curvature * found.row_norm**2 * objective.bound.V
    needed = steep / objective.n_samples / (CURVATURE_SHARE * budget.epsilon)
    return max(needed - loss.strong_convexity, GAMMA_FLOOR * loss.hessian_trace)


def _in_a_ball(objective: Objective, budget: Budget, kind: Noise, gamma: float) -> Calibration:
    """The smallest scale of Theorem 19 at a gamma."""
    loss, V, epsilon = objective.loss, objective.bound.V, budget.epsilon
    found = _saturation(objective.name, loss)
    k = found.curvature * found.row_norm**2 / objective.n_samples / (gamma + loss.strong_convexity)
    steepest = found.steepest_apart if kind is Noise.BOX else found.steepest
    a = steepest(2.0 * epsilon / V, k * (1.0 + 4.0 * MARGIN))
    setting = f"epsilon = {epsilon:g}, V = {V:g}, gamma = {gamma:g}, M |theta| <= {found.ball:g}"
    size = _steepest(loss, found, kind)
    scale = size / a if a > 0.0 else math.inf
    return Calibration(
        noise=kind,
        scale=in_range("noise scale", scale * (1.0 + MARGIN), setting),
        gamma=in_range("gamma", gamma, setting),
        split=1.0,
        n_parameters=loss.n_parameters,
        V=V,
        sensitivity=size * V,
        epsilon=epsilon,
        delta=0.0,
        theorem=f"Theorem 19 (logistic in a ball{_IN_A_BOX if kind is Noise.BOX else ''})",
        box=box_of(loss, kind),
    )


def _steepest(loss: LossConstants, found: Saturation, kind: Noise) -> float:
    """Largest norm of a gradient of full slope, in the norm of the noise."""
    gradient_size(loss, kind)  # refuses box noise without a box, in whose norm rows are at most 1
    return found.slope if kind is Noise.BOX else found.row_norm * found.slope


def _share(calibration: Calibration, loss: LossConstants, n: int) -> float:
    """``K = -h'(1) k V``, rounded up: ``k V h(u)`` is at most ``K (1 - u)``."""
    found = _saturation("the loss", loss)
    curvature = n * (calibration.gamma + loss.strong_convexity)
    share = found.shape.steepness * found.curvature * found.row_norm**2 * calibration.V / curvature
    return share * (1.0 + MARGIN)


def saturating_delta(calibration: Calibration, loss: LossConstants, n_samples: int, epsilon: float) -> float:
    """Upper bound on the delta at ``epsilon`` that Theorem 16 gives for Gaussian noise as it stands.

    Whatever calibrated it. Raises CalibrationError where the loss does not saturate.
    """
    found = _saturation("the loss", loss)
    ratio = found.row_norm * found.slope * calibration.V / calibration.scale
    return float(margin_delta(max(ratio, 1e-300), epsilon, _share(calibration, loss, n_samples)))


def saturating_epsilon(calibration: Calibration, loss: LossConstants, n_samples: int) -> float:
    """The pure epsilon that Theorems 15 and 19 give for gamma or box noise, whatever calibrated it.

    ``(V/2) (a + max over 0 <= u <= 1 of (a u + k h(u)))``, ``a = M S / scale`` (S / scale for box noise),
    ``k = kappa M^2 / (n (gamma + mu_R))``, or in a ball the supremum of Theorem 19 where it is less. Raises
    CalibrationError where the loss does not saturate or the noise is Gaussian.
    """
    found, kind = _saturation("the loss", loss), calibration.noise
    if not kind.pure:
        raise CalibrationError("Theorem 15 is about gamma noise and box noise")
    n = whole_number("n_samples", n_samples, at_least=2)
    a = _steepest(loss, found, kind) / calibration.scale
    k = found.curvature * found.row_norm**2 / (n * (calibration.gamma + loss.strong_convexity))
    largest = found.largest_apart if kind is Noise.BOX else found.largest
    return calibration.V / 2.0 * largest(a, k)


def _saturation(name: str, loss: LossConstants) -> Saturation:
    found = loss.saturation
    if found is None:
        raise CalibrationError(f"{name} states no saturation of its loss, which Theorem 15 needs")
    for fact in ("slope", "curvature", "row_norm"):
        public_number(fact, getattr(found, fact), above=0.0)
    return found


class SaturatingLoss(Calibrator):
    """Theorems 15, 16 and 19: the linear term of an objective whose loss saturates."""

    laws = (Noise.GAMMA, Noise.GAUSSIAN, Noise.BOX)

    def applies(self, objective: Objective) -> None:
        _saturation(objective.name, objective.loss)

    def calibrate(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> Calibration:
        return calibrate_saturating(objective, budget, noise)
