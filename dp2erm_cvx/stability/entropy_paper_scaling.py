"""Entropy balancing with the paper's scaling by arm sizes, under a public arm floor (Theorem 4')."""

from __future__ import annotations

import math

from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import declared_floor, positive_ridge, sample_size
from dp2erm_cvx.stability.one_sided import outward
from dp2erm_cvx.stability.tilt import EXACT, coupled_variation, largest_weight, stated_bound


def entropy_balancing_paper_scaling(
    n: int,
    ridge: float,
    arm_floor: int | None,
    radius: float = math.inf,
    restricted: bool = True,
    refined: bool = True,
) -> StabilityBound:
    """Bound for entropy balancing with rows scaled by arm sizes (Theorem 4').

    With ``b_i = (n / max(n_a, arm_floor)) g(x_i)`` in the block of the record's arm a and
    ``||g|| <= arm_floor / n``, so that ``||b_i|| <= 1``, the dual variable minimizes over
    ``||lam|| <= radius`` the function
    ``log mean exp(<lam, b_i>) - <lam, (gbar, gbar)> + (ridge / 2) ||lam||^2``, with a uniform base measure;
    ``w_i`` is proportional to ``exp(<lam, b_i>)`` with sum ``n``.

    Parameters
    ----------
    n
        Number of records, at least 2.
    ridge
        > 0, in the units where ``||b|| <= 1``.
    arm_floor
        n_min, public, at most n/2. A norm bound read off the data instead is not covered: ridge and ball do
        not scale with the rows.
    radius
        Norm ball of the dual variable, > 0 (``inf``: none), in those units.
    restricted
        Whether every dataset of the universe has at least ``arm_floor`` records in each arm. If not, an
        arm below the floor is scaled as if it had ``arm_floor`` records.
    refined
        Whether to use the smaller of the stated bound and a refinement of it: a flip changes only the scale
        of an arm, by a factor close to 1 unless the arm is small, and a small arm has little mass. With
        False the stated bound, which can exceed the printed one where floor and radius are both small.

    Treatment flips are covered. Raises CalibrationError without an arm floor and for ``ridge = 0``,
    DeclarationError for an invalid number.
    """
    n = sample_size(n)
    floor = declared_floor(n, arm_floor)
    ball = public_number("radius", radius, above=0.0, infinite=True)
    mu = positive_ridge(ridge)
    G = floor / n
    # with both arms above the floor their means differ by at most 2 G, in shares between G and 1 - G
    pull = 2.0 * G * (math.hypot(G, 1.0 - G) if restricted else math.hypot(G, 1.0))
    r = min(ball, outward(pull / mu))
    eta = 1.0 / floor
    # drift: mean change of the rows b under the law of the weights, at most eta
    mass = math.exp(min(2.0 * r, 700.0)) / (n - 1)
    drift = min(eta, mass * (1.0 + floor / (n - floor))) if refined else eta
    V, w_max = _bound(n, mu, r, 2.0 * math.sqrt(2.0) * G / n, eta, drift)
    scope = (
        f"each arm has at least {floor} records in every dataset of the universe"
        if restricted
        else f"arms below {floor} records are scaled as if they had {floor}"
    )
    name = "Theorem 4' (entropy balancing, scaled by arm sizes)"
    return stated_bound(n, V, w_max, f"{name}, refined" if refined else name, (scope, EXACT))


def _bound(n: int, mu: float, r: float, target: float, eta: float, drift: float) -> tuple[float, float]:
    """V and the largest weight; ``||lam|| <= r``, a flip changes rows b by at most eta, drift on average.

    The common records of arm c change by at most ``beta_c = G n / (n_c n'_c)``. The tilt of their log
    weights, x_i, is at most ``r beta_c``, and arm c has at most the share ``n_c exp(2r) / (n - 1)`` of any
    law in question; summed over arms the mean of ``beta`` is at most ``drift`` and that of ``beta^2`` at most
    ``eta drift``. With K the symmetrized divergence of the two laws, ``sum (q'_i - q_i) x_i`` is at most
    ``sqrt(K mean x^2)`` by Cauchy-Schwarz against the logarithmic mean of q_i and q'_i, and K is at least
    ``||q - q'||_1^2``. With ``drift = eta`` these are the terms of the theorem as stated.
    """
    if r > 350.0:
        return 2.0 * n, float(n)
    w_max = largest_weight(n, 2.0 * r)
    p = w_max / n
    rest = (n - 1) * math.exp(-2.0 * r) / (1.0 + (n - 1) * math.exp(-2.0 * r))
    pull = 2.0 * p + drift + target
    half = r * math.sqrt(eta * drift) / 2.0
    by_divergence = half + math.hypot(half, pull / (2.0 * math.sqrt(mu) * math.sqrt(rest)))
    tilt = min(2.0 * math.tanh(r * eta / 2.0), 2.0 * math.exp(2.0 * r * eta) * r * drift)
    # both coefficients lie in the ball, hence 2 r
    by_range = 2.0 * math.tanh((r * eta + min((pull + tilt) / mu, 2.0 * r)) / 2.0)
    return coupled_variation(n, w_max, min(by_divergence, by_range)), w_max
