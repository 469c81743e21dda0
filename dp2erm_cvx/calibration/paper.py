"""The calibration of the paper (Theorem DP_guarnatee, arXiv 2602.12604), as printed and corrected."""

from __future__ import annotations

import math
from dataclasses import replace

from dp2erm_cvx.calibration.base import (
    MARGIN,
    Calibration,
    Noise,
    Objective,
    check_loss,
    refuse_uncovered,
)
from dp2erm_cvx.calibration.objective import privacy_loss
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget, StabilityBound
from dp2erm_cvx.public import one_of, public_number


def calibrate_paper(
    objective: Objective,
    budget: Budget,
    *,
    noise: Noise | str = Noise.GAMMA,
    corrected: bool = False,
    unsound_ok: bool = False,
) -> Calibration:
    """Calibrate by Theorem DP_guarnatee, equations beta_gamma_choice and sigma_Gaussian_choice.

    With zeta the uncentered ``gradient_bound`` of the loss, ``W1`` and ``W2`` of the bound, lam that on trace
    Hess l, and the ``sensitivity`` ``zeta W1``:

    - ``gamma = 2 lam W2 / (epsilon n)`` for both laws; gamma noise: ``1/beta = 2 zeta W1 / epsilon``;
    - Gaussian noise as printed: ``sigma = (zeta W1 / epsilon)(L + sqrt(L^2 + epsilon / W1))``, where ``L^2 =
      (sqrt(p) + sqrt(log 1/delta))^2 + log 1/delta``; ``corrected``: ``sigma = (zeta W1 / epsilon)(L +
      sqrt(L^2 + epsilon))``.

    The printed exponent has ``zeta^2 W1`` where the argument gives ``zeta^2 W1^2``, so the printed Gaussian
    proof does not hold. The result is private only where Theorem 1 or 2, with ``V = min(W1, sqrt(2) W2)`` or
    the bound's own V if that is smaller, certifies it. Raises CalibrationError where it is not (unless
    ``unsound_ok``, which marks it), where a bound is missing or does not cover what is declared, or floating
    point gives out; DeclarationError for an invalid argument.
    """
    kind = one_of("noise", noise, Noise)
    if kind is Noise.BOX:
        raise CalibrationError("the paper's statements are about gamma and Gaussian noise")
    bound, loss, n = objective.bound, objective.loss, objective.n_samples
    if loss.gradient_bound is None:
        raise CalibrationError(
            f"{objective.name} states no gradient_bound, which the paper's calibration needs"
        )
    check_loss(loss)
    refuse_uncovered(bound, objective.relation, budget, kind)
    zeta = public_number("gradient_bound", loss.gradient_bound, above=0.0)
    if zeta < loss.gradient_radius:
        raise DeclarationError(
            f"gradient_bound = {zeta:g}: must be at least the centered gradient radius "
            f"{loss.gradient_radius:g}"
        )
    W1, W2 = _movement(bound)

    epsilon = budget.epsilon
    if kind is Noise.GAMMA:
        scale, part = 2.0 * zeta * W1 / epsilon, "(i)"
    else:
        tail = _tail(loss.n_parameters, budget.delta)
        root = math.hypot(tail, math.sqrt(epsilon if corrected else epsilon / W1))
        scale, part = (
            zeta * W1 / epsilon * (tail + root),
            f"(ii), {'corrected' if corrected else 'as printed'}",
        )
    gamma = 2.0 * loss.hessian_trace / n * (W2 / epsilon)
    setting = f"epsilon = {epsilon:g}, W1 = {W1:g}, W2 = {W2:g}, gradient_bound = {zeta:g}"
    facts = {"split": 0.5, "sensitivity": zeta * W1, "theorem": f"paper, Theorem DP_guarnatee {part}"}
    found = objective.calibrated(kind, budget, scale, gamma * (1.0 + MARGIN), setting, **facts)
    V = min(bound.V, W1, math.sqrt(2.0) * W2 * (1.0 + MARGIN))
    calibration = replace(found, V=V)
    proven = privacy_loss(calibration, loss, n, epsilon)
    if proven <= calibration.delta:
        return calibration
    if not unsound_ok:
        raise CalibrationError(
            f"{calibration.theorem}: its {kind.value} noise is not certified at epsilon = {epsilon:g}: "
            f"delta {proven:.3g} is proven, {calibration.delta:.3g} is declared; "
            "use the corrected or the sharp calibration"
        )
    return replace(calibration, private=False, delta=proven)


def _movement(bound: StabilityBound) -> tuple[float, float]:
    if bound.W1 is None or bound.W2 is None:
        raise CalibrationError(
            f"{bound.theorem} states no W1 and W2, which the paper's calibration needs: "
            "use the sharp calibration"
        )
    for name, value in (("W1", bound.W1), ("W2", bound.W2)):
        if not (math.isfinite(value) and value > 0.0):
            raise CalibrationError(f"{bound.theorem} gives {name} = {value!r}: no finite noise covers it")
    return bound.W1, bound.W2


def _tail(n_parameters: int, delta: float) -> float:
    """L: a standard normal vector is longer with probability at most delta (rounded up)."""
    log_delta = max(-math.log(delta), 0.0)
    return math.hypot(math.sqrt(n_parameters) + math.sqrt(log_delta), math.sqrt(log_delta)) * (1.0 + MARGIN)
