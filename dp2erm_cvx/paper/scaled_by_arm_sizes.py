"""Entropy balancing whose rows are scaled by arm sizes, as the paper prints it (Theorem 4)."""

from __future__ import annotations

import math

from dp2erm_cvx.checks import public_number, whole_number
from dp2erm_cvx.privacy import EXACT, StabilityBound
from dp2erm_cvx.stability.base import (
    coupled_variation,
    declared_floor,
    largest_weight,
    outward,
    positive_ridge,
    stated_bound,
)


def entropy_balancing_paper_scaling(
    n: int, ridge: float, arm_floor: int | None, radius: float = math.inf, refined: bool = True
) -> StabilityBound:
    """Bound for entropy balancing with rows scaled by arm sizes (Theorem 4).

    With ``b_i = (n / n_a) e_a (x) g(x_i)`` and ``||g|| <= arm_floor / n``, so that
    ``||b_i|| <= 1``, the dual minimizes
    ``log mean exp(<lam, b_i>) - <lam, (gbar, gbar)> + (ridge / 2) ||lam||^2``
    over ``||lam|| <= radius``; ``w_i`` is proportional to ``exp(<lam, b_i>)`` with sum ``n``.

    Treatment flips are covered. A norm bound that was read off the data is not: ridge and ball do
    not scale with the rows.

    Parameters
    ----------
    n
        Number of records, at least 2.
    ridge
        Of the dual.
    arm_floor
        Public number of records that each arm holds at least, in every dataset of the universe; at
        most n/2.
    radius
        Bound on ``||lam||``.
    refined
        Whether the smaller one is taken of the stated bound, which can exceed the printed one, and
        a refinement.

    Returns
    -------
    StabilityBound

    Raises
    ------
    CalibrationError
        Without a floor and for ``ridge = 0``.
    DeclarationError
        For an invalid number.
    """
    n = whole_number("n", n, at_least=2)
    floor = declared_floor(n, arm_floor)
    ball = public_number("radius", radius, above=0.0, infinite=True)
    mu = positive_ridge(ridge)
    G = floor / n
    eta = 1.0 / floor
    # arms above the floor have means that differ by at most 2 G, in shares between G and 1 - G
    r = min(ball, outward(2.0 * G * math.hypot(G, 1.0 - G) / mu))
    # drift: mean change of the rows b under the law of the weights, at most eta
    mass = math.exp(min(2.0 * r, 700.0)) / (n - 1)
    drift = min(eta, mass * (1.0 + floor / (n - floor))) if refined else eta
    V = 2.0 * n
    w_max = float(n)
    if r <= 350.0:
        w_max = largest_weight(n, 2.0 * r)
        rest = (n - 1) * math.exp(-2.0 * r) / (1.0 + (n - 1) * math.exp(-2.0 * r))
        pull = 2.0 * (w_max / n) + drift + 2.0 * math.sqrt(2.0) * G / n
        half = r * math.sqrt(eta * drift) / 2.0
        by_convexity = pull / (2.0 * math.sqrt(mu) * math.sqrt(rest))
        by_divergence = half + math.hypot(half, by_convexity)
        tilt_by_range = 2.0 * math.tanh(r * eta / 2.0)
        tilt_by_drift = 2.0 * math.exp(2.0 * r * eta) * r * drift
        tilt = min(tilt_by_range, tilt_by_drift)
        # both coefficients lie in the ball, hence 2 r
        movement = min((pull + tilt) / mu, 2.0 * r)
        by_range = 2.0 * math.tanh((r * eta + movement) / 2.0)
        V = coupled_variation(n, w_max, min(by_divergence, by_range))
    scope = f"each arm has at least {floor} records in every dataset of the universe"
    name = "Theorem 4 (entropy balancing, scaled by arm sizes)"
    return stated_bound(n, V, w_max, f"{name}, refined" if refined else name, (scope, EXACT))
