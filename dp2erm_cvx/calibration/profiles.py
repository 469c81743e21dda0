"""Privacy profiles of Gaussian noise, rounded to the private side, and those of steps in a row.

Theorem 2 is about noise on all parameters, Theorem 16 about gradients on one line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dp2erm_cvx.arrays import ROUND_DOWN, ROUND_UP, Array
from dp2erm_cvx.calibration.base import LARGEST_EPSILON, MARGIN, Calibration, bracketed
from dp2erm_cvx.privacy import RENYI_ORDERS, Budget, RenyiCurve

#: Cells of the grid in a guarantee; 64 are plenty where only a prediction is needed.
CELLS = 512
#: Length of the grid beyond where chi_p begins to matter.
_SPAN = 14.0

# scipy's survival function and density are accurate to about 1e-12 relative; rounding the hazard
# down, and the survival function and the sum up, by far more than that leaves every term an upper
# bound.
_ROUNDING = 1e-9
# Below this the survival function may underflow; it is then replaced by this upper bound.
_TINY = 1e-306


def gaussian_delta(
    ratio: ArrayLike, epsilon: ArrayLike, n_parameters: int, cells: int = CELLS
) -> Array:
    """Upper bound on ``E[(1 - exp(epsilon - s chi_p - s^2/2))_+]`` (Theorem 2), elementwise.

    With ``c = epsilon/s - s/2``, ``x_0 = max(c, 0)`` and S the survival function of chi_p it is
    ``1 - exp(-s (x_0 - c))`` plus the integral of ``s exp(-s (x - c)) S(x)`` from x_0 on, which is
    bounded on every grid by the tangents of log S, as that is concave.

    Parameters
    ----------
    ratio
        ``s = zeta_c V / sigma`` > 0.
    epsilon
        What the Jacobian leaves of the budget.
    n_parameters
        The number p of entries of theta.
    cells
        Cells of the grid.

    Returns
    -------
    Array
        Bounds on delta, at most 1.
    """
    s = np.asarray(ratio, dtype=np.float64)[..., None]
    budget = np.asarray(epsilon, dtype=np.float64)[..., None]
    with np.errstate(over="ignore", under="ignore"):
        # Lowering epsilon or c only raises the expectation. The caps keep squares finite and the
        # rounding error of the difference, at most 1e-16 s where c is near 0, far below _ROUNDING.
        c = np.minimum(np.minimum(budget, LARGEST_EPSILON) / s - s / 2.0, 1e150)
        nodes, widths = _grid(np.maximum(c, 0.0), n_parameters, cells)
        survival, hazard = _survival_and_hazard(nodes, n_parameters)
        # On a cell S(x) is at most S(node) exp(-hazard (x - node)).
        rate = s + hazard
        integrals = s / rate * survival * np.exp(-s * (nodes - c)) * -np.expm1(-rate * widths)
        below_start = -np.expm1(-s * (nodes[..., :1] - c))
        total = (below_start[..., 0] + integrals.sum(axis=-1)) * (1.0 + _ROUNDING)
    result: Array = np.minimum(total, 1.0)
    return result


def _grid(start: Array, n_parameters: int, cells: int) -> tuple[Array, Array]:
    """One cell up to where chi_p begins to matter, ``cells`` equal ones, and an infinite one."""
    body = np.maximum(start, math.sqrt(n_parameters) - 6.0)
    nodes = np.concatenate([start, body + np.linspace(0.0, _SPAN, cells + 1)], axis=-1)
    widths = np.append(np.diff(nodes), np.full_like(start, np.inf), axis=-1)
    return nodes, widths


def _survival_and_hazard(x: Array, p: int) -> tuple[Array, Array]:
    """Survival function S of chi_p, rounded up, and its hazard, rounded down.

    The density is ``x^(p - 1) exp(-x^2/2) / (2^(p/2 - 1) Gamma(p/2))``, and the hazard it over S; 0
    where S may underflow.
    """
    half_square = 0.5 * x * x
    survival = special.gammaincc(p / 2.0, half_square)
    log_constant = (p / 2.0 - 1.0) * math.log(2.0) + math.lgamma(p / 2.0)
    log_density = special.xlogy(p - 1.0, x) - half_square - log_constant
    is_normal = survival > _TINY
    divisor = np.where(is_normal, survival, 1.0)
    hazard = np.where(is_normal, np.exp(log_density) / divisor, 0.0) * (1.0 - _ROUNDING)
    return np.minimum(survival * (1.0 + _ROUNDING), 1.0) + _TINY, hazard


#: What a calibration by it is called.
MARGIN_THEOREM = "Theorem 16 (one dimension)"

# the fixed point that they approach is the least bound, and every one of them is a bound
_STEPS = 8


@dataclass(frozen=True)
class MarginCalibration(Calibration):
    """Calibration of Theorem 16, whose ``sensitivity`` is V times the bound on one gradient.

    Parameters
    ----------
    jacobian
        J, added to the privacy loss; 0 for a loss that saturates.
    curvature
        K of a loss that saturates, else 0.
    """

    jacobian: float
    curvature: float

    def curve(self) -> RenyiCurve:
        """Bounds on the Renyi divergence at the public orders (:func:`margin_divergence`)."""
        ratio = self.sensitivity / self.scale
        bounds = margin_divergence(RENYI_ORDERS, ratio, self.jacobian, self.curvature)
        return RenyiCurve(RENYI_ORDERS, tuple(bounds.tolist()))


def margin_delta(ratio: ArrayLike, epsilon: ArrayLike, curvature: float = 0.0) -> Array:
    """Upper bound on the delta of Theorem 16, elementwise.

    For ``l = s |N| + s^2/2``, N standard normal, every y >= 0 with
    ``t = epsilon + log(1 + y) - y >= 0`` gives the bound
    ``(E(max(l, K) - t)_+ + E(l - t)_+) / (2 (1 + y))``, which is least at ``y = E(l - t | l > t)``.
    Here ``y = e^x - 1`` with x of the theorem.

    Parameters
    ----------
    ratio
        ``s = V G / sigma`` > 0 with G the largest norm of a gradient.
    epsilon
        What J leaves of the budget.
    curvature
        K.

    Returns
    -------
    Array
        Bounds on delta, at most 1.
    """
    s = np.asarray(ratio, dtype=np.float64)
    budget = np.minimum(np.asarray(epsilon, dtype=np.float64), LARGEST_EPSILON)
    s, budget = np.broadcast_arrays(s, budget)
    best = np.ones(s.shape)
    y = np.zeros(s.shape)
    for _ in range(_STEPS):
        t = _offset(budget, y)
        excess, chance = _excess(s, t)
        mean = excess
        if curvature > 0.0:
            # E(max(l, K) - t)_+ is max(t, K) - t and the excess over max(t, K).
            raised = np.maximum(t, curvature)
            excess_over_raised, _ = _excess(s, raised)
            mean = 0.5 * (raised - t + excess_over_raised + excess)
        delta = (mean / (1.0 + y)) * (1.0 + _ROUNDING) + _TINY
        best = np.where(t >= 0.0, np.minimum(best, delta), best)
        # At most this: then y - log(1 + y) <= y^2/2 <= epsilon.
        largest_y = np.sqrt(2.0 * np.maximum(budget, 0.0))
        y = np.minimum(excess / np.maximum(chance, _TINY), largest_y)
    return best


def largest_free_curvature(ratio: float, epsilon: float) -> float:
    """The largest K, rounded down, that leaves ``margin_delta`` what it is without.

    It is t of that function at the best y: a K up to it adds nothing to delta.

    Parameters
    ----------
    ratio, epsilon
        As of :func:`margin_delta`.

    Returns
    -------
    float
        The largest such K.
    """
    s = np.array(ratio)
    budget = np.array(epsilon)
    y = 0.0
    for _ in range(_STEPS - 1):
        excess, chance = _excess(s, _offset(budget, np.array(y)))
        y = min(float(excess / max(float(chance), _TINY)), math.sqrt(2.0 * epsilon))
    return float(_offset(budget, np.array(y))) * (1.0 - _ROUNDING)


def margin_divergence(order: ArrayLike, ratio: float, jacobian: float, curvature: float) -> Array:
    """Upper bound on the Renyi divergence between neighbors, in both directions (Theorem 16).

    It is ``J + log((E exp(a max(l, K)) + E exp(a l)) / 2) / a`` with a = alpha - 1 and l of
    ``margin_delta``.

    Parameters
    ----------
    order
        Orders alpha > 1 (m,).
    ratio
        The ratio s of ``margin_delta``.
    jacobian, curvature
        J and K.

    Returns
    -------
    Array
        Bounds (m,).
    """
    a = np.asarray(order, dtype=np.float64) - 1.0
    s = ratio
    # E exp(a l) = 2 Phi(a s) exp(a (a + 1) s^2/2), in logarithms.
    log_factor = a * (a + 1.0) * (0.5 * s * s)
    of_loss = math.log(2.0) + special.log_ndtr(a * s) + log_factor
    # l is below K where |N| is below c.
    c = (curvature - 0.5 * s * s) / s
    of_raised = of_loss
    if c > 0.0:
        below = a * curvature + np.log(special.erf(c / math.sqrt(2.0)))
        beyond = math.log(2.0) + special.log_ndtr(a * s - c) + log_factor
        of_raised = np.logaddexp(below, beyond)
    mean = np.logaddexp(of_raised, of_loss) - math.log(2.0)
    rounding = 1e-13 * (1.0 + np.abs(mean) + log_factor)
    result: Array = jacobian * ROUND_UP + (np.maximum(mean, 0.0) + rounding) / a
    return result


def excess_over(ratio: float, t: Array) -> Array:
    """Upper bound on ``E(l - t)_+``, l of ``margin_delta``, at any t.

    Parameters
    ----------
    ratio
        The ratio s of ``margin_delta``.
    t
        Numbers of any shape.

    Returns
    -------
    Array
        Bounds of the shape of ``t``.
    """
    mean, _ = _excess(np.full(np.shape(t), ratio), np.asarray(t))
    excess: Array = mean * (1.0 + _ROUNDING) + _TINY
    return excess


def _offset(budget: Array, y: Array) -> Array:
    """``t = epsilon + log(1 + y) - y``, rounded down, which only raises a bound."""
    offset: Array = budget - (y - np.log1p(y)) - 1e-14 * (np.abs(budget) + y)
    return offset


def _excess(s: Array, t: Array) -> tuple[Array, Array]:
    """``E(l - t)_+`` up to its relative rounding, and about ``P(l > t)``.

    With ``c = t/s - s/2`` it is ``s E(|N| - c)_+``: s times the density of |N| at c less c times
    its tail, or the mean ``s (E|N| - c)`` where c is at most 0.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        c = np.minimum(t / s - 0.5 * s, 1e150) - 1e-14 * (np.abs(t) / s + s)
        positive_c = np.clip(c, 0.0, 1e8)
        density = np.exp(-0.5 * positive_c * positive_c) * math.sqrt(2.0 / math.pi)
        # P(|N| > c) is the density times sqrt(pi / 2) erfcx(c / sqrt(2)).
        scaled_tail = special.erfcx(positive_c / math.sqrt(2.0))
        # 1 - c times the ratio of tail and density is about 1/c^2, and its rounding 1e-16.
        remainder = 1.0 - positive_c * math.sqrt(math.pi / 2.0) * scaled_tail + 1e-15
        excess = s * density * remainder
        chance = density * scaled_tail * math.sqrt(math.pi / 2.0)
    mean = s * (math.sqrt(2.0 / math.pi) - np.minimum(c, 0.0))
    return np.where(c > 0.0, excess, mean), np.where(c > 0.0, chance, 1.0)


