"""The default split of epsilon between the noise and the Jacobian, from public quantities alone."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.calibration.calibrator import Objective
from dp2erm_cvx.calibration.constants import Noise, mean_norm
from dp2erm_cvx.calibration.curvature import GAMMA_FLOOR, jacobian_loss, required_gamma
from dp2erm_cvx.calibration.gaussian import private_ratio
from dp2erm_cvx.privacy import Budget

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
    candidates = list(GRID)
    slack = jacobian_loss(V, loss, n_samples, GAMMA_FLOOR * loss.hessian_trace) / epsilon
    if slack < 1.0:
        candidates.append(1.0 - max(slack, 1e-6))
    q = np.array(candidates)
    p = loss.n_parameters
    ratio = q * epsilon if noise is Noise.GAMMA else private_ratio(q * epsilon, p, budget.delta, cells=64)
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

    costs = [predicted(share, float(s)) for share, s in zip(candidates, ratio, strict=True)]
    return candidates[int(np.argmin(costs))]
