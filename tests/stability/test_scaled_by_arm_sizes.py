"""Theorem 4 against its statement, written out."""

import math

import pytest

from dp2erm_cvx.paper import entropy_balancing_paper_scaling
from tests.stability.movement import INF


def by_hand(n, mu, floor, radius, drift=None):
    """The statement, written out; ``drift`` replaces eta where the refinement does."""
    G, eta = floor / n, 1 / floor
    refined, drift = drift is not None, eta if drift is None else drift
    r = min(radius, 2 * G * math.sqrt(G**2 + (1 - G) ** 2) / mu)
    p = 1 / (1 + (n - 1) * math.exp(-2 * r))
    e = 2 * p + drift + 2 * math.sqrt(2) * G / n
    s = r * math.sqrt(eta * drift)
    first = s / 2 + math.sqrt(s**2 / 4 + e**2 / (4 * mu * (1 - p)))
    tilt = 2 * math.tanh(r * eta / 2)
    tilt = min(tilt, 2 * math.exp(2 * r * eta) * r * drift) if refined else tilt
    delta = min((e + tilt) / mu, 2 * r)
    return min(2 * n, 2 * n * p + n * (1 - p) * min(first, 2 * math.tanh((r * eta + delta) / 2)))


@pytest.mark.parametrize("mu", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(
    ("n", "floor", "radius"), [(5, 2, INF), (400, 100, 0.3), (10_000, 500, 1.0)]
)
def test_scaled_against_the_statement_written_out(n, floor, radius, mu):
    stated = entropy_balancing_paper_scaling(n, mu, floor, radius, refined=False)
    assert stated.V == pytest.approx(by_hand(n, mu, floor, radius), rel=1e-8)
    r = min(radius, 2 * floor / n * math.hypot(floor / n, 1 - floor / n) / mu)
    drift = min(1 / floor, math.exp(2 * r) / (n - 1) * (1 + floor / (n - floor)))
    refined = entropy_balancing_paper_scaling(n, mu, floor, radius)
    assert refined.V == pytest.approx(by_hand(n, mu, floor, radius, drift), rel=1e-8)
    assert refined.V <= stated.V
