"""Theorem 7 (Renyi): Gaussian noise for an unconstrained squared loss.

Its theta is exactly Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import (
    MARGIN,
    Calibration,
    Noise,
    Objective,
    Perturbed,
    least_predicted,
)
from dp2erm_cvx.checks import public_number, whole_number
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import RENYI_ORDERS, Budget, RenyiCurve

#: Public grid of tau = M^2 V / (n gamma), from which gamma is chosen.
TAU_GRID = np.geomspace(1e-8, 1e2, 201)

# Orders are kept where h is at least this: nearer to 0 rounding would eat the digits of h.
_LEAST_H = 1e-3
# The first grid of alpha - 1: its ends where tau admits them, and its number of points.
_LEAST_EXCESS = 1e-6
_LARGEST_EXCESS = 1e15
_GRID_POINTS = 400
# The refinement reaches two steps of the first grid to either side. Its points lie over at most 21
# decades, so that a step is at most 10^(21/399), 13 %, and two are less than a factor of 1.3.
_TWO_STEPS = 1.3
# Relative slack on every term whose rounding is at most 1e-12 of it.
_SLACK = 1e-11


@dataclass(frozen=True)
class RenyiCalibration(Calibration):
    """Calibration of Theorem 7, whose ``sensitivity`` is S: for an unconstrained squared loss only.

    Parameters
    ----------
    order
        The order that gave the scale.
    tau
        The bound ``M^2 V / (n gamma)``.
    """

    order: float
    tau: float

    def curve(self) -> RenyiCurve:
        """The bound of Theorem 7 at public orders and at ``order``; infinite where h <= 0.001."""
        orders = sorted({*RENYI_ORDERS, self.order})
        bounds = _divergence(np.array(orders), self.tau, self.sensitivity / self.scale)
        return RenyiCurve(tuple(orders), tuple(bounds.tolist()))


def renyi_divergence(
    order: ArrayLike, V: float, loss: LossConstants, n_samples: int, scale: float, gamma: float
) -> Array:
    """Upper bound on the Renyi divergence of every ``order`` > 1, in both directions (Theorem 7).

    It is ``alpha S^2 / (2 sigma^2 h) + 2 f(1 + tau)`` with ``tau = M^2 V / (n gamma)``,
    ``h = alpha - (alpha - 1)(1 + tau)^2``,
    ``f(s) = -log s - log(alpha - (alpha - 1) s^2)/(2 (alpha - 1))`` and S of ``gradient_movement``.

    Parameters
    ----------
    order
        Order or orders alpha > 1, of any shape.
    V
        Bound > 0 on the movement of the weights.
    loss
        Constants of a squared loss.
    n_samples
        Number of records, at least 2.
    scale
        sigma > 0 of the noise in units of ``n`` times the gradient.
    gamma
        The ridge > 0.

    Returns
    -------
    Array
        The bounds, by order; infinite where h <= 0.001.

    Raises
    ------
    CalibrationError
        Where the loss is not squared.
    DeclarationError
        For an invalid argument.
    """
    orders = np.asarray(order, dtype=np.float64)
    if not (np.isfinite(orders).all() and (orders > 1.0).all()):
        raise DeclarationError("order: must be finite and greater than 1")
    V = public_number("V", V, above=0.0)
    n = whole_number("n_samples", n_samples, at_least=2)
    scale = public_number("scale", scale, above=0.0)
    gamma = public_number("gamma", gamma, above=0.0)
    tau = _tau(V, loss, n, gamma)
    shift = gradient_movement(V, loss, gamma) / scale
    return _divergence(orders, tau, shift)


def renyi_epsilon(order: ArrayLike, divergence: ArrayLike, delta: float) -> float:
    """The smallest epsilon, rounded up, that a curve of Renyi divergences proves at a delta.

    Minimum over the orders of ``D + log((alpha - 1)/alpha) - (log delta + log alpha)/(alpha - 1)``
    (Canonne, Kamath and Steinke 2020, Proposition 12), and at least 0.

    Parameters
    ----------
    order
        Orders alpha > 1 (m,).
    divergence
        Bounds D on the divergence (m,).
    delta
        In (0, 1).

    Raises
    ------
    DeclarationError
        For numbers outside of these ranges.
    """
    level = public_number("delta", delta, above=0.0)
    if level >= 1.0:
        raise DeclarationError(f"delta = {delta!r}: must be in (0, 1)")
    orders = np.asarray(order, dtype=np.float64)
    costs = np.asarray(divergence, dtype=np.float64)
    if not ((orders > 1.0).all() and (costs >= 0.0).all()):
        raise DeclarationError("order must be greater than 1 and divergence at least 0 everywhere")
    return max(0.0, float(np.min(costs * (1.0 + MARGIN) + _conversion(orders, level))))


def gradient_movement(V: float, loss: LossConstants, gamma: float) -> float:
    """Bound ``S = V (M^2 Z / sqrt(2 gamma) + 2 M Z)`` on the movement of the summed gradient.

    It is rounded up.

    Parameters
    ----------
    V
        Bound on the movement of the weights.
    loss
        Constants of a squared loss.
    gamma
        The ridge.

    Returns
    -------
    float
        The bound.

    Raises
    ------
    CalibrationError
        Where the loss is not squared.
    """
    M, Z = _squared(loss)
    return V * M * Z * (M / math.sqrt(2.0 * gamma) + 2.0) * (1.0 + MARGIN)


def calibrate_renyi(
    objective: Objective, budget: Budget, *, gamma: float | None = None
) -> RenyiCalibration:
    """Calibrate Gaussian objective perturbation of an unconstrained squared loss (Theorem 7).

    sigma is the smallest, over a grid of orders, whose Renyi bound converts to the budget; rounding
    goes to more noise.

    Parameters
    ----------
    objective
        What is public of the objective, with a squared loss.
    budget
        The (epsilon, delta) that the release may spend.
    gamma
        The ridge > 0. By default it is that of ``M^2 V / (n tau)``, tau in ``TAU_GRID``, with the
        least :func:`~dp2erm_cvx.calibration.base.predicted_distance`.

    Returns
    -------
    RenyiCalibration

    Raises
    ------
    CalibrationError
        Where the loss is not squared, no order fits, or the bound does not cover what is declared.
    DeclarationError
        For an invalid ``gamma``.
    """
    loss = objective.loss
    n = objective.n_samples
    M, _ = _squared(loss)
    objective.refuse_uncovered(budget, Noise.GAUSSIAN)
    V = objective.bound.V
    candidates = M * M * V / n / TAU_GRID
    if gamma is not None:
        candidates = np.array([public_number("gamma", gamma, above=0.0)])
    for candidate in candidates:
        objective.in_range("gamma", float(candidate), budget)

    # sigma / S of every candidate, over a first grid of orders.
    taus = np.array([_tau(V, loss, n, float(candidate)) for candidate in candidates])
    least_excess = np.full_like(taus, _LEAST_EXCESS)
    units, orders = _unit_noise(taus, budget, least_excess, _largest_excess(taus))
    scales = []
    for unit, candidate in zip(units, candidates, strict=True):
        scales.append(float(unit) * gradient_movement(V, loss, float(candidate)))
    best = least_predicted(objective, Noise.GAUSSIAN, scales, candidates)
    if not math.isfinite(units[best]):
        _refuse_orders(budget, gamma)
    unit, order = _refined(taus[[best]], budget, units[[best]], orders[[best]])
    chosen = float(candidates[best])
    sensitivity = gradient_movement(V, loss, chosen)
    facts: dict[str, Any] = {
        "theorem": "Theorem 7 (Renyi)",
        "perturbed": Perturbed.UNCONSTRAINED,
        "sensitivity": sensitivity,
    }
    known = objective.calibrated(Noise.GAUSSIAN, budget, sensitivity * unit, chosen, **facts)
    return RenyiCalibration(**vars(known), order=order, tau=float(taus[best]))


def _refuse_orders(budget: Budget, gamma: float | None) -> None:
    """Raise CalibrationError where no order converts to the budget."""
    where = "any gamma"
    if gamma is not None:
        where = f"gamma = {gamma:g}"
    raise CalibrationError(
        f"Theorem 7 (Renyi): no order fits epsilon = {budget.epsilon:g}, delta = "
        f"{budget.delta:g} at {where}: raise gamma or the budget, or use another calibration"
    )


def _squared(loss: LossConstants) -> tuple[float, float]:
    """M and Z of Theorem 7."""
    if loss.covariate_bound is None or loss.response_bound is None:
        raise CalibrationError("Theorem 7 needs a squared loss")
    return loss.covariate_bound, loss.response_bound


def _tau(V: float, loss: LossConstants, n: int, gamma: float) -> float:
    """``M^2 V / (n gamma)``, rounded up."""
    M, _ = _squared(loss)
    return M / gamma * (M * V / n) * (1.0 + MARGIN)


def _largest_excess(tau: Array) -> Array:
    """Largest alpha - 1 that is tried: h stays above ``_LEAST_H``."""
    return np.minimum((1.0 - 1.01 * _LEAST_H) / (tau * (2.0 + tau)), _LARGEST_EXCESS)


def _divergence(order: Array, tau: float, ratio: float) -> Array:
    """The bound for a shift of ``ratio`` standard deviations and a relative movement ``tau``."""
    noise_cost, hessian_cost = _costs(order, tau)
    with np.errstate(over="ignore"):
        # the floor keeps a square from vanishing
        squared = np.square(max(ratio, 1e-150) * (1.0 + MARGIN))
        result: Array = noise_cost * squared * (1.0 + _SLACK) + hessian_cost
    return result


def _unit_noise(tau: Array, budget: Budget, low: Array, high: Array) -> tuple[Array, Array]:
    """Smallest sigma / S over a grid of orders for each tau, and the order that gives it.

    Parameters
    ----------
    tau
        Bounds tau (k,).
    budget
        The (epsilon, delta) that the divergence converts to.
    low, high
        Ends of each grid of alpha - 1 (k,). A low one above the high one is moved to it.
    """
    orders = 1.0 + np.geomspace(np.minimum(low, high), high, _GRID_POINTS, axis=-1)
    noise_cost, hessian_cost = _costs(orders, tau[:, None])
    conversion = _conversion(orders, budget.delta)
    # What the noise may cost: epsilon less the other costs, rounded down.
    allowed = budget.epsilon - hessian_cost - conversion
    allowed = allowed - 1e-15 * (budget.epsilon + hessian_cost + np.abs(conversion))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        unit = np.where(allowed > 0.0, np.sqrt(noise_cost / allowed) * (1.0 + _SLACK), np.inf)
    unit = np.where(np.isnan(unit), np.inf, unit)
    best = np.argmin(unit, axis=-1)
    rows = np.arange(len(tau))
    return unit[rows, best], orders[rows, best]


def _refined(tau: Array, budget: Budget, unit: Array, order: Array) -> tuple[float, float]:
    """Smallest sigma / S over a finer grid of orders, and the order that gives it.

    Every order gives a valid bound: a finer search can only save noise.

    Parameters
    ----------
    tau
        The bound tau (1,).
    budget
        The (epsilon, delta) that the divergence converts to.
    unit, order
        The smallest sigma / S over the first grid, and its order (1,); they stay where the finer
        grid has nothing smaller.
    """
    excess = order - 1.0
    low = excess / _TWO_STEPS
    high = np.minimum(excess * _TWO_STEPS, _largest_excess(tau))
    fine_unit, fine_order = _unit_noise(tau, budget, low, high)
    if fine_unit[0] > unit[0]:
        return float(unit[0]), float(order[0])
    return float(fine_unit[0]), float(fine_order[0])


def _costs(order: Array, tau: float | Array) -> tuple[Array, Array]:
    """The costs ``alpha / (2 h)`` of a unit squared shift and ``2 f(1 + tau)``, rounded up."""
    k = order - 1.0
    loss_of_h = k * tau * (2.0 + tau) * (1.0 + 1e-14)
    h = 1.0 - loss_of_h
    valid = h > _LEAST_H
    safe = np.where(valid, loss_of_h, 0.0)
    gain = np.log1p(tau)
    pay = -np.log1p(-safe) / (2.0 * k)
    hessian = 2.0 * np.maximum(pay - gain + _SLACK * 1e-1 * (pay + gain), 0.0)
    noise = order / (2.0 * np.where(valid, h, 1.0)) * (1.0 + _SLACK)
    return np.where(valid, noise, np.inf), np.where(valid, hessian, np.inf)


def _conversion(order: Array, delta: float) -> Array:
    """What the conversion to (epsilon, delta) adds to a divergence, rounded up."""
    k = order - 1.0
    of_ratio = np.log1p(1.0 / k)
    of_order = np.log1p(k) / k
    of_delta = math.log(delta) / k
    rounding = 1e-13 * (of_ratio + of_order + np.abs(of_delta))
    result: Array = -of_ratio - of_order - of_delta + rounding
    return result
