"""Rates: bounds on the excess hold, and slopes are those of a bounded V."""

import numpy as np
import pytest
from rates import slope


def test_a_slope_and_its_interval():
    x = np.array([10.0, 100.0, 1000.0, 10_000.0])
    fitted, half = slope(x, 5 * x**-0.7)
    assert fitted == pytest.approx(-0.7)
    assert half < 1e-6
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        fitted, half = slope(x, x**-0.5 * np.exp(0.1 * rng.normal(size=4)))
        inside += abs(fitted + 0.5) <= half
    assert 0.91 <= inside / 300 <= 0.985
    assert slope(x[:2], x[:2])[1] == np.inf