#: What is kept of K, the curvature's part of a loss, where steps compose: two of them would leave
#: the noise nothing. Less noise for more gamma, which a rule's sign does not feel.
CURVATURE_KEPT = 0.7

#: Cells of the losses of steps; rounding losses up to one of them costs .2 % of the noise.
_CELLS = 1500
#: Numbers y that are tried.
_TANGENTS = 12
#: Above the rounding of special functions, their differences and long sums.
_ROUND_UP = 1.0 + 1e-9
#: Steps of the searches for the largest relief and the least epsilon.
_DOUBLINGS = 2
_HALVINGS = 13


@dataclass(frozen=True)
class LossLaw:
    """A law that stands for the privacy loss of one Gaussian step, whatever came before.

    It is that of Z_j of Theorem 16, "Several steps, one delta": given all that came before, the
    loss L_j of the step has ``E(c + L_j - t)_+ <= E(c + Z_j - t)_+`` for every c. With N standard
    normal it is ``max(s |N| + s^2/2, K)`` or ``s |N| + s^2/2``, with probability 1/2 each, for an
    objective, and ``s N + s^2/2`` for a number.

    Parameters
    ----------
    ratio
        The ratio s > 0 of the step: of ``margin_delta`` for an objective, the bound of the
        movement over the deviation of the noise for a number.
    curvature
        The bound K of the curvature's part of the loss; 0 without one.
    folded
        Whether the step perturbs an objective.
    """

    ratio: float
    curvature: float = 0.0
    folded: bool = True

    def relieved(self, relief: float) -> LossLaw:
        """The law for noise that is smaller by this factor, with a gamma that makes up for it."""
        if not self.folded:
            return self
        return replace(self, ratio=self.ratio * relief, curvature=self.curvature * CURVATURE_KEPT)


