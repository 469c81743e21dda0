"""Noise as the paper calibrates it, from its own measures of movement."""

from __future__ import annotations

import math
from dataclasses import replace

from dp2erm_cvx.calibration.base import MARGIN, Calibration, Noise, Objective
from dp2erm_cvx.calibration.objective import privacy_loss
from dp2erm_cvx.checks import one_of, public_number
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.paper.bound import PrintedBound
from dp2erm_cvx.privacy import Budget


def calibrate_paper(
    objective: Objective,
    budget: Budget,
    *,
    noise: Noise | str = Noise.GAMMA,
    corrected: bool = False,
    unsound_ok: bool = False,
) -> Calibration:
    """Calibrate by Theorem DP_guarnatee, equations beta_gamma_choice and sigma_Gaussian_choice.

    With zeta the uncentered ``gradient_bound`` of the loss, lam the bound on the trace and ``W1``
    and ``W2`` of the bound: ``gamma = 2 lam W2 / (epsilon n)``; gamma noise
    ``2 zeta W1 / epsilon``; Gaussian noise
    ``sigma = (zeta W1 / epsilon)(L + sqrt(L^2 + epsilon / W1))`` as printed, ``epsilon`` for
    ``epsilon / W1`` where it is ``corrected``, with
    ``L^2 = (sqrt(p) + sqrt(log 1/delta))^2 + log 1/delta``.

    The printed Gaussian proof does not hold: its exponent has ``zeta^2 W1`` for ``zeta^2 W1^2``.
    The result is private only where Theorem 1 or 2, with ``V = min(W1, sqrt(2) W2)`` or the bound's
    own V if that is smaller, certifies it. Raises CalibrationError where it is not (unless
    ``unsound_ok``, which marks it), where a bound is missing or does not cover what is declared, or
    floating point gives out; DeclarationError for an invalid argument.
    """
    kind = one_of("noise", noise, Noise)
    if kind is Noise.BOX:
        raise CalibrationError("the paper's statements are about gamma and Gaussian noise")
    bound = objective.bound
    loss = objective.loss
    n = objective.n_samples
    if loss.gradient_bound is None:
        raise CalibrationError(
            f"{objective.name} states no gradient_bound, which the paper's calibration needs"
        )
    objective.refuse_uncovered(budget, kind)
    zeta = public_number("gradient_bound", loss.gradient_bound, above=0.0)
    if zeta < loss.gradient_radius:
        raise DeclarationError(
            f"gradient_bound = {zeta:g}: must be at least the centered gradient radius "
            f"{loss.gradient_radius:g}"
        )
    if not isinstance(bound, PrintedBound):
        raise CalibrationError(
            f"{bound.theorem} states no W1 and W2, which the paper's calibration needs: "
            "use the sharp calibration"
        )
    W1 = bound.W1
    W2 = bound.W2
    epsilon = budget.epsilon
    for name, value in (("W1", W1), ("W2", W2)):
        if not (math.isfinite(value) and value > 0.0):
            raise CalibrationError(
                f"{bound.theorem} gives {name} = {value!r}: no finite noise covers it"
            )
    if kind is Noise.GAMMA:
        scale = 2.0 * zeta * W1 / epsilon
        part = "(i)"
    else:
        # L: a standard normal vector is longer with probability at most delta
        log_delta = math.sqrt(max(-math.log(budget.delta), 0.0))
        tail = math.hypot(math.sqrt(loss.n_parameters) + log_delta, log_delta) * (1.0 + MARGIN)
        exponent = epsilon / W1
        part = "(ii), as printed"
        if corrected:
            exponent = epsilon
            part = "(ii), corrected"
        root = math.hypot(tail, math.sqrt(exponent))
        scale = zeta * W1 / epsilon * (tail + root)
    gamma = 2.0 * loss.hessian_trace / n * (W2 / epsilon)
    facts = {
        "split": 0.5,
        "sensitivity": zeta * W1,
        "theorem": f"paper, Theorem DP_guarnatee {part}",
    }
    usable = objective.calibrated(kind, budget, scale, gamma * (1.0 + MARGIN), **facts)
    V = min(bound.V, W1, math.sqrt(2.0) * W2 * (1.0 + MARGIN))
    calibration = replace(usable, V=V)
    proven = privacy_loss(calibration, loss, n, epsilon)
    if proven <= calibration.delta:
        return calibration
    if not unsound_ok:
        raise CalibrationError(
            f"{calibration.theorem}: its {kind.value} noise is not certified at epsilon = "
            f"{epsilon:g}: delta {proven:.3g} is proven, {calibration.delta:.3g} is declared; use "
            "the corrected or the sharp calibration"
        )
    return replace(calibration, private=False, delta=proven)
