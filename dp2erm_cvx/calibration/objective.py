"""Noise as a linear term of the objective: Theorems 1, 2, 15, 16, 17 and 19."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import (
    MARGIN,
    Calibration,
    Noise,
    Objective,
    gradient_size,
    least_predicted,
)
from dp2erm_cvx.calibration.profiles import (
    CELLS,
    MARGIN_THEOREM,
    MarginCalibration,
    gaussian_delta,
    largest_free_curvature,
    margin_delta,
)
from dp2erm_cvx.checks import one_of, public_number, public_size, whole_number
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.curves.suprema import Saturation
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget

#: Smallest gamma, relative to the bound on trace Hess l. Theorem 1 needs gamma + mu_R > 0 only; the
#: floor also keeps the perturbed objective well conditioned, at a bias no data set of practical
#: size can see.
GAMMA_FLOOR = 1e-8

#: exp(this) is the largest Jacobian ratio used; a smaller ratio than allowed is on the safe side.
_LARGEST_EXPONENT = 700.0


def jacobian_loss(V: float, loss: LossConstants, n_samples: int, gamma: float) -> float:
    """``J = p log(1 + lam V / (2 p n (gamma + mu_R)))`` of Theorem 1.

    Parameters
    ----------
    V
        Bound on the movement of the weights.
    loss
        Constants of the loss: lam bounds the trace of a record's Hessian.
    n_samples
        Number of records.
    gamma
        The ridge.

    Returns
    -------
    float
        What the Jacobian adds to the privacy loss.
    """
    p = loss.n_parameters
    curvature = gamma + loss.strong_convexity
    return p * math.log1p(loss.hessian_trace / curvature * (V / (2.0 * p * n_samples)))


def required_gamma(V: float, loss: LossConstants, n_samples: int, epsilon_share: float) -> float:
    """Smallest gamma (rounded up, never below the floor) with ``J <= epsilon_share``.

    ``gamma + mu_R >= lam V / (2 p n (exp(epsilon_share / p) - 1))``, Theorem 1.

    Parameters
    ----------
    V, loss, n_samples
        As of :func:`jacobian_loss`.
    epsilon_share
        What the Jacobian may cost.

    Returns
    -------
    float
        The ridge; infinite where floating point gives out.
    """
    p = loss.n_parameters
    growth = math.expm1(min(epsilon_share / p, _LARGEST_EXPONENT))
    if growth <= 0.0:
        return math.inf
    needed = loss.hessian_trace / (2.0 * p * n_samples) * (V / growth) * (1.0 + MARGIN)
    return max(needed - loss.strong_convexity, GAMMA_FLOOR * loss.hessian_trace)


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

    Gamma noise by Theorem 1 and box noise by Theorem 17, both pure whatever delta is:
    ``scale = zeta_c V / (q epsilon)`` with zeta_c the ``gradient_radius`` and q the split. Gaussian
    noise by Theorem 2, or for a loss of a margin by Theorem 16 where that is smaller. The rest pays
    for the Jacobian, ``J <= (1 - q) epsilon``: gamma is the least with that, and at least ``1e-8``
    of the bound on the trace. Every rounding goes to more noise.

    Parameters
    ----------
    objective
        What is perturbed.
    budget
        Epsilon and delta.
    noise
        Law of the noise.
    split
        Share of epsilon that pays for the noise; by default
        :func:`~dp2erm_cvx.calibration.objective.default_split`.

    Returns
    -------
    Calibration

    Raises
    ------
    CalibrationError
        Where the bound does not cover what is declared or floating point gives out.
    DeclarationError
        For an invalid argument.
    """
    kind = one_of("noise", noise, Noise)
    bound = objective.bound
    loss = objective.loss
    objective.refuse_uncovered(budget, kind)
    if split is None:
        q = default_split(objective, budget, kind)
    else:
        q = public_number("split", split, above=0.0)
        if not 1e-9 <= q <= 1.0 - 1e-9:
            # a sliver of epsilon drowns in rounding
            raise DeclarationError(f"split = {split!r}: must be from 1e-9 to 1 - 1e-9")

    gamma = required_gamma(bound.V, loss, objective.n_samples, (1.0 - q) * budget.epsilon)
    scales, by_theorem_16 = _scales(objective, budget, kind, (q * budget.epsilon,))
    sensitivity = gradient_size(loss, kind) * bound.V
    facts = {"split": q, "sensitivity": sensitivity, "theorem": _THEOREM[kind]}
    calibration = objective.calibrated(kind, budget, float(scales[0]), gamma, **facts)
    if not by_theorem_16[0]:
        return calibration
    assert loss.gradient_bound is not None
    known = vars(calibration) | {
        "sensitivity": loss.gradient_bound * bound.V,
        "theorem": MARGIN_THEOREM,
    }
    spent = jacobian_loss(bound.V, loss, objective.n_samples, calibration.gamma)
    return MarginCalibration(**known, jacobian=spent, curvature=0.0)