def joint_delta(laws: Sequence[LossLaw], epsilon: float) -> float:
    """Upper bound on the delta at ``epsilon`` of steps with these laws, one after the other.

    By Theorem 16, "Several steps, one delta", it is ``E(Z - t)_+ / (1 + y)`` with Z the sum of
    independent losses and ``t = epsilon + log(1 + y) - y``, the least of a few y >= 0. As in
    ``margin_delta``, ``y = e^x - 1`` with x of the theorem. One folded law is integrated
    exactly, the others are rounded up to a grid.

    Parameters
    ----------
    laws
        Of the steps; without a folded one the bound is 1.
    epsilon
        The epsilon.

    Returns
    -------
    float
        A bound, at most 1.
    """
    *on_grid, last = sorted(laws, key=lambda law: (law.folded, law.ratio))
    if epsilon <= 0.0 or not last.folded:
        return 1.0
    losses, chances, beyond = _sum_of_laws(on_grid, 9.0 + math.sqrt(2.0 * min(epsilon, 500.0)))
    best = 1.0
    for y in np.linspace(0.0, min(math.sqrt(2.0 * epsilon), 4.0), _TANGENTS):
        # What the losses on the grid leave of t to the last law.
        t = (epsilon - (y - math.log1p(y))) * ROUND_DOWN - losses
        raised = np.maximum(t, last.curvature)
        # The difference first: added to t, a small excess would be lost.
        mean = 0.5 * ((raised - t) + excess_over(last.ratio, t) + excess_over(last.ratio, raised))
        total = float(np.sum(chances * mean)) + beyond
        best = min(best, total / (1.0 + y) * _ROUND_UP)
    return best


