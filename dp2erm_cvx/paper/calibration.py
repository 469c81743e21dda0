"""Noise as the paper calibrates it, from its own measures of movement."""

from __future__ import annotations

import math
from dataclasses import replace

from dp2erm_cvx.calibration.base import MARGIN, Calibration, Noise, Objective
from dp2erm_cvx.calibration.objective import privacy_loss
from dp2erm_cvx.checks import one_of, public_number
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.paper.bound import PrintedBound
from dp2erm_cvx.privacy import Budget, StabilityBound


def calibrate_paper(
    objective: Objective,
    budget: Budget,
    *,
    noise: Noise | str = Noise.GAMMA,
    corrected: bool = False,
    unsound_ok: bool = False,
) -> Calibration:
    """Calibrate by Theorem DP_guarnatee, equations beta_gamma_choice and sigma_Gaussian_choice.

    With zeta the uncentered ``gradient_bound`` of the loss, lam the bound on the trace, and ``W1``
    and ``W2`` of the bound, ``gamma = 2 lam W2 / (epsilon n)``. Gamma noise has the scale
    ``2 zeta W1 / epsilon``. Gaussian noise has
    ``sigma = (zeta W1 / epsilon)(L + sqrt(L^2 + epsilon / W1))`` as printed, with ``epsilon`` in
    the place of ``epsilon / W1`` where it is corrected, and
    ``L^2 = (sqrt(p) + sqrt(log 1/delta))^2 + log 1/delta``.

    The printed Gaussian proof does not hold: its exponent has ``zeta^2 W1`` for ``zeta^2 W1^2``.
    The result is private only where Theorem 1 or 2, with ``V = min(W1, sqrt(2) W2)`` or the bound's
    own V if that is smaller, certifies it.

    Parameters
    ----------
    objective
        What is calibrated, with a bound of the paper.
    budget
        What may be spent.
    noise
        "gamma" or "gaussian".
    corrected
        Whether Gaussian noise has the corrected exponent.
    unsound_ok
        Whether a calibration that is not certified is returned, marked as not private.

    Returns
    -------
    calibration
        The noise, and gamma.

    Raises
    ------
    CalibrationError
        Where the result is not certified, where a bound is missing or does not cover what is
        declared, and where floating point gives out.
    DeclarationError
        For an invalid argument.
    """
    kind = one_of("noise", noise, Noise)
    if kind is Noise.BOX:
        raise CalibrationError("the paper's statements are about gamma and Gaussian noise")
    loss = objective.loss
    n = objective.n_samples
    epsilon = budget.epsilon
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
    bound = _with_finite_measures(objective.bound)
    if kind is Noise.GAMMA:
        scale = 2.0 * zeta * bound.W1 / epsilon
        part = "(i)"
    else:
        # L: a standard normal vector is longer with probability at most delta
        log_delta = math.sqrt(max(-math.log(budget.delta), 0.0))
        L = math.hypot(math.sqrt(loss.n_parameters) + log_delta, log_delta) * (1.0 + MARGIN)
        exponent = epsilon / bound.W1
        part = "(ii), as printed"
        if corrected:
            exponent = epsilon
            part = "(ii), corrected"
        scale = zeta * bound.W1 / epsilon * (L + math.hypot(L, math.sqrt(exponent)))
    gamma = 2.0 * loss.hessian_trace / n * (bound.W2 / epsilon)
    facts = {
        "split": 0.5,
        "sensitivity": zeta * bound.W1,
        "theorem": f"paper, Theorem DP_guarnatee {part}",
    }
    usable = objective.calibrated(kind, budget, scale, gamma * (1.0 + MARGIN), **facts)
    V = min(bound.V, bound.W1, math.sqrt(2.0) * bound.W2 * (1.0 + MARGIN))
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


def _with_finite_measures(bound: StabilityBound) -> PrintedBound:
    """A bound with finite W1 and W2; raises CalibrationError for any other."""
    if not isinstance(bound, PrintedBound):
        raise CalibrationError(
            f"{bound.theorem} states no W1 and W2, which the paper's calibration needs: "
            "use the sharp calibration"
        )
    for name, value in (("W1", bound.W1), ("W2", bound.W2)):
        if not (math.isfinite(value) and value > 0.0):
            raise CalibrationError(
                f"{bound.theorem} gives {name} = {value!r}: no finite noise covers it"
            )
    return bound