def _scales(
    objective: Objective, budget: Budget, kind: Noise, shares: tuple[float, ...], cells: int = CELLS
) -> tuple[Array, NDArray[np.bool_]]:
    """Smallest scales where shares of epsilon pay for noise, and whether Theorem 16 gives them."""
    loss = objective.loss
    V = objective.bound.V
    nowhere = np.zeros(len(shares), dtype=bool)
    with np.errstate(divide="ignore", over="ignore"):
        if kind.pure:
            return gradient_size(loss, kind) * V / np.array(shares), nowhere
        scales = loss.gradient_radius * V / _ratios(shares, loss.n_parameters, budget.delta, cells)
        if not loss.is_margin:
            return scales, nowhere
        if loss.gradient_bound is None:
            raise DeclarationError(
                f"{objective.name}: a loss of a margin states its gradient_bound"
            )
        one_dimensional = loss.gradient_bound * V / _ratios(shares, None, budget.delta, CELLS)
    return np.minimum(scales, one_dimensional), one_dimensional < scales


def privacy_loss(
    calibration: Calibration, loss: LossConstants, n_samples: int, epsilon: float
) -> float:
    """Upper bound on the delta that a scale and a gamma guarantee, whatever calibrated them.

    By Theorem 1 or 17 (and 15 or 19, where the loss saturates), or Theorems 2 and 16. It is 0 for
    gamma and box noise from their pure epsilon on, ``1 - exp(epsilon - pure epsilon)`` below.

    Parameters
    ----------
    calibration
        The noise and gamma.
    loss
        Constants of the loss.
    n_samples
        Number of records.
    epsilon
        The epsilon that delta is at.

    Raises
    ------
    DeclarationError
        For an invalid number.
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
        largest_gradient = loss.gradient_bound
        one_dimensional_ratio = max(largest_gradient * calibration.V / calibration.scale, 1e-300)
        deltas.append(float(margin_delta(one_dimensional_ratio, left)))
    curve = loss.saturation
    if curve is not None:
        # Theorem 16 of a loss that saturates
        largest_gradient = curve.row_norm * curve.slope
        one_dimensional_ratio = max(largest_gradient * calibration.V / calibration.scale, 1e-300)
        curvature = _share(calibration, loss, n)
        deltas.append(float(margin_delta(one_dimensional_ratio, level, curvature)))
    return min(deltas)


#: The public grid of shares of epsilon that may pay for the noise.
GRID = tuple(k / 100 for k in range(1, 100))


def default_split(objective: Objective, budget: Budget, noise: Noise) -> float:
    """The q of the least :func:`~dp2erm_cvx.calibration.base.predicted_distance`.

    Candidates are ``GRID`` and the share beyond which gamma would leave its floor. For a saturating
    loss in a ball it is the share of the gamma of Theorem 19.

    Parameters
    ----------
    objective
        What is perturbed.
    budget
        Epsilon and delta.
    noise
        Law of the noise.

    Returns
    -------
    float
        The share of epsilon that pays for the noise.
    """
    V = objective.bound.V
    loss = objective.loss
    n = objective.n_samples
    epsilon = budget.epsilon
    if loss.saturation is not None and math.isfinite(loss.saturation.margin_reach):
        spent = jacobian_loss(V, loss, n, ball_gamma(objective, budget)) / epsilon
        return min(max(1.0 - spent, GRID[0]), 1.0 - 1e-6)
    at_floor = jacobian_loss(V, loss, n, GAMMA_FLOOR * loss.hessian_trace)
    share_at_floor = max(at_floor / epsilon, 1e-6)
    candidates = list(GRID)
    # The shares of the grid are the same for every bound.
    groups = [tuple(q * epsilon for q in GRID)]
    if share_at_floor < 1.0:
        candidates.append(1.0 - share_at_floor)
        groups.append((candidates[-1] * epsilon,))
    scales_of_groups = [_scales(objective, budget, noise, group, cells=64)[0] for group in groups]
    scales = np.concatenate(scales_of_groups)
    gammas = (required_gamma(V, loss, n, (1.0 - share) * epsilon) for share in candidates)
    return candidates[least_predicted(objective, noise, scales, gammas)]


@lru_cache(maxsize=64)
def _ratios(shares: tuple[float, ...], n_parameters: int | None, delta: float, cells: int) -> Array:
    """Result of :func:`private_ratio` for calibrations: read only."""
    return private_ratio(np.array(shares), n_parameters, delta, cells)


#: ``2 k V`` as a share of epsilon, with ``k = kappa M^2 / (n (gamma + mu_R))``, for any saturating
#: loss in a ball (Theorem 19) where no gamma is declared. It is tuned on the logistic loss: in
#: simulations with five parameters its best share was .2 at n epsilon = 100, .5 at 500 and .65 at
#: 2000.
CURVATURE_SHARE = 0.4


def calibrate_saturating(
    objective: Objective,
    budget: Budget,
    noise: Noise | str = Noise.GAMMA,
    gamma: float | None = None,
) -> Calibration:
    """Calibrate noise to a loss of a margin that saturates, without a split.

    - Gamma and box noise by Theorem 15: ``scale = M S V / epsilon`` (box noise: S V), and gamma is
      the least with ``a u + k h(u) <= a`` for all u in [0, 1], ``a = epsilon / V``,
      ``k = kappa M^2 / (n (gamma + mu_R))``.
    - The same in a ball by Theorem 19: the least scale at a ``gamma``.
    - Gaussian noise by Theorem 16, for the whole epsilon.

    Rounding goes to more noise, and gamma is at least ``1e-8`` of the bound on the trace.

    Parameters
    ----------
    objective
        What is perturbed; its loss saturates.
    budget
        Epsilon and delta.
    noise
        Law of the noise.
    gamma
        The ridge, for gamma and box noise in a ball alone; by default that of ``ball_gamma``.

    Returns
    -------
    Calibration

    Raises
    ------
    CalibrationError
        Where the loss is no such loss, the bound does not cover what is declared or floating point
        gives out.
    DeclarationError
        For an invalid argument.
    """
    kind = one_of("noise", noise, Noise)
    curve, size = _saturation(objective.loss, kind, objective.name)
    objective.refuse_uncovered(budget, kind)
    if kind.pure and math.isfinite(curve.margin_reach):
        if gamma is None:
            gamma = ball_gamma(objective, budget)
        return _calibrated_in_ball(objective, budget, kind, gamma)
    V = objective.bound.V
    epsilon = budget.epsilon
    ratio = epsilon
    # The largest K that costs the noise nothing.
    free_curvature = epsilon
    if kind is Noise.GAUSSIAN:
        ratio = float(private_ratio(epsilon, None, budget.delta))
        free_curvature = largest_free_curvature(ratio, epsilon)
    least_gamma = _saturating_gamma(objective, free_curvature)
    facts: dict[str, Any] = {"sensitivity": size * V, "theorem": "Theorem 15 (saturating loss)"}
    if kind is Noise.BOX:
        facts["theorem"] = "Theorem 15 (saturating loss, box noise)"
    elif kind is Noise.GAMMA and objective.blocks > 1:
        # A record moves its own block, and its neighbor another one: the sum of both norms is what
        # counts.
        facts["blocks"] = objective.blocks
        facts["theorem"] = "Theorem 15 (saturating loss, noise by arm)"
    calibration = objective.calibrated(kind, budget, size * V / ratio, least_gamma, **facts)
    if kind.pure:
        return calibration
    known = vars(calibration) | {"theorem": f"{MARGIN_THEOREM} of a saturating loss"}
    curvature = _share(calibration, objective.loss, objective.n_samples)
    return MarginCalibration(**known, jacobian=0.0, curvature=curvature)


def _calibrated_in_ball(
    objective: Objective, budget: Budget, kind: Noise, gamma: float
) -> Calibration:
    """Gamma or box noise for a saturating loss in a ball, at a gamma (Theorem 19)."""
    loss = objective.loss
    V = objective.bound.V
    curve, size = _saturation(loss, kind, objective.name)
    is_box = kind is Noise.BOX
    # k = kappa M^2 / (n (gamma + mu_R)), and a is the largest with (V / 2) (...) <= epsilon.
    k = curve.curvature * curve.row_norm**2 / objective.n_samples / (gamma + loss.strong_convexity)
    a = curve.largest_noise_factor(2.0 * budget.epsilon / V, k * (1.0 + 4.0 * MARGIN), box=is_box)
    scale = math.inf
    if a > 0.0:
        scale = size / a
    theorem = "Theorem 19 (in a ball)"
    if is_box:
        theorem = "Theorem 19 (in a ball, box noise)"
    return objective.calibrated(kind, budget, scale, gamma, sensitivity=size * V, theorem=theorem)


def _saturating_gamma(objective: Objective, free_curvature: float) -> float:
    """The least gamma of Theorems 15 and 16, at which the curvature's part of a loss is free."""
    loss = objective.loss
    curve, _ = _saturation(loss, Noise.GAUSSIAN, objective.name)
    # Below an epsilon of 1e-14 rounding may leave the curvature nothing.
    movement = math.inf
    if free_curvature > 0.0:
        movement = objective.bound.V / free_curvature
    curvature = curve.steepness * curve.curvature * curve.row_norm**2 / objective.n_samples
    curvature *= movement
    # The scale is rounded up, which lowers a: gamma by more.
    needed = curvature * (1.0 + 4.0 * MARGIN) - loss.strong_convexity
    return max(needed, GAMMA_FLOOR * loss.hessian_trace)