def _sum_of_laws(laws: Sequence[LossLaw], reach: float) -> tuple[Array, Array, float]:
    """The law of the sum of losses, each rounded up to a grid.

    Parameters
    ----------
    laws
        Of the losses.
    reach
        Normal variables beyond this are counted in the last cell.

    Returns
    -------
    tuple
        The values (m,) of the sum, their chances (m,), and what losses beyond their last cells add
        on average.
    """
    cell = sum(law.ratio * (reach + 0.5 * law.ratio) + law.curvature for law in laws) / _CELLS
    first_of_sum = 0
    chances = np.ones(1)
    beyond = 0.0
    for law in laws:
        first, own_chances, excess = _rounded_up(law, cell, reach)
        first_of_sum += first
        chances = np.convolve(chances, own_chances)
        beyond += excess
    steps = np.arange(len(chances), dtype=np.float64)
    losses = (first_of_sum + steps) * cell
    losses += (_ROUND_UP - 1.0) * np.abs(losses)
    return losses, chances, beyond


def joint_relief(laws: Sequence[LossLaw], budget: Budget) -> float:
    """How much smaller the noise of the folded laws may be; 1 where nothing is gained.

    Parameters
    ----------
    laws
        Of the steps.
    budget
        What all steps together may spend.

    Returns
    -------
    float
        The factor, at least 1.
    """

    def private(relief: float) -> bool:
        relieved_laws = [law.relieved(relief) for law in laws]
        return joint_delta(relieved_laws, budget.epsilon) <= budget.delta

    if budget.delta <= 0.0 or not private(1.0):
        return 1.0
    low = 1.0
    high = 2.0
    for _ in range(_DOUBLINGS):
        if not private(high):
            break
        low = high
        high = 2.0 * high
    return bracketed(private, low, high, _HALVINGS)


