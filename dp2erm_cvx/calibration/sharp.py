"""Theorems 1, 17 (pure), 2, 16 (approximate): smallest noise that a budget allows, and the default split."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration.calibrator import Calibrator, Objective, refuse_uncovered
from dp2erm_cvx.calibration.constants import (
    Calibration,
    Noise,
    box_of,
    check_loss,
    gradient_size,
    in_range,
    mean_norm,
)
from dp2erm_cvx.calibration.curvature import GAMMA_FLOOR, MARGIN, jacobian_loss, required_gamma
from dp2erm_cvx.calibration.gaussian import CELLS, gaussian_delta, private_ratio
from dp2erm_cvx.calibration.margin_gaussian import (
    MARGIN_THEOREM,
    MarginCalibration,
    margin_delta,
    private_margin_ratio,
)
from dp2erm_cvx.calibration.saturating import (
    ball_gamma,
    calibrate_saturating,
    saturating_delta,
    saturating_epsilon,
)
from dp2erm_cvx.calibration.utility import predicted_distance, predicted_error
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.public import one_of, public_number, whole_number

Array = NDArray[np.float64]

_THEOREM = {
    Noise.GAMMA: "Theorem 1 (pure)",
    Noise.GAUSSIAN: "Theorem 2 (approximate)",
    Noise.BOX: "Theorem 17 (box noise)",
}


def calibrate(
    objective: Objective,
    budget: Budget,
    *,
    noise: Noise | str = Noise.GAMMA,
    split: float | None = None,
) -> Calibration:
    """Calibrate objective perturbation to a budget.

    With q the ``split`` and V the coupled variation of the weights:

    - gamma noise, Theorem 1 (pure): ``scale = zeta_c V / (q epsilon)``. The guarantee is (epsilon, 0)
      also where the budget allows a positive delta;
    - box noise, Theorem 17: the same in the norm of the box of the rows, where zeta_c is the largest slope;
    - Gaussian noise, Theorem 2 (approximate): the smallest ``scale`` sigma with
      ``E[(1 - exp(q epsilon - s chi_p - s^2/2))_+] <= delta``, ``s = zeta_c V / sigma``;
    - for a loss of a margin Theorem 16 where its sigma is smaller: one normal variable in place of chi_p,
      ``s = G V / sigma`` with G the ``gradient_bound``;
    - all: ``gamma + mu_R >= lam V / (2 p n (exp((1 - q) epsilon / p) - 1))``, and gamma at least
      ``1e-8`` of the bound on trace Hess l.

    Every rounding goes to more noise. Without ``split`` the share is chosen from public quantities by
    the predicted error (:func:`dp2erm_cvx.calibration.sharp.default_split`).

    Raises CalibrationError where the bound does not cover what is declared, or a quantity is out of
    floating-point range; DeclarationError where an argument is not valid in itself.
    """
    kind = one_of("noise", noise, Noise)
    bound, loss = objective.bound, objective.loss
    check_loss(loss)
    refuse_uncovered(bound, objective.relation, budget, kind)
    if split is None:
        q = default_split(objective, budget, kind)
    else:
        q = public_number("split", split, above=0.0)
        if not 1e-9 <= q <= 1.0 - 1e-9:  # a sliver of epsilon drowns in rounding
            raise DeclarationError(f"split = {split!r}: must be from 1e-9 to 1 - 1e-9")

    gamma = required_gamma(bound.V, loss, objective.n_samples, (1.0 - q) * budget.epsilon)
    scales, line = _scales(objective, budget, kind, (q * budget.epsilon,))
    setting = (
        f"epsilon = {budget.epsilon:g}, split = {q:g}, V = {bound.V:g}, "
        f"gradient_radius = {gradient_size(loss, kind):g}, hessian_trace = {loss.hessian_trace:g}"
    )
    found = Calibration(
        noise=kind,
        scale=in_range("noise scale", float(scales[0]) * (1.0 + MARGIN), setting),
        gamma=in_range("gamma", gamma, setting),
        split=q,
        n_parameters=loss.n_parameters,
        V=bound.V,
        sensitivity=gradient_size(loss, kind) * bound.V,
        epsilon=budget.epsilon,
        delta=0.0 if kind.pure else budget.delta,
        theorem=_THEOREM[kind],
        box=box_of(loss, kind),
    )
    if not line[0]:
        return found
    assert loss.gradient_bound is not None
    facts = vars(found) | {"sensitivity": loss.gradient_bound * bound.V, "theorem": MARGIN_THEOREM}
    spent = jacobian_loss(bound.V, loss, objective.n_samples, found.gamma)
    return MarginCalibration(**facts, jacobian=spent, curvature=0.0)


def _scales(
    objective: Objective, budget: Budget, kind: Noise, shares: tuple[float, ...], cells: int = CELLS
) -> tuple[Array, NDArray[np.bool_]]:
    """Smallest scale where a share of epsilon pays for the noise, and whether Theorem 16 gives it."""
    loss, V = objective.loss, objective.bound.V
    with np.errstate(divide="ignore", over="ignore"):
        if kind.pure:
            return gradient_size(loss, kind) * V / np.array(shares), np.zeros(len(shares), dtype=bool)
        scales = loss.gradient_radius * V / np.array(_ratios(shares, loss.n_parameters, budget.delta, cells))
        if not loss.is_margin:
            return scales, np.zeros(len(shares), dtype=bool)
        if loss.gradient_bound is None:
            raise DeclarationError(f"{objective.name}: a loss of a margin states its gradient_bound")
        other = loss.gradient_bound * V / np.array(_margin_ratios(shares, budget.delta))
    return np.minimum(scales, other), other < scales


def privacy_loss(calibration: Calibration, loss: LossConstants, n_samples: int, epsilon: float) -> float:
    """Upper bound on the delta at ``epsilon`` that a given scale and gamma guarantee.

    Evaluates Theorem 1 or 17 (and 15 or 19, where the loss saturates) or Theorems 2 and 16 at the calibration
    as it stands, whatever search found it. It is 0 for gamma and box noise from their pure epsilon on, ``1 -
    exp(epsilon - pure epsilon)`` below. Raises DeclarationError for an ``epsilon`` that is not a finite
    number of at least 0.
    """
    level = public_number("epsilon", epsilon, at_least=0.0)
    n = whole_number("n_samples", n_samples, at_least=2)
    size = gradient_size(loss, calibration.noise)
    ratio = max(size * calibration.V / calibration.scale, 1e-300)
    left = level - jacobian_loss(calibration.V, loss, n, calibration.gamma)
    if calibration.noise.pure:
        beyond = left - ratio
        if loss.saturation is not None:
            beyond = max(beyond, level - saturating_epsilon(calibration, loss, n))
        return max(0.0, -math.expm1(min(0.0, beyond)))
    deltas = [float(gaussian_delta(ratio, left, loss.n_parameters))]
    if loss.is_margin and loss.gradient_bound is not None:
        line = max(loss.gradient_bound * calibration.V / calibration.scale, 1e-300)
        deltas.append(float(margin_delta(line, left)))
    if loss.saturation is not None:
        deltas.append(saturating_delta(calibration, loss, n, level))
    return min(deltas)


class Sharp(Calibrator):
    """Theorems 1, 2, 16 and 17: noise as a linear term of an objective whose gradient is bounded.

    Theorem 15 in place of Theorem 1, and Theorem 16 without a split, where the loss saturates, no split is
    declared and the predicted error is less. In a ball Theorem 19 at the gamma of Theorem 1, where its noise
    is less.
    """

    laws = (Noise.GAMMA, Noise.GAUSSIAN, Noise.BOX)
    splits = True

    def applies(self, objective: Objective) -> None:
        objective.refuse_unbounded()

    def calibrate(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> Calibration:
        found = calibrate(objective, budget, noise=noise, split=split)
        saturation = objective.loss.saturation
        in_a_ball = saturation is not None and math.isfinite(saturation.ball) and found.noise.pure
        if saturation is None or (split is not None and not in_a_ball):
            return found
        try:
            other = calibrate_saturating(objective, budget, noise, found.gamma if in_a_ball else None)
        except CalibrationError:
            return found  # no noise of Theorem 19 at so small a gamma
        # in a ball both have one gamma
        return min(found, other, key=lambda one: predicted_error(one, objective.loss, objective.n_samples))


#: The public grid of shares of epsilon that may pay for the noise.
GRID = tuple(k / 100 for k in range(1, 100))


def default_split(objective: Objective, budget: Budget, noise: Noise) -> float:
    """The q that minimizes the :func:`~dp2erm_cvx.calibration.utility.predicted_distance`.

    Candidates are ``GRID`` and the share beyond which gamma would leave its floor: below it a smaller share
    buys nothing. For a logistic loss in a ball it is the share of the gamma of Theorem 19.
    """
    V, loss, n_samples = objective.bound.V, objective.loss, objective.n_samples
    epsilon = budget.epsilon
    slack = max(jacobian_loss(V, loss, n_samples, GAMMA_FLOOR * loss.hessian_trace) / epsilon, 1e-6)
    if loss.saturation is not None and math.isfinite(loss.saturation.ball):
        spent = jacobian_loss(V, loss, n_samples, ball_gamma(objective, budget)) / epsilon
        return min(max(1.0 - spent, GRID[0]), 1.0 - 1e-6)
    candidates = [*GRID, 1.0 - slack] if slack < 1.0 else list(GRID)
    shares = tuple(q * epsilon for q in candidates)
    # the shares of the grid are the same for every bound
    parts = [part for part in (shares[: len(GRID)], shares[len(GRID) :]) if part]
    scales = np.concatenate([_scales(objective, budget, noise, part, cells=64)[0] for part in parts])
    unit = mean_norm(noise, loss.n_parameters, box_of(loss, noise))

    def predicted(share: float, scale: float) -> float:
        gamma = required_gamma(V, loss, n_samples, (1.0 - share) * epsilon)
        return predicted_distance(unit * scale, gamma, loss, n_samples)

    costs = [predicted(share, float(scale)) for share, scale in zip(candidates, scales, strict=True)]
    return candidates[int(np.argmin(costs))]


@lru_cache(maxsize=64)
def _ratios(shares: tuple[float, ...], n_parameters: int, delta: float, cells: int) -> tuple[float, ...]:
    """What calibrations need of :func:`private_ratio`."""
    return tuple(private_ratio(np.array(shares), n_parameters, delta, cells).tolist())


@lru_cache(maxsize=64)
def _margin_ratios(shares: tuple[float, ...], delta: float) -> tuple[float, ...]:
    return tuple(private_margin_ratio(np.array(shares), delta).tolist())