def ball_gamma(objective: Objective, budget: Budget) -> float:
    """The gamma of Theorem 19 where none is declared, at least its floor, by public quantities.

    Parameters
    ----------
    objective
        What is perturbed; its loss saturates.
    budget
        Epsilon and delta.

    Returns
    -------
    float
        The ridge.

    Raises
    ------
    CalibrationError
        Where the loss does not saturate.
    """
    loss = objective.loss
    curve, _ = _saturation(loss, Noise.GAMMA, objective.name)
    steep = 2.0 * curve.curvature * curve.row_norm**2 * objective.bound.V
    needed = steep / objective.n_samples / (CURVATURE_SHARE * budget.epsilon)
    return max(needed - loss.strong_convexity, GAMMA_FLOOR * loss.hessian_trace)


def _saturation(
    loss: LossConstants, kind: Noise, name: str = "the loss"
) -> tuple[Saturation, float]:
    """Saturation of a loss, and the largest norm of a gradient of full slope.

    The norm is that of the noise. CalibrationError where the loss does not saturate.
    """
    curve = loss.saturation
    if curve is None:
        raise CalibrationError(f"{name} states no saturation of its loss, which Theorem 15 needs")
    for fact in ("slope", "curvature", "row_norm"):
        # their squares have to stay finite
        public_size(fact, getattr(curve, fact))
    # it refuses box noise without a box, in whose norm rows are at most 1
    gradient_size(loss, kind)
    if kind is Noise.BOX:
        return curve, curve.slope
    return curve, curve.row_norm * curve.slope