def relieved(
    calibration: MarginCalibration, relief: float, strong_convexity: float = 0.0
) -> MarginCalibration:
    """A calibration with less noise and more gamma; its epsilon is its cost alone at its delta.

    Parameters
    ----------
    calibration
        What is relieved.
    relief
        Factor by which the noise is smaller.
    strong_convexity
        Mu_R of the public regularizer.
    """
    curvature = calibration.curvature * CURVATURE_KEPT
    raised = (calibration.gamma + strong_convexity) / CURVATURE_KEPT * (1.0 + MARGIN)
    gamma = raised - strong_convexity
    scale = calibration.scale / relief * (1.0 + MARGIN)
    ratio = calibration.sensitivity / scale

    def alone(epsilon: float) -> bool:
        return bool(margin_delta(ratio, epsilon, curvature) <= calibration.delta)

    low = 0.0
    high = calibration.epsilon
    while not alone(high):
        low = high
        high = 2.0 * high
    epsilon = bracketed(alone, high, low, _HALVINGS)
    return replace(calibration, scale=scale, gamma=gamma, curvature=curvature, epsilon=epsilon)


def _rounded_up(law: LossLaw, cell: float, reach: float) -> tuple[int, Array, float]:
    """The law of a loss rounded up to cells.

    For X beyond c, ``(X + Y - t)_+ <= (X - c)_+ + (c + Y - t)_+``: what a loss exceeds its last
    cell by is added on average.

    Parameters
    ----------
    law
        Of the loss.
    cell
        Width of a cell.
    reach
        Normal variables beyond this are counted in the last cell.

    Returns
    -------
    tuple
        The number of the first cell, the chances of it and of those that follow, and what losses
        beyond the last of them add on average.
    """
    s = law.ratio
    first = math.floor(-s * reach / cell)
    if law.folded:
        first = 0
    last = math.ceil((s * (reach + 0.5 * s) + law.curvature) / cell)
    steps = np.arange(first, last + 1)
    # Normal variables below which the loss is at most so many cells.
    normal = steps * (cell / s) - 0.5 * s
    tail = special.ndtr(-normal)
    if law.folded:
        tail = special.ndtr(-np.maximum(normal, 0.0)) * 2.0
    chances = _chances(tail)
    if law.curvature > 0.0:
        # Half of the losses are at least K.
        raised_tail = np.where(steps * cell < law.curvature, 1.0, tail)
        chances = 0.5 * (chances + _chances(raised_tail))
    return first, chances, float(excess_over(s, np.array(steps[-1] * cell)))


def _chances(tail: Array) -> Array:
    """Probability of every cell from tail probabilities; the last cell includes the tail."""
    mass = -np.diff(tail, prepend=1.0)
    mass[-1] += tail[-1]
    return np.maximum(mass, 0.0) + 1e-15 * tail
