"""Theorems 1 (pure) and 2 (approximate): smallest noise that a budget allows, and the default split."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dp2erm_cvx.calibration.calibrator import Calibrator, Objective, refuse_uncovered
from dp2erm_cvx.calibration.constants import Calibration, Noise, check_loss, in_range, mean_norm
from dp2erm_cvx.calibration.curvature import GAMMA_FLOOR, MARGIN, jacobian_loss, required_gamma
from dp2erm_cvx.calibration.gaussian import gaussian_delta, private_ratio
from dp2erm_cvx.calibration.saturating import calibrate_saturating, saturating_epsilon
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.public import one_of, public_number, whole_number

_THEOREM = {Noise.GAMMA: "Theorem 1 (pure)", Noise.GAUSSIAN: "Theorem 2 (approximate)"}


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
    - Gaussian noise, Theorem 2 (approximate): the smallest ``scale`` sigma with
      ``E[(1 - exp(q epsilon - s chi_p - s^2/2))_+] <= delta``, ``s = zeta_c V / sigma``;
    - both: ``gamma + mu_R >= lam V / (2 p n (exp((1 - q) epsilon / p) - 1))``, and gamma at least
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
    sensitivity = loss.gradient_radius * bound.V
    share = q * budget.epsilon
    ratio = share if kind is Noise.GAMMA else float(private_ratio(share, loss.n_parameters, budget.delta))
    scale = sensitivity / ratio * (1.0 + MARGIN) if ratio > 0.0 else math.inf
    setting = (
        f"epsilon = {budget.epsilon:g}, split = {q:g}, V = {bound.V:g}, "
        f"gradient_radius = {loss.gradient_radius:g}, hessian_trace = {loss.hessian_trace:g}"
    )
    return Calibration(
        noise=kind,
        scale=in_range("noise scale", scale, setting),
        gamma=in_range("gamma", gamma, setting),
        split=q,
        n_parameters=loss.n_parameters,
        V=bound.V,
        sensitivity=sensitivity,
        epsilon=budget.epsilon,
        delta=budget.delta if kind is Noise.GAUSSIAN else 0.0,
        theorem=_THEOREM[kind],
    )


def privacy_loss(calibration: Calibration, loss: LossConstants, n_samples: int, epsilon: float) -> float:
    """Upper bound on the delta at ``epsilon`` that a given scale and gamma guarantee.

    Evaluates Theorem 1 (and 15, where the loss saturates) or Theorem 2 at the calibration as it stands,
    whatever search found it: 0 for gamma noise from its pure epsilon on, ``1 - exp(epsilon - pure epsilon)``
    below.
    Raises DeclarationError for an ``epsilon`` that is not a finite number of at least 0.
    """
    level = public_number("epsilon", epsilon, at_least=0.0)
    n = whole_number("n_samples", n_samples, at_least=2)
    ratio = max(loss.gradient_radius * calibration.V / calibration.scale, 1e-300)
    left = level - jacobian_loss(calibration.V, loss, n, calibration.gamma)
    if calibration.noise is Noise.GAMMA:
        beyond = left - ratio
        if loss.saturation is not None:
            beyond = max(beyond, level - saturating_epsilon(calibration, loss, n))
        return max(0.0, -math.expm1(min(0.0, beyond)))
    return float(gaussian_delta(ratio, left, loss.n_parameters))


class Sharp(Calibrator):
    """Theorems 1 and 2: noise as a linear term of an objective whose gradient is bounded.

    Theorem 15 in place of Theorem 1 where the loss saturates, no split is declared and the noise is less.
    """

    laws = (Noise.GAMMA, Noise.GAUSSIAN)
    splits = True

    def applies(self, objective: Objective) -> None:
        objective.refuse_unbounded()

    def calibrate(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> Calibration:
        found = calibrate(objective, budget, noise=noise, split=split)
        if objective.loss.saturation is None or split is not None or found.noise is not Noise.GAMMA:
            return found
        return min(found, calibrate_saturating(objective, budget), key=lambda one: one.expected_noise)


#: The public grid of shares of epsilon that may pay for the noise.
GRID = tuple(k / 100 for k in range(1, 100))


def default_split(objective: Objective, budget: Budget, noise: Noise) -> float:
    """The q that minimizes the predicted excess ``(E||b||/n + gamma a)^2 / (2 (rho + 2 gamma))``.

    ``a`` is ``theta_bound``, or ``M' sqrt(2 / (gamma + mu_R))`` where Theta is unbounded, and rho is the
    strong convexity that is public, ``mu_R``. Candidates are ``GRID`` and the share beyond which gamma would
    leave its floor: below it a smaller share buys nothing.
    """
    V, loss, n_samples = objective.bound.V, objective.loss, objective.n_samples
    epsilon = budget.epsilon
    candidates, p = list(GRID), loss.n_parameters
    slack = jacobian_loss(V, loss, n_samples, GAMMA_FLOOR * loss.hessian_trace) / epsilon
    if slack < 1.0:
        candidates.append(1.0 - max(slack, 1e-6))
    shares = tuple(q * epsilon for q in candidates)
    if noise is Noise.GAMMA:
        ratio = shares
    else:
        ratio = _ratios(shares[: len(GRID)], p, budget.delta) + _ratios(shares[len(GRID) :], p, budget.delta)
    sensitivity = loss.gradient_radius * V
    unit = mean_norm(noise, p)

    def predicted(share: float, ratio: float) -> float:
        # in logarithms: the square would overflow long before the calibration does
        gamma = required_gamma(V, loss, n_samples, (1.0 - share) * epsilon)
        if not (math.isfinite(gamma) and ratio > 0.0):
            return math.inf
        curvature = gamma + loss.strong_convexity
        theta = loss.theta_bound or loss.outcome_bound * math.sqrt(2.0 / curvature)
        error = unit * sensitivity / n_samples / ratio + gamma * theta
        return 2.0 * math.log(error) - math.log(loss.strong_convexity + 2.0 * gamma)

    costs = [predicted(share, s) for share, s in zip(candidates, ratio, strict=True)]
    return candidates[int(np.argmin(costs))]


@lru_cache(maxsize=64)
def _ratios(shares: tuple[float, ...], n_parameters: int, delta: float) -> tuple[float, ...]:
    """What predictions need of :func:`private_ratio`: those of the grid are the same for every bound."""
    if not shares:
        return ()
    return tuple(private_ratio(np.array(shares), n_parameters, delta, cells=64).tolist())