def _share(calibration: Calibration, loss: LossConstants, n: int) -> float:
    """``K = -h'(1) k V``, rounded up: ``k V h(u)`` is at most ``K (1 - u)``."""
    curve, _ = _saturation(loss, Noise.GAUSSIAN)
    curvature = n * (calibration.gamma + loss.strong_convexity)
    share = curve.steepness * curve.curvature * curve.row_norm**2 * calibration.V / curvature
    return share * (1.0 + MARGIN)


def saturating_epsilon(calibration: Calibration, loss: LossConstants, n_samples: int) -> float:
    """The pure epsilon that Theorems 15 and 19 give for gamma or box noise, whatever calibrated it.

    ``(V/2) (a + max over u of (a u + k h(u)))``, ``a = M S / scale`` (S / scale for box noise), or
    in a ball the supremum of Theorem 19.

    Parameters
    ----------
    calibration
        The noise and gamma.
    loss
        Constants of the loss.
    n_samples
        Number of records, at least 2.

    Returns
    -------
    float
        The epsilon.

    Raises
    ------
    CalibrationError
        Where the loss does not saturate or the noise is Gaussian.
    DeclarationError
        For an invalid number of records.
    """
    kind = calibration.noise
    n = whole_number("n_samples", n_samples, at_least=2)
    if not kind.pure:
        raise CalibrationError("Theorem 15 is about gamma noise and box noise")
    curve, size = _saturation(loss, kind)
    k = curve.curvature * curve.row_norm**2 / (n * (calibration.gamma + loss.strong_convexity))
    return calibration.V / 2.0 * curve.largest(size / calibration.scale, k, box=kind is Noise.BOX)


def private_ratio(
    epsilon: ArrayLike, n_parameters: int | None, delta: float, cells: int = CELLS
) -> Array:
    """A ratio ``s`` whose delta was evaluated as at most ``delta``, to 1e-6 the largest.

    Parameters
    ----------
    epsilon
        Above 0, of any shape.
    n_parameters
        The number p of :func:`gaussian_delta`; None for :func:`margin_delta`. The delta may be
        monotone or not.
    delta
        What is allowed.
    cells
        Cells of the grid.

    Returns
    -------
    Array
        Ratios of the shape of ``epsilon``.
    """
    eps = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))

    def private(s: Array) -> NDArray[np.bool_]:
        if n_parameters is None:
            return margin_delta(s, eps) <= delta
        return gaussian_delta(s, eps, n_parameters, cells) <= delta

    # Gaussian concentration, P(chi_p >= sqrt(p) + u) <= exp(-u^2/2), makes this start private up to
    # rounding.
    u = math.sqrt(n_parameters or 1) + math.sqrt(-2.0 * math.log(delta))
    low: Array = 2.0 * eps / (u + np.sqrt(u * u + 2.0 * eps))
    inside = private(low)
    while not inside.all():
        low = np.where(inside, low, low / 2.0)
        inside = private(low)
    high = 2.0 * low
    inside = private(high)
    while inside.any():
        low = np.where(inside, high, low)
        high = np.where(inside, 2.0 * high, high)
        inside = private(high)
    for _ in range(21):
        middle = np.sqrt(low) * np.sqrt(high)
        inside = private(middle)
        low = np.where(inside, middle, low)
        high = np.where(inside, high, middle)
    return np.asarray(low.reshape(np.shape(epsilon)), dtype=np.float64)
